"""What the calls of a node are given, checked: each mistake is one `LocalError` that names the value."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from quillcast.core.errors import LocalError
from quillcast.live import arguments
from quillcast.live.admission.credentials import Credentials
from quillcast.live.admission.joinline import DEFAULT_NETWORK, JoinLine
from quillcast.protocol.security.access import ENTRIES_MAX, entry
from quillcast.protocol.topics.descriptor import Descriptor, Settings, described


def publisher_key(credentials: Credentials | None, topic: str) -> str:
    """A topic, and the principal that publishes to it."""
    return topic if credentials is None else f"{checked_credentials(credentials).principal}:{topic}"


def checked_credentials(credentials: Credentials) -> Credentials:
    """The credentials. Raises `LocalError` for anything else, such as the name of their file."""
    if not isinstance(credentials, Credentials):
        raise LocalError(f"credentials = {credentials!r} is {type(credentials).__name__}; use Credentials.load(file)")
    return credentials


def ownership(
    credentials: Credentials | None, publishers: Sequence[str], subscribers: Sequence[str]
) -> Callable[[Descriptor], Descriptor] | None:
    """What gives a new topic its owner and its access list. Raises `LocalError`."""
    entries = [entry("publish", who) for who in arguments.names("publishers", publishers)]
    entries += [entry("subscribe", who) for who in arguments.names("subscribers", subscribers)]
    if credentials is None:
        if entries:
            raise LocalError("a topic with publishers or subscribers named has an owner: give credentials=")
        return None
    if len(entries) > ENTRIES_MAX:
        raise LocalError(f"{len(entries)} entries are too many for an access list, which has at most {ENTRIES_MAX}")
    own, access = checked_credentials(credentials).own, tuple(dict.fromkeys(entries))
    return lambda descriptor: own(msgspec.structs.replace(descriptor, access=access))


def patience_s(wait_s: Any) -> float:
    """Seconds to wait for the network. Raises `LocalError`."""
    if wait_s is None:
        return 0.0
    if not isinstance(wait_s, int | float) or not wait_s >= 0:
        raise LocalError(f"wait_for_network is {wait_s!r}; use seconds, or math.inf")
    return float(wait_s)


def check_topic(topic: str) -> None:
    """Raise `LocalError` for an invalid topic name."""
    described(topic)


def contact_addresses(contacts: Sequence[str] | str) -> tuple[str, ...]:
    """As they were given; a single one is easily given by itself."""
    return (contacts,) if isinstance(contacts, str) else tuple(arguments.names("contacts", contacts))


def parsed_join_line(join: JoinLine | str | None) -> JoinLine | None:
    """The line to join with. Raises `LocalError`."""
    if isinstance(join, str):
        return JoinLine.parse(join)
    return arguments.instance("join", join, JoinLine, "the line that a peer of the network printed")


def network_name(network: str, join: JoinLine | None) -> str:
    """The network's name; that of the line to join with, where none was chosen."""
    if not isinstance(network, str):
        raise LocalError(f"network = {network!r} is {type(network).__name__}; use a name as text")
    if join is None or join.network == network:
        return network
    if network != DEFAULT_NETWORK:
        raise LocalError(f"the join line is for the network {join.network!r}, and not for {network!r}; choose one")
    return join.network


def topic_settings(chosen: dict[str, Any]) -> Settings:
    """The settings of a new topic. Raises `LocalError` naming what does not exist or has the wrong type."""
    for name in chosen:
        if name not in Settings.__struct_fields__:
            raise LocalError(f"{name} is not a setting of topics; use: {', '.join(Settings.__struct_fields__)}")
    try:
        return msgspec.convert(msgspec.to_builtins(Settings(**chosen)), Settings)
    except (msgspec.ValidationError, TypeError, ValueError) as problem:
        raise LocalError(f"the settings {chosen} do not fit: {problem}") from problem
