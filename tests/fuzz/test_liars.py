"""Two members of six lie to the others and to each other: everybody goes on, sound, and nobody honest is accused."""

from collections.abc import Callable
from contextlib import suppress
from random import Random

import msgspec
import pytest

from quillcast.core.errors import RemoteError
from quillcast.core.messages import Contact, Message
from quillcast.protocol import wire
from quillcast.protocol.peer import Peer
from quillcast.protocol.topics import messages, query_messages, root_messages
from quillcast.protocol.topics.descriptor import Settings
from quillcast.protocol.topics.messages import Join
from quillcast.protocol.topics.publishing.publisher import Publisher
from quillcast.protocol.topics.root_messages import Create, FindRoot
from quillcast.protocol.topics.state import link_reports
from quillcast.protocol.topics.state.link_reports import ChildReport, ParentReport, StreamDown, StreamUp, stream_key
from tests.fuzz.bytes import FUZZ
from tests.fuzz.liar import Liar
from tests.protocol.topics.village import Reader, Village

PEERS, LIARS, LIES = 6, 2, 60
TOPICS = {
    "news": Settings(),
    "sources": Settings(admission="source"),
    "best": Settings(delivery="best_effort"),
    "best/sources": Settings(delivery="best_effort", admission="source"),
    "waits": Settings(slow="wait"),
}
OF_TOPICS = (*messages.MESSAGES, *root_messages.MESSAGES, *query_messages.MESSAGES)
MESSAGES = (*OF_TOPICS, *OF_TOPICS, *wire.MESSAGES)  # topics have most to lie about
ROUTED = (Join, Create, FindRoot, *(kind for kind in OF_TOPICS if kind.__name__.startswith("Fetch")))
REPORTS = (ChildReport, ParentReport, StreamUp, StreamDown)
SETTLED_S = 45.0  # more than a lease


class Scene:
    """A small network with topics of all kinds that events went through, and the members of it that lie."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.village = Village(PEERS, seed=seed)
        self.publishers: list[tuple[int, Publisher]] = []
        for name, settings in TOPICS.items():
            self._open(name, settings)
        ids = [publisher.id for _, publisher in self.publishers]
        self.liar = Liar(self.village, ids, self.random)
        self.liars = self.random.sample(range(PEERS), LIARS)

    def _open(self, name: str, settings: Settings) -> None:
        village, random = self.village, self.random
        village.act(0, lambda peer: peer.create(name, settings, lambda _: None))
        village.run(1)
        for peer in random.sample(range(PEERS), 4):
            village.subscribe(peer, name, Reader(), start="earliest" if self.chance(0.3) else "now")
        village.run(1)
        for peer in random.sample(range(PEERS), 3):
            self.publishers.append((peer, village.publisher(peer, name)))
            village.run(0.2)
            village.publish(*self.publishers[-1], b"hello", b"again")
        village.run(0.5)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def lie(self) -> None:
        """One liar tells one peer something."""
        sender = self.random.choice(self.liars)
        receiver = self.random.choice([number for number in self.village.alive() if number != sender])
        says = self.random.choices((self._message, self._routed, self._report), (60, 15, 25))[0]
        with suppress(RemoteError):  # it was noticed
            self.village.act(receiver, says(self.liar.contacts[sender]))

    def _made(self, kind: type[Message]) -> Message:
        """As it arrives. Raises `RemoteError` if it would not."""
        message = self.liar.build(kind)
        if hasattr(message, "topic") and self.chance(0.6):
            message = msgspec.structs.replace(message, topic=self.random.choice(self.liar.topics))
        return wire.decode(wire.encode(message))

    def _message(self, sender: Contact) -> Callable[[Peer], None]:
        message = self._made(self.random.choice(MESSAGES))
        return lambda peer: peer.message(sender, message)

    def _routed(self, sender: Contact) -> Callable[[Peer], None]:
        message, topic = self._made(self.random.choice(ROUTED)), self.random.choice(self.liar.topics)
        return lambda peer: peer.topics.scribe.deliver(message, topic, sender)

    def _report(self, sender: Contact) -> Callable[[Peer], None]:
        report = self.liar.build(self.random.choice(REPORTS))
        key = topic = self.random.choice(self.liar.topics)
        if isinstance(report, StreamUp | StreamDown):
            key = stream_key(topic, self.liar.term())
        data = link_reports.encode(report)
        return lambda peer: peer.topics.links.changed(sender, key, data)

    def go_on(self) -> None:
        """Honest peers go on: time passes, one publishes, one is killed."""
        village, random = self.village, self.random
        if self.chance(0.3):
            village.run(random.choice((0.01, 0.2, 1, 5)))
        if self.chance(0.2):
            number, publisher = random.choice(self.publishers)
            if number in village.alive() and not publisher.closed:
                village.publish(number, publisher, b"more")
        if self.chance(0.01) and len(village.alive()) > PEERS // 2:
            village.kill(random.choice(village.alive()), silently=self.chance(0.5))
        if self.chance(0.05):
            self.liar.learn()

    def check(self) -> None:
        """Ask all that run whether they are sound."""
        for number in self.village.alive():
            self.village.peers[number].check()


@pytest.mark.parametrize("seed", range(FUZZ.max_examples // 2))
def test_whatever_members_say_that_know_the_network(seed: int) -> None:
    scene = Scene(seed)
    for _ in range(LIES):
        scene.lie()
        scene.go_on()
        scene.check()
    scene.village.run(SETTLED_S)  # what an honest peer cannot decode or refuses of another ends the test
    scene.check()
