"""The faults of a scenario: what each does, to which peers, and for how long.

A selector names the peers of a fault. It is resolved when the fault begins:

================== ====================================================================
`3`                machine 3
`root:T`           the root of topic T
`forwarders:T`     peers with children in T's tree, other than the root
`children:T`       the children of T's root
`leaves:T`         peers in T's tree without children
`readers:T`        peers whose programs read T; `writers:T` likewise
`entry-points:T`   the entry points of scopes for topic T; `stand-bys:T` likewise
`all`              every running peer
`-` before a name  remove these again: `["all", "-root:T"]`
================== ====================================================================

`peer` takes the first peer of its selector.
"""

import re
from collections.abc import Callable, Container, Sequence

import msgspec

from quillcast.core.errors import LocalError
from quillcast.sim.network import Quality


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="do"):
    """Happens at `at_s`. With `when`, it happens at the first such moment after that.

    `when` is one of: `admitted:T` (the root of T assigns positions), `acknowledged:T` (a writer's peer learns of that),
    `delivered:T` (a reader receives an event).
    """

    at_s: float
    when: str = ""


class Crash(Fault, frozen=True, tag="crash"):
    """The process is killed; `silent`: the whole machine loses power, and no peer is notified."""

    peer: str
    silent: bool = False
    restart_s: float | None = None
    """Restart the process after this many seconds."""
    disk: str = "kept"
    """The disk at the restart: kept, stale (as of the previous start), lost."""


class Leave(Fault, frozen=True, tag="leave"):
    """The peer leaves in good order, and may come back."""

    peer: str
    restart_s: float | None = None


class Pause(Fault, frozen=True, tag="pause"):
    """The process is paused, as after SIGSTOP."""

    peer: str
    for_s: float


class Partition(Fault, frozen=True, tag="partition"):
    """Nothing passes between these peers and all others."""

    peers: list[str]
    for_s: float


class Drop(Fault, frozen=True, tag="drop"):
    """Nothing passes from these peers to those."""

    from_: list[str] = msgspec.field(name="from")
    to: list[str]
    for_s: float


class Disturb(Fault, frozen=True, tag="disturb"):
    """Everything that these peers send and receive is lost, delayed or limited for a while (`network.Quality`)."""

    peers: list[str]
    for_s: float
    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    jitter: float = 0.0
    slow_s: float = 0.0
    bytes_per_s: float = 0.0

    @property
    def quality(self) -> Quality:
        """The same as a quality of network paths."""
        return Quality(self.loss, self.duplication, self.reordering, self.jitter, self.slow_s, self.bytes_per_s)


class SlowReaders(Fault, frozen=True, tag="slow-readers"):
    """Programs on this peer process only this many bytes per second from their subscriptions; 0 means none."""

    peer: str
    for_s: float
    bytes_per_s: float = 0.0


class Arrive(Fault, frozen=True, tag="arrive"):
    """A new peer joins. Its id begins with these hexadecimal digits, or is random."""

    id: str = ""


OfOnePeer = Crash | Leave | Pause | SlowReaders
AnyFault = Crash | Leave | Pause | Partition | Drop | Disturb | SlowReaders | Arrive


def over_s(fault: AnyFault) -> float:
    """When a fault and its consequences are over."""
    match fault:
        case Crash(restart_s=after) | Leave(restart_s=after):
            return fault.at_s + (after or 0.0)
        case Arrive():
            return fault.at_s
        case _:
            return fault.at_s + fault.for_s


_KNOWN = re.compile(
    r"-?(?:\d+|all|(?:root|forwarders|children|leaves|readers|writers|entry-points|stand-bys):(?P<topic>.+))"
)
_MOMENTS = re.compile(r"(?:admitted|acknowledged|delivered):(?P<topic>.+)")


def validate(fault: AnyFault, topics: Container[str]) -> None:
    """Raise `LocalError` for an invalid selector or moment."""
    selectors = [getattr(fault, "peer", "all"), *getattr(fault, "peers", [])]
    selectors += [*getattr(fault, "from_", []), *getattr(fault, "to", [])]
    for pattern, texts in ((_KNOWN, selectors), (_MOMENTS, [fault.when] if fault.when else [])):
        for text in texts:
            match = pattern.fullmatch(text)
            topic = match["topic"] if match is not None else None
            if match is None or (topic is not None and topic not in topics):
                raise LocalError(f"{text!r} names no peers, topic or moment; docs/simulator.md says what can be named")


def select(selectors: Sequence[str], named: Callable[[str], Sequence[int]]) -> list[int]:
    """The machines that the selectors name, in order, each once. `named` resolves one selector."""
    chosen: dict[int, None] = {}
    for selector in selectors:
        if selector.startswith("-"):
            for machine in named(selector[1:]):
                chosen.pop(machine, None)
        else:
            chosen.update(dict.fromkeys(named(selector)))
    return list(chosen)
