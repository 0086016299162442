"""Errors: whose fault it is shows in the class, and in what a command ends with."""

import pytest

from quillcast.core import errors
from quillcast.core.errors import LocalError, Malformed, QuillcastError, RemoteError

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, QuillcastError)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_ends_a_command_with_a_code_that_is_no_success(kind: type[QuillcastError]) -> None:
    assert 0 < kind.exit_code < 128
    assert kind.__doc__


def test_a_caller_and_a_peer_are_told_apart() -> None:
    assert not issubclass(LocalError, RemoteError)
    assert not issubclass(RemoteError, LocalError)
    assert LocalError.exit_code != RemoteError.exit_code


def test_malformed_bytes_are_a_peers_fault() -> None:
    assert issubclass(Malformed, RemoteError)
    assert not issubclass(Malformed, ValueError), "who catches ValueError means a fault of our own"


def test_the_text_is_what_people_see() -> None:
    assert str(LocalError("port 80 is taken; choose another with --port")).startswith("port 80")
