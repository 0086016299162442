"""The policies of a scope's topics while its manager runs: those of its file, and those set later.

Rules that were set take precedence over those of the file, the latest first, until they are unset. They change how
topics are forwarded, but not which topics the scope carries.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from quillcast.core.errors import LocalError
from quillcast.live.scopes.beside import PolicyBeside
from quillcast.live.scopes.confined import ConfinedPolicy
from quillcast.live.scopes.plugins import check_recovery, opened, unknown_filters
from quillcast.live.scopes.socketline import Surroundings
from quillcast.protocol.scopes import patterns
from quillcast.protocol.scopes.channels import Party
from quillcast.protocol.scopes.config import Described, ScopeFileWrong, TopicRule
from quillcast.protocol.scopes.messages import ClientRights
from quillcast.protocol.scopes.policy import ScopePolicy
from quillcast.protocol.scopes.rights import why_not
from quillcast.protocol.scopes.state import Entering, MayLeave
from quillcast.protocol.scopes.uses import Doing


class OpenRule(NamedTuple):
    """A rule, and its policy."""

    rule: TopicRule
    policy: ScopePolicy
    beside: PolicyBeside | None
    """The same, if it runs in its own process."""


class Rules:
    """The rules of one scope. Close them, because policies may be processes."""

    def __init__(self, described: Described, tell: Callable[[str], object]) -> None:
        """Open the policies of a file; `tell` gets the reason if one is stopped.

        Raises `ScopeFileWrong` for a policy that nobody offers, or a parameter that it does not accept.
        """
        self._described, self._tell = described, tell
        self._file = list[OpenRule]()
        self._set = list[OpenRule]()
        self._dropped = list[OpenRule]()  # a change in progress may still ask them
        self._served: tuple[Surroundings, Callable[[bytes], object]] | None = None
        try:
            for at, rule in enumerate(described.scope.topics):
                self._file.append(self._of_file(at, rule))
        except LocalError:
            self.close()
            raise

    def serve(self, surroundings: Surroundings, answered: Callable[[bytes], object]) -> None:
        """A manager uses the policies from now on (`PolicyBeside.serve`)."""
        self._served = surroundings, answered
        for each in (*self._file, *self._set):
            self._begin(each)

    def policy(self, topic: str) -> ScopePolicy | None:
        """The policy of a topic; None if the scope does not carry it."""
        found = self._found(topic)
        return None if found is None else found.policy

    def rule(self, topic: str) -> TopicRule | None:
        """The rule that applies to a topic."""
        found = self._found(topic)
        return None if found is None else found.rule

    def entering(self, topic: str) -> Entering:
        """What the file lets into the scope for a topic."""
        found = _first(self._file, topic)
        if found is None:
            return Entering()
        rule = found.rule
        filter_ = rule.filter.filter() if rule.filter is not None else None
        return Entering(filter_, rule.bytes_per_s or 0, rule.bundles_per_s or 0, rule.subscribers_max or 0,
                        rule.publishers_max or 0)  # fmt: skip

    def leaving(self, topic: str) -> MayLeave:
        """What the file lets out of the scope for a topic."""
        found = _first(self._file, topic)
        if found is None:
            return MayLeave()
        return MayLeave(found.rule.leaving_bytes_per_s or 0, found.rule.leaving_bundles_per_s or 0)

    def recovery(self, topic: str) -> str:
        """How members repair a topic, according to the file."""
        found = _first(self._file, topic)
        return found.rule.recovery if found is not None else "tree"

    def clients(self, topic: str) -> ClientRights:
        """What clients may do in a topic, according to the file."""
        found = _first(self._file, topic)
        return found.rule.clients if found is not None else "both"

    def rights(self, party: Party, attributes: Mapping[str, str], topic: str, doing: Doing) -> str:
        """Why the file does not allow a member to do this in a topic; empty if it does."""
        found = _first(self._file, topic)
        name = self._described.scope.name
        return why_not(found.rule, name, party, attributes, topic, doing) if found is not None else ""

    @property
    def of_file(self) -> tuple[TopicRule, ...]:
        """The rules of the file, in order."""
        return tuple(each.rule for each in self._file)

    @property
    def settings(self) -> tuple[TopicRule, ...]:
        """The rules that were set, latest first."""
        return tuple(each.rule for each in self._set)

    def opened(self, rule: TopicRule) -> OpenRule:
        """Open a rule to set, with its policy; this may start a process. Raises `LocalError`."""
        patterns.check(rule.pattern)
        if not any(patterns.overlap(each.pattern, rule.pattern) for each in self.of_file):
            carried = ", ".join(each.pattern for each in self.of_file)
            raise LocalError(
                f"no rule of scope {self._described.scope.name} matches {rule.pattern}; there are rules for: {carried}"
            )
        return self._opened(rule)

    def set(self, opened: OpenRule) -> None:
        """Apply this rule from now on, in place of an earlier one for the same pattern."""
        self._drop(opened.rule.pattern)
        self._set.insert(0, opened)
        self._begin(opened)

    def unset(self, pattern: str) -> None:
        """Return to the file's rule. Raises `LocalError` if none was set for the pattern."""
        if not self._drop(pattern):
            known = ", ".join(each.pattern for each in self.settings)
            others = f"; there are policies set for: {known}" if known else ""
            raise LocalError(f"no policy is set for {pattern}{others}")

    def restore(self, settings: Iterable[TopicRule]) -> list[str]:
        """Set the rules from before a restart; this may start processes.

        A rule whose policy no longer exists is omitted, and the other rules apply. Returns a line with the reason for
        each.
        """
        problems = list[str]()
        for rule in reversed(tuple(settings)):
            try:
                self.set(self.opened(rule))
            except LocalError as problem:
                name = self._described.scope.name
                problems.append(f"scope {name}: the policy set for {rule.pattern} is left out: {problem}")
        return problems

    def succeed(self, former: "Rules") -> None:
        """Take the place of other rules, and close them with these.

        What was set stays set. Policies of the file that are the same as before stay in their processes.
        """
        self._set, self._served = former._set, former._served
        for at, rule in enumerate(self._file):
            same = next((each for each in former._file if _is_same(each, rule)), None)
            if same is not None and rule.beside is not None:
                rule.beside.close()
                self._file[at] = same._replace(rule=rule.rule)
            else:
                self._begin(rule)
        kept = [each.beside for each in self._file]
        self._dropped = [*former._dropped, *(each for each in former._file if each.beside not in kept)]

    def close(self) -> None:
        """End the processes of policies."""
        for each in (*self._file, *self._set, *self._dropped):
            if each.beside is not None:
                each.beside.close()

    def _begin(self, rule: OpenRule) -> None:
        if self._served is not None and rule.beside is not None:
            rule.beside.serve(*self._served)

    def _found(self, topic: str) -> OpenRule | None:
        by_file = _first(self._file, topic)
        return by_file and (_first(self._set, topic) or by_file)

    def _drop(self, pattern: str) -> bool:
        dropped = [each for each in self._set if each.rule.pattern == pattern]
        self._set = [each for each in self._set if each.rule.pattern != pattern]
        self._dropped += dropped
        return bool(dropped)

    def _of_file(self, at: int, rule: TopicRule) -> OpenRule:
        if unknown := next(unknown_filters(rule.filter), ""):
            raise ScopeFileWrong([self._described.fault(("topics", at, "filter"), unknown)])
        key = "recovery"
        try:
            check_recovery(rule.recovery)
            key = "policy"
            return self._opened(rule)
        except LocalError as problem:
            raise ScopeFileWrong([self._described.fault(("topics", at, key), str(problem))]) from problem

    def _opened(self, rule: TopicRule) -> OpenRule:
        folder = Path(self._described.file).parent
        policy = opened(rule.policy, rule.parameters, sha256=rule.sha256, folder=folder)
        if not isinstance(policy, ConfinedPolicy):
            return OpenRule(rule, policy, None)
        beside = PolicyBeside(policy, self._tell, f"{rule.policy} {rule.parameters} {rule.sha256}")
        return OpenRule(rule, beside, beside)


def _is_same(former: OpenRule, rule: OpenRule) -> bool:
    """Whether both have the same policy of another package, and it still runs."""
    beside = former.beside
    return beside is not None and not beside.is_stopped and repr(beside) == repr(rule.beside)


def _first(rules: Iterable[OpenRule], topic: str) -> OpenRule | None:
    return next((each for each in rules if patterns.covers(each.rule.pattern, topic)), None)
