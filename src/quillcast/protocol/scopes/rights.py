"""What members may register for: the manager refuses everything to which the scope's file gives them no right.

A refused role does not count: it is in no composition, no bound and no registration with a superscope, so that nobody
else notices it. The member's assignment says so, and its applications get the error.
"""

from collections.abc import Iterator, Mapping

import msgspec

from quillcast.core.ids import topic_id
from quillcast.protocol.scopes.channels import Party
from quillcast.protocol.scopes.config import TopicRule
from quillcast.protocol.scopes.messages import Role
from quillcast.protocol.scopes.state import Member, ScopeConfig
from quillcast.protocol.scopes.uses import Doing

TOLD_MAX = 64  # refusals of one member that the operator is told about; a guess
_DOING: Mapping[Doing, tuple[str, str]] = {
    "publishes": ("publish", "publishers"), "subscribes": ("subscribe", "subscribers")
}  # fmt: skip


def why_not(rule: TopicRule, scope: str, party: Party, attributes: Mapping[str, str], topic: str, doing: Doing) -> str:
    """Why a member may not do this in a topic of the rule, in a sentence with the remedy; empty if it may."""
    verb, key = _DOING[doing]
    allowed = getattr(rule, key)
    if allowed is None:
        return ""
    name, wanted = party.name if party.managed else party.id.hex(), allowed.certificate
    if name in (allowed.members or ()) or (wanted and all(attributes.get(each) == wanted[each] for each in wanted)):
        return ""
    told = " and ".join(f"{each} = {value}" for each, value in wanted.items())
    certified = f"; or have it join the network with a certificate that has {told}" if wanted else ""
    return (
        f"scope {scope} does not let member {name} {verb} in topic {topic}: add it to {key} in the rule for "
        f"{rule.pattern} in the scope's file, and run: quillcast scope reload {scope}{certified}"
    )


class Entitlements:
    """Divides members' requests into what they may do and what they may not."""

    def __init__(self, config: ScopeConfig) -> None:
        self.config = config
        self.told: dict[bytes, dict[str, None]] = {}  # by member: the reasons for refusals, the latest last

    def follow(self, config: ScopeConfig) -> None:
        """The scope's file says something else now. What it still refuses is reported again."""
        self.config = config
        self.told = {}

    def judge(self, member: Member, asked: Mapping[bytes, Role]) -> tuple[bytes, ...]:
        """Give a member the roles that it may have: the topics in which its roles or refusals change."""
        roles, refused = dict[bytes, Role](), dict[bytes, Role]()
        for topic, role in asked.items():
            denied = dict(self.refusals(member, role))
            if denied:
                refused[topic] = role
            left = _without(role, denied)
            forwards_on = member.party.managed and not role.takes_part and topic in member.roles
            if left.takes_part or forwards_on:
                roles[topic] = left
        old = member.roles, member.refused
        member.set_roles(roles, refused)
        topics = dict.fromkeys([*old[0], *old[1], *asked])
        return tuple(
            topic for topic in topics
            if (old[0].get(topic), old[1].get(topic)) != (roles.get(topic), refused.get(topic))
        )  # fmt: skip

    def judge_again(self, member: Member) -> tuple[bytes, ...]:
        """The same by the present rules, after they may have changed."""
        return self.judge(member, {**member.roles, **member.refused})

    def refusals(self, member: Member, role: Role) -> Iterator[tuple[Doing, str]]:
        """What a member may not do of a role, and why. A topic that is not named by the network has no rules."""
        if topic_id(role.name) != role.topic:
            return
        asked: dict[Doing, bool] = {"publishes": role.publishes or role.has_publishers, "subscribes": role.subscribes}
        for doing in (doing for doing, wanted in asked.items() if wanted):
            if why := self.config.rights(member.party, member.attributes, role.name, doing):
                yield doing, why

    def tell(self, member: Member, why: str) -> bool:
        """Note that a member was refused something. False: it was reported already, or often enough."""
        told = self.told.setdefault(member.party.id, {})
        if why in told or len(told) >= TOLD_MAX:
            return False
        told[why] = None
        return True

    def forget(self, id_: bytes) -> None:
        """A member is gone."""
        self.told.pop(id_, None)


def _without(role: Role, denied: Mapping[Doing, str]) -> Role:
    """What is left of a role."""
    return msgspec.structs.replace(
        role,
        publishes=role.publishes and "publishes" not in denied,
        has_publishers=role.has_publishers and "publishes" not in denied,
        subscribes=role.subscribes and "subscribes" not in denied,
    )
