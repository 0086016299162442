"""The conductor's side of the peers' processes."""

import signal
import subprocess
import sys

from quillcast.demo.processes import _deaf_to_ctrl_c

ASK = "import signal; print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))"


def test_peers_never_get_ctrl_c_which_the_conductor_handles() -> None:
    with _deaf_to_ctrl_c():
        assert subprocess.check_output([sys.executable, "-c", ASK], text=True) == "True\n"
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
