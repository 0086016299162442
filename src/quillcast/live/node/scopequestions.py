"""Shows and changes running scopes from any peer: questions to managers, and answers for those that run here.

The manager's peer is found as `protocol.scoping.questions` says, and asked directly. If it does not answer, members in
the ring are asked for what they last knew.
"""

import asyncio
import contextlib
import zlib
from collections.abc import Sequence
from typing import Any

import msgspec

from quillcast.core.errors import LocalError, QuillcastError, RemoteError, Unreachable
from quillcast.core.messages import FAULTS, Contact
from quillcast.core.status.scopes import PolicyChange, ScopeMemory, ScopeStatus, ScopeView
from quillcast.live.node.managing import Managing
from quillcast.live.node.scopestatus import memory_of
from quillcast.live.runtime.pump import Pump
from quillcast.protocol.scopes.hierarchy import scope_id
from quillcast.protocol.scopes.messages import ANSWER_MAX, WHY_MAX, AskedOf, AskScope, ScopeAt
from quillcast.protocol.scopes.operators import SignedChange
from quillcast.protocol.scoping.questions import Question
from quillcast.protocol.scoping.scoping import Scoping

FIND_S = 2.0  # until the peer closest to a scope's id answers; a guess, as for a walk through a tree
ASK_S = 3.0  # until a manager answers; a guess: it may open a policy's process
RECALL_S = 1.0  # until a member answers with what it last knew; a guess
AT_ONCE = 16  # questions that are answered at the same time; a guess
KEPT_S = 1.0  # how long a shown scope is cached: showing a large one is expensive; a guess
UNPACKED_MAX = 32 * ANSWER_MAX  # bytes of a decompressed answer; a guess: names of fields repeat


class UnknownScope(LocalError):
    """No peer knows a scope of this name."""


class ScopeQuestions:
    """Asks other peers about scopes, and answers their questions."""

    def __init__(self, pump: Pump, scoping: Scoping, managing: Managing) -> None:
        self._pump, self._scoping, self._managing = pump, scoping, managing
        self._questions = scoping.questions
        self._answering = set[asyncio.Task[None]]()
        self._kept: dict[tuple[bytes, bool], tuple[bytes, str, float]] = {}  # cached views of scopes, and until when
        self._questions.answer_by(self._asked)

    def close(self) -> None:
        """Stop answering."""
        for task in self._answering:
            task.cancel()

    # --- asking

    async def view(self, name: str) -> ScopeView:
        """A scope as its manager knows it; if that does not answer, as far as known elsewhere."""
        scope, ring = scope_id(name.encode()), list[Contact]()
        try:
            manager = await self._find(name, scope, ring)
            packed = await self._ask(manager, name, scope, "status")
            status: ScopeStatus = _decoded(_unpacked(packed), ScopeStatus)
            if status.name != name:
                raise RemoteError(f"the peer at {manager.address} was asked about scope {name}, but described another")
            return ScopeView(status)
        except UnknownScope as problem:
            return ScopeView(problem=str(problem), unknown=True)
        except (Unreachable, LocalError) as problem:  # or it no longer runs there
            return ScopeView(memory=await self._recall(scope, ring), problem=str(problem))

    async def check_unmanaged(self, name: str) -> None:
        """Raise `LocalError` if a peer runs the manager of a scope with this name and answers."""
        scope = scope_id(name.encode())
        try:
            manager = await self._find(name, scope, [])
            await self._ask(manager, name, scope, "status")
        except (UnknownScope, Unreachable):
            return  # there is none, or it has ended
        raise LocalError(
            f"scope {name!r} has a manager already, in the peer at {manager.address}: stop that one, or give this "
            "scope another name; to move a manager, use quillcast scope export"
        )

    async def change(self, name: str, signed: SignedChange) -> PolicyChange | str:
        """Have a scope's manager carry out a signed change; returns what changed, or a join line.

        Raises `LocalError` if it refuses, and `Unreachable` if it does not answer; then the change may have been made.
        """
        scope = scope_id(name.encode())
        manager = await self._find(name, scope, [])
        body = await self._ask(manager, name, scope, "change", msgspec.json.encode(signed))
        changed: PolicyChange | str = _decoded(body, PolicyChange | str)
        return changed

    async def where(self, name: str, through: Sequence[Contact] = ()) -> ScopeAt:
        """Ask the network where a scope's manager runs. Raises `UnknownScope` and `Unreachable`.

        A peer that is not yet part of the network asks `through` other peers.
        """
        scope = scope_id(name.encode())
        asked = await self._answered(self._pump.call(self._questions.find, scope, through), FIND_S)
        at = (asked.found.at if asked.found is not None else None) or self._questions.remembers(scope)
        if asked.found is None and at is None:
            raise Unreachable(f"no peer of the network said within {FIND_S:g} s where the manager of scope {name} runs")
        if at is None:
            raise UnknownScope(f"no peer of the network knows a scope {name!r}")
        return at

    async def _find(self, name: str, scope: bytes, ring: list[Contact]) -> Contact:
        """The peer that runs a scope's manager; `ring` gets members that may know more if it does not answer."""
        if (manager := self._scoping.manager_of(scope)) is not None:
            return manager
        at = await self.where(name)
        ring += at.ring
        return at.succession.contact

    async def _ask(self, of: Contact, name: str, scope: bytes, what: AskedOf, body: bytes = b"") -> bytes:
        if of.node_id == self._scoping.host.me:
            return await self._body(of, AskScope(scope, 0, what, body))
        asked = await self._answered(self._pump.call(self._questions.ask, of, scope, what, body), ASK_S)
        if asked.says is None:
            how = "cannot be reached" if asked.lost else f"does not answer within {ASK_S:g} s"
            raise Unreachable(
                f"peer {of.node_id.hex()[:8]} at {of.address}, which runs the manager of scope {name}, {how}"
            )
        if asked.says.why:
            raise LocalError("".join(sign for sign in asked.says.why if sign.isprintable()))
        return asked.says.body

    async def _answered(self, number: int, timeout_s: float) -> Question:
        asked = self._questions.asked[number]
        try:
            async with asyncio.timeout(timeout_s):
                await self._pump.until(lambda: asked.answered)
        except TimeoutError:
            pass  # the result shows that there is no answer
        finally:
            self._questions.end(number)
        return asked

    async def _recall(self, scope: bytes, ring: Sequence[Contact]) -> ScopeMemory | None:
        if (memory := memory_of(self._scoping, scope)) is not None:
            return memory
        for member in ring:
            number = self._pump.call(self._questions.ask, member, scope, "known")
            says = (await self._answered(number, RECALL_S)).says
            if says is not None and says.body:
                with contextlib.suppress(RemoteError):  # the next one may be of this version
                    known: ScopeMemory = _decoded(says.body, ScopeMemory)
                    return known
        return None

    # --- answering

    def _asked(self, asker: Contact, message: AskScope) -> None:
        if len(self._answering) >= AT_ONCE:
            self._questions.reply(asker, message.number, b"", f"{AT_ONCE} others ask this peer now: ask again")
            return
        task = self._pump.loop.create_task(self._answer(asker, message))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer(self, asker: Contact, message: AskScope) -> None:
        body, why = b"", ""
        try:
            body = await self._body(asker, message)
        except (QuillcastError, *FAULTS) as problem:
            why = str(problem)[:WHY_MAX]
        if not self._pump.closed:
            self._pump.call(self._questions.reply, asker, message.number, body, why)

    async def _body(self, asker: Contact, message: AskScope) -> bytes:
        if message.what == "status":
            return self._shown(message.scope, whole=self._managing.sees_all(asker, message.scope))
        if message.what == "change":
            signed = msgspec.json.decode(message.body, type=SignedChange)
            return msgspec.json.encode(await self._managing.changed_by(asker, message.scope, signed))
        memory = memory_of(self._scoping, message.scope)
        if memory is None:
            raise LocalError(f"the peer at {self._scoping.host.contact.address} is not a member of this scope")
        return msgspec.json.encode(memory)

    def _shown(self, scope: bytes, *, whole: bool) -> bytes:
        now, challenge = self._scoping.host.now(), self._managing.challenge(scope)
        packed, kept, until = self._kept.get((scope, whole), (b"", challenge, now))
        if until <= now or kept != challenge:
            status = self._managing.shown(scope, whole=whole)
            packed = _packed(msgspec.json.encode(status), status.name)
            self._kept[scope, whole] = packed, challenge, now + KEPT_S
        return packed


def _packed(status: bytes, name: str) -> bytes:
    packed = zlib.compress(status) if len(status) <= UNPACKED_MAX else b""
    if not packed or len(packed) > ANSWER_MAX:
        raise LocalError(f"scope {name} is too large to be shown from another machine: ask where its manager runs")
    return packed


def _unpacked(packed: bytes) -> bytes:
    unpacking = zlib.decompressobj()
    try:
        unpacked = unpacking.decompress(packed, UNPACKED_MAX)
    except zlib.error as problem:
        raise RemoteError(f"the manager's answer cannot be unpacked: {problem}") from problem
    if not unpacking.eof:
        raise RemoteError("the manager's answer is incomplete or too large")
    return unpacked


def _decoded(text: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(text, type=kind)
    except FAULTS as problem:
        raise RemoteError(
            "the peer that answered seems to run another version of quillcast: its answer is not as expected "
            f"({problem}); use the same version for both"
        ) from problem
