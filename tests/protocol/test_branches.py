"""The links of topics' trees that a peer makes for its scopes: one input, and then whom it invites."""

from types import SimpleNamespace
from typing import Any

from quillcast.protocol.scopes.channels import Address, ChannelOrder, Constraint
from quillcast.protocol.scopes.labels import ChannelLabel
from quillcast.protocol.scoping.branches import Branches
from quillcast.protocol.topics.messages import Invite
from tests.protocol.recording import BOB, RecordingHost

T, U = b"t" * 16, b"u" * 16


def ordered(topic: bytes, invitation: bytes) -> ChannelOrder:
    """A channel to Bob, with what its manager gave for it."""
    return ChannelOrder(ChannelLabel((1,), (2,)), Address(BOB, invitation), (Constraint(topic, 1, None),))


def invited(doubtful: dict[bytes, None]) -> tuple[list[Any], list[Any]]:
    """Whom a peer invites that is ordered two channels, and who is expected then."""
    host: Any = RecordingHost()
    expected: list[Any] = []
    placement: Any = SimpleNamespace(expect=expected.append)
    membership = SimpleNamespace(doubtful=lambda: doubtful)
    channels = [ordered(T, b"of X"), ordered(U, b"of Y")]
    controller: Any = SimpleNamespace(channels=channels, membership=membership)
    overlay: Any = None
    dispatch: Any = None
    Branches(host, overlay, {}, placement, dispatch).invite(controller, 0)
    return host.sent, expected


def test_who_enters_two_scopes_is_invited_to_each_as_its_manager_wants() -> None:
    sent, expected = invited({})
    assert sent == [(BOB, Invite([T], b"of X")), (BOB, Invite([U], b"of Y"))]
    assert expected == [{T: {BOB: None}, U: {BOB: None}}]


def test_nobody_is_invited_in_a_topic_of_which_the_orders_may_be_old() -> None:
    sent, expected = invited({U: None})
    assert sent == [(BOB, Invite([T], b"of X"))]
    assert expected == [{T: {BOB: None}}]
