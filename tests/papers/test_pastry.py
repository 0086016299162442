"""What the Scribe paper says about Pastry (section 2), statement by statement. Text in quotes is the paper's."""

from collections import Counter
from itertools import pairwise
from math import ceil, log
from random import Random
from statistics import mean

import pytest

from quillcast.core.ids import ID_BITS, ID_BYTES, closer, node_id, number, ring_distance, shared_digits
from quillcast.core.messages import Contact
from quillcast.protocol.overlay.config import OverlayConfig
from quillcast.protocol.overlay.leafset import LeafSet
from quillcast.protocol.overlay.messages import JoinReply, JoinRequest, LeafSetProbe, MemberLost, Routed, RowRequest
from quillcast.protocol.overlay.neighbourhood import NeighbourhoodSet
from quillcast.protocol.overlay.routingtable import UNKNOWN, RoutingTable
from quillcast.sim.topology import TransitStub
from tests.protocol.overlay.test_repair import overheard
from tests.protocol.overlay.world import CODEC, TestPeer, World, ring_of

PAPER = OverlayConfig(digit_bits=2, leaf_set_size=8)  # figure 1: b = 2, l = 8


def route(world: World, peer: TestPeer, key: bytes) -> list[TestPeer]:
    """The peers on the way of a key from a peer on, as tables stand."""
    way = [peer]
    while (hop := way[-1].overlay.next_hop(key)) is not None:
        way.append(world.peers[hop.node_id])
        assert len(way) < 100, "a circle"
    return way


def length(world: World, way: list[TestPeer]) -> float:
    return sum(world.delay(a, b) for a, b in pairwise(way))


@pytest.fixture(scope="module")
def settled() -> World:
    """A hundred peers on a line, some minutes after the last joined. Tests that use it only look."""
    world = World(3, PAPER, checked=False)
    for _ in range(100):
        world.join()
        world.run(0.1)
    world.run(400)
    assert world.wrong() == []
    return world


@pytest.fixture(scope="module")
def internet() -> World:
    """Two hundred peers on the Georgia Tech model, some minutes after the last joined. Tests that use it only look."""
    world = World(4, checked=False)
    topology = TransitStub(200, Random(4))
    world.delay = lambda a, b: topology.delay_s(a.place, b.place)  # type: ignore[method-assign]
    for place in range(200):
        world.join(place=place)
        world.run(0.2)
    world.run(400)
    assert world.wrong() == []
    return world


# Section 2, first part


def test_node_ids_are_128_bits_and_uniformly_distributed() -> None:
    """ "Each Pastry node has a unique, 128-bit nodeId. The set of existing nodeIds is uniformly distributed; ... by
    basing the nodeId on a secure hash of the node's public key" """
    ids = [node_id(index.to_bytes(32, "big")) for index in range(4096)]
    assert {len(id_) for id_ in ids} == {ID_BITS // 8}
    assert len(set(ids)) == 4096
    assert all(200 < count < 312 for count in Counter(id_[0] >> 4 for id_ in ids).values()), "256 each but for chance"


def test_a_message_reaches_the_numerically_closest_of_all_live_nodes(settled: World) -> None:
    """ "Given a message and a key, Pastry reliably routes the message to the Pastry node with a nodeId that is
    numerically closest to the key, among all live Pastry nodes." """
    random = Random(1)
    for _ in range(300):
        key = random.randbytes(ID_BYTES)
        assert route(settled, random.choice(settled.alive()), key)[-1] is settled.closest(key)


def test_routes_take_less_than_log_n_steps_on_average(settled: World) -> None:
    """ "Pastry can route to any node in less than ⌈log_2^b N⌉ steps on average" """
    random = Random(2)
    hops = [len(route(settled, random.choice(settled.alive()), random.randbytes(ID_BYTES))) - 1 for _ in range(500)]
    assert mean(hops) < ceil(log(len(settled.alive()), 4))


@pytest.mark.parametrize("seed", range(3))
def test_messages_arrive_unless_half_a_leaf_set_of_neighbours_fails_at_once(seed: int) -> None:
    """ "With concurrent node failures, eventual delivery is guaranteed unless ⌊l/2⌋ nodes with adjacent nodeIds fail
    simultaneously" """
    world = ring_of(60, seed, PAPER)
    ring, half = world.alive(), PAPER.leaf_set_size // 2
    doomed = ring[10 : 10 + half - 1]
    keys = [peer.me for peer in doomed] + [world.random.randbytes(ID_BYTES) for _ in range(20)]
    for peer in doomed:
        world.crash(peer)
    for index, key in enumerate(keys):
        world.route(world.random.choice(world.alive()), key, str(index))
    world.run(60)
    for index, key in enumerate(keys):
        assert world.receivers(str(index)) == [world.closest(key)]


def test_tables_are_small(settled: World) -> None:
    """ "The tables required in each Pastry node have only (2^b - 1) * ⌈log_2^b N⌉ + 2l entries" """
    rows = ceil(log(len(settled.alive()), 4))
    for peer in settled.alive():
        in_the_leaf_set_too = sum(contact.node_id in peer.overlay.leaf_set for contact in peer.overlay.routing_table)
        assert len(peer.overlay.routing_table) - in_the_leaf_set_too <= 3 * rows
        assert len(peer.overlay.leaf_set) == PAPER.leaf_set_size
    assert mean(len(peer.overlay.routing_table) for peer in settled.alive()) <= 3 * rows


def test_an_arrival_or_a_failure_takes_few_messages() -> None:
    """ "after a node failure or the arrival of a new node, the invariants in all affected routing tables can be
    restored by exchanging O(log_2^b N) messages" """
    cost = {}
    for count in (20, 160):
        world = ring_of(count, 2, PAPER)
        world.checked = False
        sent = overheard(world, LeafSetProbe, MemberLost, Routed, JoinReply, RowRequest)
        world.join()
        world.run(3)
        world.crash(world.alive()[5])
        world.run(16)  # by then every member has noticed the silence itself
        cost[count] = len(sent)
        assert world.wrong() == []
    assert cost[160] < 2 * cost[20], "eight times the peers, and log grows by three digits of base 4"


def test_figure_1() -> None:
    """The state of node 10233102, b = 2, numbers in base 4: every entry has the row and cell it is printed in."""
    me = base4("10233102")
    rows = {
        0: {0: "02212102", 2: "22301203", 3: "31203203"},
        1: {1: "11301233", 2: "12230203", 3: "13021022"},
        2: {0: "10031203", 1: "10132102", 3: "10323302"},
        3: {0: "10200230", 1: "10211302", 2: "10222302"},
        4: {0: "10230322", 1: "10231000", 2: "10232121"},
        5: {0: "10233001", 2: "10233232"},
        6: {2: "10233120"},
    }
    smaller = ["10233033", "10233021", "10233001", "10233000"]
    larger = ["10233120", "10233122", "10233230", "10233232"]
    neighbourhood = ["13021022", "10200230", "11301233", "31301233", "02212102", "22301203", "31203203", "33213321"]

    table, leaf_set, near = RoutingTable(me, 2), LeafSet(me, 8), NeighbourhoodSet(8)
    for row, cells in rows.items():
        for cell, name in cells.items():
            assert table.place(number(base4(name))) == (row, cell)
            assert table.consider(contact(name), UNKNOWN), "each has its own cell"
    assert [len(table.row(row)) for row in range(table.depth)] == [3, 3, 3, 3, 3, 2, 1]
    for name in {*smaller, *larger, *neighbourhood, *(name for cells in rows.values() for name in cells.values())}:
        leaf_set.add(contact(name))
    assert {c.address for c in leaf_set.left} == set(smaller)
    assert {c.address for c in leaf_set.right} == set(larger)
    for proximity, name in enumerate(neighbourhood):
        near.consider(contact(name), proximity)
    near.consider(contact("10233033"), len(neighbourhood))
    assert [c.address for c in near] == neighbourhood


def base4(name: str) -> bytes:
    """A 16-bit id of the figure as the leading bits of one of ours."""
    return int(name, 4).to_bytes(2, "big") + bytes(ID_BYTES - 2)


def contact(name: str) -> Contact:
    return Contact(base4(name), name)


def test_a_row_shares_its_number_of_digits(settled: World) -> None:
    """ "The 2^b - 1 entries in row n of the routing table each refer to a node whose nodeId matches the present node's
    nodeId in the first n digits, but whose n + 1th digit has one of the 2^b - 1 possible values other than the n + 1th
    digit in the present node's id." """
    for peer in settled.alive():
        table = peer.overlay.routing_table
        for row in range(table.depth):
            assert {shared_digits(c.node_id, peer.me, 2) for c in table.row(row)} <= {row}
            assert len(table.row(row)) <= 3


def test_entries_are_near(settled: World) -> None:
    """ "Among such nodes, the one closest to the present node (according to a scalar proximity metric, such as the
    delay or the number of IP routing hops) is chosen in practice." """
    chosen, nearest, at_random = 0.0, 0.0, 0.0
    for peer in settled.alive():
        for entry in peer.overlay.routing_table.entries():
            place = peer.overlay.routing_table.place(number(entry.contact.node_id))
            fitting = [
                settled.delay(peer, other)
                for other in settled.alive()
                if other is not peer and peer.overlay.routing_table.place(number(other.me)) == place
            ]
            chosen += settled.delay(peer, settled.peers[entry.contact.node_id])
            nearest += min(fitting)
            at_random += mean(fitting)
    assert chosen - nearest < 0.1 * (at_random - nearest)


def test_the_leaf_set_is_the_closest_on_either_side(settled: World) -> None:
    """ "the leaf set, i.e., the set of nodes with the l/2 numerically closest larger nodeIds, and the l/2 nodes with
    numerically closest smaller nodeIds, relative to the present node's nodeId" """
    assert settled.wrong() == []


def test_each_step_shares_a_longer_prefix_or_comes_closer(settled: World) -> None:
    """ "In each routing step, a node normally forwards the message to a node whose nodeId shares with the key a prefix
    that is at least one digit (or b bits) longer than the prefix that the key shares with the present node's id. If no
    such node is found in the routing table, the message is forwarded to a node whose nodeId shares a prefix with the
    key as long as the current node, but is numerically closer to the key than the present node's id." """
    random, longer, within = Random(5), 0, 0
    for _ in range(300):
        key = random.randbytes(ID_BYTES)
        for here, there in pairwise(route(settled, random.choice(settled.alive()), key)):
            before, after = (shared_digits(peer.me, key, 2) for peer in (here, there))
            if here.overlay.routes.hops.covers(key):
                within += 1  # the last step goes to the closest, whatever its prefix
                assert closer(there.me, here.me, key)
            else:
                longer += after > before
                assert after > before or (after == before and closer(there.me, here.me, key))
    assert longer > within / 2


def test_without_any_table_the_leaf_sets_still_lead_to_the_closest() -> None:
    """ "Such a node must be in the leaf set unless the message has already arrived at the node with numerically closest
    nodeId or its neighbor." """
    world = ring_of(60, config=PAPER)
    for peer in world.alive():
        for known in list(peer.overlay.routing_table):
            peer.overlay.routing_table.remove(known.node_id)
    for _ in range(200):
        key = world.random.randbytes(ID_BYTES)
        assert route(world, world.random.choice(world.alive()), key)[-1] is world.closest(key)


def test_the_neighbourhood_set_is_not_used_in_routing() -> None:
    """ "The neighborhood set is not used in routing, but is needed during node addition/recovery." (figure 1)"""
    world = ring_of(2)
    peer = world.alive()[0]
    key = bytes([peer.me[0] ^ 0x80]) + peer.me[1:]
    before = peer.overlay.next_hop(key)
    peer.overlay.neighbourhood.consider(Contact(key, "near"), 0.0001)
    assert peer.overlay.next_hop(key) == before


# Section 2.1, locality


def test_routes_are_less_than_two_thirds_longer_than_the_direct_way(internet: World) -> None:
    """ "Simulations show that, given a network topology based on the Georgia Tech model [16], the average distance
    traveled by a message is less than 66% higher than the distance between the source and destination in the underlying
    Internet." """
    random, travelled, direct = Random(6), 0.0, 0.0
    for _ in range(1000):
        way = route(internet, random.choice(internet.alive()), random.randbytes(ID_BYTES))
        travelled += length(internet, way)
        direct += internet.delay(way[0], way[-1]) if len(way) > 1 else 0.0
    assert travelled < 1.66 * direct


def test_routes_of_near_nodes_to_one_key_merge_soon(internet: World) -> None:
    """ "Simulations show that the average distance traveled by each of the two messages before their routes merge is
    approximately equal to the distance between their respective source nodes." """
    random, travelled, apart, whole = Random(7), 0.0, 0.0, 0.0
    peers = internet.alive()
    pairs = [(a, b) for a in peers for b in peers if a.me < b.me and internet.delay(a, b) < 0.02]
    for a, b in random.sample(pairs, min(len(pairs), 60)):
        for _ in range(5):
            key = random.randbytes(ID_BYTES)
            ways = [route(internet, peer, key) for peer in (a, b)]
            if internet.delay(a, ways[0][-1]) < 5 * internet.delay(a, b):
                continue  # "such that the distance from each node to the node ... closest to the key is much larger"
            meeting = next(peer for peer in ways[0] if peer in ways[1])
            travelled += mean(length(internet, way[: way.index(meeting) + 1]) for way in ways)
            whole += mean(length(internet, way) for way in ways)
            apart += internet.delay(a, b)
    assert apart > 0
    assert travelled < whole / 2, "they merge long before they arrive"


# Section 2.2, node addition and failure


def test_a_new_node_takes_its_state_from_the_nodes_on_the_way() -> None:
    """ "an arriving node with the newly chosen nodeId X can initialize its state by contacting a nearby node A ... and
    asking A to route a special message using X as the key. This message is routed to the existing node Z with nodeId
    numerically closest to X. X then obtains the leaf set from Z, the neighborhood set from A, and the ith row of the
    routing table from the ith node encountered along the route from A to Z." """
    world = ring_of(80, config=PAPER)
    seen = overheard(world, Routed, JoinReply)
    joiner = world.join()
    world.run(3)
    hops = [(sender, to, CODEC.decode(m.payload)) for sender, to, m in seen if isinstance(m, Routed)]
    way = [(sender, to, m) for sender, to, m in hops if isinstance(m, JoinRequest) and m.joiner == joiner.contact]
    assert way[0][0] == joiner.me, "X asks A"
    assert all(there[0] == here[1] for here, there in pairwise(way))
    z, _, reply = next(entry for entry in seen if isinstance(entry[2], JoinReply) and entry[1] == joiner.me)
    others = [peer for peer in world.alive() if peer is not joiner]
    assert z == min((peer.me for peer in others), key=lambda id_: ring_distance(id_, joiner.me))
    assert {c.node_id for c in reply.leaf_set} >= {c.node_id for c in joiner.overlay.leaf_set} - {joiner.me}
    for here, there in pairwise(way):
        given = range(here[2].rows_given, there[2].rows_given)
        new = [c for c in there[2].rows if c not in here[2].rows and c.node_id != here[1]]
        assert {shared_digits(c.node_id, here[1], 2) for c in new} <= set(given), "row i of the i-th node"
    assert len(joiner.overlay.neighbourhood) > 0
    assert {c.node_id for c in reply.rows} <= joiner.known.keys(), "it measured them all"


def test_peers_that_need_to_know_of_an_arrival_are_notified() -> None:
    """ "X can correctly initialize its state and notify nodes that need to know of its arrival, thereby restoring all
    of Pastry's invariants." """
    world = ring_of(50, 3, config=PAPER)
    need_to_know = told = 0
    for _ in range(5):
        joiner = world.join()
        world.run(3)
        assert world.wrong() == []
        others = [peer for peer in world.alive() if peer is not joiner]
        nearest_to = [peer for peer in others if is_nearest_for_its_cell(world, joiner, peer)]
        need_to_know += len(nearest_to)
        told += sum(joiner.me in peer.overlay.routing_table for peer in nearest_to)
        for known in joiner.overlay.routing_table:
            there = world.peers[known.node_id].overlay.routing_table
            assert there.lookup(number(joiner.me)) is not None, "its cell is not empty any more"
    assert need_to_know >= 25
    assert told >= 0.9 * need_to_know, "the others find out by their rounds of maintenance"


def is_nearest_for_its_cell(world: World, newcomer: TestPeer, at: TestPeer) -> bool:
    """Do all others that fit the same cell of this peer's routing table lie farther from it?"""
    cell = at.overlay.routing_table.place(number(newcomer.me))
    rivals = [peer for peer in world.alive() if peer is not at and peer is not newcomer]
    rivals = [peer for peer in rivals if at.overlay.routing_table.place(number(peer.me)) == cell]
    return all(world.delay(at, peer) > world.delay(at, newcomer) for peer in rivals)


def test_a_silent_node_is_presumed_failed_and_the_members_are_notified() -> None:
    """ "neighboring nodes in the nodeId space ... periodically exchange keep-alive messages. If a node is unresponsive
    for a period T, it is presumed failed. All members of the failed node's leaf set are then notified and they update
    their leaf sets to restore the invariant." """
    world = ring_of(40, config=PAPER)
    dead = world.alive()[9]
    members = {c.node_id for c in dead.overlay.leaf_set}
    told = overheard(world, MemberLost)
    world.crash(dead)
    world.run(12)
    assert {to for _, to, message in told if message.node_id == dead.me} & members
    assert world.wrong() == []


def test_a_recovering_node_takes_its_place_again() -> None:
    """ "A recovering node contacts the nodes in its last known leaf set, obtains their current leaf sets, updates its
    own leaf set and then notifies the members of its new leaf set of its presence." """
    world = ring_of(40, config=PAPER)
    peer = world.alive()[20]
    last_known = list(peer.overlay.leaf_set)
    world.crash(peer)
    world.run(20)
    probed = overheard(world, LeafSetProbe)
    again = world.join(peer.me, last_known, peer.place)
    world.run(5)
    assert again.overlay.active
    exchanged = {to if sender == peer.me else sender for sender, to, _ in probed if peer.me in (sender, to)}
    assert exchanged >= {contact.node_id for contact in again.overlay.leaf_set}
    assert world.wrong() == []


def test_failed_table_entries_are_repaired_when_they_are_needed() -> None:
    """ "Routing table entries that refer to failed nodes are repaired lazily" """
    world = ring_of(80, config=PAPER)
    peer = world.alive()[0]
    beyond = [c for c in peer.overlay.routing_table.row(0) if c.node_id not in peer.overlay.leaf_set]
    dead = world.peers[beyond[0].node_id]
    world.crash(dead)
    world.run(8)
    assert dead.me in peer.overlay.routing_table, "nobody asked, nobody noticed"
    world.route(peer, dead.me, "needed")
    world.run(8)
    entry = peer.overlay.routing_table.lookup(number(dead.me))
    assert entry is not None
    assert entry.contact.node_id != dead.me
    assert world.receivers("needed") == [world.closest(dead.me)]


# Section 3, figure 4 (the overlay's part of it; the topic's part is a transcript)


def figure_4() -> World:
    """All sixteen ids of four bits, b = 1 and l = 2, and such proximities as lead to the figure's routes."""
    near = {("0111", "1001"): 0.01, ("0100", "1001"): 0.01, ("1001", "1101"): 0.01, ("1001", "1111"): 0.02}
    near[("1111", "1100")] = 0.03
    world = World(1, OverlayConfig(digit_bits=1, leaf_set_size=2))
    world.delay = lambda a, b: near.get((a.place, b.place), near.get((b.place, a.place), 0.1))  # type: ignore[method-assign]
    for value in range(16):
        world.join(bytes([value << 4]) + bytes(ID_BYTES - 1), place=f"{value:04b}")
        world.run(1)
    world.checked = False
    world.run(300)
    return world


def named(world: World, start: str, key: str) -> list[str]:
    way = route(world, world.at_place(start), world.at_place(key).me)
    return [peer.place for peer in way]


def test_figure_4_routes() -> None:
    """ "Pastry routes the SUBSCRIBE message to node 1001; then the message from 1001 is routed to 1101; finally, the
    message from 1101 arrives at 1100." And 0100's "SUBSCRIBE message would take" a route by 1001 as well."""
    world = figure_4()
    assert named(world, "0111", "1100") == ["0111", "1001", "1101", "1100"]
    assert named(world, "0100", "1100")[:2] == ["0100", "1001"]


def test_figure_4_after_the_failure_of_1101() -> None:
    """ "Node 1001 detects the failure of 1101 and uses Pastry to route a SUBSCRIBE message towards the root through an
    alternative route. The message reaches node 1111 ... This causes node 1100 to add 1111 to its children table." """
    world = figure_4()
    world.crash(world.at_place("1101"))
    world.route(world.at_place("1001"), world.at_place("1100").me, "found out")
    world.run(10)
    assert world.receivers("found out") == [world.at_place("1100")]
    assert named(world, "1001", "1100") == ["1001", "1111", "1100"]
    assert named(world, "0111", "1100") == ["0111", "1001", "1111", "1100"]
