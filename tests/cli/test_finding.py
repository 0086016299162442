"""Where commands look for their network: another folder, another user, later, or not at all."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from quillcast.live.admission.keyring import Keyring, admit_here
from tests.cli.commands import Commands

pytestmark = pytest.mark.live

NOWHERE = "203.0.113.77"  # TEST-NET-3, RFC 5737: no address of this machine
STRANGER = 4321


@pytest.fixture
def config(quillcast: Commands, tmp_path: Path) -> Path:
    """Where the user's credentials would be."""
    folder = tmp_path / "config"
    quillcast.environment["XDG_CONFIG_HOME"] = str(folder)
    return folder


@pytest.mark.parametrize("failing", ["address", "port", "right"])
def test_a_node_that_cannot_listen_leaves_no_credential_behind(
    quillcast: Commands, config: Path, tmp_path: Path, failing: str
) -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        listen = {"address": f"{NOWHERE}:0", "port": f"0.0.0.0:{taken.getsockname()[1]}", "right": f"{NOWHERE}:99999"}
        code, out, err = quillcast.run("node", "--listen", listen[failing], "--data", str(tmp_path / "data"))
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert not config.exists()
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("kept_in", ["config", "data"])
def test_a_node_that_finds_nobody_at_its_contact_leaves_no_credential_behind(
    quillcast: Commands, config: Path, tmp_path: Path, kept_in: str
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # and does not listen
        contact = f"127.0.0.1:{unused.getsockname()[1]}"
        data = ["--data", str(tmp_path / "data")] if kept_in == "data" else []
        code, out, err = quillcast.run(
            "node", "--listen", "0.0.0.0:0", "--advertise", NOWHERE, "--contact", contact, *data
        )
    assert (code, out) == (4, ""), err
    assert not config.exists()
    assert not list(tmp_path.rglob("network.pem"))
    assert not list(tmp_path.rglob("members.sqlite"))


def test_a_credential_that_another_process_took_an_identity_of_is_not_taken_back(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "keys"
    maker, other = Keyring(folder), Keyring(folder)
    authority = maker.make_authority("test", 10**18)
    for keyring in (maker, other):
        keyring.add([admit_here(authority, lambda: 10**18)])
    maker.unmake_authority()
    assert other.lock_identity() is not None
    fresh = Keyring(tmp_path / "fresh" / "keys")
    fresh.make_authority("test", 10**18)
    Keyring(fresh.folder).unmake_authority()
    assert fresh.authority() is not None, "who did not make it does not take it back"
    fresh.unmake_authority()
    assert not (tmp_path / "fresh").exists()


def test_a_node_on_loopback_prints_no_join_line(quillcast: Commands, config: Path) -> None:
    Keyring(config / "quillcast" / "test").make_authority("test", 10**18)
    node = quillcast.start("node")
    assert node.line().startswith("peer ")
    said = node.line(2)
    assert said.startswith("alone so far (looked in ")
    assert said.endswith("; other machines cannot reach it there: --listen HOST:PORT lets them join; Ctrl-C ends")
    node.signal(signal.SIGTERM)
    assert node.end()[:2] == (143, "")


def test_a_command_that_finds_no_peer_says_where_it_looked(quillcast: Commands, tmp_path: Path) -> None:
    folder = str(tmp_path / "quillcast" / "test")
    told = quillcast.json("pub", "t", "x")
    assert (told["alone"], told["looked_in"]) == (True, folder)
    assert f"looked in {folder}" in quillcast.run("pub", "t", "x")[2]
    assert f"looked in {folder}" in quillcast.run("status")[2]
    subscriber = quillcast.start("sub", "t", "--count", "1")
    assert f"alone so far (looked in {folder}" in subscriber.line(2)
    assert quillcast.json("status")["looked_in"] == folder
    assert quillcast.json("pub", "t", "x")["alone"] is False
    assert subscriber.end()[0] == 0
    node = quillcast.start("node", "--json")
    introduced = json.loads(node.line())
    assert (introduced["alone"], introduced["looked_in"]) == (True, folder)


def test_peers_in_another_folder_are_counted_and_found_when_it_is_named(quillcast: Commands, tmp_path: Path) -> None:
    other = str(tmp_path / "other")
    subscriber = quillcast.subscribed("t", "--runtime-dir", other, "--count", "1")
    err = quillcast.run("pub", "t", "unheard")[2]
    assert re.search(r"other peers? on this machine belongs? to another network, user or --runtime-dir", err)
    assert quillcast.run("pub", "t", "heard", "--runtime-dir", other) == (0, "", "")
    assert subscriber.end()[:2] == (0, "heard\n")
    quillcast.subscribed("t", "--runtime-dir", other)
    quillcast.environment["QUILLCAST_RUNTIME_DIR"] = other
    assert quillcast.json("pub", "t", "x")["alone"] is False
    assert quillcast.json("status")["looked_in"] == f"{other}/test"


def test_a_command_that_finds_only_a_stopped_peer_names_it_and_fails(quillcast: Commands) -> None:
    subscriber = quillcast.subscribed("z", "--count", "1")
    subscriber.signal(signal.SIGSTOP)
    code, out, err = quillcast.run("pub", "z", "while-frozen", "--wait", "stable", "--json")
    subscriber.signal(signal.SIGCONT)
    assert (code, out) == (4, "")
    assert f"process {subscriber.process.pid} is a peer of network 'test' on this machine and does not answer" in err
    assert quillcast.run("pub", "z", "heard")[0] == 0
    assert subscriber.end()[:2] == (0, "heard\n")


def test_an_unusable_runtime_folder_is_reported_and_another_one_used(quillcast: Commands, tmp_path: Path) -> None:
    quillcast.environment |= {"XDG_RUNTIME_DIR": "/dev/null", "TMPDIR": str(tmp_path)}
    subscriber = quillcast.start("sub", "t", "--count", "1")
    notice = subscriber.line(2)
    assert notice.startswith("quillcast: XDG_RUNTIME_DIR=/dev/null cannot be used: it is not a folder; this peer looks")
    assert "subscribed to t" in subscriber.line(2)
    assert quillcast.run("pub", "t", "heard")[0] == 0
    assert subscriber.end()[:2] == (0, "heard\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="runs a peer of another user, which takes root")
class TestTwoUsers:
    """A folder that root made for all users."""

    @pytest.fixture
    def shared(self, quillcast: Commands) -> Iterator[Path]:
        with tempfile.TemporaryDirectory() as made:  # what is above pytest's own is closed to other users
            Path(made).chmod(0o1777)
            quillcast.environment["QUILLCAST_RUNTIME_DIR"] = made
            yield Path(made)

    def stranger(self, quillcast: Commands, config: Path, *arguments: str) -> "subprocess.Popen[bytes]":
        """A command of another user, without a home."""
        environment = {**quillcast.environment, "XDG_CONFIG_HOME": f"/tmp/no-config-of-{STRANGER}", "HOME": "/"}
        environment.pop("XDG_RUNTIME_DIR")
        return subprocess.Popen(
            [sys.executable, "-m", "quillcast", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, cwd="/",
            user=STRANGER, group=STRANGER, extra_groups=[],
        )  # fmt: skip

    def test_they_meet_there(self, quillcast: Commands, config: Path, shared: Path) -> None:
        subscriber = quillcast.subscribed("t", "--count", "1")
        with self.stranger(quillcast, config, "pub", "t", "from a stranger") as publisher:
            assert publisher.communicate(timeout=30) == (b"", b"")
        assert subscriber.end()[:2] == (0, "from a stranger\n")

    def test_a_user_is_told_that_the_peers_there_are_those_of_another(
        self, quillcast: Commands, config: Path, shared: Path
    ) -> None:
        with self.stranger(quillcast, config, "sub", "t") as subscriber:
            assert subscriber.stderr is not None
            assert b"subscribed to t" in subscriber.stderr.readline()
            for command in (["status"], ["topic", "create", "t"], ["tree", "t"]):
                code, _, err = quillcast.run(*command)
                assert code == 4
                told = f"the peers of the network 'test' on this machine run as user {STRANGER}, and answer only"
                assert err.startswith(f"quillcast: {told} commands of the same user")
            subscriber.terminate()

    def test_a_peer_that_members_of_another_user_cut_off_ends_with_an_error(
        self, quillcast: Commands, config: Path, shared: Path
    ) -> None:
        with self.stranger(quillcast, config, "sub", "t") as subscriber:
            assert subscriber.stderr is not None
            assert b"subscribed to t" in subscriber.stderr.readline()
            Keyring(config / "quillcast" / "test").make_authority("test", 10**18)
            node = quillcast.start("node")
            node.line()
            while f"process {subscriber.pid} of user {STRANGER} is in network 'test' without" not in node.line(2):
                pass
            _, err = subscriber.communicate(timeout=30)
            assert subscriber.returncode == 2
            assert f"process {node.process.pid} of this machine has the credential of network 'test'".encode() in err
            assert err.count(b"\n") == 1
        with self.stranger(quillcast, config, "pub", "t", "x") as publisher:
            _, err = publisher.communicate(timeout=30)
            assert publisher.returncode == 2
            assert b"this peer is not: use --join" in err


class TestWaiting:
    """`--wait-for-network`."""

    def test_it_ends_when_the_time_has_passed(self, quillcast: Commands, tmp_path: Path) -> None:
        code, out, err = quillcast.run("sub", "t", "--wait-for-network", "0.2")
        assert (code, out) == (4, "")
        folder = tmp_path / "quillcast" / "test"
        nobody = "no peer of the network 'test' runs on this machine; start one with: quillcast node"
        assert err == f"quillcast: {nobody}; looked in {folder}\n"
        code, _, err = quillcast.run("pub", "t", "x", "--wait-for-network=0.2", "--contact", "127.0.0.1:1")
        assert code == 4
        assert err == "quillcast: cannot reach 127.0.0.1:1: nobody listens there\n"

    def test_waiting_ends_when_the_network_begins(self, quillcast: Commands) -> None:
        subscriber = quillcast.start("sub", "t", "--count", "1", "--wait-for-network")
        publisher = quillcast.start("pub", "t", "x", "--wait-for-network=60", "--json")
        with pytest.raises(TimeoutError):
            publisher.wait(0.5)
        assert subscriber.process.poll() is None
        assert "no peer of the network" in quillcast.run("status")[2], "who waits is no network"
        quillcast.start("node").line()
        assert "subscribed to t" in subscriber.line(2)
        told = quillcast.json_of(publisher)
        assert (told["published"], told["alone"]) == (1, False)

    def test_waiting_for_a_contact_ends_when_it_is_there(self, quillcast: Commands, tmp_path: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        elsewhere = str(tmp_path / "elsewhere")
        waiting = quillcast.start("sub", "t", "--contact", address, "--wait-for-network", "--runtime-dir", elsewhere)
        with pytest.raises(TimeoutError):
            waiting.wait(0.5)
        quillcast.start("node", "--listen", address).line()
        assert "subscribed to t" in waiting.line(2)

    @pytest.mark.parametrize("given", ["nan", "soon"])
    def test_an_invalid_time_is_rejected(self, quillcast: Commands, given: str) -> None:
        code, _, err = quillcast.run("sub", "t", f"--wait-for-network={given}")
        assert code == 2
        assert "is not a time: write --wait-for-network=SECONDS, or put it last" in err

    def test_on_a_terminal_it_says_what_it_waits_for(self, quillcast: Commands) -> None:
        ours, theirs = os.openpty()
        line = [sys.executable, "-m", "quillcast", "pub", "t", "x", "--wait-for-network"]
        with subprocess.Popen(line, env=quillcast.environment, stderr=theirs) as waiting:
            os.close(theirs)
            assert os.read(ours, 4096).startswith(b"waiting for a peer of the network 'test' in ")
            waiting.terminate()
        os.close(ours)

    def test_ctrl_c_ends_the_waiting(self, quillcast: Commands) -> None:
        waiting = quillcast.start("node", "--wait-for-network")
        with pytest.raises(TimeoutError):
            waiting.wait(0.5)
        waiting.signal(signal.SIGINT)
        assert waiting.end() == (130, "", "")
