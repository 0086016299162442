"""Checks the arguments of a node's calls: each mistake is one `LocalError` that names the value."""

import math
from collections.abc import Sequence
from typing import Any

from quillcast.core.errors import LocalError
from quillcast.live import arguments
from quillcast.live.admission.joinline import DEFAULT_NETWORK, JoinLine
from quillcast.live.config import LiveConfig
from quillcast.live.discovery.runtimefolder import chosen_network
from quillcast.live.node.scopeaddress import ScopeAddress
from quillcast.protocol.config import Config

BATCHES_MIN = 2  # of the largest size, which buffers must hold: one is kept while the next arrives


def patience_s(wait_s: Any) -> float:
    """Seconds to wait for the network. Raises `LocalError`."""
    if wait_s is None:
        return 0.0
    if not isinstance(wait_s, int | float) or not wait_s >= 0:
        raise LocalError(f"wait_for_network is {wait_s!r}; use seconds, or math.inf")
    return float(wait_s)


def entry_timeout_s(wait_s: float | None, scopes: Sequence[ScopeAddress], live: LiveConfig) -> float:
    """How long a node may take to join its network. A member of scopes waits for their managers."""
    if not scopes:
        return live.join_timeout_s
    return math.inf if wait_s is None else float(wait_s) or live.join_timeout_s


def check_buffers(config: Config, live: LiveConfig) -> None:
    """Raise `LocalError` unless the buffers hold two of the largest batches that publishers here seal.

    Smaller buffers exceed their budget whenever a batch is in transit, and subscribers that keep up are cut.
    """
    budget_bytes, needed_bytes = config.topics.budget_bytes, BATCHES_MIN * live.publish_bytes
    if budget_bytes < needed_bytes:
        raise LocalError(
            f"topics.budget_bytes is {budget_bytes}; use at least {needed_bytes}, {BATCHES_MIN} times "
            "live.publish_bytes, or lower that"
        )


def contact_addresses(contacts: Sequence[str] | str) -> tuple[str, ...]:
    """The addresses, also if a single one is given as text."""
    return (contacts,) if isinstance(contacts, str) else tuple(arguments.names("contacts", contacts))


def scope_addresses(scope: Sequence[str] | str | None) -> tuple[ScopeAddress, ...]:
    """The scopes to be a member of, preferred one first. Raises `LocalError`."""
    if isinstance(scope, str) or scope is None:
        return () if scope is None else (ScopeAddress.parse(scope),)
    scopes = tuple(map(ScopeAddress.parse, arguments.names("scope", scope)))
    names = [each.name for each in scopes]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise LocalError(f"scope {twice} is named twice; name it once")
    return scopes


def parsed_join_line(join: JoinLine | str | None) -> JoinLine | None:
    """The join line. Raises `LocalError`."""
    if isinstance(join, str):
        return JoinLine.parse(join)
    return arguments.instance("join", join, JoinLine, "the line that a peer of the network printed")


def network_name(given: str | None, join: JoinLine | None) -> str:
    """The network's name: the given one, or else that of the join line."""
    network = chosen_network(arguments.instance("network", given, str, "a name as text"))
    if join is None or join.network == network:
        return network
    if network != DEFAULT_NETWORK:
        raise LocalError(f"the join line is for the network {join.network!r}, and not for {network!r}; choose one")
    return join.network
