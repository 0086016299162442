"""The watch: what journals tell about trees, deliveries and repairs."""

from pathlib import Path

from quillcast.core import trace
from quillcast.demo.watch import Watch
from tests.demo.journals import INNER, LEAF, ROOT, TERM, TOPIC, chain

PUBLISHER = b"p" * 16


def test_a_tree_is_read_from_the_journals(tmp_path: Path) -> None:
    chain(tmp_path)
    watch = Watch(tmp_path)
    assert len(watch.look()) == 6
    assert watch.topic("a/b").parents() == {ROOT: None, INNER: ROOT, LEAF: INNER}
    assert list(watch.active) == [ROOT]
    assert watch.orphans([]) == 0
    assert watch.look() == []


def test_a_child_is_an_orphan_from_the_kill_until_another_parent_takes_it(tmp_path: Path) -> None:
    peers, watch = chain(tmp_path), Watch(tmp_path)
    watch.look()
    assert watch.orphans([INNER]) == 1
    peers.note(LEAF, trace.Detached(TOPIC, INNER, "lost"))
    watch.look()
    assert watch.orphans([INNER]) == 1
    peers.note(LEAF, trace.Attached(TOPIC, ROOT, "fallback", 1))
    watch.look()
    assert watch.orphans([INNER]) == 0
    assert watch.topic("a/b").parents([INNER]) == {ROOT: None, LEAF: ROOT}


def test_a_peer_that_leaves_a_tree_is_not_an_orphan(tmp_path: Path) -> None:
    peers, watch = chain(tmp_path), Watch(tmp_path)
    peers.note(LEAF, trace.Unsubscribed(TOPIC), trace.Detached(TOPIC, INNER, "left"))
    watch.look()
    assert watch.orphans([INNER]) == 0
    assert LEAF not in watch.topic("a/b").parents()


def test_a_peer_that_loses_its_parent_and_then_leaves_is_not_an_orphan(tmp_path: Path) -> None:
    peers, watch = chain(tmp_path), Watch(tmp_path)
    peers.note(LEAF, trace.Detached(TOPIC, INNER, "lost"), trace.Detached(TOPIC, INNER, "left"))
    watch.look()
    assert watch.orphans([INNER]) == 0


def test_what_is_due_is_what_was_published_and_not_delivered(tmp_path: Path) -> None:
    peers, watch = chain(tmp_path), Watch(tmp_path)
    peers.note(ROOT, trace.Published(TOPIC, PUBLISHER, 0, 10, 100))
    peers.note(LEAF, trace.Delivered(TOPIC, PUBLISHER, 0, 7, 1, TERM, 0))
    watch.look()
    assert (watch.published_count, watch.delivered_count) == (10, 7)
    assert watch.behind([]) == 3
    assert watch.behind([LEAF]) == 0
    peers.note(LEAF, trace.Delivered(TOPIC, PUBLISHER, 7, 3, 1, TERM, 7))
    watch.look()
    assert watch.behind([]) == 0
