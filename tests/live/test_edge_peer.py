"""A subscription and the peer that it asks (`SubscribingPeer`), here one that only notes what it is asked."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from quillcast.core.bundle import Block
from quillcast.core.envelope import Position, Term
from quillcast.core.errors import NotJoined
from quillcast.core.ids import PublisherId
from quillcast.core.loss import Loss
from quillcast.core.messages import Contact
from quillcast.live.edges.peer import SubscribingPeer
from quillcast.live.edges.subscription import DecodeCache, Inbox, Subscription, events
from quillcast.protocol.forwarding.subscriber import Subscriber
from quillcast.protocol.security.access import Warrant
from tests.protocol.recording import BOB


class NotingPeer:
    """Notes what it is asked. Nobody answers it."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []
        self.open: dict[int, None] = {}

    def subscribe(
        self, name: str, subscriber: Subscriber, *, start: str = "now", delivery: str | None = None,
        warrant: Warrant | None = None,
    ) -> int:  # fmt: skip
        self.asked.append(("subscribe", name, start, delivery, warrant))
        self.open[len(self.asked)] = None
        return len(self.asked)

    def unsubscribe(self, subscription: Any, /) -> None:
        self.asked.append(("unsubscribe", subscription))
        del self.open[subscription]

    def subscriptions(self, subscription: Any, /) -> int:
        return len(self.open)

    def drained(self, subscription: Any, /) -> None:
        self.asked.append(("drained", subscription))

    def awaited(self, name: str) -> Sequence[Contact]:
        return [BOB]


TERM, PUBLISHER = Term(1, BOB.node_id), PublisherId(b"publisher-0123456")


class AtOnce:
    """In place of the event pump: carries out calls at once."""

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)


def subscription_at(peer: SubscribingPeer) -> tuple[Subscription[Any], DecodeCache]:
    cache = DecodeCache(join_timeout_s=0.01)
    cache.peer, cache.pump = peer, AtOnce()  # type: ignore[assignment]
    return Subscription("weather", events, Inbox(1 << 20), cache), cache


def test_a_subscription_subscribes_at_its_peer_and_unsubscribes_when_it_is_closed() -> None:
    async def scenario() -> None:
        peer = NotingPeer()
        subscription, _ = subscription_at(peer)
        subscription.open(start="earliest", delivery="best_effort")
        assert peer.asked == [("subscribe", "weather", "earliest", "best_effort", None)]
        await subscription.close()
        await subscription.close()
        assert peer.asked[1:] == [("unsubscribe", 1)]

    asyncio.run(scenario())


def test_decoded_events_are_shared_while_the_peer_has_several_subscriptions_to_a_topic() -> None:
    peer = NotingPeer()
    subscription, cache = subscription_at(peer)
    subscription.open(start="now", delivery=None)
    assert list(cache.shared) == []
    subscription.open(start="now", delivery=None)
    assert list(cache.shared) == ["weather"]


def test_the_application_is_told_of_losses_before_what_comes_after_them_even_if_that_fails() -> None:
    async def scenario() -> None:
        problems: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context["message"]))
        subscription, _ = subscription_at(NotingPeer())
        inbox, told = subscription._inbox, list[object]()

        def on_lost(loss: Loss) -> None:
            told.append(loss.first)
            if loss.first == 3:
                raise ValueError(loss)

        inbox.tell_losses(on_lost)
        for first in (3, 5):
            inbox.lost(Loss(TERM, first, first + 1, "unavailable"))
        inbox.deliver(Block.lone(PUBLISHER, 7, b"", 0), 0, 1, Position(TERM, 7), recovered=True)
        event = await anext(subscription)
        assert (told, event.recovered, len(problems)) == ([3, 5], True, 1)
        await asyncio.sleep(0)
        assert told == [3, 5], "once each"

    asyncio.run(scenario())


def test_a_subscription_that_nobody_accepts_names_the_peers_that_its_peer_waits_for() -> None:
    async def scenario() -> None:
        subscription, _ = subscription_at(NotingPeer())
        subscription.open(start="now", delivery=None)
        with pytest.raises(NotJoined, match="was asked and did not answer") as failed:
            await subscription.started()
        assert failed.value.peers == (BOB.node_id.hex(),)

    asyncio.run(scenario())
