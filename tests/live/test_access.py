"""`credentials=`: a topic's owner says who publishes and who subscribes; whoever else tries is told the rule."""

import errno
import os
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

import quillcast
from quillcast import AccessDenied, Config, Credentials, Node
from quillcast.core.bundle import Block, Bundle
from quillcast.core.envelope import Envelope, Kind
from quillcast.core.ids import topic_id
from quillcast.protocol.overlay.config import OverlayConfig
from quillcast.protocol.security.access import Warrant
from quillcast.protocol.topics.descriptor import Descriptor, Settings
from quillcast.protocol.topics.messages import Denied
from quillcast.protocol.topics.root_messages import Created
from tests.live.test_node import pair, run, take

pytestmark = pytest.mark.live

QUICK = Config()
OWNER, FRIEND, STRANGER = Credentials.new(), Credentials.new(), Credentials.new()


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def root_of(topic: str, *nodes: Node) -> tuple[Node, Node]:
    """Whichever of two nodes is the topic's root, and the other one."""
    tree = topic_id(topic)
    roots = [node for node in nodes if (kept := node._peer.topics.trees.get(tree)) is not None and kept.root]
    (root,) = roots
    (other,) = [node for node in nodes if node is not root]
    return root, other


async def denied(work: object) -> str:
    with pytest.raises(AccessDenied) as refused:
        await work  # type: ignore[misc]
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_only_those_on_the_list_publish_wherever_they_are() -> None:
    async def scenario() -> None:
        async with pair() as nodes:
            await nodes[0].create("t", credentials=OWNER, publishers=[FRIEND.principal])
            subscription = nodes[1].subscribe("t")  # no entry names who subscribes
            await subscription.started()
            for node in nodes:
                for who, mine in (
                    (STRANGER, f"the credential {STRANGER.principal[:8]}"),
                    (None, "without credentials"),
                ):
                    text = await denied(node.publish("t", b"no", credentials=who, wait="root"))
                    assert "may not publish to topic 't'; only these may: " in text
                    assert f"{OWNER.principal[:8]} (its owner), {FRIEND.principal[:8]}. Ask" in text
                    assert mine in text
                await node.publish("t", b"friend", credentials=FRIEND, wait="root")
                await node.publish("t", b"owner", credentials=OWNER, wait="root")
            got = [event.payload for event in await take(subscription, 4)]
            assert sorted(got) == [b"friend", b"friend", b"owner", b"owner"]

    run(scenario())


def test_only_those_on_the_list_subscribe_wherever_they_are() -> None:
    async def scenario() -> None:
        async with pair() as nodes:
            await nodes[0].create("t", credentials=OWNER, subscribers=[FRIEND.principal])
            for node in nodes:
                for who in (STRANGER, None):
                    text = await denied(node.subscribe("t", credentials=who).started())
                    assert "may not subscribe to topic 't'; only these may: " in text
            friends = [node.subscribe("t", credentials=FRIEND) for node in nodes]
            for friend in friends:
                await friend.started()
            await nodes[1].publish("t", b"for friends", wait="stable")
            for friend in friends:
                assert [event.payload for event in await take(friend, 1)] == [b"for friends"]
            for node in nodes:
                await denied(node.subscribe("t", credentials=STRANGER).started())  # nor beside one that may

    run(scenario())


def test_who_is_taken_off_the_list_of_subscribers_is_told_so_wherever_it_is() -> None:
    async def scenario() -> None:
        async with pair() as nodes:
            await nodes[0].create("t", credentials=OWNER, subscribers=[FRIEND.principal, STRANGER.principal])
            friends, strangers = (
                [node.subscribe("t", credentials=who) for node in nodes] for who in (FRIEND, STRANGER)
            )
            for each in (*friends, *strangers):
                await each.started()
            await nodes[1].publish("t", b"for all", wait="stable")
            await nodes[1].change("t", credentials=OWNER, subscribers=[FRIEND.principal])
            await nodes[1].publish("t", b"for friends", wait="stable")
            for friend in friends:
                assert [event.payload for event in await take(friend, 2)] == [b"for all", b"for friends"]
            for stranger in strangers:
                assert [event.payload for event in await take(stranger, 1)] == [b"for all"]
                assert "may not subscribe to topic 't'; only these may: " in await denied(anext(stranger))

    run(scenario())


def test_a_root_takes_nothing_from_a_peer_that_does_not_ask_first() -> None:
    async def scenario() -> None:
        async with pair() as nodes:
            await nodes[0].create("t", credentials=OWNER, publishers=[FRIEND.principal])
            root, other = root_of("t", *nodes)
            block = Block.seal(b"p" * 16, 0, [b"forced in"], time_ns=0)
            before = root._peer.topics.trees[topic_id("t")].root.index
            envelope = Envelope(topic_id("t"), Kind.UP, first=0)
            other._pump.call(other._peer.host.carry, root.contact, Bundle(envelope, (block,)))
            await root._pump.until(lambda: root._links.counters["bundles_in"] == 1)
            assert root._peer.topics.trees[topic_id("t")].root.index == before
            await other.publish("t", b"as it should be", credentials=FRIEND, wait="root")
            assert root._peer.topics.trees[topic_id("t")].root.index == before + 1

    run(scenario())


def test_a_warrant_of_another_peer_or_topic_is_invalid() -> None:
    async def scenario() -> None:
        async with pair() as nodes:
            await nodes[0].create("t", credentials=OWNER, subscribers=[FRIEND.principal])
            root, other = root_of("t", *nodes)
            for stolen in (
                FRIEND.warrant(root.contact.node_id, topic_id("t")),
                FRIEND.warrant(other.contact.node_id, topic_id("u")),
                Warrant(FRIEND.public_key, bytes(64)),
            ):
                subscription = other.subscribe("u")
                other._pump.call(partial(other._peer.subscribe, "t", subscription._inbox, warrant=stolen))
                inbox = subscription._inbox
                while inbox.failure is None:
                    await inbox.changed()
                assert isinstance(inbox.failure, AccessDenied)
                inbox.failure = None

    run(scenario())


def test_what_the_owner_did_not_sign_changes_nothing() -> None:
    async def scenario() -> None:
        async with pair() as nodes:
            stands = await nodes[0].create("t", credentials=OWNER, publishers=[FRIEND.principal])
            root, other = root_of("t", *nodes)
            open_to_all = msgspec.structs.replace(stands, access=(), version=99)
            for forged in (
                open_to_all,
                msgspec.structs.replace(open_to_all, owner_key=b"", signature=b""),
                STRANGER.own(open_to_all),
                Descriptor("t", Settings(), version=99),
            ):
                root._pump.call(root._peer.topics.known.learn, forged)
                assert root._peer.topics.descriptors[topic_id("t")] == stands
            claimed = (
                f"two owners claim topic 't', {OWNER.principal[:8]} and {STRANGER.principal[:8]}: "
                "the root's owner prevails"
            )
            assert [line.partition(";")[0] for line in root.status().problems] == [claimed]
            await denied(other.publish("t", b"no", credentials=STRANGER, wait="root"))
            root._pump.call(root._peer.topics.known.learn, OWNER.own(open_to_all))
            assert root._peer.topics.descriptors[topic_id("t")].access == ()

    run(scenario())


def test_a_forged_change_goes_no_further_than_the_peer_that_it_came_to() -> None:
    async def scenario() -> None:
        async with pair() as nodes:
            stands = await nodes[0].create("t", credentials=OWNER, publishers=[FRIEND.principal])
            root, other = root_of("t", *nodes)
            forged = msgspec.structs.replace(stands, access=(f"publish:{STRANGER.principal}",), version=99)
            await root.publish("t", b"one", credentials=FRIEND, wait="root")
            other._pump.call(other._peer.host.send, root.contact, Created(forged))
            other._pump.call(other._peer.host.send, root.contact, Denied(forged))
            await other.publish("t", b"two", credentials=FRIEND, wait="root")  # on the same link, and so after both
            assert root._peer.topics.descriptors[topic_id("t")] == stands
            await root.publish("t", b"three", credentials=FRIEND, wait="root")

    run(scenario())


def test_a_topic_has_one_owner_who_alone_changes_it() -> None:
    async def scenario() -> None:
        async with pair() as nodes:
            await nodes[0].create("t", credentials=OWNER, publishers=[FRIEND.principal])
            again = await nodes[1].create("t", credentials=OWNER, publishers=[FRIEND.principal])
            assert again.version == 1
            with pytest.raises(quillcast.TopicExists, match=f"another owner or access list: {OWNER.principal[:8]}"):
                await nodes[1].create("t", credentials=STRANGER)
            for who in (None, STRANGER):
                text = await denied(nodes[1].change("t", credentials=who, slow="wait"))
                assert f"can be changed only by its owner {OWNER.principal[:8]}" in text
            assert (await nodes[1].change("t", credentials=OWNER, slow="wait")).settings.slow == "wait"
            await denied(nodes[0].publish("t", b"no", wait="root"))  # the list stands as before
            publisher = nodes[0].publisher("t", credentials=FRIEND)
            await publisher.publish(b"yes", wait="root")
            await nodes[1].change("t", credentials=OWNER, publishers=[STRANGER.principal])
            await denied(publisher.publish(b"no", wait="root"))
            await nodes[0].publish("t", b"yes", credentials=STRANGER, wait="root")

    run(scenario())


def test_rights_outlive_the_root() -> None:
    async def scenario() -> None:
        config = Config(overlay=OverlayConfig())
        async with Node(config=config) as alice, Node(config=config) as bob:
            carol = Node(config=config)
            await carol.start()
            nodes = [alice, bob, carol]
            name = next(f"t/{n}" for n in range(1000) if _closest(f"t/{n}", nodes) is carol)
            await alice.create(name, credentials=OWNER, publishers=[FRIEND.principal], subscribers=[FRIEND.principal])
            subscription = bob.subscribe(name, credentials=FRIEND)
            await subscription.started()
            await alice.publish(name, b"before", credentials=FRIEND, wait="root")
            await carol.leave()
            await alice.publish(name, b"after", credentials=FRIEND, wait="root")
            assert [event.payload for event in await take(subscription, 2)] == [b"before", b"after"]
            for node in (alice, bob):
                await denied(node.publish(name, b"no", credentials=STRANGER, wait="root"))
                await denied(node.subscribe(name, credentials=STRANGER).started())

    run(scenario())


def _closest(name: str, nodes: list[Node]) -> Node:
    from quillcast.core.ids import ring_distance

    return min(nodes, key=lambda node: ring_distance(node.contact.node_id, topic_id(name)))


def test_invalid_requests_fail_before_anything_is_sent() -> None:
    async def scenario() -> None:
        async with Node(config=QUICK) as node:
            with pytest.raises(quillcast.LocalError, match="needs an owner: pass credentials="):
                await node.create("t", publishers=[FRIEND.principal])
            with pytest.raises(quillcast.LocalError, match="'alice' is not a principal"):
                await node.create("t", credentials=OWNER, publishers=["alice"])
            with pytest.raises(quillcast.LocalError, match="257 entries are too many"):
                await node.create("t", credentials=OWNER, publishers=[FRIEND.principal] * 257)

    run(scenario())


def test_credentials_are_kept_in_a_file_of_the_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "me.pem"
    OWNER.save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert Credentials.load(path).principal == OWNER.principal
    with pytest.raises(quillcast.LocalError, match=r"me\.pem: File exists"):
        STRANGER.save(path)
    with pytest.raises(quillcast.LocalError, match="cannot be read: No such file"):
        Credentials.load(tmp_path / "none")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(quillcast.LocalError, match="holds no credentials"):
        Credentials.load(tmp_path / "text")


def test_credentials_that_the_disk_has_no_room_for_leave_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, mode: str) -> Any:
        os.close(descriptor)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fdopen", full)
    with pytest.raises(quillcast.DiskFailed, match=r"cannot be written to .*: No space left on device"):
        quillcast.Credentials.new().save(tmp_path / "me.pem")
    assert list(tmp_path.iterdir()) == []
