"""A token ring as the recovery protocol (QuickSilver, *Recovery Agents*).

A member that lacks something starts a token, which goes round the circle of members twice. On the first lap each member
enters what it lacks, and what it holds of what others entered. On the second lap each adds what it holds of the rest.
By then it knows which members hold what it lacks. While no member lacks anything there is no token.

Of several tokens the one whose starter has the lowest nodeId continues. It includes what the others' starters lack once
it reaches them. Members come and go, so a token may be lost: a member whose token does not arrive starts another.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from quillcast.core.messages import Contact, Message
from quillcast.core.ranges import Range, RangeSet, difference, intersection
from quillcast.core.trace import Mark
from quillcast.protocol.reliability.domain import (
    AgentContext,
    AgentDue,
    Findings,
    KnownHolders,
    StreamId,
    held_by,
)
from quillcast.protocol.reliability.gaps import RANGES_MAX
from quillcast.protocol.reliability.messages import Lacking, RingToken

HOLDERS_MAX = 2 * RANGES_MAX  # of a stream that the token names: two for each range
LACKING_MAX = 64  # streams in one token; the rest goes into the next one


class TokenRound(NamedTuple):
    """A token that arrived here, or was started here."""

    starter: bytes
    serial: int
    began_at: float
    entered: dict[StreamId, RangeSet]
    """What this member lacked when it came first."""

    def is_of(self, token: RingToken) -> bool:
        """Is it this token?"""
        return (self.starter, self.serial) == (token.starter, token.serial)


class TokenRing:
    """A token goes from member to member and gathers what they lack and hold; they repair from the nearest before."""

    def __init__(self, context: AgentContext) -> None:
        self.host, self.times, self.scope, self.bottom = context
        self.others: tuple[Contact, ...] = ()
        self.lost: dict[bytes, float] = {}  # members that could not be reached, and when
        self.lacking: dict[StreamId, float] = {}  # since when the member lacks something that it has not sought yet
        self.known = KnownHolders()
        self.sought: dict[StreamId, RangeSet] = {}  # what all members were asked for
        self.again: dict[StreamId, RangeSet] = {}  # what they were asked for twice
        self.round: TokenRound | None = None
        self.over: tuple[bytes, int] = (b"", 0)  # the last token that was here for the last time
        self.over_at = -context.times.give_up_s
        self.serial = context.host.random.getrandbits(31)  # so that no token is mistaken for one from before a restart
        self.is_starting = False

    # ---- what it finds

    def follow(self, others: tuple[Contact, ...]) -> None:
        """The token goes to the first of these that can be reached."""
        self.others, self.lost = others, {}

    def link_lost(self, node: bytes) -> None:
        """The token goes to the next one for a while."""
        if any(node == other.node_id for other in self.others):
            self.lost[node] = self.host.now()

    def end(self) -> None:
        """Nobody waits for it."""

    def find(self, stream: StreamId, lacks: list[Range], neighbours: Sequence[Contact], *, at_border: bool) -> Findings:
        """What the last token said, and another token for the rest."""
        now, holders = self.host.now(), self.known.holders(stream, lacks)
        sought = (self.sought if at_border else self.again).setdefault(stream, RangeSet())
        unknown = difference(difference(lacks, held_by(holders)), sought)
        since = self.lacking.setdefault(stream, now)
        if self._next() is None or now - since > self.times.give_up_s:
            sought.update(unknown)  # as if in vain
            since = now
        self.lacking[stream] = since if unknown else now
        if now - self.over_at >= self._pause_s(at_border=at_border, is_urgent=bool(unknown)):
            self._start_soon()
        return Findings(holders, neighbours, difference(intersection(lacks, sought), held_by(holders)))

    def _pause_s(self, *, at_border: bool, is_urgent: bool) -> float:
        """How long after a token another one is started."""
        if not is_urgent:
            return self.times.give_up_s
        return self.times.gap_s if at_border else 2 * self.times.gap_s

    # ---- the token

    def _start_soon(self) -> None:
        if not self.is_starting:
            self.is_starting = True
            self.host.set_timer(AgentDue(self.scope, "ring"), 0.0)  # with what the member lacks of other streams

    def due(self, what: Any) -> None:
        """Start a token, unless one is in circulation."""
        self.is_starting = False
        if self._awaited() is None and self._next() is not None and (entered := self._lacks()):
            self.serial += 1
            self.host.trace(Mark("token_started"))
            self._take(RingToken(self.scope, self.host.me, self.serial), entered)

    def received(self, sender: Contact, message: Message) -> None:
        """The token arrives: read it, make entries, and pass it on."""
        assert isinstance(message, RingToken)
        awaited = self._awaited()
        if (message.starter, message.serial) == self.over:
            return
        if awaited is not None and awaited.is_of(message):
            self._read(message, awaited.entered)
            self._end(message, awaited.entered)
        elif message.starter != self.host.me and (awaited is None or message.starter < awaited.starter):
            entered = self._lacks()
            self._read(message, {})
            self._take(message, entered)

    def _take(self, token: RingToken, entered: dict[StreamId, RangeSet]) -> None:
        """The token is here for the first time."""
        self.round = TokenRound(token.starter, token.serial, self.host.now(), entered)
        self._pass_on(token, entered)

    def _end(self, token: RingToken, entered: dict[StreamId, RangeSet]) -> None:
        """It has come round: all members saw what this one lacked."""
        self.round, self.over, self.over_at = None, (token.starter, token.serial), self.host.now()
        self._pass_on(token, {})
        for stream, ranges in entered.items():
            sought = self.sought.setdefault(stream, RangeSet())
            self.again.setdefault(stream, RangeSet()).update(intersection(ranges, sought))
            sought.update(ranges)
            self.bottom.found(stream)

    def _awaited(self) -> TokenRound | None:
        """The token that is to come here again."""
        if self.round is not None and self.host.now() - self.round.began_at > self.times.give_up_s:
            self.round = None
        return self.round

    def filled(self, stream: StreamId) -> None:
        """Nothing is missing any longer."""
        self.known.forget(stream)
        self.lacking.pop(stream, None)
        self.sought.pop(stream, None)
        self.again.pop(stream, None)

    def _lacks(self) -> dict[StreamId, RangeSet]:
        """What the member lacks of the streams that were asked for here."""
        lacking = {stream: RangeSet(self.bottom.lacks(stream)[:RANGES_MAX]) for stream in self.lacking}
        return {stream: ranges for stream, ranges in lacking.items() if ranges}

    def _read(self, token: RingToken, entered: dict[StreamId, RangeSet]) -> None:
        for lacking in token.lacking[:LACKING_MAX]:
            stream = StreamId(lacking.topic, lacking.term)
            if stream in self.lacking and (lacks := self.bottom.lacks(stream)):
                for contact, ranges in reversed(lacking.holders[:HOLDERS_MAX]):
                    if contact.node_id != self.host.me:
                        self.known.note(stream, contact, intersection(lacks, ranges))
                if stream not in entered:
                    self.bottom.found(stream)

    def _pass_on(self, token: RingToken, entered: dict[StreamId, RangeSet]) -> None:
        following = self._next()
        if following is not None:
            lacking = tuple(self._entered(token.lacking, entered))
            self.host.send(following, RingToken(self.scope, token.starter, token.serial, lacking))

    def _entered(self, lacking: Iterable[Lacking], entered: dict[StreamId, RangeSet]) -> Iterable[Lacking]:
        """What the token contains when it leaves."""
        known = {StreamId(each.topic, each.term): each for each in lacking}
        for stream in [*known, *(stream for stream in entered if stream not in known)][:LACKING_MAX]:
            before = known.get(stream) or Lacking(*stream, ())
            ranges = RangeSet([*before.ranges, *entered.get(stream, ())]).ranges()[:RANGES_MAX]
            holders = [each for each in before.holders if each[0] != self.host.contact][:HOLDERS_MAX]
            if held := difference(self.bottom.holds(stream, ranges), _held_twice(holders))[:RANGES_MAX]:
                holders.append((self.host.contact, tuple(held)))
            yield Lacking(*stream, tuple(ranges), tuple(holders))

    def _next(self) -> Contact | None:
        """The next reachable member of the circle."""
        now, again_s = self.host.now(), self.times.give_up_s
        self.lost = {node: at for node, at in self.lost.items() if now - at < again_s}
        return next((other for other in self.others if other.node_id not in self.lost), None)


def _held_twice(holders: Iterable[tuple[Contact, Iterable[Range]]]) -> RangeSet:
    """What more than one of these holds: no further holder needs to be named for it."""
    once, twice = RangeSet(), RangeSet()
    for _, ranges in holders:
        twice.update(intersection(ranges, once))
        once.update(ranges)
    return twice
