"""The control socket."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import msgspec
import pytest

from quillcast.live.discovery import control

THREADS = 8


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before_s)


@pytest.mark.usefixtures("eager_threads")
def test_threads_that_are_the_first_to_decode_a_type_wait_for_each_other() -> None:
    """Commands ask all peers of a machine at once. msgspec crashes where two threads look into one new type."""
    barrier = Barrier(THREADS)
    with ThreadPoolExecutor(THREADS) as pool:
        for number in range(40):
            inner = msgspec.defstruct(f"Inner{number}", [(f"field_{each}", list[int], []) for each in range(60)])
            outer = msgspec.defstruct(f"Outer{number}", [(f"field_{each}", inner | None, None) for each in range(60)])

            def decode(_: int, kind: type[msgspec.Struct] = outer) -> msgspec.Struct:
                barrier.wait()
                return control.decoder(kind).decode(b'{"field_1": {"field_2": [3]}}')

            for found in pool.map(decode, range(THREADS)):
                assert found.field_1.field_2 == [3]  # type: ignore[attr-defined]
