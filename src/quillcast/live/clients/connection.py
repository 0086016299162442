"""The connection between a client and the peer that serves it, and the link over it. Both ends use the same."""

from collections.abc import Callable
from typing import Any

from quillcast.core.bundle import Bundle
from quillcast.core.errors import Malformed, RemoteError
from quillcast.core.messages import Contact
from quillcast.live.clients.messages import Codec, Connect
from quillcast.live.transport.framed import Framed, FramedContext, FrameMemoryFull
from quillcast.live.transport.framing import FRAME_BYTES_MAX, HELLO_BYTES_MAX, NUMBER_BYTES, FrameType
from quillcast.live.transport.link import Link, LinkContext
from quillcast.live.transport.shared_transport import Sharing
from quillcast.live.transport.transport import Transport, TransportLost

_CREDIT_PARTS = 8  # credit returns by itself in eighths of the window


class ClientConnection(Framed):
    """A socket between a client and its peer. The kernel says who is at its ends, so neither needs a proof."""

    def __init__(
        self,
        shared: FramedContext,
        first: bytes,
        connected: Callable[["ClientConnection", Connect], None],
        ended: Callable[[Exception], None],
        theirs: Connect | None = None,
    ) -> None:
        """It begins with these bytes. `connected` is given what the other side says of itself, or said (`theirs`)."""
        super().__init__(shared, HELLO_BYTES_MAX)
        self._first, self._connected, self._ended, self._theirs = first, connected, ended, theirs
        self._problem: Exception | None = None

    def made(self, transport: Transport) -> None:
        self.transport, self.end, self._made = transport, transport.end, True
        if self.closing:
            self.abort()
            return
        transport.write([self._first])
        if self._theirs is not None:
            self._connected(self, self._theirs)

    def refuse(self, problem: RemoteError) -> None:
        self.break_off(problem)

    def crowded_out(self, problem: FrameMemoryFull) -> None:
        self._problem = problem

    def lost(self, problem: Exception) -> None:
        self._ended(self._problem or problem)

    def break_off(self, problem: Exception) -> None:
        """Close it at once, for this reason."""
        if not self.closing:
            self._problem = problem
            self.abort()

    def _before_serving(self, type_: FrameType, content: bytes) -> None:
        messages = Codec.decode_all(content) if type_ is FrameType.CONTROL else []
        if len(messages) != 1 or not isinstance(messages[0], Connect):
            raise Malformed(f"a {type_.name} frame came out of turn")
        self._connected(self, messages[0])


class ClientLink(Link):
    """The link over such a connection. Whenever it writes, `fill` adds what else there is to write."""

    connection: ClientConnection | None

    def __init__(self, context: LinkContext, contact: Contact, fill: Callable[[], None]) -> None:
        super().__init__(context, contact)
        self._fill = fill
        self.unanswered = 0
        """Pings since the other side was last heard of."""

    def is_idle(self) -> bool:
        """Is there nothing to write that others wait for? What clients read is written before it is acknowledged."""
        return False

    def ping(self) -> None:
        """Ask whether the other side is alive."""
        self.unanswered += 1
        self.say(FrameType.PING, bytes(NUMBER_BYTES))

    def arrives(self, size_bytes: int) -> None:
        self.unanswered = 0
        super().arrives(size_bytes)

    def serve(
        self,
        connection: ClientConnection,
        sharing: Sharing,
        theirs: Connect,
        bundle_came: Callable[[Bundle], None],
        message_came: Callable[[Any], None],
    ) -> None:
        """Use this connection, to a process that said this about itself."""
        transport = sharing.over(connection.transport, theirs.shared_memory, theirs.incarnation)
        self._pass_bundle, self._pass_message = bundle_came, message_came
        connection.serve(self, transport, ClientLink._bundle_came, ClientLink._frame_came)
        self.adopt(connection, self.contact, theirs.window_bytes)

    def flush(self) -> bool:
        if self.is_open:
            self._fill()
        return super().flush()

    def _credit_rose(self, before_bytes: int) -> None:
        if self.room > 0:
            self.mark_dirty()

    def _bundle_came(self, bundle: Bundle) -> None:
        """Pass a bundle on. Waiting bundles are bounded elsewhere, so its credit returns at once."""
        self.unanswered = 0
        self.context.count_bundle(bundle.size)
        window_bytes = self.context.config.window_bytes
        self.owed += bundle.size
        if self.owed > window_bytes + FRAME_BYTES_MAX:
            raise Malformed(f"{self.owed} bytes came on a window of {window_bytes}")
        if self.owed * _CREDIT_PARTS >= window_bytes:
            self.mark_dirty()
        self._pass_bundle(bundle)

    def _frame_came(self, type_: FrameType, content: bytes) -> None:
        match type_:
            case FrameType.CONTROL:
                for message in Codec.decode_all(content):
                    self.context.count_message()
                    self._pass_message(message)
            case FrameType.CREDIT if len(content) == NUMBER_BYTES:
                self.credited(int.from_bytes(content, "little"))
            case FrameType.PING if len(content) == NUMBER_BYTES:
                self.say(FrameType.PONG, content)
            case FrameType.PONG:
                self.unanswered = 0
            case _:
                connection = self.connection
                assert connection is not None
                try:
                    bundle = connection.transport.unpack(type_, content)
                except TransportLost as problem:
                    connection.break_off(problem)
                else:
                    if bundle is not None:
                        self._bundle_came(bundle)
