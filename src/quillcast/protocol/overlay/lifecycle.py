"""The state of a peer's life (docs/overlay.md, *A peer's life*)."""


class Lifecycle:
    """A peer joins, is active, and leaves. Only `Pastry` changes this state."""

    __slots__ = ("active", "left")

    def __init__(self) -> None:
        self.active = False
        """Does the peer deliver messages and answer for its keys?"""
        self.left = False

    def activate(self) -> None:
        """The leaf sets agree: the peer is part of the ring."""
        self.active = True

    def leave(self) -> None:
        """The peer sends nothing any more."""
        self.active, self.left = False, True
