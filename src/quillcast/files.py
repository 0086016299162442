"""Files that users name. They may be anything, also a device that never ends, so each kind has a size limit."""

import errno
import os
from pathlib import Path

KEY_BYTES_MAX = 1 << 16  # of a key in PEM format, which has some hundred bytes
SETTINGS_BYTES_MAX = 1 << 20  # of settings and experiments, and of a module with policies; a guess, like those below
SCOPE_BYTES_MAX = 16 << 20  # of a scope's file, which may name 100,000 members, and of a scenario
STATE_BYTES_MAX = 256 << 20  # of what a manager knows
DATA_BYTES_MAX = 1 << 30  # of a topology or a workload, also once it is decompressed
LINE_CHARACTERS_MAX = 16 << 20  # of a row with an event
_CHUNK_BYTES = 1 << 16


def read_bytes(path: Path, bytes_max: int) -> bytes:
    """The content of a file, or of a pipe. Raises `OSError`, also if it is larger than `bytes_max`."""
    with path.open("rb") as file:
        size_bytes = os.fstat(file.fileno()).st_size  # 0 if it is not known before
        parts, left_bytes, chunk_bytes = list[bytes](), bytes_max + 1, max(size_bytes + 1, _CHUNK_BYTES)
        while size_bytes <= bytes_max and left_bytes and (part := file.read(min(chunk_bytes, left_bytes))):
            parts.append(part)
            left_bytes -= len(part)
    if size_bytes > bytes_max or not left_bytes:
        raise too_large(bytes_max)
    return b"".join(parts)


def read_text(path: Path, bytes_max: int) -> str:
    """The same of a text in UTF-8, with any line ends. Raises `UnicodeDecodeError` and `OSError`."""
    return read_bytes(path, bytes_max).decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")


def too_large(bytes_max: int) -> OSError:
    """The error for a file that is larger than this."""
    return OSError(errno.EFBIG, f"it has more than {bytes_max:,} bytes")
