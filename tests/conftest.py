"""Settings shared by every test."""

import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

# Examples take as long as they take: speed is measured in benchmarks/, never asserted here.
settings.register_profile("quillcast", deadline=None, print_blob=True)
settings.load_profile("quillcast")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long tests are slow too, so that `-m "not slow"` leaves them out."""
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker("slow")


# Processes that tests start hear Ctrl-C; what a shell runs in the background does not, nor do its children.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    """One Spark session for all tests: starting one takes seconds."""
    from quillcast.pipeline.session import spark_session

    session = spark_session("local[2]")
    yield session
    session.stop()
