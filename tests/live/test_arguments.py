"""A wrong argument of a public call is a `LocalError` that names the value, never a bare error of Python."""

import inspect
import math
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import quillcast
from quillcast import Config, LiveConfig, Node
from quillcast.protocol.neighbours.config import NeighbourConfig, StreamConfig
from quillcast.protocol.overlay.config import OverlayConfig
from quillcast.protocol.topics.config import TopicConfig
from tests.live.test_node import QUICK, run

NO_TIMES = [math.nan, math.inf, -math.inf, 10**400, -1, "5", None, True, [1]]
NO_TIME = "timeout_s = .* is not a valid time to wait; use a finite number of seconds"
GIVEN: dict[str, Any] = {"topic": "t", "name": "t", "payload": b"x", "payloads": [b"x"], "wait": "root", "count": 1}
"""Valid arguments of public calls."""
NODES: list[tuple[dict[str, Any], str]] = [
    ({"listen": 7000}, "listen = 7000 is int; use host:port"),
    ({"listen": "127.0.0.1:0", "advertise": 7000}, "advertise = 7000"),
    ({"network": 5}, "network = 5"),
    ({"contacts": 7000}, "contacts = 7000 is int; use a list of texts"),
    ({"contacts": [7000]}, "contacts = 7000"),
    ({"data": ""}, "data is an empty path"),
    ({"data": "  "}, "data is an empty path"),
    ({"data": 5}, "data = 5"),
    ({"journal": ""}, "journal is an empty path"),
    ({"credential": ""}, "credential is an empty path"),
    ({"config": {"topics": {}}}, "config = .* is dict; use a Config"),
    ({"live": {}}, "live = {} is dict; use a LiveConfig"),
    ({"join": 5}, "join = 5"),
    ({"identity": b"secret"}, "identity = .* is bytes"),
    ({"on_problem": "print"}, "on_problem is a function, not str"),
    ({"forwarding_policy": "chain"}, "forwarding_policy = 'chain' is str; use an object with its methods"),
]
SETTINGS: list[tuple[type, dict[str, Any], str]] = [
    (TopicConfig, {"lease_s": -1}, r"topics.lease_s is -1; use a finite number above 0"),
    (TopicConfig, {"lease_s": math.nan}, r"topics.lease_s is nan"),
    (TopicConfig, {"housekeeping_s": 0}, r"topics.housekeeping_s is 0"),
    (TopicConfig, {"replicas": 2.5}, r"topics.replicas is 2.5; use a whole number above 0"),
    (TopicConfig, {"fallbacks": -1}, r"topics.fallbacks is -1; use a whole number from 0 on"),
    (TopicConfig, {"budget_bytes": "64 MiB"}, r"topics.budget_bytes is '64 MiB'"),
    (TopicConfig, {"auto_create": "no"}, r"topics.auto_create is 'no'; use True or False"),
    (TopicConfig, {"join_timeout_s": 9.0}, r"topics.join_timeout_s is 9; use at most"),
    (NeighbourConfig, {"tries_max": 0}, r"neighbours.tries_max is 0"),
    (NeighbourConfig, {"timeout_min_s": 9.0}, r"neighbours.timeout_min_s is 9; use at most"),
    (StreamConfig, {"page_bytes_max": -5}, r"streams.page_bytes_max is -5"),
    (OverlayConfig, {"keep_alive_s": math.inf}, r"overlay.keep_alive_s is inf"),
    (OverlayConfig, {"leaf_set_size": "8"}, r"overlay.leaf_set_size is '8'"),
    (LiveConfig, {"join_timeout_s": math.inf}, r"live.join_timeout_s is inf"),
    (LiveConfig, {"window_bytes": True}, r"live.window_bytes is True"),
    (LiveConfig, {"local_ipc": 1}, r"live.local_ipc is 1; use True or False"),
    (Config, {"topics": {"lease_s": 5}}, r"topics = .* is dict; use TopicConfig\(...\)"),
]


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


async def refused(call: Callable[[], Any], text: str) -> None:
    """The call, or awaiting what it gives, is refused with such a text."""

    async def made() -> None:
        given = call()
        if isinstance(given, Awaitable):
            await given

    with pytest.raises(quillcast.LocalError, match=text):
        await made()


@pytest.mark.parametrize(("options", "text"), NODES, ids=lambda value: str(value) if isinstance(value, dict) else "")
def test_a_node_is_refused_what_it_cannot_be_given(options: dict[str, Any], text: str) -> None:
    with pytest.raises(quillcast.LocalError, match=text):
        Node(**options)


@pytest.mark.parametrize(
    ("kind", "chosen", "text"), SETTINGS, ids=lambda value: str(value) if isinstance(value, dict) else ""
)
def test_a_setting_that_makes_no_sense_is_refused_by_its_name(kind: type, chosen: dict[str, Any], text: str) -> None:
    with pytest.raises(quillcast.LocalError, match=text):
        kind(**chosen)


def timed_calls(of: Any) -> Iterator[Callable[[], Any]]:
    """Every public call of an object that takes a time to wait, with each time that is not valid."""
    for name, method in inspect.getmembers(of, inspect.ismethod):
        taken = inspect.signature(method).parameters
        if name.startswith("_") or "timeout_s" not in taken:
            continue
        given = {each: value for each, value in GIVEN.items() if each in taken}
        for time in NO_TIMES:
            if time is not None or taken["timeout_s"].default is not None:
                yield partial(method, **given, timeout_s=time)


def test_settings_may_be_integers_and_none_where_it_has_a_meaning() -> None:
    assert TopicConfig(lease_s=30, fallbacks=0, linger_s=0).fallbacks == 0


@pytest.mark.live
class TestCalls:
    """A node that runs."""

    def test_a_time_to_wait_is_a_finite_number(self) -> None:
        async def scenario() -> None:
            async with Node(config=QUICK) as node, quillcast.connect() as client:
                publisher = node.publisher("t")
                await publisher.publish(b"x")  # the first of a batch takes another way than those that follow
                for call in [call for of in (node, client, publisher) for call in timed_calls(of)]:
                    await refused(call, NO_TIME)
                await node.publish("t", b"still there", wait="root")
                assert (await client.status()).node_id == node.contact.node_id.hex()

        run(scenario())

    @pytest.mark.parametrize("topic", [["t"], {"t": 1}, None, 3, b"t", ("t",)], ids=str)
    def test_a_topic_is_text(self, topic: Any) -> None:
        async def scenario() -> None:
            async with Node(config=QUICK) as node:
                for call in (
                    lambda: node.publish(topic, b"x"),
                    lambda: node.publisher(topic),
                    lambda: node.subscribe(topic),
                    lambda: node.create(topic),
                    lambda: node.change(topic, slow="wait"),
                    lambda: node.tree(topic),
                ):
                    await refused(call, "a topic's name is text such as sport/tennis, not ")

        run(scenario())

    def test_the_name_of_a_file_is_not_accepted_as_credentials(self) -> None:
        async def scenario() -> None:
            async with Node(config=QUICK) as node:
                file: Any = "owner.pem"
                for call in (
                    lambda: node.publish("t", b"x", credentials=file),
                    lambda: node.publisher("t", credentials=file),
                    lambda: node.subscribe("t", credentials=file),
                    lambda: node.create("t", credentials=file),
                    lambda: node.change("t", credentials=file, slow="wait"),
                ):
                    await refused(call, r"credentials = 'owner.pem' is str; use Credentials.load\(file\)")

        run(scenario())

    def test_names_and_keys_are_not_blank(self) -> None:
        async def scenario() -> None:
            for name in ("", " "):
                await refused(Node(network=name).start, f"'{name}' is not a network name")
                await refused(Node(contacts=[name]).start, f"'{name}' is not an address")
            async with Node(config=QUICK) as node:
                await refused(lambda: node.publish("t", b"x", key=b""), "the key is empty; leave it out")
                await refused(lambda: node.publish("t", b"x", attributes={" ": 1}), "an attribute's name is blank")
                await refused(lambda: node.subscribe("t", name=" "), "' ' is not a valid subscription name")
                await refused(lambda: node.publish("sport/ /tennis", b"x"), "is not a topic name")

        run(scenario())

    def test_a_time_to_wait_may_be_longer_than_any(self) -> None:
        with quillcast.BlockingNode(config=QUICK) as node, node.subscribe("t") as subscription:
            node.publish("t", b"x", wait="root", timeout_s=1e300)
            assert subscription.get(1e300).payload == b"x"

    def test_principals_and_functions_are_checked_where_they_are_given(self) -> None:
        async def scenario() -> None:
            async with Node(config=QUICK) as node:
                wrong: Any
                for wrong in ("a" * 32, None, 5, [5]):
                    await refused(lambda wrong=wrong: node.create("t", publishers=wrong), "publishers = ")
                await refused(lambda: node.subscribe("t", on_lost="print"), "on_lost is a function, not str")  # type: ignore[call-overload]
                assert node.status().topics == ()

        run(scenario())

    def test_the_blocking_facade_refuses_the_same(self) -> None:
        with quillcast.BlockingNode(config=QUICK) as node, node.subscribe("t") as subscription:
            for call in [call for of in (node, node.publisher("t"), subscription) for call in timed_calls(of)]:
                with pytest.raises(quillcast.LocalError, match=NO_TIME):
                    call()
            with pytest.raises(quillcast.LocalError, match="is text such as"):
                node.publish(["t"], b"x")  # type: ignore[arg-type]
