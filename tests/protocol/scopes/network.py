"""Managers and peers joined by queues, and bundles that travel through the channels that they installed."""

import random
from collections import Counter, deque
from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple

import msgspec

from quillcast.core.envelope import Envelope, Kind
from quillcast.core.messages import Contact
from quillcast.protocol.scopes.channels import Address, ChannelOrder, Multicast, Party
from quillcast.protocol.scopes.controller import LocalController
from quillcast.protocol.scopes.effects import Install, Measure, Remove, Save, ScopeEffect, Send, Superseded
from quillcast.protocol.scopes.filters import by_size, compiled
from quillcast.protocol.scopes.hierarchy import OVERLAY, scope_id
from quillcast.protocol.scopes.manager import ScopeManager
from quillcast.protocol.scopes.messages import ControlMessage, Role
from quillcast.protocol.scopes.policy import Group, WantedChannel
from quillcast.protocol.scopes.records import arrived, decode, encode, originated
from quillcast.protocol.scopes.state import ScopeConfig

LEASE_S = 5.0
_codec = msgspec.msgpack.Decoder(ControlMessage)


class Tree(msgspec.Struct, frozen=True):
    """The test's own policy: a tree with this fan-out for each origin."""

    delivery: ClassVar[str] = "tree"
    fan_out: int = 2

    def fan_out_max(self, group: Group) -> int:
        return self.fan_out

    def channels(self, group: Group, present: Any, round_trips: Any) -> tuple[WantedChannel, ...]:
        wanted = []
        for origin in group.senders:
            line = [origin, *(label for label in group.receivers if label != origin)]
            wanted += [WantedChannel(line[(at - 1) // self.fan_out], line[at], origin) for at in range(1, len(line))]
        return tuple(wanted)


def peer(name: str) -> Party:
    id_ = name.encode().ljust(16, b".")
    return Party(id_, Contact(id_, f"{name}:1"), name=name)


def scope(name: str) -> Party:
    return Party(scope_id(name.encode()), Contact(b"manager of".ljust(16, b"."), f"{name}:2"), managed=True, name=name)


def topic(name: str) -> bytes:
    return name.encode().ljust(16, b"-")


class Departure(NamedTuple):
    """A bundle leaves over a channel, if its filter lets it."""

    channel: ChannelOrder
    record: bytes


class Network:
    """Some scopes and peers; links keep their order, and the seed decides which one is next."""

    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.managers: dict[bytes, ScopeManager] = {}
        self.peers: dict[bytes, LocalController] = {}
        self.links: dict[tuple[bytes, bytes], deque[bytes]] = {}
        self.measured: list[tuple[str, str]] = []
        self.sent: list[tuple[bytes, bytes]] = []
        self.disks: dict[bytes, bytes] = {}
        self.configs: dict[bytes, ScopeConfig] = {}
        self.installed: dict[bytes, list[ChannelOrder]] = {}
        self.superseded: list[bytes] = []
        self.round_trips: dict[tuple[bytes, bytes], float] = {}
        self.cut: set[bytes] = set()
        self.loss = 0.0

    # ---- parties

    def add_scope(self, name: str, owners: Iterable[str] = (), **config: Any) -> ScopeManager:
        party = scope(name)
        self.configs[party.id] = ScopeConfig(**({"policy": lambda topic: Tree(), "lease_s": LEASE_S} | config))
        manager = ScopeManager.new(party, [scope(owner) for owner in owners], self.configs[party.id])
        manager.state.secret = party.id
        self.managers[party.id] = manager
        self.carry_out(party.id, manager.begin(self.now))
        return manager

    def add_peer(self, name: str, owners: Iterable[str]) -> LocalController:
        party = peer(name)
        controller = LocalController(party, [scope(owner) for owner in owners], LEASE_S)
        self.peers[party.id], self.installed[party.id] = controller, []
        self.carry_out(party.id, controller.begin(self.now))
        return controller

    def role(self, name: str, topic_: bytes, root: str | None, *, publishes: bool = False, subscribes: bool = False):
        root_id = scope(root).id if root else OVERLAY
        role = Role(topic_, root_id, publishes, subscribes)
        self.carry_out(peer(name).id, self.peers[peer(name).id].take_part(role))

    def leave(self, name: str) -> None:
        self.carry_out(peer(name).id, self.peers[peer(name).id].leave())
        self.crash(name)

    def crash(self, name: str) -> None:
        del self.peers[peer(name).id]

    def crash_manager(self, name: str) -> None:
        del self.managers[scope(name).id]

    def restore_manager(self, name: str) -> ScopeManager:
        id_ = scope(name).id
        manager = self.managers[id_] = ScopeManager.restored(self.disks[id_], self.configs[id_])
        self.carry_out(id_, manager.begin(self.now))
        return manager

    # ---- messages

    def carry_out(self, me: bytes, effects: list[ScopeEffect]) -> None:
        for effect in effects:
            match effect:
                case Save():
                    self.disks[me] = self.managers[me].saved()
                case Send(to, message):
                    self.sent.append((me, to.id))
                    if me not in self.cut and to.id not in self.cut and self.random.random() >= self.loss:
                        self.links.setdefault((me, to.id), deque()).append(msgspec.msgpack.encode(message))
                case Install(channel):
                    same = (channel.label, channel.spec, channel.filter)
                    kept = [each for each in self.installed[me] if (each.label, each.spec, each.filter) != same]
                    self.installed[me] = [*kept, channel]
                case Remove(channel):
                    self.installed[me].remove(channel)
                case Superseded():
                    self.superseded.append(me)
                case Measure(to):
                    self.measured.append((self.peers[me].me.name, to.name or to.contact.address[:1]))
                    if (me, to.id) in self.round_trips:
                        seconds = self.round_trips[me, to.id]
                        self.carry_out(me, self.peers[me].measured(to.contact.node_id, seconds))

    def settle(self, most: int = 100_000) -> None:
        """Deliver messages until there are none, or this many."""
        for _ in range(most):
            if not (waiting := [link for link, messages in self.links.items() if messages]):
                return
            link = self.random.choice(waiting)
            message = _codec.decode(self.links[link].popleft())
            party = self.managers.get(link[1]) or self.peers.get(link[1])
            if party is not None:
                self.carry_out(link[1], party.received(message, self.now))
        assert most < 100_000, "the conversation does not end"

    def passed(self, seconds: float) -> None:
        """Time passes for all, in steps of a third of a lease."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + LEASE_S / 3)
            for id_, party in [*self.managers.items(), *self.peers.items()]:
                self.carry_out(id_, party.passed(self.now))
            self.settle()

    # ---- bundles

    def publish(self, name: str, topic_: bytes, serial: int = 0) -> Counter[str]:
        """Publish a bundle: how often each other peer got it, whether it subscribes or only forwards.

        A peer passes on what is new to it; repeats end there.
        """
        got: Counter[str] = Counter({name: 0})
        envelope = Envelope(topic_, Kind.DOWN, serial=serial)
        travelling = [(peer(name).id, b"", departure) for departure in published(self.peers[peer(name).id], topic_)]
        while travelling:
            at, before, (channel, record) = travelling.pop(self.random.randrange(len(travelling)))
            if channel.filter is not None and by_size(channel.filter)[0]:
                continue  # these bundles are small
            if channel.filter is not None and compiled(channel.filter, {})(envelope) is None:
                continue
            if isinstance(channel.spec, Multicast):
                travelling += self._at_once(at, channel.spec, topic_, record, got)
                continue
            assert isinstance(channel.spec, Address), channel
            target = channel.spec.peer.node_id
            if target == before or target not in self.peers:
                continue  # never back over the link that it came by
            controller = self.peers[target]
            if not controller.admits(topic_, decode(record)):
                continue  # the data path does not take it for a copy of what belongs here
            got[controller.me.name] += 1
            if got[controller.me.name] == 1 and controller.me.name != name:
                travelling += [(target, at, each) for each in came(controller, topic_, record)]
        return +got

    def _at_once(
        self, at: bytes, spec: Multicast, topic_: bytes, record: bytes, got: Counter[str]
    ) -> list[tuple[bytes, bytes, Departure]]:
        """A bundle goes to all that have the key of a multicast group: what they do with it."""
        key, departures = spec.key or self.peers[at].membership.groups()[spec.mechanism], []
        for id_, controller in self.peers.items():
            assignment, label = controller.membership.assignment(topic_), controller.membership.label(topic_)
            if controller.membership.groups().get(spec.mechanism) != key or assignment.depth is None or label is None:
                continue
            if not controller.membership.comes_by(spec.mechanism, topic_):
                continue
            here = arrived(decode(record), assignment.depth, label)
            if here is not None and id_ != at:
                got[controller.me.name] += 1
                if got[controller.me.name] == 1:
                    departures += [(id_, at, each) for each in came(controller, topic_, encode(here))]
        return departures

    def check(self) -> None:
        for manager in self.managers.values():
            manager.check()
        for id_, controller in self.peers.items():
            by_label = {(each.label, each.spec, each.filter): each for each in self.installed[id_]}
            assert by_label == {(each.label, each.spec, each.filter): each for each in controller.channels}
            assert controller.misrouted == 0
            assert controller.malformed == 0


def beginning(controller: LocalController, topic: bytes) -> bytes:
    """The record of a bundle that begins at a peer; empty without a part in the topic."""
    assignment, label = controller.membership.assignment(topic), controller.membership.label(topic)
    if assignment.depth is None or label is None:
        return b""
    return encode(originated(assignment.depth, label))


def published(controller: LocalController, topic: bytes) -> list[Departure]:
    """A bundle is published at a peer: the channels that it takes, and its record in each."""
    return _departures(controller, topic, beginning(controller, topic))


def came(controller: LocalController, topic: bytes, data: bytes) -> list[Departure]:
    """A bundle came to a peer with this record."""
    if not controller.admits(topic, decode(data)):
        return []
    return _departures(controller, topic, data or beginning(controller, topic))


def _departures(controller: LocalController, topic: bytes, data: bytes) -> list[Departure]:
    taken = [(channel, channel.route(topic, decode(data))) for channel in controller.channels]
    return [Departure(channel, encode(changed)) for channel, changed in taken if changed is not None]
