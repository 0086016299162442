"""How a sender and a receiving scope agree on a rate (QuickSilver, *Communication Channels*).

A sender states the most that it will send, by the rules of its own scopes. The receiver divides its limit among its
senders. A sender that will send less than an even share gets what it asks for, and the others share the rest.
"""

from collections.abc import Iterable, Sequence
from math import inf

from quillcast.protocol.scopes.channels import Rate
from quillcast.protocol.scopes.state import Sender


def agreed(most: Rate, sender: bytes, senders: Iterable[Sender]) -> Rate:
    """The rate of one of these senders, which share the scope's limit for entering."""
    known = {each.party.id: [rate for rate in each.rates if rate.topic == most.topic] for each in senders}
    at = [*known].index(sender)
    bytes_ = shares(most.bytes_per_s, [_lowest(rate.bytes_per_s for rate in said) for said in known.values()])
    bundles = shares(most.bundles_per_s, [_lowest(rate.bundles_per_s for rate in said) for said in known.values()])
    return Rate(most.scope, most.topic, bytes_[at], bundles[at])


def shares(most: int, asked: Sequence[int]) -> list[int]:
    """Each sender's share of the limit for entering, by the most that each will send (max-min fair); 0: no limit."""
    given, left = list(asked), most
    for before, at in enumerate(sorted(range(len(asked)), key=lambda at: asked[at] or inf)):
        if most:
            even = max(1, left // (len(asked) - before))
            given[at] = min(asked[at] or even, even)
            left -= given[at]
    return given


def _lowest(rates: Iterable[int]) -> int:
    return min(filter(None, rates), default=0)
