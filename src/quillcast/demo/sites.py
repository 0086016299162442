"""The demo with scopes: three sites, each with a manager and a policy of its own, lose peers and change under load.

One site loses its entry point and its manager at the same moment, and its manager comes back from its data folder.
Another site's policy is changed while events flow. The audit of the journals then says whether anything was lost.
"""

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeVar

import msgspec

from quillcast.core.boxes import Drawn, drawn
from quillcast.core.journal import Entry
from quillcast.core.messages import Contact
from quillcast.core.status.scopes import PolicyChange, ScopeChannel, ScopeStatus, ScopeTopic
from quillcast.core.status.traces import TraceStatus
from quillcast.core.trace import Delivered
from quillcast.demo.conductor import CONFIG, STARTED_AT_ONCE, Conductor
from quillcast.demo.orders import Manage, Subscribe
from quillcast.demo.peer import Setting
from quillcast.demo.processes import PeerFailed, PeerProcess
from quillcast.demo.roles import children_of
from quillcast.demo.state import LOOK_S
from quillcast.live.discovery.control import ask
from quillcast.live.discovery.questions import PeerQuestion, ScopesQuestion, SetPolicyQuestion, TraceQuestion
from quillcast.live.discovery.registry import PeerRegistry
from quillcast.live.transport.hello import Identity
from quillcast.pipeline.run import Kill, Run

SITES = {"berlin": "star", "lyon": "ring", "porto": "chain"}
STRUCK, CHANGED, NEXT_POLICY = "lyon", "porto", "stripes"
MEMBERS = 4  # of a site: three in the network's ring, and one that reaches it through them
TOPIC = "flights/today"
CALM_S = 2.0  # of the stream before the first strike, and between two; a guess: people follow it
READY_BOUND_S = 30.0  # until all members take part; a guess, as those below
SHAPED_BOUND_S = 10.0  # until the trees have the shapes that managers ordered, if they can
STEP_BOUND_S = 30.0

FILE = """\
name = "{name}"

[admission]
members = [{members}]

[[topics]]
pattern = "flights/#"
policy = "{policy}"
"""

T = TypeVar("T")


class Site(NamedTuple):
    """A site: its manager's process, and those of its members."""

    name: str
    file: Path
    manager: Setting
    members: tuple[Setting, ...]


class Pauses:
    """The longest time in which any of some subscribers got nothing, from a moment on."""

    def __init__(self, peers: Iterable[bytes], since_ns: int) -> None:
        self._last = dict.fromkeys(peers, since_ns)
        self.longest_ms = 0.0

    def take(self, entries: Sequence[Entry]) -> None:
        """Note what was delivered."""
        for entry in entries:
            last = self._last.get(entry.peer)
            if last is not None and isinstance(entry.record, Delivered) and entry.at_ns > last:
                self.longest_ms = max(self.longest_ms, (entry.at_ns - last) / 1e6)
                self._last[entry.peer] = entry.at_ns


class Sites(Conductor):
    """Runs the three sites from start to end. `facts` and `failures` describe the outcome of each step."""

    facts: dict[str, Any]
    failures: list[str]

    async def perform(self) -> Run:
        """Run the demo to its end. Raises `PeerFailed` if a process ends that nobody killed."""
        self.facts, self.failures, self._pauses = {}, [], Pauses((), 0)
        self.sites = {name: self._site(name, number) for number, name in enumerate(SITES)}
        self.policies = dict(SITES)
        self._managers: dict[str, PeerProcess] = {}
        self._site_of: dict[bytes, str] = {}
        following = asyncio.create_task(self.state.follow(self._tell))
        try:
            await self._start_sites()
            publishers = await self._subscribe()
            await self._story(publishers)
            await self._settle()
            end_ns = time.time_ns()
            await self._leave()
            asked = {"sites": SITES, "events": len(self.plan.events), "rate": self.plan.rate, "seed": self.plan.seed}
            return Run(tuple(self.kills.done), end_ns, asked, dict(self.state.names))
        finally:
            following.cancel()
            for process in self._started:
                process.end()

    # --- the start

    def _site(self, name: str, number: int) -> Site:
        def setting(who: str, place: int, **more: Any) -> Setting:
            secret = Random(f"quillcast demo sites {self.plan.seed} {number} {place}").randbytes(32)
            log = self.plan.folder / "peers" / f"{name}-{who}.log"
            return Setting(f"{name}-{who}", self.plan.network, self.plan.journals, log, CONFIG, secret, **more)

        file = self.plan.folder / f"{name}.toml"
        manager = setting("manager", 0, data=self.plan.folder / f"{name}-manager")
        return Site(name, file, manager, tuple(setting(str(place), place) for place in range(1, MEMBERS + 1)))

    async def _start_sites(self) -> None:
        count = sum(1 + len(site.members) for site in self.sites.values())
        self.display.phase(f"three sites, each with a manager and {MEMBERS} members: starting {count} processes")
        gate = asyncio.Semaphore(STARTED_AT_ONCE)
        for site in self.sites.values():  # one after the other: the first is the network's first peer
            await self._manage(site, site.manager)
        await asyncio.gather(*[self._enter(site, gate) for site in self.sites.values()])
        self.facts["sites"] = [
            {"site": name, "policy": policy, "members": MEMBERS, "file": str(self.sites[name].file.absolute())}
            for name, policy in SITES.items()
        ]
        shapes = ", ".join(f"{name} by policy {policy}" for name, policy in SITES.items())
        self.display.note(f"all members have entered their sites: {shapes}")

    async def _manage(self, site: Site, setting: Setting) -> None:
        """Start a site's manager, or start it again as the same one."""
        listed = ", ".join(f'"{Identity.of_secret(each.secret).node_id.hex()}"' for each in site.members)
        site.file.write_text(FILE.format(name=site.name, members=listed, policy=SITES[site.name]))
        await self._start(setting, asyncio.Semaphore())
        self._managers[site.name] = process = self._started[-1]
        await process.order(Manage(str(site.file)))

    async def _enter(self, site: Site, gate: asyncio.Semaphore) -> None:
        scope = f"{site.name}@{self._managers[site.name].address}"
        for setting in site.members:
            self._site_of[Identity.of_secret(setting.secret).node_id] = site.name
        await asyncio.gather(*[self._start(msgspec.structs.replace(each, scope=scope), gate) for each in site.members])

    async def _subscribe(self) -> list[bytes]:
        """Subscribe all members, and wait for the sites' trees. Returns the publishers: a member of each site."""
        self.state.choose(TOPIC)
        self.display.phase(f"all members subscribe to {TOPIC}; their managers order the channels")
        await self._order_all(list(self._site_of), Subscribe(TOPIC))
        if not await self._until_ready():
            raise PeerFailed(f"the sites do not carry {TOPIC} after {READY_BOUND_S:g} s")
        self.display.show(self.picture)
        publishers = [await self._outside_the_ring(name) for name in SITES]
        self.display.note(f"one member of each site publishes: {self.state.names_of(publishers)}")
        self.display.note(f"look inside from another terminal: quillcast trace {TOPIC} --network {self.plan.network}")
        return publishers

    async def _until_ready(self) -> bool:
        """Wait until events can reach all members, and then a while for the trees that the managers ordered."""
        ready_by, shaped_by = time.monotonic() + READY_BOUND_S, time.monotonic() + SHAPED_BOUND_S
        while (now := time.monotonic()) < ready_by:
            topics = {name: await self._topic(name) for name in SITES}
            ready = all(topic and topic.subscribers == MEMBERS and not topic.waits_for for topic in topics.values())
            if ready and all(len(self._heads(name)) == 1 for name in SITES) and not self.state.watch.lonely():
                links = [link for name, topic in topics.items() if topic and name != STRUCK for link in topic.channels]
                if now >= shaped_by or all(self._stands(link) for link in links):
                    return True
            await self.state.next_look()
        return False

    def _stands(self, link: ScopeChannel) -> bool:
        """Whether a channel that a manager ordered is a link of the topic's tree. The root has no parent."""
        parent = self.state.view.places.get(bytes.fromhex(link.target), b"")
        return parent is None or parent == bytes.fromhex(link.source)

    async def _outside_the_ring(self, name: str) -> bytes:
        """A member of a site that publishes: one that is not an entry point."""
        members = (await self._scope(name)).members
        return next(bytes.fromhex(each.node_id) for each in reversed(members) if not each.in_ring)

    # --- the story

    async def _story(self, publishers: list[bytes]) -> None:
        """Run the story of the sites while events flow."""
        self.display.phase(
            f"events flow: {self.plan.rate:g} a second in batches every {LOOK_S:g} s, to all members of all sites"
        )
        self.on_stream()
        self.state.stream(flows=True)
        stream = asyncio.create_task(self._publish(publishers))
        try:
            await asyncio.sleep(CALM_S)
            await self._strike()
            await self._return()
            await asyncio.sleep(CALM_S)
            await self._change()
            await self._follow()
            await asyncio.sleep(CALM_S / 2)
        finally:
            self.enough()
            await stream
            self.state.stream(flows=False)

    async def _strike(self) -> None:
        """Kill a site's manager and its entry point together."""
        topic = await self._topic(STRUCK)
        assert topic is not None
        entry, manager = bytes.fromhex(topic.entries[0]), self._managers[STRUCK]
        victims = {entry: f"entry point of {TOPIC}", manager.node_id: f"manager of {STRUCK}"}
        members = [node for node, site in self._site_of.items() if site == STRUCK and node != entry]
        self._pauses = pauses = Pauses(members, time.time_ns())
        for victim, part in victims.items():
            self.kills.note(Kill(victim, self.processes[victim].kill(), part))
            self.state.kill(victim)
        struck, own = self.state.name(entry), self.state.name(manager.node_id)
        root = ", which is also the topic's root" if self.state.view.places.get(manager.node_id, b"") is None else ""
        self.display.note(f"SIGKILL {struck}, the entry point of {STRUCK}, and {own}, its manager{root}, together")
        repaired = await self._caught_up(f"{STRUCK} has no events after the kills")
        await self.state.until(lambda: len(self._heads(STRUCK)) == 1, STEP_BOUND_S)
        heirs = self._heads(STRUCK)
        self.facts["killed"] = {
            "site": STRUCK,
            "peers": [self.state.name(victim) for victim in victims],
            "heir": self.state.names_of(heirs) if repaired else None,
            "pause_ms": round(pauses.longest_ms, 1) if repaired else None,
        }
        if repaired:
            self.display.note(
                f"{self.state.names_of(heirs)} took over as the entry point; the longest pause of a member was "
                f"{pauses.longest_ms:.0f} ms, and {STRUCK} continues without its manager"
            )

    async def _return(self) -> None:
        """Start the killed manager again, with its data folder."""
        site, address = self.sites[STRUCK], self._managers[STRUCK].address
        self.state.revive(self._managers[STRUCK].node_id)
        await self._manage(site, msgspec.structs.replace(site.manager, listen=address))
        scope = await self._scope(STRUCK)

        def all_heard(scope: ScopeStatus) -> bool:
            return len(scope.members) == MEMBERS - 1 and all(each.heard_s < scope.lease_s for each in scope.members)

        until = time.monotonic() + STEP_BOUND_S
        while not all_heard(scope) and time.monotonic() < until:
            await self.state.next_look()
            scope = await self._scope(STRUCK)
        self.facts["returned"] = {"site": STRUCK, "epoch": scope.epoch, "members": len(scope.members)}
        if not all_heard(scope):
            self._fail(f"the manager of {STRUCK} has {len(scope.members)} members {STEP_BOUND_S:g} s after its return")
            return
        self.display.note(
            f"the manager of {STRUCK} is back from its data folder, in epoch {scope.epoch}: "
            f"{len(scope.members)} members answered, and the dead one is removed"
        )

    async def _change(self) -> None:
        """Change a site's policy while events flow."""
        members = [node for node, site in self._site_of.items() if site == CHANGED]
        self._pauses, began = Pauses(members, time.time_ns()), time.monotonic()
        change = SetPolicyQuestion(CHANGED, "flights/#", NEXT_POLICY, {})
        await self._ask(self._managers[CHANGED], change, PolicyChange)
        self.display.note(f"{CHANGED} changes from {SITES[CHANGED]} to {NEXT_POLICY} while events flow, in two phases")
        until = began + STEP_BOUND_S
        while (topic := await self._topic(CHANGED)) and topic.change and time.monotonic() < until:
            await self.state.next_look()
        done = topic is not None and not topic.change and await self._caught_up(f"{CHANGED} lacks events")
        pause_ms, took_s = round(self._pauses.longest_ms, 1), round(time.monotonic() - began, 1)
        self.facts["changed"] = {
            "site": CHANGED, "from": SITES[CHANGED], "to": NEXT_POLICY, "done": done, "pause_ms": pause_ms,
            "seconds": took_s,
        }  # fmt: skip
        if not done:
            self._fail(
                f"the change of {CHANGED} has not ended: {topic.change if topic else 'its manager has no topic'}"
            )
            return
        self.policies[CHANGED] = NEXT_POLICY
        self.display.note(
            f"{CHANGED} uses {NEXT_POLICY} after {took_s:g} s; the longest pause of a member was {pause_ms:.0f} ms"
        )

    async def _follow(self) -> None:
        """Follow one bundle through the sites."""
        trace = await self._ask(self._managers[CHANGED], TraceQuestion(TOPIC, 5.0), TraceStatus)
        first = [hop for hop in trace.hops if not hop.stopped]
        stopped = [way for hop in trace.hops for way in hop.ways if way.why == "its filter"]
        subscriptions, last_ms = sum(hop.subscriptions for hop in first), max((hop.at_ms for hop in first), default=0)
        self.facts["trace"] = {
            "peers": len(first), "subscriptions": subscriptions, "filtered": len(stopped), "last_ms": last_ms,
        }  # fmt: skip
        self.display.note(
            f"one bundle followed with quillcast trace: {len(first)} peers and {subscriptions} subscriptions in "
            f"{last_ms:.1f} ms; filters kept it off {len(stopped)} channels"
        )
        self.display.show(self.picture)

    async def _caught_up(self, failure: str) -> bool:
        """Wait until all living subscribers have what was published a second from now."""
        await asyncio.sleep(1.0)
        view = self.state.view
        goal, living = view.published, [peer for peer in view.subscribers if peer not in self.state.dead]
        done = await self.state.until(lambda: all(view.delivered[peer] >= goal for peer in living), STEP_BOUND_S)
        if not done:
            self._fail(f"{failure} for {STEP_BOUND_S:g} s")
        return done

    def _fail(self, words: str) -> None:
        self.failures.append(words)
        self.display.note(words)

    def _tell(self, entries: list[Entry]) -> None:
        self._pauses.take(entries)
        self.display.tick()

    # --- answers of peers

    async def _ask(self, process: PeerProcess, question: PeerQuestion, kind: type[T]) -> T:
        path = PeerRegistry(self.plan.network).control_path(Contact(process.node_id, process.address))
        return await asyncio.to_thread(ask, path, question, kind)

    async def _scope(self, name: str) -> ScopeStatus:
        """A site's status from its manager."""
        (scope,) = await self._ask(self._managers[name], ScopesQuestion(), tuple[ScopeStatus, ...])
        return scope

    async def _topic(self, name: str) -> ScopeTopic | None:
        topics = (await self._scope(name)).topics
        return next((topic for topic in topics if topic.name == TOPIC), None)

    # --- the picture

    def _heads(self, name: str) -> list[bytes]:
        """The living members of a site that have no parent in it. In a finished tree, that is the entry point."""
        parents = self.state.view.parents(self.state.dead)
        inside = [node for node, site in self._site_of.items() if site == name and node not in self.state.dead]
        return [node for node in inside if self._site_of.get(parents.get(node) or b"") != name]

    def picture(self) -> Iterator[str]:
        """The topic's tree, with each site in a box."""
        parents = self.state.view.parents(self.state.dead)
        children = children_of(parents)
        peers = {
            node.hex(): Drawn(
                self._label(node, parent), self._boxes(node), tuple(each.hex() for each in children.get(node, []))
            )
            for node, parent in parents.items()
        }
        yield f"{TOPIC}: the tree, with each site in a box"
        for node, parent in parents.items():
            if parent is None or parent not in parents:
                yield from drawn(peers, node.hex())
        yield from (f"{self.state.name(node)} killed" for node in self.state.dead)

    def _boxes(self, node: bytes) -> tuple[str, ...]:
        site = self._site_of.get(node, "")
        return (f"{site} ({self.policies[site]})",) if site else ()

    def _label(self, node: bytes, parent: bytes | None) -> str:
        view, words = self.state.view, ["root"] if parent is None else []
        site = self._site_of.get(node)
        words += (
            ["entry point"] if site is not None and parent is not None and self._site_of.get(parent) != site else []
        )
        words += [f"{view.delivered[node]:,} events"] if node in view.subscribers and view.delivered[node] else []
        return "  ".join([self.state.name(node), ", ".join(words)]).rstrip()
