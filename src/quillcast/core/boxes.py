"""Trees of peers as lines of text. A box encloses the members of each scope."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple


class Drawn(NamedTuple):
    """A peer in a tree."""

    label: str
    scope: str
    children: tuple[str, ...]
    """NodeIds. Those that are not in the tree did not answer."""
    notes: tuple[str, ...] = ()
    """Lines below the peer, before its children."""


def drawn(peers: Mapping[str, Drawn], node: str) -> list[str]:
    """A peer and all below it. The part that is in a scope is in a box; what hangs below that elsewhere follows it."""
    scope, elsewhere = _scope(peers, node), list[tuple[str, str]]()
    lines = _inside(peers, node, scope, elsewhere)
    if not scope:
        return lines
    width = max(len(f" scope {scope} ") + 1, *(len(line) + 2 for line in lines))
    box = [f"┌─ scope {scope} ".ljust(width + 1, "─") + "┐", *(f"│ {line}".ljust(width + 1) + "│" for line in lines)]
    box.append("└" + "─" * width + "┘")
    for parent, child in elsewhere:
        outside = [f"from {peers[parent].label.split()[0]}", *hung(drawn(peers, child), last=True)]
        box += hung(outside, last=(parent, child) == elsewhere[-1])
    return box


def hung(lines: list[str], *, last: bool) -> Iterator[str]:
    """Lines below a guide."""
    first, *others = lines
    yield ("└── " if last else "├── ") + first
    yield from (("    " if last else "│   ") + line for line in others)


def _inside(peers: Mapping[str, Drawn], node: str, scope: str, elsewhere: list[tuple[str, str]]) -> list[str]:
    """A peer and what is below it in its scope; `elsewhere` takes other children of the scope's members."""
    if node not in peers:
        return [f"{node[:8]} did not answer"]
    peer = peers[node]
    here = [child for child in peer.children if not scope or child not in peers or _scope(peers, child) == scope]
    elsewhere += [(node, child) for child in peer.children if child not in here]
    below = [[note] for note in peer.notes]
    for child in here:
        same = _scope(peers, child) == scope or child not in peers
        below.append(_inside(peers, child, scope, elsewhere) if same else drawn(peers, child))
    return [peer.label, *(line for lines in below for line in hung(lines, last=lines is below[-1]))]


def _scope(peers: Mapping[str, Drawn], node: str) -> str:
    return peers[node].scope if node in peers else ""
