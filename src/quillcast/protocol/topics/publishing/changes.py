"""Changing the settings of an existing topic: its root enters a descriptor of a later version, and passes it on.

How to treat slow subscribers and how large events may be concerns each peer alone. Such settings apply wherever the new
descriptor has arrived: replicas, the tree, and publishers' peers. The guarantee, and who may publish, change with a new
session (docs/sessions.md), because all peers must agree on the first event that they apply to.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from quillcast.core.envelope import NO_TERM
from quillcast.core.errors import LocalError, QuillcastError, UnknownTopic
from quillcast.core.host import Host
from quillcast.core.interning import EMPTY
from quillcast.protocol.security.access import ENTRIES_MAX, RIGHTS, AccessDenied, entry, noting_former, principal
from quillcast.protocol.topics.descriptor import (
    CHANGEABLE,
    FIRST_CHANGE,
    Descriptor,
    Settings,
    described,
    unchangeable_list,
)
from quillcast.protocol.topics.known.known import KnownTopics
from quillcast.protocol.topics.publishing.creating import CreateDone, Creating
from quillcast.protocol.topics.publishing.publisher import Publisher
from quillcast.protocol.topics.root_messages import FindRoot, RootIs
from quillcast.protocol.topics.state.overlay import Overlay
from quillcast.protocol.topics.state.schedule import Schedule
from quillcast.protocol.topics.state.tree import Tree


class SettingsChange(NamedTuple):
    """A requested change, and whom to tell the result."""

    name: str
    wanted: Mapping[str, Any]
    done: Callable[[Descriptor | QuillcastError], None]
    sign: Callable[[Descriptor], Descriptor] | None = None
    """How the owner signs the changed descriptor."""


class SettingsChanges:
    """A peer's part in changes of settings: requesting them, and passing on what the root entered."""

    __slots__ = (
        "asked", "asked_at", "creating", "host", "known", "publishers", "receipt_timeout_s", "ring", "schedule",
    )  # fmt: skip

    def __init__(
        self, host: Host, receipt_timeout_s: float, ring: Overlay, known: KnownTopics, creating: Creating,
        schedule: Schedule,
    ) -> None:  # fmt: skip
        self.host, self.receipt_timeout_s, self.ring = host, receipt_timeout_s, ring
        self.known, self.creating, self.schedule = known, creating, schedule
        self.publishers: dict[bytes, dict[bytes, Publisher]] = {}  # this peer's publishers by topic, for changes
        self.asked: dict[bytes, list[SettingsChange]] = {}  # by topic, one after another; the first is in progress
        self.asked_at: dict[bytes, float] = EMPTY  # when the root was asked, which did not answer yet
        known.spare(self.asked)
        schedule.serve(self.asked)

    def ask(
        self, name: str, wanted: Mapping[str, Any], done: Callable[[Descriptor | QuillcastError], None],
        sign: Callable[[Descriptor], Descriptor] | None = None,
    ) -> None:  # fmt: skip
        """Change settings; `done` gets the resulting descriptor, or the error. Raises `LocalError`."""
        topic = described(name).topic
        waiting = self.asked.setdefault(topic, [])
        waiting.append(SettingsChange(name, wanted, done, sign))
        self.schedule.begin()
        if len(waiting) == 1:
            self._find(topic)

    def root_found(self, descriptor: Descriptor) -> None:
        """The root sent the present descriptor: offer it the next version, if one is wanted."""
        offer = self._offer(descriptor)
        if offer is not None:
            self.creating.create(*offer)

    def _offer(self, descriptor: Descriptor) -> tuple[Descriptor, CreateDone] | None:
        """Return what to offer the root, and whom to tell the result."""
        topic = descriptor.topic
        change = self._answered(topic)
        if change is None:
            return None
        if descriptor.upcoming is not None:
            return descriptor.upcoming, partial(self._go_on, topic)  # this change follows that one
        try:
            newer = _changed(descriptor, change.wanted)
        except LocalError as problem:
            self._done(topic, problem)
            return None
        if (newer.settings, newer.access) == (descriptor.settings, descriptor.access):
            self._done(topic, descriptor)
            return None
        if descriptor.owner_key:
            newer = newer if change.sign is None else change.sign(newer)
            if newer.owner_key != descriptor.owner_key or not newer.genuine:
                self._done(topic, not_owner(descriptor.name, principal(descriptor.owner_key)))
                return None
        return newer, partial(self._done, topic)

    def unknown(self, topic: bytes) -> bool:
        """Nobody created the topic. Return whether this answers a query of this peer."""
        change = self._answered(topic)
        if change is None:
            return False
        problem = UnknownTopic(f"there is no topic {change.name!r}; run: quillcast topic create {change.name}")
        self._done(topic, problem)
        return True

    def asks(self, topic: bytes) -> bool:
        """Whether this peer is about to change or create the topic."""
        return topic in self.asked or topic in self.creating.asked

    def refused(self, topic: bytes, error: LocalError) -> None:
        """The topic cannot be used like this: tell those about to change or create it."""
        self.creating.refused(topic, error)
        if self._answered(topic) is not None:
            self._done(topic, error)

    def _answered(self, topic: bytes) -> SettingsChange | None:
        """Return the change that asked for the root, if one did."""
        return self.asked[topic][0] if self.asked_at.pop(topic, None) is not None else None

    def _go_on(self, topic: bytes, answer: Descriptor | QuillcastError) -> None:
        """The session that another change opened has begun: ask for the present descriptor again."""
        self._find(topic)

    def _done(self, topic: bytes, answer: Descriptor | QuillcastError) -> None:
        """A change is settled: tell the caller, and begin the next."""
        change, *waiting = self.asked.pop(topic)
        if waiting:
            self.asked[topic] = waiting
        change.done(answer)
        if waiting:
            self._find(topic)
        self.known.done_with(topic)

    def housekeep(self, now: float, *, paused: bool = False) -> None:
        """Ask again if nobody answered."""
        for topic, asked_at in list(self.asked_at.items()):
            if now - asked_at >= self.receipt_timeout_s:
                self._find(topic)

    def entered(self, tree: Tree) -> None:
        """This root entered a change: tell the peers with publishers."""
        root = tree.root
        if root is None:
            return
        for contact in root.publishing_peers():
            if contact.node_id != self.host.me:
                self.host.send(contact, RootIs(root.term, tree.descriptor, root.held_back))

    def learned(self, descriptor: Descriptor) -> None:
        """Apply a change that this peer learned to its publishers."""
        for publisher in self.publishers.get(descriptor.topic, {}).values():
            publisher.adapt(descriptor)
            publisher.listener.progressed()

    def _find(self, topic: bytes) -> None:
        self.asked_at = self.asked_at or {}
        self.asked_at[topic] = self.host.now()
        if self.ring.active:
            try:
                known = self.known.describe(self.asked[topic][0].name)  # the root is where its root scope has it
            except LocalError as two:
                self.refused(topic, two)
                return
            mine = next((each.descriptor for each in self.publishers.get(topic, {}).values()), None)
            question = FindRoot(topic, self.host.contact, mine, NO_TERM, root_scope=known.settings.root_scope)
            self.ring.route(question, topic)


def not_owner(topic: str, owner: str) -> AccessDenied:
    """Return the error for a change of a topic by anybody but this principal."""
    return AccessDenied(f"topic {topic!r} can be changed only by its owner {owner[:8]}")


def _changed(descriptor: Descriptor, wanted: Mapping[str, Any]) -> Descriptor:
    """Return the next version, in the next session if that is needed. Raises `LocalError`."""
    before, chosen = descriptor.settings, dict(wanted)
    access = _listed(descriptor.access, chosen.pop("publishers", None), chosen.pop("subscribers", None))
    if before.by_source:
        access = noting_former(descriptor.access, access)
    if why := unchangeable_list(descriptor, access):
        raise LocalError(f"the access list of {descriptor.name!r} cannot change like this: {why}")
    settings = msgspec.structs.replace(before, **chosen)
    changed = check_change(descriptor.name, before, settings)
    opens = access != descriptor.access or any(name not in CHANGEABLE for name in changed)
    version = max(FIRST_CHANGE, descriptor.version + 1)
    return msgspec.structs.replace(
        descriptor, settings=settings, access=access, version=version, session=descriptor.session + opens
    )


def check_change(topic: str, before: Settings, after: Settings) -> list[str]:
    """Return the settings of a topic that differ. Raises `LocalError` if an existing topic cannot change like this."""
    after.validate()
    changed = [name for name in Settings.__struct_fields__ if getattr(after, name) != getattr(before, name)]
    for name in changed:
        if name in before.fixed(after):
            stands, value = getattr(before, name), getattr(after, name)
            raise LocalError(f"{name} of {topic!r} cannot change from {stands} to {value} {_why_fixed(name, value)}")
    return changed


def _why_fixed(name: str, value: str) -> str:
    if name == "root_scope":
        return f"in an existing topic: create another topic with {name} = {value}"
    return "together with admission: change one after the other"


def _listed(access: tuple[str, ...], *named: Sequence[str] | None) -> tuple[str, ...]:
    """Return the list with these publishers and subscribers in place of its own; None: those stay."""
    for right, principals in zip(RIGHTS, named, strict=True):
        if principals is not None:
            others = (one for one in access if not one.startswith(f"{right}:"))
            access = (*others, *dict.fromkeys(entry(right, who) for who in principals))
    if len(access) > ENTRIES_MAX:
        raise LocalError(f"{len(access)} entries are too many for an access list, which has at most {ENTRIES_MAX}")
    return access
