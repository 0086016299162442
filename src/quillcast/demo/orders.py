"""What the conductor and a peer say to each other: one JSON line per order, and one per answer, in turn."""

import msgspec


class Subscribe(msgspec.Struct, frozen=True, tag=True):
    """Subscribe to a topic; answered when the subscription stands."""

    topic: str


class Unsubscribe(msgspec.Struct, frozen=True, tag=True):
    """End the subscription to a topic."""

    topic: str


class Publish(msgspec.Struct, frozen=True, tag=True):
    """Publish these payloads; answered when they are on their way."""

    topic: str
    payloads: list[bytes]


class Unplug(msgspec.Struct, frozen=True, tag=True):
    """Be cut off from all other peers, or no longer."""

    yes: bool


class Leave(msgspec.Struct, frozen=True, tag=True):
    """Leave in good order; the process ends instead of an answer."""


Order = Subscribe | Unsubscribe | Publish | Unplug | Leave


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The peer has joined: its first line."""

    node_id: bytes


class Done(msgspec.Struct, frozen=True, tag=True):
    """The order is carried out."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The order could not be carried out, and why."""

    why: str


Answer = Ready | Done | Failed

LINE_BYTES_MAX = 1 << 20  # a guess: many times what is published at once here
