"""The state of a peer's life (docs/overlay.md, *A peer's life*)."""


class Lifecycle:
    """A peer joins or enters, is active, and leaves. Only `Pastry` changes this state."""

    __slots__ = ("active", "left", "outside")

    def __init__(self) -> None:
        self.active = False
        """Does the peer route messages, and deliver them and answer for its keys if it has a place in the ring?"""
        self.outside = False
        """Has it no place in the ring, and reaches it through entry points?"""
        self.left = False

    def activate(self) -> None:
        """The leaf sets agree: the peer is part of the ring."""
        self.active = True

    def stay_outside(self) -> None:
        """The peer is to have no place in the ring. It is active once it has entry points."""
        self.outside = True

    def enter(self) -> None:
        """The peer has entry points: it takes part without a place in the ring."""
        self.active = self.outside = True

    def come_in(self) -> None:
        """The peer is to have a place in the ring after all: it is not active until it has joined."""
        self.active = self.outside = False

    @property
    def stands_apart(self) -> bool:
        """Does the peer take no part in the ring's maintenance, because it is outside or has left?"""
        return self.outside or self.left

    def leave(self) -> None:
        """The peer sends nothing any more."""
        self.active, self.left = False, True
