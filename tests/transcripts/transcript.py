"""Conversations of a few simulated peers as text that a reviewer can read; QUILLCAST_REWRITE=1 writes them anew."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from quillcast.core.trace import (
    Attached,
    BecameRoot,
    ChildAdded,
    ChildRemoved,
    Detached,
    Record,
    Subscribed,
    Unsubscribed,
)

HERE = Path(__file__).parent
Name = Callable[[bytes], str]


class Transcript:
    """What each peer did to its trees, in order, under headings; without times, and without the order between peers."""

    def __init__(self, name: Name) -> None:
        self.name = name
        self.sections: list[list[str]] = []

    def heading(self, text: str) -> None:
        """What the application or the world does next."""
        self.sections.append([f"# {text}"])

    def note(self, at: float, machine: Any, node: bytes, record: Record) -> None:
        """One record of one peer, if it is about a tree."""
        text = self._text(record)
        if text:
            self.sections[-1].append(f"{self.name(node)} {text}")

    def _text(self, record: Record) -> str:
        match record:
            case BecameRoot(how=how):
                return f"becomes root ({how})"
            case ChildAdded(child=child):
                return f"takes {self.name(child)} as child"
            case ChildRemoved(child=child, why=why):
                return f"removes its child {self.name(child)} ({why})"
            case Attached(parent=parent):
                return f"has parent {self.name(parent)}"
            case Detached(parent=parent, why=why):
                return f"has no parent any more: {self.name(parent)} ({why})"
            case Subscribed():
                return "is subscribed"
            case Unsubscribed():
                return "is not subscribed any more"
            case _:
                return ""

    def compare(self, file: str) -> None:
        """Assert that the conversation is the one written down; or write it down, where the flag is set."""
        sections = [[heading, *sorted(lines, key=lambda line: line.split()[0])] for heading, *lines in self.sections]
        text = "\n\n".join("\n".join(section) for section in sections) + "\n"
        compare(file, text)


def compare(file: str, text: str) -> None:
    """Assert that the text is the one in the file; or write it down, where the flag is set."""
    path = HERE / file
    if os.environ.get("QUILLCAST_REWRITE"):
        path.write_text(text)
    assert text == path.read_text(), f"{file} differs from what happened:\n{text}"
