"""The entry points that installed packages offer."""

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from quillcast.core.errors import LocalError


@cache
def offered(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group, by name. Raises `LocalError` if two packages offer the same name."""
    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=group):
        if found.setdefault(entry.name, entry).value != entry.value:
            both = f"{found[entry.name].value} and {entry.value}"
            raise LocalError(f"two packages offer {entry.name} in {group}: {both}; uninstall one")
    return found
