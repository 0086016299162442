"""Settings shared by every test."""

import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

# Examples take as long as they take: speed is measured in benchmarks/, never asserted here.
settings.register_profile("quillcast", deadline=None, print_blob=True)
settings.load_profile("quillcast")

# Processes that tests start hear Ctrl-C; what a shell runs in the background does not, nor do its children.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    """One Spark session for all tests: starting one takes seconds."""
    from quillcast.pipeline.session import spark_session

    session = spark_session("local[2]")
    yield session
    session.stop()
