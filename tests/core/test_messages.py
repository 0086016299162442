"""Messages: each has its own tag, in the range of its layer, and the wire union contains all of them."""

import ast
from pathlib import Path
from typing import get_args

import msgspec
import pytest

import quillcast
from quillcast.core.messages import Contact, Message
from quillcast.protocol import wire
from quillcast.protocol.neighbours import messages as neighbours
from quillcast.protocol.neighbours import stream_messages as streams
from quillcast.protocol.overlay import messages as overlay
from quillcast.protocol.reliability import messages as reliability
from quillcast.protocol.scopes import messages as scopes
from quillcast.protocol.topics import messages as trees
from quillcast.protocol.topics import query_messages as queries
from quillcast.protocol.topics import root_messages as roots

PROTOCOL = Path(quillcast.__file__).parent / "protocol"


def tag(kind: type[Message]) -> int:
    number = kind.__struct_config__.tag
    assert isinstance(number, int)
    return number


@pytest.mark.parametrize(
    ("layer", "its_own"),
    [
        (neighbours, [range(1, 10)]),
        (streams, [range(10, 20)]),
        (overlay, [range(20, 40)]),
        (trees, [range(40, 70), range(110, 130)]),
        (roots, [range(40, 70), range(110, 130)]),
        (queries, [range(40, 70), range(110, 130)]),
        (reliability, [range(70, 90)]),
        (scopes, [range(90, 110), range(130, 140)]),
    ],
)
def test_the_tags_of_a_layer_lie_in_its_ranges(layer: object, its_own: list[range]) -> None:
    tags = [tag(kind) for kind in layer.MESSAGES]  # type: ignore[attr-defined]
    assert [number for number in tags if not any(number in each for each in its_own)] == []


def test_no_two_messages_share_a_tag() -> None:
    assert len({tag(kind) for kind in wire.MESSAGES}) == len(wire.MESSAGES)


def test_the_wire_union_contains_every_declared_message() -> None:
    declared = {
        node.name
        for path in PROTOCOL.rglob("*messages.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id == "Message" for base in node.bases)
    }
    of_orders = scopes.Assignment, scopes.GroupKey, scopes.Bounds, scopes.TopicBounds, scopes.Circle, scopes.Around
    parts = (scopes.Role, scopes.RootScope, *of_orders, scopes.Carrier, scopes.ShownChannel, reliability.Lacking)
    inside = {kind.__name__ for kind in (*get_args(scopes.ControlMessage), *parts)}
    assert {kind.__name__ for kind in wire.MESSAGES} == declared - inside


@pytest.mark.parametrize("kind", wire.MESSAGES, ids=lambda kind: kind.__name__)
def test_a_message_is_frozen_and_compact_and_documents_what_its_receiver_does(kind: type[Message]) -> None:
    config = kind.__struct_config__
    assert config.frozen
    assert config.array_like
    assert kind.__doc__


def test_contacts_are_ordered_by_their_ids() -> None:
    assert Contact(b"a", "z") < Contact(b"b", "a")
    assert msgspec.msgpack.encode(Contact(b"a", "z")) == b"\x92\xc4\x01a\xa1z"
