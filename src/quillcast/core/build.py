"""How this copy of quillcast runs."""

from importlib.util import find_spec


def compiled() -> bool:
    """Are the modules that an event passes compiled here (docs/decisions/compiled.md), or is their source run?"""
    found = find_spec("quillcast.core.bundle")
    return found is not None and not str(found.origin).endswith(".py")
