"""Orders of this layer's parts to others (`state/effects.py`): carried out at once, before the part continues."""

from typing import get_args

from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.parts import Parts
from quillcast.protocol.topics.scribe import Scribe
from quillcast.protocol.topics.state import effects


class TopicOrders:
    """Passes each order to the part that carries it out."""

    __slots__ = ("parts", "scribe")

    def __init__(self, parts: Parts, scribe: Scribe) -> None:
        self.parts, self.scribe = parts, scribe
        dispatch = parts.dispatch
        dispatch.on_orders(get_args(effects.PlaceEffect), self._at_place)
        dispatch.on_orders(get_args(effects.ArrivalEffect), self._at_arrival)
        dispatch.on_orders(get_args(effects.RootEffect), self._at_root)
        dispatch.on_orders(get_args(effects.GapEffect), self._at_gap)
        dispatch.on_orders(get_args(effects.RequestEffect), self._at_request)
        dispatch.on_orders(get_args(effects.LinkEffect), self._at_link)

    def _at_place(self, effect: effects.PlaceEffect) -> None:
        """This peer's place in a tree, or its neighbours there, change."""
        parts = self.parts
        tree = parts.trees.get(effect.topic)
        if tree is None:
            return  # it was left before
        match effect:
            case effects.FindParent(_, fault):
                parts.membership.join(tree, fault=fault)
            case effects.LeaveIfIdle(_, anyway):
                parts.membership.leave_if_idle(tree, anyway=anyway)
            case effects.SayFarewell():
                parts.farewells.say(tree)
            case effects.FarewellRefused(_, sender):
                parts.farewells.refused(tree, sender)
            case effects.ParentAccepted(_, parent):
                parts.reporting.take_up_parent(tree, parent)
                parts.stream_reporting.take_up(tree, parent)
                parts.intake.attached(tree)
            case effects.ChildIsParent(_, node):
                children = parts.children
                children.remove(tree, node, "moved", lease=False)
            case effects.NobodyAnswers():
                parts.children.send_away(tree)
            case effects.PlaceTaken(_, gone):
                parts.joins.accept_waiting(tree, gone)
                parts.subscribing.start_waiting(tree, gone)
            case effects.TopicFailed(_, error):
                parts.subscribing.fail(tree, error)
                parts.children.fail(tree, error)
            case effects.WarrantRefused(_, key, error):
                parts.subscribing.fail(tree, error, key)

    def _at_arrival(self, effect: effects.ArrivalEffect) -> None:
        """Children, or reports of what they have, arrived."""
        parts = self.parts
        tree = parts.trees.get(effect.topic)
        if tree is None:
            return  # it was left before
        match effect:
            case effects.ChildEntered(_, child):
                parts.stream_reporting.take_up(tree, child)
            case effects.StreamsBegin():
                parts.joins.dismiss_mistaken(tree)
            case effects.LeaseEnded():
                parts.progress.advance_stable(tree, parts.host.now())
            case effects.AllStable() if tree.root is not None:
                parts.moving_roots.all_stable(tree.root)
                parts.sessions.all_stable(tree)
            case effects.RoomAgain():
                parts.intake.room_again(tree)

    def _at_root(self, effect: effects.RootEffect) -> None:
        """A topic gets another root, gets other settings, or needs them."""
        parts = self.parts
        tree = parts.trees.get(effect.topic)
        if tree is None:
            return  # it was left before
        match effect:
            case effects.BecomeRoot(_, how, publishers, session):
                parts.candidacies.begin(tree, how, publishers, session)
            case effects.RootHere():
                parts.publishing.root_here(tree)
                parts.sessions.root_here(tree)
                parts.moving_roots.watch_closer(tree)
            case effects.ProcessPaused():
                parts.paused_roots.hold(tree, parts.host.now())
                parts.candidacies.paused(tree.topic)
            case effects.LaterTermExists():
                parts.candidacies.outdone(tree)
            case effects.RivalKnown(_, term):
                parts.replication.heard_of_rival(tree.topic, term)
            case effects.TermChosen(topic, term):
                parts.offers.note_term(topic, term)
            case effects.TellNextRoot(_, to, message):
                parts.telling.tell(to, message)
            case effects.Resign():
                parts.resigning.resign(tree)
            case effects.SettingsEntered():
                parts.schedule.touch(tree)
                parts.changes.entered(tree)
                parts.sessions.recorded(tree)
            case effects.OpenSession(_, request):
                parts.sessions.asked(tree, request)

    def _at_gap(self, effect: effects.GapEffect) -> None:
        """Bundles are missing, or arrived."""
        parts = self.parts
        match effect:
            case effects.GapNoticed(topic):  # handled first, because it comes with many reports
                parts.recovery.look_soon(topic)
            case effects.FrontFilled(topic, term):
                parts.recovery.front_filled(topic, term)
            case effects.Restored(bundle, sender):
                parts.recovery.restored(bundle, sender)
            case effects.CameFromSource(topic, term, source):
                parts.stream_reporting.came(topic, term, source)

    def _at_request(self, effect: effects.RequestEffect) -> None:
        """A peer requests something of a topic, or the topic has other settings. It may have no tree here."""
        parts = self.parts
        match effect:
            case effects.AwaitRoot(topic, request):
                parts.candidacies.wait(topic, request)
            case effects.RefuseRequest(request, why):
                parts.rendezvous.refuse(request, why)
            case effects.SettingsLearned(descriptor, lists, first):
                parts.changes.learned(descriptor)
                self._learned(descriptor, lists=lists, first=first)
                parts.publishing.settings_learned(descriptor, lists=lists)
            case effects.RivalLearned(topic):
                if topic in parts.trees:
                    parts.table.take_held(parts.trees[topic].flow)

    def _at_link(self, effect: effects.LinkEffect) -> None:
        """Neighbours, or the orders of scopes, change something that several topics depend on."""
        parts = self.parts
        match effect:
            case effects.Invited(topics, parent):
                parts.membership.move(topics, parent, whole=True)
            case effects.EnterOverlay(topic):
                if topic in parts.trees:
                    parts.membership.enter_overlay(parts.trees[topic])
            case effects.NeighbourLost(node):
                parts.streams.forget(node)
                parts.admissions.lost(node)
                parts.publishing.lost(node)
            case effects.SeekNearerParent(topic):
                parts.climbing.begin(topic)
            case effects.RoomTowards(contact):
                self.scribe.room(contact)
            case effects.RootScopesChanged():
                self.scribe.root_scopes_changed()

    def _learned(self, descriptor: Descriptor, *, lists: bool, first: bool) -> None:
        """Apply a descriptor to the topic's tree here, if any. Peers that may not have its events go first."""
        parts, topic = self.parts, descriptor.topic
        if topic in parts.trees:
            parts.publishing.own_streams.settings_learned(parts.trees[topic])
        if topic in parts.trees and lists:
            parts.rights.learned(parts.trees[topic], first=first)
        if topic in parts.trees:
            parts.table.take_held(parts.trees[topic].flow)
            parts.joins.dismiss_mistaken(parts.trees[topic])
            parts.schedule.touch(parts.trees[topic])
            parts.root_settings.learned(parts.trees[topic])
