"""Files that users name: whatever they are, so much is read and no more."""

import gzip
import os
from pathlib import Path

import pytest

from quillcast.core.errors import LocalError
from quillcast.evaluation import textfile
from quillcast.files import read_bytes, read_text

TOO_LARGE = "it has more than 100,000 bytes"


def read_pipe(content: bytes) -> bytes:
    """As a shell passes on what another command writes: `<(command)`."""
    reading, writing = os.pipe()
    try:
        with os.fdopen(writing, "wb", buffering=0) as file:
            file.write(content)
        return read_bytes(Path(f"/dev/fd/{reading}"), 1_000)
    finally:
        os.close(reading)


def test_a_file_is_read_up_to_the_limit_and_not_beyond(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for size in (0, 1, 99_999, 100_000):
        path.write_bytes(b"x" * size)
        assert read_bytes(path, 100_000) == b"x" * size
    path.write_bytes(b"x" * 100_001)
    with pytest.raises(OSError, match=TOO_LARGE):
        read_bytes(path, 100_000)


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/full", "/dev/urandom"])
def test_a_device_that_never_ends_is_too_large(device: str) -> None:
    with pytest.raises(OSError, match=TOO_LARGE):
        read_bytes(Path(device), 100_000)


def test_a_pipe_is_a_file_too_within_the_same_limit() -> None:
    assert read_pipe(b"x" * 1_000) == b"x" * 1_000
    with pytest.raises(OSError, match="it has more than 1,000 bytes"):
        read_pipe(b"x" * 1_001)


def test_lines_of_a_text_end_alike(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes("a\r\nü\rc\n".encode())
    assert read_text(path, 100) == "a\nü\nc\n"
    path.write_bytes(b"\xff")
    with pytest.raises(UnicodeDecodeError):
        read_text(path, 100)


def test_a_small_file_that_becomes_too_large_when_it_is_decompressed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(textfile, "DATA_BYTES_MAX", 100_000)
    path = tmp_path / "x.csv.gz"
    for size, is_refused in ((100_000, False), (100_001, True)):
        path.write_bytes(gzip.compress(b"x" * size))
        if not is_refused:
            assert len(textfile.read_text(path, "topology", "name another file")) == size
            continue
        with pytest.raises(LocalError, match=f"cannot read topology .*: {TOO_LARGE}; name another file"):
            textfile.read_text(path, "topology", "name another file")
