"""Scope files on disk: read, checked with the policies and filters of this machine, and explained in sentences."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from quillcast.core.errors import LocalError
from quillcast.core.status.base import Status
from quillcast.files import SCOPE_BYTES_MAX, read_text
from quillcast.live.scopes.confined import ConfinedPolicy
from quillcast.live.scopes.plugins import PolicyUnavailable, check_recovery, opened, unknown_filters
from quillcast.protocol.scopes import config
from quillcast.protocol.scopes.config import (
    Admission,
    Described,
    Fault,
    FilterTable,
    ScopeFile,
    ScopeFileWrong,
    TopicRule,
)
from quillcast.protocol.scopes.filters import stops
from quillcast.protocol.scopes.policies import first_line
from quillcast.protocol.scopes.policy import Delivery, PolicyStopped

_PROMISES: Mapping[Delivery, str] = {
    "tree": "Each receiver gets one copy of each bundle.",
    "redundant": "Each receiver gets at least one copy of each bundle; further copies are dropped.",
    "lossy": "Some receivers miss some bundles at first, and fetch them.",
}
_REPAIRS: Mapping[str, str] = {
    "tree": "",
    "gossip": "A member that misses something asks other members at random.",
    "ring": "A token travels from member to member and collects who has what others miss.",
    "srm": "A member that misses something asks all others at once, unless another member has just asked for the same.",
}


class Known(NamedTuple):
    """A policy's class, and its description of itself."""

    delivery: Delivery
    about: str


class Checked(NamedTuple):
    """A checked file. `described` is None if it could not be read."""

    file: str
    described: Described | None
    faults: list[Fault]
    sentences: list[str]

    def report(self) -> "ScopeFileChecked":
        """What `scope check` reports in JSON."""
        scope = None if self.described is None or self.described.faults else self.described.scope
        errors = tuple([ScopeFileError(*fault) for fault in self.faults])
        return ScopeFileChecked(self.file, scope, tuple(self.sentences), errors)


class ScopeFileError(Status, frozen=True):
    """An error in a scope file."""

    file: str
    line: int
    text: str


class ScopeFileChecked(Status, frozen=True):
    """A checked scope file."""

    file: str
    scope: ScopeFile | None
    """The file's content; None if it has errors."""
    sentences: tuple[str, ...]
    errors: tuple[ScopeFileError, ...]


def check(files: Sequence[Path]) -> list[Checked]:
    """Check files, each one alone and all of them together."""
    checked = [_check_one(file) for file in files]
    described = [each.described for each in checked if each.described is not None]
    for fault in config.check_together([each for each in described if each.sound(("name",))]):
        next(each for each in checked if each.file == fault.file).faults.append(fault)
    return checked


def read(file: Path) -> Described:
    """Read the scope that a file describes. Raises `ScopeFileWrong`, and `LocalError` if it cannot be read."""
    return config.parse(_text(file), str(file))


def _text(file: Path) -> str:
    try:
        return read_text(file, SCOPE_BYTES_MAX)
    except UnicodeDecodeError:
        raise LocalError(f"{file} is not text in UTF-8; convert it") from None
    except OSError as error:
        raise LocalError(f"cannot read the scope file {file}: {error.strerror}") from None


def _check_one(file: Path) -> Checked:
    try:
        described = config.examined(_text(file), str(file))
    except ScopeFileWrong as wrong:
        return Checked(str(file), None, list(wrong.faults), [])
    except LocalError as error:
        return Checked(str(file), None, [Fault(str(file), 0, str(error))], [])
    faults, known = [*described.faults], list[Known | None]()
    for at, rule in enumerate(described.scope.topics):
        if all(described.sound(("topics", at, key)) for key in ("policy", "parameters", "sha256")):
            known.append(_known(described, at, rule, faults))
        if described.sound(place := ("topics", at, "recovery")):
            faults += [described.fault(place, text) for text in _unknown_recovery(rule.recovery)]
        if described.sound(place := ("topics", at, "filter")):
            faults += [described.fault(place, text) for text in unknown_filters(rule.filter)]
    faults.sort(key=lambda fault: fault.line)
    return Checked(str(file), described, faults, [] if faults else [*explained(described, known)])


def _known(described: Described, at: int, rule: TopicRule, faults: list[Fault]) -> Known | None:
    """Make the policy of a rule, as the scope's manager would. Errors are added to `faults`."""
    folder = Path(described.file).parent
    key = "policy"
    try:
        policy = opened(rule.policy, rule.parameters, sha256=rule.sha256, folder=folder)
    except PolicyUnavailable as error:
        text = str(error)
        key = "sha256" if rule.sha256 and "SHA-256" in text else "policy"
    except PolicyStopped as error:
        text = str(error)
    except LocalError as error:
        text, key = str(error), "parameters"
    else:
        if not isinstance(policy, ConfinedPolicy):
            return Known(policy.delivery, first_line(policy))
        with policy:
            return Known(policy.delivery, policy.about)
    faults.append(described.fault(("topics", at, key), text))
    return None


def _unknown_recovery(name: str) -> Iterator[str]:
    try:
        check_recovery(name)
    except LocalError as error:
        yield str(error)


# In sentences


def explained(described: Described, policies: Sequence[Known | None]) -> Iterator[str]:
    """Describe what the scope will do. `policies` are those of the rules."""
    scope = described.scope
    yield from _whole(scope)
    for rule, policy in zip(scope.topics, policies, strict=True):
        yield " ".join(_rule_sentences(scope.name, rule, policy))
    if not any(rule.pattern == "#" for rule in scope.topics):
        yield "The scope does not handle other topics."


def changed(former: config.ScopeFile, scope: config.ScopeFile) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Describe in sentences what a former file says and this one does not, and the other way round."""
    old, new = dict.fromkeys(_stated(former)), dict.fromkeys(_stated(scope))
    if former != scope and old == new:
        return (), ("The file differs in details that these sentences do not mention.",)
    return tuple(each for each in old if each not in new), tuple(each for each in new if each not in old)


def _stated(scope: config.ScopeFile) -> Iterator[str]:
    """Describe a scope in sentences that each stand for themselves."""
    yield from _whole(scope)
    for rule in scope.topics:
        for sentence in _rule_sentences(scope.name, rule, None):
            yield f"{rule.pattern}: {sentence}"
        if rule.sha256:
            yield f"{rule.pattern}: The policy's file has the SHA-256 {rule.sha256}."
    yield f"The first of these rules that matches a topic decides: {', '.join(rule.pattern for rule in scope.topics)}."


def _whole(scope: config.ScopeFile) -> Iterator[str]:
    """Describe a scope without its rules."""
    above = _listed(scope.above, "and")
    where = f"is a member of {above}" if above else "has no superscope: its members reach others through the overlay"
    yield f"Scope {scope.name} {where}."
    if len(scope.above) > 1:
        first = f"with {scope.above[0]} if that leads to the topic's root scope"
        yield f"For each topic it registers with one of them, {first}."
    for name, _, address in (each.partition("?")[0].partition("@") for each in scope.superscopes if "@" in each):
        yield f"The manager of {name} is asked at {address}."
    yield from _border(scope)
    yield from about_all(scope)


_NOT_TO_ROOTS = ", without what publishers send to the roots of topics"


def about_all(scope: config.ScopeFile) -> Iterator[str]:
    """Describe who is admitted, and the limits of the whole scope."""
    yield f"A peer or scope is admitted as a member if it {_listed(_ways_in(scope.admission), 'or')}."
    if scope.operators:
        yield f"Operators who change it from other machines have the credentials {_listed(scope.operators, 'or')}."
    if scope.limits.members_max is not None:
        yield f"The scope has at most {_count(scope.limits.members_max, 'member')}."
    if scope.limits.clients_max is not None:
        yield f"At most {_count(scope.limits.clients_max, 'client')} use members as their peers; others are refused."
    if rates := list(_rates(scope.limits.bytes_per_s, scope.limits.bundles_per_s)):
        yield f"At most {_listed(rates, 'and')} enter the scope in total; above that, senders wait."
    if rates := list(_rates(scope.limits.leaving_bytes_per_s, scope.limits.leaving_bundles_per_s)):
        yield f"At most {_listed(rates, 'and')} leave the scope in total{_NOT_TO_ROOTS}."


def _border(scope: config.ScopeFile) -> Iterator[str]:
    channels, usual = scope.channels, config.Channels()
    if not scope.above:
        idle = [f"`{key}`" for key in channels.__struct_fields__ if getattr(channels, key) != getattr(usual, key)]
        if idle:
            verb = "has" if len(idle) == 1 else "have"
            yield f"{_listed(idle, 'and')} {verb} an effect only in a superscope: name one in `superscopes`."
        return
    if channels.entry_points > 1:
        yield f"Bundles from other members of a superscope enter by {channels.entry_points} members in equal shares."
    if channels.replicas > 1:
        yield f"{channels.replicas} members pass bundles on to other members of a superscope in equal shares."
    if channels.multicast:
        yield (
            "Where a policy uses multicast, other members of a superscope send each bundle to all members at once, and "
            "to the entry point."
        )
    if channels.split:
        yield "If another scope has several entry points, a different member sends to each of them."


def _ways_in(admission: Admission) -> Iterator[str]:
    if admission.members:
        yield f"is {_listed(admission.members, 'or')}"
    if admission.join_line:
        yield "shows a join line of the scope"
    if admission.certificate:
        yield f"has a certificate with {_attributes(admission.certificate)}"


def _ways_of(members: Sequence[str], certificate: Mapping[str, str]) -> Iterator[str]:
    if members:
        yield f"are {_listed(members, 'or')}"
    if certificate:
        yield f"have a certificate with {_attributes(certificate)}"


def _attributes(certificate: Mapping[str, str]) -> str:
    return _listed([f"{name} = {value}" for name, value in certificate.items()], "and")


def _rule_sentences(scope: str, rule: TopicRule, policy: Known | None) -> Iterator[str]:
    topics = _topics_of(rule.pattern)
    with_ = _listed([f"{name} = {_shown(value)}" for name, value in rule.parameters.items()], "and")
    yield f"{topics} use policy {rule.policy}{f' with {with_}' if with_ else ''}."
    if policy is not None:
        yield from (text for text in (policy.about, _PROMISES[policy.delivery]) if text)
    installed = f"Members repair by the protocol {rule.recovery}, if a package with it is installed there."
    if sentence := _REPAIRS.get(rule.recovery, installed):
        yield sentence
    if rule.root:
        yield f"{scope} is their root scope: members number the events, which do not leave it."
    yield from allowed(rule)
    yield from let_in(rule)


def allowed(rule: TopicRule) -> Iterator[str]:
    """Describe which members may publish and subscribe; nothing if all may."""
    for verb, who in (("publish", rule.publishers), ("subscribe", rule.subscribers)):
        if who is not None:
            ways = [*_ways_of(who.members or (), who.certificate)]
            condition = f"Members {verb} only if they {_listed(ways, 'or')}" if ways else f"No member may {verb}"
            yield f"{condition}; registrations of other members are refused." if ways else f"{condition}."


def let_in(rule: TopicRule) -> Iterator[str]:
    """Describe what the rule lets into the scope and out of it."""
    if rule.filter is not None:
        if condition := _condition(rule.filter):
            yield f"A bundle enters only if {condition}."
        if tags := dict.fromkeys(_tags(rule.filter)):
            yield f"The filter tags bundles {_listed(tags, 'and')}."
        if stops(rule.filter.filter()):
            yield (
                "Only best-effort topics are carried: the filter would stop events that subscribers of a reliable "
                "topic must get."
            )
    if rates := list(_rates(rule.bytes_per_s, rule.bundles_per_s)):
        yield f"At most {_listed(rates, 'and')} enter per topic; above that, senders wait."
    if rates := list(_rates(rule.leaving_bytes_per_s, rule.leaving_bundles_per_s)):
        yield f"At most {_listed(rates, 'and')} leave per topic{_NOT_TO_ROOTS}."
    if rule.clients != "both":
        may = "neither publish nor subscribe" if rule.clients == "none" else f"only {rule.clients}"
        yield f"Clients of members may {may}."
    people = [
        _count(most, what)
        for most, what in ((rule.publishers_max, "publisher"), (rule.subscribers_max, "subscriber"))
        if most is not None
    ]
    if people:
        yield f"A topic has at most {_listed(people, 'and')} here; further ones wait until one ends."


def _topics_of(pattern: str) -> str:
    if pattern == "#":
        return "All topics"
    return f"Topics that match {pattern}" if "+" in pattern or "#" in pattern else f"Events of topic {pattern}"


def _tags(table: FilterTable) -> Iterator[str]:
    """The tags that the filter may note."""
    if table.add_tag is not None:
        yield table.add_tag
    for each in (*(table.every or ()), *(table.either or ())):
        yield from _tags(each)


def _condition(table: FilterTable) -> str:
    """The condition for a bundle to enter; empty if there is none."""
    match table:
        case FilterTable(modulo=modulo) if modulo is not None:
            return f"its serial modulo {modulo.n} is {_listed(map(str, modulo.k), 'or')}"
        case FilterTable(topics=topics) if topics is not None:
            return f"its topic is {_listed(topics, 'or')}"
        case FilterTable(senders=senders) if senders is not None:
            return f"its sender is {_listed(senders, 'or')}"
        case FilterTable(sample=sample) if sample is not None:
            return f"it is in a sample of {100 * sample.share:g} %"
        case FilterTable(tagged=str(tag)):
            return f"it has the tag {tag}"
        case FilterTable(custom=custom) if custom is not None:
            return f"filter {custom.name} of an installed package lets it through"
        case FilterTable(every=every) if every is not None:
            return _listed(filter(None, map(_condition, every)), "and")
        case FilterTable(either=either) if either is not None:
            conditions = list(map(_condition, either))
            return f"one of these holds: {'; '.join(conditions)}" if all(conditions) else ""
        case FilterTable(except_=inner) if inner is not None:
            return f"this does not hold: {_condition(inner) or 'it is a bundle'}"
        case _:
            return ""


def _rates(bytes_per_s: int | None, bundles_per_s: int | None) -> Iterator[str]:
    if bytes_per_s is not None:
        yield f"{bytes_per_s:,} bytes a second"
    if bundles_per_s is not None:
        yield f"{bundles_per_s:,} bundles a second"


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _count(many: int, what: str) -> str:
    return f"{many:,} {what}{'' if many == 1 else 's'}"


def _listed(texts: Any, word: str) -> str:
    """a; a or b; a, b or c."""
    *before, last = [*texts] or [""]
    return f"{', '.join(before)} {word} {last}" if before else last
