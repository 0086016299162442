"""Publishers, as their root knows them."""

import pytest

from quillcast.core.messages import Contact
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.root_messages import Closed, StillOpen
from tests.protocol.recording import BOB, CAROL, PAUL
from tests.protocol.topics.parts import BY_SOURCE, CONFIG, DESCRIPTOR, Parts, settled


@pytest.mark.parametrize("descriptor", [DESCRIPTOR, BY_SOURCE])
def test_a_publisher_that_says_it_closed_is_forgotten(world: Parts, descriptor: Descriptor) -> None:
    """A root may have admitted its events before it learned that sources number them."""
    tree = world.root(descriptor)
    assert tree.root is not None
    tree.root.admissions = {PAUL: settled(BOB)}
    world.dispatch.message(BOB, Closed([(tree.topic, PAUL), (b"?" * 16, PAUL)]))
    assert tree.root.admissions == {}


@pytest.mark.parametrize("version", [0, 3])
def test_a_peer_that_published_nothing_yet_hears_of_changed_settings_again(world: Parts, version: int) -> None:
    """The word that a session began may be lost, and all that its publishers had sent was of the session before."""
    tree = world.root(Descriptor("weather", version=version))
    assert tree.root is not None
    tree.root.admissions = {PAUL: settled(BOB)}
    for contact in (BOB, CAROL):
        tree.root.note_asked(contact)
    world.host.time += CONFIG.lease_s
    world.admissions.housekeep(world.host.time)
    told = [(CAROL, StillOpen([], ((tree.topic, version),)))] if version else []
    assert [each for each in world.host.sent if isinstance(each[1], StillOpen) and each[1].versions] == told


def test_the_peer_of_a_silent_publisher_is_queried(world: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    probed: list[Contact] = []
    monkeypatch.setattr(world.neighbours, "probe", probed.append)
    tree = world.root()
    assert tree.root is not None
    tree.root.admissions = {PAUL: settled(BOB)}
    for _ in range(2):
        world.host.time += CONFIG.lease_s
        world.admissions.housekeep(world.host.time)
    assert probed == [BOB]
    assert world.host.sent == [(BOB, StillOpen([(tree.topic, PAUL)]))]
