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
