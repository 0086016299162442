"""What a link carries per topic, told once and kept equal at both ends (docs/design.md, decision 4).

For each neighbour there are two maps: what this peer tells it, and what it tells this peer. Whoever tells numbers its
changes and sends each once; the other end keeps a copy. Heartbeats carry a **mark**, the number of the last change and
a digest of the epoch and the whole map, so that a copy that is behind, or wrong, shows within one heartbeat however
many topics there are; it is as long for none as for many. Its holder then asks, and is sent the changes it lacks while
they are remembered, else the buckets that differ. Only an answer to its own question ever moves a copy to another
epoch, so words of a dead process do no harm.

An **epoch** is one life of the telling peer, and how many neighbours it has forgotten in it: what is told anew after a
restart, or to a neighbour that was forgotten, is never taken for the old.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from types import MappingProxyType
from typing import Protocol, TypeVar
from zlib import crc32

from quillcast.core.errors import LocalError, Malformed, RemoteError
from quillcast.core.host import Host, Timer
from quillcast.core.interning import interned
from quillcast.core.messages import Contact, Message
from quillcast.core.trace import Mark
from quillcast.protocol.neighbours.config import StreamConfig
from quillcast.protocol.neighbours.stream_messages import Changes, Contents, Resend

V = TypeVar("V", bytes, bytes | None)

BUCKETS = 64
_DIGEST_BYTES = 8
_LIFE_BYTES = 8  # host.incarnation
_EPOCH_BYTES = _LIFE_BYTES + 4
_SIGN_BYTES = 4
_MARK_BYTES = _SIGN_BYTES + _DIGEST_BYTES
_ENTRY_BYTES = 12  # what MessagePack adds to a key and a value, at most
_NEVER = float("-inf")
UNTOLD = 0, bytes(_MARK_BYTES)
"""The mark of who tells nothing; as long as any other, so that a link costs the same whatever it carries."""
_UNTOLD = b"", UNTOLD[1]
_EMPTY: Mapping[bytes, bytes] = MappingProxyType({})


class StreamListener(Protocol):
    """Who is told what neighbours tell."""

    def changed(self, sender: Contact, key: bytes, value: bytes | None) -> None:
        """The neighbour now tells this value under the key; None: it tells the key no more.

        What it told before a restart and tells again after it, with the same value, is no change.
        """
        ...

    def kept(self, key: bytes) -> bytes:
        """The key, as the listener keeps it for itself, where it does: copies would be many."""
        ...


class Flush(Timer, frozen=True):
    """Timer: send what changed since the last time."""

    node: bytes


class ResendDue(Timer, frozen=True):
    """Timer: the question of that time may have gone unanswered."""

    sender: Contact
    asked_at: float


TIMERS: tuple[type[Timer], ...] = (Flush, ResendDue)
"""What this layer tells itself later."""


class _Map:
    """One map with its digest: the XOR of a hash per entry, constant work per change.

    Digests by bucket of keys are kept once there are as many entries as buckets, and made when asked for before that.
    """

    __slots__ = ("_buckets", "_stamp", "digest", "entries", "epoch", "number", "size_bytes")

    def __init__(self, epoch: bytes) -> None:
        self.epoch, self.number = epoch, 0
        self.entries: dict[bytes, bytes] = {}
        self._buckets: array[int] | None = None
        self._stamp: bytes | None = None  # epoch and digest, once somebody asked
        self.digest = self.size_bytes = 0

    @property
    def buckets(self) -> "array[int]":
        """The digest of each bucket."""
        if self._buckets is not None:
            return self._buckets
        buckets = array("Q", bytes(8 * BUCKETS))
        for key, value in self.entries.items():
            buckets[_bucket(key)] ^= _hash(key, value)
        if len(self.entries) >= BUCKETS:
            self._buckets = buckets
        return buckets

    def set(self, key: bytes, value: bytes | None) -> bool:
        """Enter a value, or with None take the key out. True if that changed anything."""
        old = self.entries.get(key)
        if old == value:
            return False
        change = 0
        if old is not None:
            change ^= _hash(key, old)
            self.size_bytes -= len(key) + len(old)
        if value is None:
            del self.entries[key]
        else:
            change ^= _hash(key, value)
            self.size_bytes += len(key) + len(value)
            self.entries[key] = interned(value)
        if self._buckets is not None:
            self._buckets[_bucket(key)] ^= change
        self.digest ^= change
        self._stamp = None
        return True

    def follow(self, epoch: bytes, number: int) -> None:
        """The map is what it was after that change of that epoch."""
        self.epoch, self.number, self._stamp = epoch, number, None

    def between(self, start: bytes, end: bytes | None, buckets: int) -> list[bytes]:
        """The keys from `start` to before `end` in these buckets."""
        if not buckets:
            return []
        within = (key for key in self.entries if start <= key and (end is None or key < end))
        return [key for key in within if buckets >> _bucket(key) & 1]

    def mark(self) -> tuple[int, bytes]:
        """Number, and bytes that stand for the epoch and for what the map holds."""
        if self._stamp is None:
            self._stamp = _sign(self.epoch) + self.digest.to_bytes(_DIGEST_BYTES, "big")
        return self.number, self._stamp

    def check(self) -> None:
        again = _Map(self.epoch)
        for key, value in self.entries.items():
            again.set(key, value)
        assert (again.buckets, again.digest, again.size_bytes) == (self.buckets, self.digest, self.size_bytes), (
            f"the digest {self.digest:016x} of {len(self.entries)} entries should be {again.digest:016x}"
        )


class _Outgoing(_Map):
    """What this peer tells a neighbour.

    `pending` are the keys that changed since the last flush; `log` holds the keys of the last numbered changes, the
    last of them that of change `number`.
    """

    __slots__ = ("contact", "flush_set", "flushed_at", "log", "pending")

    def __init__(self, contact: Contact, epoch: bytes) -> None:
        super().__init__(epoch)
        self.contact = contact
        self.log: list[bytes] = []
        self.pending: dict[bytes, None] = {}
        self.flushed_at, self.flush_set = _NEVER, False


class _Incoming(_Map):
    """The copy of what a neighbour tells.

    `asked_since` is when the first question was asked that is still open, `answered_at` when a part of an answer came.
    """

    __slots__ = ("answered", "answered_at", "asked_at", "asked_since", "questions")

    def __init__(self) -> None:
        super().__init__(b"")
        self.asked_since: float | None = None
        self.asked_at, self.questions, self.answered, self.answered_at = _NEVER, 0, False, _NEVER

    def passed(self, epoch: bytes, number: int) -> bool:
        """Does the copy stand later than that, in the same life of the one who tells?"""
        return epoch[:_LIFE_BYTES] == self.epoch[:_LIFE_BYTES] and (epoch, number) < (self.epoch, self.number)


class Streams:
    """What this peer and its neighbours tell each other."""

    def __init__(self, host: Host, config: StreamConfig, listener: StreamListener | None = None) -> None:
        """`listener` may be set later; until then nobody hears of changes."""
        self.host, self.config, self.listener = host, config, listener
        self._telling: dict[bytes, _Outgoing] = {}
        self._told: dict[bytes, _Incoming] = {}
        self._forgotten = 0

    # What users of the streams call

    def put(self, to: Contact, key: bytes, value: bytes) -> None:
        """Tell the neighbour a value under a key from now on.

        Raises `LocalError` if the entry does not fit a message, or the map would outgrow its bounds.
        """
        telling = self._telling.get(to.node_id)
        if telling is not None:
            telling.contact = to
            if telling.entries.get(key) == value:
                return
        if len(key) + len(value) + _ENTRY_BYTES > self.config.page_bytes_max:
            raise LocalError(
                f"an entry of {len(key)} + {len(value)} bytes does not fit a message of {self.config.page_bytes_max}"
            )
        if telling is None:
            telling = self._telling[to.node_id] = _Outgoing(to, self._epoch())
        if telling.size_bytes + len(key) + len(value) > self.config.map_bytes_max:
            raise LocalError(
                f"{to.address} is told {telling.size_bytes} bytes already, at most {self.config.map_bytes_max} may be"
            )
        self._change(telling, key, value)

    def drop(self, to: Contact, key: bytes) -> None:
        """Tell the neighbour this key no more."""
        telling = self._telling.get(to.node_id)
        if telling is not None:
            telling.contact = to
            self._change(telling, key, None)

    def hurry(self, node_id: bytes) -> None:
        """Send that peer at once what changed, rather than within `flush_s`."""
        telling = self._telling.get(node_id)
        if telling is not None:
            self._flush(telling)

    def told(self, node_id: bytes) -> Mapping[bytes, bytes]:
        """What that peer tells this one at present; a live view."""
        told = self._told.get(node_id)
        return _EMPTY if told is None else told.entries

    def telling(self, node_id: bytes) -> Mapping[bytes, bytes]:
        """What this peer tells that one at present; a live view."""
        telling = self._telling.get(node_id)
        return _EMPTY if telling is None else telling.entries

    def forget(self, node_id: bytes) -> None:
        """The peer is gone for good. Nothing is sent, and the listener hears nothing: who calls this knows."""
        self._told.pop(node_id, None)
        if self._telling.pop(node_id, None) is not None:
            self._forgotten += 1

    # What heartbeats carry

    def mark(self, node_id: bytes) -> tuple[int, bytes]:
        """Number of the last change told to that peer, and a digest of all of it; `UNTOLD` if nothing was."""
        telling = self._telling.get(node_id)
        if telling is None:
            return UNTOLD
        self._flush(telling)
        return telling.mark()

    def compare(self, sender: Contact, change: int, digest: bytes) -> None:
        """The sender's mark arrived: ask, if the copy is not what it says. Raises `Malformed`."""
        told = self._told.get(sender.node_id)
        if digest in _UNTOLD:
            if told is not None and told.entries:
                self._ask(sender, told)
            return
        if len(digest) != _MARK_BYTES:
            raise Malformed(f"a stream's mark of {len(digest)} bytes; it has {_MARK_BYTES}")
        if told is None:
            told = self._copy(sender)
        if told.mark() == (change, digest):
            told.asked_since = None
        elif change >= told.number or digest[:_SIGN_BYTES] != _sign(told.epoch):
            self._ask(sender, told)

    # What the peer hands in

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
                telling = self._telling.get(node)
                if telling is not None:
                    telling.flush_set = False
                    self._flush(telling)
            case ResendDue(sender, asked_at):
                told = self._told.get(sender.node_id)
                if told is not None and told.asked_since is not None and told.asked_at == asked_at:
                    self._unanswered(sender, told)

    # The telling end

    def _epoch(self) -> bytes:
        return self.host.incarnation + self._forgotten.to_bytes(_EPOCH_BYTES - _LIFE_BYTES, "big")

    def _change(self, telling: _Outgoing, key: bytes, value: bytes | None) -> None:
        if not telling.set(key, value):
            return
        telling.pending[key] = None
        if telling.flush_set:
            return
        wait_s = telling.flushed_at + self.config.flush_s - self.host.now()
        if wait_s <= 0:
            self._flush(telling)
        else:
            telling.flush_set = True
            self.host.set_timer(Flush(telling.contact.node_id), wait_s)

    def _flush(self, telling: _Outgoing) -> None:
        """Number what changed, and send it."""
        if not telling.pending:
            return
        keys, after = list(telling.pending), telling.number
        telling.pending.clear()
        telling.number += len(keys)
        telling.log += keys
        if len(telling.log) > self.config.log_changes_max:
            del telling.log[: len(telling.log) - self.config.log_changes_max // 2]
        telling.flushed_at = self.host.now()
        for message in self._changes(telling, keys, after):
            self.host.send(telling.contact, message)

    def _changes(self, telling: _Outgoing, keys: Sequence[bytes], after: int) -> Iterator[Changes]:
        """Messages with the present values of these keys, which changed one after the other from `after` on."""
        for page in self._pages((key, telling.entries.get(key)) for key in keys):
            yield Changes(telling.epoch, after, after + len(page), tuple(dict(page).items()))
            after += len(page)

    def _answer(self, sender: Contact, question: Resend) -> None:
        """Send the changes that the copy lacks if they are all remembered, else what its differing buckets hold."""
        telling = self._telling.get(sender.node_id) or _Outgoing(sender, self._epoch())
        self._flush(telling)
        lacking, buckets = telling.number - question.number, 0
        if question.epoch == telling.epoch and 0 < lacking <= len(telling.log):
            self.host.trace(Mark("stream_changes_resent"))
            for message in self._changes(telling, telling.log[-lacking:], question.number):
                self.host.send(sender, message)
        else:
            buckets = _differing(telling.buckets, question.digests)
            if buckets:
                self.host.trace(Mark("stream_buckets_sent"))
        for contents in self._contents(telling, question.asked_at, buckets):
            self.host.send(sender, contents)

    def _contents(self, telling: _Outgoing, asked_at: float, buckets: int) -> Iterator[Contents]:
        """Messages with all that these buckets hold; one, if that is nothing."""
        keys = sorted(telling.between(b"", None, buckets))
        pages = list(self._pages((key, telling.entries[key]) for key in keys)) or [[]]
        starts = [b"", *(page[0][0] for page in pages[1:])]
        for page, start, end in zip(pages, starts, [*starts[1:], None], strict=True):
            yield Contents(asked_at, telling.epoch, telling.number, telling.digest, buckets, start, end, tuple(page))

    def _pages(self, entries: Iterable[tuple[bytes, V]]) -> Iterator[list[tuple[bytes, V]]]:
        """Cut into lists that fit one message each."""
        page: list[tuple[bytes, V]] = []
        size = 0
        for key, value in entries:
            entry_bytes = len(key) + len(value or b"") + _ENTRY_BYTES
            if page and size + entry_bytes > self.config.page_bytes_max:
                yield page
                page, size = [], 0
            page.append((key, value))
            size += entry_bytes
        if page:
            yield page

    # The end that is told

    def _copy(self, sender: Contact) -> _Incoming:
        told = self._told.get(sender.node_id)
        if told is None:
            told = self._told[sender.node_id] = _Incoming()
        return told

    def _follow(self, sender: Contact, message: Changes) -> None:
        """Apply the next changes; ask, if others are missing before them."""
        epoch, number = _valid(message.epoch), message.number
        told = self._copy(sender)
        if told.epoch != epoch and not told.entries and message.after == 0 and not told.passed(epoch, 0):
            told.follow(epoch, 0)  # a stream begins with nothing, and so does the copy
        if told.epoch == epoch and message.after <= told.number:
            if number > told.number and self._apply(sender, told, message.changes):
                told.number = number
        elif not told.passed(epoch, number):
            self._ask(sender, told)

    def _replace(self, sender: Contact, message: Contents) -> None:
        """Take over an answer's part of the map, if it answers what is still asked."""
        epoch = _valid(message.epoch)
        told = self._told.get(sender.node_id)
        if told is None or told.asked_since is None or message.asked_at < told.asked_since:
            return
        if told.passed(epoch, message.number):
            return
        told.answered, told.answered_at = True, self.host.now()
        entries = dict(message.entries)
        gone = [(key, None) for key in told.between(message.start, message.end, message.buckets) if key not in entries]
        if not self._apply(sender, told, [*gone, *message.entries]):
            return
        if told.digest == message.digest:
            told.follow(epoch, message.number)
            told.asked_since = None
        elif message.end is None and message.asked_at == told.asked_at:
            self._ask_again(sender, told)  # a part was lost

    def _apply(self, sender: Contact, told: _Incoming, changes: Iterable[tuple[bytes, bytes | None]]) -> bool:
        """Enter changes in the copy, and tell the listener of each. False if that made it forget the sender."""
        for key, value in changes:
            if self._told.get(sender.node_id) is not told:
                return False
            if self.listener is None:
                told.set(key, value)
            elif told.set(self.listener.kept(key), value):
                self.listener.changed(sender, key, value)
            if told.size_bytes > self.config.map_bytes_max:
                raise RemoteError(f"{sender.address} tells more than {self.config.map_bytes_max} bytes on its stream")
        return True

    def _ask(self, sender: Contact, told: _Incoming) -> None:
        """Ask for what the copy lacks, unless that was asked and may yet be answered.

        Who says something new and gave no answer for `ask_again_s` is there, and question or answer were lost.
        """
        now = self.host.now()
        if told.asked_since is None:
            told.asked_since, told.questions = now, 0
            self._question(sender, told)
        elif now - max(told.asked_at, told.answered_at) >= self.config.ask_again_s:
            self._question(sender, told)

    def _question(self, sender: Contact, told: _Incoming) -> None:
        now = told.asked_at = self.host.now()
        told.answered = False
        self.host.send(sender, Resend(now, told.epoch, told.number, told.buckets.tobytes()))
        self.host.set_timer(ResendDue(sender, now), self.config.ask_again_s * 2**told.questions)
        told.questions += 1

    def _unanswered(self, sender: Contact, told: _Incoming) -> None:
        """The answer is not whole yet: wait while parts of it come."""
        if told.answered:
            told.answered = False
            self.host.set_timer(ResendDue(sender, told.asked_at), self.config.ask_again_s)
        else:
            self._ask_again(sender, told)

    def _ask_again(self, sender: Contact, told: _Incoming) -> None:
        """The answer did not do: ask anew a few times, then wait for the next mark."""
        if told.questions < self.config.questions_max:
            self._question(sender, told)
        else:
            told.asked_since = None

    def check(self) -> None:
        """Raise AssertionError if a digest is not that of its map, or changes wait and no timer is set."""
        for telling in self._telling.values():
            telling.check()
            assert telling.flush_set or not telling.pending, f"{len(telling.pending)} changes wait for no timer"
        for told in self._told.values():
            told.check()


def _sign(epoch: bytes) -> bytes:
    """Short, and another one for another epoch: the mark's first bytes."""
    return blake2b(epoch, digest_size=_SIGN_BYTES).digest()


def _bucket(key: bytes) -> int:
    return crc32(key) % BUCKETS


def _hash(key: bytes, value: bytes) -> int:
    """64 bits that stand for one entry."""
    entry = len(key).to_bytes(4, "big") + key + value
    return int.from_bytes(blake2b(entry, digest_size=_DIGEST_BYTES).digest(), "big")


def _differing(ours: "array[int]", theirs: bytes) -> int:
    """A bit for each bucket whose digests differ. Raises `Malformed`."""
    if len(theirs) != _DIGEST_BYTES * BUCKETS:
        raise Malformed(f"{len(theirs)} bytes of bucket digests, where {_DIGEST_BYTES * BUCKETS} are due")
    pairs = zip(ours, memoryview(theirs).cast("Q"), strict=True)
    return sum(1 << bucket for bucket, (our, their) in enumerate(pairs) if our != their)


def _valid(epoch: bytes) -> bytes:
    if len(epoch) != _EPOCH_BYTES:
        raise Malformed(f"a stream's epoch of {len(epoch)} bytes; it has {_EPOCH_BYTES}")
    return epoch
