"""Scribe's tree as a forwarding policy: the union of the routes to the topic's root (Scribe, section 3.1)."""

from collections.abc import Container

from quillcast.core.ids import ring_distance
from quillcast.core.messages import Contact
from quillcast.protocol.forwarding.policy import ChannelSpec, Place


class ScribeTree:
    """Each peer on the route accepts newcomers up to a number of children. Then it refers them to its children."""

    __slots__ = ("children_max", "stand_ins_max")

    def __init__(self, children_max: int, stand_ins_max: int) -> None:
        self.children_max, self.stand_ins_max = children_max, stand_ins_max

    def intercepts(self, place: Place | None) -> bool:
        return True

    def refer(self, place: Place, newcomer: Contact, unresponsive: Container[bytes] = ()) -> tuple[Contact, ...]:
        """The bottleneck remover: full peers refer newcomers to their children, and accept those that reach none."""
        known = any(contact.node_id == newcomer.node_id for contact in place.below)
        if known or len(place.below) < self.children_max:
            return ()
        return tuple([contact for contact in place.below if contact.node_id not in unresponsive])

    def stand_ins(self, place: Place) -> tuple[Contact, ...]:
        """The grandparent, then siblings, the nearest to the topic first, so that many topics name the same ones."""
        above = [place.above] if place.above is not None else []
        siblings = [contact for contact in place.below if contact not in above]
        siblings.sort(key=lambda sibling: ring_distance(sibling.node_id, place.topic))
        return tuple([*above, *siblings][: self.stand_ins_max])

    def channels(self, place: Place) -> tuple[ChannelSpec, ...]:
        return tuple([ChannelSpec(contact) for contact in place.below])
