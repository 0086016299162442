"""The class of an error shows whose fault it is, and sets the exit code."""

import pytest

from quillcast.core import errors
from quillcast.core.errors import LocalError, Malformed, QuillcastError, RemoteError

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, QuillcastError)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_has_an_exit_code_other_than_success(kind: type[QuillcastError]) -> None:
    assert 0 < kind.exit_code < 128
    assert kind.__doc__


def test_errors_distinguish_the_caller_from_a_peer() -> None:
    assert not issubclass(LocalError, RemoteError)
    assert not issubclass(RemoteError, LocalError)
    assert LocalError.exit_code != RemoteError.exit_code


def test_malformed_bytes_are_a_peers_fault() -> None:
    assert issubclass(Malformed, RemoteError)
    assert not issubclass(Malformed, ValueError), "code that catches ValueError expects its own mistakes"


def test_an_error_shows_its_text() -> None:
    assert str(LocalError("port 80 is taken; choose another with --port")).startswith("port 80")
