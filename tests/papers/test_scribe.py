"""Scribe, statement by statement (Castro, Druschel, Kermarrec, Rowstron: the first paper and its successor)."""

from quillcast.core.ids import topic_id
from quillcast.protocol.config import Config
from quillcast.protocol.overlay.config import OverlayConfig
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import Descriptor
from tests.protocol.topics.village import Reader, Village
from tests.transcripts.transcript import Transcript

PLACES = {0b0111: 0.0, 0b0100: 0.5, 0b1001: 1.0, 0b1101: 2.0, 0b1111: 3.2, 0b1100: 5.0}
FAR = 20.0


class Figure4:
    """Peers along a line, such that the subscribers prefer 1001, and 1001 prefers 1101, then 1111 (figure 4)."""

    def delay_s(self, a: int, b: int) -> float:
        return 0.001 * (1 + abs(PLACES.get(a, FAR + 3 * a) - PLACES.get(b, FAR + 3 * b)))


def bits(number: int) -> bytes:
    """The 128-bit id whose leading four bits these are."""
    return bytes([number << 4]) + bytes(15)


def written(node: bytes) -> str:
    return f"{node[0] >> 4:04b}"


def figure_4(name: str) -> Village:
    """All sixteen four-bit ids, b = 1, l = 2; and the topic whose id is 1100."""
    config = Config(
        overlay=OverlayConfig(digit_bits=1, leaf_set_size=2), topics=TopicConfig(fallbacks=0)
    )  # the paper's own repair: no parents known beforehand
    village = Village(0, config=config, topology=Figure4())
    for number in range(16):
        village.add(bits(number))
    village.run(3000)  # until the tables hold the nearest
    return village


def test_figure_4_the_tree_before_and_after_the_failure_of_1101(monkeypatch) -> None:
    """Section 3.1, figure 4, and section 3.2, *Repairing the multicast tree*."""
    name = "the topic with topicId 1100"
    monkeypatch.setattr(Descriptor, "topic", property(lambda self: bits(0b1100)))
    village = figure_4(name)
    transcript = Transcript(written)
    village.world.journal.listeners.append(
        lambda at, machine, record: transcript.note(at, machine, bits(machine), record)
    )
    for subscriber in (0b0111, 0b0100):
        transcript.heading(f"{subscriber:04b} subscribes to topic 1100")
        village.subscribe(subscriber, name, Reader())
        village.run(3)
    transcript.heading("1101 fails")
    village.kill(0b1101, silently=True)
    village.run(20)
    transcript.compare("figure-4.txt")
    tree = {n: sorted(t.leases.children) for n in village.alive() if (t := village.tree(n, name)) is not None}
    assert tree[0b1100] == [bits(0b1111)]
    assert tree[0b1111] == [bits(0b1001)]
    assert tree[0b1001] == sorted([bits(0b0111), bits(0b0100)])


def test_a_topics_id_is_the_hash_of_its_name_and_its_creator() -> None:
    """Section 3.1, *Topic management*: any node makes it from the two names alone."""
    assert topic_id("sport/tennis") == Descriptor("sport/tennis").topic
    assert topic_id("sport/tennis", "alice") != topic_id("sport/tennis")
    assert len({topic_id(str(number))[0] >> 4 for number in range(1000)}) == 16  # spread evenly
