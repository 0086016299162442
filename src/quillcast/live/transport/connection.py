"""One connection between two peers: hellos, proofs, then frames both ways."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

from quillcast.core.bundle import Bundle
from quillcast.core.errors import Malformed, RemoteError
from quillcast.live.runtime.pump import Pump
from quillcast.live.transport import hello
from quillcast.live.transport.framing import (
    BUNDLE,
    FRAME_BYTES_MAX,
    HELLO_BYTES_MAX,
    FrameReader,
    FrameType,
    Spare,
    Unfinished,
    frame,
)
from quillcast.live.transport.handshake import Handshake
from quillcast.live.transport.hello import REASON_BYTES_MAX, Hello, HelloRefused, RefusedThere
from quillcast.live.transport.transport import UNKNOWN, Transport
from quillcast.protocol.security.members import Unadmitted

T = TypeVar("T")

_TLS_STARTS = (b"\x15\x03", b"\x16\x03")  # an alert, and a handshake
_ENCRYPTED = "it speaks TLS, so its network has a credential; join with a line that a member prints"


class Superseded(Exception):
    """The other side keeps another connection to this peer instead of this one."""


class CrowdedOut(Exception):
    """Frames that have not arrived in full take too much memory, and this connection has waited longest."""


class ConnectionOwner(Protocol):
    """Keeps the connections of a peer, and is notified of what becomes of each."""

    def opened(self, connection: "Connection", /) -> None:
        """Somebody connected; nobody knows yet who."""

    def is_welcome(self, connection: "Connection", /) -> bool:
        """Is this the connection to keep, of several to the same peer?"""

    def proved(self, connection: "Connection", /) -> None:
        """Both proofs are valid. The owner has the connection serve a link, or closes it."""

    def refused(self, connection: "Connection", problem: RemoteError | CrowdedOut, /) -> None:
        """The connection is closed for what came on it."""

    def closed(self, connection: "Connection", /) -> None:
        """The connection has ended."""


class Receiver(Protocol):
    """What an authenticated connection serves: a link."""

    def arrives(self, size_bytes: int, /) -> None:
        """Part of a bundle of this size has arrived. Raises `Malformed` if it overdraws the credit."""

    def pause(self) -> None:
        """The socket accepts no more bytes for now."""

    def resume(self) -> None:
        """The socket accepts bytes again."""


@dataclass(frozen=True, slots=True)
class ConnectionContext:
    """What all connections of a peer share."""

    owner: ConnectionOwner
    handshake: Handshake
    pump: Pump
    plain: Callable[[asyncio.Transport], Transport]
    """Makes the transport of a socket."""
    spare: Spare
    unfinished: Unfinished


class Connection(asyncio.BufferedProtocol):
    """One socket to another peer. It is unauthenticated until both proofs are valid; then it serves a link."""

    transport: Transport
    receiver: Receiver | None = None
    end = UNKNOWN

    def __init__(
        self, context: ConnectionContext, mine: Hello, wanted: bytes | None, *, opened_here: bool, curious: bool = False
    ) -> None:
        self.context, self.mine, self.wanted, self.opened_here = context, mine, wanted, opened_here
        self.curious = curious  # it only asks which peer listens there
        self._loop = loop = context.pump.loop
        self._owner, self._handshake = context.owner, context.handshake
        self.theirs: Hello | None = None
        self.greeted: asyncio.Future[Hello] = loop.create_future()
        self.proven: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()
        self.proven_at = 0.0
        self.closing = self._made = False
        self._reader = FrameReader(HELLO_BYTES_MAX, context.spare, self)

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
        """Wait until this has a transport. If cancelled, the connection ends, unless it already serves a link.

        Event loops close a transport whose creation is cancelled, and do not tell its protocol. On a busy loop both
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

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.made(self.context.plain(cast("asyncio.Transport", transport)))

    def made(self, transport: Transport) -> None:
        """The connection has its transport: say hello."""
        self.transport, self.end, self._made = transport, transport.end, True
        if self.closing:
            self.abort()
            return
        transport.write([frame(FrameType.HELLO, hello.encode(self.mine))])
        if not self.opened_here:
            self._owner.opened(self)

    def connection_lost(self, problem: Exception | None) -> None:
        self._reader.release()  # connection and link form a reference cycle, which may be collected late
        self.transport.close()
        self._end(problem or ConnectionResetError("it closed the connection"))
        _resolve(self.ended, None)
        self._owner.closed(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, count: int) -> None:
        pump = self.context.pump
        pump.begin_turn()
        try:
            if self.theirs is None and self._reader.begins_with(count, *_TLS_STARTS):
                raise HelloRefused("encrypted", _ENCRYPTED)
            for type_, content in self._reader.frames(count):
                if self.receiver is None:
                    self._before_authentication(type_, bytes(content))
                elif type_ is BUNDLE:
                    self._bundle_came(Bundle.decode(content))
                else:
                    self._frame_came(type_, bytes(content))
                if self.closing:
                    break
        except RemoteError as problem:
            self.refuse(problem)
        finally:
            pump.end_turn()

    def holds(self, type_: FrameType, size_bytes: int) -> None:
        """A frame that has not fully arrived takes this much memory. Raises `Malformed` if that is too much."""
        if type_ is BUNDLE and self.receiver is not None:
            self.receiver.arrives(size_bytes)
        self.context.unfinished.hold(self, size_bytes)

    def crowd_out(self, held_bytes: int) -> None:
        """Other links need the memory of an incomplete frame here, which has waited longest for the rest."""
        self._reader.release()
        self._owner.refused(
            self,
            CrowdedOut(
                f"a part of a frame takes {held_bytes} bytes and has waited longest for the rest; "
                f"all parts may take {self.context.unfinished.bytes_max} bytes (live.unfinished_bytes_max)"
            ),
        )
        self.abort()

    def pause_writing(self) -> None:
        if self.receiver is not None:
            self.receiver.pause()

    def resume_writing(self) -> None:
        if self.receiver is not None:
            self.receiver.resume()

    def serve(
        self,
        receiver: Receiver,
        transport: Transport,
        bundle_came: Callable[[Bundle], None],
        frame_came: Callable[[FrameType, bytes], None],
    ) -> None:
        """From now on, what arrives belongs to this link, and this transport carries it."""
        self.transport, self.receiver = transport, receiver
        self._bundle_came, self._frame_came = bundle_came, frame_came
        self._reader.frame_bytes_max = FRAME_BYTES_MAX
        self.proven_at = self._loop.time()
        _resolve(self.proven, None)

    def refuse(self, problem: RemoteError) -> None:
        """The other side broke the protocol, or is not the wanted peer: count that and close."""
        if self.closing:
            return
        if self.theirs is None and not isinstance(problem, Unadmitted):
            problem = HelloRefused("not_quillcast", "it is not a quillcast peer")
        self._owner.refused(self, problem)
        is_heard = self._handshake.members_only and self.receiver is None
        if is_heard and not isinstance(problem, RefusedThere):
            self.transport.write([frame(FrameType.REFUSED, str(problem).encode()[:REASON_BYTES_MAX])])
        self._end(problem)
        if self.receiver is None:
            self.close()  # the other side may still read our hello, to find out why
        else:
            self.abort()

    def supersede(self) -> None:
        """Tell the other side that another connection is kept, and close this one."""
        if not self.closing:
            self.transport.write([frame(FrameType.SUPERSEDED)])
            self.close()

    def close(self) -> None:
        """Close the connection when everything written has been sent."""
        self.closing = True
        self.transport.close()

    def abort(self) -> None:
        """Close it at once."""
        self.closing = True
        if self._made:
            self.transport.stream.abort()

    def _before_authentication(self, type_: FrameType, content: bytes) -> None:
        match type_:
            case FrameType.HELLO if self.theirs is None:
                self._greeted(hello.decode(content))
            case FrameType.PROOF if self.theirs is not None:
                hello.verify(self.mine, self.theirs, content)
                self._proved()
            case FrameType.APPLY if self.theirs is None and self._handshake.members_only:
                self.transport.write([frame(FrameType.ADMITTED, self._handshake.admit(self.mine, content))])
                self.close()
            case FrameType.REFUSED:
                raise RefusedThere(content)
            case FrameType.SUPERSEDED:
                self._end(Superseded())
                self.close()
            case _:
                raise Malformed(f"a {type_.name} frame came out of turn")

    def _greeted(self, theirs: Hello) -> None:
        """Their hello arrived. If it is acceptable, prove who this peer is."""
        hello.check(self.mine, theirs, self.wanted)
        self._handshake.check_admitted(theirs, self.transport.certificate)
        self.theirs = theirs
        _resolve(self.greeted, theirs)
        if self.curious:
            if not self._handshake.members_only:
                self.close()  # otherwise their proof says that they accept this peer as a member
        elif self._owner.is_welcome(self):
            self.transport.write([frame(FrameType.PROOF, self._handshake.identity.prove(self.mine, theirs))])
        else:
            self.supersede()

    def _proved(self) -> None:
        if self.curious:
            _resolve(self.proven, None)
            self.close()
        else:
            self._owner.proved(self)

    def _end(self, problem: Exception) -> None:
        """Fail everything that waits for this connection."""
        for waited_for in (self.greeted, self.proven):
            if not waited_for.done():
                waited_for.set_exception(problem)
                waited_for.exception()  # there may be no waiter


def _resolve(waited_for: asyncio.Future[T], result: T) -> None:
    """Tell those who wait for this, unless they gave up: awaiting with a time limit cancels what is awaited."""
    if not waited_for.done():
        waited_for.set_result(result)


def _look_at(task: asyncio.Task[object]) -> None:
    """Mark its error as seen: there may be no waiter any more."""
    if not task.cancelled():
        task.exception()
