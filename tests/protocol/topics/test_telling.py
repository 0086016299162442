"""What a peer remembers of the topics that it transferred."""

from quillcast.protocol.topics.descriptor import Descriptor, described
from quillcast.protocol.topics.root_messages import AnotherFollows, TransferLeadership
from tests.protocol.recording import BOB, CAROL, FIRST
from tests.protocol.topics.parts import CONFIG, Parts


def test_what_was_said_a_lease_ago_is_forgotten_though_other_words_of_before_were_said_again(world: Parts) -> None:
    transfer = world.telling
    again, passed_on, old, last = (described(name) for name in ("again", "passed on", "old", "last"))

    def tell(*descriptors: Descriptor) -> None:
        for descriptor in descriptors:
            transfer.tell(BOB, TransferLeadership(descriptor, FIRST, 0, 0))

    tell(again, passed_on, old)
    world.host.time += CONFIG.lease_s * 0.6
    tell(again)
    transfer.dispatch.message(BOB, AnotherFollows(passed_on.topic, FIRST, CAROL))
    world.host.time += CONFIG.lease_s * 0.6
    tell(last)
    assert [*transfer.vouched] == [again.topic, passed_on.topic, last.topic]
