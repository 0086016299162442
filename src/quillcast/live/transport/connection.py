"""One connection between two peers: hellos, proofs, then frames both ways."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from quillcast.core.bundle import Bundle
from quillcast.core.errors import Malformed, RemoteError
from quillcast.live.transport import hello
from quillcast.live.transport.framed import Framed, FramedContext, FrameMemoryFull, Receiver, resolve
from quillcast.live.transport.framing import HELLO_BYTES_MAX, FrameType, frame
from quillcast.live.transport.handshake import Handshake
from quillcast.live.transport.hello import REASON_BYTES_MAX, Hello, HelloRefused, RefusedThere
from quillcast.live.transport.transport import Transport
from quillcast.protocol.security.members import Unadmitted

_TLS_STARTS = (b"\x15\x03", b"\x16\x03")  # an alert, and a handshake
_ENCRYPTED = "it speaks TLS, so its network has a credential; join with a line that a member prints"


class Superseded(Exception):
    """The other side keeps another connection to this peer instead of this one."""


class ConnectionOwner(Protocol):
    """Keeps the connections of a peer, and is notified of their changes."""

    def opened(self, connection: "Connection", /) -> None:
        """An unknown peer has connected."""

    def is_welcome(self, connection: "Connection", /) -> bool:
        """Whether to keep this connection, of several to the same peer."""

    def proved(self, connection: "Connection", /) -> None:
        """Both proofs are valid. The owner makes the connection serve a link, or closes it."""

    def called(self, connection: "Connection", content: bytes, /) -> None:
        """The other side is a client of another peer, not a peer. The owner hands it over. Raises `RemoteError`."""

    def refused(self, connection: "Connection", problem: RemoteError | FrameMemoryFull, /) -> None:
        """The connection is closed because of what arrived on it."""

    def closed(self, connection: "Connection", /) -> None:
        """The connection has ended."""


@dataclass(frozen=True, slots=True)
class ConnectionContext(FramedContext):
    """What all connections to other peers share."""

    owner: ConnectionOwner
    handshake: Handshake


class Connection(Framed):
    """A socket to another peer. It is unauthenticated until both proofs are valid; then it serves a link."""

    def __init__(
        self, context: ConnectionContext, mine: Hello, wanted: bytes | None, *, opened_here: bool, curious: bool = False
    ) -> None:
        super().__init__(context, HELLO_BYTES_MAX)
        self.mine, self.wanted, self.opened_here = mine, wanted, opened_here
        self.curious = curious  # it only asks which peer listens at the address
        self._is_call = False  # the other side is a client, not a peer
        loop = self._loop
        self._owner, self._handshake = context.owner, context.handshake
        self.theirs: Hello | None = None
        self.certificate: bytes | None = None  # the other side's proof of identity
        self.greeted: asyncio.Future[Hello] = loop.create_future()
        self.proven: asyncio.Future[None] = loop.create_future()
        self.proven_at = 0.0

    @property
    def opener(self) -> bytes:
        """NodeId of the side that opened it."""
        return self.mine.contact.node_id if self.opened_here else self.peer.contact.node_id

    @property
    def peer(self) -> Hello:
        """The hello of the other side. It must have arrived."""
        assert self.theirs is not None
        return self.theirs

    async def made_by(self, opening: Coroutine[Any, Any, object]) -> None:
        """Wait until this has a transport. If cancelled, end the connection unless it already serves a link.

        Event loops close a transport whose creation is cancelled without telling its protocol. On a busy loop, both
        proofs may have arrived by then. So once there is a transport, its creation is completed.
        """
        task = self._loop.create_task(opening)
        task.add_done_callback(_look_at)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if not self._made:
                task.cancel()
            if self.receiver is None:
                self.abort()
            raise

    def made(self, transport: Transport) -> None:
        """The connection has its transport: send the hello."""
        self.transport, self.end, self._made = transport, transport.end, True
        if self.closing:
            self.abort()
            return
        transport.write([frame(FrameType.HELLO, hello.encode(self.mine))])
        if not self.opened_here:
            self._owner.opened(self)

    def serve(
        self,
        receiver: Receiver,
        transport: Transport,
        bundle_came: Callable[[Any, Bundle], None],
        frame_came: Callable[[Any, FrameType, bytes], None],
    ) -> None:
        super().serve(receiver, transport, bundle_came, frame_came)
        self.proven_at = self._loop.time()
        resolve(self.proven, None)

    def crowded_out(self, problem: FrameMemoryFull) -> None:
        self._owner.refused(self, problem)

    def refuse(self, problem: RemoteError) -> None:
        """Close and count it: the other side broke the protocol, or is not the wanted peer."""
        if self.closing:
            return
        if self.theirs is None and not isinstance(problem, Unadmitted):
            problem = HelloRefused("not_quillcast", "it is not a quillcast peer")
        self._owner.refused(self, problem)
        is_heard = (self._handshake.members_only or self._is_call) and self.receiver is None
        if is_heard and not isinstance(problem, RefusedThere):
            self.transport.write([frame(FrameType.REFUSED, str(problem).encode()[:REASON_BYTES_MAX])])
        self._end(problem)
        if self.receiver is None:
            self.close()  # the other side may still read our hello to find out the reason
        else:
            self.abort()

    def supersede(self) -> None:
        """Tell the other side that another connection is kept, and close this one."""
        if not self.closing:
            self.transport.write([frame(FrameType.SUPERSEDED)])
            self.close()

    def _began(self, count: int) -> None:
        if self.theirs is None and self._reader.begins_with(count, *_TLS_STARTS):
            raise HelloRefused("encrypted", _ENCRYPTED)

    def lost(self, problem: Exception) -> None:
        self._end(problem)
        self._owner.closed(self)

    def _before_serving(self, type_: FrameType, content: bytes) -> None:
        match type_:
            case FrameType.HELLO if self.theirs is None:
                self._greeted(hello.decode(content))
            case FrameType.PROOF if self.theirs is not None:
                hello.verify(self.mine, self.theirs, content)
                self._proved()
            case FrameType.APPLY if self.theirs is None and self._handshake.members_only:
                self.transport.write([frame(FrameType.ADMITTED, self._handshake.admit(self.mine, content))])
                self.close()
            case FrameType.CALL if self.theirs is None and not self.opened_here:
                self._is_call = True
                self._owner.called(self, content)
            case FrameType.REFUSED:
                raise RefusedThere(content)
            case FrameType.SUPERSEDED:
                self._end(Superseded())
                self.close()
            case _:
                raise Malformed(f"a {type_.name} frame came out of turn")

    def _greeted(self, theirs: Hello) -> None:
        """Their hello arrived. If it is acceptable, prove this peer's identity."""
        hello.check(self.mine, theirs, self.wanted)
        self.certificate = self.transport.certificate
        self._handshake.check_admitted(theirs, self.certificate)
        self.theirs = theirs
        resolve(self.greeted, theirs)
        if self.curious:
            if not self._handshake.members_only:
                self.close()  # otherwise their proof says that they accept this peer as a member
        elif self._owner.is_welcome(self):
            self.transport.write([frame(FrameType.PROOF, self._handshake.identity.prove(self.mine, theirs))])
        else:
            self.supersede()

    def _proved(self) -> None:
        if self.curious:
            resolve(self.proven, None)
            self.close()
        else:
            self._owner.proved(self)

    def _end(self, problem: Exception) -> None:
        """Fail all calls that wait for this connection."""
        for waited_for in (self.greeted, self.proven):
            if not waited_for.done():
                waited_for.set_exception(problem)
                waited_for.exception()  # there may be no waiter


def _look_at(task: asyncio.Task[object]) -> None:
    """Mark its error as seen: there may be no waiter any longer."""
    if not task.cancelled():
        task.exception()
