"""Who gets what a host hands in: each layer registers the messages and timers that it declares."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from quillcast.core.errors import Malformed
from quillcast.core.host import Timer
from quillcast.core.messages import Contact, Message

M = TypeVar("M", bound=Message)
T = TypeVar("T", bound=Timer)


class Dispatch:
    """One peer's handlers, one for each kind of input.

    A message reaches a peer in one of two ways, and the two have handlers of their own: straight from its sender, or
    routed by the overlay to the peer that is closest to a key.
    """

    def __init__(self) -> None:
        self._direct: dict[type, Callable[[Contact, Any], None]] = {}
        self._routed: dict[type, Callable[[Any], None]] = {}
        self._timers: dict[type, Callable[[Any], None]] = {}

    def on_message(self, kind: type[M], handle: Callable[[Contact, M], None]) -> None:
        """Hand messages of this kind to `handle(sender, message)`. Raises `ValueError` if somebody has them already."""
        _enter(self._direct, kind, handle)

    def on_messages(self, kinds: Iterable[type[Message]], handle: Callable[[Contact, Any], None]) -> None:
        """The same for all messages of a layer that tells them apart by itself."""
        for kind in kinds:
            self.on_message(kind, handle)

    def on_routed(self, kind: type[M], handle: Callable[[M], None]) -> None:
        """Hand messages of this kind that came over the overlay to `handle(message)`. Raises `ValueError` likewise."""
        _enter(self._routed, kind, handle)

    def on_timer(self, kind: type[T], handle: Callable[[T], None]) -> None:
        """Hand timers of this kind to `handle(timer)`. Raises `ValueError` likewise."""
        _enter(self._timers, kind, handle)

    def on_timers(self, kinds: Iterable[type[Timer]], handle: Callable[[Any], None]) -> None:
        """The same for all timers of a layer that tells them apart by itself."""
        for kind in kinds:
            self.on_timer(kind, handle)

    def message(self, sender: Contact, message: Message) -> None:
        """A message came straight from `sender`. Raises `Malformed` for a kind that is only routed."""
        handle = self._direct.get(type(message))
        if handle is None:
            raise Malformed(f"a {type(message).__name__} must be routed")
        handle(sender, message)

    def routed(self, message: Message) -> None:
        """A message reached the peer that is closest to its key. Raises `Malformed` for a kind that is never routed."""
        handle = self._routed.get(type(message))
        if handle is None:
            raise Malformed(f"a {type(message).__name__} cannot be routed to a topic")
        handle(message)

    def timer(self, timer: Timer) -> None:
        """A timer is due."""
        self._timers[type(timer)](timer)


def _enter(handlers: dict[type, Any], kind: type, handle: Any) -> None:
    if kind in handlers:
        raise ValueError(f"{kind.__qualname__} has a handler already: {handlers[kind]}")
    handlers[kind] = handle
