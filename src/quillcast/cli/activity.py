"""The activity of this machine's peers: the difference between two looks at their statuses."""

import os
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec

from quillcast.cli.asking import ask_each, peers_here
from quillcast.cli.summary import Part, parts_by_topic, summary
from quillcast.core.status.machines import Activity, PeerActivity, PeerLink, TopicActivity
from quillcast.core.status.peers import NodeStatus
from quillcast.core.status.topics import SubscriberLag, TopicStatus
from quillcast.live.discovery.questions import StatusQuestion

ANSWER_TIMEOUT_S = 1.0  # a guess: a peer that takes longer is shown as not answering


class Look(NamedTuple):
    """The status of all peers at one time."""

    at_s: float
    statuses: dict[str, NodeStatus]
    cpu_s: dict[str, float]
    unresponsive: tuple[str, ...]


def watch(network: str, interval_s: float) -> Iterator[Activity]:
    """Repeatedly yield what happened between two looks."""
    yield from (activity(network, before, after) for before, after in pairwise(_looks(network, interval_s)))


def activity(network: str, before: Look, after: Look) -> Activity:
    """What happened between two looks."""
    return Activity(
        network=network,
        seconds=round(after.at_s - before.at_s, 3),
        peers=tuple(_peer(before, after, node) for node in after.statuses),
        topics=tuple(_topics(before, after)),
        subscribers=tuple(_subscribers(after)),
        links=tuple(link for status in after.statuses.values() for link in _links(status)),
        unresponsive=after.unresponsive,
    )


def _looks(network: str, interval_s: float) -> Iterator[Look]:
    while True:
        yield _look(network)
        time.sleep(interval_s)


def _look(network: str) -> Look:
    answers = ask_each(network, peers_here(network), StatusQuestion(), NodeStatus, timeout_s=ANSWER_TIMEOUT_S)
    statuses = {entry.node_id: status for entry, status in answers if status is not None}
    cpu_s = {node: _cpu_s(status.pid) for node, status in statuses.items()}
    return Look(time.monotonic(), statuses, cpu_s, tuple(entry.node_id for entry, status in answers if status is None))


def _peer(before: Look, after: Look, node: str) -> PeerActivity:
    now, seconds = after.statuses[node], after.at_s - before.at_s
    then = before.statuses.get(node, now)

    def rate(count: float) -> float:
        return round(max(0.0, count) / seconds, 1)

    return PeerActivity(
        node_id=now.node_id,
        address=now.address,
        pid=now.pid,
        uptime_s=now.uptime_s,
        active=now.active,
        cpu_share=round(max(0.0, after.cpu_s[node] - before.cpu_s.get(node, after.cpu_s[node])) / seconds, 3),
        memory_bytes=_memory_bytes(now.pid),
        neighbours=len(now.neighbours),
        suspected=sum(link.suspected for link in now.neighbours),
        topics=len(now.topics),
        events_per_s=rate(sum(arrived(then, now).values())),
        in_bytes_per_s=rate(now.counters.bytes_in - then.counters.bytes_in),
        out_bytes_per_s=rate(now.counters.bytes_out - then.counters.bytes_out),
        waiting_bytes=sum(link.waiting_bytes for link in now.neighbours),
        buffers=now.buffers,
        dropped=now.counters.dropped,
        problems=now.problems,
    )


def arrived(then: NodeStatus, now: NodeStatus) -> dict[str, int]:
    """Return the events that arrived between two statuses of a peer, by topic.

    The count of a new term begins at 0, that of a new topic anywhere.
    """
    frontiers = {(topic.name, topic.term): topic.frontier for topic in then.topics}
    known = {topic.name for topic in then.topics}

    def frontier_then(topic: TopicStatus) -> int:
        return frontiers.get((topic.name, topic.term), 0 if topic.name in known else topic.frontier)

    return {topic.name: topic.frontier - frontier_then(topic) for topic in now.topics}


def _topics(before: Look, after: Look) -> Iterator[TopicActivity]:
    """What all peers here together know about each topic, without topics whose settings they only keep."""
    news = {node: arrived(before.statuses.get(node, status), status) for node, status in after.statuses.items()}
    for (name, _), parts in parts_by_topic(after.statuses.values()).items():
        used = [part for part in parts if part[1].role != "replica"]
        if used:
            events_per_s = max(news[node][name] for node, _ in used) / (after.at_s - before.at_s)
            yield TopicActivity(
                **msgspec.structs.asdict(summary(used)),
                events_per_s=round(max(0.0, events_per_s), 1),
                unstable=_unstable(used),
            )


def _unstable(parts: Sequence[Part]) -> int | None:
    """Events that the root of a reliable topic has not declared stable."""
    roots = [topic for _, topic in parts if topic.role == "root" and topic.settings.reliable]
    return roots[-1].frontier - roots[-1].stable if roots else None


def _subscribers(look: Look) -> list[SubscriberLag]:
    """Every subscription of the peers here, and how far it is behind the furthest position that one of them knows.

    If a peer does not answer, its parent still knows how far all of them are behind.
    """
    topics = [topic for status in look.statuses.values() for topic in status.topics if topic.in_tree]
    ends: dict[tuple[str, str | None], int] = {}
    for topic in topics:
        term = (topic.topic_id, topic.term)
        ends[term] = max(ends.get(term, 0), topic.frontier)
    found = [lag for topic in topics for lag in _lags(topic, ends[topic.topic_id, topic.term])]
    found += [lag for topic in topics for lag in _silent_lags(topic, look.unresponsive)]
    return sorted(found, key=lambda lag: (-lag.behind_events, -lag.behind_s, lag.topic, lag.node_id))


def _lags(topic: TopicStatus, end: int) -> Iterator[SubscriberLag]:
    """A peer's subscriptions, compared with the `end` that is known elsewhere."""
    beyond = max(0, end - topic.known_end) if topic.settings.reliable else 0
    for lag in topic.lags:
        yield msgspec.structs.replace(lag, behind_events=lag.behind_events + beyond)


def _silent_lags(topic: TopicStatus, unresponsive: Sequence[str]) -> Iterator[SubscriberLag]:
    for peer in topic.waits_for:
        if peer.node_id in unresponsive:
            yield SubscriberLag(
                topic.name, peer.node_id, name="", number=0, behind_events=peer.behind_events, behind_s=peer.behind_s,
                stalled_s=0.0, waiting_events=0, waiting_bytes=0,
            )  # fmt: skip


def _links(status: NodeStatus) -> Iterator[PeerLink]:
    """Links that are down, suspected, or have a queue."""
    for link in status.neighbours:
        if link.suspected or not link.connected or link.waiting_bytes:
            yield PeerLink(status.node_id, link)


def _cpu_s(pid: int) -> float:
    """CPU time used by a process, seconds; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory_bytes(pid: int) -> int:
    """Resident memory of a process."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
