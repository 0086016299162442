"""A scope file's settings for the manager that a node runs."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from quillcast.live.scopes.files import read
from quillcast.live.scopes.rules import Rules
from quillcast.protocol.scopes.config import Described, ScopeFile, ScopeFileWrong, check_together
from quillcast.protocol.scopes.messages import TopicBounds
from quillcast.protocol.scopes.state import Entering, MayLeave, ScopeConfig


class Superscope(NamedTuple):
    """A scope that another one will be a member of."""

    name: str
    address: str
    """Where the peer that runs its manager listens; empty for the same peer."""
    token: str
    """From a join line of the scope."""
    place: str
    """The file and line with this setting."""


class Served(NamedTuple):
    """A scope to be managed."""

    described: Described
    config: ScopeConfig
    """Everything except admission."""
    rules: Rules
    """Close them at the end."""
    superscopes: tuple[Superscope, ...] = ()

    @property
    def scope(self) -> ScopeFile:
        """What the file says."""
        return self.described.scope

    @property
    def file(self) -> str:
        """Where the file is."""
        return self.described.file


def served(file: Path, tell: Callable[[str], object]) -> Served:
    """Read the scope that a file describes, for its manager; `tell` gets the reason if a policy is stopped.

    Raises `ScopeFileWrong`, and `LocalError` if the file cannot be read.
    """
    described = read(file)
    scope, rules = described.scope, Rules(described, tell)
    most = scope.limits.members_max or 0
    channels = scope.channels
    config = ScopeConfig(
        rules.policy, members_max=most, entry_points=channels.entry_points, replicas=channels.replicas,
        split=channels.split, multicast=channels.multicast, recovery=rules.recovery, entering=rules.entering,
        roots=tuple((rule.pattern, rule.root) for rule in scope.topics),
        bounds=tuple(_bounds(scope)), clients=rules.clients, clients_max=scope.limits.clients_max or 0,
        in_all=Entering(None, scope.limits.bytes_per_s or 0, scope.limits.bundles_per_s or 0), leaving=rules.leaving,
        out_of_all=MayLeave(scope.limits.leaving_bytes_per_s or 0, scope.limits.leaving_bundles_per_s or 0),
        rights=rules.rights,
    )  # fmt: skip
    return Served(described, config, rules, tuple(_superscopes(described)))


def _bounds(scope: ScopeFile) -> Iterator[TopicBounds]:
    for rule in scope.topics:
        clients = scope.limits.clients_max is not None or rule.clients != "both"
        publishes = rule.publishers_max is not None or rule.publishers is not None
        subscribes = rule.subscribers_max is not None or rule.subscribers is not None
        yield TopicBounds(rule.pattern, publishes, subscribes, clients)


def _superscopes(described: Described) -> Iterator[Superscope]:
    place = str(described.fault(("superscopes",), "")).removesuffix(": ")
    for each in described.scope.superscopes:
        name, _, rest = each.partition("@")
        address, _, token = rest.partition("?token=")
        yield Superscope(name, address, token, place)


def check_reload(scope: Served, former: Served, others: Iterable[Served]) -> None:
    """Raise `ScopeFileWrong` for what cannot change while the manager runs, or contradicts files of other scopes."""
    name, described = former.scope.name, scope.described
    if scope.scope.name != name:
        text = f"this file described scope {name}, whose manager runs: name it {name}, or stop the manager first"
        raise ScopeFileWrong([described.fault(("name",), text)])
    if scope.scope.superscopes != former.scope.superscopes:
        text = "superscopes cannot change while the manager runs: undo that, or stop the manager and start it again"
        raise ScopeFileWrong([described.fault(("superscopes",), text)])
    together = check_together([*(each.described for each in others), described])
    if faults := [fault for fault in together if fault.file == described.file]:
        raise ScopeFileWrong(faults)


def in_order(files: Iterable[Path]) -> list[Path]:
    """Sort scope files: superscopes first. Raises `ScopeFileWrong`, also if files are inconsistent with each other."""
    described = {file: read(file) for file in dict.fromkeys(files)}
    if faults := check_together([*described.values()]):
        raise ScopeFileWrong(faults)
    waiting, ordered = {each.scope.name: file for file, each in described.items()}, list[Path]()
    while waiting:  # there is no cycle, so one of them has no waiting superscope
        for name, file in list(waiting.items()):
            if waiting.keys().isdisjoint(described[file].scope.above):
                ordered.append(waiting.pop(name))
    return ordered
