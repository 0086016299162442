"""The topics that this peer asked to be created, with their own settings or as a change of existing ones."""

from collections.abc import Callable

import msgspec

from quillcast.core.dispatch import Dispatch
from quillcast.core.errors import LocalError, QuillcastError, TopicExists
from quillcast.core.host import Host
from quillcast.core.interning import EMPTY
from quillcast.core.messages import Contact
from quillcast.protocol.security.access import principal
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.known.known import KnownTopics
from quillcast.protocol.topics.root_messages import Create, Created
from quillcast.protocol.topics.state.link_reports import first_number
from quillcast.protocol.topics.state.overlay import Overlay
from quillcast.protocol.topics.state.schedule import Schedule

CreateDone = Callable[[Descriptor | QuillcastError], None]


class Creating:
    """Asks roots to enter descriptors, until they answer."""

    __slots__ = ("asked", "count", "holders", "host", "known", "offered_at", "receipt_timeout_s", "ring", "schedule")

    def __init__(
        self, host: Host, receipt_timeout_s: float, ring: Overlay, known: KnownTopics, schedule: Schedule,
        dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.host, self.receipt_timeout_s, self.ring = host, receipt_timeout_s, ring
        self.known, self.schedule = known, schedule
        self.offered_at: dict[bytes, float] = EMPTY
        self.asked: dict[bytes, list[tuple[Create, CreateDone]]] = {}  # one after another; the first is in progress
        self.count = first_number(host.incarnation)  # a late answer to a former process matches none of this one
        self.holders: dict[bytes, int] = {}  # of topics created here: how many peers held their state then
        known.spare(self.asked)
        known.forget_too(self.holders)
        schedule.serve(self.asked)
        dispatch.on_message(Created, self._created)

    def create(self, descriptor: Descriptor, done: CreateDone) -> None:
        """Create a topic; `done` gets the resulting descriptor, or `TopicExists`."""
        self.count += 1
        message = Create(descriptor, self.host.contact, number=self.count, term=self.known.used(descriptor.topic))
        waiting = self.asked.setdefault(descriptor.topic, [])
        waiting.append((message, done))
        self.schedule.begin()
        if len(waiting) == 1:
            self._route(message)

    def _route(self, message: Create) -> None:
        topic = message.descriptor.topic
        self.offered_at = self.offered_at or {}
        self.offered_at[topic] = self.host.now()
        if self.ring.active:
            self.ring.route(message, topic)

    def _created(self, sender: Contact, message: Created) -> None:
        descriptor = message.descriptor
        self.known.learn(descriptor)
        waiting = self.asked.get(descriptor.topic)
        if not waiting or message.number != waiting[0][0].number:
            return  # a repeated answer
        (create, done), *waiting = self.asked.pop(descriptor.topic)
        self.holders[descriptor.topic] = message.holders
        if waiting:
            self.asked[descriptor.topic] = waiting
        else:
            self.offered_at.pop(descriptor.topic, None)
        self._answer(create.descriptor, descriptor, done)
        if waiting:
            self._route(waiting[0][0])
        self.known.done_with(descriptor.topic)

    def refused(self, topic: bytes, error: LocalError) -> None:
        """The topic cannot be created: tell all that asked for it."""
        self.offered_at.pop(topic, None)
        for _, done in self.asked.pop(topic, ()):
            done(error)

    def _answer(self, wanted: Descriptor, descriptor: Descriptor, done: CreateDone) -> None:
        """Tell the application the resulting descriptor."""
        if (descriptor.owner_key, descriptor.access) != (wanted.owner_key, wanted.access):
            owner = "nobody owns it; use it without --as, or choose another name"
            if descriptor.owner_key:
                owner = f"{principal(descriptor.owner_key)[:8]} owns it, and can change it with `quillcast topic set`"
            done(TopicExists(f"topic {descriptor.name!r} exists with another owner or access list: {owner}"))
        elif descriptor.settings == wanted.settings:
            done(descriptor)
        else:
            settings = msgspec.structs.asdict(descriptor.settings)
            stands = ", ".join(f"{name} = {value}" for name, value in settings.items() if value)
            done(
                TopicExists(
                    f"topic {descriptor.name!r} exists with other settings ({stands}); use those, or change them "
                    "(quillcast topic set, Node.change)"
                )
            )

    def housekeep(self, now: float, *, paused: bool = False) -> None:
        """Ask again for topics to be created if nobody answered."""
        for topic, waiting in list(self.asked.items()):
            if now - self.offered_at[topic] >= self.receipt_timeout_s:
                self._route(msgspec.structs.replace(waiting[0][0], again=True))
