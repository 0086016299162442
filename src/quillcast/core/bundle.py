"""Bundles: a short envelope that hops may rewrite, and immutable blocks of events (docs/delivery.md, *On the wire*).

A **block** is one publisher's run of events in one topic, laid out as Arrow columns on 8-byte bounds, little endian.
The publishers of one peer may share a line of blocks: to everybody on the way they are one publisher, and a column of
**runs** tells the edges which of them published what (docs/decisions/shared-blocks.md).

========= ====== =====================================================================
offset    size   what
========= ====== =====================================================================
0         4      size of the whole block in bytes, a multiple of 8
4         1      layout version (1)
5         1      which optional columns follow: 1 times, 2 keys, 4 attributes, 8 signature, 16 runs
6         2      zero
8         16     PublisherId
24        8      sequence of the first event
32        8      publish time of the first event, nanoseconds since 1970 UTC
40        4      count of events, n
44        4      bytes of payload data
48        ...    payload: n + 1 int32 offsets, then the data; each padded to 8 bytes
...       ...    times: n int64 (else every event has the first one's time)
...       ...    keys, then attributes: n + 1 int32 offsets and data, laid out like the payload
...       ...    runs: their number m (4 bytes, 4 zero), m PublisherIds, m int64 first sequences, m int32 counts
...       ...    signature: 64 bytes over everything before it
========= ====== =====================================================================

A **bundle** on the wire is its head (the envelope and a table of block sizes) and then its blocks, so forwarding is
writing a new head and the same blocks. EmptyDict but the two edges looks inside a block.
"""

import struct
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from io import BytesIO
from itertools import accumulate, chain, pairwise, repeat
from operator import add, sub
from typing import TYPE_CHECKING, Any

from quillcast.core.envelope import Envelope, Kind, Term, new_tuple
from quillcast.core.errors import LocalError, Malformed
from quillcast.core.ids import ID_BYTES
from quillcast.core.messages import NUMBER_MAX

if TYPE_CHECKING:
    import pyarrow

if sys.byteorder != "little":  # pragma: no cover
    raise ImportError("quillcast lays its columns out little endian, as Arrow does on every machine it is built for")

EVENT_COUNT_MAX = 1 << 20  # events in one block; a guess that keeps an edge's step under a tenth of a second
BLOCK_COUNT_MAX = 4096  # blocks in one bundle
_COPIED_BYTES_MAX = 1024  # blocks that are smaller on average are copied out of their bundle; a view costs more
BLOCK_BYTES_MAX = 1 << 30  # in one column of a block: its offsets are int32

_BLOCK = struct.Struct("<IBBH16sqqII")
_HEAD = struct.Struct("<BBHI16sQ16sqIIHH")
BUNDLE_BYTES = _HEAD.size  # what a bundle costs beside its blocks
_LONE_HEAD = struct.Struct(_HEAD.format + "I")  # of a bundle of one block, with its size
_OFFSET = struct.Struct("<i")
_LONE_OFFSETS = struct.Struct("<ii")  # of a column of one value
_LONE_BLOCK = struct.Struct(_BLOCK.format + "ii")  # all that comes before the payload of a block's only event
_LONE_BUNDLE = struct.Struct(_LONE_HEAD.format + _BLOCK.format[1:])  # all that comes before the columns of its block
_RUN_COUNT = struct.Struct("<II")
_ZEROS = b"\0" * 8
_TIMES, _KEYS, _ATTRIBUTES, _SIGNATURE, _RUNS = 1, 2, 4, 8, 16
RUN_BYTES = ID_BYTES + 8 + 4  # what a run costs in its column
_LAYOUT = 1
_EVEN_MIN, _EVEN_MAX = 8, 8192  # events in a block between which it pays to look whether all are of one size


Run = tuple[bytes, int, int]
"""Some events of a block that follow one another: whose they are, the first one's sequence there, and how many."""


def _padded(size: int) -> int:
    return (size + 7) & ~7


def _times(times: Sequence[int], count: int) -> bytes:
    try:
        return struct.pack(f"<{count}q", *times)
    except struct.error as error:
        raise LocalError(f"{len(times)} times for {count} events, each 64 bits of nanoseconds: {error}") from error


@lru_cache(maxsize=16)
def _even(count: int, size: int) -> tuple[bytes, Callable[..., tuple[Any, ...]]]:
    """The offsets of `count` values of `size` bytes each, and what cuts such values out of bytes at an offset.

    Most blocks hold events of one size, and blocks of a busy topic are alike: that is worth a cache of 4 MB at most.
    """
    offsets = struct.pack(f"<{count + 1}i", *accumulate(repeat(size, count), initial=0))
    return offsets, struct.Struct(f"{size}s" * count).unpack_from


def _column_size(count: int, data_bytes: int) -> int:
    """Bytes of a binary column of `count` values that have `data_bytes` together."""
    return (4 * (count + 1) + 7 & ~7) + (data_bytes + 7 & ~7)


def _add_column(parts: list[bytes], values: Sequence[bytes], count: int) -> int:
    """Add the parts of an Arrow binary column, offsets and data padded to 8 bytes; how many bytes of data it holds."""
    if len(values) != count:
        raise LocalError(f"{count} events with a column of {len(values)} values; each event has one")
    if count == 1:
        size = len(values[0])
        parts += (_LONE_OFFSETS.pack(0, size), values[0], _ZEROS[: -size % 8])
        return size
    sizes = set(map(len, values)) if _EVEN_MIN <= count <= _EVEN_MAX else ()
    even = sizes.pop() if len(sizes) == 1 else None
    ends: list[int] = [] if even is not None else list(accumulate(map(len, values), initial=0))
    size = count * even if even is not None else ends[-1]
    if size > BLOCK_BYTES_MAX:
        raise LocalError(f"{count} events of {size} bytes for one block, which holds at most {BLOCK_BYTES_MAX}")
    offsets = _even(count, even)[0] if even is not None else struct.pack(f"<{count + 1}i", *ends)
    parts += (offsets, _ZEROS[: -len(offsets) % 8])
    parts += values
    parts.append(_ZEROS[: -size % 8])
    return size


def _packed(runs: Sequence[Run], count: int) -> bytes:
    """The column of runs, padded to 8 bytes."""
    publishers, firsts, counts = zip(*runs, strict=True)
    if sum(counts) != count or min(counts) < 1:
        raise LocalError(f"{count} events with runs of {sum(counts)}; each event is in one")
    many = len(runs)
    column = b"".join(
        (_RUN_COUNT.pack(many, 0), *publishers, struct.pack(f"<{many}q", *firsts), struct.pack(f"<{many}i", *counts))
    )
    return column + _ZEROS[: -len(column) % 8]


Join = Callable[[list[bytes]], bytes | memoryview]
"""Lays pieces of memory down one after the other."""


class Block:
    """One publisher's run of events in one topic; immutable, passed on by reference.

    Parsing reads the fixed header alone; the columns are checked where they are decoded.
    """

    __slots__ = ("_flags", "_payload_bytes", "count", "data", "first", "last", "publisher", "size", "time_ns")

    last: int
    """One past the last event's sequence."""
    size: int
    """Bytes of the whole block."""

    def __init__(
        self, data: bytes | memoryview, publisher: bytes, first: int, count: int, time_ns: int, flags: int,
        payload_bytes: int,
    ) -> None:  # fmt: skip
        self.data, self.publisher, self.first, self.count = data, publisher, first, count
        self.last, self.size = first + count, len(data)
        self.time_ns, self._flags, self._payload_bytes = time_ns, flags, payload_bytes

    @classmethod
    def parse(cls, data: bytes | memoryview) -> "Block":
        """The block of these bytes, which it keeps. Raises `Malformed` where their header is none."""
        if len(data) < _BLOCK.size:
            raise Malformed(f"a block of {len(data)} bytes is shorter than its header of {_BLOCK.size}")
        size, layout, flags, zero, publisher, first, time_ns, count, payload_bytes = _BLOCK.unpack_from(data)
        if size != len(data) or size % 8 or layout != _LAYOUT or zero or flags > 31:
            raise Malformed(f"a block says {size} bytes in layout {layout}, and {len(data)} bytes came")
        if not 0 < count <= EVENT_COUNT_MAX or not 0 <= first <= NUMBER_MAX - count:
            raise Malformed(f"a block of {count} events from sequence {first}")
        if 4 * (count + 1) > size - _BLOCK.size:
            raise Malformed(f"a block of {size} bytes is too short for {count} events")
        return cls(data, publisher, first, count, time_ns, flags, payload_bytes)

    @classmethod
    def seal(
        cls,
        publisher: bytes,
        first: int,
        payloads: Sequence[bytes],
        *,
        time_ns: int,
        times: Sequence[int] | None = None,
        keys: Sequence[bytes] | None = None,
        attributes: Sequence[bytes] | None = None,
        runs: Sequence[Run] | None = None,
        join: "Join" = b"".join,
    ) -> "Block":
        """Lay events out as one block.

        `first` is the sequence of the first; `time_ns` its publish time; `times`, `keys` and `attributes`, where
        given, hold one entry per payload (attributes are MessagePack maps), and `runs`, where events are not the
        publisher's own, say whose they are; `join` lays the pieces down. Raises `LocalError` where they do not, or
        where there are more events or bytes than a block can hold.
        """
        count, plain = len(payloads), times is None and keys is None and attributes is None and runs is None
        if count == 1 and plain and len(payloads[0]) < _COPIED_BYTES_MAX:
            return cls.lone(publisher, first, payloads[0], time_ns)
        if not 0 < count <= EVENT_COUNT_MAX:
            raise LocalError(f"{count} events for one block, which holds 1 to {EVENT_COUNT_MAX}")
        parts: list[bytes] = [b""]  # the header's place
        payload_bytes = _add_column(parts, payloads, count)
        flags, size = 0, _BLOCK.size + _column_size(count, payload_bytes)
        if times is not None:
            flags |= _TIMES
            size += 8 * count
            parts.append(_times(times, count))
        for flag, values in ((_KEYS, keys), (_ATTRIBUTES, attributes)):
            if values is not None:
                flags |= flag
                size += _column_size(count, _add_column(parts, values, count))
        if runs is not None:
            flags |= _RUNS
            parts.append(_packed(runs, count))
            size += len(parts[-1])
        parts[0] = _BLOCK.pack(size, _LAYOUT, flags, 0, publisher, first, time_ns, count, payload_bytes)
        return cls(join(parts), publisher, first, count, time_ns, flags, payload_bytes)

    @classmethod
    def lone(cls, publisher: bytes, first: int, payload: bytes, time_ns: int) -> "Block":
        """What `seal` makes of one event that is a payload only, in fewer steps: many come alone."""
        payload_bytes = len(payload)
        size = _LONE_BLOCK.size + (payload_bytes + 7 & ~7)
        head = _LONE_BLOCK.pack(size, _LAYOUT, 0, 0, publisher, first, time_ns, 1, payload_bytes, 0, payload_bytes)
        data = b"".join((head, payload, _ZEROS[: -payload_bytes % 8]))
        return cls(data, publisher, first, 1, time_ns, 0, payload_bytes)

    def payloads(self) -> list[bytes]:
        """Every event's payload. Raises `Malformed` if the columns do not check out."""
        if self.count == 1:
            data, end = self.data, _LONE_BLOCK.size + self._payload_bytes
            if end <= len(data) and _LONE_OFFSETS.unpack_from(data, _BLOCK.size) == (0, self._payload_bytes):
                return [bytes(data[_LONE_BLOCK.size : end])]
        return self._values(_BLOCK.size)

    def times(self) -> list[int]:
        """Every event's publish time, nanoseconds since 1970 UTC."""
        if not self._flags & _TIMES:
            return [self.time_ns] * self.count
        times_at = self._times_at()
        return list(memoryview(self.data)[times_at : times_at + 8 * self.count].cast("q"))

    def keys(self) -> list[bytes] | None:
        """Every event's key, or None where the block has no keys."""
        return self._values(self._keys_at()) if self._flags & _KEYS else None

    def attributes(self) -> list[bytes] | None:
        """Every event's attributes as MessagePack maps, or None where the block has none."""
        return self._values(self._attributes_at()) if self._flags & _ATTRIBUTES else None

    @property
    def has_attributes(self) -> bool:
        """Is there a column of attributes?"""
        return bool(self._flags & _ATTRIBUTES)

    @property
    def shared(self) -> bool:
        """Are the events those of the runs' publishers, and not of the block's own?"""
        return bool(self._flags & _RUNS)

    def runs(self) -> list[Run]:
        """Whose events these are, run by run. Raises `Malformed`."""
        return (
            list(zip(*self._run_columns(), strict=True)) if self.shared else [(self.publisher, self.first, self.count)]
        )

    def publishers(self) -> tuple[list[bytes], list[int]]:
        """Every event's publisher, and its sequence there. Raises `Malformed`."""
        if not self.shared:
            return [self.publisher] * self.count, list(range(self.first, self.last))
        publishers, firsts, counts = self._run_columns()
        if len(publishers) == self.count:
            return publishers, list(firsts)
        ranges = map(range, firsts, map(add, firsts, counts))
        return list(chain.from_iterable(map(repeat, publishers, counts))), list(chain.from_iterable(ranges))

    def arrow(self) -> "pyarrow.RecordBatch":
        """The columns as one Arrow batch over the same bytes: seq, time, payload and, where used, key and attributes.

        Where publishers share the block, `publisher` says whose each event is, and `seq` counts that one's.

        Only what a block does not spell out is made: the sequence numbers, and times where all have the first one's.
        The rest is not copied. Raises `Malformed`.
        """
        import pyarrow as pa

        whole = pa.py_buffer(self.data)

        def binary(at: int) -> "pyarrow.Array":
            data_at, size = self._extent(at)
            self._offsets(at)
            offsets = whole.slice(at, 4 * (self.count + 1))
            return pa.Array.from_buffers(pa.binary(), self.count, [None, offsets, whole.slice(data_at, size)])

        publishers, sequences = self.publishers()
        columns = {"seq": pa.array(sequences, pa.int64())}
        if self.shared:
            columns["publisher"] = pa.array(publishers, pa.binary(ID_BYTES))
        if self._flags & _TIMES:
            times = whole.slice(self._times_at(), 8 * self.count)
            columns["time"] = pa.Array.from_buffers(pa.timestamp("ns", "UTC"), self.count, [None, times])
        else:
            columns["time"] = pa.array(self.times(), pa.timestamp("ns", "UTC"))
        columns["payload"] = binary(_BLOCK.size)
        if self._flags & _KEYS:
            columns["key"] = binary(self._keys_at())
        if self._flags & _ATTRIBUTES:
            columns["attributes"] = binary(self._attributes_at())
        return pa.RecordBatch.from_pydict(columns)

    def _extent(self, at: int) -> tuple[int, int]:
        """Where the data of the binary column at byte `at` begins, and how many bytes that is."""
        data_at = at + _padded(4 * (self.count + 1))
        if data_at > len(self.data):
            raise Malformed(
                f"a column of {self.count} events at byte {at} runs past the block's {len(self.data)} bytes"
            )
        (size,) = _OFFSET.unpack_from(self.data, at + 4 * self.count)
        if not 0 <= size <= len(self.data) - data_at:
            raise Malformed(f"a column of {size} bytes from byte {data_at} runs past the block's {len(self.data)}")
        if at == _BLOCK.size and size != self._payload_bytes:
            raise Malformed(f"a block says {self._payload_bytes} bytes of payload, its offsets say {size}")
        return data_at, size

    def _offsets(self, at: int) -> tuple[int, ...]:
        """The offsets of the binary column at byte `at`, which grow from 0."""
        offsets = struct.unpack_from(f"<{self.count + 1}i", self.data, at)
        if offsets[0] != 0 or list(offsets) != sorted(offsets):
            raise Malformed(f"a column of {self.count} events at byte {at} has offsets that do not grow from 0")
        return offsets

    def _values(self, at: int) -> list[bytes]:
        """The values of the binary column at byte `at`."""
        count, data = self.count, self.data
        data_at, size = self._extent(at)
        if _EVEN_MIN <= count <= _EVEN_MAX and size % count == 0:
            even, cut = _even(count, size // count)
            if bytes(data[at : at + len(even)]) == even:  # views compare one by one
                return list(cut(data, data_at))
        offsets = self._offsets(at)
        source = BytesIO(data[data_at : data_at + size])
        return list(map(source.read, map(sub, offsets[1:], offsets)))

    def _times_at(self) -> int:
        at = _BLOCK.size + _padded(4 * (self.count + 1)) + _padded(self._payload_bytes)
        if self._flags & _TIMES and at + 8 * self.count > len(self.data):
            raise Malformed(f"the times of {self.count} events run past the block's {len(self.data)} bytes")
        return at

    def _keys_at(self) -> int:
        return self._times_at() + (8 * self.count if self._flags & _TIMES else 0)

    def _attributes_at(self) -> int:
        if not self._flags & _KEYS:
            return self._keys_at()
        data_at, size = self._extent(self._keys_at())
        return data_at + _padded(size)

    def _runs_at(self) -> int:
        if not self._flags & _ATTRIBUTES:
            return self._attributes_at()
        data_at, size = self._extent(self._attributes_at())
        return data_at + _padded(size)

    def _run_columns(self) -> tuple[list[bytes], tuple[int, ...], tuple[int, ...]]:
        """Publishers, first sequences and counts of all runs."""
        at, data = self._runs_at(), self.data
        many = _RUN_COUNT.unpack_from(data, at)[0] if at + _RUN_COUNT.size <= len(data) else 0
        at += _RUN_COUNT.size
        if not 0 < many <= self.count or at + many * RUN_BYTES > len(data):
            raise Malformed(f"a block of {self.count} events and {len(data)} bytes says it has {many} runs")
        source = BytesIO(data[at : at + many * ID_BYTES])
        publishers = list(map(source.read, repeat(ID_BYTES, many)))
        firsts = struct.unpack_from(f"<{many}q", data, at + many * ID_BYTES)
        counts = struct.unpack_from(f"<{many}i", data, at + many * (ID_BYTES + 8))
        if sum(counts) != self.count or min(counts) < 1 or min(firsts) < 0 or max(firsts) > NUMBER_MAX - self.count:
            raise Malformed(f"a block of {self.count} events has {many} runs of {sum(counts)} from {min(firsts)} on")
        return publishers, firsts, counts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Block) and self.data == other.data

    def __hash__(self) -> int:
        return hash((self.publisher, self.first))

    def __repr__(self) -> str:
        return f"Block({self.publisher[:4].hex()} {self.first}-{self.last}, {self.size} bytes)"


class Bundle:
    """An envelope and the blocks it carries."""

    __slots__ = ("_head", "blocks", "count", "envelope", "last", "size", "topic")

    size: int
    """What it costs in credit and in buffers, in bytes."""
    last: int
    """One past the index of the last event."""

    def __init__(self, envelope: Envelope, blocks: tuple[Block, ...]) -> None:
        self.envelope, self.blocks = envelope, blocks
        self.topic = envelope.topic
        if len(blocks) == 1:
            self.count, self.size = blocks[0].count, BUNDLE_BYTES + blocks[0].size
        else:
            self.count = sum([block.count for block in blocks])
            self.size = BUNDLE_BYTES + sum([block.size for block in blocks])
        self.last = envelope.first + self.count
        self._head: bytes | None = None

    def under(self, envelope: Envelope) -> "Bundle":
        """The same blocks under another envelope."""
        return Bundle(envelope, self.blocks)

    @property
    def head(self) -> bytes:
        """The bytes before the blocks; made once, however many channels the bundle takes."""
        if self._head is None:
            e = self.envelope
            if len(self.blocks) == 1 and not e.record and not e.tags:
                counter, node = e.term
                self._head = _LONE_HEAD.pack(
                    e.kind, 0, 0, e.session, e.topic, counter, node, e.first, self.count, 1, 0, 0, self.blocks[0].size
                )
            else:
                self._head = self._make_head()
        return self._head

    def _make_head(self) -> bytes:
        e = self.envelope
        sizes = struct.pack(f"<{len(self.blocks)}I", *[block.size for block in self.blocks])
        variable = b"".join((sizes, e.record, e.tags))
        fixed = _HEAD.pack(
            e.kind, 0, 0, e.session, e.topic, e.term.counter, e.term.node, e.first, self.count,
            len(self.blocks), len(e.record), len(e.tags),
        )  # fmt: skip
        return b"".join((fixed, variable, _ZEROS[: -(_HEAD.size + len(variable)) % 8]))

    def encode(self) -> bytes:
        """The whole bundle as one piece of bytes."""
        return b"".join([self.head, *(block.data for block in self.blocks)])

    @classmethod
    def decode(cls, data: bytes | memoryview, cut: "Cut | None" = None) -> "Bundle":
        """The bundle of these bytes, which it keeps: nobody may write to them any more. Raises `Malformed`.

        `cut` finds the blocks where they do not follow the head as they are.
        """
        if cut is None and _LONE_BUNDLE.size < len(data) < _COPIED_BYTES_MAX and (lone := cls._lone(data)) is not None:
            return lone
        if len(data) < _HEAD.size:
            raise Malformed(f"a bundle of {len(data)} bytes is shorter than its head of {_HEAD.size}")
        kind, _, _, session, topic, counter, node, first, count, blocks, record, tags = _HEAD.unpack_from(data)
        if kind not in _KINDS or not 0 < blocks <= BLOCK_COUNT_MAX:
            raise Malformed(f"a bundle of kind {kind} with {blocks} blocks")
        if not 0 <= first <= NUMBER_MAX - count or counter > NUMBER_MAX:
            raise Malformed(f"a bundle of term {counter} from {first}")
        record_at = _HEAD.size + 4 * blocks
        at = record_at + record + tags + 7 & ~7
        if at > len(data):
            raise Malformed(f"a bundle's head says {at} bytes, {len(data)} came")
        envelope = Envelope(
            topic, _KINDS[kind], new_tuple(Term, (counter, node)), first, session,
            bytes(data[record_at : record_at + record]) if record else b"",
            bytes(data[record_at + record : record_at + record + tags]) if tags else b"",
        )  # fmt: skip
        sizes = struct.unpack_from(f"<{blocks}I", data, _HEAD.size)
        bundle = cls(envelope, (cut or _cut)(data, at, sizes))
        if bundle.count != count:
            raise Malformed(f"a bundle says {count} events, its blocks hold {bundle.count}")
        return bundle

    @classmethod
    def _lone(cls, data: bytes | memoryview) -> "Bundle | None":
        """What `decode` makes of one small block and nothing beside it, in fewer steps; None where it has to look."""
        (
            kind, _, _, session, topic, counter, node, index, events, blocks, record, tags, block_size,
            size, layout, flags, zero, publisher, first, time_ns, count, payload_bytes,
        ) = _LONE_BUNDLE.unpack_from(data)  # fmt: skip
        if blocks != 1 or record or tags or not size == block_size == len(data) - _LONE_HEAD.size:
            return None
        if size % 8 or layout != _LAYOUT or flags > 31 or zero or 4 * (count + 1) > size - _BLOCK.size:
            return None
        if not 0 < count == events or kind not in _KINDS or counter > NUMBER_MAX:
            return None
        if not 0 <= first <= NUMBER_MAX - count or not 0 <= index <= NUMBER_MAX - count:
            return None
        block = Block(bytes(data[_LONE_HEAD.size :]), publisher, first, count, time_ns, flags, payload_bytes)
        return cls(Envelope(topic, _KINDS[kind], new_tuple(Term, (counter, node)), index, session), (block,))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bundle) and (self.envelope, self.blocks) == (other.envelope, other.blocks)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        e = self.envelope
        return f"Bundle({e.topic[:4].hex()} {e.kind.name} {e.term.counter}:{e.first}-{self.last}, {self.blocks})"


_KINDS = {int(kind): kind for kind in Kind}


Cut = Callable[[bytes | memoryview, int, tuple[int, ...]], tuple[Block, ...]]
"""Finds the blocks of a bundle, of these sizes, whose head ends here."""


def _cut(data: bytes | memoryview, at: int, sizes: tuple[int, ...]) -> tuple[Block, ...]:
    """The blocks of a bundle: within its bytes, or where they are small bytes of their own, which are cheaper."""
    small = len(data) < _COPIED_BYTES_MAX * len(sizes)
    whole = bytes(data) if small else memoryview(data)
    if at + sum(sizes) != len(data):
        raise Malformed(f"a bundle's blocks say {sum(sizes)} bytes, {len(data) - at} came")
    ends = accumulate(sizes, initial=at)
    return tuple([Block.parse(whole[start:end]) for start, end in pairwise(ends)])
