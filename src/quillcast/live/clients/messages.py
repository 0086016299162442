"""What a client and the peer that serves it tell each other, in control frames.

Subscriptions and publishers have numbers, which the client draws. Events travel in bundles: a client's as a publisher
sends them to a root, and to a client one block each, whose envelope has a `Delivery` in place of the topic.
"""

import struct
from typing import Annotated, Any, NamedTuple

import msgspec

from quillcast.core.envelope import Position
from quillcast.core.errors import LocalError, Malformed, NotDone, QuillcastError, RemoteError
from quillcast.core.ids import ID_BYTES
from quillcast.core.loss import Loss
from quillcast.core.messages import Contact, Message, Number, WireId, decoded
from quillcast.protocol.scopes.uses import DIGEST_BYTES, UNREACHABLE_MAX, Doing
from quillcast.protocol.security.access import Warrant
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import Descriptor

VERSION = 4
NOBODY = bytes(ID_BYTES)
ASKED_MAX = 256  # unanswered questions of a client; a guess

_DELIVERY = struct.Struct("<IIII")


class Welcome(msgspec.Struct, frozen=True):
    """The answer to `connect`: which peer serves the client, and with which settings."""

    contact: Contact
    pid: int
    looked_in: str
    window_bytes: int
    incarnation: bytes
    shared_memory: bytes
    """Where the incarnation lies in shared memory (`live.transport.hello`)."""
    topics: TopicConfig
    version: int = VERSION

    @classmethod
    def read(cls, data: bytes) -> "Welcome":
        """The welcome in these bytes, MessagePack that came over the network. Raises `Malformed`."""
        try:
            return decoded(_welcomes, data, "welcome")
        except LocalError as problem:
            raise Malformed(f"a welcome has settings that no peer has: {problem}") from problem


class Directed(msgspec.Struct, frozen=True, array_like=True):
    """The answer to `SeekServer`: which peer serves the client, and how it is recognised."""

    client: WireId
    """Who the client is there."""
    server: Contact
    network: str
    authority_key: bytes
    """That of the network's credential; empty if it has none."""


class Call(msgspec.Struct, frozen=True, array_like=True):
    """A client asks to be served directly, as its own peer has announced; or with a line of this peer."""

    version: int
    client: WireId
    """Who it is, as its own peer has told; `NOBODY` with a line."""
    secret: Annotated[bytes, msgspec.Meta(max_length=64)]
    connect: "Connect"


class Problem(msgspec.Struct, frozen=True, array_like=True):
    """An error: the name of its class, its text, and the peers that did not answer."""

    kind: str
    text: str
    peers: tuple[str, ...] = ()

    @classmethod
    def of(cls, error: QuillcastError) -> "Problem":
        """The problem that is this error."""
        return cls(type(error).__name__, str(error), error.peers if isinstance(error, NotDone) else ())

    @property
    def error(self) -> QuillcastError:
        """The error again."""
        error = _kinds(QuillcastError).get(self.kind, LocalError)(self.text)
        if isinstance(error, NotDone):
            error.peers = self.peers
        return error


def _kinds(kind: type[QuillcastError]) -> dict[str, type[QuillcastError]]:
    found = {kind.__name__: kind}
    for each in kind.__subclasses__():
        found |= _kinds(each)
    return found


class Delivery(NamedTuple):
    """Which events of a bundle's only block are for which subscription: `skip` to before `stop`."""

    number: int
    skip: int
    stop: int
    recovered: bool

    def encode(self) -> bytes:
        """The delivery as bytes, as many as a topic's id."""
        return _DELIVERY.pack(*self)

    @classmethod
    def decode(cls, data: bytes) -> "Delivery":
        """The delivery in these bytes."""
        number, skip, stop, recovered = _DELIVERY.unpack(data)
        return cls(number, skip, stop, bool(recovered))


class Created(msgspec.Struct, frozen=True, array_like=True):
    """The answer to `create`."""

    descriptor: Descriptor
    holders: int


class Changed(msgspec.Struct, frozen=True, array_like=True):
    """The answer to `change`: the descriptor in force, or one that its owner has to sign first."""

    descriptor: Descriptor
    to_sign: bool = False


class HeldUp(msgspec.Struct, frozen=True, array_like=True):
    """The answer to `hold_ups` (`live.edges.peer.Causes`)."""

    peers: list[str]
    lagging: str
    held_back: str


# --- from the client


class Connect(Message, frozen=True, tag=1):
    """The client is ready for frames. The peer serves it from now on."""

    window_bytes: Number
    incarnation: bytes
    shared_memory: bytes
    name: str = ""
    """What the client calls itself, for people."""


class Subscribe(Message, frozen=True, tag=2):
    """Subscribe to a topic; at most `window_bytes` of events are sent before `Taken`."""

    number: Number
    topic: str
    start: str
    delivery: str | None
    warrant: Warrant | None
    name: str
    window_bytes: Number


class Unsubscribe(Message, frozen=True, tag=3):
    """End a subscription."""

    number: Number


class Taken(Message, frozen=True, tag=4):
    """The application has finished this many more bytes of a subscription's events."""

    number: Number
    size_bytes: Number


class OpenPublisher(Message, frozen=True, tag=5):
    """Open a publisher, whose blocks have this PublisherId."""

    number: Number
    topic: str
    id: WireId
    warrant: Warrant | None
    first: Number = 0
    """The first event that it publishes here. Those before were published through another peer."""


class ClosePublisher(Message, frozen=True, tag=6):
    """Close a publisher when its events before `last` have arrived."""

    number: Number
    last: Number


class Ask(Message, frozen=True, tag=7):
    """Answer a question, as on the control socket, but in MessagePack: its name is under `ask`."""

    number: Number
    question: bytes


class SeekServer(Message, frozen=True, tag=8):
    """Find another peer that serves the client in this topic, and answer with `Directed`.

    The client will show that peer a secret with this digest. Peers that it cannot reach are not asked.
    """

    number: Number
    asked: Number
    """The number of the answer."""
    topic: str
    doing: Doing
    digest: Annotated[bytes, msgspec.Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
    unreachable: Annotated[tuple[WireId, ...], msgspec.Meta(max_length=UNREACHABLE_MAX)] = ()
    """NodeIds of peers that do not serve the client, or serve it no more."""


class EndDirect(Message, frozen=True, tag=9):
    """Forget a use of a topic for which another peer serves the client, or should."""

    number: Number


# --- from the peer


class Started(Message, frozen=True, tag=20):
    """A subscription has started at this position."""

    number: Number
    position: Position


class Lost(Message, frozen=True, tag=21):
    """A subscription will not get these events."""

    number: Number
    losses: list[Loss]


class SubscriptionFailed(Message, frozen=True, tag=22):
    """A subscription cannot be established."""

    number: Number
    problem: Problem


class Progress(Message, frozen=True, tag=23):
    """How far a publisher's events have come: to the peer (`taken`), to the root, to every subscriber."""

    number: Number
    taken: Number
    admitted: Number
    stable: Number
    partitioned: bool
    rooted: bool
    """The topic's root was found."""
    bound: str
    """Why this one waits because the topic has as many publishers as it may have, in a sentence; empty: it does not."""
    descriptor: Descriptor | None
    """The topic's, if it changed."""
    session: Number
    """That in which the peer's publisher is: the descriptor may be of a later one that has not begun there."""
    reliable: bool
    """Is that session reliable?"""


class Discarded(Message, frozen=True, tag=24):
    """A publisher's events never count as stable. Those before are stable, or were discarded too."""

    number: Number
    first: Number
    last: Number


class PublisherFailed(Message, frozen=True, tag=25):
    """The topic does not accept a publisher's events."""

    number: Number
    problem: Problem


class Answered(Message, frozen=True, tag=26):
    """The answer to a question, in MessagePack, or the error."""

    number: Number
    answer: bytes
    problem: Problem | None


class Ending(Message, frozen=True, tag=27):
    """The peer will end, and accepts nothing new. It acknowledges what it has as far as possible."""

    reason: str


AnyMessage = (
    Connect | Subscribe | Unsubscribe | Taken | OpenPublisher | ClosePublisher | Ask
    | SeekServer | EndDirect
    | Started | Lost | SubscriptionFailed | Progress | Discarded | PublisherFailed | Answered | Ending
)  # fmt: skip
_encoder = msgspec.msgpack.Encoder()
_welcomes = msgspec.msgpack.Decoder(Welcome)
_many: msgspec.msgpack.Decoder[list[Any]] = msgspec.msgpack.Decoder(list[AnyMessage])


class Codec:
    """Encodes these messages for a link (`live.transport.link.ControlCodec`)."""

    @staticmethod
    def encode_all(messages: list[Message], /) -> bytes:
        """The messages as bytes."""
        return _encoder.encode(messages)

    @staticmethod
    def decode_all(data: bytes, /) -> list[Any]:
        """The messages of these bytes. Raises `Malformed`."""
        return decoded(_many, data, "messages of a client")


class UnexpectedMessage(RemoteError):
    """A message that makes no sense here."""

    def __init__(self, message: Any) -> None:
        super().__init__(f"a {type(message).__name__} message came out of turn")
