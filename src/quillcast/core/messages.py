"""The parts of control messages. Each layer declares its own in `messages.py`; `protocol/wire.py` collects them.

Tag numbers are appended and never reused. New fields go last and have a default.

====== ==================
tags   layer
====== ==================
1-19   neighbours
20-39  overlay
40-69  topics
70-89  reliability
90-109 scopes
110-129 topics
130-139 scopes
====== ==================
"""

from collections.abc import Iterable
from typing import Annotated, Any, Protocol, Self, TypeVar

import msgspec

from quillcast.core.errors import Malformed
from quillcast.core.ids import ID_BYTES, RING, number

T = TypeVar("T")
WireId = Annotated[bytes, msgspec.Meta(min_length=ID_BYTES, max_length=ID_BYTES)]
"""An id in a message. Bytes of any other length are malformed."""
NUMBER_MAX = 1 << 62
Number = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]
"""A number in a message that will be incremented. The bound ensures that the sum still fits into a message."""

ADDRESS_MAX = 300  # characters: a name of 253 and a port, with room for a prefix

FAULTS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError)
"""The exceptions of decoders for malformed bytes."""


def decoded(decoder: "msgspec.msgpack.Decoder[T]", data: bytes, what: str) -> T:
    """Decode bytes from the network; `what` is their description in an error.

    Raises `Malformed` for any exception of the decoder.
    """
    try:
        return decoder.decode(data)
    except FAULTS as fault:
        raise Malformed(f"{len(data)} bytes are not a valid {what}: {fault}") from fault


class Message(msgspec.Struct, frozen=True, array_like=True):
    """A control message. Repeat ``frozen=True`` on each class and give it a ``tag``."""

    def aged(self, by_s: float) -> Self:
        """The same message after it waited for some seconds: the ages that it contains have grown by that."""
        return self


class Contact(msgspec.Struct, frozen=True, array_like=True, order=True):
    """A peer and its address. A peer is always introduced together with its address."""

    node_id: WireId
    address: Annotated[str, msgspec.Meta(max_length=ADDRESS_MAX)]


def by_distance(contacts: Iterable[Contact], key: bytes) -> list[Contact]:
    """Sort peers by the distance of their ids from a key, closest first; the smaller id wins a tie."""
    place = number(key)

    def distance(contact: Contact) -> tuple[int, bytes]:
        clockwise = (int.from_bytes(contact.node_id, "big") - place) % RING  # `ring_distance`, inlined
        return min(clockwise, RING - clockwise), contact.node_id

    return sorted(contacts, key=distance)


class Codec(Protocol):
    """Encodes and decodes messages of any layer, for layers that carry messages of others."""

    def encode(self, message: Message) -> bytes:
        """Encode the message."""
        ...

    def decode(self, data: bytes) -> Any:
        """Decode a message. Raises `Malformed`."""
        ...
