"""Evaluate deployments of up to millions of peers on Spark before anyone builds them (docs/evaluation.md).

Its policies compute trees; they do not decide how running peers forward events. The Spark session comes from
`quillcast.pipeline`. Importing this package loads neither Spark nor Arrow.
"""

import atexit
import os
import shutil
import tempfile
from pathlib import Path


def let_numba_cache(sources: Path) -> None:
    """Give Numba a folder for compiled kernels if it can use neither the source's folder nor the user's cache.

    Otherwise it would refuse to compile them. The processes that Spark starts use the same folder.
    """
    if "NUMBA_CACHE_DIR" in os.environ:
        return
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())  # as Numba finds it
    for folder in (sources / "__pycache__", cache / "numba"):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError:
            continue
        return
    os.environ["NUMBA_CACHE_DIR"] = made = tempfile.mkdtemp(prefix="quillcast-numba-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)


let_numba_cache(Path(__file__).parent)
