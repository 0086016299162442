"""What neighbours in a tree say to each other to fill gaps. Tags 70 to 89 are this layer's."""

from quillcast.core.envelope import Term
from quillcast.core.messages import Contact, Message, WireId
from quillcast.core.ranges import Range
from quillcast.protocol.forwarding.ledger import Run


class Fetch(Message, frozen=True, tag=70):
    """Send me what you keep of these indexes of a term, as repairs; say Unavailable for the rest."""

    topic: WireId
    term: Term
    ranges: list[Range]
    due: bool = False
    """Send the first at once, credit or not: my full buffers wait for it, and give its credit back when it comes."""


class Unavailable(Message, frozen=True, tag=71):
    """I keep nothing of these indexes, and may yet get them, but for those `released`: I had those, or gave them up."""

    topic: WireId
    term: Term
    ranges: list[Range]
    released: tuple[Range, ...] = ()
    runs: tuple[Run, ...] = ()
    """Whose events stood there, as far as I know."""


class FetchFromRoot(Message, frozen=True, tag=72):
    """Routed to the topic: the root answers this Ask to `asker`, whose neighbours in the tree do not have these."""

    topic: WireId
    term: Term
    ranges: list[Range]
    asker: Contact


MESSAGES: tuple[type[Message], ...] = (Fetch, Unavailable, FetchFromRoot)
