"""How much memory something takes while it runs."""

import gc
import tracemalloc
from collections.abc import Callable


def peak_bytes(action: Callable[[], object]) -> int:
    """The most that Python's allocator held for it at a time, beyond what it held before."""
    action()  # what is made once, caches and imports, does not count
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        action()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def kept_bytes(action: Callable[[], object]) -> int:
    """What Python's allocator still holds for it afterwards, cycles and all."""
    action()
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        action()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
