"""The forwarding policies that quillcast has built in, by name."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, cast

import msgspec

from quillcast.core.errors import LocalError
from quillcast.protocol.scopes.policies.chain import Chain
from quillcast.protocol.scopes.policies.delay_optimised import DelayOptimised
from quillcast.protocol.scopes.policies.gossip import Gossip
from quillcast.protocol.scopes.policies.ip_multicast import IpMulticast
from quillcast.protocol.scopes.policies.k_ary import KAry
from quillcast.protocol.scopes.policies.mesh import Mesh
from quillcast.protocol.scopes.policies.ring import Ring
from quillcast.protocol.scopes.policies.star import Star
from quillcast.protocol.scopes.policies.stripes import Stripes
from quillcast.protocol.scopes.policy import ScopePolicy

BuiltIn = Chain | DelayOptimised | Gossip | IpMulticast | KAry | Mesh | Ring | Star | Stripes

BUILT_IN: Mapping[str, type[BuiltIn]] = {
    "star": Star,
    "k_ary": KAry,
    "chain": Chain,
    "ring": Ring,
    "mesh": Mesh,
    "gossip": Gossip,
    "stripes": Stripes,
    "delay_optimised": DelayOptimised,
    "ip_multicast": IpMulticast,
}


def made(name: str, factory: Callable[..., Any], parameters: Mapping[str, Any]) -> ScopePolicy:
    """The policy with these parameters; those of a struct are checked by their types. Raises `LocalError`."""
    if not (isinstance(factory, type) and issubclass(factory, msgspec.Struct)):
        return cast("ScopePolicy", factory(**parameters))
    known = factory.__struct_fields__
    if unknown := [each for each in parameters if each not in known]:
        near = get_close_matches(unknown[0], known, 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise LocalError(f"policy {name} has no parameter {unknown[0]}{hint}; it has: {', '.join(known) or 'none'}")
    try:
        return cast("ScopePolicy", msgspec.convert(parameters, factory))
    except msgspec.ValidationError as error:
        raise LocalError(f"policy {name}: {reworded(error)}") from None


def called(policy: ScopePolicy) -> str:
    """What files call a policy. The text of one that others made begins with that."""
    name = repr(policy).partition("(")[0].partition(" ")[0]
    return next((known for known, kind in BUILT_IN.items() if kind.__name__ == name), name)


def first_line(policy: ScopePolicy) -> str:
    """The first line of what the class of a policy says of itself."""
    return (type(policy).__doc__ or "").strip().partition("\n")[0][:200].replace("`", "")


def reworded(error: msgspec.ValidationError, within: str = "") -> str:
    """An error of msgspec with the place first, such as `topics[0].pattern`; `within` is that of the whole value."""
    what, _, where = str(error).partition(" - at `$")
    what = what.replace("`", "").replace(" | null", "")
    what = what.replace("Expected", "expected").replace("Object missing", "missing")
    place = (within + where.rstrip("`")).removeprefix(".")
    return f"{place}: {what}" if place else what
