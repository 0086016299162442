"""A connection over the network to a peer that serves this client directly."""

import asyncio
import time

import msgspec

from quillcast.core.errors import Malformed, QuillcastError, Unreachable
from quillcast.core.ids import short
from quillcast.live.clients.connection import ClientConnection
from quillcast.live.clients.messages import VERSION, Call, Connect, Directed, Welcome
from quillcast.live.clients.proxy import Process, Proxy
from quillcast.live.runtime.patience import within
from quillcast.live.transport import addresses, hello
from quillcast.live.transport.certificates import read_member
from quillcast.live.transport.framed import FramedContext, resolve
from quillcast.live.transport.framing import FrameType, frame
from quillcast.live.transport.hello import HelloRefused, RefusedThere
from quillcast.live.transport.tls import TlsTransport, applicant_context
from quillcast.live.transport.transport import Transport, connect
from quillcast.protocol.security.members import check_claim, check_lifetime


async def visit(directed: Directed, secret: bytes, process: Process, proxy: Proxy) -> None:
    """Connect the proxy to the peer that will serve this client. Raises `Unreachable`."""
    address, config = directed.server.address, process.live
    call = Call(VERSION, directed.client, secret, process.connect)
    connection = Visit(process.shared, directed, call, proxy)
    context = applicant_context() if directed.authority_key else None

    def protocol() -> asyncio.BaseProtocol:
        return connection if context is None else TlsTransport(connection, context, process.plain)

    async def opened() -> None:
        parse = addresses.parse if directed.authority_key else addresses.parse_loopback
        await connect(process.pump.loop, protocol, *parse(address), local=config.local_ipc)
        await connection.welcomed

    try:
        await within(config.connect_timeout_s, opened())
    except RefusedThere as problem:
        raise Unreachable(f"the peer at {address} does not serve this client: {problem.words}") from problem
    except (OSError, TimeoutError, QuillcastError) as problem:
        why = addresses.why(problem)
        raise Unreachable(f"cannot reach the peer at {address} that is to serve this client: {why}") from problem
    finally:
        if connection.receiver is None:
            connection.abort()


class Visit(ClientConnection):
    """Before it serves: the peer says who it is, the client introduces itself, and the peer accepts it."""

    opened_here = True

    def __init__(self, shared: FramedContext, directed: Directed, call: Call, proxy: Proxy) -> None:
        super().__init__(shared, b"", proxy.connected, self._over)
        self._directed, self._call, self._proxy = directed, call, proxy
        self._is_greeted = False
        self.welcomed: asyncio.Future[None] = self._loop.create_future()

    def made(self, transport: Transport) -> None:
        self.transport, self.end, self._made = transport, transport.end, True
        if self.closing:
            self.abort()

    def _before_serving(self, type_: FrameType, content: bytes) -> None:
        match type_:
            case FrameType.HELLO if not self._is_greeted:
                self._check(hello.decode(content))
                self._is_greeted = True
                self.transport.write([frame(FrameType.CALL, msgspec.msgpack.encode(self._call))])
            case FrameType.WELCOME if self._is_greeted:
                self._welcome(Welcome.read(content))
            case FrameType.REFUSED:
                raise RefusedThere(content)
            case _:
                raise Malformed(f"a {type_.name} frame came out of turn")

    def _check(self, theirs: hello.Hello) -> None:
        """Raise `RemoteError` unless this is the peer that should serve the client."""
        directed, found = self._directed, theirs.contact.node_id
        if theirs.network != directed.network:
            raise HelloRefused("network", f"it belongs to the network {theirs.network!r} now")
        if found != directed.server.node_id:
            gone = short(directed.server.node_id)
            raise HelloRefused("identity", f"it is now the peer {short(found)}, and {gone} has gone")
        if directed.authority_key:
            certificate = self.transport.certificate
            if certificate is None:
                raise HelloRefused("certificate", "it shows no certificate")
            member = read_member(certificate, directed.authority_key)
            check_claim(member, theirs.public_key, theirs.issuer_nonce)
            check_lifetime(member, time.time_ns())

    def _welcome(self, welcome: Welcome) -> None:
        self._proxy.greet(welcome)
        self._connected(self, Connect(welcome.window_bytes, welcome.incarnation, welcome.shared_memory))
        resolve(self.welcomed, None)

    def _over(self, problem: Exception) -> None:
        """The connection has ended."""
        if self.receiver is not None:
            self._proxy.lost(problem)
        elif not self.welcomed.done():
            self.welcomed.set_exception(problem)
            self.welcomed.exception()  # there may be no waiter
