"""Change streams: per-topic entries that a link carries once and keeps equal at both ends (docs/design.md, decision 4).

Each neighbour has two maps: what this peer sends it, and what it sends this peer. The sender numbers its changes and
sends each once; the other end keeps a copy. Heartbeats carry a **mark**: the number of the last change, and a digest of
the epoch and the whole map. Its size is constant, however many topics there are. So a copy that is behind or wrong is
detected within one heartbeat. Its holder then asks for the missing changes, if they are still remembered, or for the
buckets that differ. A copy moves to another epoch only by an answer to its own request, so late messages of a dead
process do no harm.

An **epoch** is one incarnation of the sender and how many neighbours it has forgotten since. So entries that are sent
again, after a restart or to a forgotten neighbour, are never mistaken for the old ones.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol, TypeVar

from quillcast.core.errors import Implausible, LocalError, Malformed, RemoteError
from quillcast.core.host import Host, Timer
from quillcast.core.messages import Contact, Message
from quillcast.core.trace import Mark
from quillcast.protocol.neighbours.config import StreamConfig
from quillcast.protocol.neighbours.stream_maps import (
    BUCKETS,
    DIGEST_BYTES,
    LIFE_BYTES,
    SIGN_BYTES,
    Incoming,
    Outgoing,
    sign,
)
from quillcast.protocol.neighbours.stream_messages import Changes, Contents, Resend

V = TypeVar("V", bytes, bytes | None)

TOPICS_SHARE = 1 / 2  # of a map's bound, for topics: entries grow, and sources have some; a guess
SOURCES_SHARE = 3 / 4  # the rest is for entries that grow; a guess
_EPOCH_BYTES = LIFE_BYTES + 4
_MARK_BYTES = SIGN_BYTES + DIGEST_BYTES
_MAPS_MIN = 64  # maps that are kept before former neighbours are looked for; a guess
_ENTRY_BYTES = 12  # the most that MessagePack adds to a key and a value
UNTOLD = 0, bytes(_MARK_BYTES)
"""The mark of an end that sends no entries. It is as long as any other, so that the cost of a link is constant."""
_UNTOLD = b"", UNTOLD[1]
_EMPTY: Mapping[bytes, bytes] = MappingProxyType({})


class StreamListener(Protocol):
    """Hears of the changes that neighbours send."""

    def changed(self, sender: Contact, key: bytes, value: bytes | None) -> None:
        """The neighbour sent a new value for the key, or None if it removed the key, which may never have been sent.

        It is not a change if the neighbour sends the same value after a restart. Raises `Implausible` for a value
        that is not to be kept.
        """
        ...

    def kept(self, key: bytes) -> bytes:
        """Return the listener's own copy of the key if it has one, so that many copies need not be stored."""
        ...


class Flush(Timer, frozen=True):
    """Send what changed since the last flush."""

    node: bytes


class ResendDue(Timer, frozen=True):
    """The request sent at that time may not have been answered."""

    sender: Contact
    asked_at: float


TIMERS: tuple[type[Timer], ...] = (Flush, ResendDue)
"""The timers of this layer."""


class Streams:
    """The change streams between this peer and its neighbours."""

    __slots__ = (
        "_copied_bytes", "_forgotten", "_incoming", "_is_neighbour", "_outgoing", "_room_until", "config", "host",
        "listener",
    )  # fmt: skip

    def __init__(self, host: Host, config: StreamConfig, listener: StreamListener | None = None) -> None:
        """Without a `listener` changes are not reported (`report_to`)."""
        self.host, self.config, self.listener = host, config, listener
        self._is_neighbour: Callable[[bytes], bool] = lambda node_id: True
        self._outgoing: dict[bytes, Outgoing] = {}
        self._incoming: dict[bytes, Incoming] = {}
        self._copied_bytes = 0  # of all copies
        self._forgotten = 0
        self._room_until = _MAPS_MIN

    def report_to(self, listener: StreamListener | None, is_neighbour: Callable[[bytes], bool]) -> None:
        """Report changes to this listener from now on.

        `is_neighbour` says whether a peer still is one. The maps of other peers are forgotten when there are many of
        them.
        """
        self.listener, self._is_neighbour = listener, is_neighbour

    # Calls of users of the streams

    def put(self, to: Contact, key: bytes, value: bytes) -> None:
        """Set a value under a key in the map for this neighbour.

        Beyond the bound of the map, the value is not sent, and the neighbour keeps the old one. Check first (`crowded`,
        `full`). Raises `LocalError` if the entry does not fit in a message.
        """
        outgoing = self._outgoing.get(to.node_id)
        if outgoing is not None:
            if outgoing.contact is not to:
                outgoing.move_to(to)
            if outgoing.entries.get(key) == value:
                return
        if len(key) + len(value) + _ENTRY_BYTES > self.config.page_bytes_max:
            raise LocalError(
                f"an entry of {len(key)} + {len(value)} bytes exceeds the limit of {self.config.page_bytes_max}; "
                "use shorter values"
            )
        if outgoing is None:
            self._make_room()
            outgoing = self._outgoing[to.node_id] = Outgoing(to, self._epoch())
        old = outgoing.entries.get(key)
        before = len(key) + len(old) if old is not None else 0
        if outgoing.size_bytes - before + len(key) + len(value) > self.config.map_bytes_max:
            self.host.trace(Mark("reports_full"))
            return
        self._change(outgoing, key, value)

    def crowded(self, node_id: bytes) -> bool:
        """Whether this peer and that one send each other too many entries for one more topic."""
        incoming = self._incoming.get(node_id)
        told = incoming.size_bytes if incoming is not None else 0
        return max(told, self._telling_bytes(node_id)) >= TOPICS_SHARE * self.config.map_bytes_max

    def full(self, node_id: bytes) -> bool:
        """Whether this peer sends that one too many entries for one more source.

        Entries that it receives do not count: any neighbour can invent them.
        """
        return self._telling_bytes(node_id) >= SOURCES_SHARE * self.config.map_bytes_max

    def _telling_bytes(self, node_id: bytes) -> int:
        outgoing = self._outgoing.get(node_id)
        return outgoing.size_bytes if outgoing is not None else 0

    def drop(self, to: Contact, key: bytes) -> None:
        """Remove a key from the map for this neighbour."""
        outgoing = self._outgoing.get(to.node_id)
        if outgoing is not None:
            outgoing.move_to(to)
            self._change(outgoing, key, None)

    def hurry(self, node_id: bytes) -> None:
        """Send the changes for that peer at once, not only after `flush_s`."""
        outgoing = self._outgoing.get(node_id)
        if outgoing is not None:
            self._flush(outgoing)

    def told(self, node_id: bytes) -> Mapping[bytes, bytes]:
        """Return the map that this peer has received from that one; a live view."""
        incoming = self._incoming.get(node_id)
        return _EMPTY if incoming is None else incoming.entries

    def doubt(self, node_id: bytes, key: bytes) -> None:
        """Reject what that peer sent under a key: it is asked for it again with its next mark."""
        incoming = self._incoming.get(node_id)
        if incoming is not None:
            self._set(incoming, key, None)

    def run_of(self, node_id: bytes) -> bytes:
        """Return the incarnation that sent the whole map here; empty if none did, or more of it is asked for."""
        incoming = self._incoming.get(node_id)
        return incoming.epoch[:LIFE_BYTES] if incoming is not None and incoming.asked_since is None else b""

    def ask_anew(self, of: Contact, key: bytes) -> None:
        """Ask for a key that may be out of date, and report the answer even if it is the same."""
        self.doubt(of.node_id, key)
        incoming = self._incoming.get(of.node_id)
        if incoming is not None:
            self._ask(of, incoming)

    def telling(self, node_id: bytes) -> Mapping[bytes, bytes]:
        """Return the map that this peer sends to that one; a live view."""
        outgoing = self._outgoing.get(node_id)
        return _EMPTY if outgoing is None else outgoing.entries

    def forget(self, node_id: bytes) -> None:
        """Forget a peer that is gone for good. Nothing is sent, and the listener is not told: the caller knows."""
        if node_id in self._incoming:
            self._give_up(node_id)
        if self._outgoing.pop(node_id, None) is not None:
            self._forgotten += 1

    # Marks of heartbeats

    def mark(self, node_id: bytes) -> tuple[int, bytes]:
        """Return the number of the last change sent to that peer and a digest of the map; `UNTOLD` if there is none."""
        outgoing = self._outgoing.get(node_id)
        if outgoing is None:
            return UNTOLD
        self._flush(outgoing)
        return outgoing.mark()

    def compare(self, sender: Contact, change: int, digest: bytes) -> None:
        """Compare the sender's mark, and ask if the copy differs. Raises `Malformed`."""
        incoming = self._incoming.get(sender.node_id)
        if digest in _UNTOLD:
            if incoming is not None and incoming.entries:
                self._ask(sender, incoming)
            return
        if len(digest) != _MARK_BYTES:
            raise Malformed(f"a stream's mark has {len(digest)} bytes; {_MARK_BYTES} are required")
        if incoming is None:
            incoming = self._copy(sender)
        if incoming.mark() == (change, digest):
            incoming.close_request()
        elif change >= incoming.number or digest[:SIGN_BYTES] != sign(incoming.epoch):
            self._ask(sender, incoming)

    # Inputs from the peer

    def receive(self, sender: Contact, message: Message) -> None:
        match message:
            case Changes():
                self._follow(sender, message)
            case Resend():
                self._answer(sender, message)
            case Contents():
                self._replace(sender, message)

    def timer(self, timer: Flush | ResendDue) -> None:
        match timer:
            case Flush(node):
                outgoing = self._outgoing.get(node)
                if outgoing is not None:
                    outgoing.set_flush(False)
                    self._flush(outgoing)
            case ResendDue(sender, asked_at):
                incoming = self._incoming.get(sender.node_id)
                if incoming is not None and incoming.asked_since is not None and incoming.asked_at == asked_at:
                    self._unanswered(sender, incoming)

    # The sending end

    def _epoch(self) -> bytes:
        return self.host.incarnation + self._forgotten.to_bytes(_EPOCH_BYTES - LIFE_BYTES, "big")

    def _change(self, outgoing: Outgoing, key: bytes, value: bytes | None) -> None:
        if not outgoing.change(key, value) or outgoing.flush_set:
            return
        wait_s = outgoing.flushed_at + self.config.flush_s - self.host.now()
        if wait_s <= 0:
            self._flush(outgoing)
        else:
            outgoing.set_flush(True)
            self.host.set_timer(Flush(outgoing.contact.node_id), wait_s)

    def _flush(self, outgoing: Outgoing) -> None:
        """Number the pending changes, and send them."""
        if not outgoing.pending:
            return
        after = outgoing.number
        keys = outgoing.number_pending(self.config.log_changes_max, self.host.now())
        for message in self._changes(outgoing, keys, after):
            self.host.send(outgoing.contact, message)

    def _changes(self, outgoing: Outgoing, keys: Sequence[bytes], after: int) -> list[Changes]:
        """Return messages with the present values of these keys, which changed in this order after change `after`."""
        if len(keys) == 1:  # common case: one busy topic
            return [Changes(outgoing.epoch, after, after + 1, ((keys[0], outgoing.entries.get(keys[0])),))]
        messages = list[Changes]()
        for page in self._pages([(key, outgoing.entries.get(key)) for key in keys]):
            messages.append(Changes(outgoing.epoch, after, after + len(page), tuple(dict(page).items())))
            after += len(page)
        return messages

    def _answer(self, sender: Contact, request: Resend) -> None:
        """Send the missing changes if all are remembered, otherwise the contents of the buckets that differ."""
        outgoing = self._outgoing.get(sender.node_id) or Outgoing(sender, self._epoch())
        self._flush(outgoing)
        missing, buckets = outgoing.number - request.number, 0
        if request.epoch == outgoing.epoch and 0 < missing <= len(outgoing.log):
            self.host.trace(Mark("stream_changes_resent"))
            for message in self._changes(outgoing, outgoing.log[-missing:], request.number):
                self.host.send(sender, message)
        else:
            buckets = _differing(outgoing.buckets, request.digests)
            if buckets:
                self.host.trace(Mark("stream_buckets_sent"))
        for contents in self._contents(outgoing, request.asked_at, buckets):
            self.host.send(sender, contents)

    def _contents(self, outgoing: Outgoing, asked_at: float, buckets: int) -> Iterator[Contents]:
        """Yield messages with the contents of these buckets; one message if they are empty."""
        keys = sorted(outgoing.between(b"", None, buckets))
        pages = self._pages([(key, outgoing.entries[key]) for key in keys]) or [[]]
        starts = [b"", *(page[0][0] for page in pages[1:])]
        for page, start, end in zip(pages, starts, [*starts[1:], None], strict=True):
            yield Contents(asked_at, outgoing.epoch, outgoing.number, outgoing.digest, buckets, start, end, tuple(page))

    def _pages(self, entries: Iterable[tuple[bytes, V]]) -> list[list[tuple[bytes, V]]]:
        """Split the entries into lists that fit one message each."""
        pages = list[list[tuple[bytes, V]]]()
        left_bytes = 0
        for key, value in entries:
            entry_bytes = len(key) + len(value or b"") + _ENTRY_BYTES
            if not pages or entry_bytes > left_bytes:
                pages.append([])
                left_bytes = self.config.page_bytes_max
            pages[-1].append((key, value))
            left_bytes -= entry_bytes
        return pages

    # The receiving end

    def _copy(self, sender: Contact) -> Incoming:
        self._make_room()
        incoming = self._incoming[sender.node_id] = Incoming()
        return incoming

    def _make_room(self) -> None:
        """Make room for one more map: forget those of former neighbours once the maps have doubled since last time."""
        if len(self._incoming) + len(self._outgoing) >= self._room_until:
            self._drop_former()

    def _drop_former(self, except_for: bytes = b"") -> None:
        """Forget all peers that are no longer neighbours, except for one."""
        for node in {**self._incoming, **self._outgoing}:
            if node != except_for and not self._is_neighbour(node):
                self.forget(node)
        self._room_until = max(_MAPS_MIN, 2 * (len(self._incoming) + len(self._outgoing)))

    def _follow(self, sender: Contact, message: Changes) -> None:
        """Apply the next changes, or ask if earlier ones are missing."""
        epoch, number = _checked_epoch(message.epoch), message.number
        incoming = self._incoming.get(sender.node_id) or self._copy(sender)
        if incoming.epoch != epoch and not incoming.entries and message.after == 0 and not incoming.passed(epoch, 0):
            incoming.follow(epoch, 0)  # a stream starts empty, and so does the copy
        if incoming.epoch == epoch and message.after <= incoming.number:
            if number > incoming.number and self._apply(sender, incoming, message.changes):
                incoming.advance(number)
        elif not incoming.passed(epoch, number):
            self._ask(sender, incoming)
            incoming.note_removed(key for key, value in message.changes if value is None)

    def _replace(self, sender: Contact, message: Contents) -> None:
        """Replace a part of the copy by an answer, if its request is still open."""
        epoch = _checked_epoch(message.epoch)
        incoming = self._incoming.get(sender.node_id)
        if incoming is None or incoming.asked_since is None or message.asked_at < incoming.asked_since:
            return
        if incoming.passed(epoch, message.number):
            return
        incoming.note_answer(self.host.now())
        entries = dict(message.entries)
        gone = [
            (key, None) for key in incoming.between(message.start, message.end, message.buckets) if key not in entries
        ]
        if not self._apply(sender, incoming, [*gone, *message.entries]):
            return
        if incoming.digest == message.digest:
            incoming.follow(epoch, message.number)
            incoming.close_request()
            self._apply(sender, incoming, [(key, None) for key in incoming.take_removed()])
        elif message.end is None and message.asked_at == incoming.asked_at:
            self._ask_again(sender, incoming)  # a part was lost

    def _apply(self, sender: Contact, incoming: Incoming, changes: Iterable[tuple[bytes, bytes | None]]) -> bool:
        """Apply changes to the copy, and tell the listener. False if the listener then forgot the sender.

        It also hears of removed keys that it never knew. Such an entry was removed before it was sent, and the listener
        may wait for what that means.
        """
        for key, value in changes:
            if self._incoming.get(sender.node_id) is not incoming:
                return False
            before = incoming.entries.get(key)
            if self.listener is None:
                self._set(incoming, key, value)
            elif self._set(incoming, key if before is not None else self.listener.kept(key), value) or value is None:
                try:
                    self.listener.changed(sender, key, value)
                except Implausible:
                    if self._incoming.get(sender.node_id) is incoming:
                        self._set(incoming, key, before)  # so the digests differ, and it is asked for again
            config = self.config
            too_large = incoming.size_bytes > config.map_bytes_max or self._copied_bytes > config.copies_bytes_max
            if too_large and self._incoming.get(sender.node_id) is incoming:
                self._give_up_large(sender, incoming)
        return True

    def _set(self, incoming: Incoming, key: bytes, value: bytes | None) -> bool:
        """Set a value in a copy, and count its bytes. True if that changed the copy."""
        size_bytes = incoming.size_bytes
        changed = incoming.set(key, value)
        self._copied_bytes += incoming.size_bytes - size_bytes
        return changed

    def _give_up_large(self, sender: Contact, incoming: Incoming) -> None:
        """Give up a copy that has grown too large, by itself or as the largest of too many.

        Raises `RemoteError` if that is this one. Any other neighbour is asked for its entries again later.
        """
        config = self.config
        if incoming.size_bytes > config.map_bytes_max:
            self._give_up(sender.node_id)
            raise RemoteError(f"{sender.address} sent more than {config.map_bytes_max} bytes of entries on its stream "
                              "(streams.map_bytes_max)")  # fmt: skip
        if self._copied_bytes > config.copies_bytes_max:
            self._drop_former(except_for=sender.node_id)
        while self._copied_bytes > config.copies_bytes_max:
            largest = max(self._incoming, key=lambda node: self._incoming[node].size_bytes)
            self._give_up(largest)
            if largest == sender.node_id:
                raise RemoteError(
                    f"{sender.address} sent {incoming.size_bytes} bytes of entries on its stream, more than any other "
                    f"neighbour, and all of them are over {config.copies_bytes_max} (streams.copies_bytes_max)"
                )

    def _give_up(self, node_id: bytes) -> None:
        self._copied_bytes -= self._incoming.pop(node_id).size_bytes

    def _ask(self, sender: Contact, incoming: Incoming) -> None:
        """Ask for the changes that the copy misses, unless a request is open that may still be answered.

        A sender that sends news but did not answer for `ask_again_s` is alive: request or answer were lost.
        """
        now = self.host.now()
        if incoming.asked_since is None:
            incoming.open_request(now)
            self._request(sender, incoming)
        elif now - max(incoming.asked_at, incoming.answered_at) >= self.config.ask_again_s:
            self._request(sender, incoming)

    def _request(self, sender: Contact, incoming: Incoming) -> None:
        now = self.host.now()
        self.host.send(sender, Resend(now, incoming.epoch, incoming.number, incoming.buckets.tobytes()))
        self.host.set_timer(ResendDue(sender, now), self.config.ask_again_s * 2**incoming.requests)
        incoming.note_request(now)

    def _unanswered(self, sender: Contact, incoming: Incoming) -> None:
        """The answer is not complete: wait while parts of it arrive."""
        if incoming.take_answered():
            self.host.set_timer(ResendDue(sender, incoming.asked_at), self.config.ask_again_s)
        else:
            self._ask_again(sender, incoming)

    def _ask_again(self, sender: Contact, incoming: Incoming) -> None:
        """The answer failed: ask again a few times, then wait for the next mark."""
        if incoming.requests < self.config.questions_max:
            self._request(sender, incoming)
        else:
            incoming.close_request()

    def check(self) -> None:
        """Raise AssertionError if the digest of a map is wrong, or changes wait and no timer is set."""
        for outgoing in self._outgoing.values():
            outgoing.check()
            assert outgoing.flush_set or not outgoing.pending, f"{len(outgoing.pending)} changes wait without a timer"
        for incoming in self._incoming.values():
            incoming.check()
        assert self._copied_bytes == sum(incoming.size_bytes for incoming in self._incoming.values())


def _differing(ours: "array[int]", theirs: bytes) -> int:
    """Return the buckets whose digests differ, one bit each. Raises `Malformed`."""
    if len(theirs) != DIGEST_BYTES * BUCKETS:
        raise Malformed(f"{len(theirs)} bytes of bucket digests; {DIGEST_BYTES * BUCKETS} are required")
    pairs = zip(ours, memoryview(theirs).cast("Q"), strict=True)
    return sum(1 << bucket for bucket, (our, their) in enumerate(pairs) if our != their)


def _checked_epoch(epoch: bytes) -> bytes:
    if len(epoch) != _EPOCH_BYTES:
        raise Malformed(f"a stream's epoch has {len(epoch)} bytes; {_EPOCH_BYTES} are required")
    return epoch
