"""Topics that two scopes root at themselves, at a peer that is below both."""

import msgspec

from quillcast.core.messages import Contact, Message
from quillcast.protocol.overlay.messages import Relay
from quillcast.protocol.scopes.messages import RootScope
from quillcast.protocol.topics.descriptor import described
from quillcast.protocol.topics.messages import Join, Refused
from quillcast.protocol.topics.query_messages import PlaceQuery
from quillcast.protocol.wire import WireCodec
from tests.protocol.recording import ALICE, BOB, CAROL
from tests.protocol.topics.parts import DESCRIPTOR, Parts

TOPIC, CODEC = DESCRIPTOR.topic, WireCodec()


def of_both_scopes(me: Contact, *, first: bool = True, second: bool = True) -> Parts:
    """The parts of a peer that is below two scopes. The topic is rooted at those of them that are True."""
    world = Parts(me=me)
    world.overlay.lifecycle.active = True
    world.overlay.router.codec = CODEC
    world.overlay.serve(world.scribe)
    root_at(world, first=first, second=second)
    return world


def root_at(world: Parts, *, first: bool, second: bool) -> None:
    world.overlay.seats.follow([
        RootScope(b"1" * 16, "first", (("weather", first),), (ALICE, BOB)),
        RootScope(b"2" * 16, "second", (("weather", second),), (ALICE, BOB)),
    ])  # fmt: skip


def relayed(message: Message, scope: str) -> Relay:
    return Relay(TOPIC, CAROL, 1, 1, CODEC.encode(message), scope)


def test_a_member_of_one_gets_no_place_in_the_tree_of_the_other_though_its_file_no_longer_says_root() -> None:
    world = of_both_scopes(ALICE, first=False)
    rooted = world.known.rooted(described("weather"))
    tree = world.root(rooted)
    root_at(world, first=True, second=False)
    world.overlay.seats.note(TOPIC, "second")
    there = msgspec.structs.replace(rooted, settings=msgspec.structs.replace(rooted.settings, root_scope="first"))
    world.overlay.router.relay(CAROL, relayed(Join(TOPIC, CAROL, None, there.digest, there, number=9), "first"))
    assert not tree.leases.children
    (refused,) = [message for _, message in world.host.sent if isinstance(message, Refused)]
    assert "rooted at scope second" in refused.rule


def test_a_question_does_not_go_to_and_fro_between_peers_that_root_the_topic_at_different_scopes() -> None:
    peers = {each: of_both_scopes(each) for each in (ALICE, BOB)}
    for peer, scope in zip(peers.values(), ("first", "second"), strict=True):
        peer.overlay.seats.note(TOPIC, scope)
    waiting, handled = [(ALICE, CAROL, relayed(PlaceQuery(TOPIC, CAROL, None), "first"))], 0
    while waiting:
        at, sender, relay = waiting.pop()
        handled += 1
        peers[at].overlay.router.relay(sender, relay)
        waiting += [(to, at, each) for to, each in peers[at].host.sent if isinstance(each, Relay)]
        peers[at].host.sent.clear()
    assert handled <= len(peers)
