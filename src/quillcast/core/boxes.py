"""Trees of peers as lines of text. A box encloses the members of each scope."""

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import NamedTuple

Link = tuple[str, str]
"""A parent and a child."""


class Drawn(NamedTuple):
    """A peer in a tree."""

    label: str
    scopes: tuple[str, ...]
    """The labels of the boxes around it, outermost first."""
    children: tuple[str, ...]
    """NodeIds. Those that are not in the tree did not answer."""
    notes: tuple[str, ...] = ()
    """Lines below the peer, before its children."""


def drawn(peers: Mapping[str, Drawn], node: str) -> list[str]:
    """A peer and everything below it. The part in its scope is in a box; the parts below in other scopes follow."""
    return _part(peers, node, 0, [])


def hung(lines: list[str], *, last: bool) -> Iterator[str]:
    """Lines below a guide."""
    first, *others = lines
    yield ("└── " if last else "├── ") + first
    yield from (("    " if last else "│   ") + line for line in others)


def _part(peers: Mapping[str, Drawn], node: str, level: int, elsewhere: list[Link]) -> list[str]:
    """A peer and what is below it in this many of its scopes; `elsewhere` takes other children of their members."""
    scopes = peers[node].scopes if node in peers else ()

    def is_here(child: str) -> bool:
        return child not in peers or peers[child].scopes[:level] == scopes[:level]

    if len(scopes) > level:
        others = list[Link]()
        lines = _boxed(scopes[level], _part(peers, node, level + 1, others))
        here = groupby((each for each in others if is_here(each[1])), key=lambda each: peers[each[0]])
        below = [
            _above(
                f"from {parent.label.split()[0]}",
                below=[_part(peers, child, level, elsewhere) for _, child in links],
            )
            for parent, links in here
        ]
        elsewhere += [each for each in others if not is_here(each[1])]
    elif node in peers:
        peer = peers[node]
        lines = [peer.label]
        below = [[note] for note in peer.notes]
        below += [_part(peers, child, level, elsewhere) for child in peer.children if is_here(child)]
        elsewhere += [(node, child) for child in peer.children if not is_here(child)]
    else:
        return [f"{node[:8]} did not answer"]
    return _above(*lines, below=below)


def _above(*lines: str, below: list[list[str]]) -> list[str]:
    return [*lines, *(line for each in below for line in hung(each, last=each is below[-1]))]


def _boxed(scope: str, lines: list[str]) -> list[str]:
    width = max(len(f" scope {scope} ") + 1, *(len(line) + 2 for line in lines))
    top = f"┌─ scope {scope} ".ljust(width + 1, "─") + "┐"
    return [top, *(f"│ {line}".ljust(width + 1) + "│" for line in lines), "└" + "─" * width + "┘"]
