"""Questions for roots, and the roots that a peer watches over: one input, and what was ordered or is kept then."""

from quillcast.core.envelope import NO_TERM
from quillcast.protocol.forwarding.milestones import Came
from quillcast.protocol.topics.descriptor import described
from quillcast.protocol.topics.publishing.publisher import Publisher
from quillcast.protocol.topics.publishing.root_finder import TERMS_MAX
from quillcast.protocol.topics.root_messages import FindRoot
from tests.protocol.recording import ALICE, BOB, CAROL, FIRST, PAUL, PAULA, SECOND
from tests.protocol.topics.parts import CONFIG, DESCRIPTOR, STREAM, Parts
from tests.protocol.topics.test_publisher import Listener, uplink

TOPIC, OTHER = DESCRIPTOR.topic, described("sport").topic


def publisher(world: Parts, id_: bytes = PAUL) -> Publisher:
    return Publisher(world.host, CONFIG, DESCRIPTOR, id_, Listener(), uplink(world.host))


def asked(world: Parts) -> list[FindRoot]:
    """The questions that went over the overlay."""
    return [message for message, _ in world.ring.routed if isinstance(message, FindRoot)]


def test_the_first_question_says_that_no_root_spoke_yet(world: Parts) -> None:
    world.root_finder.ask(TOPIC, [publisher(world)])
    assert world.ring.routed == [(FindRoot(TOPIC, ALICE, DESCRIPTOR, NO_TERM), TOPIC)]


def test_a_question_that_was_not_answered_is_marked_when_it_is_asked_again(world: Parts) -> None:
    world.root_finder.ask(TOPIC, [])
    world.root_finder.ask(TOPIC, [])
    world.root_finder.answered(TOPIC)
    world.root_finder.ask(TOPIC, [])
    assert [message.again for message in asked(world)] == [False, True, False]


def test_the_root_that_spoke_last_of_the_latest_term_is_named_and_no_stream_of_a_source(world: Parts) -> None:
    earlier, later, source = (publisher(world, id_) for id_ in (PAUL, PAULA, b"s" * 16))
    earlier.term, earlier.spoke_at = FIRST, 4.0
    later.term, later.spoke_at = SECOND, 3.0
    source.term, source.spoke_at = STREAM, 5.0
    world.host.time = 10.0
    world.root_finder.ask(TOPIC, [earlier, later, source])
    assert [(message.term, message.spoke_s) for message in asked(world)] == [(SECOND, 7.0)]


def test_a_peer_that_has_not_joined_asks_nobody_and_asks_again_later(world: Parts) -> None:
    world.ring.active = False
    finder = world.root_finder
    finder.ask(TOPIC, [])
    assert world.ring.routed == []
    assert not finder.may_ask(TOPIC, CONFIG.receipt_timeout_s - 0.1)
    assert finder.may_ask(TOPIC, CONFIG.receipt_timeout_s)


def test_a_peer_that_was_turned_away_asks_later(world: Parts) -> None:
    assert world.root_finder.may_ask(TOPIC, 0.0)
    world.root_finder.ask_later(TOPIC)
    assert not world.root_finder.may_ask(TOPIC, 0.0)
    assert world.ring.routed == []


def test_the_next_root_is_told_how_far_the_latest_terms_were_stable(world: Parts) -> None:
    for counter in range(TERMS_MAX + 1):
        world.root_finder.note_stable(TOPIC, FIRST._replace(counter=counter), 10)
    latest = FIRST._replace(counter=TERMS_MAX)
    world.host.time += 8.9
    world.root_finder.note_stable(TOPIC, latest, 7)
    world.root_finder.ask(TOPIC, [])
    (message,) = asked(world)
    assert message.settled[-1] == (latest, 10, 8900), "what is stable stays so, and has been there for so long"
    assert [term.counter for term, *_ in message.settled] == [1, 2, 3, 4]


def test_the_next_root_is_told_how_far_terms_had_gone_whose_events_were_dropped(world: Parts) -> None:
    finder = world.root_finder
    finder.note_dropped(TOPIC, FIRST, Came(4, world.host.now()), now=FIRST)
    assert finder.untold == {}, "that root lives and knows"
    finder.ask(TOPIC, [])
    finder.note_dropped(TOPIC, FIRST, Came(6, world.host.now() - 2.5), now=FIRST)
    assert list(finder.untold) == [TOPIC], "who answers may be another one"
    finder.answered(TOPIC)
    finder.ask(TOPIC, [])
    assert [message.dropped for message in asked(world)] == [((FIRST, 4, 0),), ((FIRST, 6, 2500),)]
    finder.answered(TOPIC)
    finder.note_dropped(TOPIC, FIRST, Came(6, world.host.now()), now=SECOND)
    assert finder.untold == {}, "that is no news"
    finder.note_dropped(TOPIC, FIRST, Came(7, world.host.now()), now=SECOND)
    assert list(finder.untold) == [TOPIC]
    finder.end(TOPIC)
    assert (finder.untold, finder.dropped) == ({}, {})


def test_a_root_is_watched_for_as_long_as_one_of_its_topics_is_published_in(world: Parts) -> None:
    finder, neighbours = world.root_finder, world.neighbours
    for topic in (TOPIC, OTHER):
        finder.watch(topic, BOB)
    finder.watch(TOPIC, CAROL)
    assert [neighbours.watches(each.node_id) for each in (BOB, CAROL)] == [True, True]
    finder.end(OTHER)
    assert [neighbours.watches(each.node_id) for each in (BOB, CAROL)] == [False, True]
    assert (finder.rooted_at(BOB.node_id), finder.rooted_at(CAROL.node_id)) == ([], [TOPIC])
    finder.check()


def test_nobody_watches_over_this_very_peer(world: Parts) -> None:
    world.root_finder.watch(TOPIC, ALICE)
    assert not world.neighbours.watches(ALICE.node_id)
    assert world.root_finder.rooted_at(ALICE.node_id) == [TOPIC]


def test_roots_are_asked_for_again_when_the_broken_link_to_them_is_up_and_only_then(world: Parts) -> None:
    finder = world.root_finder
    finder.watch(TOPIC, BOB)
    assert finder.link_up(BOB) == []
    finder.link_lost(BOB)
    finder.link_lost(CAROL)
    assert (finder.link_up(BOB), finder.link_up(BOB), finder.link_up(CAROL)) == ([TOPIC], [], [])


def test_topics_that_had_their_turn_come_after_the_others(world: Parts) -> None:
    for topic in (TOPIC, OTHER, PAUL):
        world.root_finder.watch(topic, BOB)
    world.root_finder.had_turn(BOB.node_id, [TOPIC, OTHER])
    assert list(world.root_finder.watched[BOB.node_id]) == [PAUL, TOPIC, OTHER]


def test_nothing_is_kept_of_a_topic_after_its_last_publisher(world: Parts) -> None:
    finder = world.root_finder
    finder.ask(TOPIC, [])
    finder.note_stable(TOPIC, FIRST, 1)
    finder.watch(TOPIC, BOB)
    finder.end(TOPIC)
    assert (finder.asked_at, finder.settled, finder.roots, finder.watched) == ({}, {}, {}, {})
