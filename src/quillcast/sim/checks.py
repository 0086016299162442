"""Checks across peers at the end of a run, after everything had time to settle.

These checks are about the network. `delivery.py` has the promises to programs, and `judges.py` those that are checked
during the run. Never weaken a check to let a seed pass: docs/delivery.md says what is allowed.
"""

import re
from collections.abc import Container, Mapping

from quillcast.core.envelope import Term
from quillcast.core.ids import ring_distance, short
from quillcast.protocol.forwarding.edge import SILENT_MAX
from quillcast.protocol.forwarding.forgotten import FORGOTTEN_MAX
from quillcast.protocol.forwarding.past_terms import TERMS_KEPT_MAX
from quillcast.protocol.peer import Peer
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.membership.membership import FORMER_MAX
from quillcast.protocol.topics.state.holders import OrphanedLease
from quillcast.sim.delivery import Delivery
from quillcast.sim.host import Machine
from quillcast.sim.leases import bound_s
from quillcast.sim.observed import Observed
from quillcast.sim.world import Broken


def check_all(run: Observed) -> None:
    """Raise `Broken` with the first check that fails at the end of a run."""
    for machine, peer in run.running():
        _holds(peer.active, f"overlay: peer {machine.number} runs and is not active")
        peer.check()
    check_leaf_sets(run)
    for plan in run.scenario.topics:
        check_tree(run, plan.name)
        check_settings(run, plan.name)
        Delivery(run, plan).check()
    check_credit(run)
    check_tables(run)
    missing = [name for name in run.scenario.marks if name not in run.world.journal.marks]
    _holds(not missing, f"marks: {missing} never showed up, so the scenario did not test its purpose")


def check_leaf_sets(run: Observed) -> None:
    """Every leaf set holds the l/2 closest running peers on each side."""
    truth = sorted(machine.node_id for machine, _ in run.members())
    at = {node: index for index, node in enumerate(truth)}
    for machine, peer in run.members():
        half, here = peer.config.overlay.leaf_set_size // 2, at[machine.node_id]
        if len(truth) <= 2 * half + 1:
            wanted = set(truth)
        else:
            wanted = {truth[(here + step) % len(truth)] for step in range(-half, half + 1)}
        found = {contact.node_id for contact in peer.overlay.leaf_set} | {machine.node_id}
        lacking, extra = [short(n) for n in sorted(wanted - found)], [short(n) for n in sorted(found - wanted)]
        _holds(
            found == wanted,
            f"leaf set: peer {machine.number} ({short(machine.node_id)}) misses {lacking} and should not have {extra}",
        )


def check_tree(run: Observed, topic: str) -> None:
    """A topic with readers has one root, the peer closest to its id, and one tree. Both ends of each link know it."""
    trees, what = run.trees(topic), f"tree of topic {topic}"
    numbers: dict[bytes, int] = {machine.node_id: machine.number for machine, _ in run.running()}
    roots = [number for number, tree in trees.items() if tree.root is not None]
    readers = {n for n, tree in trees.items() if tree.subscriptions or tree.unstarted}
    if readers:
        id_ = run.topics[topic]
        members = [machine.node_id for machine, _ in run.candidates()]
        closest = numbers[min(members, key=lambda node: (ring_distance(node, id_), node))]
        _holds(roots == [closest], f"{what}: its roots are {roots}, the peer closest to its id is {closest}")
    for number, tree in trees.items():
        me = run.world.machines[number].node_id
        for node in tree.leases.children:
            child = trees.get(numbers.get(node, -1))
            knows = child is not None and child.parent is not None and child.parent.node_id == me
            _holds(knows, f"{what}: peer {number} has a child {short(node)} that does not know it as parent")
        if tree.parent is not None:
            parent = trees.get(numbers.get(tree.parent.node_id, -1))
            knows = parent is not None and me in parent.leases.children
            above = short(tree.parent.node_id)
            _holds(knows, f"{what}: peer {number} has a parent {above} that does not know it as child")
    for number in sorted(readers):
        way = [number]
        while (parent_contact := trees[way[-1]].parent) is not None:
            way.append(numbers[parent_contact.node_id])
            _holds(
                len(way) <= len(numbers),
                f"{what}: the path from peer {number} is a cycle: {way[:9]}",
            )
        _holds(way[-1] in roots, f"{what}: the path from reader {number} ends at {way[-1]}, which is not a root")


def check_settings(run: Observed, topic: str) -> None:
    """A topic's tree and publishers use the same settings, and each request to change them has one answer.

    A publisher that the root has no room to remember learns of other settings with its next event (docs/topics.md).
    One that waits for a scope's bound learns of them when it begins.
    """
    what = f"settings of topic {topic}"
    used: dict[int | str, Descriptor] = {number: tree.descriptor for number, tree in run.trees(topic).items()}
    publishing = (
        each for each in run.writers
        if each.topic == topic and each.lives and not (each.failures or each.waits)
    )  # fmt: skip
    roots = [tree.root for tree in run.trees(topic).values() if tree.root is not None]
    most = run.scenario.config.topics.admissions_max
    full = [root for root in roots if max(len(root.admissions), len(root.asked)) >= most]
    remembered = {publisher for root in roots for publisher in root.admissions}
    used |= {
        each.name: each.publisher.descriptor
        for each in publishing
        if not each.publisher.closed and (each.publisher.id in remembered or not full)
    }
    _holds(len({each.digest for each in used.values()}) <= 1, f"{what}: peers go by different ones: {used}")
    for asked in run.asked_changes:
        if asked.topic == topic and asked.host.alive:
            answered = len(asked.answers) == 1
            _holds(answered, f"{what}: a program asked at {asked.at:.3f} s to change them, and got {asked.answers}")


def check_credit(run: Observed) -> None:
    """All bundle bytes were released at the end, so no link leaks credit."""
    for machine, _ in run.running():
        assert machine.host is not None
        for node, charged in machine.host.charged.items():
            _holds(
                charged == 0, f"credit: peer {machine.number} never released {charged} bytes that {short(node)} sent"
            )


def check_tables(run: Observed) -> None:
    """Peers forget leases, publishers and terms when their time has passed."""
    calm_at = max([run.calm_at(), *(writer.written[-1] for writer in run.writers if writer.written)])
    if run.world.now < calm_at + bound_s(run.scenario.config):
        return
    gone = {
        writer.publisher.id: writer.name
        for writer in run.writers
        if not writer.lives and writer.ended_at(run.world.now) < calm_at
    }
    trees = [tree for _, peer in run.running() for tree in peer.topics.trees.values()]
    going_on = {tree.sources.own.term for tree in trees if tree.sources.own is not None}
    for machine, peer in run.running():
        _check_tables(machine, peer, gone)
        _check_streams(machine, peer, going_on)


def _check_streams(machine: Machine, peer: Peer, going_on: Container[Term]) -> None:
    """At the end, every stream that its source closed or left by dying is over everywhere. `going_on`: all others."""
    for tree in peer.topics.trees.values():
        for term, state in tree.sources.states.items():
            stream = tree.flow.others[term]
            _holds(
                term in going_on,
                f"tables: peer {machine.number} keeps the stream of a source that is gone, of topic "
                f"{tree.descriptor.name}, which ended at {state.end} and is stable up to {stream.stable}",
            )


def _check_tables(machine: Machine, peer: Peer, gone: dict[bytes, str]) -> None:
    """`gone` are the publishers whose leases ended long ago."""
    assert machine.host is not None
    who = f"tables: peer {machine.number}"
    overdue = machine.host.now() - 2 * peer.config.topics.housekeeping_s
    for tree in peer.topics.trees.values():
        topic = f"of topic {tree.descriptor.name}"
        _check_leases(f"{who} still knows leases {topic}", tree.leases.orphaned, peer, overdue)
        _holds(len(tree.flow.past) <= TERMS_KEPT_MAX, f"{who} keeps {len(tree.flow.past)} past terms {topic}")
        _holds(
            len(tree.flow.past.forgotten) <= FORGOTTEN_MAX,
            f"{who} remembers {len(tree.flow.past.forgotten)} past terms {topic}",
        )
        admitted = [gone[id_] for id_ in (tree.root.admissions if tree.root is not None else ()) if id_ in gone]
        _holds(not admitted, f"{who}, the root {topic}, remembers publishers whose leases have ended: {admitted}")
        for edge in tree.subscriptions:
            silent = [gone[id_] for id_ in edge.publishers if id_ in gone]
            _holds(len(silent) <= SILENT_MAX, f"{who} remembers {len(silent)} publishers that are gone, {topic}")
    for id_, leases in peer.topics.open_trees.left_behind.items():
        latest = dict([max(leases.items(), key=lambda each: each[1].until)])  # they are forgotten together
        _check_leases(f"{who} remembers leases of a tree that it left, topic {short(id_)}", latest, peer, overdue)
    for id_, former in peer.topics.membership.former.items():
        late = [short(node) for node, until in former.items() if until < overdue]
        known = id_ in peer.topics.trees and not late and len(former) <= FORMER_MAX
        _holds(known, f"{who} remembers {len(former)} former parents in topic {short(id_)}, {late} for too long")


def _check_leases(what: str, leases: Mapping[bytes, OrphanedLease], peer: Peer, overdue: float) -> None:
    """No known lease ended before the last rounds of housekeeping, and none outlasts a lease that begins now."""
    latest = peer.host.now() + peer.config.topics.lease_s
    wrong = {short(node): lease.until for node, lease in leases.items() if not overdue <= lease.until <= latest}
    _holds(not wrong, f"{what} that end at {wrong}, and not between {overdue} and {latest}")


def _holds(condition: bool, otherwise: str) -> None:
    if not condition:
        about = re.search(r"\b(topic|peer) (\w[\w/]*)", otherwise)
        raise Broken(otherwise, ":".join(about.groups()) if about else "")
