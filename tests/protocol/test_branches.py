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


def test_who_enters_two_scopes_is_invited_to_each_as_its_manager_wants() -> None:
    host: Any = RecordingHost()
    expected: list[Any] = []
    placement: Any = SimpleNamespace(expect=expected.append)
    controller: Any = SimpleNamespace(channels=[ordered(T, b"of X"), ordered(U, b"of Y")])
    overlay: Any = None
    dispatch: Any = None
    Branches(host, overlay, {}, placement, dispatch).invite(controller, 0)
    assert host.sent == [(BOB, Invite([T], b"of X")), (BOB, Invite([U], b"of Y"))]
    assert expected == [{T: {BOB: None}, U: {BOB: None}}]
