"""Evaluated policies: how a group's events travel, and modifiers that change the trees of a policy.

These compute trees for deployments of millions of peers. No peer runs them: `quillcast.protocol` decides how running
peers forward events.

`parse("scribe+remover(64)+improve(16)")` resolves a name. To add a policy, write a class that is a `PolicyKernel` (or a
`Modifier`), in any package, and name it by `module:Class` or by an entry point; one of quillcast's own has a line in
`POLICIES` (or `MODIFIERS`). The values in parentheses become its arguments.
"""

from collections.abc import Iterable
from contextlib import AbstractContextManager

from quillcast.evaluation import plugins
from quillcast.evaluation.network import Group, Ints, Tree
from quillcast.evaluation.policies.checking import checked
from quillcast.evaluation.policies.kernel import Load, Modifier, PolicyKernel, Splittable
from quillcast.evaluation.policies.source import Source
from quillcast.evaluation.routing.pastry import Tables

POLICIES = plugins.Kind(
    "policy",
    "quillcast.policies",
    PolicyKernel,
    {
        "scribe": "quillcast.evaluation.policies.scribe:Scribe",
        "scoped": "quillcast.evaluation.policies.scoped:Scoped",
        "creator_rooted": "quillcast.evaluation.policies.creator:CreatorRooted",
        "delay_optimised": "quillcast.evaluation.policies.optimised:DelayOptimised",
        "star": "quillcast.evaluation.policies.star:Star",
        "k_ary": "quillcast.evaluation.policies.kary:Kary",
        "stripes": "quillcast.evaluation.policies.stripes:Stripes",
        "bayeux": "quillcast.evaluation.policies.bayeux:Bayeux",
        "overcast": "quillcast.evaluation.policies.overcast:Overcast",
        "narada": "quillcast.evaluation.policies.narada:Narada",
        "can": "quillcast.evaluation.policies.can:Can",
        "unicast": "quillcast.evaluation.policies.unicast:Unicast",
    },
)

MODIFIERS = plugins.Kind(
    "modifier",
    "quillcast.modifiers",
    Modifier,
    {
        "collapse": "quillcast.evaluation.policies.collapse:Collapse",
        "improve": "quillcast.evaluation.policies.improve:Improve",
        "remover": "quillcast.evaluation.policies.remover:Remover",
        "source": "quillcast.evaluation.policies.source:Source",
    },
)
"""The modifiers, which may follow a `+`."""


class EvaluatedPolicy:
    """A policy that builds trees, and its modifiers, which change them one after another."""

    def __init__(self, name: str, kernel: PolicyKernel, modifiers: list[Modifier]) -> None:
        self.name, self.kernel, self.modifiers = name, kernel, modifiers

    @property
    def needs_load(self) -> bool:
        """Whether it depends on peers' load in all groups: then `load` of all comes before `trees` of any."""
        return any(part.needs_load for part in self.parts)

    def trees(self, tables: Tables, group: Group, load: Load | None = None) -> list[Tree]:
        """The trees for the group's events. If `needs_load` is true, pass `load()` of all groups, added up."""
        if self.needs_load and load is None:
            raise ValueError(f"{self.name} needs the load of all groups")
        return [
            tree
            for each in self._groups(tables, group)
            for tree in self._modified(tables, each, self._built(tables, each, load), load, self.modifiers)
        ]

    @property
    def parts(self) -> list[PolicyKernel | Modifier]:
        """The policy by itself, and its modifiers."""
        return [self.kernel, *self.modifiers]

    @property
    def children_max(self) -> int | None:
        """The most children of a peer in one group, independent of its size; None: no bound."""
        known = [part.children_max for part in self.parts if part.children_max is not None]
        return known[-1] if known else None

    @property
    def splittable(self) -> Splittable | None:
        """Finds the routes of a group's members in parts; None if a group cannot be split."""
        if any(isinstance(modifier, Source) for modifier in self.modifiers):
            return None
        return self.kernel if isinstance(self.kernel, Splittable) else None

    def routes(self, tables: Tables, group: Group, members: Ints) -> tuple[Ints, Ints]:
        """The routes of some of the members, as `Splittable.routes`."""
        if self.splittable is None:
            raise ValueError(f"{self.name} cannot split groups")
        with self._blaming(self.kernel, group):
            return self.splittable.routes(tables, group, members)

    def joined(self, tables: Tables, group: Group, nodes: Ints, parents: Ints, load: Load | None = None) -> list[Tree]:
        """The same as `trees`, from the results of `Splittable.routes` for parts of the members, in their order.

        `nodes` are the peers on the routes, those of several parts repeated; `parents` the next hop of each, -1 for the
        root.
        """
        if self.splittable is None:
            raise ValueError(f"{self.name} cannot split groups")
        with self._blaming(self.kernel, group):
            built = checked(
                self.kernel, [self.splittable.joined(tables, group, nodes, parents)], group, len(tables.ids)
            )
        return self._modified(tables, group, built, load, self.modifiers)

    def _groups(self, tables: Tables, group: Group) -> list[Group]:
        groups = [group]
        for modifier in self.modifiers:
            with self._blaming(modifier, group):
                groups = [each for given in groups for each in modifier.groups(tables, given)]
        return groups

    def _built(self, tables: Tables, group: Group, load: Load | None) -> list[Tree]:
        with self._blaming(self.kernel, group):
            return checked(self.kernel, self.kernel.trees(tables, group, load), group, len(tables.ids))

    def _modified(
        self, tables: Tables, group: Group, made: list[Tree], load: Load | None, modifiers: Iterable[Modifier]
    ) -> list[Tree]:
        for modifier in modifiers:
            with self._blaming(modifier, group):
                changed = [modifier.change(tables, group, tree, load) for tree in made]
                made = checked(modifier, changed, group, len(tables.ids))
        return made

    def _blaming(self, part: PolicyKernel | Modifier, group: Group) -> AbstractContextManager[None]:
        return plugins.blaming(part, f"{self.name} failed on group {group.number} of {len(group.members):,} members")

    def load(self, tables: Tables, groups: Iterable[Group]) -> Load:
        """The load of these groups on each peer, before the first modifier that needs to know the load."""
        counted = Load.none(len(tables.ids))
        for each in (each for group in groups for each in self._groups(tables, group)):
            for tree in self._modified(tables, each, self._built(tables, each, None), None, self._before_load()):
                counted.add(tree)
        return counted

    def _before_load(self) -> list[Modifier]:
        needy = [at for at, modifier in enumerate(self.modifiers) if modifier.needs_load]
        return self.modifiers[: needy[0]] if needy else self.modifiers


def parse(text: str) -> EvaluatedPolicy:
    """The policy with this name: `policy`, or `policy+modifier(number)+...`.

    Raises `LocalError` with the known names, or with the arguments of a policy; `PluginFailed` for one from another
    package that cannot be used.
    """
    first, *rest = plugins.split(text, "+")
    return EvaluatedPolicy(
        text, POLICIES.make(first, within=text), [MODIFIERS.make(part, within=text) for part in rest]
    )


def packages(text: str) -> set[str]:
    """The top packages of a policy and its modifiers: those that are named, and those of their classes."""
    first, *rest = plugins.split(text, "+")
    named = {POLICIES.package(first), *map(MODIFIERS.package, rest)}
    return named | {plugins.package_of(part) for part in parse(text).parts}


def portable(text: str) -> str:
    """The same policy by a name that does not depend on entry points, for workers on other machines."""
    first, *rest = plugins.split(text, "+")
    return "+".join([POLICIES.portable(first), *[MODIFIERS.portable(part) for part in rest]])
