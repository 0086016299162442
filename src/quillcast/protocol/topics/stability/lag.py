"""The lag of subscriptions: events that they lack, and events that their applications have not processed.

An event counts as processed when the application is done with it, not when it is in the application's queue. Otherwise
a stuck subscriber would look healthy until its queue is full.
"""

from collections.abc import Iterable, Mapping

import msgspec

from quillcast.core.envelope import Term
from quillcast.core.host import Host
from quillcast.core.messages import NUMBER_MAX
from quillcast.protocol.forwarding.event_places import readmitted
from quillcast.protocol.forwarding.subscriber import Unread, Watched
from quillcast.protocol.topics.query_messages import Lease, Reader
from quillcast.protocol.topics.state.holders import Child, OrphanedLease
from quillcast.protocol.topics.state.subscription import Subscription
from quillcast.protocol.topics.state.tree import Tree
from quillcast.protocol.topics.streams.stream_ways import known_end

READERS_MAX = 32  # of a peer in one answer, so that its message stays small; a guess
LOST_MAX = 64  # likewise


def readers(tree: Tree, host: Host, past_terms_s: float) -> list[Reader]:
    """Return the local subscriptions, those furthest behind first. Past terms are kept for `past_terms_s`."""
    found = [_reader(tree, edge, host, past_terms_s) for edge in tree.subscriptions]
    return sorted(found, key=lambda reader: (reader.taken - reader.owed - reader.waiting, reader.number))


def leases(tree: Tree, host: Host) -> list[Lease]:
    """Return what peers below have acknowledged, as their parent knows it. Lost peers count while they are awaited."""
    gone = {
        node: lease
        for lease in tree.leases.orphaned.values()
        for node in lease.awaited
        if lease.until > host.now() and node not in tree.leases.children
    }
    return [
        *(_lease(tree, host, node, child, lost=False) for node, child in tree.leases.children.items()),
        *(_lease(tree, host, node, lease, lost=True) for node, lease in list(gone.items())[:LOST_MAX]),
    ]


def _lease(tree: Tree, host: Host, node: bytes, holder: Child | OrphanedLease, *, lost: bool) -> Lease:
    lease = Lease(node, holder.acknowledged_term, holder.acknowledged, lost)
    if not tree.flow.keeps or holder.sends_only:
        return lease
    places = {term: holder.needed_from(term) for term in tree.flow.live_terms()}
    owed = min(NUMBER_MAX, sum(max(0, known_end(tree, term) - places[term]) for term in tree.flow.others))
    oldest_ns = _first_ns(tree, places) if owed or places[tree.term] < tree.frontier else None
    behind_s = 0.0 if oldest_ns is None else max(0, host.wall_ns() - oldest_ns) / 1e9
    return msgspec.structs.replace(lease, owed=owed, behind_s=behind_s)


def unacknowledged(lease: Lease, term: Term, frontier: int) -> int:
    """Return the number of events that the lease has not acknowledged, if the topic's term has reached `frontier`."""
    return max(0, frontier - (lease.acknowledged if lease.term == term else 0)) + lease.owed


def events(tree: Tree) -> int:
    """Return the number of events that the topic is known to have had. One that several terms admitted counts once."""
    going_on = tree.frontier + sum(known_end(tree, term) for term in tree.flow.others)
    return min(NUMBER_MAX, going_on + sum(end for _, end in tree.flow.past.ends()) - readmitted(tree.flow))


def events_together(counts: Iterable[tuple[int, int]]) -> int:
    """Return the events of a topic from what peers know: the `events` of each, and how many it found `readmitted`.

    Peers that came later know how far earlier terms went, but not which events were readmitted.
    """
    positions, readmitted = [0], [0]
    for counted, again in counts:
        positions.append(counted + again)
        readmitted.append(again)
    return max(positions) - max(readmitted)


def _reader(tree: Tree, edge: Subscription, host: Host, past_terms_s: float) -> Reader:
    name, unread = _of_application(edge)
    taken, owed = edge.frontier(tree.term), _owed(tree, edge)
    oldest_ns = unread.oldest_ns if unread.oldest_ns is not None else _oldest_ns(tree, edge, taken)
    behind_s = 0.0 if oldest_ns is None else max(0, host.wall_ns() - oldest_ns) / 1e9
    for term in owed.keys() & tree.flow.past.keys():  # its events are older than its end
        behind_s = max(behind_s, host.now() + past_terms_s - tree.flow.past[term].until)
    return Reader(
        name,
        edge.number,
        taken,
        min(NUMBER_MAX, sum(owed.values())),
        unread.events,
        unread.size_bytes,
        behind_s,
        min(unread.idle_s, behind_s),
    )


def _of_application(edge: Subscription) -> tuple[str, Unread]:
    subscriber = edge.subscriber
    return (subscriber.name, subscriber.unread()) if isinstance(subscriber, Watched) else ("", Unread())


def _owed(tree: Tree, edge: Subscription) -> dict[Term, int]:
    """Return, by term, the number of events of earlier terms and of sources that were not delivered."""
    owed: dict[Term, int] = {}
    for term in tree.flow.others:
        owed[term] = max(0, known_end(tree, term) - edge.frontier(term))
    for term, past in tree.flow.past.items():
        line = edge.term_cursor(term)
        if line is not None and edge.readmits and past.end > line.next:
            owed[term] = past.end - line.next
    return owed


def _oldest_ns(tree: Tree, edge: Subscription, taken: int) -> int | None:
    """Return when the oldest event was published that is here but was not delivered."""
    if edge.channel.backlog:
        return edge.channel.backlog[0].blocks[0].time_ns
    return _first_ns(tree, {term: edge.frontier(term) for term in tree.flow.others} | {tree.term: taken})


def _first_ns(tree: Tree, places: Mapping[Term, int]) -> int | None:
    """Return when the first event was published that is kept here beyond these places."""
    bundle = tree.flow.log.at(tree.flow.first_beyond(places))
    return None if bundle is None else bundle.blocks[0].time_ns
