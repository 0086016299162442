"""Random compositions of scopes, forwarding policies and admissions, for histories that are random otherwise.

Most machines are members of scopes, and scopes of other scopes. Each scope has a policy, or several in succession
while the history's faults happen. Some topics have their events numbered by sources. A few compositions have more:
members of two scopes, scopes within two others, rates, multicast into scopes, topics that are rooted at a scope or a
virtual cluster, faults of entry points. Each of these is drawn from random numbers of its own, so that compositions
without it stay the same. So are the promises.
"""

from collections.abc import Sequence
from random import Random
from typing import Any, get_args

import msgspec

from quillcast.protocol.scopes.messages import RecoveryName
from quillcast.sim import faults
from quillcast.sim.leases import bound_s
from quillcast.sim.scenario import CREATED_IN_CLUSTER_S, Policy, Scenario, ScopePlan
from quillcast.sim.world import derived

FREE = 2  # machines outside all scopes: they run the managers, and give the overlay a ring without any scope
SCOPES_MAX = 4
IN_SCOPE = 0.85  # of the other machines are in a scope
WITHIN = 0.5  # of the scopes that may be are members of another one
CHANGES = 0.4  # of the scopes change their policy
PER_ORIGIN = 0.5  # of the scopes with `delay_optimised` have a tree for each origin
BY_SOURCE = 0.25  # of the topics have their events numbered by sources
SPLIT = 0.5  # of the scopes within others use a different member for the channel to each entry point
MANY = (1, 1, 2, 3)  # entry points, and members that pass bundles on to other scopes
NESTED_TWICE = 0.4  # of the scopes within others are members of a second one
PLACED_TWICE = 0.03  # of the members of scopes are members of a second one
RATED = 0.05  # of the scopes have a rate for what enters, and as many for what leaves
RATES = (500, 2_000, 10_000)  # bytes per second: some programs write more than the first two
BUNDLE_RATES = (1, 4, 20)  # bundles per second, likewise
MULTICAST = 0.5  # of the scopes within others let these send to all members at once
ROOTED = 0.05  # of the histories have all topics rooted at a scope
CLUSTERED = 0.05  # of them have them rooted at a virtual cluster
AIMED = 0.2  # of them have a fault of a topic's entry points


def composed(scenario: Scenario, seed: int) -> Scenario:
    """The scenario with a composition drawn from the seed, and no marks.

    Members of scopes are not outside the ring on their own account, too.
    """
    random = derived(seed, "composition")
    topics = [
        msgspec.structs.replace(plan, admission="source" if random.random() < BY_SOURCE else plan.admission)
        for plan in scenario.topics
    ]
    recovery = derived(seed, "recovery")
    scopes = [
        msgspec.structs.replace(scope, recovery=recovery.choice(get_args(RecoveryName)))
        for scope in _scopes(random, scenario.peers)
    ]
    outside = [each for each in scenario.outside if all(each not in scope.members for scope in scopes)]
    name = f"{scenario.name}, in {'; '.join(map(_told, scopes)) or 'no scope'}"
    return msgspec.structs.replace(scenario, name=name, topics=topics, scopes=scopes, outside=outside, marks=[])


def varied(scenario: Scenario, seed: int) -> Scenario:
    """The scenario with border crossings, policy parameters, and what few compositions have, drawn from the seed."""
    scenario = shaped(bordered(scenario, seed), seed)
    for draw in (nested_twice, placed_twice, at_once, rated, rated_in_bundles, rooted, aimed):
        scenario = draw(scenario, derived(seed, draw.__name__))
    return scenario


def bordered(scenario: Scenario, seed: int) -> Scenario:
    """The scenario with crossings of the borders between scopes of a superscope drawn from the seed."""
    random = derived(seed, "borders")
    scopes = [_bordered(random, scope) if scope.within else scope for scope in scenario.scopes]
    crossed = [
        f"{each.name} by {each.entry_points} in, by {each.replicas}{' apart' * each.split} out"
        for each in scopes
        if each.within
    ]
    return msgspec.structs.replace(scenario, name="; ".join([scenario.name, *crossed]), scopes=scopes)


def _bordered(random: Random, scope: ScopePlan) -> ScopePlan:
    entry_points, replicas, split = random.choice(MANY), random.choice(MANY), random.random() < SPLIT
    return msgspec.structs.replace(scope, entry_points=entry_points, replicas=replicas, split=split)


def shaped(scenario: Scenario, seed: int) -> Scenario:
    """The scenario with policy parameters drawn from the seed."""
    random, scopes = derived(seed, "parameters"), list[ScopePlan]()
    for scope in scenario.scopes:
        parameters = {each: _parameters(random, each) for each in dict.fromkeys([scope.policy, *scope.then])}
        scopes.append(msgspec.structs.replace(scope, parameters={each: p for each, p in parameters.items() if p}))
    told = [f"{each} {told}" for scope in scopes for each, told in scope.parameters.items()]
    return msgspec.structs.replace(scenario, name="; ".join([scenario.name, *told]), scopes=scopes)


def _parameters(random: Random, policy: Policy) -> dict[str, Any]:
    """Some of a policy's parameters, for the few members that scopes have here."""
    few = random.randint(2, 4)
    match policy:
        case "k_ary":
            return {"fan_out": few}
        case "mesh":
            return {"degree": random.choice([2, 4, 6])}
        case "gossip":
            return {"fan_out": few, "view": few + random.randint(0, 3)}
        case "stripes":
            return {"stripes": few}
        case "delay_optimised":
            return {"fan_out": few, "per_origin": random.random() < PER_ORIGIN, "gain": random.uniform(0.0, 0.5)}
        case _:
            return {}


# ---- what few compositions have


def nested_twice(scenario: Scenario, random: Random) -> Scenario:
    """Some scopes within another one are within a second one, too."""
    scopes = [*scenario.scopes]
    for at, scope in enumerate(scopes):
        others = [each.name for each in scopes[:at] if each.name not in scope.within]
        if scope.within and others and random.random() < NESTED_TWICE:
            second = random.choice(others)
            scopes[at] = msgspec.structs.replace(scope, within=[*scope.within, second])
            scenario = _named(scenario, f"{scope.name} within {second}, too")
    return msgspec.structs.replace(scenario, scopes=scopes)


def placed_twice(scenario: Scenario, random: Random) -> Scenario:
    """Some machines are in two scopes."""
    members = {scope.name: [*scope.members] for scope in scenario.scopes}
    for scope in scenario.scopes if len(members) > 1 else ():
        for machine in scope.members:
            if random.random() < PLACED_TWICE:
                second = random.choice([name for name in members if name != scope.name])
                members[second].append(machine)
                scenario = _named(scenario, f"peer {machine} in {scope.name} and {second}")
    scopes = [msgspec.structs.replace(each, members=sorted(members[each.name])) for each in scenario.scopes]
    return msgspec.structs.replace(scenario, scopes=scopes)


def at_once(scenario: Scenario, random: Random) -> Scenario:
    """Some scopes within others get bundles at all members at once, while their policy has a multicast group."""
    scopes = [
        msgspec.structs.replace(
            scope, multicast=random.random() < MULTICAST and "ip_multicast" in (scope.policy, *scope.then)
        )
        if scope.within
        else scope
        for scope in scenario.scopes
    ]
    for scope in scopes:
        scenario = _named(scenario, f"{scope.name} by multicast") if scope.multicast else scenario
    return msgspec.structs.replace(scenario, scopes=scopes)


def rated(scenario: Scenario, random: Random) -> Scenario:
    """Some scopes have rates in bytes."""
    return _rated(scenario, random, RATES, "bytes_per_s")


def rated_in_bundles(scenario: Scenario, random: Random) -> Scenario:
    """Some scopes have rates in bundles."""
    return _rated(scenario, random, BUNDLE_RATES, "bundles_per_s")


def _rated(scenario: Scenario, random: Random, rates: Sequence[int], key: str) -> Scenario:
    """Some scopes have these rates, unless a topic restricts its subscribers: it cannot keep them."""
    scopes = [*scenario.scopes]
    if any(plan.lists_of_readers for plan in scenario.topics):
        return scenario
    for at, scope in enumerate(scopes):
        enters, leaves = ((random.random() < RATED) * random.choice(rates) for _ in range(2))
        scopes[at] = msgspec.structs.replace(scope, **{key: enters, f"leaving_{key}": leaves})
        if enters or leaves:
            scenario = _named(scenario, f"{scope.name} with {enters} {key} in, {leaves} out")
    return msgspec.structs.replace(scenario, scopes=scopes)


def rooted(scenario: Scenario, random: Random) -> Scenario:
    """In some histories all topics are rooted at a scope, or at a virtual cluster across the scopes."""
    members, chance = {machine for scope in scenario.scopes for machine in scope.members}, random.random()
    if len(members) < 2 or chance >= ROOTED + CLUSTERED:
        return scenario
    if chance < CLUSTERED:
        return scenario.clustered(random.choice(get_args(Policy)))
    at = random.randrange(len(scenario.scopes))
    return _named(scenario.rooted(at, CREATED_IN_CLUSTER_S), scenario.scopes[at].name)


def aimed(scenario: Scenario, random: Random) -> Scenario:
    """In some histories, a cut, stop or death is aimed at a topic's entry points, alone or with their stand-bys."""
    if not scenario.scopes or random.random() >= AIMED:
        return scenario
    topic, kind = random.choice(scenario.topics).name, random.choice(["partition", "pause", "crash"])
    selectors = [f"entry-points:{topic}", f"stand-bys:{topic}"][: random.randint(1, 2)]
    began = [fault.at_s for fault in scenario.faults]
    at_s, for_s = random.uniform(min(began), max(began)), random.choice([2.0, 6.0, 12.0])
    happening: list[faults.AnyFault] = []
    match kind:
        case "partition":
            happening = [faults.Partition(at_s=at_s, peers=selectors, for_s=for_s)]
        case "pause":
            happening = [faults.Pause(at_s=at_s, peer=each, for_s=for_s) for each in selectors]
        case _:
            happening = [faults.Crash(at_s=at_s, peer=each, silent=True, restart_s=for_s) for each in selectors]
    over_s = at_s + for_s + bound_s(scenario.config) + 1.0
    scenario = msgspec.structs.replace(
        scenario, faults=sorted([*scenario.faults, *happening], key=lambda fault: fault.at_s),
        duration_s=max(scenario.duration_s, over_s),
    )  # fmt: skip
    return _named(scenario, f"{kind} of {' and '.join(selectors)}")


def _named(scenario: Scenario, what: str) -> Scenario:
    return msgspec.structs.replace(scenario, name=f"{scenario.name}; {what}")


def _scopes(random: Random, peers: int) -> list[ScopePlan]:
    count = random.randint(1, SCOPES_MAX)
    members: list[list[int]] = [[] for _ in range(count)]
    for machine in range(FREE, peers):
        if random.random() < IN_SCOPE:
            random.choice(members).append(machine)
    scopes = list[ScopePlan]()
    for part in filter(None, members):
        policies = [random.choice(get_args(Policy)) for _ in range(random.choice([2, 3]))]
        scopes.append(
            ScopePlan(
                name=f"site {len(scopes)}",
                members=part,
                manager=random.randrange(FREE),
                policy=policies[0],
                then=policies[1:] if random.random() < CHANGES else [],
                change_s=random.uniform(4.0, 12.0),
                within=[random.choice(scopes).name] if scopes and random.random() < WITHIN else [],
            )
        )
    return scopes


def _told(scope: ScopePlan) -> str:
    within = f" within {' and '.join(scope.within)}" if scope.within else ""
    return f"{scope.name}{within} ({', '.join([scope.policy, *scope.then])}; {scope.recovery})"
