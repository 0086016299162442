"""On which rates senders and receivers agree."""

import pytest

from quillcast.protocol.scopes.channels import Rate
from quillcast.protocol.scopes.rates import agreed, shares
from quillcast.protocol.scopes.state import Sender
from tests.protocol.scopes.network import peer, scope, topic

T, U = topic("t"), topic("u")
P, Q = scope("P").id, scope("Q").id


@pytest.mark.parametrize(
    ("most", "asked", "given"),
    [
        (0, [0, 50], [0, 50]),
        (90, [0, 0], [45, 45]),
        (90, [0, 10, 0], [40, 10, 40]),
        (90, [60, 20], [60, 20]),
        (90, [80, 70], [45, 45]),
        (1, [0, 0, 0], [1, 1, 1]),
    ],
)
def test_who_sends_less_than_an_even_share_leaves_the_rest_to_others(
    most: int, asked: list[int], given: list[int]
) -> None:
    assert shares(most, asked) == given


def test_a_sender_keeps_to_the_lowest_of_its_rates_for_the_same_topics() -> None:
    said = (Rate(P, T, 300, 9), Rate(scope("X").id, T, 200), Rate(P, U, 1), Rate(P, None, 2))
    alice, bob = Sender(peer("A"), 1, (T,), said), Sender(peer("B"), 1, (T,))
    assert agreed(Rate(Q, T, 1000), peer("A").id, [alice, bob]) == Rate(Q, T, 200, 9)
    assert agreed(Rate(Q, T, 1000), peer("B").id, [alice, bob]) == Rate(Q, T, 800)
    assert agreed(Rate(Q), peer("A").id, [alice, bob]) == Rate(Q, None, 2)
