"""What an application's subscription must offer to the peer."""

from typing import NamedTuple, Protocol, runtime_checkable

from quillcast.core.bundle import Block
from quillcast.core.envelope import Position
from quillcast.core.errors import QuillcastError
from quillcast.core.loss import Loss


class Subscriber(Protocol):
    """The application's side of a subscription. Upcalls must not call back into the peer."""

    def started(self, position: Position) -> None:
        """The subscription is established. Every event from this position on will arrive."""
        ...

    def deliver(self, block: Block, skip: int, stop: int, position: Position, recovered: bool = False) -> None:
        """Deliver events `skip` to `stop` (exclusive) of a block, in order. `position` is that of event `skip`.

        `recovered`: an uncertain loss report may have included these events (`core.loss.Loss`).
        """
        ...

    def lost(self, loss: Loss) -> None:
        """These events will not arrive."""
        ...

    def failed(self, error: QuillcastError) -> None:
        """The subscription cannot be established."""
        ...

    def room(self) -> int:
        """Bytes that the application's queue accepts now. When this is positive again, call `drained` of the peer."""
        ...


class Unread(NamedTuple):
    """What an application was given and has not finished."""

    events: int = 0
    size_bytes: int = 0
    oldest_ns: int | None = None
    """When the oldest of them was published, nanoseconds since 1970 UTC."""
    idle_s: float = 0.0
    """Since when it has taken nothing."""


@runtime_checkable
class Watched(Protocol):
    """A subscriber that reports its application's progress; others have finished what they were given."""

    name: str

    def unread(self) -> Unread:
        """What waits for the application, and what it is handling."""
        ...
