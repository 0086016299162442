"""Programs that tests start as forks are what `python -m` would be."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest

from tests.forks import ROOT, Fork


def test_a_fork_is_like_a_new_interpreter(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "OF_THE_TEST": "a = b\n"}
    arguments = ["tests.mirror", "first", "", "third  é", "\udcff"]
    fork = Fork(*arguments, env=environment, cwd=tmp_path, stderr=PIPE)
    new = [sys.executable, "-m", *arguments]
    started = subprocess.run(new, env=environment, cwd=tmp_path, input=b"said", capture_output=True, check=False)
    assert (*fork.communicate(b"said"), fork.returncode) == (started.stdout, started.stderr, started.returncode)
    assert (started.returncode, started.stderr) == (3, b"said")


def test_forks_are_processes_of_their_own_and_end_by_signals() -> None:
    first, second = (Fork("tests.mirror", env=os.environ, stderr=PIPE) for _ in range(2))
    assert len({os.getpid(), first.pid, second.pid}) == 3
    assert first.poll() is None
    first.kill()
    assert first.wait(60) == -signal.SIGKILL
    with pytest.raises(subprocess.TimeoutExpired):
        second.wait(0.01)
    assert second.stdout is not None
    assert second.stdout.read(1) == b"{", "before that it need not be the program yet"
    second.send_signal(signal.SIGINT)
    assert b"KeyboardInterrupt" in second.communicate(timeout=60)[1]
    assert second.returncode == -signal.SIGINT
    first.communicate()
