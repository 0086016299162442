"""Nodes with a forwarding policy of the application's own."""

from contextlib import AsyncExitStack

import pytest

from quillcast import Node
from quillcast.core.errors import LocalError
from tests.live.test_node import run, take
from tests.sim.test_policies import Chain

pytestmark = pytest.mark.live


def test_nodes_with_a_chain_forward_events_along_one_line() -> None:
    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            nodes = [await stack.enter_async_context(Node(forwarding_policy=Chain())) for _ in range(5)]
            subscriptions = [node.subscribe("t") for node in nodes]
            for subscription in subscriptions:
                await subscription.started()
            await nodes[0].publish("t", b"hello", wait="stable")
            assert [(await take(subscription, 1))[0].payload for subscription in subscriptions] == [b"hello"] * 5
            tree = await nodes[0].tree("t")
            assert sorted(len(peer.children) for peer in tree.peers) == [0, 1, 1, 1, 1]

    run(scenario())


def test_a_class_is_no_forwarding_policy() -> None:
    with pytest.raises(LocalError, match=r"forwarding_policy = .*Chain.* is .*; use an object with its methods"):
        Node(forwarding_policy=Chain)  # type: ignore[arg-type]
