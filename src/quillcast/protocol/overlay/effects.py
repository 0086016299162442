"""What the parts of this layer ask `Pastry` to do. It does each at the moment at which it is yielded."""

from collections.abc import Iterator

import msgspec

from quillcast.core.messages import Contact
from quillcast.protocol.overlay.messages import Contacts, JoinRequest


class MembersChanged(msgspec.Struct, frozen=True):
    """A peer entered or left the leaf set: tell the application."""


class Settled(msgspec.Struct, frozen=True):
    """Everybody who was asked for a leaf set has answered: become active, if that is what was waited for."""


class SearchRing(msgspec.Struct, frozen=True):
    """No member is left on a side: look for this peer's place through others that it ever knew."""


class JoinThrough(msgspec.Struct, frozen=True):
    """Have this contact route a request to this peer's own id."""

    contact: Contact
    request: JoinRequest


class FirstState(msgspec.Struct, frozen=True):
    """The closest peer answered: let the leaf set agree, and measure the others."""

    leaf_set: Contacts
    others: Contacts


class Introduced(msgspec.Struct, frozen=True):
    """Peers that may belong in the leaf set."""

    contacts: Contacts


class Activate(msgspec.Struct, frozen=True):
    """This peer is the first of its ring."""


Effect = MembersChanged | Settled | SearchRing | JoinThrough | FirstState | Introduced | Activate
Effects = Iterator[Effect]
