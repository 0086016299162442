"""The audit, slow and obvious: event by event, from a list of records."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from math import floor
from typing import Any

from quillcast.core import trace
from quillcast.core.journal import Entry
from quillcast.pipeline.run import Kill

Subscription = tuple[bytes, bytes, int, int]
"""topic, peer, started_ns, since."""

Event = tuple[bytes, int]
"""publisher, sequence."""


class NaiveAudit:
    """The figures of `quillcast.pipeline.audit`, from the entries of all journals up to the end of the run."""

    def __init__(self, entries: Iterable[Entry], kills: Iterable[Kill], end_ns: int) -> None:
        self.entries = sorted([e for e in entries if e.at_ns <= end_ns], key=lambda e: (e.peer, e.started_ns, e.entry))
        self.kills = sorted(kills, key=lambda kill: kill.at_ns)
        self.by_process: dict[tuple[bytes, int], list[Entry]] = defaultdict(list)
        self.by_topic: dict[bytes | None, list[Entry]] = defaultdict(list)
        for entry in self.entries:
            self.by_process[entry.peer, entry.started_ns].append(entry)
            self.by_topic[getattr(entry.record, "topic", None)].append(entry)
        self.ended = {process: self._ended(*process) for process in self.by_process}
        self.subscriptions = self._subscriptions()

    def _ended(self, peer: bytes, started_ns: int) -> int | None:
        stops = [e.at_ns for e in self.by_process[peer, started_ns] if isinstance(e.record, trace.Stopped)]
        kills = [kill.at_ns for kill in self.kills if kill.peer == peer and kill.at_ns >= started_ns]
        later = [other for who, other in self.by_process if who == peer and other > started_ns]
        return min([*stops, *kills, *later], default=None)

    def _subscriptions(self) -> dict[Subscription, tuple[int | None, trace.Subscribed]]:
        """Each subscription's `until` and first record."""
        found: dict[Subscription, tuple[int | None, trace.Subscribed]] = {}
        for (peer, started_ns), entries in self.by_process.items():
            current: dict[tuple[bytes, int], Subscription] = {}
            for e in entries:
                match e.record:
                    case trace.Subscribed(topic=topic, number=number) if (topic, number) not in current:
                        current[topic, number] = (topic, peer, started_ns, e.entry)
                        found[current[topic, number]] = (None, e.record)
                    case trace.Unsubscribed(topic=topic, number=number) if (topic, number) in current:
                        key = current.pop((topic, number))
                        found[key] = (e.entry, found[key][1])
        return found

    def delivery(self, key: Subscription) -> str:
        """The guarantee of a subscription: the weaker of the one it asked for and the topic's latest known one."""
        named = [
            (e.record.version, e.at_ns, e.record.delivery)
            for e in self.by_topic[key[0]]
            if isinstance(e.record, trace.Named)
        ]
        given = max(named)[2] if named else "reliable"
        return "reliable" if given == self.subscriptions[key][1].delivery == "reliable" else "best_effort"

    def subscription_of(self, e: Entry) -> Subscription | None:
        run: Any = e.record
        for key, (until, begin) in self.subscriptions.items():
            whose = key[:3] == (run.topic, e.peer, e.started_ns) and begin.number == run.number
            if whose and key[3] < e.entry and (until is None or e.entry < until):
                return key
        return None

    def lived(self, key: Subscription) -> bool:
        return self.ended[key[1], key[2]] is None and self.subscriptions[key][0] is None

    def positions(self, topic: bytes) -> dict[Event, set[tuple[Any, int]]]:
        """Every position that each event of the topic is known to have had."""
        known: dict[Event, set[tuple[Any, int]]] = defaultdict(set)
        for e in self.by_topic[topic]:
            r = e.record
            if isinstance(r, trace.Admitted | trace.Delivered) and r.term.counter > 0:
                for n in range(r.count):
                    known[r.publisher, r.first + n].add((r.term, r.index + n))
        return known

    def countable(self, topic: bytes) -> set[Event]:
        events = set()
        for e in self.by_topic[topic]:
            r = e.record
            sure = isinstance(r, trace.Admitted | trace.Delivered) or (
                isinstance(r, trace.Published) and self.ended[e.peer, e.started_ns] is None
            )
            if sure:
                events |= {(r.publisher, r.first + n) for n in range(r.count)}
        return events

    def due(self, key: Subscription) -> set[Event]:
        if not self.lived(key):
            return set()
        start = self.subscriptions[key][1]
        streams: dict[Any, int] = defaultdict(int)
        for e in self.by_topic[key[0]]:
            if isinstance(e.record, trace.StreamOwed) and self.subscription_of(e) == key:
                streams[e.record.term] = max(streams[e.record.term], e.record.index)
        floor: dict[bytes, int] = defaultdict(int)
        for (publisher, sequence), positions in self.positions(key[0]).items():
            early = any(position < (start.term, start.index) for position in positions)
            if early or any(index < streams[term] for term, index in positions):
                floor[publisher] = max(floor[publisher], sequence + 1)
        return {(publisher, sequence) for publisher, sequence in self.countable(key[0]) if sequence >= floor[publisher]}

    def told(self, key: Subscription) -> set[Event]:
        positions = self.positions(key[0])
        events = set()
        for e in self.by_topic[key[0]]:
            r = e.record
            if isinstance(r, trace.Lost) and self.subscription_of(e) == key:
                lost = {(r.term, index) for index in range(r.first, r.last)}
                events |= {event for event, places in positions.items() if places & lost}
        return events

    def passed(self, runs: list[trace.Delivered], topic: bytes) -> set[Event]:
        """The events that had a position before one, of the same term, of which something was delivered."""
        reach: dict[Any, int] = defaultdict(int)
        for run in runs:
            reach[run.term] = max(reach[run.term], run.index + run.count)
        known = self.positions(topic).items()
        return {event for event, places in known if any(index < reach[term] for term, index in places)}

    def subscribers(self) -> dict[Subscription, dict[str, Any]]:
        return {key: self.fate(key) for key in self.subscriptions}

    def fate(self, key: Subscription) -> dict[str, Any]:
        runs = [
            (e, e.record)
            for e in self.by_topic[key[0]]
            if isinstance(e.record, trace.Delivered) and self.subscription_of(e) == key
        ]
        copies = Counter((run.publisher, run.first + n) for _, run in runs for n in range(run.count))
        due, told = self.due(key), self.told(key)
        missing, reliable = due - copies.keys(), self.delivery(key) == "reliable"
        known = missing if reliable else missing & self.passed([run for _, run in runs], key[0])
        highest: dict[bytes, int] = {}
        disordered = 0
        for _, run in runs:
            disordered += run.publisher in highest and run.first < highest[run.publisher]
            highest[run.publisher] = max(highest.get(run.publisher, -1), run.first + run.count - 1)
        delays = sorted(
            floor((e.at_ns - run.published_ns) / 1e4 + 0.5) / 100 for e, run in runs for _ in range(run.count)
        )
        return {
            "lived": self.lived(key),
            "delivery": self.delivery(key),
            "expected": len(due),
            "delivered": len(due & copies.keys()),
            "duplicated": sum(copies.values()) - len(copies),
            "lost": len(missing) if reliable else 0,
            "dropped": 0 if reliable else len(missing),
            "silent": len(known - told),
            "extra": len(copies.keys() - due),
            "disordered": disordered,
            "p50_ms": percentile(delays, 0.5),
            "p99_ms": percentile(delays, 0.99),
        }

    def unasked(self) -> int:
        return sum(
            e.record.count
            for e in self.entries
            if isinstance(e.record, trace.Delivered) and self.subscription_of(e) is None
        )

    def conflicts(self) -> int:
        """Positions that were given to more than one event."""
        holders = defaultdict(set)
        for topic in self.by_topic.keys() - {None}:
            for event, positions in self.positions(topic).items():
                for position in positions:
                    holders[topic, position].add(event)
        return sum(len(events) > 1 for events in holders.values())

    def tree(self, topic: bytes, at_ns: int) -> dict[bytes, tuple[bytes | None, bool]]:
        """Parent and is_root of each live peer of the topic's tree."""
        found = {}
        for (peer, started_ns), entries in self.by_process.items():
            ended = self.ended[peer, started_ns]
            if ended is not None and ended < at_ns:
                continue
            parent, is_root, member = None, False, False
            for e in entries:
                if e.at_ns > at_ns or getattr(e.record, "topic", None) != topic:
                    continue
                match e.record:
                    case trace.Attached(parent=parent):
                        is_root, member = False, True
                    case trace.Detached(why=why):
                        parent, member = None, why != "left"
                    case trace.BecameRoot():
                        is_root = True
                    case trace.ResignedRoot():
                        is_root = False
            if is_root or member:
                found[peer] = (None if is_root else parent, is_root)
        return found

    def depth(self, topic: bytes, at_ns: int, peer: bytes) -> int | None:
        tree, steps = self.tree(topic, at_ns), 0
        while peer in tree and steps <= len(tree):
            parent, is_root = tree[peer]
            if is_root:
                return steps
            if parent is None:
                return None
            peer, steps = parent, steps + 1
        return None

    def repair(self, kill: Kill) -> dict[str, Any]:
        """How one kill was repaired."""
        children, unrepaired, by_fallback, times = 0, 0, 0, []
        for topic in sorted({e.record.topic for e in self.entries if isinstance(e.record, trace.Attached)}):
            for peer, (parent, _) in self.tree(topic, kill.at_ns).items():
                if parent != kill.peer:
                    continue
                children += 1
                answer = self._answer(topic, peer, kill)
                if isinstance(answer, Entry) and not isinstance(answer.record, trace.Detached):
                    times.append(answer.at_ns)
                    by_fallback += getattr(answer.record, "how", "") == "fallback"
                elif answer is None and not self._ended_after(peer, kill.at_ns):
                    unrepaired += 1
        repair_s = None if unrepaired else (max(times) - kill.at_ns) / 1e9 if times else 0.0
        return {"children": children, "unrepaired": unrepaired, "by_fallback": by_fallback, "repair_s": repair_s}

    def _answer(self, topic: bytes, peer: bytes, kill: Kill) -> Entry | None:
        def ends_the_search(record: trace.Record) -> bool:
            match record:
                case trace.Attached(parent=parent):
                    return parent != kill.peer
                case trace.Detached(why=why):
                    return why == "left"
                case trace.BecameRoot():
                    return True
            return False

        answers = [
            e
            for e in self.entries
            if e.peer == peer and e.at_ns > kill.at_ns and getattr(e.record, "topic", None) == topic
            and ends_the_search(e.record)
        ]  # fmt: skip
        return min(answers, key=lambda e: (e.at_ns, type(e.record).__name__), default=None)

    def _ended_after(self, peer: bytes, at_ns: int) -> bool:
        ends = [ended for (who, _), ended in self.ended.items() if who == peer and ended is not None]
        return bool(ends) and max(ends) > at_ns


def percentile(values: list[float], share: float) -> float | None:
    """The value below which `share` of the sorted values lie, between neighbours in proportion."""
    if not values:
        return None
    place = share * (len(values) - 1)
    low = int(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (place - low)
