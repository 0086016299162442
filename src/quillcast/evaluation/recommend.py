"""Recommend a policy for a deployment: try all of them on a sample, and judge them under limits."""

from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from rich.console import Console

from quillcast.core.errors import LocalError
from quillcast.evaluation.command import console_for, folder_of, plain_table
from quillcast.evaluation.deployment import workload_of
from quillcast.evaluation.experiment import LAW_EXPONENT, Experiment, Publishers, Workload
from quillcast.evaluation.policies import parse
from quillcast.evaluation.progress import display
from quillcast.evaluation.report.figures import Figures, figure, number
from quillcast.evaluation.run import evaluate
from quillcast.evaluation.tasks import costs
from quillcast.evaluation.topology import has_links
from quillcast.evaluation.workload import is_real

SAMPLE_PEERS = 10_000  # of a deployment; ratios to IP multicast change little with its size
SAMPLE_GROUPS = 150
AT_SIZE_COST = 40_000_000  # the cost (`tasks.costs`) of counting children for each policy: about ten seconds of a core
NO_PROTOCOLS = {"delay_optimised": "a bound and not a protocol"}
"""Policies that no peer could run, with the reasons."""

ENTRIES = "entries_per_peer"
"""The mean number of membership entries of a peer, with as many memberships as it has in the deployment."""

SHOWN = {
    "rad.median": "RAD",
    "rad.max": "worst",
    "rmd.median": "RMD",
    "messages_over_ip": "messages/IP",
    "children_per_group_max": "children",
    "core_link_max_over_ip": "core link/IP",
    ENTRIES: "entries",
}
"""The figures that are shown, and their column titles."""


class Wish(NamedTuple):
    """A deployment that needs a policy. All fields mean the same as in an experiment.

    Without `size`, group sizes follow the papers' law. None as a bound means any number: of children of a peer in a
    group, of messages on a core link relative to IP multicast, and of entries that a peer keeps on average. Without
    `policies`, it is one of `candidates`.
    """

    peers: int
    groups: int
    topology: str = "transit-stub"
    size: int | None = None
    members: str = "uniform"
    publishers: Publishers = "members"
    children_max: int | None = None
    link_stress_max: float | None = None
    entries_max: float | None = None
    policies: tuple[str, ...] = ()
    seed: int = 1


class Verdict(NamedTuple):
    """The judgement of one policy. `against` lists the limits that it breaks; a lower `cost` is better."""

    policy: str
    figures: Figures
    against: list[str]
    cost: float


def candidates(children_max: int | None) -> tuple[str, ...]:
    """The policies that a deployment may choose from. `NO_PROTOCOLS` are not among them."""
    cap = children_max or 16
    return (
        "scribe",
        f"scribe+remover({cap})",
        "scribe+collapse",
        f"scribe+improve({cap})",
        f"scoped+improve({cap})",
        f"scoped+improve({cap})+source",
        f"k_ary({cap})",
    )


def experiment_of(wish: Wish) -> Experiment:
    """The experiment that tries policies on a sample: fewer peers, and groups of the same relative size.

    Raises `LocalError` if the deployment is impossible, or a policy is not a protocol.
    """
    policies = wish.policies or candidates(wish.children_max)
    for policy in policies:
        if why := NO_PROTOCOLS.get(policy.partition("(")[0].partition("+")[0]):
            raise LocalError(
                f"{policy} is {why}, so it cannot be recommended; leave it out, or compare it with evaluate"
            )
    whole = Experiment(
        name="recommend",
        topology=wish.topology,
        peers=wish.peers,
        seed=wish.seed,
        policies=policies,
        workload=of_wish(wish, wish.groups),
    )
    return _sample(wish, whole).checked("the deployment")


def _sample(wish: Wish, whole: Experiment) -> Experiment:
    """Fewer peers and groups. Real subscribers stay, in as many of the largest groups as cost `AT_SIZE_COST`."""
    if is_real(wish.members):
        workload = workload_of(whole)
        subscribers = int(workload.users.max()) + 1
        peers = min(wish.peers, max(SAMPLE_PEERS, subscribers))
        return msgspec.structs.replace(whole, peers=peers, workload=of_wish(wish, _affordable(workload.sizes, peers)))
    peers, groups = min(wish.peers, SAMPLE_PEERS), min(wish.groups, SAMPLE_GROUPS)
    if wish.size is None and peers < wish.peers:  # by the papers' law: so few ranks that the last group keeps its size
        groups = max(1, min(groups, int(wish.groups * (peers / wish.peers) ** (1 / LAW_EXPONENT))))
    return msgspec.structs.replace(whole, peers=peers, workload=of_wish(wish, groups))


def _affordable(sizes: npt.NDArray[np.int32], peers: int) -> int:
    """How many of the groups, the largest first, cost at most `AT_SIZE_COST`; at least one."""
    return max(1, int(np.searchsorted(np.cumsum(costs(sizes, peers)), AT_SIZE_COST)))


def at_size(wish: Wish, sample: Experiment) -> Experiment | None:
    """The experiment that counts children in groups of the final size, for policies that do not bound them.

    It has all peers, and all groups or as many of the largest as cost at most `AT_SIZE_COST`. None if the sample
    already has them all, or if every policy bounds children.
    """
    free = tuple(policy for policy in sample.policies if parse(policy).children_max is None)
    whole = msgspec.structs.replace(sample, peers=wish.peers, workload=of_wish(wish, wish.groups))
    if whole.peers == sample.peers or not free:
        return None
    groups = _affordable(workload_of(whole).sizes, wish.peers)
    return msgspec.structs.replace(whole, name="children", policies=free, workload=of_wish(wish, groups))


def of_wish(wish: Wish, groups: int) -> Workload:
    """The groups of the deployment, or the given number of them."""
    return Workload(groups=groups, size=wish.size, members=wish.members, publishers=wish.publishers)


def memberships_over(wish: Wish, sample: Experiment) -> float:
    """The number of memberships of a peer in the deployment, relative to the sample."""
    whole = msgspec.structs.replace(sample, peers=wish.peers, workload=of_wish(wish, wish.groups))
    if whole == sample:
        return 1.0
    each = [float(workload_of(asked).sizes.sum(dtype=np.int64)) / asked.peers for asked in (whole, sample)]
    return each[0] / each[1]


def judge(wish: Wish, policies: dict[str, Figures]) -> list[Verdict]:
    """The policies, the best first: those within the limits, ordered by median RAD.

    Subscribers notice RAD. If two are equal within 1 %, the one with fewer messages is better.
    """
    verdicts = []
    for policy, figures in policies.items():
        rad, messages = figure(figures, "rad.median"), figure(figures, "messages_over_ip")
        cost = round((rad if rad is not None else float("inf")) / 0.01) + (messages or 0.0) / 1000
        verdicts.append(Verdict(policy, figures, _broken(wish, figures), cost))
    return sorted(verdicts, key=lambda verdict: (bool(verdict.against), verdict.cost, verdict.policy))


def _broken(wish: Wish, figures: Figures) -> list[str]:
    """The limits that a policy breaks, in words."""
    broken = []
    children, link = figures["children_per_group_max"], figures["core_link_max_over_ip"]
    if wish.children_max is not None and children > wish.children_max:
        broken.append(f"{children} children")
    if wish.link_stress_max is not None and link is not None and link > wish.link_stress_max:
        broken.append(f"{link:.1f} times IP multicast's worst core link")
    if wish.entries_max is not None and figures[ENTRIES] > wish.entries_max:
        broken.append(f"{number(figures[ENTRIES])} entries per peer")
    return broken


def recommend_command(
    wish: Wish, output: Path | None, *, master: str, remote: str | None, as_json: bool
) -> dict[str, Any]:
    """Try the policies, judge them, and print the result. Returns it as plain values.

    Without `output`, the run's folder is named after the sample, or is that of a stopped run. Raises `LocalError` if
    the deployment or a limit is impossible.
    """
    experiment = experiment_of(wish)
    if wish.link_stress_max is not None and not has_links(wish.topology, wish.seed):
        raise LocalError(f"{wish.topology} has no links, so --link-stress-max cannot be checked; leave it out")
    folder = output or folder_of(experiment)

    def tried(asked: Experiment, where: Path) -> dict[str, Any]:
        return evaluate(asked, where, display(Console(stderr=True)), master=master, remote=remote)

    result = tried(experiment, folder)
    more = memberships_over(wish, experiment)
    for figures in result["policies"].values():
        figures[ENTRIES] = figures["state"]["mean"] * more
    counted = at_size(wish, experiment)
    if counted:
        sizes = tried(counted, folder.with_name(f"{folder.name}-children"))
        for policy, figures in sizes["policies"].items():
            most = max(result["policies"][policy]["children_per_group_max"], figures["children_per_group_max"])
            result["policies"][policy]["children_per_group_max"] = most
    verdicts = judge(wish, result["policies"])
    best = None if verdicts[0].against else verdicts[0]
    answer = {
        "recommended": best.policy if best else None,
        "why": words(wish, verdicts),
        "sample": {"nodes": experiment.peers, "groups": result["groups"]},
        "children_counted": {"nodes": counted.peers, "groups": sizes["groups"]} if counted else None,
        "policies": [{"policy": verdict.policy, "against": verdict.against, **verdict.figures} for verdict in verdicts],
        "report": result["report"],
    }
    _show(verdicts, answer["why"], answer["report"], console_for(as_json=as_json))
    return answer


def words(wish: Wish, verdicts: list[Verdict]) -> str:
    """The recommendation as a sentence: the policy, and how much better it is than the next one within the limits."""
    best, *others = verdicts
    if best.against:
        return f"no policy keeps the limits; {best.policy} comes nearest, with {', '.join(best.against)}"
    told = f"{best.policy} serves {wish.peers:,} peers best: median RAD {number(figure(best.figures, 'rad.median'))}"
    told += f", {number(best.figures['messages_over_ip'])} times the messages of IP multicast"
    told += f", {number(best.figures[ENTRIES])} entries per peer"
    if "+source" in best.policy:
        told += " (a tree for each publishing peer)"
    rivals = [verdict for verdict in others if not verdict.against]
    if not rivals:
        return f"{told}; no other keeps the limits"
    later = _more(rivals[0], best, "rad.median")
    more, kept = _more(rivals[0], best, "messages_over_ip"), _more(rivals[0], best, ENTRIES)
    return f"{told}; with the next best, {rivals[0].policy}, events take {later}, at {more} messages and {kept} entries"


def _more(other: Verdict, best: Verdict, name: str) -> str:
    theirs, ours = figure(other.figures, name), figure(best.figures, name)
    if theirs is None or not ours:
        return "an unknown share of"
    share = 100 * (theirs / ours - 1)
    more, less = ("longer", "shorter") if name.startswith("rad") else ("more", "fewer")
    return f"{abs(share):.0f} % {more if share >= 0 else less}"


def _show(verdicts: list[Verdict], why: str, report: str, console: Console) -> None:
    table = plain_table("policy", *SHOWN.values(), "breaks", words={0, len(SHOWN) + 1})
    for verdict in verdicts:
        values = [number(figure(verdict.figures, name)) for name in SHOWN]
        table.add_row(verdict.policy, *values, f"[red]{', '.join(verdict.against)}[/]" if verdict.against else "")
    console.print(table)
    console.print(why, soft_wrap=True, highlight=False)
    console.print(f"The report is {report}", soft_wrap=True, highlight=False)
