"""What tests of single parts of the topics layer begin with."""

import pytest

from tests.protocol.topics.parts import Parts


@pytest.fixture
def world() -> Parts:
    """One peer's parts, and what they order of each other."""
    return Parts()
