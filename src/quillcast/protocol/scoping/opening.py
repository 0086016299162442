"""The links of a member's channels: they are there before bundles take them.

A link opens when something is first sent over it. If that were a bundle, subscribers would wait for many links at once
when a policy changes, and for repairs where one cannot be opened. So the member says `Reach` to the ends of channels
that it was not ordered before, and acknowledges its orders when they have answered. Its next sign of life does that in
any case: a peer that does not answer holds nobody up.
"""

from collections.abc import Iterable, Sequence

from quillcast.core.dispatch import Dispatch
from quillcast.core.host import Host
from quillcast.core.interning import EMPTY
from quillcast.core.messages import Contact
from quillcast.protocol.scopes.effects import ScopeEffect
from quillcast.protocol.scopes.messages import Reach, Reached


class Opening:
    """The ends of the channels of one member, and what it has to say when their links are open."""

    __slots__ = ("awaited", "ends", "host", "later")

    def __init__(self, host: Host, dispatch: Dispatch) -> None:
        self.host = host
        self.ends: dict[bytes, None] = EMPTY
        self.awaited: dict[bytes, None] = EMPTY  # those that have not answered yet
        self.later: Sequence[ScopeEffect] = ()
        dispatch.on_message(Reach, self._reached)

    def _reached(self, sender: Contact, reach: Reach) -> None:
        self.host.send(sender, Reached())

    def follow(self, ends: Iterable[Contact]) -> None:
        """Channels lead to these peers from now on."""
        former, contacts = self.ends, {contact.node_id: contact for contact in ends}
        self.ends = dict.fromkeys(contacts)
        self.awaited = {node: None for node in self.awaited if node in contacts}
        for node in [node for node in contacts if node not in former]:
            self.awaited[node] = None
            self.host.send(contacts[node], Reach())

    def acknowledge(self, effects: Sequence[ScopeEffect]) -> Sequence[ScopeEffect]:
        """Say this once all links are open, instead of what was to be said before. Return what to say now."""
        self.later = effects
        return self._due()

    def answered(self, contact: Contact) -> Sequence[ScopeEffect]:
        """Return what to say now that this peer answered, or cannot be reached: its bundles are repaired then."""
        self.awaited.pop(contact.node_id, None)
        return self._due()

    def _due(self) -> Sequence[ScopeEffect]:
        if self.awaited:
            return ()
        effects, self.later = self.later, ()
        return effects
