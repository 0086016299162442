"""What a peer may set, layer by layer."""

import msgspec

from quillcast.protocol.neighbours.config import NeighbourConfig, StreamConfig
from quillcast.protocol.overlay.config import OverlayConfig
from quillcast.protocol.topics.config import TopicConfig


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of one peer; the defaults are what runs live and in simulations alike."""

    neighbours: NeighbourConfig = NeighbourConfig()
    streams: StreamConfig = StreamConfig()
    overlay: OverlayConfig = OverlayConfig()
    topics: TopicConfig = TopicConfig()
