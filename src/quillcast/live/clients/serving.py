"""The clients that a peer serves."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec

from quillcast.core.errors import Leaving, LocalError, QuillcastError
from quillcast.core.messages import decoded
from quillcast.live import arguments
from quillcast.live.clients.connection import ClientConnection
from quillcast.live.clients.line import ClientLine, Invitation, new_secret
from quillcast.live.clients.messages import NOBODY, VERSION, Call, Changed, Codec, Created, Welcome
from quillcast.live.clients.session import Session, SessionContext, check
from quillcast.live.discovery.control import Answer, encoded
from quillcast.live.discovery.questions import Answerer, ChangeQuestion, CreateQuestion, PeerQuestion
from quillcast.live.edges.choices import check_topic, lists, topic_settings
from quillcast.live.edges.endpoint import Sign
from quillcast.live.runtime.patience import Patience
from quillcast.live.runtime.pump import Pump
from quillcast.live.transport.framed import FramedContext
from quillcast.live.transport.framing import FramePool, FrameType, frame
from quillcast.live.transport.hello import HelloRefused
from quillcast.live.transport.link import LinkContext
from quillcast.live.transport.links import Links
from quillcast.live.transport.transport import TransportLost, transport_of
from quillcast.protocol.peer import Peer
from quillcast.protocol.scopes.direct import Guest
from quillcast.protocol.scopes.uses import digest
from quillcast.protocol.security.access import AccessDenied
from quillcast.protocol.topics.descriptor import Descriptor

CLIENTS_MAX = 1024  # of a peer; a guess
LINES_MAX = 1024  # of a peer, for clients of other devices; a guess
_CALLS = msgspec.msgpack.Decoder(Call)
Settle = Callable[[Callable[..., None], str, Any, float, Sign | None], Awaitable[Descriptor]]
"""Asks a topic's root to create or change it (`Presence.settled`)."""


class Clients:
    """All applications that use a peer as their own. None of them forwards, and none delays the others."""

    def __init__(self, peer: Peer, pump: Pump, links: Links, answer: Answerer, settle: Settle, looked_in: str) -> None:
        self._peer, self._links, self._settle, self._looked_in = peer, links, settle, looked_in
        self._answer_of_node = answer
        self._pump = pump
        config = links.config
        self._shared = FramedContext(pump, partial(transport_of, config=config), FramePool(), links.unfinished)
        self._context = SessionContext(
            peer,
            pump,
            LinkContext(pump, config, Codec(), links.counters, links.mark_dirty),
            links.sharing,
            self._answer,
            config.client_bytes,
            (links.handshake.network, links.handshake.tls.authority_key if links.handshake.tls is not None else b""),
            self._ended,
        )
        self._sessions: dict[Session, ClientConnection] = {}
        self._leaving = ""
        self._invitations: dict[bytes, Invitation] = {}  # by digests of the secrets that clients of other devices show
        peer.scoping.direct.guests.tell(self._guest_ended)
        links.serve_clients(self.call)

    def __len__(self) -> int:
        return len(self._sessions)

    def connect(self, version: Any) -> ClientConnection:
        """A client asks to connect. Raises `LocalError` with the reason if it may not."""
        self._check(version)
        session = Session(self._context)
        answer = Answer(msgspec.Raw(msgspec.json.encode(self._welcome())))
        connection = ClientConnection(self._shared, encoded(answer), session.connected, session.ended)
        self._sessions[session] = connection
        Patience(self._pump.loop, self._links.config.connect_timeout_s, partial(self._expire, session, connection))
        return connection

    def call(self, content: bytes) -> ClientConnection:
        """A client of another peer asks to be served directly. Raises `RemoteError` with the reason if it may not."""
        try:
            call = decoded(_CALLS, content, "call of a client")
            check("client", call.connect.name)
            self._check(call.version)
        except QuillcastError as problem:
            raise HelloRefused("client", str(problem)) from problem
        session = self._by_line(call.secret) if call.client == NOBODY else self._guest(call)
        first = frame(FrameType.WELCOME, msgspec.msgpack.encode(self._welcome()))
        connection = ClientConnection(self._shared, first, session.connected, session.ended, call.connect)
        self._sessions[session] = connection
        return connection

    def _guest(self, call: Call) -> Session:
        guest = self._peer.scoping.direct.guests.enter(call.client, call.secret)
        if guest is None:
            raise HelloRefused("client", "this peer was not asked to serve that client, or the client came too late")
        self._turn_out(guest, "the client has opened another connection")  # its former connection is useless
        return Session(self._context, guest)

    def _by_line(self, secret: bytes) -> Session:
        invitation = self._invitations.get(digest(secret))
        if invitation is None:
            raise HelloRefused(
                "client", "its line is not valid here: it was revoked, is another peer's, or this peer was restarted; "
                "get another line"
            )  # fmt: skip
        return Session(self._context, invitation=invitation)

    def line(self) -> ClientLine:
        """A line with which applications of other devices use this peer, until it ends. Raises `LocalError`."""
        if len(self._invitations) >= LINES_MAX:
            raise LocalError(f"this peer has already issued {LINES_MAX} client lines; reuse one, or revoke some")
        line, (network, authority_key) = new_secret(), self._context.network
        self._invitations[digest(line.encode())] = Invitation()
        return ClientLine(self._links.contact, line, authority_key, network)

    def revoke(self, line: ClientLine | None = None) -> int:
        """Revoke a line, or all: no client can connect with it any longer, and those that did are disconnected.

        Peers that serve them directly are told. Returns how many were connected here. Raises `LocalError` for a line
        that is not valid.
        """
        digests = list(self._invitations) if line is None else [digest(line.secret.encode())]
        if line is not None and digests[0] not in self._invitations:
            raise LocalError("that line is not valid here: it was revoked, or the peer was started again")
        count = 0
        for invitation in [self._invitations.pop(each) for each in digests]:
            count += self._turn_out(invitation, "the line with which it connected was revoked")
            for client in invitation.clients:
                self._pump.call(self._peer.scoping.direct.end, client)
        return count

    def _guest_ended(self, guest: Guest) -> None:
        self._pump.loop.call_soon(self._turn_out, guest, "its own peer has withdrawn its permissions")

    def _turn_out(self, right: Guest | Invitation, reason: str) -> int:
        """Disconnect all clients that are served for this reason; returns how many."""
        ended = [session for session in self._sessions if session.came_by(right)]
        for session in ended:
            session.turn_out(reason)
        return len(ended)

    def _check(self, version: Any) -> None:
        """Raise `LocalError` or `Leaving` if no client can be served now, or none of this version."""
        if version != VERSION:
            raise LocalError(
                f"the client speaks version {version} of the clients' protocol, this peer version {VERSION}; use the "
                "same version of quillcast for both"
            )
        if self._leaving:
            raise Leaving(self._leaving)
        if len(self._sessions) >= CLIENTS_MAX:
            raise LocalError(
                f"the peer already has the maximum of {CLIENTS_MAX} clients; close some, or use another peer"
            )

    def _expire(self, session: Session, connection: ClientConnection) -> None:
        if session.connection is None and session in self._sessions:
            del self._sessions[session]
            connection.abort()

    def leave(self, reason: str) -> None:
        """The peer will end: tell the clients, and accept nothing new from them."""
        self._leaving = f"{reason}; connect again, to another peer of this machine: quillcast node starts one"
        for session in self._sessions:
            session.leave(reason)

    async def close(self) -> None:
        """Close the connections, and discard what waits."""
        connections = list(self._sessions.values())
        for session, connection in list(self._sessions.items()):
            if session.connection is None:
                connection.abort()
            session.close()
        if connections:
            ended = [connection.ended for connection in connections]
            await asyncio.wait(ended, timeout=self._links.config.close_timeout_s)
        for connection in connections:
            connection.abort()

    def _welcome(self) -> Welcome:
        links = self._links
        return Welcome(
            links.contact,
            os.getpid(),
            self._looked_in,
            links.config.window_bytes,
            links.handshake.incarnation,
            links.sharing.sample_place,
            self._peer.config.topics,
        )

    def _ended(self, session: Session, problem: Exception) -> None:
        """A client's socket has closed. `status` reports its errors."""
        if self._sessions.pop(session, None) is not None and not isinstance(problem, OSError | TransportLost):
            self._links.refused_client(problem)

    # --- what clients ask

    async def _answer(self, question: PeerQuestion) -> Any:
        match question:
            case CreateQuestion():
                return await self._create(question)
            case ChangeQuestion():
                return await self._change(question)
        return await self._answer_of_node(question)

    async def _create(self, question: CreateQuestion) -> Created:
        wanted, timeout_s = question.descriptor, arguments.seconds("timeout_s", question.timeout_s)
        name = f"{wanted.creator}:{wanted.name}" if wanted.creator else wanted.name

        def own(made: Descriptor) -> Descriptor:
            return msgspec.structs.replace(
                made, access=wanted.access, owner_key=wanted.owner_key, signature=wanted.signature
            )

        settled = await self._settle(self._peer.create, name, wanted.settings, timeout_s, own)
        return Created(settled, self._peer.holders(name))

    async def _change(self, question: ChangeQuestion) -> Changed:
        name, wanted, answer = question.name, dict(question.wanted), question.signed
        check_topic(name)
        named = lists(wanted.pop("publishers", None), wanted.pop("subscribers", None))
        chosen, timeout_s = topic_settings(wanted), arguments.seconds("timeout_s", question.timeout_s)
        checked = {each: getattr(chosen, each) for each in wanted} | named
        to_sign: list[Descriptor] = []

        def sign(newer: Descriptor) -> Descriptor:
            if answer is not None and _unsigned(answer) == _unsigned(newer):
                return answer
            to_sign.append(newer)
            return newer

        try:
            return Changed(await self._settle(self._peer.change, name, checked, timeout_s, sign))
        except AccessDenied:
            if not question.signs or not to_sign:
                raise
            return Changed(to_sign[0], to_sign=True)


def _unsigned(descriptor: Descriptor) -> Descriptor:
    return msgspec.structs.replace(descriptor, owner_key=b"", signature=b"")
