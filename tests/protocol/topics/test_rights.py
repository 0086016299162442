"""A change of a topic's access list at one peer: one input, then what was set, sent and ordered."""

import msgspec

from quillcast.live.admission.credentials import Credentials
from quillcast.protocol.security.access import entry
from quillcast.protocol.topics.membership.subscribing import ListChanged
from quillcast.protocol.topics.state.subscription import Subscription, Wish
from quillcast.protocol.topics.state.tree import Tree
from tests.protocol.recording import BOB, CAROL, FIRST, Notes
from tests.protocol.topics.parts import DESCRIPTOR, Parts

OWNER, FRIEND = Credentials.new(), Credentials.new()
RESTRICTED = OWNER.own(msgspec.structs.replace(DESCRIPTOR, access=(entry("subscribe", FRIEND.principal),)))


def follow(world: Parts, tree: Tree) -> None:
    tree.parent = BOB
    world.membership.parents.add(BOB)


def attached(world: Parts) -> Tree:
    """A tree in which this peer has a parent and a child."""
    tree = world.tree()
    tree.flow.begin(FIRST, 0, 0.0, 0)
    follow(world, tree)
    world.child(tree, CAROL)
    world.children.links.add(CAROL)
    return tree


def test_a_list_that_is_learned_bars_children_at_once_and_the_place_is_seen_to_later(world: Parts) -> None:
    rights, tree = world.rights, attached(world)
    tree.descriptor = RESTRICTED
    rights.learned(tree, first=False)
    assert tree.leases.children[CAROL.node_id].barred
    assert world.timers[-1] == ListChanged(tree.topic, revoked=False)
    assert world.sent == [], "who learned the list may still be using the tree"


def test_a_peer_shows_another_right_if_the_one_that_its_parent_knows_is_gone(world: Parts) -> None:
    """That was of a subscriber which has ended since."""
    rights, tree, former = world.rights, attached(world), Credentials.new()
    world.membership.shown[tree.topic] = former.warrant(world.host.me, tree.topic)
    wish = Wish("now", None, FRIEND.warrant(world.host.me, tree.topic))
    tree.start(Subscription(world.host, tree.topic, Notes(), 1, wish))
    tree.descriptor = RESTRICTED
    rights.learned(tree, first=False)
    assert world.timers[-1] == ListChanged(tree.topic, revoked=True)
    world.dispatch.timer(world.timers[-1])
    assert (tree.parent, tree.joining, world.membership.shown[tree.topic]) == (None, True, wish.warrant)


def test_a_list_that_allows_everybody_bars_nobody(world: Parts) -> None:
    rights, tree = world.rights, attached(world)
    rights.learned(tree, first=False)
    assert not tree.leases.children[CAROL.node_id].barred


def test_a_peer_that_may_not_subscribe_counts_as_barred_and_a_root_never_does(world: Parts) -> None:
    tree = attached(world)
    tree.descriptor = RESTRICTED
    world.dispatch.timer(ListChanged(tree.topic, revoked=False))
    assert tree.barred
    root = Parts()
    tree = root.root(RESTRICTED)
    root.dispatch.timer(ListChanged(tree.topic, revoked=True))
    assert not tree.barred
    assert root.sent == []


def test_a_peer_whose_right_is_gone_leaves_a_tree_that_it_no_longer_needs(world: Parts) -> None:
    tree = world.tree()
    tree.flow.begin(FIRST, 0, 0.0, 0)
    follow(world, tree)
    world.dispatch.timer(ListChanged(tree.topic, revoked=True))
    assert (BOB, "Leave") in world.sent


def test_a_topic_that_was_forgotten_meanwhile_needs_nothing(world: Parts) -> None:
    world.dispatch.timer(ListChanged(DESCRIPTOR.topic, revoked=True))
    assert (world.sent, world.ordered) == ([], [])
