"""One peer of the demo: a process that follows the conductor's orders (`orders`). It ends when the conductor ends."""

import asyncio
import os
import socket
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec

from quillcast.core.errors import QuillcastError
from quillcast.demo import orders
from quillcast.live.edges.publisher import Publisher
from quillcast.live.edges.subscription import Event, Subscription
from quillcast.live.node.node import Node
from quillcast.live.runtime import runner
from quillcast.live.transport.hello import Identity
from quillcast.protocol.config import Config

_DECODER = msgspec.json.Decoder(orders.Order)


class Setting(msgspec.Struct, frozen=True):
    """The settings of a peer of the demo."""

    name: str
    network: str
    journal: Path
    log: Path
    config: Config
    secret: bytes
    """The 32 bytes that the peer's identity is derived from, so that a seed always gives the same ring."""
    data: Path | None = None
    listen: str | None = None
    scope: str | None = None
    """The scope that it is a member of, as for `Node`."""


def run(connection: Connection, setting: Setting) -> None:
    """The main function of the process."""
    os.dup2(os.open(setting.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), 2)
    runner.run(_serve(connection, setting))


async def _serve(connection: Connection, setting: Setting) -> None:
    line = socket.socket(fileno=os.dup(connection.fileno()))
    reader, writer = await asyncio.open_unix_connection(sock=line, limit=orders.LINE_BYTES_MAX)

    def answer(word: orders.Answer) -> None:
        writer.write(msgspec.json.encode(word) + b"\n")

    identity = Identity.of_secret(setting.secret)
    async with Node(
        setting.network, journal=setting.journal, config=setting.config, identity=identity, data=setting.data,
        listen=setting.listen, scope=setting.scope,
    ) as node:  # fmt: skip
        actor = Actor(node)
        answer(orders.Ready(node.contact.node_id, node.address))
        while text := await reader.readline():
            order = _DECODER.decode(text)
            if isinstance(order, orders.Leave):
                break
            try:
                await actor.act(order)
                answer(orders.Done())
            except QuillcastError as problem:
                answer(orders.Failed(str(problem)))


class Actor:
    """The peer's publishers and subscriptions. Subscriptions count nothing, because the journal records deliveries."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._subscriptions: dict[str, Subscription[Event]] = {}
        self._publishers: dict[str, Publisher] = {}

    async def act(self, order: Any) -> None:
        """Carry out an order."""
        match order:
            case orders.Create(topic, admission):
                await self._node.create(topic, admission=admission)
            case orders.Manage(file):
                await self._node.manage_scope(file)
            case orders.Subscribe(topic):
                self._subscriptions[topic] = self._node.subscribe(topic, handler=lambda event: None)
                await self._subscriptions[topic].started()
            case orders.Unsubscribe(topic):
                await self._subscriptions.pop(topic).close()
            case orders.Publish(topic, payloads):
                if topic not in self._publishers:
                    self._publishers[topic] = self._node.publisher(topic)
                for payload in payloads:
                    await self._publishers[topic].publish(payload)
            case orders.Unplug(True):
                self._node.unplug()
            case orders.Unplug(False):
                self._node.plug_in()
