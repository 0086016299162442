"""What a node shows of itself: `status`, its topics, and a topic's live tree; plain values, ids in hexadecimal."""

import asyncio
import os
import time
from typing import Any

from quillcast.core.envelope import Term
from quillcast.core.messages import Contact
from quillcast.live.journal import Journal
from quillcast.live.link import Link
from quillcast.live.links import Links
from quillcast.live.pump import Pump
from quillcast.protocol.overlay.routingtable import UNKNOWN
from quillcast.protocol.peer import Peer
from quillcast.protocol.security.access import principal
from quillcast.protocol.topics.messages import Branch
from quillcast.protocol.topics.tree import Tree

RATE_S_MIN = 1.0  # rates are taken over at least that long


class Inspector:
    """Looks at one peer from outside; it changes nothing."""

    def __init__(self, peer: Peer, links: Links, pump: Pump, journal: Journal | None) -> None:
        self._peer, self._links, self._pump, self._journal = peer, links, pump, journal
        self._started_at = time.monotonic()
        self._before: tuple[float, dict[bytes, int]] = (self._started_at, {})
        self._rates: dict[bytes, float] = {}

    def status(self) -> dict[str, Any]:
        """What this peer is, knows and does."""
        peer, links = self._peer, self._links
        budget = peer.table.budget
        return {
            "node_id": links.contact.node_id.hex(),
            "address": links.contact.address,
            "network": links.network,
            "pid": os.getpid(),
            "uptime_s": round(time.monotonic() - self._started_at, 3),
            "active": peer.active,
            "credential": links.tls.fingerprint if links.tls is not None else None,
            "admits": links.admissions is not None,
            "strangers": links.strangers_count,
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
            "journal": None
            if self._journal is None
            else {"path": str(self._journal.path), "failed": self._journal.failed},
        }

    def _contested(self, topic: bytes) -> str:
        """The line about a topic that two owners claim (docs/credentials.md)."""
        known, other = self._peer.scribe.descriptors[topic], self._peer.scribe.rivals[topic]
        owners = " and ".join(principal(each.owner_key)[:8] for each in (known, other))
        return f"two owners claim topic {known.name!r}, {owners}: its root's word holds; the other needs another one"

    def traffic(self) -> dict[str, int]:
        """What its links carried since the start, and how many links stand; it costs nothing per topic to ask."""
        standing = sum(link.connection is not None for link in self._links.links.values())
        return {**self._links.counters, "links": standing}

    def topics(self) -> list[dict[str, Any]]:
        """Every topic that this peer roots, forwards, subscribes to or publishes in."""
        self._take_rates()
        publishing = self._peer.scribe.publishing.publishers
        ids = dict.fromkeys([*self._peer.scribe.trees, *publishing])
        return sorted((self._topic(topic) for topic in ids), key=lambda shown: str(shown["name"]))

    async def tree(self, name: str, timeout_s: float) -> dict[str, Any]:
        """The live tree of a topic, as far as peers answered in time."""
        inspection = self._peer.scribe.inspection
        number = self._pump.call(inspection.survey, name)
        branches = inspection.surveys[number]
        try:
            async with asyncio.timeout(timeout_s):
                await self._pump.until(lambda: _is_whole(branches))
        except TimeoutError:
            pass  # what answered is shown, and that it is not everybody
        finally:
            del inspection.surveys[number]
        return _drawn(name, branches, self._links.contact)

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
            "name": f"{descriptor.creator}:{descriptor.name}" if descriptor.creator else descriptor.name,
            "topic": topic.hex(),
            **{name: getattr(descriptor.settings, name) for name in descriptor.settings.__struct_fields__},
            "owner": principal(descriptor.owner_key) if descriptor.owner_key else None,
            "access": list(descriptor.access),
            "publishers": sum(publisher.shared_by for publisher in publishers.values()),
            **(_place(tree) if tree is not None else {"role": "publisher"}),
            "events_per_s": round(self._rates.get(topic, 0.0), 1),
        }

    def _take_rates(self) -> None:
        """Events per second since the last look, but at least over `RATE_S_MIN`."""
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


def _term(term: Term) -> str:
    return f"{term.counter}.{term.node[:4].hex()}"


def _place(tree: Tree) -> dict[str, Any]:
    """A peer's place in a tree."""
    role = "root" if tree.root is not None else "forwarder" if tree.children else "leaf"
    return {
        "role": role,
        "parent": None if tree.parent is None else _contact(tree.parent),
        "children": [_contact(child.contact) for child in tree.children.values()],
        "subscriptions": len(tree.edges),
        "depth": len(tree.path) if tree.attached else None,
        "term": _term(tree.term),
        "frontier": tree.frontier,
        "stable": tree.stable,
        "kept_bytes": tree.log.size_bytes,
    }


def _is_whole(branches: dict[bytes, Branch]) -> bool:
    """Did the root answer, and every child that somebody named?"""
    named = {child.node_id for branch in branches.values() for child in branch.children}
    return any(not branch.parent for branch in branches.values()) and named <= branches.keys()


def _drawn(name: str, branches: dict[bytes, Branch], me: Contact) -> dict[str, Any]:
    addresses = {child.node_id: child.address for branch in branches.values() for child in branch.children}
    addresses[me.node_id] = me.address
    roots = sorted(node for node, branch in branches.items() if not branch.parent)
    return {
        "topic": name,
        "complete": _is_whole(branches),
        "root": roots[0].hex() if roots else None,
        "peers": [_peer(node, branch, addresses) for node, branch in sorted(branches.items())],
    }


def _peer(node: bytes, branch: Branch, addresses: dict[bytes, str]) -> dict[str, Any]:
    return {
        "node_id": node.hex(),
        "address": addresses.get(node),
        "parent": branch.parent.hex() or None,
        "children": [child.node_id.hex() for child in branch.children],
        "subscribers": branch.subscribers,
        "term": _term(branch.term),
        "frontier": branch.frontier,
    }
