"""Whatever is lost, repeated, reordered, restarted or forgotten: both ends of a stream come to hold the same."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from quillcast.protocol import wire
from tests.protocol.neighbours.ends import Link

ENDS = st.sampled_from("ab")
KEYS = st.sampled_from([bytes([number]) * 16 for number in range(8)])
VALUES = st.binary(max_size=20)
PLACE = st.integers(0, 1 << 16)
HEAD_BYTES_MAX = 600  # of a message, beside its entries


class Streaming(RuleBasedStateMachine):
    """Small logs and small pages, so that every way to bring a copy up to date is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.link = Link(log_changes_max=4, page_bytes_max=100, questions_max=2)

    @rule(name=ENDS, key=KEYS, value=VALUES)
    def put(self, name: str, key: bytes, value: bytes) -> None:
        self.link.ends[name].put(key, value)

    @rule(name=ENDS, key=KEYS)
    def drop(self, name: str, key: bytes) -> None:
        self.link.ends[name].drop(key)

    @rule(name=ENDS)
    def heartbeat(self, name: str) -> None:
        self.link.ends[name].heartbeat()

    @rule(seconds=st.sampled_from([0.01, 0.1, 1.0]))
    def advance(self, seconds: float) -> None:
        self.link.advance(seconds)

    @rule(name=ENDS)
    def forget(self, name: str) -> None:
        self.link.ends[name].forget()

    @rule(name=ENDS)
    def restart(self, name: str) -> None:
        self.link.restart(name)

    @precondition(lambda self: self.link.flights)
    @rule()
    def deliver(self) -> None:
        self.link.deliver()

    @precondition(lambda self: self.link.flights)
    @rule(place=PLACE)
    def deliver_out_of_order(self, place: int) -> None:
        self.link.deliver(place % len(self.link.flights))

    @precondition(lambda self: self.link.flights)
    @rule(place=PLACE)
    def lose(self, place: int) -> None:
        del self.link.flights[place % len(self.link.flights)]

    @precondition(lambda self: self.link.flights)
    @rule(place=PLACE)
    def repeat(self, place: int) -> None:
        self.link.flights.append(self.link.flights[place % len(self.link.flights)])

    @rule()
    def heal(self) -> None:
        self.link.heal()
        self.link.check_equal()

    @invariant()
    def sound(self) -> None:
        self.link.check()
        for end in self.link.ends.values():
            assert all(len(wire.encode(message)) <= 100 + HEAD_BYTES_MAX for message in end.sent)

    def teardown(self) -> None:
        self.heal()


TestStreaming = Streaming.TestCase
TestStreaming.settings = settings(max_examples=100, stateful_step_count=50)
