"""Trace records: immutable values that describe what happened."""

from typing import get_args

import msgspec
import pytest

from quillcast.core import trace
from quillcast.core.envelope import Term
from quillcast.core.trace import AnyRecord, Delivered, LeafSetChanged, Record

KINDS = [
    kind for kind in vars(trace).values() if isinstance(kind, type) and issubclass(kind, Record) and kind is not Record
]


def test_every_record_is_one_of_the_union() -> None:
    """Journals and displays rely on the union."""
    assert set(get_args(AnyRecord)) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_record_names_its_type_and_is_immutable(kind: type[Record]) -> None:
    config = kind.__struct_config__
    assert kind.__doc__
    assert config.frozen
    assert config.tag == kind.__name__


def test_records_survive_encoding() -> None:
    records = [Delivered(b"t" * 16, b"p" * 16, 5, 3, 77, Term(2, b"n" * 16), 9), LeafSetChanged((b"a",), ())]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(records), type=list[AnyRecord]) == records


def test_records_with_equal_fields_are_equal() -> None:
    assert trace.Mark("here") == trace.Mark("here") != trace.Mark("there")
    assert len({trace.Mark("here"), trace.Mark("here")}) == 1
