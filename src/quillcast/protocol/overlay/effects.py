"""What the parts of this layer ask `Pastry` to do. It carries out each effect at the moment it is yielded."""

from collections.abc import Iterator

import msgspec

from quillcast.core.messages import Contact
from quillcast.protocol.overlay.messages import Contacts, JoinRequest


class MembersChanged(msgspec.Struct, frozen=True):
    """A peer was added to or removed from the leaf set: tell the application."""


class Settled(msgspec.Struct, frozen=True):
    """All peers that were asked for a leaf set have answered: become active, if that is all that was missing."""


class SearchRing(msgspec.Struct, frozen=True):
    """No member is left on one side: look for this peer's place in the ring through other known peers."""


class JoinThrough(msgspec.Struct, frozen=True):
    """Ask this contact to route a join request to this peer's own id."""

    contact: Contact
    request: JoinRequest


class FirstState(msgspec.Struct, frozen=True):
    """The closest peer answered: let the leaf sets agree, and measure the other peers."""

    leaf_set: Contacts
    others: Contacts


class Introduced(msgspec.Struct, frozen=True):
    """Peers that may belong in the leaf set."""

    contacts: Contacts


class Activate(msgspec.Struct, frozen=True):
    """This peer is the first of its ring."""


OverlayEffect = MembersChanged | Settled | SearchRing | JoinThrough | FirstState | Introduced | Activate
Effects = Iterator[OverlayEffect]
