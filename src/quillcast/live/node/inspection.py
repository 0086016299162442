"""The state of a node as structs of `core.status`: `status`, topics, and live trees."""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sized

from quillcast.core.status.peers import Counters, JournalStatus, LinkStatus, MemoryUse, NodeStatus, Traffic
from quillcast.core.status.scopes import Membership
from quillcast.core.status.topics import TopicStatus
from quillcast.core.status.traces import TraceStatus
from quillcast.core.status.trees import TreeStatus
from quillcast.live.node import scopestatus, topicstatus, tracestatus, treestatus
from quillcast.live.runtime.pump import Pump
from quillcast.live.storage.journal import Journal
from quillcast.live.transport.link import Link
from quillcast.live.transport.links import Links
from quillcast.protocol.forwarding.table import ForwardingTable
from quillcast.protocol.overlay.routingtable import UNKNOWN
from quillcast.protocol.peer import Peer
from quillcast.protocol.security.access import principal
from quillcast.protocol.topics.memory.retention import total

RATE_S_MIN = 1.0  # rates are measured over at least this time
REFUSED = "refused_"
"""The prefix of the counters of connections that were closed because of what arrived on them; the reason follows."""


class Inspector:
    """Reads the state of one peer without changing anything."""

    def __init__(
        self, peer: Peer, links: Links, pump: Pump, journal: Journal | None, looked_in: str, clients: Sized,
        look: Callable[[], None],
    ) -> None:  # fmt: skip
        """`look` adds a problem if the data folder was removed."""
        self._peer, self._links, self._pump, self._journal, self._looked_in = peer, links, pump, journal, looked_in
        self._clients, self._look = clients, look
        self._started_at = time.monotonic()
        self._before: tuple[float, dict[bytes, int]] = (self._started_at, {})
        self._rates: dict[bytes, float] = {}

    def status(self) -> NodeStatus:
        """The state of this peer."""
        peer, links = self._peer, self._links
        tls, budget, unfinished = links.handshake.tls, peer.table.budget, links.unfinished
        journal = None if self._journal is None else journal_status(self._journal)  # first, as it may add a problem
        self._look()
        memberships = scopestatus.memberships(peer.scoping)
        return NodeStatus(
            node_id=links.contact.node_id.hex(),
            address=links.contact.address,
            network=links.handshake.network,
            pid=os.getpid(),
            uptime_s=round(time.monotonic() - self._started_at, 3),
            active=peer.active,
            credential=tls.fingerprint if tls is not None else None,
            admits=links.handshake.answer_application is not None,
            looked_in=self._looked_in,
            unauthenticated=links.unauthenticated_count,
            neighbours=tuple(link_status(link, peer) for link in links.links.values()),
            leaf_set=tuple(topicstatus.peer_contact(contact) for contact in peer.overlay.leaf_set),
            topics=self.topics(),
            buffers=MemoryUse(budget.used_bytes, budget.limit_bytes),
            unfinished=MemoryUse(unfinished.bytes, unfinished.bytes_max),
            counters=counters(links.counters, peer.table),
            problems=(
                *links.problems,
                *map(self._contested, peer.topics.rivals),
                *self._waiting(),
                *silences(memberships),
            ),
            journal=journal,
            clients=len(self._clients),
            memberships=memberships,
            manages=tuple(manager.state.scope.name for manager, _ in peer.scoping.managers.values()),
        )

    def traffic(self) -> Traffic:
        """How many links are open, and what links carried since the start; the cost does not depend on topics."""
        connected = sum(link.connection is not None for link in self._links.links.values())
        return Traffic(connected, counters(self._links.counters, self._peer.table))

    def topics(self) -> tuple[TopicStatus, ...]:
        """All topics that this peer is root of, forwards, subscribes to or publishes to, or stores the settings of."""
        self._take_rates()
        topics = self._peer.topics
        created = [topic for topic, descriptor in topics.descriptors.items() if descriptor.version > 0]
        ids = dict.fromkeys([*topics.trees, *topics.publishing.publishers, *created])
        found = (topicstatus.topic_status(self._peer, topic, self._rates.get(topic, 0.0)) for topic in ids)
        return tuple(sorted(found, key=lambda topic: topic.name))

    async def tree(self, name: str, timeout_s: float) -> TreeStatus:
        """The live tree of a topic, from the peers that answered in time, and the progress of each subscription."""
        inspection = self._peer.topics.inspection
        number = self._pump.call(inspection.survey, name)
        branches = inspection.surveys[number]
        try:
            async with asyncio.timeout(timeout_s):
                await self._pump.until(lambda: treestatus.is_whole(branches))
        except TimeoutError:
            pass  # the result shows which peers answered, and that it is incomplete
        finally:
            inspection.end_survey(number)
        return treestatus.tree_status(name, branches, self._addresses())

    def _addresses(self) -> dict[bytes, str]:
        """Where this peer and its neighbours listen."""
        contacts = [self._links.contact, *(link.contact for link in self._links.links.values())]
        return {contact.node_id: contact.address for contact in contacts}

    async def trace(self, name: str, timeout_s: float, gather_s: float) -> TraceStatus:
        """The trace of a topic's next bundle, if one comes in time; peers then have `gather_s` to answer."""
        topics, pump = self._peer.topics, self._pump
        number = pump.call(topics.inspection.survey, name, timeout_s)
        branches, told = topics.inspection.surveys[number], topics.tracing.hops[number]
        try:
            async with asyncio.timeout(timeout_s):
                await pump.until(lambda: bool(told) or tracestatus.is_traced(told.values(), branches))
            async with asyncio.timeout(gather_s):
                await pump.until(lambda: tracestatus.is_traced(told.values(), branches))
        except TimeoutError:
            pass  # the result shows which peers answered
        finally:
            topics.inspection.end_survey(number)
        return tracestatus.trace_status(name, told.values(), branches, self._addresses())

    def _contested(self, topic: bytes) -> str:
        """The line about a topic that two owners claim (docs/credentials.md)."""
        known, other = self._peer.topics.descriptors[topic], self._peer.topics.rivals[topic]
        owners = " and ".join(principal(each.owner_key)[:8] for each in (known, other))
        return (
            f"two owners claim topic {known.name!r}, {owners}: the root's owner prevails; the other owner must choose "
            "another name"
        )

    def _waiting(self) -> Iterator[str]:
        """A line for each topic that has its maximum of publishers, subscribers or streams of sources."""
        topics = self._peer.topics
        publishers = {topic: bound for topic in topics.publishing.topics() if (bound := topics.publishing.bound(topic))}
        yield from (f"publishers here wait: {bound}" for bound in publishers.values())
        yield from (f"subscribers here wait: {bound}" for bound in topics.subscribing.bounds().values())
        yield from filter(None, map(topics.source_streams.bound, topics.trees.values()))
        yield from self._peer.scoping.hosting.obstacles()
        for topic, why in self._peer.scoping.installing.unusable.items():
            descriptor = topics.descriptors.get(topic)
            yield f"topic {descriptor.name if descriptor is not None else topic.hex()}: {why}"

    def _take_rates(self) -> None:
        """Compute events per second since the last call, over at least `RATE_S_MIN`."""
        now = time.monotonic()
        since, before = self._before
        if now - since < RATE_S_MIN:
            return
        frontiers = {topic: total(tree) for topic, tree in self._peer.topics.trees.items()}
        self._rates = {
            topic: max(0, frontier - before.get(topic, 0)) / (now - since) for topic, frontier in frontiers.items()
        }
        self._before = (now, frontiers)


def silences(memberships: Iterable[Membership]) -> Iterator[str]:
    """A line for each scope that the peer waits to take part in, or whose manager is silent."""
    for each in memberships:
        if each.obstacle:
            yield f"{scopestatus.WAITS}: {each.obstacle}"
        elif each.unresponsive:
            yield f"the manager of scope {each.scope} at {each.address} does not respond: channels stay as they are"


def link_status(link: Link, peer: Peer) -> LinkStatus:
    """A link, as this end of it sees it."""
    node = link.contact.node_id
    round_trip_s = peer.overlay.proximity(node)
    return LinkStatus(
        node_id=node.hex(),
        address=link.contact.address,
        connected=link.connection is not None,
        suspected=peer.neighbours.suspected(node),
        round_trip_ms=round(1000 * round_trip_s, 3) if round_trip_s < UNKNOWN else None,
        credit_bytes=link.room,
        waiting_bytes=link.waiting_bytes,
        held_bytes=link.charged,
    )


def counters(counted: Counter[str], table: ForwardingTable) -> Counters:
    """What the links and the forwarding table counted."""
    refused = {name: count for name, count in sorted(counted.items()) if name.startswith(REFUSED)}
    return Counters(
        **{name: count for name, count in counted.items() if name not in refused},
        repeats=table.repeats,
        dropped=table.dropped,
        refused={name.removeprefix(REFUSED): count for name, count in refused.items()},
    )


def journal_status(journal: Journal) -> JournalStatus:
    """The state of the journal; this also notices that its files were removed."""
    journal.stands()
    return JournalStatus(str(journal.path), journal.failed, journal.removed_count, journal.missed_count)
