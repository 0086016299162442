"""What a tree link says per topic, kept equal on both sides by its change stream (docs/design.md, decision 4)."""

import msgspec

from quillcast.core.envelope import Term
from quillcast.core.messages import Contact, Number, WireId, decoded
from quillcast.core.ranges import Range
from quillcast.core.sparing import shared

HELD_RANGES_MAX = 8  # ranges named per past term; more are told as the first ones are repaired
CAME_MAX = 64  # peers named that came lately; a guess: as many as move when a few forwarders leave at once
Held = tuple[tuple[Term, Number, tuple[Range, ...], Number], ...]
"""Past terms: each one's end and what of it was stable, as far as these are known, and what is kept of it."""


class ChildClaim(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A child to its parent: all below me cover `term` below `cover`; `heard` is the highest term known down here.

    `came` names who came below me lately from another parent: `cover` speaks for them and all below them. `frontier` is
    how far the term came without a gap to me: where it is ahead of `cover`, somebody below me holds that back. A `leaf`
    has nobody below it: should I die, nobody's lease goes on.
    """

    term: Term
    cover: Number
    heard: Term
    held: Held = ()
    came: tuple[WireId, ...] = ()
    frontier: Number = 0
    leaf: bool = False


class ParentClaim(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """A parent to each child: my frontier and the stable position, the path from the root to me, whom to turn to.

    `stable` is the root's word, passed on: 0 while it has not come to me.
    """

    term: Term
    frontier: Number
    stable: Number
    path: tuple[WireId, ...]
    fallbacks: tuple[Contact, ...]
    held: Held = ()


Claim = ChildClaim | ParentClaim
_decoder: msgspec.msgpack.Decoder[Claim] = msgspec.msgpack.Decoder(Claim)


def encode(claim: Claim) -> bytes:
    """The claim as bytes."""
    return msgspec.msgpack.encode(claim)


def decode(data: bytes) -> Claim:
    """The claim of these bytes; what is the same in others' claims is shared. Raises `Malformed`."""
    match decoded(_decoder, data, "claim about a topic"):
        case ChildClaim(term, cover, heard, held, came, frontier, leaf):
            return ChildClaim(shared(term), cover, shared(heard), held, came, frontier, leaf)
        case ParentClaim(term, frontier, stable, path, fallbacks, held):
            return ParentClaim(shared(term), frontier, stable, shared(path), shared(fallbacks), held)
