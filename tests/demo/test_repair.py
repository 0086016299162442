"""The repair after a strike: who found whom, and when a tree is whole again."""

from pathlib import Path

from quillcast.core import trace
from quillcast.demo.repair import Repair, counted
from quillcast.demo.watch import Watch
from tests.demo.journals import INNER, LEAF, ROOT, TERM, TOPIC, Peers, chain

NAMES = {ROOT: "root", INNER: "inner", LEAF: "leaf"}


def struck(peers: Peers, folder: Path, victim: bytes) -> tuple[Watch, Repair]:
    watch = Watch(folder)
    watch.look()
    return watch, Repair(watch, victim, [], peers.now_ns)


def how(watch: Watch, repair: Repair) -> str:
    return repair.how(watch.topic("a/b"), NAMES.__getitem__)


def test_one_child_and_one_tree_are_singular() -> None:
    assert counted(1, 1) == "1 child in 1 tree"
    assert counted(0, 2) == "0 children in 2 trees"


def test_a_child_that_finds_another_parent_repairs_the_tree(tmp_path: Path) -> None:
    peers = chain(tmp_path)
    watch, repair = struck(peers, tmp_path, INNER)
    assert (repair.children, repair.trees, repair.repaired, repair.lasted_s) == (1, 1, False, None)
    peers.note(LEAF, trace.Detached(TOPIC, INNER, "lost"), trace.Attached(TOPIC, ROOT, "fallback", 1))
    repair.take(watch.look())
    assert repair.repaired
    assert repair.lasted_s == 2e-9
    assert how(watch, repair) == "leaf under root (fallback)"


def test_a_new_root_that_was_not_a_child_of_the_old_one_is_waited_for_and_reported(tmp_path: Path) -> None:
    peers = chain(tmp_path)
    watch, repair = struck(peers, tmp_path, ROOT)
    peers.note(INNER, trace.Attached(TOPIC, LEAF, "fallback", 1))
    repair.take(watch.look())
    assert (repair.orphans, repair.rootless, repair.repaired) == (0, 1, False)
    peers.note(LEAF, trace.BecameRoot(TOPIC, TERM, "fault"))
    repair.take(watch.look())
    assert (repair.rootless, repair.repaired) == (0, True)
    assert repair.lasted_s == 2e-9
    assert how(watch, repair) == "inner under leaf (fallback); leaf is the new root"


def test_records_of_the_victim_and_older_ones_are_ignored(tmp_path: Path) -> None:
    peers = chain(tmp_path)
    watch, repair = struck(peers, tmp_path, INNER)
    repair.take(Watch(tmp_path).look())
    peers.note(INNER, trace.BecameRoot(TOPIC, TERM, "fault"))
    repair.take(watch.look())
    assert (repair.repaired, repair.lasted_s, how(watch, repair)) == (False, None, "")


def test_a_victim_without_children_leaves_nothing_to_repair(tmp_path: Path) -> None:
    watch, repair = struck(chain(tmp_path), tmp_path, LEAF)
    assert (repair.children, repair.trees, repair.repaired) == (0, 0, True)
    assert how(watch, repair) == ""
