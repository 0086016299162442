"""The blocking façade: no event loop in sight, and everything that the asynchronous node promises."""

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import quillcast
from quillcast import BlockingNode

pytestmark = pytest.mark.live
ENOUGH_S = 30.0


@pytest.fixture(autouse=True)
def runtime_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@pytest.fixture
def node() -> Iterator[BlockingNode]:
    with BlockingNode() as made:
        yield made


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "quillcast"]


def test_two_nodes_say_hello() -> None:
    with BlockingNode() as alice, BlockingNode() as bob:
        with alice.subscribe("sport/tennis") as subscription:
            bob.publish("sport/tennis", b"hello", key=b"match 1", attributes={"set": 2}, wait="stable")
            event = next(subscription)
        assert (event.payload, event.key, event.attributes) == (b"hello", b"match 1", {"set": 2})
        assert alice.network == "default"
        assert alice.address in {link.address for link in bob.status().neighbours}
        assert alice.tree("sport/tennis").topic == "sport/tennis"
    assert threads() == []


def test_many_events_come_in_order_and_once(node: BlockingNode) -> None:
    with node.subscribe("numbers") as subscription, node.publisher("numbers") as publisher:
        payloads = [b"%d" % number for number in range(20_000)]
        feeding = threading.Thread(target=publisher.publish_many, args=(payloads,), kwargs={"wait": "stable"})
        feeding.start()
        assert [event.payload for event in subscription.take(20_000, ENOUGH_S)] == payloads
        feeding.join()
        assert (publisher.sequence, subscription.lost_count, subscription.lost) == (20_000, 0, [])


def test_a_wait_that_times_out_says_for_what_and_loses_nothing(node: BlockingNode) -> None:
    with node.subscribe("silence") as subscription:
        with pytest.raises(TimeoutError, match=r"no event of 'silence' came within 0\.05 s"):
            subscription.get(0.05)
        assert subscription.take(3, 0.05) == []
        node.publish("silence", b"one")
        assert subscription.get(ENOUGH_S).payload == b"one"


def test_settings_are_those_of_the_network(node: BlockingNode) -> None:
    assert node.create("chat", slow="wait").settings.slow == "wait"
    assert node.change("chat", event_bytes_max=3).settings.event_bytes_max == 3
    with pytest.raises(quillcast.EventTooLarge, match="over the limit of 3"):
        node.publish("chat", b"four")
    with pytest.raises(quillcast.TopicExists):
        node.create("chat", slow="cut")


def test_topics_with_an_owner_take_credentials(node: BlockingNode) -> None:
    owner = quillcast.Credentials.new()
    node.create("mine", credentials=owner, publishers=[quillcast.Credentials.new().principal])
    with pytest.raises(quillcast.AccessDenied):
        node.publish("mine", b"not me", wait="root")
    with node.subscribe("mine", credentials=owner) as subscription:
        node.publish("mine", b"me", wait="root", credentials=owner)
        with node.publisher("mine", credentials=owner) as publisher:
            publisher.publish_many([b"again"], wait="root")
        assert [event.payload for event in subscription.take(2, ENOUGH_S)] == [b"me", b"again"]


def test_a_closed_subscription_ends(node: BlockingNode) -> None:
    subscription = node.subscribe("t")
    subscription.close()
    assert list(subscription) == []
    with pytest.raises(quillcast.LocalError, match="the subscription to 't' has ended"):
        subscription.get()


def test_leaving_ends_waits_in_other_threads() -> None:
    node = BlockingNode()
    node.start()
    got: list[bytes] = []
    subscription = node.subscribe("t")
    waiting = threading.Thread(target=lambda: got.extend(event.payload for event in subscription))
    waiting.start()
    node.publish("t", b"x", wait="stable")
    node.leave()
    waiting.join(ENOUGH_S)
    assert not waiting.is_alive()
    assert got == [b"x"]
    node.leave()  # once is enough, twice is no harm


def test_many_threads_may_have_a_node_leave() -> None:
    node, problems = BlockingNode(), list[BaseException]()
    node.start()

    def leave() -> None:
        try:
            node.leave()
        except BaseException as problem:  # noqa: BLE001 - looked at below
            problems.append(problem)

    leaving = [threading.Thread(target=leave) for _ in range(4)]
    for thread in leaving:
        thread.start()
    for thread in leaving:
        thread.join(ENOUGH_S)
    assert (problems, threads()) == ([], [])


def test_what_was_taken_by_an_interrupted_call_comes_again(node: BlockingNode, monkeypatch: pytest.MonkeyPatch) -> None:
    with node.subscribe("t") as subscription:
        for payload in (b"1", b"2", b"3"):
            node.publish("t", payload, wait="stable")
        take, taken = subscription._take, []

        def interrupted(timeout_s: float | None) -> quillcast.Event | None:
            if len(taken) == 2:
                raise KeyboardInterrupt
            taken.append(take(timeout_s))
            return taken[-1]

        with monkeypatch.context() as patch:
            patch.setattr(subscription, "_take", interrupted)
            with pytest.raises(KeyboardInterrupt):
                subscription.take(10)
        assert [event.payload for event in subscription.take(3, ENOUGH_S)] == [b"1", b"2", b"3"]


def test_what_is_there_comes_without_waiting(node: BlockingNode) -> None:
    with node.subscribe("t") as subscription:
        with pytest.raises(TimeoutError):
            subscription.get(0)
        for number in range(5):  # in blocks of their own
            node.publish("t", b"%d" % number, wait="stable")
        assert subscription.get(0).payload == b"0"
        assert [event.payload for event in subscription.take(10, 0)] == [b"1", b"2", b"3", b"4"]


def test_many_events_that_would_not_be_acknowledged_are_refused_before_the_first(node: BlockingNode) -> None:
    node.create("loose", delivery="best_effort")
    with node.publisher("loose") as publisher:
        with pytest.raises(quillcast.LocalError, match="acknowledges nothing"):
            publisher.publish_many([b"1", b"2"], wait="root")
        assert publisher.sequence == 0


def test_a_forked_process_has_no_node(tmp_path: Path) -> None:
    program = (
        "import os, quillcast\n"
        "with quillcast.BlockingNode() as node:\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        try:\n"
        "            node.publish('t', b'x')\n"
        "        except quillcast.LocalError as problem:\n"
        "            print(problem, flush=True)\n"
        "        os._exit(7)\n"  # libuv's own threads are no more: its end of a process does not look for that
        "    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\n"
        "    node.publish('t', b'x', wait='root')\n"
        "print(code)\n"
    )
    environment = {"XDG_RUNTIME_DIR": str(tmp_path), "PATH": ""}
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False, timeout=ENOUGH_S
    )
    told = "the node runs in the process that this one was forked from; make one here\n7\n"
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, told, "")


def test_what_cannot_be_is_said_in_one_line() -> None:
    node = BlockingNode()
    with pytest.raises(quillcast.LocalError, match="the node is not started"):
        node.publish("t", b"x")
    with node:
        with pytest.raises(quillcast.LocalError, match="not a topic name"):
            node.subscribe("t//u")
        with pytest.raises(quillcast.LocalError, match="a node starts once"):
            node.start()
        with pytest.raises(quillcast.LocalError, match="payload is bytes, not str"):
            node.publish("t", "text")  # type: ignore[arg-type]
    with pytest.raises(quillcast.LocalError, match="the node has left its network"):
        node.publish("t", b"x")
    gc.collect()


def test_a_node_that_cannot_join_leaves_no_thread() -> None:
    with pytest.raises(quillcast.Unreachable), BlockingNode(contacts=["127.0.0.1:1"]):
        pass
    assert threads() == []


def test_a_node_works_while_the_program_does_something_else(node: BlockingNode) -> None:
    with BlockingNode() as other, other.subscribe("t") as subscription:
        node.publish("t", b"x", wait="stable")
        until = time.monotonic() + 0.2
        while time.monotonic() < until:
            pass  # the program computes, and the threads share what is left
        assert subscription.get(ENOUGH_S).payload == b"x"


@pytest.mark.parametrize("options", ["", ", data='kept'"])
def test_a_notebook_that_is_shut_down_leaves_in_good_order(options: str, tmp_path: Path) -> None:
    program = (
        "import quillcast\n"
        f"node = quillcast.blocking.BlockingNode(network='notebook'{options})\n"
        "node.start()\n"
        "node.publish('t', b'x', wait='root')\n"
    )
    environment = {"XDG_RUNTIME_DIR": str(tmp_path), "PATH": ""}
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, cwd=tmp_path, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert list((tmp_path / "quillcast" / "notebook").glob("*.json")) == []
