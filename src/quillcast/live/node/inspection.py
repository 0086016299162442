"""The state of a node as plain values, with hexadecimal ids: `status`, topics, and live trees."""

import asyncio
import os
import time
from typing import Any

from quillcast.core.envelope import NO_TERM, Term
from quillcast.core.messages import Contact
from quillcast.live.runtime.pump import Pump
from quillcast.live.storage.journal import Journal
from quillcast.live.transport.link import Link
from quillcast.live.transport.links import Links
from quillcast.protocol.overlay.routingtable import UNKNOWN
from quillcast.protocol.peer import Peer
from quillcast.protocol.security.access import principal
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.messages import Branch, Lease, Reader
from quillcast.protocol.topics.state import lag
from quillcast.protocol.topics.state.tree import Tree

RATE_S_MIN = 1.0  # rates are measured over at least this time


class Inspector:
    """Reads the state of one peer, and changes nothing."""

    def __init__(self, peer: Peer, links: Links, pump: Pump, journal: Journal | None) -> None:
        self._peer, self._links, self._pump, self._journal = peer, links, pump, journal
        self._started_at = time.monotonic()
        self._before: tuple[float, dict[bytes, int]] = (self._started_at, {})
        self._rates: dict[bytes, float] = {}

    def status(self) -> dict[str, Any]:
        """The state of this peer."""
        peer, links = self._peer, self._links
        budget, journal = peer.table.budget, None if self._journal is None else _journal(self._journal)
        return {
            "node_id": links.contact.node_id.hex(),
            "address": links.contact.address,
            "network": links.handshake.network,
            "pid": os.getpid(),
            "uptime_s": round(time.monotonic() - self._started_at, 3),
            "active": peer.active,
            "credential": links.handshake.tls.fingerprint if links.handshake.tls is not None else None,
            "admits": links.handshake.answer_application is not None,
            "unauthenticated": links.unauthenticated_count,
            "neighbours": [self._neighbour(link) for link in links.links.values()],
            "leaf_set": [_contact(contact) for contact in peer.overlay.leaf_set],
            "topics": self.topics(),
            "buffers": {"used_bytes": budget.used_bytes, "limit_bytes": budget.limit_bytes},
            "unfinished": {"used_bytes": links.unfinished.bytes, "limit_bytes": links.unfinished.bytes_max},
            "counters": {
                **dict(sorted(links.counters.items())),
                "repeats": peer.table.repeats,
                "dropped": peer.table.dropped,
            },
            "problems": [*links.problems, *map(self._contested, peer.scribe.rivals)],
            "journal": journal,
        }

    def _contested(self, topic: bytes) -> str:
        """The line about a topic that two owners claim (docs/credentials.md)."""
        known, other = self._peer.scribe.descriptors[topic], self._peer.scribe.rivals[topic]
        owners = " and ".join(principal(each.owner_key)[:8] for each in (known, other))
        return f"two owners claim topic {known.name!r}, {owners}: its root's word holds; the other needs another one"

    def traffic(self) -> dict[str, int]:
        """What the links carried since the start, and how many are open; the cost does not depend on topics."""
        standing = sum(link.connection is not None for link in self._links.links.values())
        return {**self._links.counters, "links": standing}

    def topics(self) -> list[dict[str, Any]]:
        """All topics that this peer is root of, forwards, subscribes to or publishes to, or stores the settings of."""
        self._take_rates()
        scribe = self._peer.scribe
        created = [topic for topic, descriptor in scribe.descriptors.items() if descriptor.version > 0]
        ids = dict.fromkeys([*scribe.trees, *scribe.publishing.publishers, *created])
        return sorted((self._topic(topic) for topic in ids), key=lambda shown: str(shown["name"]))

    async def tree(self, name: str, timeout_s: float) -> dict[str, Any]:
        """The live tree of a topic, as far as peers answered in time, and the progress of each subscription."""
        inspection = self._peer.scribe.inspection
        number = self._pump.call(inspection.survey, name)
        branches = inspection.surveys[number]
        try:
            async with asyncio.timeout(timeout_s):
                await self._pump.until(lambda: _is_whole(branches))
        except TimeoutError:
            pass  # the result shows who answered, and that it is incomplete
        finally:
            del inspection.surveys[number]
        addresses = {node: link.contact.address for node, link in self._links.links.items()}
        return _drawn(name, branches, addresses | {self._links.contact.node_id: self._links.contact.address})

    def _neighbour(self, link: Link) -> dict[str, Any]:
        node = link.contact.node_id
        round_trip_s = self._peer.overlay.proximity(node)
        return {
            **_contact(link.contact),
            "connected": link.connection is not None,
            "suspected": self._peer.neighbours.suspected(node),
            "round_trip_ms": round(1000 * round_trip_s, 3) if round_trip_s < UNKNOWN else None,
            "room_bytes": link.room,
            "waiting_bytes": link.waiting_bytes,
            "held_bytes": link.charged,
        }

    def _topic(self, topic: bytes) -> dict[str, Any]:
        scribe = self._peer.scribe
        tree = scribe.trees.get(topic)
        publishers = scribe.publishing.publishers.get(topic, {})
        descriptor = scribe.descriptors.get(topic) or next(iter(publishers.values())).descriptor
        return {
            **_settings(descriptor),
            "topic": topic.hex(),
            "publishers": sum(publisher.writers_count for publisher in publishers.values()),
            "never_stable": sum(publisher.dropped.count for publisher in publishers.values()),
            **(self._place(tree) if tree is not None else {"role": "publisher" if publishers else "keeper"}),
            "events_per_s": round(self._rates.get(topic, 0.0), 1),
        }

    def _place(self, tree: Tree) -> dict[str, Any]:
        """This peer's place in a tree, and the progress of its subscriptions, as far as is known here."""
        role = "root" if tree.root is not None else "forwarder" if tree.children else "leaf"
        end, reliable = tree.known_end, tree.descriptor.settings.reliable
        readers = lag.readers(tree, self._peer.host, self._peer.config.topics.past_terms_s)
        return {
            "role": role,
            "parent": None if tree.parent is None else _contact(tree.parent),
            "children": [_contact(child.contact) for child in tree.children.values()],
            "subscriptions": len(tree.edges),
            "depth": len(tree.path) if tree.attached else None,
            "term": _term(tree.term),
            "frontier": tree.frontier,
            "known_end": end,
            "events": lag.events(tree),
            "stable": tree.stable,
            "kept_bytes": tree.log.size_bytes,
            "readers": [_reader(each, end if reliable else 0) for each in readers],
        }

    def _take_rates(self) -> None:
        """Events per second since the last call, but over at least `RATE_S_MIN`."""
        now = time.monotonic()
        since, before = self._before
        if now - since < RATE_S_MIN:
            return
        frontiers = {topic: flow.frontier for topic, flow in self._peer.table.flows.items()}
        self._rates = {
            topic: max(0, frontier - before.get(topic, 0)) / (now - since) for topic, frontier in frontiers.items()
        }
        self._before = (now, frontiers)


def _contact(contact: Contact) -> dict[str, Any]:
    return {"node_id": contact.node_id.hex(), "address": contact.address}


def _journal(journal: Journal) -> dict[str, Any]:
    """The state of the journal; this also notices that its files were removed."""
    journal.stands()
    return {
        "path": str(journal.path),
        "failed": journal.failed,
        "removed": journal.removed_count,
        "missed_records": journal.missed_count,
    }


def _term(term: Term) -> str:
    return f"{term.counter}.{term.node[:4].hex()}"


def _settings(descriptor: Descriptor) -> dict[str, Any]:
    """A topic: its name, its settings, and its access list."""
    settings = descriptor.settings
    return {
        "name": f"{descriptor.creator}:{descriptor.name}" if descriptor.creator else descriptor.name,
        **{name: getattr(settings, name) for name in settings.__struct_fields__},
        "owner": principal(descriptor.owner_key) if descriptor.owner_key else None,
        "access": list(descriptor.access),
    }


def _reader(reader: Reader, end: int) -> dict[str, Any]:
    """A subscription, and how far it is behind the `end` of its peer's term; 0 if no event is outstanding."""
    return {
        "name": reader.name,
        "number": reader.number,
        "behind_events": max(0, end - reader.taken) + reader.owed + reader.waiting,
        "waiting_events": reader.waiting,
        "waiting_bytes": reader.waiting_bytes,
        "behind_s": round(reader.behind_s, 3),
        "stalled_s": round(reader.stalled_s, 3),
    }


def silent(branches: dict[bytes, Branch]) -> list[bytes]:
    """Peers that others name as their parent or child, but that did not answer themselves."""
    named = {child.node_id: None for branch in branches.values() for child in branch.children}
    named.update(dict.fromkeys(branch.parent for branch in branches.values() if branch.parent))
    return sorted(named.keys() - branches.keys())


def _is_whole(branches: dict[bytes, Branch]) -> bool:
    """Did the root and every named child answer? Or is there nobody to answer?"""
    if any(_says_none(branch) for branch in branches.values()):
        return True
    return any(branch.root for branch in branches.values()) and not silent(branches)


def _says_none(branch: Branch) -> bool:
    """Does the peer closest to the topic say that it has no tree?"""
    return branch.term == NO_TERM and not branch.parent and not branch.root


def _unheard(branches: dict[bytes, Branch]) -> list[bytes]:
    """Peers that should be in the tree and did not answer: those named as parent or child, and leases of lost ones."""
    lost = {lease.node for branch in branches.values() for lease in branch.leases if lease.lost}
    return sorted({*silent(branches), *(lost - branches.keys())})


def _drawn(name: str, branches: dict[bytes, Branch], addresses: dict[bytes, str]) -> dict[str, Any]:
    """What `Node.tree` answers; `addresses` are those that are known here."""
    named = {child.node_id: child.address for branch in branches.values() for child in branch.children}
    addresses = named | addresses
    inside = {node: branch for node, branch in sorted(branches.items()) if not _says_none(branch)}
    roots = sorted((node for node, branch in inside.items() if branch.root), key=lambda node: inside[node].term)
    root_branch = inside[roots[-1]] if roots else None
    known = [branch.descriptor for branch in branches.values() if branch.descriptor is not None]
    return {
        "topic": name,
        "complete": _is_whole(branches),
        "events": max((branch.events for branch in inside.values()), default=0),
        "root": roots[-1].hex() if roots else None,
        "settings": _settings(max(known, key=lambda each: each.version)) if known else None,
        "peers": [_peer(node, branch, addresses, root_branch) for node, branch in inside.items()],
        "silent": [_silent(node, inside, addresses, root_branch) for node in _unheard(inside)],
    }


def _peer(node: bytes, branch: Branch, addresses: dict[bytes, str], root_branch: Branch | None) -> dict[str, Any]:
    return {
        "node_id": node.hex(),
        "address": addresses.get(node),
        "parent": branch.parent.hex() or None,
        "root": branch.root,
        "children": [child.node_id.hex() for child in branch.children],
        "subscribers": branch.subscribers,
        "term": _term(branch.term),
        "frontier": branch.frontier,
        "readers": [_reader(reader, _end_for(branch, reader, root_branch)) for reader in branch.readers],
    }


def _end_for(branch: Branch, reader: Reader, root_branch: Branch | None) -> int:
    """The position that a peer's subscription must reach: the root's frontier, after all of an earlier term."""
    if root_branch is None or root_branch.descriptor is None or not root_branch.descriptor.settings.reliable:
        return 0
    return (
        root_branch.frontier
        if branch.term == root_branch.term
        else max(branch.frontier, reader.taken) + root_branch.frontier
    )


def _silent(
    node: bytes, branches: dict[bytes, Branch], addresses: dict[bytes, str], root_branch: Branch | None
) -> dict[str, Any]:
    """A named peer that did not answer: what the last peer that named it said."""
    said = [lease for branch in branches.values() for lease in branch.leases if lease.node == node]
    lease = max(said, key=lambda each: (each.term, each.acknowledged), default=None)
    return {
        "node_id": node.hex(),
        "address": addresses.get(node),
        "lost": lease is not None and lease.lost,
        "behind_events": None if lease is None or root_branch is None else _unacknowledged(lease, root_branch),
    }


def _unacknowledged(lease: Lease, root_branch: Branch) -> int:
    """Events of the root's term that a peer and all below it have not acknowledged, by their last report."""
    return max(0, root_branch.frontier - lease.acknowledged) if lease.term == root_branch.term else root_branch.frontier
