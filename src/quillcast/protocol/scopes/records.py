"""Routing records: where in each scope a bundle locally originated, and where it is now.

QuickSilver, *Constructing the Dissemination Structure*. A record is a list of pairs (X, Y), one per level of scopes.
X is the member of a scope in which the bundle locally originated; Y is the member that it is in, or is entering. A
record holds the deepest K levels. Levels above them are added when the bundle crosses a channel there: nothing has
happened there before.

The paper counts levels from the peers upwards, as L = 1, 2, ... That needs peers at one depth, so a peer that is less
deep than others is padded with scopes of one member, nested in each other. Here a level has the depth of its members
below the topic's root scope: 1 for members of the root scope itself. Then the pairs of padding need not be written, for
they always say the same and no channel is defined inside a scope of one member. With D for the greatest depth,
L = D + 1 - depth and K = D + 1 - top, and D drops out of every comparison: K < L means depth < top.
"""

from typing import NamedTuple

from quillcast.protocol.scopes.labels import (
    DEPTH_MAX,
    ChannelLabel,
    MalformedRecord,
    decode_label,
    encode_label,
)

FORMAT, FORMAT_WITH_VERSIONS = 0, 1  # the first byte
VERSIONS = 127  # of a policy, one after the other: they take one byte


class Pair(NamedTuple):
    """The state of dissemination in one scope, as labels of its members."""

    origin: int
    current: int
    version: int = 0
    """Of the policy over whose channels the bundle goes. It is chosen where the bundle begins its way."""


class Record(NamedTuple):
    """The levels from depth `top` down, the outermost first."""

    top: int
    pairs: tuple[Pair, ...]

    def at(self, depth: int) -> Pair | None:
        """The pair at a depth; None where the record has none."""
        return self.pairs[depth - self.top] if self.top <= depth < self.top + len(self.pairs) else None

    def __str__(self) -> str:
        return ",".join(f"{pair.origin}-{pair.current}" for pair in self.pairs)


NO_RECORD = Record(0, ())
"""Of a bundle that is in no scope: it locally originates where it enters one."""


def originated(depth: int, label: int) -> Record:
    """The record of a bundle that was created at, or entered the scope at, a member at this depth."""
    return Record(depth, (Pair(label, label),))


def misroutes(record: Record, channel: ChannelLabel, depth: int) -> bool:
    """Is the bundle not where the channel begins? The paper's Y_L = P_L, which "is always true"."""
    pair = record.at(depth)
    return pair is not None and pair.current != channel.source[0]


def matches(
    record: Record, channel: ChannelLabel, depth: int, origin: int | None, version: int = 0, *, begins: bool = True
) -> bool:
    """Does a channel between members at this depth, for bundles of this origin (None: any), take the bundle?

    K >= L and X_L = R, or K < L and P_L = R: if the record has nothing for this level, the bundle originated at the
    channel's own source. Beyond the paper, whose policies are trees: a bundle never returns to where it originated,
    which has it already. There it would seem to originate at the entry point, and cross a second tree.

    A bundle that is still where it originated takes the channels on which bundles begin now. Further on, it keeps to
    channels of the same version.
    """
    if depth < record.top:
        return begins and (origin is None or origin == channel.source[0])
    pair = record.at(depth)
    if pair is None or pair.current != channel.source[0] or pair.origin in channel.target[:1]:
        return False
    follows = begins if pair.origin == pair.current else pair.version == version
    return follows and (origin is None or origin == pair.origin)


def forwarded(record: Record, channel: ChannelLabel, depth: int, version: int = 0) -> Record:
    """The record after the channel.

    It is extended up to the channel's level, what is inside the scope that it leaves is replaced by what is inside the
    one that it enters, and the current member at the channel's level changes. Levels above stay. A channel to all
    members at once leaves it where it is: each of them notes that it is there (`arrived`).
    """
    pair = record.at(depth)
    origin = channel.source[0] if pair is None else pair.origin
    entered, *inside = channel.target or channel.source[:1]
    changed = (Pair(origin, entered, version), *(Pair(label, label) for label in inside))
    return Record(min(record.top, depth), record.pairs[: max(0, depth - record.top)] + changed)


def arrived(record: Record, depth: int, label: int) -> Record | None:
    """The record of a bundle that came to a member at this depth over a multicast mechanism; None if it is not for it.

    A sender's own bundles come back to it. Those of other levels mean nothing there, and a peer may be a member of a
    scope and of its superscope.
    """
    pair = record.at(depth) if depth == record.top + len(record.pairs) - 1 else None
    if pair is None or label in (pair.origin, pair.current):
        return None
    return Record(record.top, (*record.pairs[: depth - record.top], pair._replace(current=label)))


def encode(record: Record) -> bytes:
    """The record as it travels in an envelope: format, depth of the first pair, two labels per pair; empty for none.

    If any pair has a version other than 0, each version follows its pair, as a label one higher.
    """
    if not record.pairs:
        return b""
    with_versions = any(pair.version for pair in record.pairs)
    out = bytearray((FORMAT_WITH_VERSIONS if with_versions else FORMAT, record.top))
    for origin, current, version in record.pairs:
        encode_label(origin, out)
        encode_label(current, out)
        if with_versions:
            encode_label(version + 1, out)
    return bytes(out)


def top(data: bytes) -> int:
    """The depth of the first pair of a record that is well formed and not empty."""
    return data[1]


def decode(data: bytes) -> Record:
    """The record of an envelope. Raises `MalformedRecord`."""
    if not data:
        return NO_RECORD
    if len(data) < 2 or data[0] > FORMAT_WITH_VERSIONS:
        raise MalformedRecord(f"{len(data)} bytes are not a routing record of a known format: {data[:8].hex()}")
    at, pairs = 2, list[Pair]()
    while at < len(data):
        origin, at = decode_label(data, at)
        current, at = decode_label(data, at)
        version, at = decode_label(data, at) if data[0] == FORMAT_WITH_VERSIONS else (1, at)
        if version > VERSIONS:
            raise MalformedRecord(f"a routing record has version {version - 1}; they go up to {VERSIONS - 1}")
        pairs.append(Pair(origin, current, version - 1))
        if data[1] + len(pairs) - 1 > DEPTH_MAX:
            raise MalformedRecord(f"a routing record goes deeper than {DEPTH_MAX} levels")
    if not data[1] or not pairs:
        raise MalformedRecord(f"a routing record begins at depth {data[1]} and has {len(pairs)} pairs")
    if data[0] == FORMAT_WITH_VERSIONS and not any(pair.version for pair in pairs):
        raise MalformedRecord("a routing record with versions has none but 0")
    return Record(data[1], tuple(pairs))
