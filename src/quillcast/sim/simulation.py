"""One run of a scenario under one seed: machines, peers, programs and faults in one world."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from quillcast.core.errors import QuillcastError
from quillcast.core.ids import NodeId
from quillcast.core.messages import Codec, Contact
from quillcast.core.trace import Admitted, Delivered, Record
from quillcast.protocol.forwarding.policy import ForwardingPolicy
from quillcast.protocol.peer import Peer
from quillcast.protocol.scopes.channels import KEY_BYTES, Party
from quillcast.protocol.scopes.hierarchy import scope_id
from quillcast.protocol.scopes.manager import ScopeManager
from quillcast.protocol.scopes.messages import TopicBounds
from quillcast.protocol.scopes.state import Entering, MayLeave, ScopeConfig
from quillcast.protocol.scopes.uses import Doing
from quillcast.protocol.topics.descriptor import Descriptor, Settings
from quillcast.protocol.wire import WireCodec
from quillcast.sim import checks, faults
from quillcast.sim.applications import Reader, Writer, peer_of
from quillcast.sim.clients import SimClient
from quillcast.sim.held_leases import HeldLeases
from quillcast.sim.host import Machine, SimHost
from quillcast.sim.journal import Journal
from quillcast.sim.judges import Judges
from quillcast.sim.leases import MEET_S
from quillcast.sim.network import Cut, Network, Quality, one_way, partition
from quillcast.sim.observed import AskedChange, Observed
from quillcast.sim.owner import Credentials
from quillcast.sim.scenario import Changing, Creating, Policy, Reading, Scenario, ScopePlan, TopicPlan, Writing
from quillcast.sim.scope_bounds import ScopeBounds
from quillcast.sim.scope_rates import ScopeRates
from quillcast.sim.scope_rights import ScopeRights
from quillcast.sim.store import Files
from quillcast.sim.world import World, derived

CONTACT_COUNT = 3  # running peers that a joining peer is given as contacts
PLAN_S = 2.0  # how often trees are planned for peers outside the ring
SAVE_S = 5.0  # how often a process saves its known peers for its next start; a guess
PROGRAM_S = 0.5  # from the start of a process to the start of its programs
ENTER_LOOK_S = 1.0  # how often the entry points of peers outside the ring are checked; a guess
MANAGER_RESTART_S = 5.0  # from the end of a manager to its next start, by default
LEAVE_LOOK_S = 0.1  # how often a program checks whether its peer has left
LOOK_S = 1.0  # how often to look at the leases of lost children
WEIGH_EVERY = 16  # of the steps after which a peer is checked, every 16th also checks how much it keeps
BLOCKED_RUNS_MAX = 100  # a run is extended at most this many times by 5 s while publishers are blocked; a guess
REST_S, RESTS_MAX = 1.0, 10  # a run is extended until no tree has changed for this long, at most this often


class Simulation(Observed):
    """Runs a scenario under a seed, which determines all random choices, and checks what must hold.

    `watch` is called with every process that starts, before its first input. `policy` is the forwarding policy of all
    peers; None for Scribe's tree. `codec` and `journal` are those of `Surroundings`.
    """

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        *,
        codec: Codec | None = WireCodec(),  # noqa: B008  stateless
        journal: Journal | None = None,
        watch: Callable[[SimHost], None] | None = None,
        policy: ForwardingPolicy | None = None,
    ) -> None:
        self.random = derived(seed, "simulation")
        self._contacts: dict[int, list[Contact]] = {}  # the known peers that each machine's process saved
        self._stale_contacts: dict[int, list[Contact]] = {}
        self._managers: dict[str, bytes] = {}  # what the managers of scopes saved
        self._leaving: list[SimHost] = []  # no program starts on these
        rooted = [scenario.below(plan)[0] for plan in scenario.scopes if plan.root]
        self._creator = rooted[0] if rooted else 0
        self._creating: set[str] = set()  # topics that it is about to create
        self._policies = {plan.name: plan.policy for plan in scenario.scopes}
        self._watch, self._policy = watch, policy
        arrivals = sum(isinstance(fault, faults.Arrive) for fault in scenario.faults)
        network = Network(
            scenario.topology.build(seed, scenario.peers + arrivals),
            derived(seed, "network"),
            quality=scenario.disturbance.quality,
            datagrams=scenario.disturbance.datagrams,
        )
        world = World(
            seed, network, self._peer, codec, window_bytes=scenario.window_bytes, journal=journal,
            after_step=self._check_step if scenario.check_every else None,
        )  # fmt: skip
        super().__init__(scenario, seed, world)
        self.judges, self.held_leases, self.bounds = Judges(self), HeldLeases(self), ScopeBounds(self)
        self.rights, self.rates = ScopeRights(self), ScopeRates(self)
        self._prepare()

    def run(self) -> None:
        """Run the scenario to its end. Raises `Broken` with the first broken invariant."""
        self.world.run(self.scenario.duration_s)
        self._finish_blocked()
        self._rest()
        self.bounds.finish()
        self.rights.finish()
        self.rates.finish()
        checks.check_all(self)

    def _finish_blocked(self) -> None:
        """Give topics with slow = wait time to admit what their publishers still hold, as long as they make progress.

        docs/delivery.md, *Slowness*: publishers are held back for as long as small buffers require.
        """
        for _ in range(BLOCKED_RUNS_MAX):
            before = self._blocked()
            if not before:
                return
            self.world.run(self.world.now + MEET_S)
            if self._blocked() == before:
                return

    def _blocked(self) -> dict[str, tuple[int, int]]:
        """The progress of living writers with unsettled events in topics with slow = wait."""
        waiting = {plan.name for plan in self.scenario.topics if plan.slow == "wait"}
        mine = (each for each in self.writers if each.topic in waiting and each.lives and each.unsettled)
        return {writer.name: (writer.publisher.admitted, writer.publisher.stable) for writer in mine}

    def _rest(self) -> None:
        """Let changes of trees that are in transit at the end arrive, such as the last report to a former parent."""
        for _ in range(RESTS_MAX):
            before = self._edges()
            self.world.run(self.world.now + REST_S)
            if self._edges() == before:
                return

    def _edges(self) -> dict[tuple[str, int], tuple[bytes, ...]]:
        """Parent and children of every peer in every topic's tree."""
        return {
            (topic, number): (tree.parent.node_id if tree.parent is not None else b"", *tree.leases.children)
            for topic in self.topics
            for number, tree in self.trees(topic).items()
        }

    # --- called by faults

    def stop(self, machine: int, *, silently: bool) -> None:
        """End a process."""
        self._note(f"peer {machine} is {'without power' if silently else 'killed'}")
        self._end_readers(machine)
        self.world.stop(self.world.machines[machine], silently=silently)
        self._changed()

    def restart_after(self, delay_s: float, machine: int, disk: str) -> None:
        """Restart a process after a while, with its disk kept, as it was before, or empty."""
        self.world.after(delay_s, self._restart, (machine, disk))

    def leave(self, machine: int, restart_s: float | None) -> None:
        """Have a peer leave in good order."""
        host = self.world.machines[machine].host
        if host is not None:
            self._note(f"peer {machine} leaves")
            self._leaving.append(host)
            self._end_readers(machine)
            host.act(peer_of(host).leave)
            self.world.after(LEAVE_LOOK_S, self._look_whether_left, (host, restart_s))

    def pause(self, machine: int, for_s: float) -> None:
        """Pause a process for a while."""
        host = self.world.machines[machine].host
        if host is not None and host.backlog is None:
            self._note(f"peer {machine} is paused for {for_s:g} s")
            host.pause()
            self._changed(for_s)
            self.world.after(for_s, self._resume, host)

    def cut_for(self, cut: Cut, for_s: float) -> None:
        """Drop what `cut` selects for a while."""
        machines = range(len(self.world.machines))
        ways = [(a, b) for a in machines for b in machines if a != b and cut(a, b)]
        self._note(f"for {for_s:g} s nothing passes {_ways(ways)}")
        self.world.after(for_s, self._heal, self.world.cut(cut))
        self._changed(for_s)

    def disturb_for(self, machines: Sequence[int], quality: Quality, for_s: float) -> None:
        """Disturb everything that these machines send and receive for a while."""
        self._note(f"for {for_s:g} s the paths of {_peers(machines)} are disturbed: {quality}")
        ways = [(a, b) for a in machines for b in range(len(self.world.machines)) if a != b]
        ways += [(b, a) for a, b in ways]
        self.world.disturb(ways, quality)
        self.world.after(for_s, self._calm, ways)
        self._changed(for_s)

    def arrive(self, id_digits: str) -> None:
        """A new machine arrives, and its peer joins."""
        self._start(self._add(id_digits))

    # --- the run

    def _prepare(self) -> None:
        digits = [*self.scenario.ids, *[""] * self.scenario.peers]
        for number in range(self.scenario.peers):
            machine = self._add(digits[number])
            self.world.at(0.0 if number == 0 else self.random.uniform(0.1, self.scenario.join_s), self._start, machine)
        for fault in self.scenario.faults:
            self.world.at(fault.at_s, self._arm if fault.when else self._strike, fault)
        self.world.after(SAVE_S, self._save, None)
        if self.scenario.check_every:
            self.world.after(LOOK_S, self._look_at_leases, None)
        if self.scenario.outside:
            self.world.after(PLAN_S, self._plan, None)
        for plan in self.scenario.scopes:
            for number, policy in enumerate(plan.then, 1):
                self.world.at(number * plan.change_s, self._change_policy, (plan, policy))
        self._armed: list[faults.AnyFault] = []
        self.world.journal.listen(self._listen)

    def _add(self, id_digits: str) -> Machine:
        if not id_digits:
            return self.world.add()
        return self.world.add(NodeId(bytes.fromhex(id_digits.ljust(32, "0"))))

    def _peer(self, host: SimHost) -> Peer:
        return Peer(host, self.scenario.config_of(host.number), policy=self._policy)

    def _start(self, machine: Machine) -> None:
        known = [other.contact for other, _ in self.members()]
        host = self.world.start(machine)
        host.count_sent()
        if any(plan.has_rates for plan in self.scenario.scopes):
            host.show_carried(partial(self.rates.carried, host))
        self._changed()
        if self._watch is not None:
            self._watch(host)
        number = machine.number
        self._stale_contacts[number] = remembered = self._contacts.get(number, [])
        contacts = self.random.sample(known, min(len(known), CONTACT_COUNT))
        scopes = [plan for plan in self.scenario.scopes if number in plan.members]
        if scopes:
            host.act(partial(self._join_scopes, host, scopes))
        elif number in self.scenario.outside:
            self._enter((host, []))
        else:
            host.hand_in(peer_of(host).join, list(dict.fromkeys([*remembered, *contacts])))
        for managed in self.scenario.scopes:
            if managed.manager == number:
                host.act(partial(self._manage, host, managed))
        for plan in self.scenario.topics:
            if machine.number == self._creator:
                self._creating.discard(plan.name)  # a process that ended cannot create it
                if machine.starts == 1:
                    self._create((host, plan))
            self._begin_programs(host, plan)

    def _enter(self, order: tuple[SimHost, list[Machine]]) -> None:
        """Give a peer outside the ring entry points, and new ones when it is cut off from all of them."""
        host, entries = order
        if not host.alive:
            return
        me = host.machine.number
        if not any(self.reach.now_with(me, machine.number) for machine in entries):
            there = [machine for machine, _ in self.members() if self.reach.now_with(me, machine.number)]
            entries = self.random.sample(there, min(len(there), CONTACT_COUNT)) or entries
            if there:
                host.hand_in(peer_of(host).enter, [machine.contact for machine in entries])
        self.world.after(ENTER_LOOK_S, self._enter, (host, entries))

    def _party(self, plan: ScopePlan) -> Party:
        return Party(
            scope_id(plan.name.encode()), self.world.machines[plan.manager].contact, managed=True, name=plan.name
        )

    def _join_scopes(self, host: SimHost, plans: list[ScopePlan]) -> None:
        owners = [self._party(plan) for plan in plans]
        peer_of(host).scoping.join(owners, plans[0].lease_s, had_place=host.machine.starts > 1)

    def _manage(self, host: SimHost, plan: ScopePlan) -> None:
        """Start the manager of a scope, or restart it as the same one."""
        in_all = Entering(bytes_per_s=plan.bytes_per_s, bundles_per_s=plan.bundles_per_s)
        leaving = MayLeave(plan.leaving_bytes_per_s, plan.leaving_bundles_per_s)
        config = ScopeConfig(
            lambda topic: plan.opened(self._policies[plan.name]), plan.lease_s, recovery=lambda topic: plan.recovery,
            entry_points=plan.entry_points, replicas=plan.replicas, split=plan.split,
            roots=(("#", True),) if plan.root else (),
            multicast=plan.multicast,
            entering=lambda topic: in_all._replace(
                subscribers_max=plan.subscribers_max, publishers_max=plan.publishers_max
            ),
            in_all=in_all, leaving=lambda topic: leaving, out_of_all=leaving,
            bounds=(
                TopicBounds(
                    "#", plan.publishers_max > 0 or plan.publishers is not None,
                    plan.subscribers_max > 0 or plan.subscribers is not None, clients=plan.clients_max > 0,
                ),
            ),
            clients_max=plan.clients_max,
            rights=partial(self._no_right, plan),
        )  # fmt: skip
        saved = self._managers.get(plan.name)
        owners = [self._party(each) for name in plan.within for each in self.scenario.scopes if each.name == name]
        manager = ScopeManager.restored(saved, config) if saved else ScopeManager.new(self._party(plan), owners, config)
        manager.state.draw_secret(derived(self.seed, f"secret of {plan.name}").randbytes(KEY_BYTES))
        peer_of(host).scoping.manage(manager, partial(self._save_manager, plan.name))

    def _no_right(self, plan: ScopePlan, party: Party, attributes: Mapping[str, str], topic: str, doing: Doing) -> str:
        """Why the scope's file does not let a member do this; empty if it does."""
        number = self.world.number_at(party.contact.address)
        return "" if party.managed or plan.lets(number, doing) else f"scope {plan.name} has no right for peer {number}"

    def _change_policy(self, change: tuple[ScopePlan, Policy]) -> None:
        plan, self._policies[change[0].name] = change
        self._note(f"the policy of scope {plan.name} is to be {change[1]}")
        host = self.world.machines[plan.manager].host
        if host is not None:
            host.act(partial(peer_of(host).scoping.policies_changed, self._party(plan).id))

    def _save_manager(self, name: str, state: bytes) -> bool:
        self._managers[name] = state
        return True

    def _plan(self, _: None) -> None:
        """Have the members below each topic's root form a chain below one of its children."""
        for topic, id_ in self.topics.items():
            parents = {number: tree.parent for number, tree in self.trees(topic).items() if tree.parent is not None}
            members = {self.world.machines[number].node_id for number in parents}
            chain = sorted(parents, key=lambda number: (parents[number].node_id in members, number))
            for above, below in pairwise(chain):
                self._invite(id_, above, below, parents[below])
        self.world.after(PLAN_S, self._plan, None)

    def _invite(self, topic: bytes, above: int, below: int, parent: Contact) -> None:
        host, contact = self.world.machines[below].host, self.world.machines[above].contact
        if host is not None and parent != contact and self.reach.now_with(above, below):
            host.act(lambda: peer_of(host).topics.membership.move([topic], contact))

    def _restart(self, order: tuple[int, str]) -> None:
        number, disk = order
        machine = self.world.machines[number]
        if machine.host is not None:
            return
        self._note(f"peer {number} starts again, its disk {disk}")
        if disk == "stale":
            machine.replace_disk(machine.stale_files)
            self._contacts[number] = self._stale_contacts.get(number, [])
        elif disk == "lost":
            machine.replace_disk(Files())
            self._contacts[number] = []
        self._start(machine)

    def _create(self, wanted: tuple[SimHost, TopicPlan]) -> None:
        host, plan = wanted
        if self._knows_no_root(host):
            self._creating.add(plan.name)
            self.world.after(PROGRAM_S, host.act, lambda: self._create(wanted))
            return
        settings = Settings(
            delivery=plan.delivery, order=plan.order, slow=plan.slow, admission=plan.admission,
            partition=plan.partition,
        )  # fmt: skip
        access = (
            *(Credentials.of(number).may("publish") for number in plan.publishers),
            *(Credentials.of(number).may("subscribe") for number in plan.subscribers),
        )
        if settings != Settings() or plan.has_owner:
            own = (lambda descriptor: Credentials("owner").own(descriptor, access)) if plan.has_owner else None
            peer_of(host).create(plan.name, settings, self._created, own)
        else:
            self._creating.discard(plan.name)

    def _create_too(self, host: SimHost, topic: str, creation: Creating) -> None:
        """Create a topic that another program may have created before, or beyond a partition. Any answer is right."""
        settings = Settings(slow=creation.slow, admission=creation.admission, partition=creation.partition)
        own = (lambda descriptor: Credentials("owner").own(descriptor, ())) if creation.owned else None
        peer_of(host).create(
            topic, settings, lambda answer: self._note(f"peer {host.machine.number} is told: {answer}"), own
        )

    def _created(self, answer: Descriptor | QuillcastError) -> None:
        if isinstance(answer, QuillcastError):
            raise answer
        self.created[answer.name] = answer
        self._creating.discard(answer.name)

    def _knows_no_root(self, host: SimHost) -> bool:
        """Whether a peer has to wait for its scopes' managers, which tell it that topics are rooted at a scope."""
        return self._creator != 0 and not peer_of(host).has_entered

    def _begin(self, host: SimHost, plan: TopicPlan, begin: Callable[[], None]) -> None:
        """Start a program once the topic has the plan's settings, so that it does not create it by default settings."""
        if plan.name in self._creating or self._knows_no_root(host):
            self.world.after(PROGRAM_S, host.act, partial(self._begin, host, plan, begin))
        else:
            begin()

    def _begin_programs(self, host: SimHost, plan: TopicPlan) -> None:
        soon, begin = self.world.now + PROGRAM_S, partial(self._begin, host, plan)
        for number, writing in enumerate(plan.writers):
            if writing.peer == host.machine.number and soon < writing.until_s:
                at = max(writing.from_s, soon) + self.random.uniform(0, writing.every_s)
                self.world.at(at, host.act, partial(begin, partial(self._open, host, plan.name, writing, number)))
        for number, reading in enumerate(plan.readers):
            if reading.peer == host.machine.number and (reading.until_s is None or soon < reading.until_s):
                at = max(reading.from_s, soon)
                self.world.at(at, host.act, partial(begin, partial(self._subscribe, host, plan.name, reading, number)))
        for change in plan.changes:
            if change.peer == host.machine.number and change.at_s > soon:
                self.world.at(change.at_s, host.act, partial(begin, partial(self._change, host, plan.name, change)))
        for creation in plan.creations:
            if creation.peer == host.machine.number and creation.at_s > soon:
                self.world.at(creation.at_s, host.act, partial(self._create_too, host, plan.name, creation))

    def _change(self, host: SimHost, topic: str, change: Changing) -> None:
        asked = AskedChange(host, topic, self.world.now)
        self.asked_changes.append(asked)
        wanted: dict[str, Any] = dict(change.wanted())
        for right, listed in (("subscribers", change.subscribers), ("publishers", change.publishers)):
            if listed:
                wanted[right] = [Credentials.of(number).principal for number in listed]
        owner, lists = Credentials("owner"), change.subscribers or change.publishers
        sign = (lambda descriptor: owner.own(descriptor, descriptor.access)) if lists else None
        peer_of(host).change(topic, wanted, asked.answers.append, sign)

    def _open(self, host: SimHost, topic: str, writing: Writing, number: int) -> None:
        if host in self._leaving:
            return
        lists = next(plan.lists_of_writers for plan in self.scenario.topics if plan.name == topic)
        warrant = None
        if any(host.machine.number in each for each in lists):
            warrant = Credentials.of(host.machine.number).warrant(host.me, self.topics[topic])

        def begin() -> None:
            writer = Writer(host, topic, number, writing.payload_bytes, self, warrant, listed=bool(lists))
            self.writers.append(writer)
            self._write(writer, writing)

        if writing.client:
            self.clients.append(SimClient(host, topic, "publishes", begin))
        else:
            begin()

    def _write(self, writer: Writer, writing: Writing) -> None:
        writer.write(writing.events)
        if self.world.now + writing.every_s < writing.until_s:
            self.world.after(writing.every_s, writer.host.act, lambda: self._write(writer, writing))
        elif writing.closes:
            peer_of(writer.host).close_publisher(writer.publisher)

    def _subscribe(self, host: SimHost, topic: str, reading: Reading, number: int) -> None:
        if host in self._leaving:
            return
        lists = next(plan.lists_of_readers for plan in self.scenario.topics if plan.name == topic)
        credentials = Credentials.of(host.machine.number) if lists else None
        warrant = credentials.warrant(host.me, self.topics[topic]) if credentials is not None else None

        def begin() -> None:
            reader = Reader(host, topic, number, self.judges.told_lost, reading.start, warrant)
            self.readers.append(reader)
            if reading.until_s is not None:
                self.world.at(max(reading.until_s, self.world.now), host.act, reader.stop)

        if not reading.client:
            begin()
            return
        client = SimClient(host, topic, "subscribes", begin)
        self.clients.append(client)
        if reading.until_s is not None:
            self.world.at(max(reading.until_s, self.world.now), host.act, client.leave)

    # --- helpers

    def _arm(self, fault: faults.AnyFault) -> None:
        self._armed.append(fault)

    def _strike(self, fault: faults.AnyFault) -> None:
        """Start the fault."""
        match fault:
            case faults.Partition():
                self.cut_for(partition(self.select(fault.peers)), fault.for_s)
            case faults.Drop():
                self.cut_for(one_way(self.select(fault.from_), self.select(fault.to)), fault.for_s)
            case faults.Disturb():
                self.disturb_for(self.select(fault.peers), fault.quality, fault.for_s)
            case faults.Arrive():
                self.arrive(fault.id)
            case _:
                for machine in self.select([fault.peer])[:1]:
                    self._befall(machine, fault)

    def _befall(self, machine: int, fault: faults.OfOnePeer) -> None:
        match fault:
            case faults.Crash() | faults.Leave() if self._is_last(machine):
                self._note(f"peer {machine} is the last of the ring and goes on: there would be nobody to come back to")
            case faults.Crash():
                self.stop(machine, silently=fault.silent)
                restart_s = self._restarts(machine, fault.restart_s)
                if restart_s is not None:
                    self.restart_after(restart_s, machine, fault.disk)
            case faults.Leave():
                self.leave(machine, self._restarts(machine, fault.restart_s))
            case faults.Pause():
                self.pause(machine, fault.for_s)
            case faults.SlowReaders():
                for reader in self.readers_on(machine):
                    reader.slow_down(fault.bytes_per_s, fault.for_s)

    def _is_last(self, machine: int) -> bool:
        """Whether no other peer is part of the ring to stay."""
        others = ((each, peer) for each, peer in self.members() if each.number != machine)
        return not any(peer.active and each.host not in self._leaving for each, peer in others)

    def _restarts(self, machine: int, restart_s: float | None) -> float | None:
        """When a process starts again. A machine that manages a scope restarts the manager."""
        managers = [plan.manager for plan in self.scenario.scopes]
        return MANAGER_RESTART_S if restart_s is None and machine in managers else restart_s

    def _listen(self, at: float, machine: int, record: Record) -> None:
        if isinstance(record, Admitted) and record.topic in self.ledgers_by_id:
            tree = next(peer.topics.trees[record.topic] for other, peer in self.running() if other.number == machine)
            reliable = tree.admitter is not None and tree.admitter.descriptor.settings.reliable
            self.ledgers_by_id[record.topic].note(at, machine, record, reliable=reliable)
            self.judges.admitted(machine, record)
        if isinstance(record, Delivered) and record.topic in self.judges.plans:
            self.judges.delivered(machine, record)
        if self._armed:
            match record:
                case Admitted(topic=id_):
                    self._moment("admitted", id_)
                case Delivered(topic=id_):
                    self._moment("delivered", id_)

    def acknowledged(self, writer: Writer) -> None:
        """Note that events of a writer have positions."""
        self._moment("acknowledged", self.topics[writer.topic])

    def told_stable(self, writer: Writer, before: int) -> None:
        """Note that a writer was told that some of its events are stable."""
        self.judges.told_stable(writer, before)

    def _moment(self, what: str, id_: bytes) -> None:
        """Start the faults that wait for this moment, after this step."""
        for fault in list(self._armed):
            kind, _, topic = fault.when.partition(":")
            if kind == what and self.topics[topic] == id_:
                self._armed.remove(fault)
                self.world.at(self.world.now, self._strike, fault)

    def _resume(self, host: SimHost) -> None:
        self._note(f"peer {host.machine.number} is resumed")
        host.resume()
        self._changed()

    def _heal(self, cut: int) -> None:
        self._note("the cut has healed")
        self.world.heal(cut)
        self._changed()

    def _calm(self, ways: list[tuple[int, int]]) -> None:
        self._note("the disturbance is over")
        self.world.disturb(ways, None)

    def _look_whether_left(self, order: tuple[SimHost, float | None]) -> None:
        host, restart_s = order
        if not host.alive:
            return
        if not peer_of(host).left:
            self.world.after(LEAVE_LOOK_S, self._look_whether_left, order)
            return
        self._note(f"peer {host.machine.number} has left")
        self.world.stop(host.machine)
        self._changed()
        if restart_s is not None:
            self.restart_after(restart_s, host.machine.number, "kept")

    def _end_readers(self, machine: int) -> None:
        for reader in self.readers_on(machine):
            reader.end()

    def _save(self, _: None) -> None:
        """Have every process save its known peers."""
        for machine, peer in self.running():
            if machine.host is not None and machine.host.backlog is None and peer.active:
                self._contacts[machine.number] = peer.overlay.remembered()
        self.world.after(SAVE_S, self._save, None)

    def _look_at_leases(self, _: None) -> None:
        self.held_leases.check()
        self.bounds.check()
        self.judges.no_storm()
        self.world.after(LOOK_S, self._look_at_leases, None)

    def _changed(self, for_s: float = 0.0) -> None:
        """Note that something failed or recovered, with consequences for some time."""
        self._calm_at = max(self._calm_at, self.world.now + for_s)
        self.reach.note()

    def _note(self, what: str) -> None:
        self.happened.append((self.world.now, what))

    def _check_step(self, host: SimHost) -> None:
        for crowding in (self.crowding, self.half_full):
            crowding.note(host.machine.number, peer_of(host), self.world.now)
        if self.world.steps % self.scenario.check_every == 0:
            peer = peer_of(host)
            peer.check()
            if self.world.steps % (WEIGH_EVERY * self.scenario.check_every) == 0:
                self.judges.within_bounds(peer, sum(host.charged.values()))


def _peers(machines: Sequence[int]) -> str:
    return f"peer{'s' if len(machines) != 1 else ''} {', '.join(map(str, machines))}"


def _ways(ways: Sequence[tuple[int, int]]) -> str:
    """The cut paths, in words."""
    senders, receivers = sorted({a for a, _ in ways}), sorted({b for _, b in ways})
    if not ways:
        return "between nobody"
    if senders == receivers:
        first = senders[0]
        side = [first, *(n for n in senders if (first, n) not in set(ways) and n != first)]
        return f"between {_peers(side)} and {_peers([n for n in senders if n not in side])}"
    return f"from {_peers(senders)} to {_peers(receivers)}"
