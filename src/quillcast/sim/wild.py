"""Random wild histories: hard ones (`hard`) with one to three twists.

A twist adds to a history: readers that come and go, tables for one entry, more departures. Twists have their own random
numbers, so the history is otherwise the same as without them.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from msgspec.structs import replace

from quillcast.core.errors import LocalError
from quillcast.sim import faults
from quillcast.sim.hard import TOPIC, hard, session_changes
from quillcast.sim.leases import bound_s
from quillcast.sim.scenario import Changing, Creating, Reading, Scenario, TopicPlan, Writing
from quillcast.sim.world import derived

Twist = Callable[[Scenario, Random], Scenario]


UNDRAWN = (
    "admissions",
    "apart_pairs",
    "bounded",
    "created_apart",
    "created_twice",
    "entitled",
    "late_readers",
    "lists",
    "publisher_lists",
    "sessions",
)
"""Twists that are chosen by name only (`--wild lists`), so that seeds keep their histories. Tests replay all."""


def wild(seed: int, twists: Sequence[str] = ()) -> Scenario:
    """The wild history of a seed, with these twists; without them, with random ones. Raises `LocalError`.

    Some twists are never drawn: some hard histories open sessions anyway, and `with_late_readers` has its own.
    """
    random = derived(seed, "twists")
    drawn = [name for name in TWISTS if name not in UNDRAWN]
    names = twists or sorted(random.sample(drawn, random.randint(1, 3)))
    scenario, random = hard(seed), derived(seed, "wild")
    for name in names:
        if name not in TWISTS:
            raise LocalError(f"there is no twist {name!r}: use {', '.join(sorted(TWISTS))}")
        scenario = TWISTS[name](scenario, random)
    return _long_enough(replace(scenario, name=f"{scenario.name}, with {', '.join(names)}"))


def with_late_readers(scenario: Scenario, seed: int) -> Scenario:
    """The scenario, in one of two histories with readers that begin while others are out of reach."""
    random = derived(seed, "late readers")
    if random.random() < 0.5:
        return scenario
    return _long_enough(replace(_late_readers(scenario, random), name=f"{scenario.name}, with late readers"))


def _long_enough(scenario: Scenario) -> Scenario:
    """The scenario, made long enough for everything to settle."""
    over_s = max(
        [
            *(faults.over_s(fault) for fault in scenario.faults),
            *(writing.until_s for plan in scenario.topics for writing in plan.writers),
            *(max(reading.from_s, reading.until_s or 0) for plan in scenario.topics for reading in plan.readers),
        ]
    )
    return replace(scenario, duration_s=max(scenario.duration_s, over_s + bound_s(scenario.config) + 1.0))


def _first_topic(scenario: Scenario, **changes: object) -> Scenario:
    first, *others = scenario.topics
    return replace(scenario, topics=[replace(first, **changes), *others])


def _visitors(scenario: Scenario, random: Random) -> Scenario:
    """Readers end and begin again, some at once; several of them are on one peer."""
    readers: list[Reading] = []
    for reading in scenario.topics[0].readers:
        if random.random() < 0.7:
            until_s = random.uniform(max(6, reading.from_s + 0.2), 16)
            readers.append(replace(reading, until_s=until_s))
            if random.random() < 0.8:
                readers.append(Reading(peer=reading.peer, from_s=until_s + random.choice([0, 0.05, 0.5, 2, 5])))
        else:
            readers.append(reading)
        if random.random() < 0.3:
            readers.append(Reading(peer=reading.peer, from_s=random.uniform(2, 15)))
    return _first_topic(scenario, readers=readers)


def _earliest(scenario: Scenario, random: Random) -> Scenario:
    """Readers begin with the first event that is still kept."""
    readers = [
        replace(reading, start="earliest") if random.random() < 0.5 else reading
        for reading in scenario.topics[0].readers
    ]
    readers += [
        Reading(peer=random.randrange(scenario.peers), from_s=random.uniform(6, 16), start="earliest")
        for _ in range(random.randint(1, 3))
    ]
    return _first_topic(scenario, readers=readers)


def _best_effort(scenario: Scenario, random: Random) -> Scenario:
    """Nothing is kept, and events may overtake each other."""
    order = random.choice(["publisher", "none"])
    return _first_topic(scenario, delivery="best_effort", order=order, slow="cut", publishers=[])


def _waiting_roots(scenario: Scenario, random: Random) -> Scenario:
    """Roots that do not reach most of their replicas acknowledge nothing."""
    return _first_topic(scenario, partition="wait")


def _closing(scenario: Scenario, random: Random) -> Scenario:
    """Publishers are closed, and new ones opened on the same peer."""
    first, writers = scenario.topics[0], list[Writing]()
    for writing in first.writers:
        begins_s = writing.from_s
        until_s = random.uniform(max(6, begins_s + 0.5), max(18, begins_s + 1))
        writers.append(replace(writing, closes=True, until_s=until_s))
        for _ in range(0 if first.publishers else random.randint(0, 3)):
            closes, from_s = random.random() < 0.7, random.uniform(4, 14)
            writers.append(replace(writing, closes=closes, from_s=from_s, until_s=random.uniform(14.5, 20)))
    return _first_topic(scenario, writers=writers)


def _small_tables(scenario: Scenario, random: Random) -> Scenario:
    """Tables of roots and of idle topics have room for one to three entries."""
    topics = replace(
        scenario.config.topics, admissions_max=random.choice([1, 2, 3]), idle_topics_max=random.choice([1, 2])
    )
    return replace(scenario, config=replace(scenario.config, topics=topics))


def _more_topics(scenario: Scenario, random: Random) -> Scenario:
    """Several topics have programs on the same peers, and one of their roots ends."""
    first, more = scenario.topics[0], list[TopicPlan]()
    programs: list[Reading | Writing] = [*first.readers, *first.writers]
    peers = [*dict.fromkeys(program.peer for program in programs)]
    for number in range(random.randint(1, 3)):
        writing = Writing(
            peer=random.choice(peers), from_s=4.0, until_s=random.uniform(8, 18), every_s=0.3,
            events=random.randint(1, 3), payload_bytes=200,
        )  # fmt: skip
        there = random.sample(peers, random.randint(1, len(peers)))
        readers = [Reading(peer=peer, from_s=random.uniform(2, 8)) for peer in there]
        slow = random.choice(["cut", "wait"])
        more.append(TopicPlan(name=f"u{number}", slow=slow, writers=[writing], readers=readers))
    happening = [*scenario.faults]
    if random.random() < 0.6:
        at_s, silent = random.uniform(6, 12), random.random() < 0.5
        restart_s = random.choice([None, 1.0, 5.0])
        happening.append(faults.Crash(at_s=at_s, peer="root:u0", silent=silent, restart_s=restart_s))
    if random.random() < 0.4:
        at_s = random.uniform(6, 12)
        happening.append(faults.Leave(at_s=at_s, peer="root:u0", restart_s=random.choice([None, 1.0, 5.0])))
    return _with_faults(replace(scenario, topics=[*scenario.topics, *more]), happening)


def _departures(scenario: Scenario, random: Random) -> Scenario:
    """Peers leave, and others fail while they do."""
    happening = [*scenario.faults]
    for _ in range(random.randint(1, 3)):
        at_s, places = random.uniform(6, 13), [f"root:{TOPIC}", f"forwarders:{TOPIC}", f"children:{TOPIC}"]
        leaving, other = (random.choice([*places, str(random.randrange(scenario.peers))]) for _ in range(2))
        happening.append(faults.Leave(at_s=at_s, peer=leaving, restart_s=random.choice([None, 0.3, 3.0])))
        then_s = at_s + random.uniform(0, 3.2)
        silent, restart_s, pause_s = random.random() < 0.5, random.choice([None, 1.0]), random.choice([1.0, 3.0, 9.0])
        choices: list[faults.AnyFault] = [
            faults.Crash(at_s=then_s, peer=other, silent=silent, restart_s=restart_s),
            faults.Pause(at_s=then_s, peer=other, for_s=pause_s),
            faults.Leave(at_s=then_s, peer=other),
            faults.Partition(at_s=then_s, peers=[other], for_s=random.choice([2.0, 9.0])),
        ]
        happening.append(random.choice(choices))
    return _with_faults(scenario, happening)


def _sessions(scenario: Scenario, random: Random) -> Scenario:
    """Programs change the topic's guarantee, unless only its owner may."""
    if scenario.topics[0].publishers:
        return scenario
    return _first_topic(scenario, changes=session_changes(random, scenario.peers, 16.0))


def _admissions(scenario: Scenario, random: Random) -> Scenario:
    """Programs change the topic's admission, up to four times, unless only its owner may."""
    if scenario.topics[0].publishers:
        return scenario
    first, other = random.sample(["root", "source"], 2)
    changes, at_s = list[Changing](), random.uniform(4.0, 16.0)
    for number in range(random.randint(1, 4)):
        for _ in range(random.choice([1, 1, 2])):
            peer = random.randrange(scenario.peers)
            changes.append(Changing(peer=peer, at_s=at_s, admission=[other, first][number % 2]))
        at_s += random.choice([0.3, 1.0, 3.0])
    return _first_topic(scenario, admission=first, changes=changes)


def _late_readers(scenario: Scenario, random: Random) -> Scenario:
    """Readers begin during a partition, and below a root that has only just become one."""
    happening, peers = [*scenario.faults], range(scenario.peers)
    at_s, for_s = random.uniform(5, 9), random.choice([2.0, 5.0, 9.0, 12.0])
    side = random.sample(peers, random.randint(1, scenario.peers - 1))
    happening.append(faults.Partition(at_s=at_s, peers=[str(peer) for peer in side], for_s=for_s))
    if random.random() < 0.5:
        crash_s, restart_s = at_s + random.uniform(0, 3), random.choice([None, 1.0, 5.0])
        happening.append(faults.Crash(at_s=crash_s, peer=f"root:{TOPIC}", restart_s=restart_s))
    late = [
        Reading(peer=random.choice(peers), from_s=at_s + random.uniform(0, for_s + 2))
        for _ in range(random.randint(1, 3))
    ]
    writers = [replace(each, until_s=max(each.until_s, at_s + for_s + 4)) for each in scenario.topics[0].writers]
    readers = [*scenario.topics[0].readers, *late]
    return _with_faults(_first_topic(scenario, readers=readers, writers=writers), happening)


def _lists(scenario: Scenario, random: Random) -> Scenario:
    """The topic's owner limits who may read: peers are taken off the list while it is in use, and some return."""
    readers, changes = [*scenario.topics[0].readers], list[Changing]()
    late_s = [random.uniform(4, 15) for _ in range(random.randint(0, 3))]
    readers += [Reading(peer=random.randrange(scenario.peers), from_s=from_s) for from_s in late_s]
    machines, at_s = sorted({reading.peer for reading in readers}), random.uniform(5, 9)
    for _ in range(random.randint(1, 3)):
        listed = random.sample(machines, random.randint(1, len(machines)))
        changes.append(Changing(peer=random.randrange(scenario.peers), at_s=at_s, subscribers=sorted(listed)))
        at_s += random.choice([0.3, 1.0, 3.0])
    return _first_topic(scenario, readers=readers, subscribers=machines, changes=changes)


def _publisher_lists(scenario: Scenario, random: Random) -> Scenario:
    """The topic's owner limits who may publish. In some histories everybody may at first, and may read, too."""
    plan, changes = scenario.topics[0], list[Changing]()
    writing = sorted({each.peer for each in plan.writers})
    reading = sorted({each.peer for each in plan.readers}) if random.random() < 0.4 else []
    publishers, subscribers = random.choice([writing, []]), random.choice([reading, []])
    at_s = random.uniform(5, 9)
    for _ in range(random.randint(1, 3)):
        wanted = random.sample(writing, random.randint(1, len(writing)))
        wanting = random.sample(reading, random.randint(1, len(reading))) if reading else []
        peer = random.randrange(scenario.peers)
        changes.append(Changing(peer=peer, at_s=at_s, publishers=sorted(wanted), subscribers=sorted(wanting)))
        at_s += random.choice([0.3, 1.0, 3.0])
    return _first_topic(scenario, publishers=publishers, subscribers=subscribers, changes=changes)


def _bounded(scenario: Scenario, random: Random) -> Scenario:
    """Scopes limit the numbers of publishers, subscribers and clients. Some programs are clients."""
    policy, count = random.choice(["k_ary", "mesh", "ring"]), random.randint(1, 2)
    scoped = scenario.with_scopes(policy, count)
    scopes = [
        replace(
            plan, publishers_max=random.choice([0, 1, 2]), subscribers_max=random.choice([0, 1, 2, 3]),
            clients_max=random.choice([0, 0, 1, 2]),
        )
        for plan in scoped.scopes
    ]  # fmt: skip
    plan = scenario.topics[0]
    writers = [replace(each, client=random.random() < 0.3, closes=random.random() < 0.5) for each in plan.writers]
    readers = [replace(each, client=random.random() < 0.3) for each in plan.readers]
    writers += [
        replace(random.choice(plan.writers), peer=random.randrange(scenario.peers), from_s=random.uniform(5, 12))
        for _ in range(random.randint(0, 2))
    ]
    for _ in range(random.randint(1, 4)):
        from_s, until_s = random.uniform(3, 12), random.choice([None, random.uniform(13, 18)])
        readers.append(Reading(peer=random.randrange(scenario.peers), from_s=from_s, until_s=until_s))
    return _first_topic(replace(scoped, scopes=scopes), writers=writers, readers=readers, publishers=[])


def _entitled(scenario: Scenario, random: Random) -> Scenario:
    """The files of scopes limit which members publish and subscribe, and some programs are on others."""
    scoped = _bounded(scenario, random)
    scopes = [
        replace(
            plan, publishers_max=0, subscribers_max=0, clients_max=0,
            publishers=random.choice([None, [each for each in plan.members if random.random() < 0.6]]),
            subscribers=random.choice([None, [each for each in plan.members if random.random() < 0.6]]),
        )
        for plan in scoped.scopes
    ]  # fmt: skip
    plan = scoped.topics[0]
    writers = [replace(each, client=False) for each in plan.writers]
    readers = [replace(each, client=False) for each in plan.readers]
    return _first_topic(replace(scoped, scopes=scopes), writers=writers, readers=readers, publishers=[])


def _created_twice(scenario: Scenario, random: Random) -> Scenario:
    """The topic is created on both sides of a partition, mostly with different settings, and used before and after."""
    happening = [fault for fault in scenario.faults if random.random() < 0.4]
    at_s, for_s, plan = 3.0, random.choice([2.0, 5.0, 9.0, 12.0]), scenario.topics[0]
    side = random.sample(range(scenario.peers), random.randint(1, scenario.peers - 1))
    others = [peer for peer in range(scenario.peers) if peer not in side]
    happening.append(faults.Partition(at_s=at_s, peers=[str(peer) for peer in side], for_s=for_s))
    choices: dict[str, list[Any]] = {
        "slow": ["cut", "wait"],
        "partition": ["go_on", "wait"],
        "admission": ["root", "source"],
    }
    differing = random.choice([["slow"], ["partition"], ["admission"], ["admission"], [*choices]])
    creations = [
        Creating(
            peer=random.choice(part), at_s=at_s + random.choice([0.1, 0.2, 1.0, for_s + 0.1]),
            **{name: random.choice(choices[name]) for name in differing},
        )
        for part in (side, others)
        if random.random() < 0.9
    ]  # fmt: skip
    used_s = at_s + 0.3
    writers = [
        replace(
            each, from_s=max(each.from_s, used_s + random.uniform(0, 2)), until_s=max(each.until_s, at_s + for_s + 3)
        )
        for each in plan.writers
    ]
    readers = [replace(each, from_s=max(each.from_s, used_s + random.uniform(0, 2))) for each in plan.readers]
    changed = _first_topic(
        scenario, slow="cut", publishers=[], changes=[], creations=creations, writers=writers, readers=readers
    )
    return _with_faults(changed, happening)


def _created_apart(scenario: Scenario, random: Random) -> Scenario:
    """The same, but sources number the events on one side, and the other has an owner, or another session."""
    made = _created_twice(scenario, random)
    plan, changes = made.topics[0], list[Changing]()
    if len(plan.creations) < 2:
        return made
    by_source, by_root = random.sample(plan.creations, 2)
    owned, other = random.random() < 0.5, {"go_on": "wait", "wait": "go_on"}[by_root.partition]
    if not owned:
        at_s = by_root.at_s + random.choice([0.3, 1.0, 2.0])
        changes.append(Changing(peer=by_root.peer, at_s=at_s, partition=other))
    creations = [replace(by_source, admission="source"), replace(by_root, admission="root", owned=owned)]
    return _first_topic(made, creations=creations, changes=changes)


def _apart_pairs(scenario: Scenario, random: Random) -> Scenario:
    """For a while, one or two peers cannot reach one or two others, or only one way. All other peers reach both."""
    happening = [fault for fault in scenario.faults if random.random() < 0.3]
    for _ in range(random.randint(1, 3)):
        at_s, for_s = random.uniform(5, 10), random.choice([2.0, 5.0, 9.0, 15.0])
        some = [str(peer) for peer in random.sample(range(scenario.peers), random.randint(1, 2))]
        other = [str(peer) for peer in range(scenario.peers) if str(peer) not in some]
        others = random.choice([[f"root:{TOPIC}"], random.sample(other, min(len(other), random.randint(1, 2)))])
        happening.append(faults.Drop(at_s=at_s, from_=some, to=others, for_s=for_s))
        if random.random() < 0.6:
            happening.append(faults.Drop(at_s=at_s, from_=others, to=some, for_s=for_s))
    return _with_faults(scenario, happening)


def _with_faults(scenario: Scenario, happening: list[faults.AnyFault]) -> Scenario:
    return replace(scenario, faults=sorted(happening, key=lambda fault: fault.at_s))


TWISTS: dict[str, Twist] = {
    "admissions": _admissions,
    "apart_pairs": _apart_pairs,
    "best_effort": _best_effort,
    "bounded": _bounded,
    "closing": _closing,
    "created_apart": _created_apart,
    "created_twice": _created_twice,
    "departures": _departures,
    "earliest": _earliest,
    "entitled": _entitled,
    "late_readers": _late_readers,
    "lists": _lists,
    "more_topics": _more_topics,
    "publisher_lists": _publisher_lists,
    "sessions": _sessions,
    "small_tables": _small_tables,
    "visitors": _visitors,
    "waiting_roots": _waiting_roots,
}
