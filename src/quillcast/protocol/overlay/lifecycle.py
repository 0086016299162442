"""Where a peer is in its life (docs/overlay.md, *A peer's life*)."""


class Lifecycle:
    """A peer joins, is active, and leaves; only `Pastry` moves it on."""

    __slots__ = ("active", "left")

    def __init__(self) -> None:
        self.active = False
        """Does it deliver, and answer for its keys?"""
        self.left = False

    def activate(self) -> None:
        """The leaf set agrees: the peer is part of the ring."""
        self.active = True

    def leave(self) -> None:
        """The peer says nothing more."""
        self.active, self.left = False, True
