"""The messages that fill gaps: requests for ranges, and what agents tell each other. Tags 70 to 89 are this layer's."""

from typing import Annotated

from msgspec import Meta

from quillcast.core.envelope import AnyTerm
from quillcast.core.messages import Contact, Message, Number, WireId
from quillcast.core.ranges import Range
from quillcast.protocol.forwarding.ledger import Run
from quillcast.protocol.forwarding.milestones import ToldMilestones
from quillcast.protocol.reliability.gaps import RANGES_MAX
from quillcast.protocol.security.access import Warrant

PROTOCOL_NAME_MAX = 32  # characters of a recovery protocol's name
RELAYS_MAX = 64  # members that pass one message on: for a thousand members; a guess
WORD_BYTES_MAX = 32 << 10  # of one word of such an agent; a guess: thousands of ranges
WantedRanges = Annotated[list[Range], Meta(max_length=RANGES_MAX)]
"""The indexes that a peer misses, the first ones if these are many."""
Relays = Annotated[int, Meta(ge=0, le=RELAYS_MAX)]
"""How many members may still pass a message on. One that never comes round ends there."""


class Fetch(Message, frozen=True, tag=70):
    """Send the bundles that you keep of these indexes of a term, as repairs. Answer `Unavailable` for the rest."""

    topic: WireId
    term: AnyTerm
    ranges: WantedRanges
    due: bool = False
    """Send the first one at once, even without credit: full buffers wait for it, and will return its credit."""
    warrant: Warrant | None = None
    """On whose behalf the sender subscribes, if the topic limits that."""


class Unavailable(Message, frozen=True, tag=71):
    """The sender does not keep these indexes but may still get them, except those it had or gave up (`released`)."""

    topic: WireId
    term: AnyTerm
    ranges: list[Range]
    released: tuple[Range, ...] = ()
    runs: tuple[Run, ...] = ()
    """The runs of events at these indexes, as far as the sender knows them."""
    final: bool = False
    """The sender numbers the term's events itself, or speaks for a source that is gone."""
    milestones: ToldMilestones = ()
    """How long these events have been there, if a source numbered them: who began later is not owed them."""


class FetchFromRoot(Message, frozen=True, tag=72):
    """Routed to the topic: the root answers this request to `asker`, whose neighbours miss these indexes."""

    topic: WireId
    term: AnyTerm
    ranges: WantedRanges
    asker: Contact
    warrant: Warrant | None = None
    due: bool = False
    """As in `Fetch`."""


class FetchFromSource(Message, frozen=True, tag=73):
    """Pass this on towards the source of the term: it answers `asker`, or the root does if the source is gone."""

    topic: WireId
    term: AnyTerm
    ranges: WantedRanges
    asker: Contact
    warrant: Warrant | None = None
    due: bool = False
    """As in `Fetch`."""
    age: bool = False
    """Send no events, but only for how long they have been there."""


class Lacking(Message, frozen=True):
    """What members of a recovery domain lack of a stream, and which of them hold some of it."""

    topic: WireId
    term: AnyTerm
    ranges: tuple[Range, ...]
    holders: tuple[tuple[Contact, tuple[Range, ...]], ...] = ()


class RingToken(Message, frozen=True, tag=74):
    """Enter what you lack, and what you hold of what others lack, and pass it on; it comes round twice.

    `starter` and `serial` together identify it.
    """

    scope: WireId
    starter: WireId
    serial: Number
    lacking: tuple[Lacking, ...] = ()


class Sought(Message, frozen=True, tag=75):
    """`by` asks all members of a recovery domain for these indexes: holders offer them (`Offered`).

    With `relays` left, pass it on to the next members of the circle.
    """

    scope: WireId
    by: Contact
    topic: WireId
    term: AnyTerm
    ranges: tuple[Range, ...]
    relays: Relays = 0


class Offered(Message, frozen=True, tag=76):
    """`by` tells all members of a recovery domain that it holds these indexes: nobody else needs to offer them.

    With `relays` left, pass it on in the same way.
    """

    scope: WireId
    by: Contact
    topic: WireId
    term: AnyTerm
    ranges: tuple[Range, ...]
    relays: Relays = 0


class AgentWord(Message, frozen=True, tag=77):
    """An agent of another package's protocol sends this to another agent of its domain."""

    scope: WireId
    protocol: Annotated[str, Meta(max_length=PROTOCOL_NAME_MAX)]
    body: Annotated[bytes, Meta(max_length=WORD_BYTES_MAX)]


AgentMessage = RingToken | Sought | Offered | AgentWord
AGENT_MESSAGES: tuple[type[AgentMessage], ...] = (RingToken, Sought, Offered, AgentWord)
"""What agents of a recovery domain say to each other."""
MESSAGES: tuple[type[Message], ...] = (Fetch, Unavailable, FetchFromRoot, FetchFromSource, *AGENT_MESSAGES)
