"""Members that lie well: what they say names topics, terms, publishers and peers that there are, and extreme numbers.

Values drawn freely are mostly about nothing that the receiver knows, and go no further. These reach the code that
believes them.
"""

import enum
import types
import typing
from random import Random
from typing import Any

import msgspec

from quillcast.core.envelope import NO_TERM, OF_SOURCES, RELIABLE_TERMS, SESSION_TERMS, Term
from quillcast.core.ids import ID_BYTES
from quillcast.core.messages import NUMBER_MAX, Contact
from quillcast.protocol.scopes.filters import Filter, Modulo
from quillcast.protocol.topics.descriptor import Descriptor
from tests.protocol.topics.village import Village

SMALL, GREAT = (*range(8), 20), (255, 256, 1 << 20, 1 << 24, 1 << 31, 1 << 32, 1 << 40)
EXTREME = (1 << 53, 1 << 60, 1 << 61, NUMBER_MAX - 1, NUMBER_MAX)
TIMES = (0.0, 0.5, 1.0, 30.0, 1e9, 1e308, float("inf"))
NO_TIMES = (-1.0, -1e308, float("-inf"), float("nan"))
WORDS = ("", "loop", "orphan", "leaving", "full", "unknown", "describe", "denied", "unusable", "root", "parent", "zzz")
CHANGES: dict[str, tuple[Any, ...]] = {
    "admission": ("root", "source"),
    "delivery": ("best_effort", "reliable"),
    "slow": ("cut", "wait"),
    "partition": ("go_on", "wait"),
    "order": ("publisher", "none"),
    "event_bytes_max": (1000, 1 << 40),
}
"""Settings that a made-up descriptor may have, in any combination."""
LONG = 300


class Liar:
    """Makes up values of annotated types, out of what is known in a network."""

    def __init__(self, village: Village, publishers: list[bytes], random: Random) -> None:
        self.village, self.publishers, self.random = village, publishers, random
        self.learn()

    def learn(self) -> None:
        """Look again at what there is."""
        layers = [peer.topics for peer in self.village.peers.values()]
        flows = [tree.flow for topics in layers for tree in topics.trees.values()]
        terms = [term for flow in flows for term in (*flow.live_terms(), *flow.past, *flow.past.forgotten)]
        self.terms = list(dict.fromkeys(terms)) or [NO_TERM]
        self.descriptors = [known for topics in layers for known in topics.descriptors.values()]
        self.topics = list(dict.fromkeys(known.topic for known in self.descriptors))
        self.contacts = [machine.contact for machine in self.village.world.machines]

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def build(self, kind: Any, depth: int = 0) -> Any:
        """One of this class. Some fields that have a default keep it."""
        hints = typing.get_type_hints(kind, include_extras=True)
        if not issubclass(kind, msgspec.Struct):
            return kind(*[self.value(hint, depth + 1) for hint in hints.values()])
        fields = msgspec.structs.fields(kind)
        given = [field.name for field in fields if field.required or self.chance(0.75)]
        return kind(**{name: self.value(hints[name], depth + 1) for name in given})

    def term(self) -> Term:
        """Mostly one that is in use; else the next one, somebody else's, or the first or last of a session."""
        known, peer = self.random.choice(self.terms), self.random.choice(self.contacts).node_id
        edges = (1, OF_SOURCES + 1, OF_SOURCES + RELIABLE_TERMS + 1, SESSION_TERMS + 1)
        others = (
            NO_TERM,
            Term(known.counter + self.random.choice((1, 2, 3)), self.random.choice(self.terms).node),
            Term(known.counter + 1, peer[: ID_BYTES // 2] + bytes(ID_BYTES // 2)),
            Term(self.random.choice(edges), peer),
        )
        return known if self.chance(0.6) else self.random.choice(others)

    def value(self, hint: Any, depth: int = 0) -> Any:
        """A value of an annotated type."""
        particular = {
            Term: self.term,
            Contact: self._contact,
            Descriptor: self._descriptor,
            **dict.fromkeys(typing.get_args(Filter), lambda: Modulo(2, (0,))),  # the fields do not vary freely
            bytes: lambda: self.random.choice((b"", self._id(), self._id(), self.random.randbytes(5))),
            str: lambda: self.random.choice(WORDS),
            bool: lambda: self.chance(0.5),
            int: lambda: self._number(-(2**63), 2**64 - 1),
            float: lambda: self.random.choice(TIMES + NO_TIMES),
            types.NoneType: lambda: None,
        }
        return particular[hint]() if hint in particular else self._composed(hint, depth)

    def _composed(self, hint: Any, depth: int) -> Any:
        parts = typing.get_args(hint)
        match typing.get_origin(hint):
            case typing.Annotated:
                return self.term() if parts[0] is Term else self._bounded(parts[0], parts[1], depth)
            case typing.Literal:
                return self.random.choice(parts)
            case typing.Union | types.UnionType:
                return self.value(self.random.choice(parts), depth)
            case origin if origin is dict:
                return dict(self._several(tuple[parts], depth, self._count(depth)))
            case origin if origin is list or (origin is tuple and parts[-1] is ...):
                return origin(self._several(parts[0], depth, self._count(depth)))
            case origin if origin is tuple:
                return tuple(self.value(part, depth + 1) for part in parts)
        return self.random.choice(list(hint)) if issubclass(hint, enum.Enum) else self.build(hint, depth)

    def _bounded(self, hint: Any, meta: msgspec.Meta, depth: int) -> Any:
        if hint is bytes:
            if meta.min_length == ID_BYTES:
                return self._id()
            return self.random.choice((b"", self._id()[: meta.max_length]))
        if hint is float:
            return self.random.choice(TIMES)
        if hint is int:
            return self._number(typing.cast(int, meta.ge), typing.cast(int, meta.le or 2**64 - 1))
        origin = typing.get_origin(hint)
        if origin in (list, tuple) and meta.max_length and self.chance(0.03):
            return origin(self._several(typing.get_args(hint)[0], depth, min(meta.max_length, LONG)))
        return self.value(hint, depth)

    def _several(self, hint: Any, depth: int, count: int) -> list[Any]:
        return [self.value(hint, depth + 1) for _ in range(count)]

    def _count(self, depth: int) -> int:
        return self.random.choice((0, 1, 1, 2, 3, 5) if depth < 4 else (0, 1))

    def _number(self, least: int, most: int) -> int:
        (numbers,) = self.random.choices((SMALL, GREAT, EXTREME), (0.6, 0.2, 0.2))
        return max(least, min(most, self.random.choice(numbers)))

    def _id(self) -> bytes:
        """Of a topic, a peer, a publisher, or of nothing."""
        made_up = (self.random.randbytes(ID_BYTES), bytes(ID_BYTES))
        peers = [contact.node_id for contact in self.contacts]
        (ids,) = self.random.choices((self.topics, peers, self.publishers, made_up), (4, 4, 3, 2))
        return self.random.choice(ids)

    def _contact(self) -> Contact:
        known, made_up = self.random.choice(self.contacts), Contact(self.random.randbytes(ID_BYTES), "sim:77")
        return known if self.chance(0.93) else made_up

    def _descriptor(self) -> Descriptor:
        known = self.random.choice(self.descriptors)
        if self.chance(0.7):
            return known
        changed = {name: self.random.choice(values) for name, values in CHANGES.items() if self.chance(0.3)}
        return msgspec.structs.replace(
            known,
            settings=msgspec.structs.replace(known.settings, **changed),
            version=self.random.choice((0, 1, known.version + 1, known.version + 2, 1 << 20)),
            session=self.random.choice((0, known.session, known.session + 1, 3)),
            upcoming=self.random.choice((None, None, known)),
        )
