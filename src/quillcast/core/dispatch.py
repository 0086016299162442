"""Routes inputs to layers: each layer registers the messages and timers that it declares."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from quillcast.core.errors import Malformed
from quillcast.core.host import Timer
from quillcast.core.messages import Contact, Message

M = TypeVar("M", bound=Message)
T = TypeVar("T", bound=Timer)


class Dispatch:
    """The handlers of one peer, one for each kind of input.

    A message reaches a peer in one of two ways: directly from its sender, or routed by the overlay to the peer closest
    to a key. The two ways have separate handlers.
    """

    def __init__(self) -> None:
        self._direct: dict[type, Callable[[Contact, Any], None]] = {}
        self._routed: dict[type, Callable[[Any], None]] = {}
        self._timers: dict[type, Callable[[Any], None]] = {}

    def on_message(self, kind: type[M], handle: Callable[[Contact, M], None]) -> None:
        """Call `handle(sender, message)` for messages of this kind. Raises `ValueError` if the kind has a handler."""
        _enter(self._direct, kind, handle)

    def on_messages(self, kinds: Iterable[type[Message]], handle: Callable[[Contact, Any], None]) -> None:
        """Register one handler for several kinds of messages, if a layer tells them apart by itself."""
        for kind in kinds:
            self.on_message(kind, handle)

    def on_routed(self, kind: type[M], handle: Callable[[M], None]) -> None:
        """Call `handle(message)` for routed messages of this kind. Raises `ValueError` if the kind has a handler."""
        _enter(self._routed, kind, handle)

    def on_timer(self, kind: type[T], handle: Callable[[T], None]) -> None:
        """Call `handle(timer)` for timers of this kind. Raises `ValueError` if the kind has a handler."""
        _enter(self._timers, kind, handle)

    def on_timers(self, kinds: Iterable[type[Timer]], handle: Callable[[Any], None]) -> None:
        """Register one handler for several kinds of timers, if a layer tells them apart by itself."""
        for kind in kinds:
            self.on_timer(kind, handle)

    def message(self, sender: Contact, message: Message) -> None:
        """Handle a message that came directly from `sender`. Raises `Malformed` for a kind that is only routed."""
        handle = self._direct.get(type(message))
        if handle is None:
            raise Malformed(f"a {type(message).__name__} must be routed")
        handle(sender, message)

    def routed(self, message: Message) -> None:
        """Handle a message routed to this peer. Raises `Malformed` for a kind that is never routed."""
        handle = self._routed.get(type(message))
        if handle is None:
            raise Malformed(f"a {type(message).__name__} cannot be routed to a topic")
        handle(message)

    def timer(self, timer: Timer) -> None:
        """Handle a timer that is due."""
        self._timers[type(timer)](timer)


def _enter(handlers: dict[type, Any], kind: type, handle: Any) -> None:
    if kind in handlers:
        raise ValueError(f"{kind.__qualname__} already has a handler: {handlers[kind]}")
    handlers[kind] = handle
