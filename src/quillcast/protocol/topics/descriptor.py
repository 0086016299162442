"""The descriptor of a topic: its name, creator, and the settings of its owner (docs/delivery.md, *Guarantees*)."""

import hashlib
from typing import Annotated
from unicodedata import category

import msgspec
from msgspec import Meta

from quillcast.core.envelope import Guarantee
from quillcast.core.errors import LocalError, UnknownTopic, quoted
from quillcast.core.ids import NETWORK_CREATOR, TopicId, topic_id
from quillcast.core.interning import interned
from quillcast.core.messages import Number
from quillcast.protocol.security.access import (
    ENTRIES_MAX,
    PRINCIPAL_DIGITS,
    RIGHTS,
    PublicKey,
    Signature,
    is_restricted,
    is_signed,
    refusal,
)

CHOICES = {
    "delivery": ("best_effort", "reliable"),
    "order": ("publisher", "none"),
    "slow": ("cut", "wait"),
    "partition": ("go_on", "wait"),
    "admission": ("root", "source"),
}
CHANGEABLE = ("slow", "event_bytes_max")
"""Settings that can change within a session. Each peer applies them as soon as it knows them."""
FIRST_CHANGE = 2  # the first version that a change makes: 0 is made by first use, 1 by create
NAME_BYTES_MAX = 255
EVENT_BYTES_MAX = 1 << 24  # the largest payload that a topic may allow
PATTERNS = ("+", "#", "*", ">", "?")
"""Parts of a name that are wildcards elsewhere: in MQTT (+ #), in NATS (* >), in shells (* ?)."""
_UNFIT = {"Cc", "Cs", "Zl", "Zp"}  # Unicode's control characters, surrogates, line and paragraph separators
ENTRY_MAX = max(map(len, RIGHTS)) + 1 + PRINCIPAL_DIGITS  # characters of an entry of an access list
TopicName = Annotated[str, Meta(max_length=NAME_BYTES_MAX)]
Choice = Annotated[str, Meta(max_length=32)]
_STATEMENT = b"quillcast topic 1\0"


class Settings(msgspec.Struct, frozen=True, array_like=True):
    """The choices of a topic's owner.

    `delivery` is best_effort or reliable, `order` is publisher or none. `slow` says what happens to a subscriber that
    cannot keep up: cut (it gets a loss report) or wait (publishers are held back while it holds a lease).
    `event_bytes_max` bounds one event's payload. `partition` says what a root does that cannot reach most replicas:
    go_on (its acknowledgements say `partitioned`) or wait (it acknowledges nothing). `admission` says who numbers the
    events: the root, or each publishing peer its own (source). `root_scope` names the scope that the topic is rooted
    at; empty: the overlay.
    """

    delivery: Choice = "reliable"
    order: Choice = "publisher"
    slow: Choice = "cut"
    event_bytes_max: int = 1 << 20
    partition: Choice = "go_on"
    admission: Choice = "root"
    root_scope: Annotated[str, Meta(max_length=64)] = ""

    @property
    def streams(self) -> tuple[str, str, str]:
        """The settings that hold for the whole of a source's stream: a session that changes them ends it."""
        return self.admission, self.delivery, self.order

    def fixed(self, later: "Settings") -> tuple[str, ...]:
        """The settings that a change to these leaves alone: a session changes `admission`, or a guarantee."""
        return ("root_scope",) if self.admission == later.admission else ("root_scope", "delivery", "order")

    @property
    def reliable(self) -> bool:
        """Whether every subscriber must get every event."""
        return self.delivery == "reliable"

    @property
    def by_source(self) -> bool:
        """Whether each publishing peer numbers its own events."""
        return self.admission == "source"

    def validate(self) -> None:
        """Raise `LocalError` for a choice that does not exist, naming those that do, or for one that makes no sense."""
        for field, choices in CHOICES.items():
            value = getattr(self, field)
            if value not in choices:
                raise LocalError(f"{field} = {value!r} is not valid; use one of: {', '.join(choices)}")
        if self.reliable and self.order == "none":
            raise LocalError("order = 'none' needs delivery = 'best_effort': reliable topics keep a publisher's order")
        if self.slow == "wait" and not self.reliable:
            raise LocalError(
                "slow = 'wait' needs delivery = 'reliable': nobody waits for the subscribers of a best_effort "
                "topic; use slow = 'cut'"
            )
        if not 0 < self.event_bytes_max <= EVENT_BYTES_MAX:
            raise LocalError(f"event_bytes_max = {self.event_bytes_max} must lie between 1 and {EVENT_BYTES_MAX}")


class Descriptor(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A topic's name, creator, settings, who may use it, and version; the highest version wins.

    `session` is the number of the session that has these settings. `upcoming` is the descriptor of the next session,
    once the root has had most replicas record it; then the present session ends (docs/sessions.md). Version 0 is what
    first use of a bare name creates. An empty access list admits everyone in the network; one with entries has an
    owner, who signs every version (`protocol.security.access`).
    """

    name: TopicName
    settings: Settings = Settings()
    creator: TopicName = NETWORK_CREATOR
    version: Number = 0
    access: Annotated[tuple[Annotated[str, Meta(max_length=ENTRY_MAX)], ...], Meta(max_length=ENTRIES_MAX)] = ()
    owner_key: PublicKey = b""
    signature: Signature = b""
    session: Number = 0
    upcoming: "Descriptor | None" = None

    @property
    def statement(self) -> bytes:
        """Return what the owner signs: everything but the signature and the next session, which has its own."""
        return _STATEMENT + msgspec.msgpack.encode(msgspec.structs.replace(self, signature=b"", upcoming=None))

    @property
    def genuine(self) -> bool:
        """Whether it has neither owner nor list, or is signed by its owner."""
        if self.upcoming is not None and not opens_session(self, self.upcoming):
            return False
        if not self.owner_key:
            return not self.access
        return len(self.access) <= ENTRIES_MAX and is_signed(self.owner_key, self.signature, self.statement)

    def refusal(self, right: str, who: str) -> str | None:
        """Return the rule that denies a principal a right (publish, subscribe) here; None: it has the right."""
        return refusal(self.name, self.access, self.owner_key, right, who)

    @property
    def topic(self) -> TopicId:
        """The topic's id: the hash of its name and its creator."""
        return topic_id(self.name, self.creator)

    def interned(self) -> "Descriptor":
        """Return the same descriptor, with its settings interned: most topics have those of first use."""
        settings = interned(self.settings)
        return self if settings is self.settings else msgspec.structs.replace(self, settings=settings)

    @property
    def digest(self) -> bytes:
        """Return eight bytes that identify the descriptor, for joins and publishes to carry."""
        return hashlib.sha256(msgspec.msgpack.encode(self)).digest()[:8]

    def supersedes(self, other: "Descriptor | None") -> bool:
        """Whether this is the later descriptor. Of equally late ones, the smaller digest wins, so that all peers agree.

        Only a descriptor of the same owner supersedes one with an owner, whatever the version; otherwise anybody could
        take a topic over. A descriptor with an owner supersedes one without.

        Two sides of a partition may have chosen different kinds of admission. Within a session, admission by sources
        wins. If a root numbered the topic's events from then on, nobody would look for the events in the sources'
        streams.
        """
        if other is None:
            return True
        if self.owner_key != other.owner_key:
            return not other.owner_key
        return (self._age, other.digest) > (other._age, self.digest)

    @property
    def streams_go_on(self) -> bool:
        """Whether sources number the events published now. They do not while their streams end for the next session.

        The streams continue if that session has the same guarantee.
        """
        return self.settings.by_source and (
            self.upcoming is None or self.upcoming.settings.streams == self.settings.streams
        )

    def elsewhere(self, other: "Descriptor") -> bool:
        """Whether the topic has a different root scope in the other descriptor."""
        return self.settings.root_scope != other.settings.root_scope

    @property
    def _age(self) -> tuple[int, bool, bool, int, bool]:
        return *self.guarantee, self.settings.by_source, self.version, self.upcoming is not None

    @property
    def guarantee(self) -> Guarantee:
        """Return its session, and whether that is reliable, as terms of that session say."""
        return self.session, self.session > 0 and self.settings.reliable

    def rivals(self, other: "Descriptor") -> bool:
        """Whether this is another owner's descriptor of the same name, as two sides of a partition may have made."""
        return bool(self.owner_key and other.owner_key) and self.owner_key != other.owner_key

    def outlives(self, other: "Descriptor") -> bool:
        """Whether it has a later session than another owner's descriptor, but loses to it because it has no owner."""
        return bool(other.owner_key) and not self.owner_key and self.session > other.session


def follows(known: Descriptor, offered: Descriptor) -> bool:
    """Whether this is a later version of an existing topic that changes only what may change live."""
    kept = {name: getattr(known.settings, name) for name in CHANGEABLE}
    return (
        offered.version >= FIRST_CHANGE
        and offered.version > known.version
        and msgspec.structs.replace(offered.settings, **kept) == known.settings
        and offered.session == known.session
        and offered.access == known.access
        and _kept(known, offered)
        and offered.genuine
    )


def opens_session(known: Descriptor, offered: Descriptor) -> bool:
    """Whether this is the next session of an existing topic."""
    before, after = known.settings, offered.settings
    return (
        offered.version >= FIRST_CHANGE
        and offered.version > known.version
        and offered.session == known.session + 1
        and offered.upcoming is None
        and all(getattr(before, name) == getattr(after, name) for name in before.fixed(after))
        and not unchangeable_list(known, offered.access)
        and _kept(known, offered)
        and offered.genuine
    )


def _kept(known: Descriptor, offered: Descriptor) -> bool:
    """Whether both describe the same topic of the same owner."""
    before = (known.name, known.creator, known.owner_key)
    return before == (offered.name, offered.creator, offered.owner_key)


def unchangeable_list(known: Descriptor, access: tuple[str, ...]) -> str:
    """Return a sentence why a topic's list cannot become this one; empty if it can, or is the same."""
    if access == known.access or known.owner_key:
        return ""
    return "it has no owner: create another topic with credentials"


def takes_off(known: Descriptor, later: Descriptor, right: str) -> bool:
    """Whether somebody has a right in a topic by one descriptor, but not by a later one."""
    if not is_restricted(later.access, right):
        return False
    before, after = ({one for one in each.access if one.startswith(f"{right}:")} for each in (known, later))
    return not before or not before <= after


def described(name: str, settings: Settings | None = None) -> Descriptor:
    """Return the descriptor of `name` or `creator:name`; version 1 if settings are given. Raises `LocalError`."""
    if not isinstance(name, str):
        raise LocalError(f"a topic's name is text such as sport/tennis, not {type(name).__name__}")
    creator, _, bare = name.rpartition(":")
    parts = bare.split("/")
    if not all(map(str.strip, parts)) or not _fits(name):
        raise LocalError(
            f"{quoted(name)} is not a topic name; use a path such as sport/tennis, at most {NAME_BYTES_MAX} bytes"
        )
    if any(part in PATTERNS or "*" in part for part in parts):
        raise LocalError(
            f"{quoted(name)} is a pattern, and patterns are not supported; name one topic, such as sport/tennis "
            f"(a name has no * and no part that is one of {' '.join(PATTERNS)})"
        )
    if settings is None:
        return Descriptor(bare, creator=creator)
    settings.validate()
    return Descriptor(bare, settings, creator, version=1)


def _fits(name: str) -> bool:
    """Whether it is short enough and one line of text. Command-line bytes that are not text become lone surrogates."""
    on_one_line = name.isprintable() or not any(category(sign) in _UNFIT for sign in name)
    return on_one_line and len(name.encode()) <= NAME_BYTES_MAX


def unknown_topic(name: str) -> UnknownTopic:
    """Return the error for a topic that nobody created, in a network that does not create topics on first use."""
    return UnknownTopic(f"there is no topic {name!r}, and this network does not create topics on first use; run: "
                        f"quillcast topic create {name}")  # fmt: skip
