"""When the parent outside of a scope's entry point counts, of those that it has one after another."""

from itertools import pairwise

from quillcast.core.messages import Contact
from quillcast.protocol.scopes.channels import Party
from quillcast.protocol.scopes.controller import LocalController
from quillcast.protocol.scopes.effects import Measure, Send
from quillcast.protocol.scopes.measuring import AGAIN_S, Parents
from quillcast.protocol.scopes.messages import Measured, MeasureRoundTrips
from tests.protocol.scopes import network

T, U = bytes(16), b"u" * 16
LEASE_S = 5.0


def peer(number: int) -> Party:
    node = bytes([number]) * 16
    return Party(node, Contact(node, f"127.0.0.1:{number}"))


def test_the_first_parent_counts_at_once_and_the_next_one_after_a_pause() -> None:
    parents = Parents(LEASE_S)
    assert parents.hear(T, peer(1), 0.0)
    assert not parents.hear(T, peer(2), 1.0)
    assert parents.hear(U, peer(2), 1.0), "each topic has its own"
    assert parents.passed(4.9) == []
    assert parents.passed(5.0) == [T]
    assert parents.heeded[T] == peer(2)
    assert parents.passed(100.0) == [], "it counts already"


def test_of_several_parents_within_a_pause_the_last_one_counts_if_it_is_another() -> None:
    parents = Parents(LEASE_S)
    parents.hear(T, peer(1), 0.0)
    for number in (2, 3, 1):
        assert not parents.hear(T, peer(number), 1.0)
    assert parents.passed(5.0) == []
    assert parents.hear(T, peer(2), 6.0), "nothing has changed since, so there is no other pause"


def test_parents_that_take_turns_count_ever_more_rarely() -> None:
    parents, changes = Parents(LEASE_S), list[int]()
    for second in range(2000):
        if parents.hear(T, peer(second % 2), second) or parents.passed(second + 0.5):
            changes.append(second)
    pauses = [later - earlier for earlier, later in pairwise(changes)]
    assert pauses[:5] == [5, 11, 21, 41, 81], "an even number later, the parent is the same one"
    assert all(AGAIN_S <= pause <= AGAIN_S + 1 for pause in pauses[6:])
    assert parents.hear(T, peer(7), 2 * AGAIN_S + changes[-1] + 1), "long after, a change counts at once"
    assert not parents.hear(T, peer(8), 2 * AGAIN_S + changes[-1] + 2)
    assert parents.hear(T, peer(8), 2 * AGAIN_S + changes[-1] + 2 + LEASE_S), "and the next pause is short again"


def test_a_topic_that_is_forgotten_begins_anew() -> None:
    parents = Parents(LEASE_S)
    parents.hear(T, peer(1), 0.0)
    parents.hear(T, peer(2), 1.0)
    parents.forget(T)
    assert parents.passed(9.0) == []
    assert parents.hear(T, peer(1), 9.0)


def test_a_member_tells_of_the_way_to_a_scope_as_of_that_to_the_peer_of_its_manager() -> None:
    owner, sender, other = network.scope("X"), network.scope("Y"), network.peer("A")
    member = LocalController(network.peer("B"), [owner], LEASE_S)
    member.begin(0.0)
    asked = member.received(MeasureRoundTrips(owner.id, (sender, other)), 0.0)
    assert asked == [Measure(sender), Measure(other)]
    assert member.measured(sender.contact.node_id, 0.1) == [
        Send(owner, Measured(owner.id, network.peer("B").id, sender.id, 0.1))
    ]
    assert member.measured(other.contact.node_id, None) == [], "it cannot be reached"
    assert member.measuring == {}
