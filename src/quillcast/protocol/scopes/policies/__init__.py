"""The forwarding policies that quillcast has built in, by name."""

from collections.abc import Mapping

from quillcast.protocol.scopes.policies.chain import Chain
from quillcast.protocol.scopes.policies.delay_optimised import DelayOptimised
from quillcast.protocol.scopes.policies.gossip import Gossip
from quillcast.protocol.scopes.policies.k_ary import KAry
from quillcast.protocol.scopes.policies.mesh import Mesh
from quillcast.protocol.scopes.policies.ring import Ring
from quillcast.protocol.scopes.policies.star import Star
from quillcast.protocol.scopes.policies.stripes import Stripes

BuiltIn = Chain | DelayOptimised | Gossip | KAry | Mesh | Ring | Star | Stripes

BUILT_IN: Mapping[str, type[BuiltIn]] = {
    "star": Star,
    "k_ary": KAry,
    "chain": Chain,
    "ring": Ring,
    "mesh": Mesh,
    "gossip": Gossip,
    "stripes": Stripes,
    "delay_optimised": DelayOptimised,
}
