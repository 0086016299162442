"""The status schema: what is encoded is decoded again, by peers of other versions too, and every field is explained."""

import ast
import inspect
from itertools import chain
from typing import Any

import msgspec
import pytest

from quillcast.core.status import base, machines, peers, scopes, topics, traces, trees
from quillcast.core.status.base import PeerContact, Status
from quillcast.core.status.machines import Activity, PeerActivity, PeerLink, TopicActivity
from quillcast.core.status.peers import Counters, JournalStatus, LinkStatus, MemoryUse, NodeStatus, Traffic
from quillcast.core.status.scopes import (
    Membership,
    PolicyChange,
    ScopeChannel,
    ScopeMember,
    ScopeRule,
    ScopeStatus,
    ScopeTopic,
    TopicPolicy,
)
from quillcast.core.status.topics import SubscriberLag, TopicSettings, TopicStatus
from quillcast.core.status.trees import TreePeer, TreeStatus, UnresponsivePeer
from quillcast.protocol.topics.descriptor import Settings

MODULES = (base, peers, topics, trees, traces, scopes, machines)
ALICE, BOB = "a1" * 16, "b0" * 16
LINK = LinkStatus(
    BOB, "127.0.0.1:2", connected=True, suspected=False, round_trip_ms=None, credit_bytes=-3, waiting_bytes=1,
    held_bytes=2,
)  # fmt: skip
SETTINGS = TopicSettings("reliable", "publisher", "cut", 1 << 20, "go_on", owner="c3" * 16, access=("publish:d4",))
LAG = SubscriberLag(
    "t", ALICE, name="archive", number=1, behind_events=3, behind_s=0.5, stalled_s=0.25, waiting_events=2,
    waiting_bytes=20,
)  # fmt: skip
TOPIC = TopicStatus(
    "t", "77" * 16, SETTINGS, role="leaf", publishers=1, never_stable=0, events_per_s=1.5,
    parent=PeerContact(BOB, "127.0.0.1:2"), children=(), subscriptions=1, depth=1, term="1.b0b0b0b0", frontier=7,
    known_end=8, stable=6, events=9, buffered_bytes=100, lags=(LAG,),
)  # fmt: skip
NODE = NodeStatus(
    ALICE, "127.0.0.1:1", "test", pid=1, uptime_s=12.5, active=True, credential=None, admits=False, looked_in="/run",
    unauthenticated=0, neighbours=(LINK,), leaf_set=(PeerContact(BOB, "127.0.0.1:2"),), topics=(TOPIC,),
    buffers=MemoryUse(80, 100), unfinished=MemoryUse(0, 100), counters=Counters(bytes_in=5, refused={"token": 1}),
    problems=("one line",), journal=JournalStatus("j.arrows", None, 0, 0), manages=("campus",),
    memberships=(Membership(BOB, "127.0.0.1:2", "site", in_ring=True, epoch=1, unresponsive=False, obstacle=""),),
)  # fmt: skip
TREE = TreeStatus(
    "t", complete=False, root=BOB, settings=SETTINGS, events=9,
    peers=(TreePeer(BOB, None, root=True, parent=None, children=(ALICE,), subscriptions=1, term="1.b0b0b0b0",
                    frontier=9, lags=(LAG,)),),
    unresponsive=(UnresponsivePeer(ALICE, "127.0.0.1:1", lost=True, behind_events=None),),
)  # fmt: skip
ACTIVITY = Activity(
    "test", 1.0, subscribers=(LAG,), links=(PeerLink(ALICE, LINK),), unresponsive=(BOB,),
    peers=(PeerActivity(ALICE, "127.0.0.1:1", pid=1, uptime_s=1.0, active=True, cpu_share=0.1, memory_bytes=1,
                        neighbours=1, suspected=0, topics=1, events_per_s=2.0, in_bytes_per_s=3.0, out_bytes_per_s=4.0,
                        waiting_bytes=0, buffers=MemoryUse(80, 100), dropped=0, problems=()),),
    topics=(TopicActivity("t", "77" * 16, SETTINGS, root=None, events=9, peers=1, subscriptions=1, publishers=0,
                          events_per_s=2.0, unstable=None),),
)  # fmt: skip
RULE = ScopeRule("news/#", "k_ary", {"fan_out": 2}, is_set=True)
SCOPE = ScopeStatus(
    ALICE, "127.0.0.1:1", "site", "55" * 16, "site.toml", epoch=2, lease_s=5.0, rules=(RULE,),
    members=(ScopeMember(BOB, "127.0.0.1:2", label=1, in_ring=True, heard_s=0.5, topics=("t",)),),
    topics=(ScopeTopic("t", "77" * 16, RULE, publishers=0, subscribers=1, entries=(BOB,),
                       channels=(ScopeChannel(BOB, ALICE),), waits_for=""),),
)  # fmt: skip
CHANGE = PolicyChange("site", "news/#", (RULE,), (TopicPolicy("t", RULE, RULE),))
ANSWERS = [NODE, TREE, ACTIVITY, Traffic(1, Counters()), SCOPE, CHANGE]


def structs() -> dict[str, type[Status]]:
    """Every struct of the schema."""
    found = {
        name: each
        for name, each in chain.from_iterable(vars(module).items() for module in MODULES)
        if inspect.isclass(each) and issubclass(each, Status)
    }
    return {name: each for name, each in found.items() if each is not Status}


@pytest.mark.parametrize("told", ANSWERS, ids=lambda told: type(told).__name__)
def test_what_is_encoded_is_decoded_again(told: Status) -> None:
    assert msgspec.json.decode(msgspec.json.encode(told), type=type(told)) == told


@pytest.mark.parametrize("told", ANSWERS, ids=lambda told: type(told).__name__)
def test_fields_of_a_later_version_are_ignored(told: Status) -> None:
    def later(value: Any) -> Any:
        if isinstance(value, dict) and "fan_out" in value:
            return value  # parameters, which may have any name
        if isinstance(value, dict):
            return {**{name: later(each) for name, each in value.items()}, "added_later": 7}
        return [later(each) for each in value] if isinstance(value, list) else value

    plain = later(msgspec.to_builtins(told))
    for counters in [plain["counters"]] if "counters" in plain else []:
        del counters["refused"]["added_later"]  # this one is a reason like others
    assert msgspec.json.decode(msgspec.json.encode(plain), type=type(told)) == told


def test_an_empty_object_is_not_a_status() -> None:
    for told in ANSWERS:
        with pytest.raises(msgspec.ValidationError, match="missing required field"):
            msgspec.json.decode(b"{}", type=type(told))


def test_a_status_cannot_be_changed() -> None:
    assert [name for name, each in structs().items() if not each.__struct_config__.frozen] == []


def test_every_field_is_explained() -> None:
    """By a string below it, which docs/reference.md repeats."""
    lacking = []
    for each in chain.from_iterable(ast.parse(inspect.getsource(module)).body for module in MODULES):
        if isinstance(each, ast.ClassDef):
            for field, after in zip(each.body, [*each.body[1:], None], strict=True):
                explained = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                if isinstance(field, ast.AnnAssign) and not explained:
                    lacking.append(f"{each.name}.{ast.unparse(field.target)}")
    assert lacking == []


def test_a_topic_shows_all_its_settings() -> None:
    shown = [
        name for name in TopicSettings.__struct_fields__ if name not in ("owner", "access", "session", "session_state")
    ]
    assert shown == list(Settings.__struct_fields__)


def test_a_subscription_goes_by_its_name_or_its_number() -> None:
    assert LAG.label == "archive"
    assert msgspec.structs.replace(LAG, name="").label == "#1"


def test_a_link_is_up_down_or_suspected() -> None:
    down = msgspec.structs.replace(LINK, connected=False)
    assert (LINK.state, down.state) == ("up", "down")
    assert msgspec.structs.replace(down, suspected=True).state == "suspected"
