"""What waits at a peer for a client: windows, bounds, and reports of what was dropped."""

import pytest

from quillcast.core.bundle import Block, Bundle
from quillcast.core.envelope import NO_TERM, Position
from quillcast.core.errors import Malformed, QuillcastError
from quillcast.core.loss import Loss
from quillcast.core.messages import Message
from quillcast.live.clients.messages import Delivery, Lost, Subscribe
from quillcast.live.clients.outbox import Bounded, Outbox

ALICE, BOB = b"a" * 16, b"b" * 16


class Client:
    """A client that is never there."""

    def __init__(self, bytes_max: int = 1 << 20) -> None:
        self.queues = Bounded(bytes_max)
        self.said: list[Message] = []

    def send(self, message: Message) -> None:
        self.said.append(message)

    def grew(self, outbox: Outbox, size_bytes: int) -> None:
        if size_bytes:
            self.queues.grew(outbox, size_bytes)

    def failed(self, outbox: Outbox, error: QuillcastError) -> None: ...

    def read(self, count: int) -> list[Bundle]:
        """Send as many bundles as there is room for."""
        sent: list[Bundle] = []
        self.queues.send(sent.append, lambda: len(sent) < count)
        return sent


def outbox(client: Client, number: int = 1, window_bytes: int = 1 << 20) -> Outbox:
    return Outbox(client, Subscribe(number, "t", "now", None, None, "", window_bytes))


def block(first: int, publisher: bytes = ALICE, count: int = 1) -> Block:
    return Block.seal(publisher, first, [b"x"] * count, time_ns=first + 1)


def deliver(to: Outbox, *blocks: Block, recovered: bool = False) -> None:
    for each in blocks:
        to.deliver(each, 0, each.count, Position(NO_TERM, each.first), recovered)


SIZE = block(0).size


def test_a_block_is_sent_with_its_subscription_and_events() -> None:
    client = Client()
    box = outbox(client, 7)
    box.deliver(block(10, count=5), 1, 4, Position(NO_TERM, 100), recovered=True)
    (bundle,) = client.read(9)
    assert Delivery.decode(bundle.topic) == Delivery(7, 1, 4, recovered=True)
    assert (bundle.envelope.first, bundle.blocks) == (100, (block(10, count=5),))


def test_no_more_is_sent_than_the_window_until_it_was_taken() -> None:
    client = Client()
    box = outbox(client, window_bytes=2 * SIZE)
    deliver(box, *map(block, range(5)))
    assert [each.envelope.first for each in client.read(9)] == [0, 1]
    assert (box.unread().events, box.unread().oldest_ns) == (5, 1)
    box.taken(SIZE)
    assert [each.envelope.first for each in client.read(9)] == [2]
    assert (box.unread().events, box.unread().oldest_ns) == (4, 2)
    with pytest.raises(Malformed, match="bytes were finished"):
        box.taken(3 * SIZE)


def test_subscriptions_are_sent_to_in_turn() -> None:
    client = Client()
    one, other = outbox(client, 1), outbox(client, 2)
    deliver(one, *map(block, range(3)))
    deliver(other, *map(block, range(2)))
    numbers = [Delivery.decode(bundle.topic).number for bundle in client.read(9)]
    assert numbers == [1, 2, 1, 2, 1]
    assert client.read(9) == []


def test_beyond_the_bound_the_oldest_of_the_longest_queue_are_dropped() -> None:
    client = Client(4 * SIZE)
    slow, other = outbox(client, 1), outbox(client, 2)
    deliver(other, block(50))
    deliver(slow, *map(block, range(10)))
    assert (len(slow.queue), len(other.queue)) == (3, 1)
    client.read(9)
    lost = [each for message in client.said if isinstance(message, Lost) for each in message.losses]
    assert lost == [Loss(NO_TERM, 0, 7, "cut", ALICE)]


def test_losses_are_merged_by_publisher_and_told_before_what_follows() -> None:
    client = Client(SIZE)
    box = outbox(client)
    for number in range(4):
        deliver(box, block(number), block(number, BOB))
    assert (box.untold, client.said) == (2, [])
    client.read(1)
    assert client.said == [Lost(1, [Loss(NO_TERM, 0, 4, "cut", ALICE), Loss(NO_TERM, 0, 3, "cut", BOB)])]
    assert box.untold == 0


def test_events_that_were_reported_before_are_dropped_in_silence() -> None:
    client = Client(SIZE)
    box = outbox(client)
    deliver(box, block(0), recovered=True)
    deliver(box, block(1))
    assert (box.untold, len(box.queue)) == (0, 1)


def test_what_an_ended_subscription_had_counts_no_more() -> None:
    client = Client(2 * SIZE)
    gone, box = outbox(client, 1), outbox(client, 2)
    deliver(gone, block(0), block(1))
    client.queues.forget(gone)
    deliver(box, block(0), block(1))
    assert (len(box.queue), box.untold) == (2, 0)
