"""Scenarios: peers, topology, writers and readers, and faults; read from TOML files."""

from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from quillcast.core.errors import LocalError
from quillcast.files import SCOPE_BYTES_MAX, read_bytes
from quillcast.protocol.config import Config
from quillcast.protocol.scopes.messages import RecoveryName
from quillcast.protocol.scopes.policies import BUILT_IN, made
from quillcast.protocol.scopes.policy import ScopePolicy
from quillcast.protocol.scopes.uses import Doing
from quillcast.sim import topology
from quillcast.sim.faults import AnyFault, validate
from quillcast.sim.network import Quality
from quillcast.sim.surroundings import WINDOW_BYTES
from quillcast.sim.topology import Topology
from quillcast.sim.world import derived

CREATED_S = 5.0  # until topics have been created in a scope; a guess
CREATED_IN_CLUSTER_S = 8.0  # the same if peers first join the ring through another scope; a guess


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a scenario. An unknown key is an error."""


class Constant(Part, frozen=True, tag_field="kind", tag="constant"):
    """Every path takes `delay_s`."""

    delay_s: float = 0.02

    def build(self, seed: int, machines: int) -> Topology:
        return topology.Constant(self.delay_s)


class Uniform(Part, frozen=True, tag_field="kind", tag="uniform"):
    """Each pair has a delay between two bounds."""

    low_s: float = 0.005
    high_s: float = 0.1

    def build(self, seed: int, machines: int) -> Topology:
        return topology.Uniform(self.low_s, self.high_s, seed)


class Regions(Part, frozen=True, tag_field="kind", tag="regions"):
    """Machines in 21 regions of a cloud, with measured delays."""

    def build(self, seed: int, machines: int) -> Topology:
        return topology.Matrix(topology.aws_regions(), derived(seed, "regions"))


class TransitStub(Part, frozen=True, tag_field="kind", tag="transit-stub"):
    """The Georgia Tech transit-stub model."""

    core_link_s: float = 0.040
    lan_link_s: float = 0.001

    def build(self, seed: int, machines: int) -> Topology:
        return topology.TransitStub(
            machines, derived(seed, "transit-stub"), core_link_s=self.core_link_s, lan_link_s=self.lan_link_s
        )


class Disturbance(Part, frozen=True):
    """Disturbs every path all the time (`network.Quality`). `datagrams` loses, duplicates and reorders one by one."""

    datagrams: bool = False
    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    jitter: float = 0.0

    @property
    def quality(self) -> Quality:
        """The same as a quality of network paths."""
        return Quality(self.loss, self.duplication, self.reordering, self.jitter)


class Writing(Part, frozen=True):
    """A program on machine `peer` writes `events` events of `payload_bytes` at once, at regular intervals.

    It starts over whenever the peer is restarted.
    """

    peer: int
    from_s: float = 10.0
    until_s: float = 60.0
    every_s: float = 0.5
    events: int = 1
    payload_bytes: int = 32
    closes: bool = False
    """Whether it closes its publisher at the end."""
    client: bool = False
    """Whether it is a client, for which the peer publishes."""


class Reading(Part, frozen=True):
    """A program on machine `peer` subscribes for a while; without `until_s`, until the end."""

    peer: int
    from_s: float = 8.0
    until_s: float | None = None
    start: Literal["now", "earliest"] = "now"
    client: bool = False
    """Whether it is a client, for which the peer subscribes."""


class Changing(Part, frozen=True):
    """A program on machine `peer` changes those settings of a topic that are not empty here."""

    peer: int
    at_s: float
    slow: str = ""
    delivery: str = ""
    order: str = ""
    partition: str = ""
    admission: str = ""
    subscribers: list[int] = []
    """The machines whose programs may read from then on, as the topic's owner requests."""
    publishers: list[int] = []
    """The machines whose programs may write from then on."""

    def wanted(self) -> dict[str, str]:
        """The requested settings."""
        named = {
            "slow": self.slow, "delivery": self.delivery, "order": self.order, "partition": self.partition,
            "admission": self.admission,
        }  # fmt: skip
        return {name: value for name, value in named.items() if value}


class Creating(Part, frozen=True):
    """A program on machine `peer` creates a topic with its own settings, unless it learns that others did before."""

    peer: int
    at_s: float
    slow: str = "cut"
    admission: str = "root"
    partition: str = "go_on"
    owned: bool = False
    """Whether it has an owner, although everybody may use it."""


class TopicPlan(Part, frozen=True):
    """A topic and its programs. If its settings are not the defaults, machine 0 creates it before anything else."""

    name: str
    delivery: str = "reliable"
    order: str = "publisher"
    slow: str = "cut"
    admission: str = "root"
    partition: str = "go_on"
    writers: list[Writing] = []
    readers: list[Reading] = []
    publishers: list[int] = []
    """The only machines whose programs may publish, by the topic's access list; empty: all may."""
    subscribers: list[int] = []
    """The only machines whose programs may subscribe; empty: all may. `changes` may have other lists."""
    changes: list[Changing] = []
    creations: list[Creating] = []
    """Creations while it may already be in use, such as on both sides of a partition."""

    @property
    def guarantees_change(self) -> bool:
        """Whether the topic is reliable in some sessions and best-effort in others."""
        return any(change.delivery for change in self.changes)

    @property
    def streams_end(self) -> bool:
        """Whether streams may end before their sources, so that events come again in other terms."""
        return bool(self.creations) or any(each.admission or each.delivery or each.order for each in self.changes)

    @property
    def lists_of_readers(self) -> list[list[int]]:
        """The lists of subscribers that the topic may ever have."""
        return [each for each in (self.subscribers, *(change.subscribers for change in self.changes)) if each]

    @property
    def lists_of_writers(self) -> list[list[int]]:
        """The lists of publishers that the topic may ever have."""
        return [each for each in (self.publishers, *(change.publishers for change in self.changes)) if each]

    @property
    def has_owner(self) -> bool:
        """Whether the topic ever has an access list, which its owner signs."""
        return bool(self.lists_of_readers or self.lists_of_writers)

    def machines(self) -> list[int]:
        """The machines that it names."""
        used: list[Writing | Reading] = [*self.writers, *self.readers]
        programs: list[Writing | Reading | Changing | Creating] = [*used, *self.changes, *self.creations]
        return [*(program.peer for program in programs), *self.publishers, *self.subscribers]


Policy = Literal[
    "star", "k_ary", "chain", "delay_optimised", "ring", "mesh", "gossip", "stripes", "ip_multicast"
]  # fmt: skip


class ScopePlan(Part, frozen=True):
    """A scope: the machines whose peers are its members, and the one that runs its manager, which restarts."""

    name: str
    members: list[int]
    manager: int = 0
    policy: Policy = "k_ary"
    then: list[Policy] = []
    """The policies in succession, each after `change_s` seconds."""
    parameters: dict[Policy, dict[str, Any]] = {}
    """The parameters of its policies. A policy that is missing here has its defaults."""
    change_s: float = 10.0
    lease_s: float = 4.0
    within: list[str] = []
    """The scopes that it is a member of, the preferred one first."""
    recovery: RecoveryName = "tree"
    """The recovery protocol of its domains."""
    entry_points: int = 1
    """Members through which bundles enter from other members of a superscope."""
    replicas: int = 1
    """Members that pass bundles on to these."""
    split: bool = False
    """Whether a different member has the channel to each entry point of a receiving scope."""
    multicast: bool = False
    """Whether other members of a superscope send to all members at once, where its policy has a multicast group."""
    bytes_per_s: int = 0
    """The most that may enter it, in a topic and in all together; 0: no limit."""
    bundles_per_s: int = 0
    leaving_bytes_per_s: int = 0
    """The most that may leave it, likewise."""
    leaving_bundles_per_s: int = 0
    publishers_max: int = 0
    """The most members that publish in a topic; 0: no limit."""
    subscribers_max: int = 0
    """The most members that subscribe to a topic; 0: no limit."""
    clients_max: int = 0
    """The most clients of its members; 0: no limit in its file."""
    root: bool = False
    """Whether all topics are rooted at it. Then all programs are on machines below it, and one creates the topics."""
    publishers: list[int] | None = None
    """The members that may publish; None: all."""
    subscribers: list[int] | None = None
    """The members that may subscribe; None: all."""

    def opened(self, policy: Policy) -> ScopePolicy:
        """Open a policy with its parameters here. Raises `LocalError` for wrong ones."""
        return made(policy, BUILT_IN[policy], self.parameters.get(policy, {}))

    @property
    def has_rates(self) -> bool:
        """Whether it limits what enters or leaves."""
        return any([self.bytes_per_s, self.bundles_per_s, self.leaving_bytes_per_s, self.leaving_bundles_per_s])

    def lets(self, machine: int, doing: Doing) -> bool:
        """Whether a machine may do this in topics, if it is a member."""
        allowed = self.publishers if doing == "publishes" else self.subscribers
        return allowed is None or machine in allowed or machine not in self.members


Program = TypeVar("Program", Writing, Reading, Changing)
AnyTopology = Constant | Uniform | Regions | TransitStub


class Scenario(Part, frozen=True):
    """A simulated experiment: `peers` machines, on each of which a peer joins within the first `join_s` seconds."""

    peers: int
    duration_s: float
    name: str = ""
    about: str = ""
    seeds: tuple[int, ...] = (1,)
    ids: list[str] = []
    """First hexadecimal digits of the nodeIds of the first machines. The others are random."""
    join_s: float = 5.0
    topology: AnyTopology = Uniform()
    disturbance: Disturbance = Disturbance()
    window_bytes: int = WINDOW_BYTES
    config: Config = Config()
    budgets: dict[int, int] = {}
    """The `budget_bytes` of machines for which it differs from `config`."""
    topics: list[TopicPlan] = []
    faults: list[AnyFault] = []
    outside: list[int] = []
    """Machines whose peers have no place in the ring; they reach it through others. Not machine 0."""
    scopes: list[ScopePlan] = []
    """Scopes and their members."""
    check_every: int = 1
    """Invariants of a peer are checked after this many of its steps."""
    marks: list[str] = []
    """Marks that must appear, otherwise the scenario did not test its purpose."""

    def config_of(self, machine: int) -> Config:
        """The settings of the peer on a machine."""
        if machine not in self.budgets:
            return self.config
        topics = msgspec.structs.replace(self.config.topics, budget_bytes=self.budgets[machine])
        return msgspec.structs.replace(self.config, topics=topics)

    def by_sources(self) -> "Scenario":
        """The scenario with topics whose events are numbered by their sources."""
        topics = [msgspec.structs.replace(plan, admission="source") for plan in self.topics]
        return msgspec.structs.replace(self, name=f"{self.name}, numbered by sources", topics=topics, marks=[])

    def with_outsiders(self) -> "Scenario":
        """The scenario with every third machine outside the ring, and no marks."""
        outside = [*range(2, self.peers, 3)]
        return msgspec.structs.replace(self, name=f"{self.name}, a third outside", outside=outside, marks=[])

    def with_scopes(self, policies: str, count: int = 1, within: str = "", recovery: str = "tree") -> "Scenario":
        """The scenario with scopes and no marks. The second machine manages them; the third and later are members.

        `policies`: one, or several in succession, separated by commas. `within`: the same for one more scope, whose
        members are the others, and one machine of each. All use the same recovery protocol.
        """
        (policy, *then), members = (
            policies.split(","),
            [[*range(2 + first, self.peers, count)] for first in range(count)],
        )
        parts = [
            {"name": f"site {number}", "members": part, "manager": 1, "policy": policy, "then": then}
            for number, part in enumerate(members)
        ]
        if within:
            (policy, *then), own = within.split(","), [part.pop(0) for part in members if part]
            parts = [part | {"within": ["campus"]} for part in parts]
            parts.insert(0, {"name": "campus", "members": own, "manager": 1, "policy": policy, "then": then})
        parts = [part | {"recovery": recovery} for part in parts]
        plans = msgspec.convert([part for part in parts if part["members"]], list[ScopePlan])
        name = f"{self.name}, in scopes, {policies}" + (f", within {within}" if within else "")
        return msgspec.structs.replace(self, name=name, scopes=plans, marks=[])

    def clustered(self, policies: str) -> "Scenario":
        """The scenario with a virtual cluster at which topics are rooted: a scope of two of three members of others."""
        (policy, *then), members = policies.split(","), sorted({each for plan in self.scopes for each in plan.members})
        part = {"name": "cluster", "members": [each for at, each in enumerate(members) if at % 3], "manager": 1}
        cluster = msgspec.convert(part | {"policy": policy, "then": then}, ScopePlan)
        scopes = [*self.scopes, msgspec.structs.replace(cluster, recovery=self.scopes[0].recovery)]
        name = f"{self.name}, across them a cluster, {policies}"
        return msgspec.structs.replace(self, name=name, scopes=scopes).rooted(len(self.scopes), CREATED_IN_CLUSTER_S)

    def rooted(self, at: int = 0, created_s: float = CREATED_S) -> "Scenario":
        """The scenario with all topics rooted at this scope, the first, and all programs on machines in and below it.

        Programs on other machines move to those of the same number, counted among these. They begin when the topics
        have been created, which takes longer here.
        """
        below, scopes = self.below(self.scopes[at]), list(self.scopes)

        def there(peer: int) -> int:
            return peer if peer in below else below[peer % len(below)]

        scopes[at] = msgspec.structs.replace(scopes[at], root=True)
        topics = [
            msgspec.structs.replace(
                plan, writers=[_moved(each, there(each.peer), created_s) for each in plan.writers],
                readers=[_moved(each, there(each.peer), created_s) for each in plan.readers],
                changes=[_moved(each, there(each.peer), created_s) for each in plan.changes],
                publishers=[there(peer) for peer in plan.publishers],
            )
            for plan in self.topics
        ]  # fmt: skip
        return msgspec.structs.replace(self, name=f"{self.name}, rooted there", scopes=scopes, topics=topics)

    def below(self, scope: ScopePlan) -> list[int]:
        """The machines in a scope, and in the scopes that are its members."""
        within = [each for each in self.scopes if scope.name in each.within]
        return sorted({*scope.members, *(machine for each in within for machine in self.below(each))})

    def validate(self) -> None:
        """Raise `LocalError` for inconsistent numbers."""
        if self.peers < 1:
            raise LocalError(f"peers = {self.peers}; a scenario has at least one")
        if not self.duration_s > 0:
            raise LocalError(f"duration_s = {self.duration_s:g}; a scenario takes some time")
        if not all(0 < number < self.peers for number in self.outside):
            raise LocalError(f"outside = {self.outside}: these are machines 1 to {self.peers - 1}")
        for scope in self.scopes:
            if wrong := [each for each in (scope.manager, *scope.members) if not 0 <= each < self.peers]:
                raise LocalError(f"scope {scope.name!r} names peer {wrong[0]}; there are 0 to {self.peers - 1}")
            for policy in scope.parameters:
                scope.opened(policy)
            if unknown := [name for name in scope.within if name not in {each.name for each in self.scopes}]:
                raise LocalError(f"scope {scope.name!r} is within {unknown[0]!r}, which is no scope here; add it")
        for fault in self.faults:
            validate(fault, {plan.name: None for plan in self.topics})
        for plan in self.topics:
            for peer in plan.machines():
                if not 0 <= peer < self.peers:
                    raise LocalError(f"topic {plan.name!r} names peer {peer}; there are 0 to {self.peers - 1}")


def _moved(program: Program, peer: int, created_s: float) -> Program:
    """The program on another machine, and not before topics are created."""
    if isinstance(program, Changing):
        return msgspec.structs.replace(program, peer=peer)
    return msgspec.structs.replace(program, peer=peer, from_s=max(program.from_s, created_s))


def load(path: Path) -> Scenario:
    """Read a scenario from a TOML file. Raises `LocalError` that names the problem."""
    try:
        scenario = msgspec.toml.decode(read_bytes(path, SCOPE_BYTES_MAX), type=Scenario)
        scenario.validate()
    except OSError as error:
        raise LocalError(f"{path}: {error.strerror}") from error
    except (msgspec.ValidationError, msgspec.DecodeError, LocalError) as error:
        raise LocalError(f"{path} is not a scenario: {error}") from error
    return msgspec.structs.replace(scenario, name=scenario.name or path.stem)
