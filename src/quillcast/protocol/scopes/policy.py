"""Forwarding policies of managed scopes: given the members of a group, they answer with the channels that they want.

A policy decides at the granularity of a scope's members, whatever those are: peers, or scopes with policies of their
own ("Hierarchical Composition of Policies", figure 9). The scope's manager compares its answer with the present
channels and installs the difference.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

from quillcast.core.errors import LocalError
from quillcast.protocol.scopes.filters import Filter

Delivery = Literal["tree", "redundant", "lossy"]
"""What a policy promises: each receiver is reached once; at least once; or not always, and recovery fills the rest."""


class Group(NamedTuple):
    """The members of a scope that take part in a topic, as policies see them: labels in the order of arrival."""

    members: tuple[int, ...]
    """All of them; each may be asked to forward."""
    senders: tuple[int, ...]
    """Those at which bundles locally originate: publishers among the members, and the scope's entry points."""
    receivers: tuple[int, ...]
    """Those that subscribe."""


ALL = 0
"""The target of a channel to all other receivers at once, over the policy's multicast mechanism (`mechanism_of`)."""


class WantedChannel(NamedTuple):
    """A channel between two members, for the bundles that locally originated at a member, or at any."""

    source: int
    target: int
    """A member, or `ALL`."""
    origin: int | None
    """The member at which its bundles locally originated; None: any."""
    filter: Filter | None = None
    """Decides per bundle whether it enters; None: each does."""


RoundTrips = Callable[[int, int], float | None]
"""The measured round trip between two members in seconds; None: not measured."""


class NoAnswer(LocalError):
    """A policy in a process of its own gives no answer. The channels that stand stay."""


class AnswerComes(NoAnswer):
    """It is being asked. When it has answered, the manager learns of that (`ScopeManager.policy_answered`)."""


class PolicyStopped(NoAnswer):
    """It was stopped; the text says why."""


class ScopePolicy(Protocol):
    """Decides which channels the members of a scope keep.

    Same input, same answer: it keeps no state, and rolls no dice. An attribute `mechanism`, if it has one, names the
    external multicast mechanism behind its channels to `ALL`, as text (`core.multicast`).
    """

    @property
    def delivery(self) -> Delivery:
        """What it promises: an attribute of its class."""
        ...

    def fan_out_max(self, group: Group) -> int:
        """The most channels for bundles of one origin that it wants from one member."""
        ...

    def channels(
        self, group: Group, present: tuple[WantedChannel, ...], round_trips: RoundTrips
    ) -> tuple[WantedChannel, ...]:
        """The channels that it wants, given the present ones."""
        ...


def mechanism_of(policy: ScopePolicy) -> str:
    """The external multicast mechanism that a policy uses; empty if it uses none."""
    mechanism: str = getattr(policy, "mechanism", "")
    return mechanism


def of_topic(policy: ScopePolicy, topic: bytes) -> ScopePolicy:
    """The policy as it is asked in a topic: its method `of_topic` says so, if it has one, because it answers later.

    Such a policy raises `NoAnswer` until then.
    """
    own: Callable[[bytes], ScopePolicy] | None = getattr(policy, "of_topic", None)
    return policy if own is None else own(topic)
