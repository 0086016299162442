"""What the calls of a node are given, checked: each mistake is one `LocalError` that names the value."""

from collections.abc import Sequence
from typing import Any

from quillcast.core.errors import LocalError
from quillcast.live import arguments
from quillcast.live.admission.joinline import DEFAULT_NETWORK, JoinLine
from quillcast.live.discovery.runtimefolder import chosen_network
from quillcast.live.node.scopeaddress import ScopeAddress


def patience_s(wait_s: Any) -> float:
    """Seconds to wait for the network. Raises `LocalError`."""
    if wait_s is None:
        return 0.0
    if not isinstance(wait_s, int | float) or not wait_s >= 0:
        raise LocalError(f"wait_for_network is {wait_s!r}; use seconds, or math.inf")
    return float(wait_s)


def contact_addresses(contacts: Sequence[str] | str) -> tuple[str, ...]:
    """As they were given; a single one is easily given by itself."""
    return (contacts,) if isinstance(contacts, str) else tuple(arguments.names("contacts", contacts))


def scope_addresses(scope: Sequence[str] | str | None) -> tuple[ScopeAddress, ...]:
    """The scopes to be a member of, the preferred one first. Raises `LocalError`."""
    if isinstance(scope, str) or scope is None:
        return () if scope is None else (ScopeAddress.parse(scope),)
    scopes = tuple(map(ScopeAddress.parse, arguments.names("scope", scope)))
    names = [each.name for each in scopes]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise LocalError(f"scope {twice} is named twice; name it once")
    return scopes


def parsed_join_line(join: JoinLine | str | None) -> JoinLine | None:
    """The line to join with. Raises `LocalError`."""
    if isinstance(join, str):
        return JoinLine.parse(join)
    return arguments.instance("join", join, JoinLine, "the line that a peer of the network printed")


def network_name(given: str | None, join: JoinLine | None) -> str:
    """The network's name; that of the line to join with, where none was chosen."""
    network = chosen_network(arguments.instance("network", given, str, "a name as text"))
    if join is None or join.network == network:
        return network
    if network != DEFAULT_NETWORK:
        raise LocalError(f"the join line is for the network {join.network!r}, and not for {network!r}; choose one")
    return join.network
