"""The settings of a peer, by layer."""

import msgspec

from quillcast.core.errors import LocalError
from quillcast.protocol.neighbours.config import NeighbourConfig, StreamConfig
from quillcast.protocol.overlay.config import OverlayConfig
from quillcast.protocol.topics.config import TopicConfig


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of one peer. The defaults apply both to live peers and to simulations."""

    neighbours: NeighbourConfig = NeighbourConfig()
    streams: StreamConfig = StreamConfig()
    overlay: OverlayConfig = OverlayConfig()
    topics: TopicConfig = TopicConfig()

    def __post_init__(self) -> None:
        for field in msgspec.structs.fields(self):
            value, kind = getattr(self, field.name), type(field.default)
            if not isinstance(value, kind):
                raise LocalError(f"{field.name} = {value!r} is {type(value).__name__}; use {kind.__name__}(...)")
