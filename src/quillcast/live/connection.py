"""One connection between two peers: hellos, proofs, then frames both ways."""

import asyncio
import os
import socket
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, cast

from quillcast.core.bundle import Bundle
from quillcast.core.errors import Malformed, RemoteError
from quillcast.live import addresses, hello, local_ipc
from quillcast.live.framing import BUNDLE, FRAME_BYTES_MAX, HELLO_BYTES_MAX, FrameReader, FrameType, frame
from quillcast.live.hello import Hello, HelloRefused
from quillcast.protocol.security.members import Unadmitted

if TYPE_CHECKING:
    from quillcast.live.link import Link
    from quillcast.live.links import Links
    from quillcast.live.tls import TlsProtocol

_REASON_BYTES_MAX = 300
_TLS_STARTS = (b"\x15\x03", b"\x16\x03")  # an alert, and a handshake
_ENCRYPTED = "it speaks TLS, so its network has a credential; join with a line that a member prints"


class Superseded(Exception):
    """The other side keeps another connection to this peer instead of this one."""


class RefusedThere(Unadmitted):
    """The other side refused this one, and said why; what it says is shown with nothing in it that is not printable."""

    def __init__(self, reason: bytes) -> None:
        words = "".join(c for c in reason.decode(errors="replace")[:_REASON_BYTES_MAX] if c.isprintable())
        super().__init__("there", f'it refused this peer: "{words}"')


class Connection(asyncio.BufferedProtocol):
    """A stranger until both proofs checked out; from then on it serves the link of the peer at its other end."""

    transport: asyncio.Transport
    link: "Link | None" = None
    other_end = "an unauthenticated peer"
    """Where the other side is, as the kernel says, in words."""
    pid = 0
    """The process at the other end, if it is one of this machine and linked as such."""
    process = 0
    """... and if it is of this user, too."""
    tls: "TlsProtocol | None" = None
    """What lies between this and the socket in a network with a credential."""

    def __init__(self, links: "Links", wanted: bytes | None, *, opened_here: bool, curious: bool = False) -> None:
        self.links, self.wanted, self.opened_here = links, wanted, opened_here
        self.curious = curious  # it only asks who is there
        self.mine = links.hello()
        self.theirs: Hello | None = None
        self.greeted: asyncio.Future[Hello] = links.loop.create_future()
        self.proven: asyncio.Future[None] = links.loop.create_future()
        self.ended: asyncio.Future[None] = links.loop.create_future()
        self.proven_at = 0.0
        self.closing = self._made = False
        self._reader = FrameReader(HELLO_BYTES_MAX, links.spare, self)

    @property
    def opener(self) -> bytes:
        """NodeId of the side that opened it."""
        return self.mine.contact.node_id if self.opened_here else self.peer.contact.node_id

    @property
    def peer(self) -> Hello:
        """The hello of the other side; only after it came."""
        assert self.theirs is not None
        return self.theirs

    async def made_by(self, opening: Coroutine[Any, Any, object]) -> None:
        """Wait until this has a transport. If that is cancelled the connection ends, unless it serves a link by then.

        Event loops close a transport whose making is cancelled, and do not tell its protocol. On a busy loop both
        proofs can have come by then: so once the transport is there, its making goes on to the end.
        """
        task = self.links.loop.create_task(opening)
        task.add_done_callback(_look_at)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if not self._made:
                task.cancel()
            if self.link is None:
                self.abort()
            raise

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport, self._made = cast("asyncio.Transport", transport), True
        if self.closing:
            self.abort()
            return
        try:
            self._set_up(transport.get_extra_info("socket"))
        except OSError as problem:  # the socket has ended already
            self._end(problem)
            self.abort()
            return
        self.transport.write(frame(FrameType.HELLO, hello.encode(self.mine)))
        if not self.opened_here:
            self.links.opened(self)

    def _set_up(self, own: socket.socket) -> None:
        """Find out who is at the other end, and set the socket's options. Raises `OSError`."""
        if own.family == socket.AF_UNIX:
            local_ipc.widen(own)
            self.pid, user = local_ipc.process(own)
            self.process = self.pid if user == os.geteuid() else 0
            self.other_end = f"process {self.pid} of this machine"
        else:
            if peer := self.transport.get_extra_info("peername"):  # none if it has gone already
                self.other_end = addresses.written(*peer[:2])
            unanswered_ms = int(1000 * self.links.config.unanswered_timeout_s)
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, unanswered_ms)
        self.transport.set_write_buffer_limits(high=self.links.config.write_bytes_max)

    def connection_lost(self, problem: Exception | None) -> None:
        self._reader.release()  # this and its link know each other, and the collector of cycles may come late
        self._end(problem or ConnectionResetError("it closed the connection"))
        self.ended.set_result(None)
        self.links.closed(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, count: int) -> None:
        pump = self.links.pump
        pump.turning = True
        try:
            if self.theirs is None and self._reader.begins_with(count, *_TLS_STARTS):
                raise HelloRefused("encrypted", _ENCRYPTED)
            for type_, content in self._reader.frames(count):
                if self.link is None:
                    self._before_authentication(type_, bytes(content))
                elif type_ is BUNDLE:
                    self.links.bundle_came(self.link, Bundle.decode(content))
                else:
                    self.links.frame_came(self.link, type_, bytes(content))
                if self.closing:
                    break
        except RemoteError as problem:
            self.refuse(problem)
        finally:
            pump.end_turn()

    def holds(self, type_: FrameType, size_bytes: int) -> None:
        """So much memory is taken by a frame that has not arrived in full. Raises `Malformed` if that is too much."""
        if type_ is BUNDLE and self.link is not None:
            self.link.arrives(size_bytes)
        self.links.unfinished.hold(self, size_bytes)

    def crowd_out(self, held_bytes: int) -> None:
        """Other links need the memory that a frame takes here, and this one has waited longest for the rest of it."""
        self._reader.release()
        self.links.count_crowded_out(self, held_bytes)
        self.abort()

    def pause_writing(self) -> None:
        if self.link is not None:
            self.link.pause()

    def resume_writing(self) -> None:
        if self.link is not None:
            self.link.resume()

    def serve(self, link: "Link") -> None:
        """From now on frames are the link's."""
        self.link = link
        self._reader.frame_bytes_max = FRAME_BYTES_MAX
        self.proven_at = self.links.loop.time()
        if not self.proven.done():
            self.proven.set_result(None)

    def refuse(self, problem: RemoteError) -> None:
        """The other side broke the protocol, or is not who was wanted: count that and close."""
        if self.closing:
            return
        if self.theirs is None and not isinstance(problem, Unadmitted):
            problem = HelloRefused("not_quillcast", "it is not a quillcast peer")
        self.links.count_refusal(self, problem)
        if self.tls is not None and self.tls.handshaken and self.link is None and not isinstance(problem, RefusedThere):
            self.transport.write(frame(FrameType.REFUSED, str(problem).encode()[:_REASON_BYTES_MAX]))
        self._end(problem)
        if self.link is None:
            self.close()  # they may still want to read our hello, to see for themselves
        else:
            self.abort()

    def supersede(self) -> None:
        """Close it in favour of another one, and say so."""
        if not self.closing:
            self.transport.write(frame(FrameType.SUPERSEDED))
            self.close()

    def close(self) -> None:
        """Close it when what was written is sent."""
        self.closing = True
        self.transport.close()

    def abort(self) -> None:
        """Close it at once."""
        self.closing = True
        if self._made:
            self.transport.abort()

    def _before_authentication(self, type_: FrameType, content: bytes) -> None:
        match type_:
            case FrameType.HELLO if self.theirs is None:
                self._greeted(hello.decode(content))
            case FrameType.PROOF if self.theirs is not None:
                hello.verify(self.mine, self.theirs, content)
                self._proved()
            case FrameType.APPLY if self.theirs is None and self.tls is not None:
                self.transport.write(frame(FrameType.ADMITTED, self.links.admit(self.mine, content)))
                self.close()
            case FrameType.REFUSED:
                raise RefusedThere(content)
            case FrameType.SUPERSEDED:
                self._end(Superseded())
                self.close()
            case _:
                raise Malformed(f"a {type_.name} frame came out of turn")

    def _greeted(self, theirs: Hello) -> None:
        """Their hello came; where it is to our liking, prove who we are."""
        hello.check(self.mine, theirs, self.wanted)
        self.links.check_admitted(self, theirs)
        self.theirs = theirs
        self.greeted.set_result(theirs)
        if self.curious:
            if self.tls is None:
                self.close()  # else their proof says that they take this peer for a member
        elif self.links.is_welcome(self):
            self.transport.write(frame(FrameType.PROOF, self.links.identity.prove(self.mine, theirs)))
        else:
            self.supersede()

    def _proved(self) -> None:
        if self.curious:
            self.proven.set_result(None)
            self.close()
        else:
            self.links.proved(self)

    def _end(self, problem: Exception) -> None:
        """Tell who waits for this connection that it ends."""
        for waited_for in (self.greeted, self.proven):
            if not waited_for.done():
                waited_for.set_exception(problem)
                waited_for.exception()  # nobody need be waiting


def _look_at(task: asyncio.Task[object]) -> None:
    """Whoever waited for it may have gone: then nobody is told what went wrong."""
    if not task.cancelled():
        task.exception()
