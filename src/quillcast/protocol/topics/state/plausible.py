"""The bound on the terms and versions that other peers name (docs/decisions/bounded-terms.md).

Terms only grow, and the next root takes one above all that it heard of. So a peer that named a term just below what a
message can carry would end its topic for good: no root could follow. The bound is far above what any topic reaches, but
it rises with time by one a second. A term at the bound is therefore followed a second later by one that all accept.

The check finds terms by the types of a message's fields, so a new message is checked without being listed here.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

from quillcast.core.envelope import OF_SOURCES, RELIABLE_TERMS, SESSION_TERMS, AnyTerm, Term
from quillcast.protocol.topics.descriptor import Descriptor

FREE_COUNT = 1 << 20  # terms, streams or versions that need no time; a guess: a million changes of root
FREE_SINCE_NS = 1_577_836_800 * 10**9  # 2020 began; from then on one more a second
PER_SESSION = 64  # of these to one session, so that the last of 2**28 sessions is centuries away as well


class Claim(NamedTuple):
    """What a message says about a topic that peers count on from, and whether it may be of a source's stream."""

    said: Term | Descriptor
    of_source: bool = False


Claims = Callable[[Any], Iterable[Claim]]
"""Finds the claims in a value of one type."""


def counts_max(wall_ns: int) -> int:
    """The highest count of terms in a session, of streams, or of versions that is plausible at this time."""
    return FREE_COUNT + max(0, wall_ns - FREE_SINCE_NS) // 10**9


def is_plausible(claim: Claim, wall_ns: Callable[[], int]) -> bool:
    """Does a term or a descriptor stay within the bound, and is a source's term expected there?

    `wall_ns` is the clock (`Host.wall_ns`), which is read for large values only.
    """
    said, of_source = claim
    if isinstance(said, Descriptor):
        session, count = said.session, said.version
    elif not said.of_source:
        session, count = divmod(said.counter, SESSION_TERMS)
        count %= RELIABLE_TERMS if session else SESSION_TERMS
    elif of_source:
        session, count = 0, said.counter - OF_SOURCES
    else:
        return False
    if count <= FREE_COUNT and session <= FREE_COUNT // PER_SESSION:
        return True
    most = counts_max(wall_ns())
    return count <= most and session <= most // PER_SESSION


def claims(value: Any) -> Iterable[Claim]:
    """The terms and descriptors in a message or a report, or a term that stands by itself."""
    if isinstance(value, Term):
        return (Claim(value, of_source=True),)
    kind: Any = type(value)
    find = claims_in(kind)
    return () if find is None else find(value)


@cache
def claims_in(type_: Any) -> Claims | None:
    """What finds the claims in values of a type; None if there can be none."""
    return _claims_in(type_, ())


def _claims_in(hint: Any, around: tuple[Any, ...]) -> Claims | None:
    """`around` are the types that the hint stands in: what contains itself (filters of scopes do) has no terms."""
    if hint is Term or hint == AnyTerm:
        of_source = hint is not Term
        return lambda value: (Claim(value, of_source),)
    if hint is Descriptor:
        return _in_descriptor
    origin, parts, around = get_origin(hint), get_args(hint), (*around, hint)
    if origin is Annotated:
        return _claims_in(parts[0], around)
    if origin in (Union, UnionType):
        return _in_union({part: _claims_in(part, around) for part in parts})
    if origin is list or (origin is tuple and parts[-1:] == (...,)):
        return _in_each(_claims_in(parts[0], around))
    if origin is tuple:
        return _in_fields([(place, _claims_in(part, around)) for place, part in enumerate(parts)], tuple.__getitem__)
    if hint in around[:-1]:
        return None
    if isinstance(hint, type) and (issubclass(hint, msgspec.Struct) or hasattr(hint, "_fields")):
        hints = get_type_hints(hint, include_extras=True)
        return _in_fields([(name, _claims_in(part, around)) for name, part in hints.items() if name in fields(hint)])
    return None


def fields(type_: type) -> tuple[str, ...]:
    """The names of the fields of a struct or a named tuple."""
    return type_.__struct_fields__ if issubclass(type_, msgspec.Struct) else type_._fields  # type: ignore[attr-defined]


def _in_descriptor(descriptor: Descriptor) -> Iterator[Claim]:
    said: Descriptor | None = descriptor
    while said is not None:
        yield Claim(said)
        said = said.upcoming


def _in_union(members: dict[Any, Claims | None]) -> Claims | None:
    """Of several types in a union, each that holds claims is told apart by its class."""
    if not any(members.values()):
        return None
    present = {part: claims for part, claims in members.items() if part is not NoneType}
    if len(present) == 1:
        (claims,) = present.values()
        assert claims is not None
        return lambda value: () if value is None else claims(value)
    return lambda value: found(value) if (found := present.get(type(value))) is not None else ()


def _in_each(claims: Claims | None) -> Claims | None:
    if claims is None:
        return None
    return lambda values: (claim for value in values for claim in claims(value))


def _in_fields(parts: list[tuple[Any, Claims | None]], get: Callable[[Any, Any], Any] = getattr) -> Claims | None:
    some = [(name, claims) for name, claims in parts if claims is not None]
    if not some:
        return None
    return lambda value: [claim for name, claims in some for claim in claims(get(value, name))]
