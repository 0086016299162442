"""Scope files: what an operator says about one scope, in TOML (docs/scope-files.md).

A file is checked as a whole, and so are several together. Each fault names the file, the line and the remedy.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import msgspec
from msgspec import Meta

from quillcast.core.envelope import SERIALS
from quillcast.core.errors import LocalError
from quillcast.core.ids import ID_BYTES, topic_id
from quillcast.protocol.scopes import filters, patterns
from quillcast.protocol.scopes.filters import Filter
from quillcast.protocol.scopes.messages import ClientRights
from quillcast.protocol.scopes.policies import BUILT_IN, reworded
from quillcast.protocol.security.access import is_principal

TomlPath = tuple[str | int, ...]
"""Where something is in a file: the keys and indexes that lead there."""

_NAME, _SUPERSCOPE = r"^[a-z0-9][a-z0-9._-]*$", r"^[a-z0-9][a-z0-9._-]{0,63}(@[^@\s]+)?$"
_SHA256 = r"^([0-9a-f]{64})?$"
_SIGNS = "lower-case letters, digits, dots, dashes and underscores, with a letter or digit first"
_FORMS = {
    _NAME: f"a scope's name; use {_SIGNS}",
    _SUPERSCOPE: f"a superscope; write NAME or NAME@HOST:PORT, where NAME has {_SIGNS}",
    _SHA256: "a hash; write the 64 hexadecimal digits that `quillcast scope policy check` prints",
}
"""What texts have to be, in words instead of the regular expressions that they have to match."""

ScopeName = Annotated[str, Meta(pattern=_NAME, max_length=64)]
Superscope = Annotated[str, Meta(pattern=_SUPERSCOPE, max_length=320)]
"""A scope's name, and after an @ the address of the peer that runs its manager."""
Limit = Annotated[int, Meta(ge=1)]
ATTRIBUTES = ("common_name", "organization", "organizational_unit", "locality", "country")
"""The attributes of a certificate's subject that admission may ask for."""


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """The peers and scopes that are admitted as members: those that meet one of these conditions."""

    members: tuple[str, ...] = ()
    """NodeIds of peers in hexadecimal, and names of scopes."""
    join_line: bool = False
    """Those that show a join line of the scope."""
    certificate: dict[str, str] = {}
    """Those whose certificate has all these attributes."""


class Allowed(msgspec.Struct, frozen=True, kw_only=True):
    """Which members may do something in a topic: those that meet one of these conditions."""

    members: tuple[str, ...] | None = None
    """NodeIds of peers in hexadecimal, and names of scopes."""
    certificate: dict[str, str] = {}
    """Those whose certificate has all these attributes."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds for the whole scope."""

    members_max: Limit | None = None
    clients_max: Limit | None = None
    """Applications that use members as their peers (`quillcast.connect`)."""
    bytes_per_s: Limit | None = None
    bundles_per_s: Limit | None = None
    leaving_bytes_per_s: Limit | None = None
    leaving_bundles_per_s: Limit | None = None


class Channels(msgspec.Struct, frozen=True, kw_only=True):
    """How bundles cross the border of a scope that is a member of others."""

    entry_points: Annotated[int, Meta(ge=1, le=16)] = 1
    """Members through which bundles enter, each a share of them."""
    replicas: Annotated[int, Meta(ge=1, le=16)] = 1
    """Members that pass bundles on to other members of the superscope, each a share of them."""
    split: bool = False
    """Does another member lead to each entry point of a receiving scope?"""
    multicast: bool = False
    """Do senders reach all members at once, by multicast, in topics whose policy does that?"""


class ModuloTable(msgspec.Struct, frozen=True, kw_only=True):
    """See `filters.Modulo`."""

    n: Annotated[int, Meta(ge=1, le=SERIALS)]
    k: Annotated[tuple[Annotated[int, Meta(ge=0)], ...], Meta(min_length=1)]


class SampleTable(msgspec.Struct, frozen=True, kw_only=True):
    """See `filters.Sample`."""

    share: Annotated[float, Meta(ge=0, le=1)]
    salt: Annotated[str, Meta(max_length=64)] = ""


class CustomTable(msgspec.Struct, frozen=True, kw_only=True):
    """See `filters.Custom`."""

    name: filters.FilterName
    arguments: dict[filters.FilterName, filters.Value] = {}


class FilterTable(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"except_": "except"}):
    """A filter: one of these keys."""

    modulo: ModuloTable | None = None
    topics: tuple[str, ...] | None = None
    senders: tuple[str, ...] | None = None
    sample: SampleTable | None = None
    tagged: filters.Tag | None = None
    add_tag: filters.Tag | None = None
    custom: CustomTable | None = None
    every: "tuple[FilterTable, ...] | None" = None
    either: "tuple[FilterTable, ...] | None" = None
    except_: "FilterTable | None" = None

    def filter(self) -> Filter:
        """The filter that the table describes. Raises `ValueError`."""
        given = [(name, value) for name, value in msgspec.structs.asdict(self).items() if value is not None]
        if len(given) != 1:
            known = ", ".join(self.__struct_encode_fields__)
            raise ValueError(f"a filter has one key, and this has {len(given)}; choose one of {known}")
        return _filter(*given[0])


def _filter(name: str, value: Any) -> Filter:
    match name:
        case "modulo":
            return filters.Modulo(value.n, value.k)
        case "topics":
            return filters.Topics(tuple(map(topic_id, value)))
        case "senders":
            return filters.Senders(tuple(map(_node, value)))
        case "sample":
            return filters.Sample(value.share, value.salt)
        case "tagged":
            return filters.Tagged(value)
        case "add_tag":
            return filters.AddTag(value)
        case "custom":
            return filters.Custom(value.name, tuple(sorted(value.arguments.items())))
        case "every":
            return filters.Every(tuple(each.filter() for each in value))
        case "either":
            return filters.Either(tuple(each.filter() for each in value))
        case _:
            return filters.Except(value.filter())


class TopicRule(msgspec.Struct, frozen=True, kw_only=True):
    """The rule for topics of a pattern. The first rule that fits a topic decides."""

    pattern: Annotated[str, Meta(min_length=1, max_length=255)]
    root: bool = False
    """Is the scope the root scope of these topics?"""
    policy: str = "k_ary"
    parameters: dict[str, Any] = {}
    sha256: Annotated[str, Meta(pattern=_SHA256)] = ""
    """The hash of the policy's file."""
    recovery: Annotated[str, Meta(min_length=1, max_length=32)] = "tree"
    """How members repair among themselves what they miss."""
    filter: FilterTable | None = None
    """What decides per bundle whether it enters the scope."""
    bytes_per_s: Limit | None = None
    bundles_per_s: Limit | None = None
    leaving_bytes_per_s: Limit | None = None
    """How much leaves the scope, over channels to other members of a superscope and up the overlay's tree."""
    leaving_bundles_per_s: Limit | None = None
    clients: ClientRights = "both"
    """What applications may do that use members as their peers."""
    publishers: Allowed | None = None
    """Who may publish. None: all members."""
    subscribers: Allowed | None = None
    publishers_max: Limit | None = None
    subscribers_max: Limit | None = None


class ScopeFile(msgspec.Struct, frozen=True, kw_only=True):
    """A scope, as its file describes it."""

    name: ScopeName
    superscopes: tuple[Superscope, ...] = ()
    """The scopes that it is a member of, the preferred one first. None: it is a member of the overlay only."""
    admission: Admission
    operators: tuple[str, ...] = ()
    """The principals of credentials with which the running scope may be changed from other machines."""
    limits: Limits = Limits()
    channels: Channels = Channels()
    topics: tuple[TopicRule, ...] = (TopicRule(pattern="#"),)

    @property
    def above(self) -> tuple[str, ...]:
        """The names of its superscopes."""
        return tuple(name.partition("@")[0] for name in self.superscopes)

    def rule(self, topic: str) -> TopicRule | None:
        """The rule for a topic. None: the scope does not carry it."""
        return next((rule for rule in self.topics if patterns.covers(rule.pattern, topic)), None)


class Fault(NamedTuple):
    """An error in a file."""

    file: str
    line: int
    """0: it cannot be read, and the text names it."""
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}" if self.line else self.text


class ScopeFileWrong(LocalError):
    """A file has faults; the text has the first one, and their number."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        more = f" (and {len(faults) - 1} more: see quillcast scope check)" if len(faults) > 1 else ""
        super().__init__(f"{faults[0]}{more}")


class Described(NamedTuple):
    """A scope, and the text that describes it."""

    file: str
    scope: ScopeFile
    lines: Mapping[TomlPath, int]
    faults: tuple[Fault, ...] = ()
    wrong: frozenset[TomlPath] = frozenset()
    """The places of what the scope lacks because of a fault: it has defaults there."""

    def fault(self, place: TomlPath, text: str) -> Fault:
        """Note a fault at a place, or at the nearest place before it that has a line of its own."""
        return Fault(self.file, _line(self.lines, place), text)

    def sound(self, place: TomlPath) -> bool:
        """Is a place free of faults, with what is in it and around it, so that it can be checked further?"""
        return not any(place[: len(wrong)] == wrong[: len(place)] for wrong in self.wrong)


def parse(text: str, file: str) -> Described:
    """The scope that a TOML text describes; `file` names it in errors. Raises `ScopeFileWrong`."""
    described = examined(text, file)
    if described.faults:
        raise ScopeFileWrong(described.faults)
    return described


def examined(text: str, file: str) -> Described:
    """Like `parse`, but with all faults in the answer. Raises `ScopeFileWrong` only if the text is not valid TOML."""
    try:
        told = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        fault = Fault(file, int(line[1]) if line else text.count("\n") + 1, f"this is not valid TOML: {error}")
        raise ScopeFileWrong([fault]) from error
    reading = _Reading()
    scope = reading.struct(told, ScopeFile, ())
    described = Described(file, scope, lines_of(text), wrong=frozenset(reading.wrong))
    further = [fault for fault in _faults(scope) if described.sound(fault[0])]
    faults = [described.fault(place, why) for place, why in (*reading.faults, *further)]
    return described._replace(faults=tuple(sorted(faults, key=lambda fault: fault.line)))


def check_together(described: Sequence[Described]) -> list[Fault]:
    """Contradictions between files: names, memberships, and root scopes of topics."""
    return [*_same_names(described), *_cycles(described), *_two_roots(described)]


# What is wrong within one file

_TABLES: Mapping[type, Mapping[str, type]] = {
    ScopeFile: {"admission": Admission, "limits": Limits, "channels": Channels, "topics": TopicRule},
    TopicRule: {"filter": FilterTable, "publishers": Allowed, "subscribers": Allowed},
    FilterTable: {
        "modulo": ModuloTable,
        "sample": SampleTable,
        "custom": CustomTable,
        **dict.fromkeys(("every", "either", "except"), FilterTable),
    },
}


_LISTS = ("topics", "every", "either")
"""The keys of lists of such tables."""
_STAND_INS: Mapping[str, Any] = {"name": "", "admission": Admission(), "pattern": ""}
"""Keys without a default: what stands for them if they are missing or wrong, so that the rest can be checked."""


class _Reading:
    """Converts tables to structs, with defaults in place of wrong values, and notes all faults."""

    def __init__(self) -> None:
        self.faults: list[tuple[TomlPath, str]] = []
        self.wrong: dict[TomlPath, None] = {}

    def struct(self, told: Mapping[str, Any], kind: type[msgspec.Struct], place: TomlPath) -> Any:
        """None: it lacks something that has no default."""
        fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
        values = dict[str, Any]()
        for key, value in told.items():
            if key not in fields:
                self._unknown((*place, key), fields)
            elif (read := self._value(value, kind, fields[key], (*place, key))) is not None:
                values[fields[key].name] = read
        for key in (key for key, field in fields.items() if field.required and field.name not in values):
            if (*place, key) not in self.wrong:
                self.faults.append((place, _at(place, f"missing required field {key}")))
                self.wrong[(*place, key)] = None
            if key not in _STAND_INS:
                return None
            values[key] = _STAND_INS[key]
        return kind(**values)

    def _value(self, value: Any, kind: type[msgspec.Struct], field: msgspec.structs.FieldInfo, place: TomlPath) -> Any:
        """None: it is wrong."""
        inner = _TABLES.get(kind, {}).get(field.encode_name)
        if inner is not None and isinstance(value, list) and field.encode_name in _LISTS:
            read = [self._table(each, inner, (*place, at)) for at, each in enumerate(value)]
            return tuple(each for each in read if each is not None)
        if inner is not None and field.encode_name not in _LISTS:
            return self._table(value, inner, place)
        return self._converted(value, field.type, place)

    def _table(self, value: Any, kind: type[msgspec.Struct], place: TomlPath) -> Any:
        return self.struct(value, kind, place) if isinstance(value, dict) else self._converted(value, kind, place)

    def _converted(self, value: Any, kind: Any, place: TomlPath) -> Any:
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            where = (*place, *_place(str(error)))
            choices = f"one of {', '.join(get_args(kind))}" if get_origin(kind) is Literal else ""
            wanted = choices or next((form for pattern, form in _FORMS.items() if repr(pattern) in str(error)), "")
            text = _at(where, f"{_inside(value, _place(str(error)))!r} is not {wanted}")
            self.faults.append((where, text if wanted else reworded(error, _named(place))))
            self.wrong[where] = None
            return None

    def _unknown(self, place: TomlPath, known: Mapping[str, Any]) -> None:
        *table, key = place
        near = get_close_matches(str(key), known, 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        self.faults.append((place, f"unknown key {key}{hint}; there are: {', '.join(known)}"))
        self.wrong.update(((*table, each), None) for each in (key, *near))


def _faults(scope: ScopeFile) -> Iterator[tuple[TomlPath, str]]:
    yield from _admission_faults(scope.admission)
    yield from _operator_faults(scope.operators)
    if scope.channels.multicast:
        yield from ((("channels", "multicast"), text) for text in _multicast_faults(scope))
    for at, name in enumerate(scope.above):
        if name in scope.above[:at]:
            yield ("superscopes",), f"superscope {name} is named twice; remove one"
    for at, rule in enumerate(scope.topics):
        place = ("topics", at)
        try:
            patterns.check(rule.pattern)
        except LocalError as error:
            yield (*place, "pattern"), str(error)
        for before in scope.topics[:at]:
            if patterns.covers(before.pattern, rule.pattern):
                text = f"no topic gets here: the rule for {before.pattern} above decides for {rule.pattern}"
                yield (*place, "pattern"), f"{text}; move this rule before that one, or remove it"
        yield from (((*place, key), text) for key, text in _border_faults(rule))
        for key, doing in (("publishers", "publish"), ("subscribers", "subscribe")):
            yield from _allowed_faults((*place, key), getattr(rule, key), f"{doing} in topics of {rule.pattern}")
        if rule.sha256 and not rule.policy.partition(":")[0].endswith(".py"):
            yield (*place, "sha256"), f"policy {rule.policy} is not in a file; remove sha256, or name FILE.py:Class"
        if rule.filter is not None:
            try:
                rule.filter.filter()
            except ValueError as error:
                yield (*place, "filter"), str(error)


def _border_faults(rule: TopicRule) -> Iterator[tuple[str, str]]:
    """Faults of a rule on bundles that enter or leave, where none do."""
    entering = ("filter", "bytes_per_s", "bundles_per_s") if rule.root else ()
    for key in (key for key in entering if getattr(rule, key) is not None):
        text = f"topics of {rule.pattern} are rooted at the scope, so nothing enters and {key} has no effect"
        yield key, f"{text}: remove it, or set root = false"
    leaving = ("leaving_bytes_per_s", "leaving_bundles_per_s") if rule.root else ()
    for key in (key for key in leaving if getattr(rule, key) is not None):
        text = f"topics of {rule.pattern} are rooted at the scope, so nothing leaves and {key} has no effect"
        yield key, f"{text}: remove it, or set root = false"


def _multicast_faults(scope: ScopeFile) -> Iterator[str]:
    if scope.channels.entry_points > 1:
        yield "by multicast, bundles enter at all members at once: remove entry_points, or set multicast = false"
    if all(rule.policy in BUILT_IN and not hasattr(BUILT_IN[rule.policy], "mechanism") for rule in scope.topics):
        yield 'no rule has a policy that uses multicast: write policy = "ip_multicast" in one, or set multicast = false'


def _admission_faults(admission: Admission) -> Iterator[tuple[TomlPath, str]]:
    if not (admission.members or admission.join_line or admission.certificate):
        yield ("admission",), "nobody can be admitted; give members, join_line = true, or a certificate's attributes"
    yield from _party_faults(("admission",), admission.members, admission.certificate)


def _operator_faults(operators: Sequence[str]) -> Iterator[tuple[TomlPath, str]]:
    for who in operators:
        if not is_principal(who):
            yield ("operators",), f"operator {who!r} is not a principal; `quillcast credentials show FILE` prints it"


def _allowed_faults(place: TomlPath, allowed: Allowed | None, doing: str) -> Iterator[tuple[TomlPath, str]]:
    if allowed is None:
        return
    if allowed.members is None and not allowed.certificate:
        yield place, f"this does not say who may {doing}: give members, or a certificate's attributes; [] is nobody"
    yield from _party_faults(place, allowed.members or (), allowed.certificate)


def _party_faults(
    place: TomlPath, members: Sequence[str], certificate: Mapping[str, str]
) -> Iterator[tuple[TomlPath, str]]:
    for member in members:
        if not re.fullmatch(rf"[0-9a-f]{{{2 * ID_BYTES}}}|[a-z0-9][a-z0-9._-]{{0,63}}", member) or (
            re.fullmatch(r"[0-9a-f]{17,}", member) and len(member) != 2 * ID_BYTES
        ):
            yield (
                (*place, "members"),
                f"member {member!r} is neither a nodeId of {2 * ID_BYTES} hexadecimal digits nor the name of a scope",
            )
    for name in certificate:
        if name not in ATTRIBUTES:
            near = get_close_matches(name, ATTRIBUTES, 1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            text = f"certificates have no attribute {name}{hint}; there are: {', '.join(ATTRIBUTES)}"
            yield (*place, "certificate", name), text


def _node(text: str) -> bytes:
    if not re.fullmatch(rf"[0-9a-f]{{{2 * ID_BYTES}}}", text):
        raise ValueError(f"sender {text!r} is not a nodeId; give its {2 * ID_BYTES} hexadecimal digits")
    return bytes.fromhex(text)


# What is wrong between files


def _same_names(described: Sequence[Described]) -> Iterator[Fault]:
    first: dict[str, Described] = {}
    for each in described:
        other = first.setdefault(each.scope.name, each)
        if other is not each:
            yield each.fault(("name",), f"{other.file} describes a scope {each.scope.name} too; rename one of them")


def _cycles(described: Sequence[Described]) -> Iterator[Fault]:
    by_name = {each.scope.name: each for each in described}
    told = set[str]()
    for each in described:
        way = _way_back(each.scope.name, by_name)
        if way and told.isdisjoint(way):
            told.update(way)
            circle = " in ".join([*way, way[0]])
            text = f"scope {each.scope.name} would be a member of itself ({circle}); remove one of these superscopes"
            yield each.fault(("superscopes",), text)


def _way_back(start: str, by_name: Mapping[str, Described]) -> list[str]:
    """The shortest path from a scope through superscopes back to it; empty if there is none."""
    ways, seen = [[start]], set[str]()
    for way in ways:
        above = by_name[way[-1]].scope.above if way[-1] in by_name else ()
        for name in above:
            if name == start:
                return way
            if name not in seen:
                seen.add(name)
                ways.append([*way, name])
    return []


def _two_roots(described: Sequence[Described]) -> Iterator[Fault]:
    roots = [(each, at, rule) for each in described for at, rule in enumerate(each.scope.topics) if rule.root]
    for number, (each, at, rule) in enumerate(roots):
        for other, there, theirs in roots[:number]:
            if other.scope.name != each.scope.name and patterns.overlap(rule.pattern, theirs.pattern):
                where = f"{other.file}:{_line(other.lines, ('topics', there, 'pattern'))}"
                text = f"topics of {rule.pattern} would have two root scopes, {each.scope.name} and {other.scope.name}"
                yield each.fault(("topics", at, "root"), f"{text} ({where}: {theirs.pattern}); set root = false in one")


# Where things are


def lines_of(text: str) -> dict[TomlPath, int]:
    """The line of each table and key. Keys of inline tables have none."""
    lines: dict[TomlPath, int] = {(): 1}
    table: TomlPath = ()
    counts: dict[TomlPath, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]", line):
            table = tuple(_key_parts(header[2]))
            if header[1] == "[[":
                counts[table] = counts.get(table, -1) + 1
                table = (*table, counts[table])
            elif table[:-1] in counts:
                table = (*table[:-1], counts[table[:-1]], table[-1])
            lines.setdefault(table, number)
        elif key := re.match(r"\s*([\w.\"'-]+(?:\s*\.\s*[\w\"'-]+)*)\s*=", line):
            place = table
            for part in _key_parts(key[1]):
                place = (*place, part)
                lines.setdefault(place, number)
    return lines


def _key_parts(key: str) -> list[str]:
    return [part.strip().strip("\"'") for part in key.split(".")]


def _line(lines: Mapping[TomlPath, int], place: TomlPath) -> int:
    """The line of a place, or of the nearest one around it."""
    return lines[next(place[:length] for length in range(len(place), -1, -1) if place[:length] in lines)]


def _named(place: TomlPath) -> str:
    """As errors of msgspec name it: `topics[0].policy`."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in place).removeprefix(".")


def _at(place: TomlPath, text: str) -> str:
    return f"{_named(place)}: {text}" if place else text


def _inside(value: Any, place: TomlPath) -> Any:
    for key in place:
        value = value[key]
    return value


def _place(error: str) -> TomlPath:
    """The place that an error of msgspec names: it ends in "- at `$.topics[0].policy`"."""
    _, _, where = error.partition(" - at `$")
    found = re.findall(r"\.(\w+)|\[(\d+)\]", where)
    return tuple(name or int(index) for name, index in found)
