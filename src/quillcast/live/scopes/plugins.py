"""Policies and filters that other packages offer by entry points, and policies in files that are pinned by a hash.

Policies and recovery agents run in processes of their own (`ConfinedPolicy`, `ConfinedAgent`). Filters run in the data
path of the peer.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, cast

from quillcast.core.envelope import Envelope
from quillcast.core.errors import LocalError
from quillcast.core.extensions import offered
from quillcast.files import SETTINGS_BYTES_MAX, read_bytes
from quillcast.live.scopes.agentorders import FROM_AGENT, FromAgent
from quillcast.live.scopes.agents import ConfinedAgent, LineListener
from quillcast.live.scopes.confined import ConfinedPolicy
from quillcast.live.scopes.orders import Make
from quillcast.live.scopes.process import ANSWER_LIMIT_S, MEMORY_BYTES_MAX, START_LIMIT_S, ConfinedProcess
from quillcast.live.scopes.socketline import SocketLine, Surroundings
from quillcast.protocol.reliability.domain import AgentContext, RecoveryProtocol
from quillcast.protocol.reliability.protocols import BUILT_IN as BUILT_IN_RECOVERIES
from quillcast.protocol.reliability.protocols.along_tree import AlongTree
from quillcast.protocol.scopes.config import FilterTable
from quillcast.protocol.scopes.filters import CustomFilter
from quillcast.protocol.scopes.policies import BUILT_IN, made
from quillcast.protocol.scopes.policy import ScopePolicy

POLICIES = "quillcast.scope_policies"
FILTERS = "quillcast.scope_filters"
RECOVERIES = "quillcast.recovery_protocols"
_REFERENCE = re.compile(r"([\w.]+):([A-Za-z_][\w.]*)")


class PolicyUnavailable(LocalError):
    """There is no such policy, or its file does not have the pinned hash."""


def opened(
    policy: str, parameters: Mapping[str, Any], *, sha256: str = "", folder: Path | None = None, hash_seed: int = 0
) -> ScopePolicy:
    """Make the policy with this name and these parameters. Close it if it is confined.

    Args:
        policy: a built-in name, an entry point, `module:Class`, or `FILE.py:Class`.
        parameters: by name.
        sha256: the hash of the file, in hexadecimal.
        folder: where the file is.
        hash_seed: of the process, if there is one.

    Raises `PolicyUnavailable`, `LocalError` for wrong parameters, and `PolicyStopped` if it cannot be made.
    """
    if policy in BUILT_IN:
        return made(policy, BUILT_IN[policy], parameters)
    entry = offered(POLICIES).get(policy)
    reference = policy if entry is None else entry.value
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        raise PolicyUnavailable(_unknown(policy))
    content = _pinned(policy, Path(folder or "") / match[1], sha256) if match[1].endswith(".py") else b""
    return ConfinedPolicy(Make(policy, reference, dict(parameters), content), hash_seed=hash_seed)


def _unknown(policy: str) -> str:
    if "/" in policy and ".py:" in policy:
        return (
            f"policy {policy}: name the file without its folder; it is beside the scope's file, and `scope policy "
            "check` looks in the current folder"
        )
    names = [*BUILT_IN, *offered(POLICIES)]
    near = get_close_matches(policy, names, 1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return (
        f"there is no policy {policy!r}{hint}; known: {', '.join(names)}; "
        "for one of your own, write module:Class, or FILE.py:Class and its sha256"
    )


def _pinned(policy: str, file: Path, sha256: str) -> bytes:
    """Return the content of a file if it has this hash."""
    try:
        content = read_bytes(file, SETTINGS_BYTES_MAX)
    except OSError as error:
        raise PolicyUnavailable(f"policy {policy}: cannot read {file}: {error.strerror}; copy the file there") from None
    found = hashlib.sha256(content).hexdigest()
    if not sha256:
        raise PolicyUnavailable(f'policy {policy}: {file} is not pinned; read it, and then add sha256 = "{found}"')
    if found != sha256:
        raise PolicyUnavailable(
            f"policy {policy}: {file} has changed: its SHA-256 is {found}, not {sha256}; "
            "read the file again, and then correct the hash"
        )
    return content


class InstalledFilters(Mapping[str, Callable[..., CustomFilter]]):
    """The filters of installed packages, as `filters.Customs`.

    If one raises an exception, the bundle stops. `tell` gets one line for each filter that does.
    """

    def __init__(self, tell: Callable[[str], object]) -> None:
        self._tell = tell

    def __getitem__(self, name: str) -> Callable[..., CustomFilter]:
        return lambda **arguments: _guarded(name, self._made(name, arguments), self._tell)

    def __contains__(self, name: object) -> bool:
        return name in offered(FILTERS)

    def __iter__(self) -> Iterator[str]:
        return iter(offered(FILTERS))

    def __len__(self) -> int:
        return len(offered(FILTERS))

    def _made(self, name: str, arguments: dict[str, Any]) -> CustomFilter:
        entry = offered(FILTERS)[name]
        try:
            made: CustomFilter = entry.load()(**arguments)
        except Exception as error:
            raise LocalError(
                f"filter {name} of {entry.value} cannot be made: {type(error).__name__}: {' '.join(str(error).split())}"
            ) from error
        return made


def check_recovery(name: str) -> None:
    """Raise `LocalError` if no installed package has a recovery protocol of this name."""
    names = [*BUILT_IN_RECOVERIES, *offered(RECOVERIES)]
    if name not in names:
        near = get_close_matches(name, names, 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise LocalError(f"there is no recovery protocol {name!r}{hint}; known: {', '.join(names)}")


class InstalledRecoveries(Mapping[str, Callable[[AgentContext], RecoveryProtocol]]):
    """The recovery protocols of installed packages, as `reliability.agents.Protocols`.

    `tell` gets a line for each agent that is stopped (`ConfinedAgent`).
    """

    def __init__(self, tell: Callable[[str], object], surroundings: Surroundings) -> None:
        self._tell, self._surroundings = tell, surroundings

    def __getitem__(self, name: str) -> Callable[[AgentContext], RecoveryProtocol]:
        if name not in self:
            raise KeyError(name)
        return lambda context: self._made(name, context)

    def _made(self, name: str, context: AgentContext) -> RecoveryProtocol:
        try:
            return ConfinedAgent(
                name, offered(RECOVERIES)[name].value, context, partial(agent_line, self._surroundings), self._tell
            )
        except OSError as error:
            self._tell(f"recovery protocol {name} cannot be started: {error.strerror}; members repair along the tree")
            return AlongTree()

    def __contains__(self, name: object) -> bool:
        return name in offered(RECOVERIES)

    def __iter__(self) -> Iterator[str]:
        return iter(offered(RECOVERIES))

    def __len__(self) -> int:
        return len(offered(RECOVERIES))


def agent_line(surroundings: Surroundings, listener: LineListener) -> SocketLine[FromAgent]:
    """Start a process for a recovery agent. Raises `OSError`."""
    limit_s = START_LIMIT_S + ANSWER_LIMIT_S
    process = ConfinedProcess("quillcast.live.scopes.agentchild", limit_s, MEMORY_BYTES_MAX)
    return SocketLine(surroundings, process, FROM_AGENT, listener.came, listener.failed)


def protocol_class(name: str) -> Callable[[AgentContext], RecoveryProtocol]:
    """What makes the agents of an installed recovery protocol; calling it imports the package. Raises `KeyError`."""
    entry = offered(RECOVERIES)[name]
    return lambda context: cast("RecoveryProtocol", entry.load()(context))


def _guarded(name: str, decide: CustomFilter, tell: Callable[[str], object]) -> CustomFilter:
    told = False

    def guarded(envelope: Envelope) -> bool | str:
        nonlocal told
        try:
            return decide(envelope)
        except Exception as error:  # noqa: BLE001  another package's code may raise anything
            if not told:
                tell(f"filter {name} raised {type(error).__name__}: {error}; it stops such bundles")
            told = True
            return False

    return guarded


def unknown_filters(table: FilterTable | None) -> Iterator[str]:
    """A sentence for each filter of a table that no installed package offers, naming those that exist."""
    if table is None:
        return
    if table.custom is not None and table.custom.name not in offered(FILTERS):
        near = get_close_matches(table.custom.name, offered(FILTERS), 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        known = ", ".join(offered(FILTERS)) or "none"
        yield f"there is no filter {table.custom.name!r}{hint}; installed packages offer: {known}"
    for each in (*(table.every or ()), *(table.either or ()), table.except_):
        yield from unknown_filters(each)
