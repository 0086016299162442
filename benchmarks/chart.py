"""The picture of docs/benchmarks.md as SVG: rates by size on the left, delays of lone events on the right.

Equal results give equal bytes. Needs only Python.
"""

import math
from html import escape

from page import SIZES, Results, delays, rates

COLOURS = {
    "quillcast": "#1f5fa8",
    "zenoh": "#e0903a",
    "pyzmq": "#5aa469",
    "cyclonedds": "#a371c9",
    "iceoryx2": "#c7656f",
    "nats-py": "#6f757d",
}
SYSTEMS = (
    "quillcast, two peers",
    "quillcast",
    "zenoh",
    "pyzmq",
    "iceoryx2",
    "iceoryx2, polling",
    "cyclonedds",
    "cyclonedds, best effort",
    "nats-py",
)
NAMED = {"quillcast, two peers": "quillcast", "quillcast": "quillcast, forwarder"}
DASHED = ("quillcast", ", polling", ", best effort")
INK, FAINT = "#1c1b19", "#ddd8cc"
WIDTH, HEIGHT = 860, 390
LEFT, TOP, BOTTOM = 92, 62, 336  # of both panels, in pixels
RATES_RIGHT, NAMES, DELAYS_LEFT, DELAYS_RIGHT = 408, 440, 606, 836
STEPS_US = (10, 30, 100, 300, 1000)
HEAD = f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" \
aria-labelledby="title description" font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">
<title id="title">Events a second by size, and delays of lone events</title>
<desc id="description">Figures of the table beside it, where a handler is called with each event.</desc>
<rect x="1" y="1" width="{WIDTH - 2}" height="{HEIGHT - 2}" rx="12" fill="#fbfaf7" stroke="{FAINT}"/>""".splitlines()


def drawn(results: Results) -> str:
    """The picture."""
    by_size, lone = rates(results), delays(results)
    shown = [name for name in SYSTEMS if name in by_size and name in lone]
    events_per_s = {name: {size: row["events_per_s"] for size, row in by_size[name].items()} for name in shown}
    took_us = {name: (lone[name]["p50_us"], lone[name]["p99_us"]) for name in shown}
    return "\n".join([*HEAD, *_rates(shown, events_per_s), *_delays(shown, took_us), "</svg>\n"])


def _rates(shown: list[str], by_size: dict[str, dict[int, float]]) -> list[str]:
    """Lines on logarithmic axes."""
    values = [value for rows in by_size.values() for value in rows.values()]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))

    def x(size: int) -> float:
        return LEFT + 24 + (RATES_RIGHT - LEFT - 48) * SIZES.index(size) / (len(SIZES) - 1)

    def y(value: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * (math.log10(value) - low) / (high - low)

    parts = [_text(LEFT, 36, "events a second", bold=True)]
    for power in range(low, high + 1):
        parts += [
            _line(LEFT, y(10**power), RATES_RIGHT, y(10**power)),
            _text(LEFT - 8, y(10**power) + 4, f"{10**power:,}", "end"),
        ]
    parts += [_text(x(size), BOTTOM + 20, f"{size:,}", "middle") for size in SIZES]
    parts.append(_text((LEFT + RATES_RIGHT) / 2, BOTTOM + 38, "bytes", "middle"))
    for name in reversed(shown):  # the first is drawn on top
        points = [(x(size), y(by_size[name][size])) for size in SIZES if size in by_size[name]]
        path = "L".join(f"{left:.1f} {top:.1f}" for left, top in points)
        parts.append(f'<path d="M{path}" fill="none" {_stroke(name)}/>')
        parts += [f'<circle cx="{left:.1f}" cy="{top:.1f}" r="3" fill="{_colour(name)}"/>' for left, top in points]
    return parts


def _delays(shown: list[str], lone: dict[str, tuple[float, float]]) -> list[str]:
    """From the median to the 99th percentile on a logarithmic axis; the names are the legend of both panels."""
    low, high = math.log10(STEPS_US[0] / 2), math.log10(max(STEPS_US[-1], *(p99 for _, p99 in lone.values())))

    def x(value: float) -> float:
        return DELAYS_LEFT + (DELAYS_RIGHT - DELAYS_LEFT) * (math.log10(max(value, 5)) - low) / (high - low)

    parts = [_text(NAMES, 36, "lone events, µs: median (dot) to 99th percentile", bold=True)]
    for step in STEPS_US:
        parts += [_line(x(step), TOP, x(step), BOTTOM), _text(x(step), BOTTOM + 20, f"{step:,}", "middle")]
    for place, name in enumerate(shown):
        at, (p50, p99) = TOP + (BOTTOM - TOP) * (place + 0.5) / len(shown), lone[name]
        parts += [
            f'<path d="M{NAMES} {at:.1f}L{NAMES + 22} {at:.1f}" {_stroke(name)}/>',
            _text(NAMES + 28, at + 4, NAMED.get(name, name), bold=name in NAMED),
            f'<path d="M{x(p50):.1f} {at:.1f}H{x(p99):.1f}M{x(p99):.1f} {at - 5:.1f}v10" {_stroke(name)}/>',
            f'<circle cx="{x(p50):.1f}" cy="{at:.1f}" r="4.5" fill="{_colour(name)}"/>',
        ]
    return parts


def _colour(name: str) -> str:
    return COLOURS[name.partition(",")[0]]


def _stroke(name: str) -> str:
    dash = ' stroke-dasharray="6 4"' if name.endswith(DASHED) else ""
    return f'stroke="{_colour(name)}" stroke-width="{3 if name in NAMED else 1.8}"{dash}'


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{FAINT}"/>'


def _text(x: float, y: float, text: str, anchor: str = "start", *, bold: bool = False) -> str:
    style = f'text-anchor="{anchor}" font-size="12.5" fill="{INK}"' + (' font-weight="600"' if bold else "")
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>'
