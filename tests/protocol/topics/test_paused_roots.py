"""What a root does after a pause of its process: one input, then what was held and settled."""

from quillcast.protocol.topics.root.paused_roots import DoubtOver
from tests.protocol.recording import BOB
from tests.protocol.topics.parts import CONFIG, Parts


def test_a_root_declares_nothing_stable_for_a_lease(world: Parts) -> None:
    tree = world.root()
    world.paused_roots.hold(tree, 5.0)
    assert tree.root is not None
    assert (tree.root.paused_until, tree.doubted) == (5.0 + CONFIG.lease_s, True)


def test_topics_of_one_pause_share_a_timer(world: Parts) -> None:
    for _ in range(2):
        world.paused_roots.hold(world.tree(), 5.0)
    assert [timer for timer in world.timers if isinstance(timer, DoubtOver)] == [DoubtOver(5.0)]


def test_the_doubt_of_the_latest_pause_ends_for_a_peer_that_still_has_its_parent(world: Parts) -> None:
    tree = world.tree()
    tree.parent = BOB
    for now in (5.0, 6.0):
        world.paused_roots.hold(tree, now)
    world.dispatch.timer(DoubtOver(5.0))
    assert tree.doubted
    world.dispatch.timer(DoubtOver(6.0))
    assert not tree.doubted


def test_a_root_remains_in_doubt_until_its_replicas_answer(world: Parts) -> None:
    tree = world.root()
    world.paused_roots.hold(tree, 5.0)
    world.dispatch.timer(DoubtOver(5.0))
    assert tree.doubted
