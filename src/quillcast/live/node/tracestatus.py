"""The trace of a bundle, as structs of `core.status`, from the answers of the peers on its path."""

from collections.abc import Collection, Iterable, Mapping

from quillcast.core.messages import Contact
from quillcast.core.status.base import PeerContact
from quillcast.core.status.traces import TraceHop, TraceStatus, TraceWay
from quillcast.live.node.topicstatus import peer_contact, term_shown
from quillcast.live.node.treestatus import Branches, is_whole, says_none, shown_scopes, unanswered, unheard
from quillcast.protocol.scopes.labels import MalformedRecord
from quillcast.protocol.scopes.records import decode
from quillcast.protocol.topics.query_messages import Hop, WayOut

Told = Collection[tuple[Contact, Hop]]
"""The answers of peers, in order of arrival."""


def is_traced(told: Told, branches: Branches) -> bool:
    """Whether all peers that were sent the bundle answered and it reached the whole tree, or there is no tree."""
    if any(says_none(branch) for branch in branches.values()):
        return True
    hops = _of_one(told)
    return (
        is_whole(branches)
        and any(not hop.sender for _, hop in hops)
        and not _silent(hops)
        and branches.keys() <= {contact.node_id for contact, hop in hops if not hop.stopped and not hop.waiting}
    )


def trace_status(name: str, told: Told, branches: Branches, addresses: Mapping[bytes, str]) -> TraceStatus:
    """The trace of the first bundle that a peer reported; `addresses` are those known here."""
    hops = sorted(_of_one(told), key=lambda each: each[1].at_ns)
    contacts = {**addresses, **_contacts(hops, branches)}
    known = not branches or any(each.descriptor is not None or not says_none(each) for each in branches.values())
    if not hops:
        silent_ones = _shown(unheard(branches), contacts)
        return TraceStatus(name, known, False, 0, 0, "", 0, 0, 0, None, (), silent_ones, ())
    first = next((hop for _, hop in hops if not hop.sender), hops[0][1])
    reached = {contact.node_id for contact, _ in hops}
    silent = _silent(hops) | dict.fromkeys(sorted(unanswered(branches) - reached))
    missing = sorted(branches.keys() - reached - silent.keys())
    return TraceStatus(
        topic=name,
        known=known,
        complete=not silent and not missing and any(not hop.sender for _, hop in hops),
        events=first.count,
        size_bytes=first.size_bytes,
        term=term_shown(first.term),
        first=first.first,
        serial=first.serial,
        published_ns=first.published_ns,
        publisher=None if first.publisher is None else peer_contact(first.publisher),
        hops=tuple(_hop(contact, hop) for contact, hop in hops),
        unresponsive=_shown(silent, contacts),
        not_reached=_shown(missing, contacts),
    )


def _of_one(told: Told) -> list[tuple[Contact, Hop]]:
    """The answers about one bundle. If there are several sources, each may have marked one."""
    bundles = [(hop.term, hop.first) for _, hop in told]
    return [each for each, bundle in zip(told, bundles, strict=True) if bundle == bundles[0]]


def _silent(hops: Told) -> dict[bytes, None]:
    """Peers that were sent the bundle and did not answer."""
    came = {(hop.sender, contact.node_id) for contact, hop in hops}
    went = ((contact.node_id, way.to.node_id) for contact, hop in hops for way in hop.ways if not way.why)
    return {to: None for sender, to in went if (sender, to) not in came}


def _contacts(hops: Told, branches: Branches) -> dict[bytes, str]:
    """The addresses of peers, as far as known."""
    named = [contact for contact, _ in hops]
    named += [way.to for _, hop in hops for way in hop.ways]
    named += [child for branch in branches.values() for child in branch.children]
    return {contact.node_id: contact.address for contact in named}


def _shown(nodes: Iterable[bytes], contacts: dict[bytes, str]) -> tuple[PeerContact, ...]:
    return tuple(PeerContact(node.hex(), contacts.get(node, "")) for node in nodes)


def _hop(contact: Contact, hop: Hop) -> TraceHop:
    return TraceHop(
        node_id=contact.node_id.hex(),
        address=contact.address,
        sender=hop.sender.hex() or None,
        at_ms=round((hop.at_ns - hop.published_ns) / 1e6, 3),
        scope=hop.scope,
        scopes=shown_scopes(hop.carriers),
        record=_record(hop.record),
        stopped=hop.stopped,
        repair=hop.repair,
        subscriptions=hop.taken,
        waiting=hop.waiting,
        ways=tuple(map(_way, hop.ways)),
    )


def _way(way: WayOut) -> TraceWay:
    return TraceWay(way.to.node_id.hex(), way.to.address, way.why, way.channel, way.filter, _record(way.record))


def _record(data: bytes) -> str:
    try:
        return str(decode(data))
    except MalformedRecord:
        return "malformed"
