"""What control messages are made of. Each layer declares its own in its `messages.py`; `protocol/wire.py` gathers them.

Tag numbers are appended, never reused; new fields go last, with a default.

====== ==================
tags   layer
====== ==================
1-19   neighbours
20-39  overlay
40-69  topics
70-89  reliability
====== ==================
"""

from typing import Annotated, Any, Protocol, TypeVar

import msgspec

from quillcast.core.errors import Malformed
from quillcast.core.ids import ID_BYTES

T = TypeVar("T")
WireId = Annotated[bytes, msgspec.Meta(min_length=ID_BYTES, max_length=ID_BYTES)]
"""An id in a message: bytes of another length are malformed."""
NUMBER_MAX = 1 << 62
Number = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]
"""A number in a message that is counted on from: larger ones would one day fit no message any more."""

_FAULTS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError)


def decoded(decoder: "msgspec.msgpack.Decoder[T]", data: bytes, what: str) -> T:
    """What the decoder makes of bytes that came from a network; `what` they should be.

    Raises `Malformed`, whichever of its ways the decoder takes to say so.
    """
    try:
        return decoder.decode(data)
    except _FAULTS as fault:
        raise Malformed(f"{len(data)} bytes are no {what}: {fault}") from fault


class Message(msgspec.Struct, frozen=True, array_like=True):
    """A control message. Repeat ``frozen=True`` on each class and give it a ``tag``."""


class Contact(msgspec.Struct, frozen=True, array_like=True, order=True):
    """A peer and where it is reached: whoever is introduced is introduced with an address."""

    node_id: WireId
    address: str


class Codec(Protocol):
    """Encodes and decodes any layer's message; a layer that carries others' messages is given one."""

    def encode(self, message: Message) -> bytes:
        """The message as bytes."""
        ...

    def decode(self, data: bytes) -> Any:
        """The message of these bytes. Raises `Malformed`."""
        ...
