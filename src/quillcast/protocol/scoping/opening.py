"""The links of a member's channels: they are there before bundles take them.

A link opens when something is first sent over it. If that were a bundle, subscribers would wait for many links at once
when a policy changes, and for repairs where one cannot be opened. So the member says `Reach` to the ends of channels
that it was not ordered before, and acknowledges its orders when they have answered. Its next sign of life does that in
any case: a peer that does not answer holds nobody up.
"""

from collections.abc import Callable, Iterable, Sequence

from quillcast.core.dispatch import Dispatch
from quillcast.core.host import Host
from quillcast.core.interning import EMPTY
from quillcast.core.messages import Contact
from quillcast.protocol.scopes.effects import ScopeEffect
from quillcast.protocol.scopes.messages import Reach, Reached


class Opening:
    """The ends of the channels of one member, and what it has to say when their links are open."""

    __slots__ = ("awaited", "ends", "host", "later", "say")

    def __init__(self, host: Host, say: Callable[[Iterable[ScopeEffect]], None], dispatch: Dispatch) -> None:
        self.host, self.say = host, say
        self.ends: dict[bytes, None] = EMPTY
        self.awaited: dict[bytes, None] = EMPTY  # those that have not answered yet
        self.later: Sequence[ScopeEffect] = ()
        dispatch.on_message(Reach, lambda sender, _: host.send(sender, Reached()))
        dispatch.on_message(Reached, self._reached)

    def follow(self, ends: Iterable[Contact]) -> None:
        """Channels lead to these peers from now on."""
        former, contacts = self.ends, {contact.node_id: contact for contact in ends}
        self.ends = dict.fromkeys(contacts)
        self.awaited = {node: None for node in self.awaited if node in contacts}
        for node in [node for node in contacts if node not in former]:
            self.awaited[node] = None
            self.host.send(contacts[node], Reach())

    def acknowledge(self, effects: Sequence[ScopeEffect]) -> None:
        """Say this once all links are open, instead of what was to be said before."""
        self.later = effects
        self._go_on()

    def link_lost(self, contact: Contact) -> None:
        """It cannot be reached now. What goes there is repaired, or takes another way."""
        self.awaited.pop(contact.node_id, None)
        self._go_on()

    def _reached(self, sender: Contact, _: Reached) -> None:
        self.awaited.pop(sender.node_id, None)
        self._go_on()

    def _go_on(self) -> None:
        if self.later and not self.awaited:
            effects, self.later = self.later, ()
            self.say(effects)
