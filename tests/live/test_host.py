"""The live host."""

import sys
import time

import pytest

from quillcast.live.node.host import clock


@pytest.mark.skipif(sys.platform != "linux", reason="Linux names such a clock")
def test_a_peers_clock_goes_on_while_the_machine_is_suspended() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= clock()() <= time.clock_gettime(time.CLOCK_BOOTTIME)
