"""An event's attributes: a map from text to any value that MessagePack supports, packed by the publisher."""

from collections.abc import Mapping
from typing import Any

import msgspec

from quillcast.core.errors import LocalError, Malformed
from quillcast.core.messages import decoded

_DECODER: msgspec.msgpack.Decoder[dict[str, Any]] = msgspec.msgpack.Decoder(dict[str, Any])
_FAULTS = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError, Malformed)


def pack(attributes: Mapping[str, Any]) -> bytes:
    """Pack the attributes. Raises `LocalError` unless `unpack` can read them: subscribers would drop the block."""
    if not isinstance(attributes, Mapping):
        raise LocalError(f"attributes are a mapping, not {type(attributes).__name__}; use attributes={{name: value}}")
    try:
        packed = msgspec.msgpack.encode(dict(attributes))
        unpack(packed)
    except _FAULTS as problem:
        raise LocalError(f"attributes must map text to values that MessagePack can encode: {problem}") from problem
    if not all(name.strip() for name in attributes):
        raise LocalError("an attribute's name is blank; name each attribute")
    return packed


def unpack(packed: bytes) -> dict[str, Any]:
    """Unpack the attributes. Raises `Malformed`."""
    return decoded(_DECODER, packed, "attributes")
