"""Profile publisher, forwarder and subscriber at full speed: samples of each process by function.

Every millisecond of processor time, a timer records the running function. Work in C counts for the function that called
it, and time in the kernel and the event loop for `runners.Runner.run`. `us_per_event` is the processor time of the
function per event of 100 bytes, in microseconds.
"""

from actors import ask_all, running
from head import Row, parser, tell
from throughput import Stage

SIZE_BYTES, ROWS_MAX = 100, 10
SECONDS, QUICK_SECONDS = 10.0, 2.0


def main() -> None:
    options = parser(__doc__).parse_args()
    with running("quillcast", ["publisher", "subscriber"]) as system:
        stage = Stage(system)
        assert system.middle is not None
        processes = {**system.actors, "forwarder": system.middle}
        seconds = QUICK_SECONDS if options.quick else SECONDS
        run = stage.measure(SIZE_BYTES, seconds, warmed_up=lambda: ask_all(processes.values(), "sample"))
        rows = [row for role, process in processes.items() for row in _rows(role, process.ask("sampled"), run)]
    tell("profiles", rows, options)


def _rows(role: str, samples: dict[str, int], run: Row) -> list[Row]:
    """The functions that take the most time, and all others together."""
    total = sum(samples.values())
    ordered = sorted(samples.items(), key=lambda item: -item[1])
    shown = [*ordered[:ROWS_MAX], ("all others", sum(count for _, count in ordered[ROWS_MAX:]))]
    return [
        {
            "system": "quillcast",
            "size_bytes": SIZE_BYTES,
            "role": role,
            "function": function,
            "share": round(count / total, 3),
            "us_per_event": round(run["by_role"][role] * count / total, 4),
        }
        for function, count in shown
    ]


if __name__ == "__main__":
    main()
