"""A peer's status is made from what its protocols know, and reaches a command as the same structs."""

import ast
import asyncio
from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace

import quillcast
from quillcast.core.envelope import NO_TERM, Term
from quillcast.core.errors import Leaving, RemoteError
from quillcast.core.messages import Contact
from quillcast.core.status.base import PeerContact
from quillcast.core.status.peers import Counters, NodeStatus
from quillcast.core.status.topics import SubscriberLag, TopicSettings, TopicStatus
from quillcast.core.status.trees import TreePeer, TreeStatus, UnresponsivePeer
from quillcast.live.discovery.control import ControlServer, ask
from quillcast.live.discovery.questions import PeerQuestion, StatusQuestion
from quillcast.live.node.inspection import REFUSED, counters
from quillcast.live.node.topicstatus import described_topic, topic_status
from quillcast.live.node.treestatus import is_whole, tree_status
from quillcast.protocol.peer import Peer
from quillcast.protocol.topics.descriptor import Settings, described
from quillcast.protocol.topics.query_messages import Branch, Lease, Reader
from tests.protocol.topics.village import Reader as Subscriber
from tests.protocol.topics.village import Village

ALICE, BOB, CAROL, DAVE = (Contact(bytes([number]) * 16, f"127.0.0.1:{number}") for number in range(1, 5))
TERM = Term(3, ALICE.node_id)
NAME = "sport/tennis"
SETTINGS = TopicSettings("reliable", "publisher", "cut", 1 << 20, "go_on")


def branch(parent: bytes = b"", **more: object) -> Branch:
    """What a peer of the tree answers."""
    fields = {"children": [], "subscribers": 0, "term": TERM, "frontier": 0, **more}
    return Branch(described(NAME).topic, 1, parent, **fields)


ROOT = branch(
    root=True, frontier=100, events=140, descriptor=described(NAME), children=[BOB, CAROL],
    leases=(Lease(CAROL.node_id, TERM, 40, behind_s=1.5), Lease(DAVE.node_id, TERM, 90, lost=True, owed=4)),
)  # fmt: skip
LEAF = branch(
    ALICE.node_id, frontier=80, events=120, subscribers=1,
    readers=(Reader("archive", 7, taken=70, owed=2, waiting=3, waiting_bytes=30, behind_s=1.2345, stalled_s=0.5),),
)  # fmt: skip


def test_a_tree_shows_peers_that_answered_and_what_is_known_of_the_others() -> None:
    branches = {BOB.node_id: LEAF, ALICE.node_id: ROOT}
    assert not is_whole(branches)
    assert tree_status(NAME, branches, {ALICE.node_id: "here:1"}) == TreeStatus(
        NAME,
        complete=False,
        root=ALICE.node_id.hex(),
        settings=SETTINGS,
        events=140,
        peers=(
            TreePeer(
                ALICE.node_id.hex(), "here:1", root=True, parent=None,
                children=(BOB.node_id.hex(), CAROL.node_id.hex()), subscriptions=0, term="3.01010101", frontier=100,
                lags=(),
            ),
            TreePeer(
                BOB.node_id.hex(), BOB.address, root=False, parent=ALICE.node_id.hex(), children=(), subscriptions=1,
                term="3.01010101", frontier=80,
                lags=(SubscriberLag(NAME, BOB.node_id.hex(), "archive", 7, behind_events=30 + 2 + 3, behind_s=1.234,
                                    stalled_s=0.5, waiting_events=3, waiting_bytes=30),),
            ),
        ),
        unresponsive=(
            UnresponsivePeer(CAROL.node_id.hex(), CAROL.address, lost=False, behind_events=60, behind_s=1.5),
            UnresponsivePeer(DAVE.node_id.hex(), None, lost=True, behind_events=14),
        ),
    )  # fmt: skip


def test_a_topic_without_a_tree_has_an_empty_one_that_is_whole() -> None:
    answers = {ALICE.node_id: branch(term=NO_TERM)}
    assert tree_status(NAME, answers, {}) == TreeStatus(
        NAME, complete=True, root=None, settings=None, events=0, peers=(), unresponsive=()
    )


def test_a_subscriber_in_an_earlier_term_is_behind_by_all_of_the_roots_term() -> None:
    behind = branch(ALICE.node_id, term=Term(2, BOB.node_id), frontier=50, subscribers=1, readers=(Reader("", 1, 20),))
    [lag] = tree_status(NAME, {ALICE.node_id: ROOT, BOB.node_id: behind}, {}).lags
    assert lag.behind_events == 30 + 100


def test_peers_show_their_parts_in_a_topic() -> None:
    village = Village(2)
    for number in village.alive():
        village.subscribe(number, NAME, Subscriber())
    village.run(5)
    root = village.root(NAME)
    village.publish(root, village.publisher(root, NAME), b"one", b"two")
    village.run(5)
    upper, lower = village.peers[root], village.peers[1 - root]
    above, below = (PeerContact(peer.host.me.hex(), peer.host.contact.address) for peer in (upper, lower))
    at_root = TopicStatus(
        NAME, described(NAME).topic.hex(), SETTINGS, role="root", publishers=1, never_stable=0, events_per_s=2.5,
        parent=None, children=(below,), subscriptions=1, depth=0, term=f"1.{above.node_id[:8]}", frontier=2,
        known_end=2, stable=2, events=2, buffered_bytes=0, lags=(up_to_date(above),),
    )  # fmt: skip
    assert part(upper) == at_root
    at_leaf = replace(at_root, role="leaf", publishers=0, parent=above, children=(), depth=1, lags=(up_to_date(below),))
    assert part(lower) == at_leaf


def up_to_date(peer: PeerContact) -> SubscriberLag:
    """A subscription that is not behind."""
    return SubscriberLag(
        NAME, peer.node_id, name="", number=1, behind_events=0, behind_s=0.0, stalled_s=0.0, waiting_events=0,
        waiting_bytes=0,
    )  # fmt: skip


def test_a_peer_without_a_place_in_the_tree_publishes_or_keeps_the_settings() -> None:
    village = Village(2)
    village.publisher(0, NAME)
    publishes = topic_status(village.peers[0], described(NAME).topic, 0.0)
    assert (publishes.role, publishes.publishers, publishes.in_tree, publishes.parent) == ("publisher", 1, False, None)
    village.act(1, lambda peer: peer.create("t", Settings(slow="wait"), lambda answer: None, None))
    village.run(60)
    keeps = topic_status(village.peers[1], described("t").topic, 0.0)
    assert (keeps.role, keeps.settings.slow, keeps.in_tree) == ("replica", "wait", False)


def part(peer: Peer) -> TopicStatus:
    """A peer's part in the topic."""
    return topic_status(peer, described(NAME).topic, 2.54)


def test_a_topic_is_shown_with_its_creator_its_owner_and_its_list() -> None:
    shown = described_topic(described("bob:t", Settings(delivery="best_effort", event_bytes_max=9)))
    assert (shown.name, shown.settings) == ("bob:t", TopicSettings("best_effort", "publisher", "cut", 9, "go_on"))
    assert not shown.settings.reliable


def test_refusals_are_counted_by_their_reason() -> None:
    village = Village(1)
    counted = Counter({"bytes_in": 7, "refused_token": 2, "refused_clock": 1})
    table = village.peers[0].table
    assert counters(counted, table) == Counters(bytes_in=7, refused={"clock": 1, "token": 2})


def test_whatever_links_count_has_its_field() -> None:
    folder = Path(quillcast.__file__).parent / "live"
    counted = {name for path in folder.rglob("*.py") for name in counted_in(ast.parse(path.read_text()))}
    assert "bytes_out" in counted
    assert {name for name in counted if not name.startswith(REFUSED)} <= set(Counters.__struct_fields__)


def counted_in(tree: ast.Module) -> list[str]:
    """The names in `counters["..."]`."""
    return [
        node.slice.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)
        if ast.unparse(node.value).endswith("counters") and isinstance(node.slice.value, str)
    ]


@pytest.mark.parametrize("answer", [{}, {"node_id": 7}, [], None], ids=str)
def test_an_answer_of_another_version_is_one_clear_line(answer: object, tmp_path: Path) -> None:
    async def told(question: PeerQuestion) -> object:
        return answer

    async def scenario() -> None:
        async with ControlServer(tmp_path / "peer.sock", told, [StatusQuestion]):
            await asyncio.to_thread(ask, tmp_path / "peer.sock", StatusQuestion(), NodeStatus)

    with pytest.raises(RemoteError, match="seems to run another version of quillcast: its answer to 'status'") as error:
        asyncio.run(scenario())
    assert "\n" not in str(error.value)


def test_a_peer_that_is_leaving_says_so(tmp_path: Path) -> None:
    async def leaving(question: PeerQuestion) -> object:
        raise Leaving("the peer at 127.0.0.1:1 is leaving its network")

    async def scenario() -> None:
        async with ControlServer(tmp_path / "peer.sock", leaving, [StatusQuestion]):
            await asyncio.to_thread(ask, tmp_path / "peer.sock", StatusQuestion(), NodeStatus)

    with pytest.raises(Leaving, match="is leaving its network"):
        asyncio.run(scenario())


def test_a_node_that_has_left_answers_queries_with_leaving() -> None:
    async def scenario() -> None:
        async with quillcast.Node(network="has-left") as node:
            assert (await node._answer(StatusQuestion())).network == "has-left"
        await node._answer(StatusQuestion())

    with pytest.raises(Leaving, match=r"the peer at 127\.0\.0\.1:\d+ is leaving its network"):
        asyncio.run(scenario())
