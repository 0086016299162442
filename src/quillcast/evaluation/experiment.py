"""Experiments: a TOML file, or a built-in name. Reading one needs no heavy library."""

import difflib
import hashlib
import re
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from quillcast import __version__
from quillcast.core.errors import LocalError
from quillcast.files import SETTINGS_BYTES_MAX, read_text

DIGIT_BITS = (1, 2, 4, 8)  # of a nodeId's digit: divisors of the id's length
GROUP_SIZE_MIN = 2  # a root and one more peer that receives
LAW_EXPONENT = 1.25  # Scribe, section 4.1: gsize(r) = floor(N r^-1.25 + 0.5)

Publishers = Literal["root", "creator", "members"]
Domains = Literal["true", "found"]


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file."""


class Overlay(_Part, frozen=True, kw_only=True):
    """The overlay's routing tables."""

    digit_bits: int = 4
    """Pastry's b (section 2.1: a typical value)."""

    leaf_set_size: int = 16
    """Pastry's l (section 2.1: 2^b or twice that)."""

    quality: str = "ideal"
    """`ideal`: the nearest peer in every cell; `sampled(k)`: the nearest of k; `join`: the peer that joining finds."""

    domains: Domains = "true"
    """`true`: the topology's own labels; `found`: clusters by delay."""


class Workload(_Part, frozen=True, kw_only=True):
    """The groups and their subscribers."""

    groups: int = 1500
    """The number of groups; for real membership, the maximum, the largest first."""

    size: int | None = None
    """Members of every group; by default floor(N r^-1.25 + 0.5) for the group of rank r."""

    members: str = "uniform"
    """`uniform`, `clustered`, or real membership: `rust-teams`, or the path of a file; or a generator's
    `module:function`."""

    publishers: Publishers = "members"
    """The publishers: up to four random members, the group's creator, or the root of the group's key. They are the same
    peers for all policies."""


class Churn(_Part, frozen=True, kw_only=True):
    """Peers that die at once."""

    fraction: float = 0.05
    """The fraction of all peers that die."""


class Published(_Part, frozen=True, kw_only=True):
    """A published figure to compare ours with."""

    policy: str
    figure: str
    """The name of our figure in the result of the policy, such as `entries.mean`."""

    value: float
    source: str
    over: str = ""
    """Another policy: our figure is divided by that policy's."""


class Experiment(_Part, frozen=True, kw_only=True):
    """Everything that determines the result of a run."""

    name: str = ""
    title: str = ""
    topology: str = "transit-stub"
    """A built-in topology, a path, or a generator's `module:function`."""

    peers: int
    seed: int = 1
    policies: tuple[str, ...]
    """Built-in policies, those of installed packages, or `module:Class`."""

    metrics: tuple[str, ...] = ("hops",)
    """Further figures of each group, named like policies."""

    overlay: Overlay = Overlay()
    workload: Workload = Workload()
    churn: Churn | None = None
    published: tuple[Published, ...] = ()

    def with_(self, **changes: Any) -> "Experiment":
        """The same experiment with other `peers`, `groups`, `seed` or `policies`; None changes nothing."""
        changes = {name: value for name, value in changes.items() if value is not None}
        groups = changes.pop("groups", None)
        if groups is not None:
            changes["workload"] = msgspec.structs.replace(self.workload, groups=groups)
        changed = msgspec.structs.replace(self, **changes)
        if (changed.peers, changed.workload) != (self.peers, self.workload):  # figures and title are for one size
            size = f"{changed.peers:,} peers" + (f", {groups:,} groups" if groups is not None else "")
            title = f"{self.title} (changed to {size})" if self.title else ""
            changed = msgspec.structs.replace(changed, published=(), title=title)
        return changed.checked("the options")

    @property
    def identity(self) -> str:
        """Equal for runs that may share tables: depends on the version, and on all but names and policies."""
        shared = {key: value for key, value in msgspec.to_builtins(self).items() if key not in _NOT_SHARED}
        shared["version"] = __version__
        return hashlib.sha256(msgspec.json.encode(shared, order="deterministic")).hexdigest()[:12]

    def checked(self, origin: str) -> "Experiment":
        """The experiment itself. Raises `LocalError`, which names the origin, if it is impossible."""
        self._check_counts(origin)
        if not self.policies:
            raise LocalError(f"{origin}: policies is empty; name one, such as scribe")
        for setting, named in (("policies", self.policies), ("metrics", self.metrics)):
            repeated = sorted({name for name in named if named.count(name) > 1})
            if repeated:
                raise LocalError(f"{origin}: {setting} names {repeated[0]} twice")
        if self.churn is not None and not 0 < self.churn.fraction < 1:
            raise LocalError(f"{origin}: churn.fraction is {self.churn.fraction:g}; it must be above 0 and below 1")
        return self

    def _check_counts(self, origin: str) -> None:
        bounds = {
            "peers": (self.peers, 2, 1 << 30),
            "seed": (self.seed, 0, (1 << 63) - 1),
            "workload.groups": (self.workload.groups, 1, 1 << 30),
            "overlay.leaf_set_size": (self.overlay.leaf_set_size, 2, 256),
        }
        for name, (value, least, most) in bounds.items():
            if not least <= value <= most:
                raise LocalError(f"{origin}: {name} is {value}; it must be from {least} to {most}")
        if self.overlay.digit_bits not in DIGIT_BITS:
            known = ", ".join(map(str, DIGIT_BITS))
            raise LocalError(f"{origin}: overlay.digit_bits is {self.overlay.digit_bits}; it must be one of {known}")
        if not re.fullmatch(r"ideal|join|sampled\([1-9]\d*\)", self.overlay.quality):
            raise LocalError(
                f"{origin}: overlay.quality is {self.overlay.quality!r}; it must be ideal, sampled(k) with k of at "
                "least 1, or join"
            )
        if self.overlay.leaf_set_size % 2:
            raise LocalError(f"{origin}: overlay.leaf_set_size is {self.overlay.leaf_set_size}; it must be even")
        size = self.workload.size
        if size is not None and not GROUP_SIZE_MIN <= size <= self.peers:
            raise LocalError(
                f"{origin}: workload.size is {size}; it must be from {GROUP_SIZE_MIN} to peers, {self.peers}"
            )
        if size is None and self.workload.members in {"uniform", "clustered"}:
            self._check_law(origin)

    def _check_law(self, origin: str) -> None:
        """Check that there are enough peers for the smallest group of the papers' law to have members."""
        groups = self.workload.groups
        smallest = int(self.peers * groups**-LAW_EXPONENT + 0.5)
        if smallest < GROUP_SIZE_MIN:
            most = int((self.peers / (GROUP_SIZE_MIN - 0.5)) ** (1 / LAW_EXPONENT))
            raise LocalError(
                f"{origin}: {self.peers} peers are too few for {groups} groups, the last of which would have "
                f"{smallest} {'member' if smallest == 1 else 'members'}; use at most {max(most, 1)} groups"
            )


_NOT_SHARED = {"name", "title", "policies", "published"}
_TABLES: dict[str, type[_Part]] = {"overlay": Overlay, "workload": Workload, "churn": Churn, "published": Published}


def names() -> list[str]:
    """The built-in experiments."""
    folder = resources.files("quillcast.evaluation") / "experiments"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def load(name_or_path: str) -> Experiment:
    """Load a built-in experiment by name, or a TOML file by path.

    Raises `LocalError` if there is none, or if it is invalid.
    """
    if name_or_path in names():
        entry = resources.files("quillcast.evaluation") / "experiments" / f"{name_or_path}.toml"
        return parse(entry.read_text("utf-8"), name_or_path)
    path = Path(name_or_path)
    try:
        text = read_text(path, SETTINGS_BYTES_MAX)
    except FileNotFoundError:
        raise LocalError(
            f"there is no experiment and no file {name_or_path}{_nearest(name_or_path, names())}; "
            f"built-in: {', '.join(names())}"
        ) from None
    except UnicodeDecodeError:
        raise LocalError(f"the experiment {path} is not text in UTF-8; convert it") from None
    except OSError as error:
        raise LocalError(f"cannot read the experiment {path}: {error.strerror}") from error
    return parse(text, str(path))


def split(policies: str) -> tuple[str, ...]:
    """Split a list of policies at commas, except those in parentheses."""
    return tuple(part.strip() for part in re.split(r",(?![^(]*\))", policies) if part.strip())


def parse(text: str, origin: str) -> Experiment:
    """The experiment that a TOML text describes. `origin` names it, in errors too. Raises `LocalError`."""
    try:
        told = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise LocalError(f"{origin} is not valid TOML: {error}") from error
    _check_keys(told, Experiment, origin)
    for table, kind in _TABLES.items():
        for part in told.get(table, []) if isinstance(told.get(table), list) else [told.get(table)]:
            if isinstance(part, dict):
                _check_keys(part, kind, origin, f"{table}.")
    try:
        experiment = msgspec.convert({"name": Path(origin).stem} | told, Experiment)
    except msgspec.ValidationError as error:
        raise LocalError(f"{origin}: {_told(str(error))}") from error
    return experiment.checked(origin)


def _check_keys(told: Mapping[str, Any], kind: type[_Part], origin: str, table: str = "") -> None:
    known = kind.__struct_fields__
    for key in told:
        if key not in known:
            nearest = _nearest(key, known, table)
            raise LocalError(f"{origin}: unknown setting {table}{key}{nearest}; there are: {', '.join(known)}")


def _nearest(name: str, known: Sequence[str], table: str = "") -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f" (did you mean {table}{near[0]}?)" if near else ""


def _told(error: str) -> str:
    """Reword an error of msgspec with the setting first; msgspec's own ends in "- at `$.workload.groups`"."""
    what, _, where = error.partition(" - at `")
    setting = where.rstrip("`").removeprefix("$.").removeprefix("$")
    what = what.replace("Object missing required field", "there is no setting").replace("`", "")
    what = what.replace("Expected", "expected").replace("Invalid enum value", "there is no")
    if setting in _CHOICES:
        what += f"; there are: {', '.join(_CHOICES[setting])}"
    return f"{setting}: {what}" if setting else what


_CHOICES = {"workload.publishers": get_args(Publishers), "overlay.domains": get_args(Domains)}
