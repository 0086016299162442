"""Nodes in processes of their own: leaving, coming back, and what stays bounded or whole when things go wrong."""

import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from quillcast.pipeline.reading import Tail
from tests.live.stage import PuppetError, Stage, eventually

pytestmark = [pytest.mark.live, pytest.mark.slow]

MIB = 1 << 20


def test_two_nodes_find_each_other_and_talk(stage: Stage) -> None:
    alice, bob = stage.start(), stage.start()
    bob.ask("subscribe", topic="t")
    alice.ask("publish", topic="t", tag="a", count=500, per_s=0)
    eventually(lambda: bob.ask("report", topic="t")["next"] == {"a": 500}, "bob has everything")
    assert bob.ask("report", topic="t")["wrong"] == []


def test_many_that_start_at_once_become_one_network(stage: Stage) -> None:
    puppets = [stage.spawn() for _ in range(8)]
    for puppet in puppets:
        puppet.arrive()
    for puppet in puppets:
        eventually(lambda puppet=puppet: len(puppet.ask("status")["leaf_set"]) == 7, "everybody knows everybody")


def test_a_node_that_leaves_is_gone_at_once_and_leaves_no_files(stage: Stage) -> None:
    alice, bob, carol = stage.start_many(3)
    for one in (alice, bob, carol):
        one.ask("subscribe", topic="t")
    alice.ask("publish", topic="t", tag="a", count=600, per_s=300)
    eventually(lambda: alice.ask("progress").get("a", 0) > 50, "events flow")
    assert bob.leave() == 0
    alice.ask("finish", tag="a")
    eventually(lambda: carol.ask("report", topic="t")["next"] == {"a": 600}, "carol has everything")
    report = carol.ask("report", topic="t")
    assert (report["wrong"], report["lost"]) == ([], 0)
    assert bob.node_id not in [contact["node_id"] for contact in carol.ask("status")["leaf_set"]]
    files = [path.name for path in (stage.runtime / "quillcast" / "stage").iterdir()]
    assert not [name for name in files if name.startswith(bob.node_id[:16])]


def test_a_node_that_publishes_and_leaves_at_once_loses_nothing(stage: Stage) -> None:
    alice, bob = stage.start(), stage.start()
    bob.ask("subscribe", topic="t")
    alice.ask("publish", topic="t", tag="a", count=20_000, per_s=0)
    alice.ask("finish", tag="a")
    assert alice.leave() == 0
    eventually(lambda: bob.ask("report", topic="t")["next"] == {"a": 20_000}, "bob has everything")


@pytest.mark.parametrize("how", ["leave", "kill"])
def test_a_node_restarts_from_its_data_folder_as_the_same_peer(stage: Stage, tmp_path: Path, how: str) -> None:
    alice = stage.start()
    data = str(tmp_path / "data")
    bob = stage.start(data=data)
    bob.ask("subscribe", topic="t")
    getattr(bob, how)()
    again = stage.start(data=data)
    assert again.node_id == bob.node_id
    again.ask("subscribe", topic="t")
    alice.ask("publish", topic="t", tag="a", count=100, per_s=0)
    eventually(lambda: again.ask("report", topic="t")["next"] == {"a": 100}, "the one that came back has everything")


def test_a_node_that_restarts_finds_its_former_neighbours_without_the_folder_they_met_in(
    stage: Stage, tmp_path: Path
) -> None:
    alice = stage.start()
    stage.start(data=str(tmp_path / "data")).leave()
    stage.runtime = tmp_path / "elsewhere"
    bob = stage.start(data=str(tmp_path / "data"))
    assert [contact["node_id"] for contact in bob.ask("status")["leaf_set"]] == [alice.node_id]


def test_a_chosen_topic_outlives_a_restart_of_the_only_peer(stage: Stage, tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    alone = stage.start(data=data)
    alone.ask("create", topic="t", slow="wait")
    alone.leave()
    again = stage.start(data=data)
    with pytest.raises(PuppetError, match="TopicExists: topic 't' exists with other settings"):
        again.ask("create", topic="t", slow="cut")


def test_a_data_folder_of_a_running_node_is_refused(stage: Stage, tmp_path: Path) -> None:
    first = stage.start(data=str(tmp_path))
    with pytest.raises(PuppetError, match=rf"belongs to a running peer \(pid {first.process.pid}\)"):
        stage.start(data=str(tmp_path))


def test_ctrl_c_leaves_in_good_order(stage: Stage) -> None:
    alice, bob = stage.start(), stage.start()
    bob.process.send_signal(signal.SIGINT)
    bob.process.wait(20)
    eventually(lambda: alice.ask("status")["leaf_set"] == [], "alice knows that bob left")
    assert len(list((stage.runtime / "quillcast" / "stage").glob("*.json"))) == 1


def test_ctrl_c_before_the_network_answers_ends_the_start(stage: Stage) -> None:
    alice = stage.start()
    alice.stop()
    bob = stage.spawn(contacts=[alice.address])
    eventually(lambda: len(list((stage.runtime / "quillcast" / "stage").glob("*.json"))) == 2, "bob looks for alice")
    bob.process.send_signal(signal.SIGINT)
    bob.process.wait(20)
    assert len(list((stage.runtime / "quillcast" / "stage").glob("*.json"))) == 1


def test_memory_is_bounded_under_a_stopped_child(stage: Stage) -> None:
    """Neither the publisher nor the forwarders grow past their windows and buffers while one child reads nothing."""
    bounds = {"topics": {"budget_bytes": 8 * MIB, "retain_bytes": 8 * MIB, "patience_s": 0.5}}
    alice, bob, carol, stopped = stage.start_many(4, config=bounds)
    for subscriber in (carol, stopped):
        subscriber.ask("subscribe", topic="t")
    alice.ask("say", topic="t", text="x:0", wait="stable")
    before = {puppet.node_id: puppet.ask("status")["rss_bytes"] for puppet in (alice, bob, carol)}
    stopped.stop()
    alice.ask("publish", topic="t", tag="a", count=200_000, per_s=0, size_bytes=2000)
    eventually(lambda: alice.ask("progress").get("a", 0) > 100_000, "200 MB have passed the paused one")
    for puppet in (alice, bob, carol):
        status = puppet.ask("status")
        waiting = [neighbour["waiting_bytes"] for neighbour in status["neighbours"]]
        assert max(waiting) <= 6 * MIB
        assert status["peak_rss_bytes"] - before[puppet.node_id] < 100 * MIB, status
    alice.ask("finish", tag="a")
    eventually(lambda: carol.ask("report", topic="t")["next"].get("a") == 200_000, "carol has everything")
    report = carol.ask("report", topic="t")
    assert (report["wrong"], report["lost"]) == ([], 0)


@pytest.mark.parametrize("stopped", [False, True])
def test_a_killed_subscriber_holds_nothing_back(stage: Stage, *, stopped: bool) -> None:
    """Its lease would go on for 30 s; the kernel says that its process has ended."""
    puppets = stage.start_many(3)
    for one in puppets:
        one.ask("subscribe", topic="t")
    root_id = puppets[0].ask("tree", topic="t")["root"]
    root, other, killed = sorted(puppets, key=lambda one: one.node_id != root_id)
    other.ask("say", topic="t", text="x:0", wait="stable")
    if stopped:
        killed.stop()
        other.ask("say", topic="t", text="x:1", wait="root")
    killed.kill()
    root.ask("say", topic="t", text="y:0", wait="stable", timeout_s=10)
    other.ask("say", topic="t", text="x:2", wait="stable", timeout_s=10)


@contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[Path]:
    """A file system of its own that is soon full."""
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)]
    done = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stderr.strip()}; this test mounts a small tmpfs, which takes root"
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_ends_the_journal_and_not_the_node(stage: Stage, tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 256 << 10) as folder:
        alice = stage.start(journal=str(folder), data=str(tmp_path / "data"))
        bob = stage.start()
        bob.ask("subscribe", topic="t")
        alice.ask("publish", topic="t", tag="a", count=3000, per_s=1500)
        eventually(lambda: alice.ask("status")["journal"]["failed"], "the disk is full")
        alice.ask("finish", tag="a")
        eventually(lambda: bob.ask("report", topic="t")["next"] == {"a": 3000}, "bob has everything")
        assert "No space left on device" in alice.ask("status")["journal"]["failed"]
        alice.leave()


def test_a_data_folder_on_a_full_disk_is_a_clear_error(stage: Stage, tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 16 << 10) as folder:
        (folder / "ballast").write_bytes(bytes(12 << 10))
        with pytest.raises(PuppetError, match=r"DiskFailed: .*(disk is full|No space left|disk I/O error)"):
            stage.start(data=str(folder / "data"))


def test_a_disk_without_a_single_byte_names_the_file(stage: Stage, tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 16 << 10) as folder:
        (folder / "data").mkdir()
        (folder / "ballast").touch()
        with suppress(OSError), (folder / "ballast").open("wb", buffering=0) as ballast:
            while ballast.write(bytes(1 << 10)):
                pass
        with pytest.raises(PuppetError, match=r"DiskFailed: .*/data/lock: No space left on device; name another data"):
            stage.start(data=str(folder / "data"))


def test_a_journal_without_its_folder_is_reported_and_continues_when_it_is_back(stage: Stage, tmp_path: Path) -> None:
    folder = tmp_path / "journals"
    alice = stage.start(journal=str(folder))
    shutil.rmtree(folder)
    status = alice.ask("status")
    assert "was removed; nothing is written until it is back" in status["journal"]["failed"]
    assert status["journal"]["removed"] == 1
    assert [line for line in status["problems"] if "its journal was removed" in line]
    alice.ask("say", topic="t", text="x:0", wait="root")
    folder.mkdir()
    status = alice.ask("status")
    assert (status["journal"]["failed"], status["journal"]["removed"]) == (None, 1)
    assert len([line for line in status["problems"] if "its journal was removed" in line]) == 1
    alice.leave()
    assert Tail(folder).read()


def test_a_data_folder_that_was_removed_is_reported_and_filled_again_when_it_is_back(
    stage: Stage, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    alice = stage.start(data=str(folder))
    shutil.rmtree(folder)
    alice.ask("create", topic="kept", slow="wait")
    node_id, problems = (alice.ask("status")[name] for name in ("node_id", "problems"))
    assert [line for line in problems if f"the data folder {folder} was removed" in line]
    folder.mkdir()
    alice.leave()
    again = stage.start(data=str(folder)).ask("status")
    assert again["node_id"] == node_id
    assert [topic["name"] for topic in again["topics"]] == ["kept"]
