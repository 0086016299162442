"""Which messages the parties of a scope believe: a message counts only from the peer that it speaks for."""

from quillcast.core.messages import Contact
from quillcast.protocol.scopes.clients import is_client_of
from quillcast.protocol.scopes.controller import LocalController
from quillcast.protocol.scopes.manager import ScopeManager
from quillcast.protocol.scopes.messages import (
    Alive,
    ChannelAnswer,
    ChannelRequest,
    ControlMessage,
    Deregistration,
    Heard,
    Measured,
    MeasureRoundTrips,
    Orders,
    OuterParent,
    Registration,
    RegistrationRefused,
    Succession,
)


def speaks_for(sender: Contact, message: ControlMessage) -> bool:
    """Does a message come from the party that it names: that peer, or the one that runs that scope's manager?

    The link that it came over has shown who the sender is.
    """
    match message:
        case Registration(member=party) | Alive(member=party) if is_client_of(party.id, sender.node_id):
            return party.contact.node_id == sender.node_id and not party.managed
        case Registration(member=party) | Alive(member=party) | ChannelRequest(sender=party):
            return party.contact.node_id == sender.node_id and (party.managed or party.id == sender.node_id)
        case OuterParent(member=id_):
            return id_ == sender.node_id
        case _:
            return True


def manager_heeds(manager: ScopeManager, sender: Contact, message: ControlMessage) -> bool:
    """Must a manager obey this? The party that it names is proven already; owners and receivers are not."""
    match message:
        case Registration() | OuterParent() | Succession() | ChannelRequest():
            return True
        case Measured(member=id_):
            return manager.members.runs_at(id_, sender)
        case Alive(member=member):
            return manager.members.find(member.id) is None or manager.members.runs_at(member.id, sender)
        case Deregistration(member=id_):
            return manager.members.runs_at(id_, sender) or is_client_of(id_, sender.node_id)
        case _:
            return heeds(manager, sender, message)


def heeds(party: LocalController | ScopeManager, sender: Contact, message: ControlMessage) -> bool:
    """Does a message of an owner or receiver come from the peer that runs its manager?"""
    match message:
        case Orders(owner=owner):
            return party.membership.is_owner(owner.id, sender, message.succession)
        case Heard(owner=id_) | RegistrationRefused(owner=id_) | MeasureRoundTrips(owner=id_):
            return party.membership.is_owner(id_, sender)
        case ChannelAnswer(receiver=id_):
            known = party.requests.asked.get(id_)
            return known is not None and known.party.contact.node_id == sender.node_id
        case _:
            return False
