"""A made-up run of a small network whose truth is known: trees, events, kills, repairs, in real journals."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from quillcast.core import trace
from quillcast.core.envelope import NO_TERM, Term
from quillcast.core.ids import topic_id
from quillcast.live.storage.journal import Journal
from quillcast.pipeline.run import Kill, Run, write_run

MS = 1_000_000
SECOND = 1000 * MS
TORN = b"\xff\xff\xff\xff\x00\x08torn"
"""The beginning of a batch."""
TOPICS = ("flights/EWR", "flights/JFK", "flights/LGA")


@dataclass
class Tree:
    """One topic's tree as the run goes on."""

    name: str
    root: int
    parents: dict[int, int]
    subscribers: list[int]
    publisher: int
    term: Term = NO_TERM
    sequence: int = 0
    index: int = 0
    waits_until: dict[int, int] = field(default_factory=dict)
    """Peers below a killed one get nothing before this time."""

    @property
    def id(self) -> bytes:
        return topic_id(self.name)

    def depth(self, peer: int) -> int:
        return 0 if peer == self.root else 1 + self.depth(self.parents[peer])

    def way(self, peer: int) -> list[int]:
        return [peer] if peer == self.root else [peer, *self.way(self.parents[peer])]


class Network:
    """Peers 0 to `size - 1`; the first ones are forwarders and die, the others publish and subscribe."""

    def __init__(self, folder: Path, *, size: int = 16, seed: int = 1) -> None:
        self.random, self.folder, self.size = Random(seed), folder, size
        self.peers = [self.random.randbytes(16) for _ in range(size)]
        self.journals = [Journal(folder, peer) for peer in self.peers]
        self.start_ns = max(journal.started_ns for journal in self.journals) + SECOND
        self.kills: list[Kill] = []
        self.dead: set[int] = set()
        self.trees = [self._plant(name) for name in TOPICS]
        for number in range(size):
            self.note(number, 0, trace.Started(f"127.0.0.1:{5000 + number}"))
            self.note(number, 50, trace.Activated(4))
        for tree in self.trees:
            self._announce(tree)

    def note(self, peer: int, at_ms: float, record: trace.Record) -> None:
        if peer not in self.dead:
            self.journals[peer].trace(record, self.start_ns + round(at_ms * MS))

    def _plant(self, name: str) -> Tree:
        forwarders = self.random.sample(range(6), 4)
        root, parents = forwarders[0], {forwarders[1]: forwarders[0], forwarders[2]: forwarders[0]}
        parents[forwarders[3]] = forwarders[1]
        subscribers = self.random.sample(range(7, self.size), self.size - 9)
        for peer in subscribers:
            parents[peer] = self.random.choice(forwarders)
        return Tree(name, root, parents, subscribers, publisher=6)

    def _announce(self, tree: Tree) -> None:
        tree.term = Term(1, self.peers[tree.root])
        self.note(tree.root, 60, trace.BecameRoot(tree.id, tree.term, "created"))
        for number in range(self.size):
            self.note(number, 61, trace.Named(tree.id, tree.name))
        for peer, parent in sorted(tree.parents.items()):
            self.note(peer, 70, trace.Attached(tree.id, self.peers[parent], "joined", tree.depth(peer)))
            self.note(parent, 70, trace.ChildAdded(tree.id, self.peers[peer], 1))
        for peer in tree.subscribers:
            self.note(peer, 80, trace.Subscribed(tree.id, tree.term, 0))

    def publish(self, tree: Tree, at_ms: float, count: int) -> None:
        """One run of events, from the publisher to the root and down the tree."""
        publisher, first, index = b"P" + tree.id[1:], tree.sequence, tree.index
        published_ns = self.start_ns + round(at_ms * MS)
        self.note(tree.publisher, at_ms, trace.Published(tree.id, publisher, first, count, 100 * count))
        at_root = at_ms + self.random.gammavariate(4, 0.1)
        run = (tree.id, publisher, first, count)
        self.note(tree.root, at_root, trace.Admitted(*run, tree.term, index))
        for peer in tree.subscribers:
            at = at_root + sum(self.random.gammavariate(3, 0.12) for _ in tree.way(peer)[1:])
            held = max([tree.waits_until.get(hop, 0) for hop in tree.way(peer)])
            at = max(at, held + (first / 1e4) + self.random.gammavariate(2, 1)) if held > at else at
            self.note(peer, at, trace.Delivered(*run, published_ns, tree.term, index))
        tree.sequence, tree.index = first + count, index + count

    def kill(self, victim: int, at_ms: float, what: str) -> None:
        """SIGKILL: its journal ends in a torn batch, and its children look for parents."""
        self.kills.append(Kill(self.peers[victim], self.start_ns + round(at_ms * MS), what))
        self.journals[victim].flush()
        with self.journals[victim].path.open("ab") as file:
            file.write(TORN)
        self.dead.add(victim)
        for tree in self.trees:
            self._repair(tree, victim, at_ms)

    def _repair(self, tree: Tree, victim: int, at_ms: float) -> None:
        orphans = sorted(peer for peer, parent in tree.parents.items() if parent == victim)
        if victim == tree.root:
            heir = orphans[0]
            at = at_ms + self.random.uniform(200, 300)
            tree.root, tree.term, tree.index = heir, Term(tree.term.counter + 1, self.peers[heir]), 0
            tree.parents.pop(heir)
            self.note(heir, at - 50, trace.Detached(tree.id, self.peers[victim], "lost"))
            self.note(heir, at, trace.BecameRoot(tree.id, tree.term, "took_over"))
            tree.waits_until |= dict.fromkeys([heir, *tree.parents], at)
            orphans, parent = orphans[1:], heir
        else:
            parent = tree.parents.pop(victim, tree.root)
        for orphan in orphans:
            at = at_ms + self.random.uniform(20, 120)
            self.note(orphan, at - 5, trace.Detached(tree.id, self.peers[victim], "lost"))
            tree.parents[orphan] = parent
            how = "fallback" if self.random.random() < 0.8 else "routed"
            self.note(orphan, at, trace.Attached(tree.id, self.peers[parent], how, tree.depth(orphan)))
            self.note(parent, at, trace.ChildAdded(tree.id, self.peers[orphan], 1))
            self.note(orphan, at + 1, trace.Repaired(tree.id, "parent", 10))
            tree.waits_until[orphan] = max(tree.waits_until.get(orphan, 0), at)

    def finish(self, at_ms: float) -> Run:
        """Stop all peers in good order, and describe the run."""
        end_ns = self.start_ns + round(at_ms * MS)
        for number in range(self.size):
            self.note(number, at_ms + 10, trace.Stopped())
            if number not in self.dead:
                self.journals[number].close()
        for number in self.dead:
            os.close(self.journals[number]._file or 0)
        parameters = {"peers": self.size, "rate": 600, "seed": 1, "b": 1, "l": 4, "events": "nycflights13"}
        names = {peer: f"peer {number}" for number, peer in enumerate(self.peers)}
        run = Run(tuple(self.kills), end_ns, parameters, names)
        write_run(self.folder, run)
        return run


def make(folder: Path, *, seconds: int = 12, seed: int = 1, kills: bool = True) -> Run:
    """A run of so many seconds, with two forwarders and then the busiest topic's root killed."""
    network = Network(folder, seed=seed)
    busiest = network.trees[1]
    inner = [peer for peer in range(6) if peer != busiest.root and peer in busiest.parents]
    plan = [(inner[0], "forwarder"), (inner[1], "forwarder"), (busiest.root, f"root of {busiest.name}")]
    at_kill = [seconds * 1000 * share for share in (0.3, 0.5, 0.7)] if kills else []
    for at_ms in range(100, seconds * 1000, 20):
        while at_kill and at_ms >= at_kill[0]:
            network.kill(*plan.pop(0)[:1], at_kill.pop(0), "forwarder" if plan else f"root of {busiest.name}")
        for share, tree in zip((0.5, 1.0, 0.3), network.trees, strict=True):
            if network.random.random() < share:
                network.publish(tree, at_ms, network.random.randint(1, 12))
    return network.finish(seconds * 1000 + 500)
