"""Makes docs/reference.md from the docstrings of what `quillcast` exports. `--check` says whether it is up to date."""

import argparse
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

import quillcast

PAGE = Path(__file__).parent.parent / "docs" / "reference.md"
CHAPTERS = {
    "Nodes": ["Node", "Publisher", "Subscription", "Event", "Loss", "run"],
    "Without an event loop": ["BlockingNode", "BlockingPublisher", "BlockingSubscription"],
    "Access": ["Credentials"],
    "Settings": ["Config", "LiveConfig"],
}
MADE_BY_NODES = {"Publisher", "Subscription", "BlockingPublisher", "BlockingSubscription"}
NODES_SIDE = {"open", "end", "serve"}  # called by the node, not by applications
HEAD = """# Reference

Made by `scripts/reference.py` from the docstrings; a test keeps it true. What the promises mean is in
[delivery.md](delivery.md), the commands are in [commands.md](commands.md). Times are in seconds, sizes in bytes.

All of it is imported from `quillcast`: `from quillcast import Node`.
"""


def main() -> None:
    """Write the page, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; end with 1 if the page is not up to date")
    options = parser.parse_args()
    text = page()
    if not options.check:
        PAGE.write_text(text)
    elif PAGE.read_text() != text:
        sys.exit(f"{PAGE.name} is not up to date; run scripts/reference.py")


def page() -> str:
    """The whole page."""
    errors = sorted(name for name in quillcast.__all__ if is_error(getattr(quillcast, name)))
    listed = {*errors, *chain.from_iterable(CHAPTERS.values()), "__version__", "blocking"}
    more = sorted(set(quillcast.__all__) - listed)
    parts = [HEAD]
    for chapter, names in {**CHAPTERS, **({"More": more} if more else {})}.items():
        parts += [f"## {chapter}\n", *[part for name in names for part in described(name, getattr(quillcast, name))]]
    parts += ["## Errors\n", *error_table(errors)]
    return "\n".join(parts).rstrip() + "\n"


def is_error(thing: Any) -> bool:
    """Is it an exception?"""
    return inspect.isclass(thing) and issubclass(thing, Exception)


def described(name: str, thing: Any) -> Iterator[str]:
    """A class with its members, or a function."""
    yield f"### {name}\n"
    if name not in MADE_BY_NODES:
        yield f"```python\n{wrapped(name + signature(thing))}\n```\n"
    yield prose(thing)
    if not inspect.isclass(thing):
        return
    for member, value in vars(thing).items():
        target = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if (
            member.startswith("_")
            or member in NODES_SIDE
            or not inspect.isfunction(target)
            or not inspect.getdoc(target)
        ):
            continue
        prefix = "await " if inspect.iscoroutinefunction(target) else ""
        prefix = f"{name}." if isinstance(value, classmethod) else prefix
        shown = member if isinstance(value, property) else f"{member}{signature(target)}"
        yield f"#### `{prefix}{shown}`\n"
        yield prose(target)


def signature(thing: Any) -> str:
    """How it is called, without `self`, types, and defaults that are whole tables."""
    found = inspect.signature(thing)
    plain = [
        each.replace(annotation=each.empty, default=... if isinstance(each.default, msgspec.Struct) else each.default)
        for name, each in found.parameters.items()
        if name not in ("self", "cls")
    ]
    return str(found.replace(parameters=plain, return_annotation=found.empty)).replace("Ellipsis", "...")


def wrapped(call: str) -> str:
    """A call on lines that fit a page."""
    return textwrap.fill(call, 110, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


def prose(thing: Any) -> str:
    """A docstring as Markdown: the items of `Args` and `Raises` become a list."""
    lines, listing = [], False
    for line in (inspect.getdoc(thing) or "").split("\n"):
        if re.fullmatch(r"(Args|Raises|Returns):", line):
            listing = True
            lines += [f"{line}", ""]
        elif listing and (item := re.fullmatch(r"    (\w+): (.*)", line)):
            lines.append(f"- `{item[1]}`: {item[2]}")
        elif listing and line.startswith("        "):
            lines.append(f"  {line.strip()}")
        else:
            listing = listing and line.startswith("    ")
            lines.append(line)
    return "\n".join(lines) + "\n"


def error_table(names: list[str]) -> Iterator[str]:
    """Every error, what it is a kind of, and what it means."""
    yield "| error | kind | exit code of commands | meaning |\n| --- | --- | --- | --- |"
    for name in names:
        error = getattr(quillcast, name)
        meaning = " ".join(inspect.getdoc(error).split())
        yield f"| `{name}` | `{error.__base__.__name__}` | {error.exit_code} | {meaning} |"


if __name__ == "__main__":
    main()
