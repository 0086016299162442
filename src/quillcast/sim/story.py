"""The story of one topic or one peer in a run, as text: faults, trace records, and what programs saw."""

from collections.abc import Iterator
from typing import Any, cast

import msgspec

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import Term
from quillcast.core.errors import LocalError
from quillcast.core.host import Inputs
from quillcast.core.ids import ID_BYTES, ring_distance, short
from quillcast.core.messages import Contact
from quillcast.protocol.wire import encode
from quillcast.sim.applications import Heard
from quillcast.sim.host import Machine, SimHost
from quillcast.sim.simulation import Simulation

Line = tuple[float, str]


class MessageLog:
    """All messages, bundles and link events of peers, kept for a story that asks for them."""

    def __init__(self) -> None:
        self.inputs: list[tuple[float, int, str, Contact, Any]] = []

    def watch(self, host: SimHost) -> None:
        """Record the inputs of this process before its peer handles them."""
        host.pass_inputs_to(cast("Inputs", _LoggingInputs(host, self.inputs)))


class _LoggingInputs:
    """Records the inputs of a peer that come from others, and passes all inputs on."""

    def __init__(self, host: SimHost, noted: list[tuple[float, int, str, Contact, Any]]) -> None:
        self._host, self._noted = host, noted

    def __getattr__(self, kind: str) -> Any:
        handler = getattr(self._host.peer, kind)
        if kind not in ("message", "bundle", "link_up", "link_lost", "room"):
            return handler

        def note(sender: Contact, *thing: Any) -> None:
            self._noted.append(
                (self._host.world.now, self._host.machine.number, kind, sender, thing[0] if thing else None)
            )
            handler(sender, *thing)

        return note


class Story:
    """The story of a run: `topic:NAME` or `peer:NUMBER`. Raises `LocalError` if the run has no such topic or peer."""

    def __init__(self, simulation: Simulation, subject: str, message_log: MessageLog | None = None) -> None:
        self.simulation, self.message_log = simulation, message_log
        kind, _, name = subject.partition(":")
        self.topic = self.peer = None
        if kind == "topic" and name in simulation.topics:
            self.topic = name
        elif kind == "peer" and name.isdecimal() and int(name) < len(simulation.world.machines):
            self.peer = int(name)
        else:
            topics = ", ".join(f"topic:{name}" for name in simulation.topics)
            raise LocalError(f"there is no story of {subject!r}; ask for peer:0 to peer:{self._last_peer} or {topics}")
        self._names: dict[bytes, str] = {bytes(id_): name for name, id_ in simulation.topics.items()}
        self._names |= {machine.node_id: f"peer {machine.number}" for machine in simulation.world.machines}
        self._terms = {node[:8]: name for node, name in self._names.items() if name.startswith("peer ")}
        self._names |= {writer.publisher.id: writer.name for writer in simulation.writers}

    def lines(self) -> Iterator[str]:
        """The story, line by line, in order of time."""
        yield from self._cast()
        told = [*self._faults(), *self._records(), *self._programs(), *self._inputs()]
        for at, text in sorted(told, key=lambda line: line[0]):
            yield f"{at:10.4f}  {text}"

    @property
    def _last_peer(self) -> int:
        return len(self.simulation.world.machines) - 1

    def _cast(self) -> Iterator[str]:
        scenario, machines = self.simulation.scenario, self.simulation.world.machines
        overlay = scenario.config.overlay
        kind, disturbance = type(scenario.topology).__name__, scenario.disturbance
        yield f"{scenario.name or 'a scenario'}, seed {self.simulation.seed}"
        yield f"{len(machines)} peers, b = {overlay.digit_bits}, l = {overlay.leaf_set_size}, {kind}, {disturbance}"
        if self.topic is not None:
            id_ = self.simulation.topics[self.topic]
            nearest = sorted(machines, key=lambda machine: _distance(machine, id_))[:3]
            yield f"topic {self.topic} is {short(id_)}; the peers closest to it are " + ", ".join(
                f"{machine.number} ({short(machine.node_id)})" for machine in nearest
            )
        else:
            yield f"peer {self.peer} is {short(machines[self.peer or 0].node_id)}"

    def _faults(self) -> Iterator[Line]:
        for at, what in self.simulation.happened:
            yield at, f"*** {what}"

    def _records(self) -> Iterator[Line]:
        for at, machine, record in self.simulation.world.journal.records:
            about = getattr(record, "topic", None)
            mine = self.peer == machine if self.peer is not None else about == self.simulation.topics[self.topic or ""]
            if mine:
                fields = ", ".join(f"{name} {self._say(getattr(record, name))}" for name in record.__struct_fields__)
                yield at, f"peer {machine:<3} {type(record).__name__}: {fields}"

    def _programs(self) -> Iterator[Line]:
        for reader in self.simulation.readers:
            if reader.host.machine.number == self.peer or reader.topic == self.topic:
                yield reader.asked_at, f"reader {reader.name} of {reader.topic} subscribes"
                if reader.ended_at is not None:
                    yield reader.ended_at, f"reader {reader.name} of {reader.topic} ends"
                for entry in reader.log:
                    if isinstance(entry, Heard):
                        yield (
                            entry.at,
                            f"reader {reader.name} receives event {entry.event.number} of {entry.event.writer}",
                        )
                    else:
                        lost = f"{self._say(entry.term)}:{entry.first}-{entry.last}"
                        yield entry.at, f"reader {reader.name} is told that it lost {lost} ({entry.why})"
        for writer in self.simulation.writers:
            if writer.host.machine.number == self.peer or writer.topic == self.topic:
                for number, at in enumerate(writer.written):
                    yield at, f"writer {writer.name} of {writer.topic} writes event {number}"

    def _inputs(self) -> Iterator[Line]:
        for at, machine, kind, sender, thing in self.message_log.inputs if self.message_log is not None else ():
            if machine == self.peer or (self.topic is not None and self._is_about(thing)):
                what = self._say(thing) if thing is not None else ""
                yield at, f"peer {machine:<3} <- {self._say(sender)}: {kind} {what}"

    def _is_about(self, thing: Any) -> bool:
        """Whether a message or bundle is about the topic."""
        id_: bytes = self.simulation.topics[self.topic or ""]
        if isinstance(thing, Bundle):
            return thing.topic == id_
        return thing is not None and encode(thing).find(id_) >= 0

    def _say(self, value: Any) -> str:
        """A value for people, with names in place of ids."""
        match value:
            case Term(counter, node):
                return f"{counter}@{self._terms.get(node[:8], '-')}"
            case Contact():
                return self._say(value.node_id)
            case bytes() if value in self._names:
                return self._names[value]
            case bytes():
                return short(value) if len(value) == ID_BYTES else f"{len(value)} bytes" if value else "-"
            case msgspec.Struct():
                fields = ", ".join(f"{name} {self._say(getattr(value, name))}" for name in value.__struct_fields__)
                return f"{type(value).__name__}({fields})"
            case Bundle():
                e = value.envelope
                runs = ", ".join(f"{self._say(block.publisher)} {block.first}-{block.last}" for block in value.blocks)
                return f"{e.kind.name} {self._say(e.term)}:{e.first}-{value.last} [{runs}]"
            case list() | tuple():
                return f"[{', '.join(self._say(item) for item in value)}]"
            case float():
                return f"{value:.4g}"
            case _:
                return str(value)


def _distance(machine: Machine, id_: bytes) -> int:
    return ring_distance(machine.node_id, id_)
