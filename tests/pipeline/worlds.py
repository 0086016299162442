"""Random journals, without regard to what a protocol would do: runs lost, repeated, reordered, under several terms."""

from collections.abc import Sequence
from pathlib import Path
from random import Random

from quillcast.core import journal, trace
from quillcast.core.envelope import NO_TERM, Term
from quillcast.core.journal import Entry
from quillcast.core.trace import Record
from quillcast.pipeline.run import Kill

PEERS = [bytes([n]) * 16 for n in range(1, 7)]
TERMS = [NO_TERM, Term(1, b"a" * 16), Term(1, b"b" * 16), Term(2, b"a" * 16)]
DELIVERIES = ["reliable", "reliable", "best_effort"]
LENGTH_NS = 1_000_000_000


class World:
    """Six peers, one to three processes each, and a number of topics that share nothing but them."""

    def __init__(self, seed: int, topics: int) -> None:
        self.random = Random(seed)
        self.start_ns = 10**18
        self.end_ns = self.start_ns + LENGTH_NS * 9 // 10
        self.topics = [b"topic" + n.to_bytes(11, "big") for n in range(topics)]
        kills = [(self.random.choice(PEERS[:3]), self.time()) for _ in range(3)]
        self.kills = [Kill(peer, at_ns) for peer, at_ns in kills]
        self.entries: list[Entry] = []
        for peer in PEERS:
            starts = sorted(self.time() for _ in range(self.random.choice([0, 0, 0, 1])))
            starts = [self.start_ns, *starts]
            for started_ns, until_ns in zip(starts, [*starts[1:], self.start_ns + LENGTH_NS], strict=True):
                self.entries += self.life(peer, started_ns, until_ns)

    def time(self) -> int:
        return self.start_ns + self.random.randrange(LENGTH_NS)

    def life(self, peer: bytes, started_ns: int, until_ns: int) -> list[Entry]:
        kills = [kill.at_ns for kill in self.kills if kill.peer == peer and kill.at_ns >= started_ns]
        until_ns = min([*kills, until_ns])
        deeds = [record for topic in self.topics for record in self.deeds(topic)]
        happened = [(self.moment(started_ns, until_ns), record) for record in deeds]
        if self.random.random() < 0.1:
            happened.append((until_ns, trace.Stopped()))
        happened.sort(key=lambda pair: pair[0])
        return [Entry(peer, started_ns, n, at_ns, record) for n, (at_ns, record) in enumerate(happened)]

    def moment(self, started_ns: int, until_ns: int) -> int:
        return self.random.randint(started_ns, max(started_ns, until_ns))

    def deeds(self, topic: bytes) -> list[Record]:
        """What one process does in one topic, in random order."""
        return [self.deed(topic) for _ in range(self.random.randrange(14))]

    def deed(self, topic: bytes) -> Record:
        pick = self.random
        publisher, first, count = pick.choice([b"P" * 16, b"Q" * 16]), pick.randrange(30), pick.randint(1, 9)
        term = pick.choice(TERMS)
        index = first if pick.random() < 0.8 else pick.randrange(30)
        other, number = pick.choice(PEERS), pick.choice([1, 1, 1, 2])
        kinds = {
            0.12: trace.Subscribed(topic, term, pick.randrange(20), number, pick.choice(DELIVERIES)),
            0.01: trace.Named(topic, f"topic {topic[-1]}", pick.choice(DELIVERIES), pick.randrange(2)),
            0.045: trace.StreamOwed(topic, term, pick.randrange(20), number),
            0.03: trace.Unsubscribed(topic, number),
            0.10: trace.Published(topic, publisher, first, count, 100),
            0.08: trace.Admitted(topic, publisher, first, count, term, index),
            0.35: trace.Delivered(topic, publisher, first, count, self.time(), term, index, number),
            0.05: trace.Lost(topic, term, index, index + count, "cut", number),
            0.15: trace.Attached(topic, other, pick.choice(["joined", "fallback"]), 1),
            0.06: trace.Detached(topic, other, pick.choice(["lost", "left"])),
            0.04: trace.BecameRoot(topic, term, "took_over"),
            0.02: trace.ResignedRoot(topic, other),
        }
        return pick.choices(list(kinds.values()), list(kinds))[0]

    def write(self, folder: Path) -> None:
        lives: dict[tuple[bytes, int], list[Entry]] = {}
        for entry in self.entries:
            lives.setdefault((entry.peer, entry.started_ns), []).append(entry)
        for (peer, started_ns), entries in lives.items():
            path = folder / f"{peer.hex()}-{started_ns}-0000.arrows"
            path.write_bytes(journal.beginning() + b"".join(self.flushes(peer, started_ns, entries)))

    def flushes(self, peer: bytes, started_ns: int, entries: Sequence[Entry]) -> list[bytes]:
        ledger, parts = journal.RecordBuffer(peer, started_ns, 40), []
        while ledger.noted < len(entries):
            some = entries[ledger.noted : ledger.noted + self.random.randint(1, 40)]
            ledger.note((entry.at_ns, entry.record) for entry in some)
            parts += ledger.lay_out()
        return [bytes(part) for part in parts]
