"""What a manager, or the controller at a peer, wants done. Its host carries out the effects in order."""

import msgspec

from quillcast.core.messages import Contact
from quillcast.protocol.scopes.channels import ChannelOrder, Party
from quillcast.protocol.scopes.messages import ControlMessage


class Save(msgspec.Struct, frozen=True):
    """Write the manager's state to disk before anything that follows is carried out."""


class Send(msgspec.Struct, frozen=True):
    """Send a message to a party."""

    to: Party
    message: ControlMessage


class Superseded(msgspec.Struct, frozen=True):
    """Another process manages the scope under a higher epoch: end this one."""

    epoch: int
    at: Contact
    """Where it runs; at this peer itself, if this one began with an old state."""


class NotEntitled(msgspec.Struct, frozen=True):
    """A member registered for something to which it has no right: tell the operator."""

    why: str
    """A sentence that names the member, the topic and the remedy."""


class Install(msgspec.Struct, frozen=True):
    """Open a channel to an address or multicast mechanism, in the flows of all its topics; or change its topics."""

    channel: ChannelOrder


class Remove(msgspec.Struct, frozen=True):
    """Close a channel in all its flows."""

    channel: ChannelOrder


class Measure(msgspec.Struct, frozen=True):
    """Measure the round trip to a party; the answer is the input `measured`."""

    to: Party


ScopeEffect = Save | Send | Superseded | NotEntitled | Install | Remove | Measure
