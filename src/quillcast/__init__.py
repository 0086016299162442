"""Publish/subscribe without a broker: peers that find each other, build multicast trees, and repair them.

    async with quillcast.Node() as node:
        await node.publish("sport/tennis", b"hello")
        async for event in node.subscribe("sport/tennis"):
            ...

What is named here is imported where it is first used, so that `import quillcast` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quillcast.core.errors import (
        DiskFailed,
        EventTooLarge,
        LocalError,
        NotJoined,
        NotStable,
        QuillcastError,
        RemoteError,
        TopicExists,
        UnknownTopic,
        Unreachable,
    )
    from quillcast.live.config import LiveConfig
    from quillcast.live.node import Node
    from quillcast.live.publisher import Publisher
    from quillcast.live.runner import run
    from quillcast.live.subscription import Event, Loss, Subscription
    from quillcast.protocol.config import Config

__version__ = "0.1.0"

_HOMES = {
    "quillcast.core.errors": (
        "DiskFailed", "EventTooLarge", "LocalError", "NotJoined", "NotStable", "QuillcastError", "RemoteError",
        "TopicExists", "UnknownTopic", "Unreachable",
    ),
    "quillcast.live.config": ("LiveConfig",),
    "quillcast.live.node": ("Node",),
    "quillcast.live.publisher": ("Publisher",),
    "quillcast.live.runner": ("run",),
    "quillcast.live.subscription": ("Event", "Loss", "Subscription"),
    "quillcast.protocol.config": ("Config",),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Config",
    "DiskFailed",
    "Event",
    "EventTooLarge",
    "LiveConfig",
    "LocalError",
    "Loss",
    "Node",
    "NotJoined",
    "NotStable",
    "Publisher",
    "QuillcastError",
    "RemoteError",
    "Subscription",
    "TopicExists",
    "UnknownTopic",
    "Unreachable",
    "__version__",
    "run",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)
