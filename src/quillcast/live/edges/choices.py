"""Checks the arguments of calls about topics: each mistake is one `LocalError` that names the value."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from quillcast.core.errors import LocalError
from quillcast.live import arguments
from quillcast.live.admission.credentials import Credentials
from quillcast.protocol.security.access import ENTRIES_MAX, Warrant, entry
from quillcast.protocol.topics.descriptor import Descriptor, Settings, described


def publisher_key(credentials: Credentials | None, topic: str) -> str:
    """Names a topic and the principal that publishes to it."""
    return topic if credentials is None else f"{checked_credentials(credentials).principal}:{topic}"


def checked_credentials(credentials: Credentials) -> Credentials:
    """Return the credentials. Raises `LocalError` for anything else, such as the name of their file."""
    if not isinstance(credentials, Credentials):
        raise LocalError(f"credentials = {credentials!r} is {type(credentials).__name__}; use Credentials.load(file)")
    return credentials


def warrant(credentials: Credentials | None, node: bytes, topic: str) -> Warrant | None:
    """Make the warrant for the principal for whom a peer acts. Raises `LocalError` for a bad name."""
    return None if credentials is None else checked_credentials(credentials).warrant(node, described(topic).topic)


def ownership(
    credentials: Credentials | None, publishers: Sequence[str], subscribers: Sequence[str]
) -> Callable[[Descriptor], Descriptor] | None:
    """Make the function that gives a new topic its owner and its access list. Raises `LocalError`."""
    entries = [entry("publish", who) for who in arguments.names("publishers", publishers)]
    entries += [entry("subscribe", who) for who in arguments.names("subscribers", subscribers)]
    if credentials is None:
        if entries:
            raise LocalError("a topic with an access list needs an owner: pass credentials=")
        return None
    if len(entries) > ENTRIES_MAX:
        raise LocalError(f"{len(entries)} entries are too many for an access list, which has at most {ENTRIES_MAX}")
    own, access = checked_credentials(credentials).own, tuple(dict.fromkeys(entries))
    return lambda descriptor: own(msgspec.structs.replace(descriptor, access=access))


def lists(publishers: Sequence[str] | None, subscribers: Sequence[str] | None) -> dict[str, list[str]]:
    """The principals of a changed access list, by right. Raises `LocalError`."""
    found = dict[str, list[str]]()
    for right, named in (("publish", publishers), ("subscribe", subscribers)):
        if named is not None:
            name = "publishers" if right == "publish" else "subscribers"
            found[name] = [*arguments.names(name, named)]
            for each in found[name]:
                entry(right, each)
    return found


def check_topic(topic: str) -> None:
    """Raise `LocalError` for an invalid topic name."""
    described(topic)


def topic_settings(chosen: dict[str, Any]) -> Settings:
    """The settings of a new topic. Raises `LocalError` that names an unknown setting or one of the wrong type."""
    for name in chosen:
        if name not in Settings.__struct_fields__:
            raise LocalError(f"{name} is not a setting of topics; use: {', '.join(Settings.__struct_fields__)}")
    try:
        return msgspec.convert(msgspec.to_builtins(Settings(**chosen)), Settings)
    except (msgspec.ValidationError, TypeError, ValueError) as problem:
        raise LocalError(f"the settings {chosen} do not fit: {problem}") from problem
