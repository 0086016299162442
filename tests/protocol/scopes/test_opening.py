"""The links of a member's channels: peers answer or cannot be reached, then what is said now."""

from quillcast.core.dispatch import Dispatch
from quillcast.protocol.scopes.channels import Party
from quillcast.protocol.scopes.effects import Send
from quillcast.protocol.scopes.messages import Alive, Reach, Reached
from quillcast.protocol.scoping.opening import Opening
from tests.protocol.recording import ALICE, BOB, CAROL, WEATHER, RecordingHost


def alive(number: int) -> Send:
    """A sign of life that acknowledges these orders."""
    return Send(Party(WEATHER, BOB), Alive(WEATHER, Party(ALICE.node_id, ALICE), 1, number))


def test_orders_are_acknowledged_once_every_new_end_answered_or_is_out_of_reach() -> None:
    host = RecordingHost()
    opening = Opening(host, Dispatch())
    opening.follow([BOB, CAROL])
    assert host.sent == [(BOB, Reach()), (CAROL, Reach())]
    assert opening.acknowledge([alive(1)]) == ()
    assert opening.answered(BOB) == ()
    assert opening.answered(CAROL) == [alive(1)]
    assert opening.answered(CAROL) == (), "once"


def test_only_the_latest_orders_are_acknowledged() -> None:
    opening = Opening(RecordingHost(), Dispatch())
    opening.follow([BOB])
    opening.acknowledge([alive(1)])
    opening.acknowledge([alive(2)])
    assert opening.answered(BOB) == [alive(2)]


def test_ends_that_are_known_or_no_longer_ordered_are_not_waited_for() -> None:
    host = RecordingHost()
    opening = Opening(host, Dispatch())
    opening.follow([BOB, CAROL])
    opening.answered(BOB)
    opening.follow([BOB])
    assert opening.acknowledge([alive(1)]) == [alive(1)]
    assert host.sent == [(BOB, Reach()), (CAROL, Reach())]


def test_a_peer_that_is_asked_answers() -> None:
    host, dispatch = RecordingHost(), Dispatch()
    Opening(host, dispatch)
    dispatch.message(BOB, Reach())
    assert host.sent == [(BOB, Reached())]
