"""Routes inputs to layers, and orders to parts of a layer. Each registers the kinds that it handles."""

from collections.abc import Callable, Hashable, Iterable
from functools import cache
from types import MethodType
from typing import Any, TypeVar

from quillcast.core.errors import Malformed
from quillcast.core.host import Timer
from quillcast.core.messages import Contact, Message

M = TypeVar("M", bound=Message)
T = TypeVar("T", bound=Timer)
Handlers = dict[type, tuple[Callable[..., None], int]]
"""By kind of input: a function, and the index of the part that is its first argument."""

_shared: dict[Hashable, Handlers] = {}


class Dispatch:
    """The handlers of one peer, one for each kind of input.

    A message reaches a peer in one of two ways: directly from its sender, or routed by the overlay to the peer closest
    to a key. The two have separate handlers.

    Handlers are methods of parts. All peers of a process have the same functions, so after `share` each keeps only its
    parts: the simulator has ten thousand peers.
    """

    __slots__ = ("_direct", "_orders", "_parts", "_places", "_routed", "_timers")

    def __init__(self) -> None:
        self._parts: list[Any] = []
        self._places: dict[int, int] | None = {}  # index of each part by its `id`; None once the tables are shared
        self._direct: Handlers = {}
        self._routed: Handlers = {}
        self._timers: Handlers = {}
        self._orders: Handlers = {}

    def share(self) -> None:
        """Share the tables with all peers that have the same ones, after every handler has been registered."""
        self._direct, self._routed, self._timers, self._orders = (
            _shared.setdefault(tuple(handlers.items()), handlers)
            for handlers in (self._direct, self._routed, self._timers, self._orders)
        )
        self._places = None

    def on_message(self, kind: type[M], handle: Callable[[Contact, M], None]) -> None:
        """Call `handle(sender, message)` for messages of this kind. Raises `ValueError` if the kind has a handler."""
        self.on_messages((kind,), handle)

    def on_anonymous(self, kind: type[M], handle: Callable[[M], None]) -> None:
        """Call `handle(message)` for messages of this kind, without their sender. Raises as `on_message` does."""
        self._direct = self._with(self._direct, (kind,), handle, _without_sender)

    def on_messages(self, kinds: Iterable[type[Message]], handle: Callable[[Contact, Any], None]) -> None:
        """Register one handler for several kinds of messages, if a layer distinguishes them itself."""
        self._direct = self._with(self._direct, kinds, handle)

    def on_routed(self, kind: type[M], handle: Callable[[M], None]) -> None:
        """Call `handle(message)` for routed messages of this kind. Raises `ValueError` if the kind has a handler."""
        self._routed = self._with(self._routed, (kind,), handle)

    def on_timer(self, kind: type[T], handle: Callable[[T], None]) -> None:
        """Call `handle(timer)` for timers of this kind. Raises `ValueError` if the kind has a handler."""
        self.on_timers((kind,), handle)

    def on_alarm(self, kind: type[Timer], handle: Callable[[], None]) -> None:
        """Call `handle()` for timers of this kind, which have no content. Raises `ValueError` as `on_timer` does."""
        self._timers = self._with(self._timers, (kind,), handle, _without_timer)

    def on_timers(self, kinds: Iterable[type[Timer]], handle: Callable[[Any], None]) -> None:
        """Register one handler for several kinds of timers, if a layer distinguishes them itself."""
        self._timers = self._with(self._timers, kinds, handle)

    def on_orders(self, kinds: Iterable[type], handle: Callable[[Any], None]) -> None:
        """Call `handle(order)` for orders of these kinds. Raises `ValueError` if one of them has a handler."""
        self._orders = self._with(self._orders, kinds, handle)

    def _with(
        self, handlers: Handlers, kinds: Iterable[type], handle: Callable[..., None],
        adapt: Callable[[Callable[..., None]], Callable[..., None]] | None = None,
    ) -> Handlers:  # fmt: skip
        own = dict(handlers) if self._places is None else handlers
        function, part = (handle.__func__, handle.__self__) if isinstance(handle, MethodType) else (_call, handle)
        handler = function if adapt is None else adapt(function), self._place(part)
        for kind in kinds:
            if kind in own:
                raise ValueError(f"{kind.__qualname__} already has a handler: {own[kind][0]}")
            own[kind] = handler
        return own

    def _place(self, part: Any) -> int:
        places = {} if self._places is None else self._places
        place = places.setdefault(id(part), len(self._parts))
        if place == len(self._parts):
            self._parts.append(part)
        return place

    def message(self, sender: Contact, message: Message) -> None:
        """Handle a message that came directly from `sender`. Raises `Malformed` for a kind that is only routed."""
        handler = self._direct.get(type(message))
        if handler is None:
            raise Malformed(f"a {type(message).__name__} must be routed")
        handler[0](self._parts[handler[1]], sender, message)

    def routed(self, message: Message) -> None:
        """Handle a message routed to this peer. Raises `Malformed` for a kind that is never routed."""
        handler = self._routed.get(type(message))
        if handler is None:
            raise Malformed(f"a {type(message).__name__} cannot be routed to a topic")
        handler[0](self._parts[handler[1]], message)

    def timer(self, timer: Timer) -> None:
        """Handle a timer that is due."""
        function, place = self._timers[type(timer)]
        function(self._parts[place], timer)

    def order(self, order: object) -> None:
        """Carry out what one part of a layer orders from another, before the first part continues."""
        function, place = self._orders[type(order)]
        function(self._parts[place], order)


@cache
def _without_sender(function: Callable[..., None]) -> Callable[..., None]:
    return lambda part, sender, message: function(part, message)


@cache
def _without_timer(function: Callable[..., None]) -> Callable[..., None]:
    return lambda part, timer: function(part)


def _call(handle: Callable[..., None], *arguments: Any) -> None:
    handle(*arguments)
