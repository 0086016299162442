"""QuickSilver, *Constructing the Dissemination Structure*: the campus example, figures 15 to 19.

X is the campus, P, Q and R are departments, A to E laptops. The topic t is rooted at X. A publishes, all others
subscribe.
"""

from quillcast.protocol.scopes.labels import ChannelLabel
from quillcast.protocol.scopes.records import Record, forwarded, matches, originated
from tests.transcripts.transcript import compare

NAMES = {1: {1: "P", 2: "Q", 3: "R"}, 2: {10: "A", 11: "B", 20: "C", 21: "D", 30: "E"}}
"""By depth: the labels of departments in X, and of laptops in departments."""
P, Q, R, A, B, C, D, E = (label for names in NAMES.values() for label in names)
Channel = tuple[ChannelLabel, int, int]
"""A channel, the depth of its ends, and the origin of the bundles that it is for."""


def name(path: tuple[int, ...], depth: int) -> str:
    return ":".join(NAMES[depth + at][label] for at, label in enumerate(path))


def shown(record: Record) -> str:
    levels = enumerate(record.pairs, record.top)
    return ", ".join(f"{name((pair.origin,), depth)}-{name((pair.current,), depth)}" for depth, pair in levels)


def travel(channels: list[Channel], at: int, record: Record) -> list[str]:
    """What happens to a bundle from a laptop on: figure 19 as lines."""
    lines = [f"{name((at,), 2)}  t,k,({shown(record)})"]
    for channel, depth, origin in channels:
        if channel.source[-1] == at and matches(record, channel, depth, origin):
            label = f"{name(channel.source, depth)}-{name(channel.target, depth)}, t:{name((origin,), depth)}"
            lines.append(f"   channel {label}")
            lines += travel(channels, channel.target[-1], forwarded(record, channel, depth))
    return lines


def test_figure_19_the_records_of_a_bundle_before_and_after_d_leaves() -> None:
    to_b: Channel = (ChannelLabel((A,), (B,)), 2, A)
    p_to_q: Channel = (ChannelLabel((P, B), (Q, C)), 1, P)
    to_d: Channel = (ChannelLabel((C,), (D,)), 2, C)
    before = [to_b, p_to_q, to_d, (ChannelLabel((Q, D), (R, E)), 1, P)]
    after = [to_b, p_to_q, (ChannelLabel((Q, C), (R, E)), 1, P)]
    lines = ["# A publishes", *travel(before, A, originated(2, A)), ""]
    lines += ["# D leaves, and A publishes again", *travel(after, A, originated(2, A))]
    compare("figure-19.txt", "\n".join(lines) + "\n")
