"""Evaluated policies: how a group's events travel, and modifiers that change the trees of a policy.

These compute trees for deployments of millions of peers. No peer runs them: how a running peer forwards events is
decided in `quillcast.protocol`.

`parse("scribe+remover(64)+improve(16)")` resolves a name. To add a policy, write a class that is a `PolicyKernel` (or a
`Modifier`) in its own module and add a line to `POLICIES` (or `MODIFIERS`). The values in parentheses become its
arguments.
"""

import inspect
import re
from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from quillcast.core.errors import LocalError
from quillcast.evaluation.network import Group, Ints, Tree
from quillcast.evaluation.policies.kernel import Load, Modifier, PolicyKernel, Splittable
from quillcast.evaluation.policies.source import Source
from quillcast.evaluation.routing.pastry import Tables

POLICIES = {
    "scribe": "scribe.Scribe",
    "scoped": "scoped.Scoped",
    "creator_rooted": "creator.CreatorRooted",
    "delay_optimised": "optimised.DelayOptimised",
    "star": "star.Star",
    "k_ary": "kary.Kary",
    "stripes": "stripes.Stripes",
    "bayeux": "bayeux.Bayeux",
    "overcast": "overcast.Overcast",
    "narada": "narada.Narada",
    "can": "can.Can",
    "unicast": "unicast.Unicast",
}
"""Each policy's name, module and class."""

MODIFIERS = {
    "collapse": "collapse.Collapse",
    "improve": "improve.Improve",
    "remover": "remover.Remover",
    "source": "source.Source",
}
"""The modifiers, which may follow a `+`."""


class EvaluatedPolicy:
    """A policy that builds trees, and its modifiers, which change them one after another."""

    def __init__(self, name: str, kernel: PolicyKernel, modifiers: list[Modifier]) -> None:
        self.name, self.kernel, self.modifiers = name, kernel, modifiers

    @property
    def needs_load(self) -> bool:
        """Whether it depends on peers' load in all groups: then `load` of all comes before `trees` of any."""
        return self.kernel.needs_load or any(modifier.needs_load for modifier in self.modifiers)

    def trees(self, tables: Tables, group: Group, load: Load | None = None) -> list[Tree]:
        """The trees for the group's events. If `needs_load` is true, pass `load()` of all groups, added up."""
        if self.needs_load and load is None:
            raise ValueError(f"{self.name} needs the load of all groups")
        return [
            tree
            for each in self._groups(tables, group)
            for tree in self._modified(tables, each, self.kernel.trees(tables, each, load), load)
        ]

    @property
    def children_max(self) -> int | None:
        """The most children of a peer in one group, independent of its size; None: no bound."""
        bounds = [self.kernel.children_max, *(modifier.children_max for modifier in self.modifiers)]
        known = [bound for bound in bounds if bound is not None]
        return known[-1] if known else None

    @property
    def splittable(self) -> Splittable | None:
        """Finds the routes of a group's members in parts; None if a group cannot be split."""
        if any(isinstance(modifier, Source) for modifier in self.modifiers):
            return None
        return self.kernel if isinstance(self.kernel, Splittable) else None

    def joined(self, tables: Tables, group: Group, nodes: Ints, parents: Ints, load: Load | None = None) -> list[Tree]:
        """The same as `trees`, from the results of `Splittable.routes` for parts of the members, in their order.

        `nodes` are the peers on the routes, those of several parts repeated; `parents` the next hop of each, -1 for the
        root.
        """
        if self.splittable is None:
            raise ValueError(f"{self.name} cannot split groups")
        return self._modified(tables, group, [self.splittable.joined(tables, group, nodes, parents)], load)

    def _groups(self, tables: Tables, group: Group) -> list[Group]:
        groups = [group]
        for modifier in self.modifiers:
            groups = [each for given in groups for each in modifier.groups(tables, given)]
        return groups

    def _modified(self, tables: Tables, group: Group, made: list[Tree], load: Load | None) -> list[Tree]:
        for modifier in self.modifiers:
            made = [modifier.change(tables, group, tree, load) for tree in made]
        return made

    def load(self, tables: Tables, groups: Iterable[Group]) -> Load:
        """The load of these groups on each peer, before the first modifier that needs to know the load."""
        counted = Load.none(len(tables.ids))
        for each in (each for group in groups for each in self._groups(tables, group)):
            for tree in self.kernel.trees(tables, each, None):
                for modifier in self._before_load():
                    tree = modifier.change(tables, each, tree, None)  # noqa: PLW2901
                counted.add(tree)
        return counted

    def _before_load(self) -> list[Modifier]:
        needy = [at for at, modifier in enumerate(self.modifiers) if modifier.needs_load]
        return self.modifiers[: needy[0]] if needy else self.modifiers


def parse(text: str) -> EvaluatedPolicy:
    """The policy with this name: `policy`, or `policy+modifier(number)+...`.

    Raises `LocalError` with the known names, or with the arguments of a policy.
    """
    first, *rest = _split(text, "+")
    kernel = _make(first, POLICIES, "policy", text)
    return EvaluatedPolicy(text, kernel, [_make(part, MODIFIERS, "modifier", text) for part in rest])


def _make(text: str, known: dict[str, str], kind: str, whole: str) -> Any:
    match = re.fullmatch(r"\s*([a-z_]+)\s*(?:\((.*)\))?\s*", text)
    name = match[1] if match else text.strip()
    if match is None or name not in known:
        near = get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise LocalError(f"{whole!r}: there is no {kind} {name!r}{hint} Known: {', '.join(sorted(known))}")
    module, _, class_name = known[name].partition(".")
    made = getattr(import_module(f"{__name__}.{module}"), class_name)
    arguments = [_argument(part) for part in _split(match[2] or "", ",") if part.strip()]
    try:
        inspect.signature(made).bind(*arguments)
    except TypeError:
        takes = ", ".join(map(str, inspect.signature(made).parameters.values())) or "nothing"
        raise LocalError(f"{whole!r}: {name} takes {takes} in parentheses") from None
    return made(*arguments)


def _argument(text: str) -> int | str:
    text = text.strip()
    return int(text) if re.fullmatch(r"\d+", text) else text


def _split(text: str, separator: str) -> list[str]:
    """Split at separators that are not in parentheses."""
    parts, depth = [""], 0
    for sign in text:
        depth += (sign == "(") - (sign == ")")
        if sign == separator and depth == 0:
            parts.append("")
        else:
            parts[-1] += sign
    return parts
