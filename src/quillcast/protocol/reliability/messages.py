"""What neighbours in a tree say to each other to fill gaps. Tags 70 to 89 are this layer's."""

from quillcast.core.envelope import Term
from quillcast.core.messages import Message, WireId
from quillcast.core.ranges import Range


class Ask(Message, frozen=True, tag=70):
    """Send me what you keep of these indexes of a term, as repairs; say Unavailable for the rest."""

    topic: WireId
    term: Term
    ranges: list[Range]


class Unavailable(Message, frozen=True, tag=71):
    """I keep nothing of these indexes."""

    topic: WireId
    term: Term
    ranges: list[Range]


MESSAGES: tuple[type[Message], ...] = (Ask, Unavailable)
