"""Orders of this layer's parts to others (`state/effects.py`): carried out at once, before the part continues.

One router for each area. It finds the topic's tree, and passes the order to the few parts that carry it out.
"""

from collections.abc import Mapping
from typing import get_args

from quillcast.core.dispatch import Dispatch
from quillcast.core.errors import LocalError
from quillcast.core.host import Host
from quillcast.protocol.forwarding.table import ForwardingTable
from quillcast.protocol.neighbours.streams import Streams
from quillcast.protocol.reliability.recovery import Recovery
from quillcast.protocol.topics.known.known import KnownTopics
from quillcast.protocol.topics.membership.children import ChildrenTables
from quillcast.protocol.topics.membership.climbing import Climbing
from quillcast.protocol.topics.membership.farewells import Farewells
from quillcast.protocol.topics.membership.joins import Joins
from quillcast.protocol.topics.membership.membership import TreeMembership
from quillcast.protocol.topics.membership.reporting import Reporting
from quillcast.protocol.topics.membership.rights import Rights
from quillcast.protocol.topics.membership.stream_reports import StreamReporting
from quillcast.protocol.topics.membership.subscribing import Subscribing
from quillcast.protocol.topics.publishing.changes import SettingsChanges
from quillcast.protocol.topics.publishing.own_streams import OwnStreams
from quillcast.protocol.topics.publishing.publishing import Publishing
from quillcast.protocol.topics.root.admissions import Admissions
from quillcast.protocol.topics.root.candidacy import Candidacies
from quillcast.protocol.topics.root.intake import Intake
from quillcast.protocol.topics.root.offers import Offers
from quillcast.protocol.topics.root.paused_roots import PausedRoots
from quillcast.protocol.topics.root.rendezvous import Rendezvous
from quillcast.protocol.topics.root.replication import Replication
from quillcast.protocol.topics.root.resigning import MovingRoots, Resigning
from quillcast.protocol.topics.root.sessions import Sessions
from quillcast.protocol.topics.root.settings import RootSettings
from quillcast.protocol.topics.root.telling import Telling
from quillcast.protocol.topics.scribe import Scribe
from quillcast.protocol.topics.stability.progress import Progress
from quillcast.protocol.topics.state import effects
from quillcast.protocol.topics.state.overlay import Overlay
from quillcast.protocol.topics.state.schedule import Schedule
from quillcast.protocol.topics.state.tree import Tree

TreesByTopic = Mapping[bytes, Tree]


class PlaceOrders:
    """This peer's place in a tree changes."""

    __slots__ = ("climbing", "farewells", "membership", "trees")

    def __init__(
        self, trees: TreesByTopic, membership: TreeMembership, farewells: Farewells, climbing: Climbing,
        dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.trees, self.membership, self.farewells, self.climbing = trees, membership, farewells, climbing
        dispatch.on_orders(get_args(effects.PlaceEffect), self._carry_out)
        dispatch.on_orders((effects.Invited,), self._invited)
        dispatch.on_orders((effects.SeekNearerParent,), self._seek_nearer_parent)

    def _carry_out(self, effect: effects.PlaceEffect) -> None:
        tree = self.trees.get(effect.topic)
        if tree is None:
            return  # it was left before
        match effect:
            case effects.FindParent(_, fault):
                self.membership.join(tree, fault=fault)
            case effects.LeaveIfIdle(_, anyway):
                self.membership.leave_if_idle(tree, anyway=anyway)
            case effects.EnterOverlay():
                self.membership.enter_overlay(tree)
            case effects.SayFarewell():
                self.farewells.say(tree)
            case effects.FarewellRefused(_, sender):
                self.farewells.refused(tree, sender)

    def _invited(self, effect: effects.Invited) -> None:
        self.membership.move(effect.topics, effect.parent, whole=True)

    def _seek_nearer_parent(self, effect: effects.SeekNearerParent) -> None:
        self.climbing.begin(effect.topic)


class ChildOrders:
    """This peer's children and subscriptions can begin, or must end."""

    __slots__ = ("children", "joins", "subscribing", "trees")

    def __init__(
        self, trees: TreesByTopic, children: ChildrenTables, joins: Joins, subscribing: Subscribing, dispatch: Dispatch
    ) -> None:
        self.trees, self.children, self.joins, self.subscribing = trees, children, joins, subscribing
        dispatch.on_orders(get_args(effects.ChildEffect), self._carry_out)

    def _carry_out(self, effect: effects.ChildEffect) -> None:
        tree = self.trees.get(effect.topic)
        if tree is None:
            return  # it was left before
        match effect:
            case effects.ChildIsParent(_, node):
                self.children.remove(tree, node, "moved", lease=False)
            case effects.NobodyAnswers():
                self.children.send_away(tree)
            case effects.PlaceTaken(_, gone):
                self.joins.accept_waiting(tree, gone)
                self.subscribing.start_waiting(tree, gone)
            case effects.StreamsBegin():
                self.joins.dismiss_mistaken(tree)
            case effects.TopicFailed(_, error):
                self.subscribing.fail(tree, error)
                self.children.fail(tree, error)
            case effects.WarrantRefused(_, key, error):
                self.subscribing.fail(tree, error, key)


class ArrivalOrders:
    """Neighbours, reports of what they have, or room for events arrived."""

    __slots__ = ("host", "intake", "progress", "reporting", "stream_reporting", "trees")

    def __init__(
        self, host: Host, trees: TreesByTopic, reporting: Reporting, stream_reporting: StreamReporting,
        progress: Progress, intake: Intake, dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.host, self.trees, self.reporting, self.stream_reporting = host, trees, reporting, stream_reporting
        self.progress, self.intake = progress, intake
        dispatch.on_orders(get_args(effects.ArrivalEffect), self._carry_out)
        dispatch.on_orders((effects.CameFromSource,), self._came_from_source)

    def _carry_out(self, effect: effects.ArrivalEffect) -> None:
        tree = self.trees.get(effect.topic)
        if tree is None:
            return  # it was left before
        match effect:
            case effects.ParentAccepted(_, parent):
                self.reporting.take_up_parent(tree, parent)
                self.stream_reporting.take_up(tree, parent)
                self.intake.attached(tree)
            case effects.ChildEntered(_, child):
                self.stream_reporting.take_up(tree, child)
            case effects.LeaseEnded():
                self.progress.advance_stable(tree, self.host.now())
            case effects.RoomAgain():
                self.intake.room_again(tree)

    def _came_from_source(self, effect: effects.CameFromSource) -> None:
        self.stream_reporting.came(effect.topic, effect.term, effect.source)


class GapOrders:
    """Bundles are missing, or were restored."""

    __slots__ = ("recovery",)

    def __init__(self, recovery: Recovery, dispatch: Dispatch) -> None:
        self.recovery = recovery
        dispatch.on_orders(get_args(effects.GapEffect), self._carry_out)

    def _carry_out(self, effect: effects.GapEffect) -> None:
        match effect:
            case effects.GapNoticed(topic):  # handled first, because it comes with many reports
                self.recovery.look_soon(topic)
            case effects.FrontFilled(topic, term):
                self.recovery.front_filled(topic, term)
            case effects.Restored(bundle, sender):
                self.recovery.restored(bundle, sender)


class RootOrders:
    """A topic needs a root, or its root may have to stop."""

    __slots__ = ("candidacies", "host", "paused_roots", "rendezvous", "replication", "trees")

    def __init__(
        self, host: Host, trees: TreesByTopic, replication: Replication, paused_roots: PausedRoots,
        rendezvous: Rendezvous, candidacies: Candidacies, dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.host, self.trees, self.replication, self.paused_roots = host, trees, replication, paused_roots
        self.rendezvous, self.candidacies = rendezvous, candidacies
        dispatch.on_orders(get_args(effects.RootEffect), self._carry_out)
        dispatch.on_orders(get_args(effects.RequestEffect), self._answer)

    def _carry_out(self, effect: effects.RootEffect) -> None:
        tree = self.trees.get(effect.topic)
        if tree is None:
            return  # it was left before
        match effect:
            case effects.BecomeRoot(_, how, publishers, session):
                self.candidacies.begin(tree, how, publishers, session)
            case effects.ProcessPaused():
                self.paused_roots.hold(tree, self.host.now())
                self.candidacies.paused(tree.topic)
            case effects.LaterTermExists():
                self.candidacies.outdone(tree)
            case effects.RivalKnown(_, term):
                self.replication.heard_of_rival(tree.topic, term)

    def _answer(self, effect: effects.RequestEffect) -> None:
        """A peer requests something of a topic, which may have no tree here."""
        match effect:
            case effects.AwaitRoot(topic, request):
                self.candidacies.wait(topic, request)
            case effects.RefuseRequest(request, why):
                self.rendezvous.refuse(request, why)


class TransferOrders:
    """A topic's leadership is transferred."""

    __slots__ = ("offers", "resigning", "telling", "trees")

    def __init__(
        self, trees: TreesByTopic, resigning: Resigning, telling: Telling, offers: Offers, dispatch: Dispatch
    ) -> None:
        self.trees, self.resigning, self.telling, self.offers = trees, resigning, telling, offers
        dispatch.on_orders(get_args(effects.TransferEffect), self._carry_out)

    def _carry_out(self, effect: effects.TransferEffect) -> None:
        tree = self.trees.get(effect.topic)
        if tree is None:
            return  # it was left before
        match effect:
            case effects.Resign():
                self.resigning.resign(tree)
            case effects.TermChosen(topic, term):
                self.offers.note_term(topic, term)
            case effects.TellNextRoot(_, to, message):
                self.telling.tell(to, message)


class SessionOrders:
    """A root is here, its events are stable, or its topic gets other settings."""

    __slots__ = ("changes", "moving_roots", "publishing", "schedule", "sessions", "trees")

    def __init__(
        self, trees: TreesByTopic, schedule: Schedule, sessions: Sessions, moving_roots: MovingRoots,
        changes: SettingsChanges, publishing: Publishing, dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.trees, self.schedule, self.sessions, self.moving_roots = trees, schedule, sessions, moving_roots
        self.changes, self.publishing = changes, publishing
        dispatch.on_orders(get_args(effects.SessionEffect), self._carry_out)

    def _carry_out(self, effect: effects.SessionEffect) -> None:
        tree = self.trees.get(effect.topic)
        if tree is None:
            return  # it was left before
        match effect:
            case effects.RootHere():
                self.publishing.root_here(tree)
                self.sessions.root_here(tree)
                self.moving_roots.watch_closer(tree)
            case effects.AllStable() if tree.root is not None:
                self.moving_roots.all_stable(tree.root)
                self.sessions.all_stable(tree)
            case effects.SettingsEntered():
                self.schedule.touch(tree)
                self.changes.entered(tree)
                self.sessions.recorded(tree)
            case effects.OpenSession(_, request):
                self.sessions.asked(tree, request)


class TreeSettings:
    """Applies other settings to the topic's tree here, if there is one."""

    __slots__ = ("joins", "rights", "root_settings", "schedule", "table", "trees")

    def __init__(
        self, trees: TreesByTopic, table: ForwardingTable, schedule: Schedule, joins: Joins, rights: Rights,
        root_settings: RootSettings, dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.trees, self.table, self.schedule, self.joins = trees, table, schedule, joins
        self.rights, self.root_settings = rights, root_settings
        dispatch.on_orders((effects.RivalLearned,), self._rival_learned)

    def learned(self, topic: bytes, *, lists: bool, first: bool) -> None:
        """Apply the topic's descriptor. Peers that may not have its events go first."""
        if topic in self.trees and lists:
            self.rights.learned(self.trees[topic], first=first)
        if topic in self.trees:
            tree = self.trees[topic]
            self.table.take_held(tree.flow)
            self.joins.dismiss_mistaken(tree)
            self.schedule.touch(tree)
            self.root_settings.learned(tree)

    def _rival_learned(self, effect: effects.RivalLearned) -> None:
        if effect.topic in self.trees:
            self.table.take_held(self.trees[effect.topic].flow)


class SettingsOrders:
    """A topic has other settings. It may have no tree here."""

    __slots__ = ("changes", "own_streams", "publishing", "settings", "trees")

    def __init__(
        self, trees: TreesByTopic, settings: TreeSettings, changes: SettingsChanges, own_streams: OwnStreams,
        publishing: Publishing, dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.trees, self.settings, self.changes = trees, settings, changes
        self.own_streams, self.publishing = own_streams, publishing
        dispatch.on_orders((effects.SettingsLearned,), self._learned)

    def _learned(self, effect: effects.SettingsLearned) -> None:
        descriptor = effect.descriptor
        self.changes.learned(descriptor)
        if descriptor.topic in self.trees:
            self.own_streams.settings_learned(self.trees[descriptor.topic])
        self.settings.learned(descriptor.topic, lists=effect.lists, first=effect.first)
        self.publishing.settings_learned(descriptor, lists=effect.lists)


class LossOrders:
    """A neighbour is lost: forget what it reported, and find other roots for publishers here."""

    __slots__ = ("admissions", "publishing", "streams")

    def __init__(self, streams: Streams, admissions: Admissions, publishing: Publishing, dispatch: Dispatch) -> None:
        self.streams, self.admissions, self.publishing = streams, admissions, publishing
        dispatch.on_orders((effects.NeighbourLost,), self._lost)

    def _lost(self, effect: effects.NeighbourLost) -> None:
        self.streams.forget(effect.node)
        self.admissions.lost(effect.node)
        self.publishing.lost(effect.node)


class RootScopeOrders:
    """Managers name other scopes as root scopes of topics, or other peers as their rendezvous points."""

    __slots__ = ("known", "membership", "overlay", "publishing", "scribe", "trees")

    def __init__(
        self, overlay: Overlay, scribe: Scribe, trees: TreesByTopic, known: KnownTopics, membership: TreeMembership,
        publishing: Publishing, dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.overlay, self.scribe, self.trees, self.known = overlay, scribe, trees, known
        self.membership, self.publishing = membership, publishing
        dispatch.on_orders((effects.RootScopesChanged,), self._changed)

    def _changed(self, effect: effects.RootScopesChanged) -> None:
        if self.overlay.active:
            self.scribe.leaf_set_changed()
        else:  # this peer has sent nothing yet: requests of its applications follow the managers' orders
            self._root_anew()

    def _root_anew(self) -> None:
        for tree in list(self.trees.values()):
            try:
                self.known.root_anew(tree)
            except LocalError as two:
                self.membership.fail(tree, two)
        self.publishing.root_anew()
