"""The questions that a running peer answers: a struct each. They are sent as maps, whose field `ask` names them.

Commands ask on the control socket, in JSON (`live.discovery.control`), and clients on their link, in MessagePack.
"""

import threading
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec

from quillcast.core.errors import LocalError
from quillcast.core.messages import FAULTS
from quillcast.protocol.scopes.operators import SignedChange
from quillcast.protocol.topics.descriptor import Descriptor

BUILDING = threading.Lock()
"""Held while a decoder is made: msgspec crashes if two threads are the first to use a type."""


class PeerQuestion(msgspec.Struct, frozen=True, tag_field="ask", forbid_unknown_fields=True):
    """A question. Its tag is the value of `ask`."""


class StatusQuestion(PeerQuestion, frozen=True, tag="status"):
    """The state of the peer: a `NodeStatus`."""


class TopicsQuestion(PeerQuestion, frozen=True, tag="topics"):
    """The topics that the peer takes part in: a tuple of `TopicStatus`."""


class TreeQuestion(PeerQuestion, frozen=True, tag="tree"):
    """A topic's live tree: a `TreeStatus`."""

    topic: str
    timeout_s: float = 2.0


class TraceQuestion(PeerQuestion, frozen=True, tag="trace"):
    """Where the topic's next bundle goes: a `TraceStatus`."""

    topic: str
    wait_s: float


class InviteQuestion(PeerQuestion, frozen=True, tag="invite"):
    """A join line for another machine, as text."""

    attributes: dict[str, str]


class InviteClientQuestion(PeerQuestion, frozen=True, tag="invite_client"):
    """A line for applications on other devices, as text."""


class RevokeClientQuestion(PeerQuestion, frozen=True, tag="revoke_client"):
    """Revoke such a line: how many clients this disconnected."""

    line: str


class ScopesQuestion(PeerQuestion, frozen=True, tag="scopes"):
    """The scopes whose managers run in the peer: a tuple of `ScopeStatus`."""


class InviteToScopeQuestion(PeerQuestion, frozen=True, tag="invite_to_scope"):
    """A join line of a scope, as text."""

    scope: str


class SetPolicyQuestion(PeerQuestion, frozen=True, tag="set_policy"):
    """Choose a policy for topics of a scope: a `PolicyChange`."""

    scope: str
    pattern: str
    policy: str
    parameters: dict[str, Any] | None = None
    sha256: str = ""


class UnsetPolicyQuestion(PeerQuestion, frozen=True, tag="unset_policy"):
    """Return to the rules of the scope's file: a `PolicyChange`."""

    scope: str
    pattern: str


class ReloadScopeQuestion(PeerQuestion, frozen=True, tag="reload_scope"):
    """Read the file of a scope again, and apply what differs: a `ScopeReload`."""

    scope: str


class ScopeQuestion(PeerQuestion, frozen=True, tag="scope"):
    """A scope whose manager may run elsewhere: a `ScopeView`."""

    scope: str


class ChangeScopeQuestion(PeerQuestion, frozen=True, tag="change_scope"):
    """A change of such a scope, signed by an operator: a `PolicyChange`, or a join line."""

    scope: str
    signed: SignedChange


class TakeCredentialQuestion(PeerQuestion, frozen=True, tag="take_credential"):
    """Become a member of the network whose credential another peer of this machine has (`live.admission.adoption`)."""

    step: str
    credential: str
    pid: int


class ConnectQuestion(PeerQuestion, frozen=True, tag="connect", forbid_unknown_fields=False):
    """Connect as a client: the socket stays open. Clients of other versions may say more."""

    version: Any = None


class CreateQuestion(PeerQuestion, frozen=True, tag="create"):
    """A client creates a topic: a `Created`."""

    descriptor: Descriptor
    timeout_s: float


class ChangeQuestion(PeerQuestion, frozen=True, tag="change"):
    """A client changes settings: a `Changed`. If it `signs` for the owner, the first answer is what to sign."""

    name: str
    wanted: dict[str, Any]
    timeout_s: float
    signs: bool
    signed: Descriptor | None


class HoldUpsQuestion(PeerQuestion, frozen=True, tag="hold_ups"):
    """Which peers hold up the events of a client's publisher before `last`: a `HeldUp`."""

    number: int
    last: int


OF_NODES: tuple[type[PeerQuestion], ...] = (
    StatusQuestion, TopicsQuestion, TreeQuestion, TraceQuestion, InviteQuestion, InviteClientQuestion,
    RevokeClientQuestion, ScopesQuestion, InviteToScopeQuestion, SetPolicyQuestion, UnsetPolicyQuestion,
    ReloadScopeQuestion, ScopeQuestion, ChangeScopeQuestion, TakeCredentialQuestion,
)  # fmt: skip
"""What a node answers on its control socket."""
OF_CLIENTS: tuple[type[PeerQuestion], ...] = (CreateQuestion, ChangeQuestion)
"""What its clients may ask in addition."""
OF_OTHER_DEVICES: tuple[type[PeerQuestion], ...] = (*OF_CLIENTS, StatusQuestion, TreeQuestion, TraceQuestion)
"""All that clients of other devices may ask."""

Answerer = Callable[[Any], Awaitable[Any]]
"""Answers a question. It is given only those kinds for which it was named."""


class _Named(msgspec.Struct, frozen=True):
    ask: Any = None


def name_of(kind: type[PeerQuestion]) -> str:
    """The value of `ask`."""
    return str(kind.__struct_config__.tag)


def understood(line: bytes, kinds: Iterable[type[PeerQuestion]], codec: Any = msgspec.json) -> PeerQuestion:
    """Decode one of these kinds of questions. `codec` is msgspec's module for JSON or MessagePack.

    Raises `LocalError`, which says what is wrong, and what can be asked.
    """
    named = {name_of(kind): kind for kind in kinds}
    name = None
    try:
        with BUILDING:
            name = codec.decode(line, type=_Named).ask
            kind = named.get(name) if isinstance(name, str) else None
            if kind is not None:
                question: PeerQuestion = codec.decode(line, type=kind)
                return question
    except FAULTS as problem:
        which = f"the question {name!r}" if name is not None else "the question"
        remedy = "use the same version of quillcast for both"
        raise LocalError(f"{which} is not understood: {problem}; {remedy}") from problem
    raise LocalError(f"{name!r} is not a question; ask one of: {', '.join(named)}")
