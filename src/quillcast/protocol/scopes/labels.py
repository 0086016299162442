"""Labels: short numbers that a manager gives to its members, so that records and channels can name them.

A label means something only to one scope. A *path* is the labels from a member of some scope down to a peer: in the
paper's notation P:B, the peer B in the scope P.
"""

from typing import Annotated, NamedTuple

from msgspec import Meta

from quillcast.core.errors import Malformed

LABEL_BYTES_MAX = 3  # two labels per level of a record: at most 6 bytes
LABEL_MAX = (1 << 7 * LABEL_BYTES_MAX) - 1
DEPTH_MAX = 15  # levels of scopes below a topic's root scope; a guess: three or four are in use anywhere

Label = Annotated[int, Meta(ge=1, le=LABEL_MAX)]
Depth = Annotated[int, Meta(ge=1, le=DEPTH_MAX)]
"""How far a member lies below a topic's root scope. Members of the root scope have depth 1."""
Path = Annotated[tuple[Label, ...], Meta(max_length=DEPTH_MAX)]
"""Labels from the outermost level down, one per level."""


class MalformedRecord(Malformed):
    """Bytes that are not a routing record."""


class ChannelLabel(NamedTuple):
    """The name of a channel: P:B-Q:C leads from the peer B in P to the peer C in Q, members of one scope.

    Delegation extends `source`; the choice of an entry point extends `target`. A channel to all members at once, over a
    multicast mechanism, has no target.
    """

    source: Annotated[Path, Meta(min_length=1)]
    target: Path

    def __str__(self) -> str:
        return f"{':'.join(map(str, self.source))}-{':'.join(map(str, self.target)) or 'all'}"


def encode_label(label: int, out: bytearray) -> None:
    """Append a label as a varint: 7 bits per byte, the lowest first; the high bit says that another byte follows."""
    while label > 0x7F:
        out.append(label & 0x7F | 0x80)
        label >>= 7
    out.append(label)


def decode_label(data: bytes, at: int) -> tuple[int, int]:
    """The label at an offset, and the offset after it. Each label has one encoding."""
    label = 0
    for place, byte in enumerate(data[at : at + LABEL_BYTES_MAX]):
        label |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            if label == 0 or (place and byte == 0):
                raise MalformedRecord(f"a label at byte {at} of a routing record is 0, or has more bytes than it needs")
            return label, at + place + 1
    raise MalformedRecord(f"a label at byte {at} of a routing record has no end within {LABEL_BYTES_MAX} bytes")
