"""Filters decide per bundle whether it enters a channel, from its envelope alone.

A filter is a value, so that managers can send it to the members that use it. `compiled` makes a function of it there.
Filters may note tags on the envelope of a bundle that enters, and change nothing else.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Annotated, Final, TypeAlias, Union

import msgspec
from msgspec import Meta

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import SERIALS, Envelope
from quillcast.core.errors import LocalError
from quillcast.core.ids import ID_BYTES
from quillcast.core.messages import WireId
from quillcast.protocol.forwarding import channels

PARTS_MAX = 64  # filters of which one is composed; a guess that keeps the cost per bundle small
TAGS_BYTES_MAX = 1024  # of all tags of a bundle; a guess

Tag = Annotated[str, Meta(pattern="^[a-z0-9._-]+$", min_length=1, max_length=32)]
FilterName = Annotated[str, Meta(min_length=1, max_length=255)]
Value: TypeAlias = bool | int | float | str
_SEPARATOR: Final = b","


class Modulo(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Bundles whose serial modulo `n` is one of `k`: every n-th bundle, whatever the number of its events."""

    n: Annotated[int, Meta(ge=1, le=SERIALS)]
    k: tuple[Annotated[int, Meta(ge=0)], ...]

    def __post_init__(self) -> None:
        if not 1 <= self.n <= SERIALS or not self.k or not all(0 <= each < self.n for each in self.k):
            raise ValueError(f"Modulo({self.n}, {self.k}): n is from 1 to {SERIALS}, and each k from 0 to n - 1")


class Topics(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Bundles of these topics."""

    topics: tuple[WireId, ...]


class Senders(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Bundles whose positions were given by one of these peers.

    With `admission = source` that is the publishing peer, otherwise the topic's root.
    """

    nodes: tuple[WireId, ...]


class Sample(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """A share of the bundles, from 0 to 1, chosen by a hash: every peer chooses the same ones.

    Filters with another `salt` choose independently of this one.
    """

    share: Annotated[float, Meta(ge=0, le=1)]
    salt: Annotated[str, Meta(max_length=64)] = ""

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ValueError(f"Sample({self.share}): the share of the bundles is from 0 to 1")


class Tagged(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Bundles on which a filter noted this tag."""

    tag: Tag


class AddTag(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """All bundles; this tag is noted on them, as long as there is room for it (`TAGS_BYTES_MAX`)."""

    tag: Tag


class Custom(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """A filter of another package: the name of its entry point, and arguments in the order of their names."""

    name: FilterName
    arguments: tuple[tuple[FilterName, Value], ...] = ()


class Every(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """Bundles that pass all of these filters, one after the other: a later one sees the tags of earlier ones."""

    filters: tuple["Filter", ...]

    def __post_init__(self) -> None:
        _check_parts(self)


class Either(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """Bundles that pass one of these filters; the first that lets a bundle pass may tag it."""

    filters: tuple["Filter", ...]

    def __post_init__(self) -> None:
        _check_parts(self)


class Except(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """Bundles that do not pass this filter."""

    filter: "Filter"

    def __post_init__(self) -> None:
        _check_parts(self)


class Larger(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """Bundles of more bytes than this, which a multicast mechanism leaves to the topic's tree.

    Managers make it. It sees more than the envelope, so it can only be part of `Every`.
    """

    size_bytes: Annotated[int, Meta(ge=0)]


Filter: TypeAlias = Union[  # noqa: UP007  its parts refer to it
    Modulo, Topics, Senders, Sample, Tagged, AddTag, Custom, Every, Either, Except, Larger
]

EnvelopeFilter: TypeAlias = Callable[[Envelope], Envelope | None]
"""The envelope with which a bundle enters; None stops it."""

CustomFilter: TypeAlias = Callable[[Envelope], bool | str]
"""What another package supplies: does the bundle enter? A text: it does, with this tag."""

Customs: TypeAlias = Mapping[str, Callable[..., CustomFilter]]
"""Makers of filters from other packages by name. They are called with the arguments of `Custom`, by name."""


class UnknownFilter(LocalError):
    """No installed package has a filter of this name."""


def compiled(filter_: Filter, customs: Customs) -> EnvelopeFilter:
    """The function of a filter that decides by the envelope.

    Raises `UnknownFilter` if it needs one that `customs` lacks, and `LocalError` if it decides by something else.
    """
    match filter_:
        case Every(filters):
            return _every([compiled(each, customs) for each in filters])
        case Either(filters):
            return _either([compiled(each, customs) for each in filters])
        case Except(inner):
            return _except(compiled(inner, customs))
        case AddTag(tag):
            return lambda envelope: with_tag(envelope, tag)
        case Custom(name, arguments):
            if name not in customs:
                raise UnknownFilter(f"there is no filter {name!r}; install the package that has it on this machine")
            return _custom(customs[name](**dict(arguments)))
        case Larger():
            raise LocalError("a filter by size can be part of Every alone")
        case _:
            return _when(_test(filter_))


def on_bundles(filter_: Filter, customs: Customs) -> channels.BundleFilter:
    """The function of a filter for a channel of the data path. Raises as `compiled`."""
    size_bytes, others = by_size(filter_)
    decide = compiled(others, customs)

    def enter(bundle: Bundle) -> Bundle | None:
        envelope = decide(bundle.envelope) if bundle.size > size_bytes else None
        if envelope is None or envelope is bundle.envelope:
            return None if envelope is None else bundle
        return bundle.under(envelope)

    return enter


def by_size(filter_: Filter) -> tuple[int, Filter]:
    """The size in bytes that a bundle must exceed, and the rest of the filter, which sees its envelope alone."""
    match filter_:
        case Larger(size_bytes):
            return size_bytes, Every(())
        case Every(filters):
            sizes, others = zip(*map(by_size, filters), strict=True) if filters else ((), ())
            return max(sizes, default=0), Every(others)
        case _:
            return 0, filter_


def with_tag(envelope: Envelope, tag: str) -> Envelope:
    """The envelope with one more tag, unless it has that already, or there is no room for it."""
    noted = tag.encode()
    if noted in envelope.tags.split(_SEPARATOR) or len(envelope.tags) + 1 + len(noted) > TAGS_BYTES_MAX:
        return envelope
    tags = envelope.tags + _SEPARATOR + noted if envelope.tags else noted
    return msgspec.structs.replace(envelope, tags=tags)


Test: TypeAlias = Callable[[Envelope], bool]


def _test(filter_: Modulo | Topics | Senders | Sample | Tagged) -> Test:
    match filter_:
        case Modulo(n, k):
            kept = frozenset(k)
            return lambda envelope: envelope.serial % n in kept
        case Topics(topics):
            wanted = frozenset(topics)
            return lambda envelope: envelope.topic in wanted
        case Senders(nodes):
            half = ID_BYTES // 2
            halves = frozenset(node[:half] for node in nodes)
            return lambda envelope: envelope.term.node[:half] in halves
        case Sample(share, salt):
            below, salted = int(share * (1 << 64)), salt.encode()
            return lambda envelope: _drawn(envelope, salted) < below
        case Tagged(tag):
            noted = tag.encode()
            return lambda envelope: noted in envelope.tags.split(_SEPARATOR)


def _drawn(envelope: Envelope, salt: bytes) -> int:
    """A number below 2**64, the same at every peer."""
    drawn = hashlib.blake2b(envelope.topic + envelope.serial.to_bytes(2, "little") + salt, digest_size=8)
    return int.from_bytes(drawn.digest(), "little")


def _when(test: Test) -> EnvelopeFilter:
    return lambda envelope: envelope if test(envelope) else None


def _every(decisions: list[EnvelopeFilter]) -> EnvelopeFilter:
    def decide(envelope: Envelope) -> Envelope | None:
        for each in decisions:
            if (entering := each(envelope)) is None:
                return None
            envelope = entering
        return envelope

    return decide


def _either(decisions: list[EnvelopeFilter]) -> EnvelopeFilter:
    def decide(envelope: Envelope) -> Envelope | None:
        return next((entering for each in decisions if (entering := each(envelope)) is not None), None)

    return decide


def _except(inner: EnvelopeFilter) -> EnvelopeFilter:
    return lambda envelope: envelope if inner(envelope) is None else None


def _custom(custom: CustomFilter) -> EnvelopeFilter:
    def decide(envelope: Envelope) -> Envelope | None:
        entering = custom(envelope)
        if isinstance(entering, str):
            return with_tag(envelope, entering)
        return envelope if entering else None

    return decide


def stops(filter_: Filter) -> bool:
    """May it stop a bundle? Otherwise, it only notes tags."""
    match filter_:
        case AddTag():
            return False
        case Every(filters):
            return any(map(stops, filters))
        case Either(filters):
            return all(map(stops, filters))
        case _:
            return True


def worded(filter_: Filter) -> str:
    """A filter as a sentence."""
    match filter_:
        case Modulo(n, k):
            return f"serial modulo {n} = {' or '.join(map(str, k))}"
        case Topics(topics):
            return f"one of {len(topics)} topics"
        case Senders(nodes):
            return f"from {' or '.join(node.hex()[:8] for node in nodes)}"
        case Sample(share):
            return f"a sample of {share:g}" if share else "repairs only"
        case Tagged(tag):
            return f"has tag {tag}"
        case AddTag(tag):
            return f"adds tag {tag}"
        case Custom(name, arguments):
            return f"{name}({', '.join(f'{key} = {value}' for key, value in arguments)})"
        case Every(filters):
            return " and ".join(map(worded, filters))
        case Either(filters):
            return f"({' or '.join(map(worded, filters))})"
        case Except(inner):
            return f"not ({worded(inner)})"
        case Larger(size_bytes):
            return f"more than {size_bytes} bytes"


def parts(filter_: Filter) -> int:
    """The number of filters of which it is composed, itself included."""
    match filter_:
        case Every(filters) | Either(filters):
            return 1 + sum(map(parts, filters))
        case Except(inner):
            return 1 + parts(inner)
        case _:
            return 1


NO_BUNDLE: Filter = Sample(0.0)


def _check_parts(filter_: Filter) -> None:
    if (count := parts(filter_)) > PARTS_MAX:
        raise ValueError(f"a filter of {count} parts; compose it of at most {PARTS_MAX}")
