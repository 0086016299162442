"""The judge of rates, in histories in which most scopes have some."""

import pytest
from msgspec.structs import replace

from quillcast.protocol.scopes.channels import Address
from quillcast.protocol.scopes.hierarchy import scope_id
from quillcast.protocol.scopes.rate_limits import Gate
from quillcast.sim.hard import hard
from quillcast.sim.scenario import Scenario
from quillcast.sim.simulation import Simulation
from quillcast.sim.sweep import Plan
from quillcast.sim.world import Broken


@pytest.mark.parametrize("seed", [91006, 91013, 91021, 91028, 91032, 91038])
def test_peers_keep_to_the_rates_of_scopes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several entry points, policies and ways over borders, and agreements that change while bundles wait."""
    monkeypatch.setattr("quillcast.sim.composed.RATED", 0.8)
    simulation = Simulation(Plan(hard=True, composed=True).scenario(seed), seed)
    simulation.run()
    assert simulation.rates.sent, "there are rates"


def rated(**rates: int) -> Scenario:
    """A campus with two sites, with these rates at one of them."""
    scenario = hard(3).with_scopes("k_ary", 2, within="star")
    scopes = [replace(each, **rates) if each.name == "site 0" else each for each in scenario.scopes]
    return replace(scenario, scopes=scopes)


def test_each_of_many_senders_may_send_one_bundle_a_second() -> None:
    """The limit is one, and two members send out of the scope."""
    Simulation(Plan(hard=True, composed=True).scenario(100792), 100792).run()


@pytest.mark.parametrize("key", ["bytes_per_s", "bundles_per_s"])
def test_at_the_end_each_channel_into_a_scope_has_a_rate(key: str) -> None:
    simulation = Simulation(rated(**{key: 200 if "bytes" in key else 1}), 3)
    simulation.run()
    site, scenario = scope_id(b"site 0"), simulation.scenario
    below = scenario.below(next(plan for plan in scenario.scopes if plan.name == "site 0"))
    peers = dict(simulation.running())
    inside = {peer.host.me for machine, peer in peers.items() if machine.number in below}
    entering = [
        {getattr(rate, key) for rate in each.rates if rate.scope == site}
        for peer in peers.values() if peer.host.me not in inside and peer.scoping.controller is not None
        for channel in peer.scoping.controller.channels
        if isinstance(channel.spec, Address) and channel.spec.peer.node_id in inside
        for each in channel.constraints
    ]  # fmt: skip
    assert entering
    assert all(rates and min(rates) > 0 for rates in entering)


def test_a_rate_that_a_peer_has_again_after_a_moment_goes_on() -> None:
    Simulation(Plan(hard=True, composed=True).scenario(97310), 97310).run()


@pytest.mark.parametrize("key", ["bytes_per_s", "bundles_per_s", "leaving_bytes_per_s", "leaving_bundles_per_s"])
def test_the_judge_notices_what_is_sent_too_fast(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = rated(**{key: 200 if "bytes" in key else 1})
    Simulation(scenario, 3).run()
    monkeypatch.setattr(Gate, "wait_s", lambda gate, bundle, now: 0.0)
    with pytest.raises(Broken, match=r"rates: peer .* too many"):
        Simulation(scenario, 3).run()


def test_the_judge_notices_senders_that_may_send_too_much_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quillcast.protocol.scopes.rates.shares", lambda most, asked: [most + 1 for _ in asked])
    with pytest.raises(Broken, match="rates: 201 bytes per second may go into scope site 0, instead of 200"):
        Simulation(rated(bytes_per_s=200), 3).run()
