"""The bound on the terms and versions that other peers name (docs/decisions/bounded-terms.md).

Terms only grow, and the next root takes one above all that it heard of. So a peer that names the highest term that fits
into a message would end its topic for good: no root could follow. The bound is far above what any topic reaches, and it
rises by one a second. So a second after a term at the bound, all peers accept the next one.

The check finds terms by the types of a message's fields, so new messages need not be listed here.
"""

from collections.abc import Callable
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

from quillcast.core.envelope import OF_SOURCES, RELIABLE_TERMS, SESSION_TERMS, AnyTerm, Term
from quillcast.protocol.topics.descriptor import Descriptor

FREE_COUNT = 1 << 20  # terms, streams or versions that are always plausible; a guess: a million changes of root
FREE_SINCE_NS = 1_577_836_800 * 10**9  # the start of 2020; from then on one more a second
PER_SESSION = 64  # of these per session, so that the last of 2**28 sessions is centuries away too

Clock = Callable[[], int]
"""Nanoseconds since 1970 (`Host.wall_ns`). It is read for large values only."""
Check = Callable[[Any, Clock], bool]
"""Whether all terms and versions that a value of one type names are plausible."""


def counts_max(wall_ns: int) -> int:
    """Return the highest plausible count of terms in a session, of streams, or of versions at this time."""
    return FREE_COUNT + max(0, wall_ns - FREE_SINCE_NS) // 10**9


@cache
def check_of(type_: Any) -> Check | None:
    """Return the check of values of a type; None if they name neither terms nor versions.

    A bare term may be that of a source's stream.
    """
    return _any_term if type_ is Term else _check_of(type_, ())


def _root_term(term: Term, wall_ns: Clock) -> bool:
    """Check a root's term, where one of a source is not expected."""
    counter = term.counter
    if counter <= FREE_COUNT:
        return True
    return counter < OF_SOURCES and _counts(counter, wall_ns)


def _any_term(term: Term, wall_ns: Clock) -> bool:
    """Check a root's term, or that of a source's stream."""
    if not term.of_source:
        return _root_term(term, wall_ns)
    return term.counter < 2 * OF_SOURCES and _is_within(term.session, term.number, wall_ns)


def _counts(counter: int, wall_ns: Clock) -> bool:
    session, count = divmod(counter, SESSION_TERMS)
    return _is_within(session, count % RELIABLE_TERMS if session else count, wall_ns)


def _descriptor(descriptor: Descriptor, wall_ns: Clock) -> bool:
    said: Descriptor | None = descriptor
    while said is not None:
        if not _is_within(said.session, said.version, wall_ns):
            return False
        said = said.upcoming
    return True


def _is_within(session: int, count: int, wall_ns: Clock) -> bool:
    if count <= FREE_COUNT and session <= FREE_COUNT // PER_SESSION:
        return True
    most = counts_max(wall_ns())
    return count <= most and session <= most // PER_SESSION


def _check_of(hint: Any, around: tuple[Any, ...]) -> Check | None:
    """`around` are the types that contain the hint: a type that contains itself (filters of scopes do) has no terms."""
    if hint is Term or hint == AnyTerm:
        return _root_term if hint is Term else _any_term
    if hint is Descriptor:
        return _descriptor
    origin, parts, around = get_origin(hint), get_args(hint), (*around, hint)
    if origin is Annotated:
        return _check_of(parts[0], around)
    if origin in (Union, UnionType):
        return _in_union({part: _check_of(part, around) for part in parts})
    if origin is list or (origin is tuple and parts[-1:] == (...,)):
        return _in_each(_check_of(parts[0], around))
    if origin is tuple:
        return _in_fields([(place, _check_of(part, around)) for place, part in enumerate(parts)], tuple.__getitem__)
    if hint in around[:-1]:
        return None
    if isinstance(hint, type) and (issubclass(hint, msgspec.Struct) or hasattr(hint, "_fields")):
        hints = get_type_hints(hint, include_extras=True)
        return _in_fields([(name, _check_of(part, around)) for name, part in hints.items() if name in fields(hint)])
    return None


def fields(type_: type) -> tuple[str, ...]:
    """Return the names of the fields of a struct or a named tuple."""
    return type_.__struct_fields__ if issubclass(type_, msgspec.Struct) else type_._fields  # type: ignore[attr-defined]


def _in_union(members: dict[Any, Check | None]) -> Check | None:
    """Check values of a union. Its members that need a check are distinguished by their class."""
    if not any(members.values()):
        return None
    present = {part: check for part, check in members.items() if part is not NoneType}
    if len(present) == 1:
        (check,) = present.values()
        assert check is not None
        return lambda value, wall_ns: value is None or check(value, wall_ns)
    return lambda value, wall_ns: (found := present.get(type(value))) is None or found(value, wall_ns)


def _in_each(check: Check | None) -> Check | None:
    if check is None:
        return None
    return lambda values, wall_ns: not values or all(check(value, wall_ns) for value in values)


def _in_fields(parts: list[tuple[Any, Check | None]], get: Callable[[Any, Any], Any] = getattr) -> Check | None:
    some = [(name, check) for name, check in parts if check is not None]
    if len(some) == 1:
        name, only = some[0]
        if only in (_root_term, _any_term):  # as in a receipt
            return lambda value, wall_ns: get(value, name).counter <= FREE_COUNT or only(get(value, name), wall_ns)
        return lambda value, wall_ns: only(get(value, name), wall_ns)

    def check_all(value: Any, wall_ns: Clock) -> bool:
        for name, check in some:  # noqa: SIM110 - this runs for every report, and Python calls no generator here
            if not check(get(value, name), wall_ns):
                return False
        return True

    return check_all if some else None
