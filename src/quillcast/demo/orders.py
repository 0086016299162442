"""The protocol between the conductor and a peer: one JSON line per order, and one per answer, alternating."""

import msgspec


class Create(msgspec.Struct, frozen=True, tag=True):
    """Create a topic. `admission` says who numbers its events."""

    topic: str
    admission: str


class Manage(msgspec.Struct, frozen=True, tag=True):
    """Run the manager of the scope that this file describes."""

    file: str


class Subscribe(msgspec.Struct, frozen=True, tag=True):
    """Subscribe to a topic. Answered when the subscription is established."""

    topic: str


class Unsubscribe(msgspec.Struct, frozen=True, tag=True):
    """End the subscription to a topic."""

    topic: str


class Publish(msgspec.Struct, frozen=True, tag=True):
    """Publish these payloads. Answered when they have been sent."""

    topic: str
    payloads: list[bytes]


class Unplug(msgspec.Struct, frozen=True, tag=True):
    """Cut the peer off from all others, or reconnect it."""

    yes: bool


class Leave(msgspec.Struct, frozen=True, tag=True):
    """Leave in good order. The process ends instead of answering."""


Order = Create | Manage | Subscribe | Unsubscribe | Publish | Unplug | Leave


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The peer has joined. Its first line."""

    node_id: bytes
    address: str


class Done(msgspec.Struct, frozen=True, tag=True):
    """The order was carried out."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The order could not be carried out, and why."""

    why: str


Answer = Ready | Done | Failed

LINE_BYTES_MAX = 1 << 20  # a guess: many times what is published at once here
