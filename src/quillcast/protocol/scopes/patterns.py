"""Patterns of topic names, as in MQTT: `+` stands for one part, and `#`, as the last part, for all that follow."""

from quillcast.core.errors import LocalError, quoted

ANY_PART, ALL_PARTS = "+", "#"


def check(pattern: str) -> None:
    """Raise `LocalError` if this is not a pattern."""
    if not pattern:
        raise LocalError("the pattern is empty; name a topic, or use # for all topics")
    parts = pattern.split("/")
    for at, part in enumerate(parts):
        wild = ANY_PART in part or ALL_PARTS in part
        if wild and part not in (ANY_PART, ALL_PARTS):
            raise LocalError(
                f"pattern {quoted(pattern)}: {part!r} mixes a wildcard with a name; use + or # for whole parts"
            )
        if part == ALL_PARTS and at < len(parts) - 1:
            raise LocalError(f"pattern {quoted(pattern)}: # is not the last part; use + for a part in the middle")


def covers(pattern: str, other: str) -> bool:
    """Does each topic that matches `other` match the pattern too? Both may be names of topics."""
    wide, narrow = pattern.split("/"), other.split("/")
    if wide == [ANY_PART, ALL_PARTS]:
        return True  # each name has a part
    for at, part in enumerate(wide):
        if part == ALL_PARTS:
            return True
        if at == len(narrow) or narrow[at] == ALL_PARTS or part not in (ANY_PART, narrow[at]):
            return False
    return len(wide) == len(narrow)


def overlap(one: str, other: str) -> bool:
    """Is there a topic that matches both?"""
    mine, yours = one.split("/"), other.split("/")
    for here, there in zip(mine, yours, strict=False):
        if ALL_PARTS in (here, there):
            return True
        if ANY_PART not in (here, there) and here != there:
            return False
    longer = max(mine, yours, key=len)
    shorter = min(len(mine), len(yours))
    return len(mine) == len(yours) or longer[shorter] == ALL_PARTS
