"""Publish/subscribe without a broker: peers that find each other, build multicast trees, and repair them.

    async with quillcast.Node() as node:
        await node.publish("sport/tennis", b"hello")
        async for event in node.subscribe("sport/tennis"):
            ...

    with quillcast.BlockingNode() as node:  # for notebooks and scripts
        for event in node.subscribe("sport/tennis"):
            ...

Names are imported on first use, so `import quillcast` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quillcast.core.errors import (
        DiskFailed,
        EventTooLarge,
        LocalError,
        NotAdmitted,
        NotJoined,
        NotStable,
        QuillcastError,
        RemoteError,
        TopicExists,
        UnknownTopic,
        Unreachable,
    )
    from quillcast.core.loss import Loss
    from quillcast.core.status.peers import LinkStatus, NodeStatus, Traffic
    from quillcast.core.status.topics import SubscriberLag, TopicStatus
    from quillcast.core.status.traces import TraceStatus
    from quillcast.core.status.trees import TreeStatus
    from quillcast.live.admission.credentials import Credentials
    from quillcast.live.clients.client import Client, connect
    from quillcast.live.config import LiveConfig
    from quillcast.live.edges.publisher import Publisher
    from quillcast.live.edges.subscription import Event, Subscription
    from quillcast.live.node import blocking
    from quillcast.live.node.blocking import BlockingNode, BlockingPublisher, BlockingSubscription
    from quillcast.live.node.node import Node
    from quillcast.live.runtime.runner import run
    from quillcast.protocol.config import Config
    from quillcast.protocol.security.access import AccessDenied

__version__ = "0.1.0"

_HOMES = {
    "quillcast.core.errors": (
        "DiskFailed", "EventTooLarge", "LocalError", "NotAdmitted", "NotJoined", "NotStable", "QuillcastError",
        "RemoteError", "TopicExists", "UnknownTopic", "Unreachable",
    ),
    "quillcast.live.node.blocking": ("BlockingNode", "BlockingPublisher", "BlockingSubscription"),
    "quillcast.live.clients.client": ("Client", "connect"),
    "quillcast.live.config": ("LiveConfig",),
    "quillcast.live.admission.credentials": ("Credentials",),
    "quillcast.live.node.node": ("Node",),
    "quillcast.live.edges.publisher": ("Publisher",),
    "quillcast.live.runtime.runner": ("run",),
    "quillcast.live.edges.subscription": ("Event", "Subscription"),
    "quillcast.core.loss": ("Loss",),
    "quillcast.core.status.peers": ("LinkStatus", "NodeStatus", "Traffic"),
    "quillcast.core.status.topics": ("SubscriberLag", "TopicStatus"),
    "quillcast.core.status.traces": ("TraceStatus",),
    "quillcast.core.status.trees": ("TreeStatus",),
    "quillcast.protocol.config": ("Config",),
    "quillcast.protocol.security.access": ("AccessDenied",),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AccessDenied",
    "BlockingNode",
    "BlockingPublisher",
    "BlockingSubscription",
    "Client",
    "Config",
    "Credentials",
    "DiskFailed",
    "Event",
    "EventTooLarge",
    "LinkStatus",
    "LiveConfig",
    "LocalError",
    "Loss",
    "Node",
    "NodeStatus",
    "NotAdmitted",
    "NotJoined",
    "NotStable",
    "Publisher",
    "QuillcastError",
    "RemoteError",
    "SubscriberLag",
    "Subscription",
    "TopicExists",
    "TopicStatus",
    "TraceStatus",
    "Traffic",
    "TreeStatus",
    "UnknownTopic",
    "Unreachable",
    "__version__",
    "blocking",
    "connect",
    "run",
]


def __getattr__(name: str) -> Any:
    if name == "blocking":
        return import_module("quillcast.live.node.blocking")
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)
