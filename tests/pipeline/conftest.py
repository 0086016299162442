"""One Spark session for all tests: starting one takes seconds."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    from quillcast.pipeline.session import spark_session

    session = spark_session("local[2]")
    yield session
    session.stop()
