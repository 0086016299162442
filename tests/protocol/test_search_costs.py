"""What a scope of many members spends on events that are late: nothing for what by their reports no member can have."""

from collections import Counter

import pytest

from quillcast.core.bundle import Bundle
from quillcast.core.messages import Contact, Message
from quillcast.protocol.reliability.messages import AGENT_MESSAGES, Fetch, FetchFromSource, Unavailable
from quillcast.protocol.reliability.protocols import BUILT_IN
from quillcast.protocol.scopes.policies.k_ary import KAry
from quillcast.protocol.topics.descriptor import Choice, Settings
from quillcast.sim.host import SimHost
from tests.params import rest_long
from tests.protocol.test_recovery_domains import Losses
from tests.protocol.test_scoping import Site

BEFORE, LATE = [b"before %d" % number for number in range(3)], [b"late %d" % number for number in range(60)]
CHECKS_S = 0.5  # between two checks for gaps


class Lagging(Losses):
    """The peer above a scope has events, as it reports, and its bundles do not come. Counts messages of recovery."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, site: Site) -> None:
        super().__init__(monkeypatch)
        self.members = {site.village.world.machines[number].node_id for number in site.members}
        self.lags, self.inside, self.outside = True, Counter[str](), 0

    def send(self, host: SimHost, to: Contact, message: Message) -> None:
        if host.me in self.members and isinstance(message, (*AGENT_MESSAGES, Fetch, FetchFromSource, Unavailable)):
            if to.node_id in self.members:
                self.inside[type(message).__name__] += 1
            else:
                self.outside += 1
        super().send(host, to, message)

    def carry(self, host: SimHost, to: Contact, bundle: Bundle) -> None:
        if not self.lags or host.me in self.members or to.node_id not in self.members:
            super().carry(host, to, bundle)


@pytest.mark.parametrize("admission", rest_long(["root", "source"], 1))
@pytest.mark.parametrize("recovery", BUILT_IN)
def test_members_are_not_asked_for_what_only_the_peer_above_can_have(
    recovery: str, admission: Choice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took 311 messages in these six seconds with `tree`, and 7,087 where sources number the events."""
    site = Site(24, KAry(fan_out=4), recovery=recovery)
    site.village.act(0, lambda peer: peer.create(site.name, Settings(admission=admission), lambda answer: None))
    readers = site.subscribe(site.members)
    publisher = site.village.publisher(0, site.name)
    for payload in BEFORE:
        site.village.publish(0, publisher, payload)
    site.village.run(2)
    lagging = Lagging(monkeypatch, site)
    for payload in LATE:
        site.village.publish(0, publisher, payload)
        site.village.run(0.1)
    assert lagging.outside > len(LATE) * 0.1 / CHECKS_S / 2, "the peer above is asked"
    assert lagging.inside == {}
    lagging.lags = False
    site.village.run(20)
    assert [reader.payloads for reader in readers.values()] == [BEFORE + LATE] * len(readers)
