"""What a scope's orders make of this peer's place in the topics' trees: whom it invites, and below whom it hangs."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from quillcast.core.dispatch import Dispatch
from quillcast.core.host import Host
from quillcast.core.interning import EMPTY
from quillcast.core.messages import Contact, WireId
from quillcast.protocol.overlay.pastry import Pastry
from quillcast.protocol.scopes.channels import Address
from quillcast.protocol.scopes.controller import LocalController
from quillcast.protocol.scopes.messages import Assignment
from quillcast.protocol.topics.messages import Invite
from quillcast.protocol.topics.policy.placement import Placement
from quillcast.protocol.topics.state.effects import EnterOverlay, Invited, SeekNearerParent
from quillcast.protocol.topics.state.tree import Tree

INVITED_EVERY_MAX = 32
"""Beats between two invitations of one peer at most; a guess: trees change by then."""

CLIMBS_EVERY_MAX = 256
"""Beats between two searches for a better parent at most; a guess: five minutes."""

PARENTS_EVERY = 32  # beats between two words of an entry point's parent, should one be lost; a guess: 40 s

FIRST_DEPTH = 2  # of the members of a scope that is itself a member of the overlay


class Tried(NamedTuple):
    """How often something was tried, and at which beat it is again."""

    times: int
    again_at: int

    def again(self, beats: int, pause_max: int) -> "Tried":
        """It is tried now; the next pause is twice as long, up to so many beats."""
        return Tried(self.times + 1, beats + min(1 << self.times, pause_max))


class Branches:
    """The links of the topics' trees that a peer makes for its scopes."""

    __slots__ = ("climbed", "dispatch", "gave_way", "host", "invited", "overlay", "parents", "placement", "trees")

    def __init__(
        self, host: Host, overlay: Pastry, trees: Mapping[bytes, Tree], placement: Placement, dispatch: Dispatch
    ) -> None:
        self.host, self.overlay, self.trees = host, overlay, trees
        self.placement, self.dispatch = placement, dispatch
        self.climbed: dict[bytes, tuple[tuple[bytes, ...], Tried]] = EMPTY  # by topic, with the path
        self.invited: dict[tuple[bytes, Contact], Tried] = EMPTY  # by topic and peer that is no child yet, or just is
        self.parents: dict[bytes, Contact] = EMPTY  # by topic in which this peer is the entry point: the peer outside
        self.gave_way = Tried(0, 0)  # since this peer's orders may be old

    def invite(self, controller: LocalController, beats: int) -> None:
        """Invite the peers that are to be children here and are not yet, unless the orders may be old.

        A peer that does not become one is invited again after ever more beats: there may be no room for this peer in
        the tree but below the other. So is one that does not stay, for another peer may invite it as well.
        """
        missing = {(topic, way.peer): way for topic, way in self._missing_children(controller)}
        self.invited = {
            each: tried
            for each, tried in self.invited.items()
            if each in missing or beats < tried.again_at + INVITED_EVERY_MAX
        }
        self.placement.expect(_by_topic(missing))
        topics = dict[Address, list[WireId]]()
        for each, way in missing.items():
            invited = self.invited.get(each, Tried(0, beats))
            if beats >= invited.again_at:
                self.invited[each] = invited.again(beats, INVITED_EVERY_MAX)
                topics.setdefault(way, []).append(each[0])
        for way, of_it in topics.items():
            self.host.send(way.peer, Invite(of_it, way.invitation))

    def enter(self, controller: LocalController) -> None:
        """Where this peer is the entry point of all scopes, nobody invites it."""
        if self.overlay.awaits_invitation:
            for topic, each in controller.membership.ordered_assignments().items():
                if each.ring == 0:
                    self.dispatch.order(EnterOverlay(topic))

    def _missing_children(self, controller: LocalController) -> Iterator[tuple[WireId, Address]]:
        doubtful = controller.membership.doubtful()
        for channel in controller.channels:
            match channel.spec:
                case Address(contact) as way if contact.node_id != self.host.me:
                    links = (each.topic for each in channel.constraints if not each.beside)
                    wanted = (topic for topic in links if topic not in doubtful)
                    yield from ((topic, way) for topic in wanted if not self._is_child(topic, contact))

    def give_way(self, controller: LocalController, beats: int) -> None:
        """As long as this peer's orders may be old, another may be the entry point: hang below the next of the three.

        Managers have a beat to answer. That next one may be below this peer as before, if all were silent: so this is
        tried after ever more beats.
        """
        doubtful = controller.membership.doubtful()
        if not doubtful:
            self.gave_way = Tried(0, beats + 2)
            return
        heir, inside = self.overlay.heir(self.host.me), {each.node_id for each in controller.membership.ring()}
        assignments = controller.membership.ordered_assignments().items()
        entered = (topic for topic, each in assignments if each.ring == 0 and topic in doubtful)
        trees = [self.trees[topic] for topic in entered if topic in self.trees]
        outside = tuple(tree.topic for tree in trees if tree.parent is not None and inside.isdisjoint(tree.path))
        if heir is not None and outside and beats >= self.gave_way.again_at:
            self.gave_way = self.gave_way.again(beats, INVITED_EVERY_MAX)
            self.dispatch.order(Invited(outside, heir))

    def climb(self, controller: LocalController, beats: int) -> None:
        """Look for a better parent outside, if the scope hangs below one: the way from the root may be shorter.

        As long as the tree above stays as it is, that happens ever more rarely.
        """
        inside = {contact.node_id for contact in controller.membership.ring()}
        assignments, doubtful = controller.membership.ordered_assignments(), controller.membership.doubtful()
        hanging = {
            topic: tree.path
            for topic, tree in self.trees.items()
            if topic in assignments
            and topic not in doubtful
            and _hangs_below_overlay(assignments[topic])
            and len(tree.path) > 1
            if assignments[topic].ring == 0 or inside.isdisjoint(tree.path)
        }
        climbed, self.climbed = self.climbed, {}
        for topic, path in hanging.items():
            former, tried = climbed.get(topic, ((), Tried(0, 0)))
            if former != path:
                tried = Tried(0, beats)
            if beats >= tried.again_at:
                tried = tried.again(beats, CLIMBS_EVERY_MAX)
                self.dispatch.order(SeekNearerParent(topic))
            self.climbed[topic] = path, tried

    def new_parents(self, controller: LocalController, beats: int) -> Iterator[tuple[bytes, Contact]]:
        """Below whom the scope hangs in the overlay's trees, for its manager, which chooses an entry point by that."""
        inside = {contact.node_id for contact in controller.membership.ring()}
        assignments = controller.membership.ordered_assignments().items()
        entered = (topic for topic, each in assignments if each.ring == 0 and each.depth == FIRST_DEPTH)
        trees = [self.trees[topic] for topic in entered if topic in self.trees]
        former, self.parents = self.parents, {}
        for tree in trees:
            if tree.parent is not None and tree.parent.node_id not in inside:
                self.parents[tree.topic] = tree.parent
                if former.get(tree.topic) != tree.parent or beats % PARENTS_EVERY == 0:
                    yield tree.topic, tree.parent

    def _is_child(self, topic: bytes, contact: Contact) -> bool:
        tree = self.trees.get(topic)
        return tree is not None and contact.node_id in tree.leases.children


def _hangs_below_overlay(assignment: Assignment) -> bool:
    """Whether the member is below peers of the overlay in a topic's tree, and not below those of a superscope."""
    return assignment.ring is not None and (assignment.ring == 0 or assignment.depth == FIRST_DEPTH)


def _by_topic(expected: Iterable[tuple[bytes, Contact]]) -> dict[bytes, dict[Contact, None]]:
    found = dict[bytes, dict[Contact, None]]()
    for topic, contact in expected:
        found.setdefault(topic, {})[contact] = None
    return found
