"""The union of the messages of all layers, as it travels in control frames."""

from typing import Any, Union

import msgspec

from quillcast.core.messages import Message, decoded
from quillcast.protocol.neighbours import messages as neighbours
from quillcast.protocol.neighbours import stream_messages as streams
from quillcast.protocol.overlay import messages as overlay
from quillcast.protocol.reliability import messages as reliability
from quillcast.protocol.scopes import messages as scopes
from quillcast.protocol.topics import messages as trees
from quillcast.protocol.topics import query_messages as queries
from quillcast.protocol.topics import root_messages as roots

MESSAGES: tuple[type[Message], ...] = (
    *neighbours.MESSAGES,
    *streams.MESSAGES,
    *overlay.MESSAGES,
    *trees.MESSAGES,
    *roots.MESSAGES,
    *queries.MESSAGES,
    *reliability.MESSAGES,
    *scopes.MESSAGES,
)

AnyMessage = Union[MESSAGES]  # type: ignore[valid-type]  # noqa: UP007
_encoder = msgspec.msgpack.Encoder()
_one: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(AnyMessage)
_many: msgspec.msgpack.Decoder[list[Any]] = msgspec.msgpack.Decoder(list[AnyMessage])


def encode(message: Message) -> bytes:
    """Encode one message."""
    return _encoder.encode(message)


def decode(data: bytes) -> Any:
    """Decode one message. Raises `Malformed`."""
    return decoded(_one, data, "message")


def encode_all(messages: list[Message]) -> bytes:
    """Encode the waiting control messages as the body of one frame."""
    return _encoder.encode(messages)


def decode_all(data: bytes) -> list[Any]:
    """Decode the body of a control frame. Raises `Malformed`."""
    return decoded(_many, data, "control messages")


class WireCodec:
    """`core.messages.Codec` for the union, for layers that carry messages of other layers."""

    __slots__ = ()

    encode = staticmethod(encode)
    decode = staticmethod(decode)
