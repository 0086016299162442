"""The seam for forwarding policies: who passes a topic's bundles on to whom.

A policy is told a peer's place in a topic and answers with values. The control plane that keeps the place (for the
overlay, `protocol.topics`) asks it, compares the wanted channels with the present ones, and installs the
difference. Membership, leases, recovery and the data path are the same under every policy.

A `Place` is all that a policy sees. It decides the channels to children only. Two others are not its own: the channel
to the parent, by which events of sources go up, and the channels that managers of scopes order (`ScopePolicy`).
"""

from collections.abc import Container
from typing import NamedTuple, Protocol, runtime_checkable

from quillcast.core.messages import Contact
from quillcast.protocol.forwarding.channels import BundleFilter


class Place(NamedTuple):
    """A peer's place in a topic, as policies see it. They see nothing else: no settings, no load, no other peers."""

    topic: bytes
    above: Contact | None
    """The peer that sends it the topic's bundles; at the root, the peer that would be root next."""
    below: tuple[Contact, ...]
    """The members that it took in, or is about to, in the order in which they came."""


class ChannelSpec(NamedTuple):
    """A channel that a policy wants: to which member, and with which filter."""

    to: Contact
    filter: BundleFilter | None = None


@runtime_checkable
class ForwardingPolicy(Protocol):
    """Decides who serves whom. Same place, same answer: a policy keeps no state and rolls no dice."""

    def intercepts(self, place: Place | None) -> bool:
        """Does a newcomer's request to the root end at this peer? None: the peer has no place in the topic yet."""
        ...

    def refer(self, place: Place, newcomer: Contact, unresponsive: Container[bytes] = ()) -> tuple[Contact, ...]:
        """The members that a newcomer asks instead of this peer; empty if this peer takes it in.

        `unresponsive` are those that it already asked and that do not answer it.
        """
        ...

    def stand_ins(self, place: Place) -> tuple[Contact, ...]:
        """The peers to which the members below turn when this one is lost, the best first.

        These are all that they know for that case. If none is left, they join anew through the root.
        """
        ...

    def channels(self, place: Place) -> tuple[ChannelSpec, ...]:
        """The channels that this peer needs, each to a member below it.

        One to another peer is an error (`ValueError`), because that peer never asked for the topic.
        """
        ...
