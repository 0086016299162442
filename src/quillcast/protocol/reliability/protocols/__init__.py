"""The recovery protocols of scopes, by the names under which scope files choose them."""

from collections.abc import Callable, Mapping

from quillcast.protocol.reliability.domain import AgentContext, RecoveryProtocol
from quillcast.protocol.reliability.protocols.along_tree import AlongTree
from quillcast.protocol.reliability.protocols.anti_entropy import AntiEntropy
from quillcast.protocol.reliability.protocols.suppression import Suppression
from quillcast.protocol.reliability.protocols.token_ring import TokenRing

BUILT_IN: Mapping[str, Callable[[AgentContext], RecoveryProtocol]] = {
    "tree": lambda context: AlongTree(),
    "gossip": lambda context: AntiEntropy(context.host.random),
    "ring": TokenRing,
    "srm": Suppression,
}
