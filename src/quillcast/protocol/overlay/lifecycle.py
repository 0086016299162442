"""The state of a peer's life (docs/overlay.md, *A peer's life*)."""


class Lifecycle:
    """A peer joins or enters, is active, and leaves. Only `Pastry` changes this state."""

    __slots__ = ("active", "left", "outside")

    def __init__(self) -> None:
        self.active = False
        """Whether the peer routes messages, and, with a place in the ring, delivers them and answers for its keys."""
        self.outside = False
        """Whether it has no place in the ring, and reaches it through entry points."""
        self.left = False

    def activate(self) -> None:
        """Note that the leaf sets agree: the peer is part of the ring."""
        self.active = True

    def stay_outside(self) -> None:
        """Note that the peer is to have no place in the ring. It is active once it has entry points."""
        self.outside = True

    def enter(self) -> None:
        """Note that the peer has entry points: it takes part without a place in the ring."""
        self.active = self.outside = True

    def come_in(self) -> None:
        """Note that the peer is to have a place in the ring after all: it is not active until it has joined."""
        self.active = self.outside = False

    @property
    def stands_apart(self) -> bool:
        """Whether the peer takes no part in the ring's maintenance, because it is outside or has left."""
        return self.outside or self.left

    def leave(self) -> None:
        """Note that the peer no longer sends anything."""
        self.active, self.left = False, True
