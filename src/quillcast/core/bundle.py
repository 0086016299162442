"""Bundles: a short envelope that hops may rewrite, and immutable blocks of events (docs/delivery.md, *On the wire*).

A **block** is a run of events of one publisher in one topic, as little-endian Arrow columns, aligned to 8 bytes. The
publishers of one peer may share blocks; in transit they count as one publisher. At the edges, a column of **runs** says
which publisher published which events (docs/decisions/shared-blocks.md).

========= ====== =====================================================================
offset    size   what
========= ====== =====================================================================
0         4      size of the whole block in bytes, a multiple of 8
4         1      layout version (1)
5         1      flags of the optional columns: 1 times, 2 keys, 4 attributes, 8 signature, 16 runs
6         2      reserved, zero
8         16     PublisherId
24        8      sequence of the first event
32        8      publish time of the first event, nanoseconds since 1970 UTC
40        4      count of events, n
44        4      bytes of payload data
48        ...    payload: n + 1 int32 offsets, then the data; each padded to 8 bytes
...       ...    times: n int64 (without them, every event has the time of the first)
...       ...    keys, then attributes: n + 1 int32 offsets and data, with the layout of the payload
...       ...    runs: their count m (4 bytes, 4 zero), m PublisherIds, m int64 first sequences, m int32 counts
...       ...    signature: 64 bytes over everything before it
========= ====== =====================================================================

On the wire, a **bundle** is its head (the envelope and a table of block sizes), followed by its blocks. To forward it,
a peer writes a new head and the same blocks. Only the two edges look inside a block.
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
    raise ImportError(
        "quillcast stores columns as little-endian Arrow; run it on a little-endian machine, not on this one"
    )

EVENT_COUNT_MAX = 1 << 20  # events in one block; a guess that keeps a step at the edge below a tenth of a second
BLOCK_COUNT_MAX = 4096  # blocks in one bundle
_COPIED_BYTES_MAX = 1024  # blocks of a smaller mean size are copied out of their bundle: views are more expensive
BLOCK_BYTES_MAX = 1 << 30  # in one column of a block, because its offsets are int32

_BLOCK = struct.Struct("<IBBH16sqqII")
_HEAD = struct.Struct("<BBHI16sQ16sqIIHH")
BUNDLE_BYTES = _HEAD.size  # size of a bundle without its blocks
_LONE_HEAD = struct.Struct(_HEAD.format + "I")  # head of a bundle with one block, with that block's size
_OFFSET = struct.Struct("<i")
_LONE_OFFSETS = struct.Struct("<ii")  # offsets of a column with one value
_LONE_BLOCK = struct.Struct(_BLOCK.format + "ii")  # everything before the payload of a block with one event
# everything before the columns of the block, with two groups of small fields as one number each
_LONE_BUNDLE = struct.Struct("<BBHI16sQ16sQIQIII16sQqII")
_ONE_BLOCK = 1  # one block, and neither a record nor tags
_FORM_MASK = 0xFFFFE0FF  # all of a block's layout, flags and reserved bytes except the five flags
_SMALL_BITS = 61  # of the numbers in such a bundle, so that adding a count cannot make them too large
_BLOCK_BYTES, _LONE_HEAD_BYTES, _LONE_BLOCK_BYTES, _LONE_BUNDLE_BYTES = (
    each.size for each in (_BLOCK, _LONE_HEAD, _LONE_BLOCK, _LONE_BUNDLE)
)
_RUN_COUNT = struct.Struct("<II")
_ZEROS = b"\0" * 8
_TIMES, _KEYS, _ATTRIBUTES, _SIGNATURE, _RUNS = 1, 2, 4, 8, 16
RUN_BYTES = ID_BYTES + 8 + 4  # size of a run in its column
_LAYOUT = 1
_EVEN_MIN, _EVEN_MAX = 8, 8192  # event counts for which it is worth checking for events of equal size


Run = tuple[bytes, int, int]
"""Consecutive events of one publisher in a block: the publisher, the sequence of the first event, and their count."""


def _padded(size: int) -> int:
    return (size + 7) & ~7


def _times(times: Sequence[int], count: int) -> bytes:
    try:
        return struct.pack(f"<{count}q", *times)
    except struct.error as error:
        raise LocalError(
            f"{len(times)} times given for {count} events; give one per event, as 64-bit nanoseconds: {error}"
        ) from error


@lru_cache(maxsize=16)
def _even(count: int, size: int) -> tuple[bytes, Callable[..., tuple[Any, ...]]]:
    """The offsets of `count` values of `size` bytes each, and a function that cuts them out of bytes at an offset.

    Most blocks contain events of equal size, and the blocks of a busy topic are alike. The cache takes at most 4 MB.
    """
    offsets = struct.pack(f"<{count + 1}i", *accumulate(repeat(size, count), initial=0))
    return offsets, struct.Struct(f"{size}s" * count).unpack_from


def _column_size(count: int, data_bytes: int) -> int:
    """The size in bytes of a binary column of `count` values with `data_bytes` bytes of data."""
    return (4 * (count + 1) + 7 & ~7) + (data_bytes + 7 & ~7)


def _add_column(parts: list[bytes], values: Sequence[bytes], count: int) -> int:
    """Append the parts of an Arrow binary column (offsets and data, padded to 8 bytes). Returns its bytes of data."""
    if len(values) != count:
        raise LocalError(f"a column has {len(values)} values for {count} events; give one value per event")
    if count == 1:
        size = len(values[0])
        parts += (_LONE_OFFSETS.pack(0, size), values[0], _ZEROS[: -size % 8])
        return size
    sizes = set(map(len, values)) if _EVEN_MIN <= count <= _EVEN_MAX else ()
    even = sizes.pop() if len(sizes) == 1 else None
    ends: list[int] = [] if even is not None else list(accumulate(map(len, values), initial=0))
    size = count * even if even is not None else ends[-1]
    if size > BLOCK_BYTES_MAX:
        raise LocalError(f"{count} events have {size} bytes together; a block holds at most {BLOCK_BYTES_MAX}")
    offsets = _even(count, even)[0] if even is not None else struct.pack(f"<{count + 1}i", *ends)
    parts += (offsets, _ZEROS[: -len(offsets) % 8])
    parts += values
    parts.append(_ZEROS[: -size % 8])
    return size


def _packed(runs: Sequence[Run], count: int) -> bytes:
    """The column of runs, padded to 8 bytes."""
    publishers, firsts, counts = zip(*runs, strict=True)
    if sum(counts) != count or min(counts) < 1:
        raise LocalError(f"runs of {counts} events in a block of {count}; each event must be in one run")
    many = len(runs)
    column = b"".join(
        (_RUN_COUNT.pack(many, 0), *publishers, struct.pack(f"<{many}q", *firsts), struct.pack(f"<{many}i", *counts))
    )
    return column + _ZEROS[: -len(column) % 8]


Join = Callable[[list[bytes]], bytes | memoryview]
"""Concatenates pieces of memory."""


class Block:
    """A run of events of one publisher in one topic. Immutable, passed by reference.

    Parsing reads only the fixed header. The columns are checked when they are decoded.
    """

    __slots__ = ("_flags", "_payload_bytes", "count", "data", "first", "last", "publisher", "size", "time_ns")

    last: int
    """One past the last event's sequence."""
    size: int
    """The size of the whole block in bytes."""

    def __init__(
        self, data: bytes | memoryview, publisher: bytes, first: int, count: int, time_ns: int, flags: int,
        payload_bytes: int,
    ) -> None:  # fmt: skip
        self.data, self.publisher, self.first, self.count = data, publisher, first, count
        self.last, self.size = first + count, len(data)
        self.time_ns, self._flags, self._payload_bytes = time_ns, flags, payload_bytes

    def move_to(self, data: memoryview) -> None:
        """Keep its bytes elsewhere: here are the same ones."""
        self.data = data

    @classmethod
    def parse(cls, data: bytes | memoryview) -> "Block":
        """Make a block of these bytes, which it keeps. Raises `Malformed` if their header is invalid."""
        if len(data) < _BLOCK_BYTES:
            raise Malformed(f"a block of {len(data)} bytes is shorter than its header of {_BLOCK_BYTES}")
        size, layout, flags, zero, publisher, first, time_ns, count, payload_bytes = _BLOCK.unpack_from(data)
        if size != len(data) or size % 8 or layout != _LAYOUT or zero or flags > 31:
            raise Malformed(f"a block's header gives {size} bytes in layout {layout}, but {len(data)} bytes arrived")
        if not 0 < count <= EVENT_COUNT_MAX or not 0 <= first <= NUMBER_MAX - count:
            raise Malformed(f"invalid block of {count} events from sequence {first}")
        if 4 * (count + 1) > size - _BLOCK_BYTES:
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

        `first` is the sequence of the first event and `time_ns` its publish time. If given, `times`, `keys` and
        `attributes` have one entry per payload (attributes are MessagePack maps). `runs` names the publishers of the
        events if these are not the block's publisher. `join` concatenates the pieces. Raises `LocalError` if the
        lengths differ, or if there are more events or bytes than a block can hold.
        """
        count, plain = len(payloads), times is None and keys is None and attributes is None and runs is None
        if count == 1 and plain and len(payloads[0]) < _COPIED_BYTES_MAX:
            return cls.lone(publisher, first, payloads[0], time_ns)
        if not 0 < count <= EVENT_COUNT_MAX:
            raise LocalError(f"{count} events cannot be one block; a block holds 1 to {EVENT_COUNT_MAX}")
        parts: list[bytes] = [b""]  # reserves the place of the header
        payload_bytes = _add_column(parts, payloads, count)
        flags, size = 0, _BLOCK_BYTES + _column_size(count, payload_bytes)
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
        """Do the same as `seal`, in fewer steps, for the common case of one event with only a payload."""
        payload_bytes = len(payload)
        size = _LONE_BLOCK_BYTES + (payload_bytes + 7 & ~7)
        head = _LONE_BLOCK.pack(size, _LAYOUT, 0, 0, publisher, first, time_ns, 1, payload_bytes, 0, payload_bytes)
        data = b"".join((head, payload, _ZEROS[: -payload_bytes % 8]))
        return cls(data, publisher, first, 1, time_ns, 0, payload_bytes)

    def payloads(self) -> list[bytes]:
        """The payload of every event. Raises `Malformed` if the columns are inconsistent."""
        if self.count == 1:
            data, end = self.data, _LONE_BLOCK_BYTES + self._payload_bytes
            if end <= len(data) and _LONE_OFFSETS.unpack_from(data, _BLOCK_BYTES) == (0, self._payload_bytes):
                return [bytes(data[_LONE_BLOCK_BYTES:end])]
        return self._values(_BLOCK_BYTES)

    def times(self) -> list[int]:
        """The publish time of every event, nanoseconds since 1970 UTC."""
        if not self._flags & _TIMES:
            return [self.time_ns] * self.count
        times_at = self._times_at()
        return list(memoryview(self.data)[times_at : times_at + 8 * self.count].cast("q"))

    def keys(self) -> list[bytes] | None:
        """The key of every event, or None if the block has no keys."""
        return self._values(self._keys_at()) if self._flags & _KEYS else None

    def attributes(self) -> list[bytes] | None:
        """The attributes of every event as MessagePack maps, or None if the block has none."""
        return self._values(self._attributes_at()) if self._flags & _ATTRIBUTES else None

    @property
    def has_attributes(self) -> bool:
        """Whether the block has a column of attributes."""
        return bool(self._flags & _ATTRIBUTES)

    @property
    def shared(self) -> bool:
        """Whether several publishers share the block; then its runs name the publishers of its events."""
        return bool(self._flags & _RUNS)

    def runs(self) -> list[Run]:
        """The runs of events by publisher. Raises `Malformed`."""
        return (
            list(zip(*self._run_columns(), strict=True)) if self.shared else [(self.publisher, self.first, self.count)]
        )

    def publishers(self) -> tuple[list[bytes], list[int]]:
        """The publisher of every event, and the event's sequence there. Raises `Malformed`."""
        if not self.shared:
            return [self.publisher] * self.count, list(range(self.first, self.last))
        publishers, firsts, counts = self._run_columns()
        if len(publishers) == self.count:
            return publishers, list(firsts)
        ranges = map(range, firsts, map(add, firsts, counts))
        return list(chain.from_iterable(map(repeat, publishers, counts))), list(chain.from_iterable(ranges))

    def arrow(self) -> "pyarrow.RecordBatch":
        """The columns as an Arrow batch over the same bytes: seq, time, payload and, if used, key and attributes.

        If publishers share the block, `publisher` names the publisher of each event, and `seq` is its sequence there.

        Only columns that the block does not store are created: sequences, and times if all events have the time of the
        first. The rest is not copied. Raises `Malformed`.
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
        columns["payload"] = binary(_BLOCK_BYTES)
        if self._flags & _KEYS:
            columns["key"] = binary(self._keys_at())
        if self._flags & _ATTRIBUTES:
            columns["attributes"] = binary(self._attributes_at())
        return pa.RecordBatch.from_pydict(columns)

    def _extent(self, at: int) -> tuple[int, int]:
        """The offset of the data of the binary column at byte `at`, and its size in bytes."""
        data_at = at + _padded(4 * (self.count + 1))
        if data_at > len(self.data):
            raise Malformed(f"a column of {self.count} events at byte {at} exceeds the block's {len(self.data)} bytes")
        (size,) = _OFFSET.unpack_from(self.data, at + 4 * self.count)
        if not 0 <= size <= len(self.data) - data_at:
            raise Malformed(f"a column of {size} bytes at byte {data_at} exceeds the block's {len(self.data)} bytes")
        if at == _BLOCK_BYTES and size != self._payload_bytes:
            raise Malformed(
                f"a block's header gives {self._payload_bytes} bytes of payload, but its offsets give {size}"
            )
        return data_at, size

    def _offsets(self, at: int) -> tuple[int, ...]:
        """The offsets of the binary column at byte `at`, which increase from 0."""
        offsets = struct.unpack_from(f"<{self.count + 1}i", self.data, at)
        if offsets[0] != 0 or list(offsets) != sorted(offsets):
            raise Malformed(f"a column of {self.count} events at byte {at} has offsets that do not increase from 0")
        return offsets

    def _values(self, at: int) -> list[bytes]:
        """The values of the binary column at byte `at`."""
        count, data = self.count, self.data
        data_at, size = self._extent(at)
        if _EVEN_MIN <= count <= _EVEN_MAX and size % count == 0:
            even, cut = _even(count, size // count)
            if bytes(data[at : at + len(even)]) == even:  # memoryviews compare item by item
                return list(cut(data, data_at))
        offsets = self._offsets(at)
        source = BytesIO(data[data_at : data_at + size])
        return list(map(source.read, map(sub, offsets[1:], offsets)))

    def _times_at(self) -> int:
        at = _BLOCK_BYTES + _padded(4 * (self.count + 1)) + _padded(self._payload_bytes)
        if self._flags & _TIMES and at + 8 * self.count > len(self.data):
            raise Malformed(f"the times of {self.count} events exceed the block's {len(self.data)} bytes")
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
            raise Malformed(f"a block of {self.count} events and {len(data)} bytes cannot have {many} runs")
        source = BytesIO(data[at : at + many * ID_BYTES])
        publishers = list(map(source.read, repeat(ID_BYTES, many)))
        firsts = struct.unpack_from(f"<{many}q", data, at + many * ID_BYTES)
        counts = struct.unpack_from(f"<{many}i", data, at + many * (ID_BYTES + 8))
        if sum(counts) != self.count or min(counts) < 1 or min(firsts) < 0 or max(firsts) > NUMBER_MAX - self.count:
            raise Malformed(
                f"a block of {self.count} events has {many} runs of {sum(counts)} events from sequence {min(firsts)}"
            )
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
    """The bytes of credit and of buffers that the bundle takes."""
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
        """The same blocks with another envelope."""
        return Bundle(envelope, self.blocks)

    @property
    def head(self) -> bytes:
        """The bytes before the blocks. Encoded once, for all channels that the bundle enters."""
        if self._head is None:
            e = self.envelope
            if len(self.blocks) == 1 and not e.record and not e.tags:
                counter, node = e.term
                size = self.blocks[0].size
                self._head = _LONE_HEAD.pack(
                    e.kind, 0, e.serial, e.session, e.topic, counter, node, e.first, self.count, 1, 0, 0, size
                )
            else:
                self._head = self._make_head()
        return self._head

    def _make_head(self) -> bytes:
        e = self.envelope
        sizes = struct.pack(f"<{len(self.blocks)}I", *[block.size for block in self.blocks])
        variable = b"".join((sizes, e.record, e.tags))
        fixed = _HEAD.pack(
            e.kind, 0, e.serial, e.session, e.topic, e.term.counter, e.term.node, e.first, self.count,
            len(self.blocks), len(e.record), len(e.tags),
        )  # fmt: skip
        return b"".join((fixed, variable, _ZEROS[: -(_HEAD.size + len(variable)) % 8]))

    def encode(self) -> bytes:
        """The whole bundle as one `bytes` object."""
        return b"".join([self.head, *(block.data for block in self.blocks)])

    @classmethod
    def decode(cls, data: bytes | memoryview, cut: "Cut | None" = None) -> "Bundle":
        """Make a bundle of these bytes, which it keeps: they must not change afterwards. Raises `Malformed`.

        `cut` finds the blocks if they do not directly follow the head.
        """
        if cut is None and _LONE_BUNDLE_BYTES < len(data) < _COPIED_BYTES_MAX and (lone := cls._lone(data)) is not None:
            return lone
        if len(data) < _HEAD.size:
            raise Malformed(f"a bundle of {len(data)} bytes is shorter than its head of {_HEAD.size}")
        kind, _, serial, session, topic, counter, node, first, count, blocks, record, tags = _HEAD.unpack_from(data)
        if kind not in _KINDS or not 0 < blocks <= BLOCK_COUNT_MAX:
            raise Malformed(f"invalid bundle of kind {kind} with {blocks} blocks")
        if not 0 <= first <= NUMBER_MAX - count or counter > NUMBER_MAX:
            raise Malformed(f"invalid bundle of term {counter} from index {first}")
        record_at = _HEAD.size + 4 * blocks
        at = record_at + record + tags + 7 & ~7
        if at > len(data):
            raise Malformed(f"a bundle's head gives {at} bytes, but {len(data)} arrived")
        envelope = Envelope(
            topic, _KINDS[kind], new_tuple(Term, (counter, node)), first, session,
            bytes(data[record_at : record_at + record]) if record else b"",
            bytes(data[record_at + record : record_at + record + tags]) if tags else b"",
            serial,
        )  # fmt: skip
        sizes = struct.unpack_from(f"<{blocks}I", data, _HEAD.size)
        bundle = cls(envelope, (cut or _cut)(data, at, sizes))
        if bundle.count != count:
            raise Malformed(f"a bundle's head gives {count} events, but its blocks hold {bundle.count}")
        return bundle

    @classmethod
    def _lone(cls, data: bytes | memoryview) -> "Bundle | None":
        """Do the same as `decode`, in fewer steps, for a bundle of one small block. None if it is something else."""
        (
            kind, _, serial, session, topic, counter, node, index, events, shape, block_size,
            size, form, publisher, first, time_ns, count, payload_bytes,
        ) = _LONE_BUNDLE.unpack_from(data)  # fmt: skip
        if shape != _ONE_BLOCK or form & _FORM_MASK != _LAYOUT or kind not in _KINDS:
            return None
        if not size == block_size == len(data) - _LONE_HEAD_BYTES or size % 8 or 4 * (count + 1) > size - _BLOCK_BYTES:
            return None
        if not 0 < count == events or (counter | index | first) >> _SMALL_BITS:
            return None
        block = Block(bytes(data[_LONE_HEAD_BYTES:]), publisher, first, count, time_ns, form >> 8, payload_bytes)
        term = new_tuple(Term, (counter, node))
        return cls(Envelope(topic, _KINDS[kind], term, index, session, b"", b"", serial), (block,))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bundle) and (self.envelope, self.blocks) == (other.envelope, other.blocks)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        e = self.envelope
        return f"Bundle({e.topic[:4].hex()} {e.kind.name} {e.term.counter}:{e.first}-{self.last}, {self.blocks})"


_KINDS = {int(kind): kind for kind in Kind}


Cut = Callable[[bytes | memoryview, int, tuple[int, ...]], tuple[Block, ...]]
"""Finds the blocks of a bundle, given the end of its head and the sizes of the blocks."""


def _cut(data: bytes | memoryview, at: int, sizes: tuple[int, ...]) -> tuple[Block, ...]:
    """The blocks of a bundle: views of its bytes, or copies of small blocks, which are cheaper."""
    small = len(data) < _COPIED_BYTES_MAX * len(sizes)
    whole = bytes(data) if small else memoryview(data)
    if at + sum(sizes) != len(data):
        raise Malformed(
            f"a bundle's blocks have {sum(sizes)} bytes according to its head, but {len(data) - at} arrived"
        )
    ends = accumulate(sizes, initial=at)
    return tuple([Block.parse(whole[start:end]) for start, end in pairwise(ends)])
