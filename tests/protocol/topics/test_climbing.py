"""A peer looks for the parent through which it is reached soonest from the root."""

import pytest

from quillcast.core.messages import Contact
from quillcast.protocol.topics.descriptor import described
from quillcast.protocol.topics.query_messages import PlaceAnswer, PlaceQuery
from tests.protocol.recording import ALICE, BOB, CAROL
from tests.protocol.topics.parts import CONFIG, DESCRIPTOR, Parts

TOPIC = DESCRIPTOR.topic
ROOT, DAVE, EVE = (Contact(name * 16, f"127.0.0.1:{port}") for port, name in enumerate((b"r", b"d", b"e"), 4))
QUERY = PlaceQuery(TOPIC, ALICE)


class Climber(Parts):
    """A peer whose parent is Bob, and which has begun to look for a better one."""

    def __init__(self, **round_trips_s: float) -> None:
        super().__init__()
        self.tree().parent = BOB
        contacts = {"bob": BOB, "carol": CAROL, "dave": DAVE, "eve": EVE}
        self.host.proximities = {contacts[name].node_id: each for name, each in round_trips_s.items()}
        self.climbing.begin(TOPIC)

    def answer(self, sender: Contact, *below: tuple[Contact, float], **facts: bool) -> None:
        """One that was asked names its children; what follows is to be looked at alone."""
        del self.host.sent[:]
        self.dispatch.message(sender, PlaceAnswer(TOPIC, facts.pop("has_room", False), below, **facts))

    @property
    def asked(self) -> list[tuple[Contact, str]]:
        return self.sent


def test_the_root_is_asked_first_and_taken_if_it_has_room() -> None:
    climber = Climber()
    assert climber.ring.routed == [(QUERY, TOPIC)]
    climber.answer(ROOT, has_room=True, is_root=True)
    assert climber.sent == [(ROOT, "Rejoin")]


def test_then_the_child_through_which_this_peer_would_be_reached_soonest() -> None:
    climber = Climber(carol=0.06, dave=0.02)
    climber.answer(ROOT, (CAROL, 0.01), (DAVE, 0.05), is_root=True)
    assert climber.host.sent == [(CAROL, QUERY)], "10 + 30 ms are less than 50 + 10 ms"
    climber.answer(CAROL)
    assert climber.host.sent == [(DAVE, QUERY)]
    climber.answer(DAVE, has_room=True)
    assert climber.sent == [(DAVE, "Rejoin")]


def test_and_those_below_it_at_the_sum_of_the_delays() -> None:
    climber = Climber(carol=0.02, dave=0.02, eve=0.02)
    climber.answer(ROOT, (CAROL, 0.01), (DAVE, 0.03), is_root=True)
    climber.answer(CAROL, (EVE, 0.01))
    assert climber.host.sent == [(EVE, QUERY)], "10 + 10 + 10 ms are less than 30 + 10 ms"


def test_nothing_is_kept_of_a_search_that_nobody_answers_in_a_topic_that_is_forgotten() -> None:
    climber = Climber(carol=0.06)
    climber.answer(ROOT, (CAROL, 0.01), is_root=True)
    climber.open_trees.forget(climber.trees[TOPIC])
    for number in range(2 * CONFIG.idle_topics_max):
        climber.known.learn(described(f"other/{number}"))
    assert TOPIC not in climber.known.descriptors
    assert climber.climbing.searches == {}
    climber.answer(CAROL, has_room=True)
    assert climber.sent == []


def test_the_present_parent_stays_unless_a_fifth_is_gained() -> None:
    for others_s, asked in ((0.045, BOB), (0.035, CAROL)):
        climber = Climber(bob=0.05, carol=others_s)
        climber.answer(ROOT, (BOB, 0.0), (CAROL, 0.0), is_root=True)
        assert climber.host.sent == [(asked, QUERY)]
        climber.answer(asked)
        if asked == BOB:
            assert climber.sent == [], "nothing better is to be found"
            assert climber.climbing.searches == {}


def test_a_parent_that_only_forwards_is_left_even_for_a_worse_one() -> None:
    climber = Climber(bob=0.01, carol=0.09)
    climber.answer(ROOT, (BOB, 0.0), (CAROL, 0.0), is_root=True)
    climber.answer(BOB, only_forwards=True)
    assert climber.host.sent == [(CAROL, QUERY)]


def test_who_was_not_measured_yet_is_measured_before_anybody_is_asked() -> None:
    climber = Climber(carol=0.05)
    climber.answer(ROOT, (CAROL, 0.0), (DAVE, 0.0), (EVE, 0.0), is_root=True)
    assert climber.sent == []
    assert climber.host.measured == [DAVE, EVE]
    climber.climbing.measured(DAVE, None)
    climber.climbing.measured(EVE, 0.02)
    assert climber.host.sent == [(EVE, QUERY)], "nobody waits for one that does not answer"


@pytest.mark.parametrize("answer", [PlaceAnswer(TOPIC, True), PlaceAnswer(bytes(16), True, (), True)])
def test_answers_that_nobody_asked_for_change_nothing(answer: PlaceAnswer) -> None:
    climber = Climber()
    climber.dispatch.message(CAROL, answer)
    assert climber.sent == []


def answered(parts: Parts) -> PlaceAnswer:
    """What a peer answers to Bob."""
    parts.dispatch.routed(PlaceQuery(TOPIC, BOB))
    ((to, answer),) = parts.host.sent
    assert to == BOB
    assert isinstance(answer, PlaceAnswer)
    return answer


def test_a_peer_names_the_children_whose_round_trips_it_knows_and_measures_the_others() -> None:
    parts = Parts()
    tree = parts.root()
    for contact in (BOB, CAROL, DAVE):
        parts.child(tree, contact)
    parts.host.proximities[CAROL.node_id] = 0.04
    assert answered(parts) == PlaceAnswer(TOPIC, True, ((CAROL, 0.02),), is_root=True)
    assert parts.host.measured == [DAVE]


def test_room_is_kept_for_those_that_a_manager_orders_to_come() -> None:
    parts = Parts()
    tree = parts.root()
    for number in range(CONFIG.children_per_topic_max - 1):
        parts.child(tree, Contact(bytes(15) + bytes([number]), "127.0.0.1:9"))
    parts.placement.expected = {TOPIC: [DAVE]}
    assert not answered(parts).has_room


def test_a_peer_that_only_forwards_has_no_room_and_one_in_a_scope_has() -> None:
    for members, has_room in (({}, False), ({TOPIC: [EVE]}, True)):
        parts = Parts()
        parts.tree().parent = ROOT
        parts.placement.members = members
        answer = answered(parts)
        assert (answer.has_room, answer.only_forwards) == (has_room, not has_room)


def test_who_has_no_part_in_the_topic_says_nothing() -> None:
    parts = Parts()
    parts.dispatch.routed(PlaceQuery(TOPIC, BOB))
    assert parts.host.sent == []
