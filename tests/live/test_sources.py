"""Topics whose events are numbered by their sources, with real processes' nodes."""

from pathlib import Path

import pytest

from quillcast import AccessDenied, Config, Credentials, LiveConfig, Node, NotAdmitted, NotStable
from quillcast.protocol.topics.config import TopicConfig
from tests.cli.commands import topic_near
from tests.live.test_node import run, take

pytestmark = pytest.mark.live


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def test_three_nodes_publish_to_each_other_and_hear_what_became_of_it() -> None:
    async def scenario() -> None:
        async with Node() as alice, Node() as bob, Node() as carol:
            nodes = (alice, bob, carol)
            created = await alice.create("prices", admission="source")
            assert created.settings.admission == "source"
            subscriptions = [node.subscribe("prices") for node in nodes]
            for subscription in subscriptions:
                await subscription.started()
            for number, node in enumerate(nodes):
                publisher = node.publisher("prices")
                await publisher.publish(b"%d" % number, wait="root")
                await publisher.publish(b"%d again" % number, wait="stable")
            for subscription in subscriptions:
                events = await take(subscription, 6)
                assert sorted(event.payload for event in events) == [
                    b"0", b"0 again", b"1", b"1 again", b"2", b"2 again",
                ]  # fmt: skip
            tree = await bob.tree("prices")
            assert [(peer.source, peer.streams) for peer in tree.peers] == [(True, 3)] * 3
            assert all(lag.behind_events <= 1 for peer in tree.peers for lag in peer.lags), (
                "the one that is being handled"
            )

    run(scenario())


def test_who_holds_up_what_a_source_published_is_named() -> None:
    async def scenario() -> None:
        async with Node() as alice, Node(live=LiveConfig(subscription_bytes=10_000)) as bob:
            await alice.create("prices", admission="source", slow="wait")
            await bob.subscribe("prices").started()
            publisher = alice.publisher("prices")
            for _ in range(30):
                await publisher.publish(bytes(1000), wait="root")
            with pytest.raises(NotStable) as error:
                await publisher.publish(b"last", wait="stable", timeout_s=1.0)
            assert error.value.peers == (bob.contact.node_id.hex(),)

    run(scenario())


def test_a_list_says_who_may_be_a_source() -> None:
    async def scenario() -> None:
        owner, friend, stranger = (Credentials.new() for _ in range(3))
        async with Node() as alice, Node() as bob, Node() as carol:
            await alice.create("prices", admission="source", credentials=owner, publishers=[friend.principal])
            subscriptions = [node.subscribe("prices") for node in (alice, bob, carol)]
            for subscription in subscriptions:
                await subscription.started()
            await bob.publish("prices", b"a friend's", credentials=friend, wait="stable")
            for who in (stranger, None):
                with pytest.raises(AccessDenied, match=friend.principal[:8]):
                    await carol.publish("prices", b"a stranger's", credentials=who, wait="root")
            await carol.publish("prices", b"the owner's", credentials=owner, wait="stable")
            for subscription in subscriptions:
                assert [event.payload for event in await take(subscription, 2)] == [b"a friend's", b"the owner's"]

    run(scenario())


def test_a_source_that_is_one_too_many_is_told_so() -> None:
    async def scenario() -> None:
        config = Config(topics=TopicConfig(streams_max=1))
        async with Node(config=config) as alice, Node(config=config) as bob:
            await alice.create(topic := topic_near(alice.status().node_id), admission="source")  # alice stays its root
            await bob.subscribe(topic).started()
            await alice.publisher(topic).publish(b"first", wait="stable")
            async with Node(config=config) as carol:  # knows none of the others
                with pytest.raises(NotAdmitted, match=r"no peer took the event .* as many sources as it may have"):
                    await carol.publish(topic, b"third", wait="root", timeout_s=2.0)
            with pytest.raises(NotAdmitted, match="as many sources as it may have"):
                await bob.publisher(topic).publish(b"second", wait="root", timeout_s=1.0)
            [problem] = bob.status().problems
            bounds = "streams_max, or streams.map_bytes_max for all topics of two peers"
            bound = f"topic {topic} has as many sources as it may have ({bounds}): wait until one ends"
            assert problem == f"publishers here wait: {bound}"
            assert not alice.status().problems
            assert [(each.source, each.streams) for each in (alice.status().topics[0], bob.status().topics[0])] == [
                (True, 1), (False, 1),
            ]  # fmt: skip

    run(scenario())
