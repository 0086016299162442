"""Bad input gets one clear line on standard error, an exit code that says what kind it is, and never a traceback."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.core import ParameterSource

from quillcast.cli.app import commands
from tests.cli.commands import Commands

TYPING = [
    (["frobnicate"], "No such command 'frobnicate' (quillcast --help)"),
    (["sbu", "t"], "No such command 'sbu'. Did you mean sub?"),
    (["pub"], "Missing argument 'TOPIC'"),
    (["sub", "t", "--count", "none"], "'none' is not a valid integer (quill"),
    (["top", "--interval", "often"], "'often' is not a valid number (quill"),
    (["pub", "t", "x", "--rate", "0"], "0.0 is not in the range"),
    (["pub", "t", "--file", "no/such/file"], "'no/such/file' does not exist"),
    (["pub", "t", "x", "--file", __file__], "choose one"),
    (["pub", "t", "x", "--whole"], "choose one"),
    (["pub", "t", "x", "--attribute", "colour"], "write NAME=VALUE"),
    (["pub", "t", "x", "--wait", "stored"], "'stored' is not one of"),
    (["sub", "t", "--config", "no/such.toml"], "'no/such.toml' does not exist"),
    (["sub", "t", "--listen", "0.0.0.0:0"], "not on this machine's loopback"),
    (["sub", "t", "--listen", "127.0.0.1:0", "--advertise", "203.0.113.7"], "203.0.113.7:0 is not on this machine's"),
    (["node", "--listen", "127.0.0.1:99999"], "is not an address; write host:port"),
    (["node", "--advertise", "203.0.113.7:4000"], "to advertise 203.0.113.7:4000, say where to listen, too"),
    (["node", "--listen", "0.0.0.0:0", "--advertise", "0.0.0.0"], "nobody can reach this node at '0.0.0.0"),
    (["sub", "t", "--listen", "127.0.0.1"], "write host:port"),
    (["sub", "t", "--network", "a/b"], "not a network name"),
    (["sub", "t//u"], "not a topic name"),
    (["pub", "t", "x", "--attribute", "a=1", "--attribute", "a=2"], "--attribute 'a' is given twice"),
    (["topic", "create", "t", "--publisher", "paul"], "'--publisher': 'paul' is not a principal, which has"),
    (["topic", "create", "t", "--subscriber", "ab" * 16], "a topic with --subscriber has an owner: add --as FILE"),
    (
        ["credentials", "show", "no/such.pem"],
        "no/such.pem cannot be read: No such file or directory; run: quillcast creden",
    ),
    (
        ["credentials", "show", __file__],
        "holds no credentials (an Ed25519 key in PEM format, without a password); run: quil",
    ),
    (["credentials", "show", "/dev/full"], "the credentials /dev/full cannot be read: it has more than 65,536 bytes"),
    (["credentials", "show", "/"], "'/' is a folder"),
    (["sub", "t", "--as", "/dev/zero"], "the credentials /dev/zero cannot be read: it has more than 65,536 bytes"),
    (["node", "--listen", "0.0.0.0:0", "--credential", "/dev/full"], "/dev/full cannot be read: it has more than 65,5"),
    (["sub", "t", "--config", "/dev/zero"], "cannot read the settings /dev/zero: it has more than 1,048,576 bytes"),
    (["scope", "check", "/dev/zero"], "cannot read the scope file /dev/zero: it has more than 16,777,216 bytes"),
    (["evaluate", "/dev/zero"], "cannot read the experiment /dev/zero: it has more than 1,048,576 bytes"),
    (["credentials", "new", __file__], "cannot be written to"),
    (["credentials", "new", "no/such/a.pem"], "cannot be written to no/such/a.pem: No such file or directory"),
    (["sub", "t/#"], "is a pattern"),
    (["sub", "sport/>"], "'sport/>' is a pattern, and patterns are not supported; name one topic"),
    (["pub", "sport/*", "x"], "a name has no * and no part that is one of + # * > ?"),
    (["pub", "sport/ten*", "x"], "is a pattern"),
    (["topic", "create", "sport/?"], "is a pattern"),
    (["check", "topic", "**"], "is a pattern"),
    (["node", "--data", ""], "the path is empty; name a file or folder, or . for the current one"),
    (["node", "--journal", ""], "the path is empty"),
    (["node", "--runtime-dir", ""], "the path is empty"),
    (["scope", "check", ""], "the path is empty"),
    (["topic", "create", "t", "--as", ""], "the path is empty"),
    (["demo", "--output", ""], "the path is empty"),
    (["audit", ".", "--report", ""], "the path is empty"),
    (["audit", ".", "--report", "no/such/page.html"], "no/such/page.html cannot be written: its folder does not exist"),
    (["evaluate", "scribe-2002", "--output", ""], "the path is empty"),
    (["pub", "caf\udce9", "x"], "not a topic name"),  # bytes that are no text
    (["tree", "caf\udce9"], "not a topic name"),
    (["sub", "two\nlines"], "not a topic name"),
    (["pub", "t", "x", "--join", ""], "the value is blank; write one, or leave it out"),
    (["pub", "t", "x", "--timeout", "nan"], "nan is not a finite number"),
    (["sub", "t", "--timeout", "nan"], "nan is not a finite number"),
    (["top", "--once", "--interval", "inf"], "inf is not in the range"),
    (["topic", "set", "t"], "nothing to set"),
    (["topic", "create", "t", "--delivery", "sometimes"], "'sometimes' is not one of"),
    (["topic", "create", "t", "--event-bytes-max", "0"], "0 is not in the range"),
    (["topic", "create", "t", "--order", "none"], "needs delivery = 'best_effort'"),
    (
        ["topic", "create", "t", "--delivery", "best_effort", "--slow", "wait"],
        "slow = 'wait' needs delivery = 'reli",
    ),
    (["bench", "pub", "t", "--rate", "0"], "0.0 is not in the range"),
    (["bench", "pub", "t", "--rate", "inf"], "inf is not a finite number"),
    (["bench", "latency", "--seconds", "nan"], "nan is not a finite number"),
    (["check", "peer", "--neighbours-min", "-3"], "-3 is not in the range"),
    (["check", "topic", "t", "--subscribers-min", "-1"], "-1 is not in the range"),
    (["check", "topic", "t", "--behind-warning", "-1"], "-1 is not in the range"),
    (["check", "topic", "t", "--late-critical", "nan"], "nan is not a finite number"),
    (["check", "peer", "--buffers-warning", "nan"], "nan is not a finite number"),
    (["check", "link", "--round-trip-max", "inf"], "inf is not a finite number"),
    (["check", "peer", "--buffers-warning", "200"], "200.0 is not in the range"),
    (["bench", "pub", "t", "--size", "9" * 30], "is not in the range"),
    (["sub", "t", "--name", ""], "'--name': the value is blank"),
    (["pub", "t", "x", "--key", " "], "'--key': the value is blank"),
    (["pub", "t", "x", "--attribute", " =x"], "write NAME=VALUE"),
    (["check", "peer", "--peer", ""], "'--peer': the value is blank"),
    (["pub", "t", "x", "--rate", "nan"], "nan is not a finite number"),
    (["demo", "--rate", "nan"], "nan is not a finite number"),
    (["bench", "sub", "t", "--count", "1"], "1 is not in the range"),
    (["node", "--data", __file__], "is a file, not a folder (quill"),
    (["sub", "t", "--config", "/"], "'/' is a folder, not a file (quill"),
    (["audit", __file__], "is a file, not a folder"),
    (
        ["scope", "policy", "check", "stripes", "--set", "stripes=nan"],
        "parameter stripes=nan: nan is not a finite number",
    ),
    (["scope", "policy", "set", "room", "#", "stripes", "stripes=inf"], "inf is not a finite number"),
    (["demo", "--peers", "3"], "3 is not in the range"),
    (["demo", "slow", "p05", "--seconds", "0"], "0.0 is not in the range"),
    (["demo", "--events", "no/such/file"], "'no/such/file' does not exist"),
    (["audit", "no/such/folder"], "'no/such/folder' does not exist"),
]


LONG = "x" * 3000


def taken(command: click.Command = commands, path: str = "") -> Iterator[tuple[str, click.Parameter]]:
    """Each option and argument of every command that takes a value, with its name for a person."""
    for parameter in command.params:
        if not (isinstance(parameter, click.Option) and parameter.is_flag):
            yield f"{path} {parameter.opts[0]}".strip(), parameter
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from taken(inner, f"{path} {name}")


@pytest.mark.parametrize("blank", ["", "  "])
def test_no_option_or_argument_takes_a_blank_value(blank: str) -> None:
    for name, parameter in taken():
        if name == "pub messages":  # an event may be empty
            continue
        assert parameter.name is not None
        context = click.Context(commands)
        context.set_parameter_source(parameter.name, ParameterSource.COMMANDLINE)
        given = (blank,) if parameter.multiple or parameter.nargs == -1 else blank
        try:
            value = parameter.process_value(context, given)
        except click.BadParameter:
            continue
        pytest.fail(f"{name} takes {blank!r} as {value!r}")


def test_every_number_has_a_least_value_and_a_percentage_a_greatest() -> None:
    for name, parameter in taken():
        kind = parameter.type
        if isinstance(kind, click.types.IntParamType | click.types.FloatParamType):
            assert isinstance(kind, click.IntRange | click.FloatRange), name
            assert kind.min is not None, name
            assert parameter.metavar != "PERCENT" or kind.max == 100, name


def assert_one_line(err: str, part: str) -> None:
    assert part in err
    assert err.startswith("quillcast: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "part"), TYPING, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_invalid_requests_exit_with_2(quillcast: Commands, arguments: list[str], part: str) -> None:
    code, out, err = quillcast.run(*arguments)
    assert (code, out) == (3 if arguments[0] == "check" else 2, "")  # monitors take 2 for an alarm
    assert_one_line(err, part)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["pub", LONG, "x"], "is not a topic name"),
        (["pub", f"{LONG}/+", "x"], "is not a topic name"),
        (["sub", "t", "--network", LONG], "is not a network name"),
        (["sub", "t", "--name", LONG], "is not a valid subscription name"),
    ],
    ids=["topic", "pattern", "network", "label"],
)
def test_a_long_argument_is_not_repeated_in_full(quillcast: Commands, arguments: list[str], part: str) -> None:
    code, _, err = quillcast.run(*arguments)
    assert code == 2
    assert_one_line(err, part)
    assert len(err) < 400


def test_a_file_without_credentials_is_a_clear_error(quillcast: Commands, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    code, _, err = quillcast.run("pub", "t", "x", "--as", str(tmp_path / "empty"))
    assert code == 2
    assert_one_line(err, "empty holds no credentials (an Ed25519 key in PEM format, without a password)")
    assert "http" not in err


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("[overlay]\ndigit_bit = 1\n", "unknown setting overlay.digit_bit; there are: digit_bits"),
        ("[overlay]\ndigit_bits = 3\n", "digit_bits is 3"),
        ('[topics]\nlease_s = "long"\n', "topics.lease_s: expected float, got str"),
        ("[topics]\nlease_s = nan\n", "settings.toml: topics.lease_s is nan; use a finite number above 0"),
        ("digit_bits: 1\n", "Expected '=' after a key"),
        ("scopes = [1]\n", "scopes[0]: expected str, got int"),
        ("[scopes]\n", "scopes: expected array, got object"),
        ("[overlays]\n", "unknown setting overlays; there are: neighbours,"),
        ("overlay = 3\n", "overlay: expected object, got int"),
        ("title = '\udcff'\n", "settings.toml is not text in UTF-8; convert it"),
    ],
)
def test_an_invalid_config_file_names_the_setting(quillcast: Commands, tmp_path: Path, text: str, part: str) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(text, "utf-8", "surrogateescape")
    code, _, err = quillcast.run("sub", "t", "--config", str(path))
    assert code == 2
    assert_one_line(err, part)


@pytest.mark.parametrize(
    "arguments", [("status",), ("tree", "t"), ("topic", "list"), ("topic", "create", "t")], ids=str
)
def test_commands_that_query_peers_fail_without_a_running_peer(quillcast: Commands, arguments: tuple[str, ...]) -> None:
    code, out, err = quillcast.run(*arguments)
    assert (code, out) == (4, "")
    assert_one_line(err, "no peer of the network 'test' runs on this machine; start one with: quillcast node")


@pytest.mark.parametrize("what", [["kill", "p01"], ["partition", "p01"], ["slow", "p01"], ["peers"], ["end"]], ids=str)
def test_demo_commands_fail_without_a_running_demo(quillcast: Commands, what: list[str]) -> None:
    code, out, err = quillcast.run("demo", *what)
    assert (code, out) == (4, "")
    assert_one_line(err, "no demo is running on this machine; start one with: quillcast demo --stay")


def test_a_demo_that_does_not_run_is_named(quillcast: Commands) -> None:
    code, out, err = quillcast.run("demo", "peers", "--demo", "demo-1")
    assert (code, out) == (4, "")
    assert_one_line(err, "no demo 'demo-1' that accepts commands is running on this machine; start one with: quill")


def test_an_empty_folder_holds_nothing_to_audit(quillcast: Commands, tmp_path: Path) -> None:
    code, _, err = quillcast.run("audit", str(tmp_path))
    assert code == 2
    assert_one_line(err.splitlines(keepends=True)[-1], "has no journals")


def test_the_demo_mixes_its_journals_with_no_others(quillcast: Commands, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    code, _, err = quillcast.run("demo", "--output", str(tmp_path))
    assert code == 2
    assert_one_line(err, "is not empty")


def test_the_demo_says_at_once_that_nobody_can_write_to_its_folder(quillcast: Commands) -> None:
    code, out, err = quillcast.run("demo", "--output", "/proc/demo")
    assert (code, out) == (6, "")
    assert_one_line(err, "cannot write to /proc/demo: No such file or directory; name another with --output")


@pytest.mark.parametrize("what", [["kill", "p01"], ["peers"]], ids=str)
def test_a_demo_that_accepts_no_commands_is_named(quillcast: Commands, what: list[str]) -> None:
    node = quillcast.start("node", "--network", "demo-1")
    node.line()
    code, out, err = quillcast.run("demo", *what)
    assert (code, out) == (4, "")
    assert_one_line(err, "demo-1 accepts no commands: it is still starting, or it runs with --scopes")


def test_a_runtime_folder_in_which_nothing_can_be_made(quillcast: Commands) -> None:
    code, out, err = quillcast.run("status", "--runtime-dir", "/proc")
    assert (code, out) in [(2, ""), (6, "")]  # depends on the user
    assert_one_line(err, "the runtime folder ")
    assert "/proc" in err


@pytest.mark.parametrize("arguments", [["status"], ["sub", "t"], ["node"]], ids=str)
def test_a_runtime_folder_that_cannot_be_used(quillcast: Commands, tmp_path: Path, arguments: list[str]) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    code, out, err = quillcast.run(*arguments, "--runtime-dir", str(folder))
    assert (code, out) == (2, "")
    assert_one_line(err, f"the runtime folder {folder} cannot be used: others can write to it; to share one")


def test_a_fault_of_the_system_is_one_line_too(quillcast: Commands, tmp_path: Path) -> None:
    folder = tmp_path / "quillcast" / "test"
    folder.parent.mkdir()
    folder.write_text("no folder")
    code, _, err = quillcast.run("status")
    assert code == 6
    assert_one_line(err, f"{folder}: File exists")


@pytest.mark.live
class TestWithAPeer:
    """Requests that are wrong only because of other peers."""

    @pytest.fixture
    def node(self, quillcast: Commands, tmp_path: Path) -> dict[str, str]:
        command = quillcast.start("node", "--json", "--data", str(tmp_path / "data"))
        told: dict[str, str] = json.loads(command.line())
        return told

    def test_a_contact_that_does_not_answer(self, quillcast: Commands) -> None:
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            port = closed.getsockname()[1]
        code, _, err = quillcast.run("pub", "t", "x", "--contact", f"127.0.0.1:{port}")
        assert code == 4
        assert_one_line(err, f"127.0.0.1:{port}")

    def test_a_contact_of_another_network(self, quillcast: Commands, node: dict[str, str]) -> None:
        code, _, err = quillcast.run("pub", "t", "x", "--contact", node["address"], "--network", "other")
        assert code == 4
        assert_one_line(err, "it belongs to the network 'test', this peer to 'other'; choose one with --network")

    def test_a_port_in_use(self, quillcast: Commands, node: dict[str, str]) -> None:
        code, _, err = quillcast.run("sub", "t", "--listen", node["address"])
        assert code == 2
        assert_one_line(err, "in use")

    def test_the_data_folder_of_a_running_peer(self, quillcast: Commands, node: dict[str, str], tmp_path: Path) -> None:
        code, _, err = quillcast.run("node", "--data", str(tmp_path / "data"))
        assert code == 2
        assert_one_line(err, "belongs to a running peer")

    def test_an_event_over_the_limit(self, quillcast: Commands, node: dict[str, str], tmp_path: Path) -> None:
        assert quillcast.run("topic", "create", "small", "--event-bytes-max", "10")[0] == 0
        quillcast.subscribed("small")
        code, _, err = quillcast.run("pub", "small", "more than ten bytes")
        assert code == 2
        assert_one_line(err, "an event of 19 bytes is over the limit of 10 of topic 'small'")

    @pytest.mark.parametrize("wait", ["root", "stable"])
    @pytest.mark.parametrize("message", ["refused", None], ids=["message", "lines"])
    def test_a_rejected_publish_sends_nothing(
        self, quillcast: Commands, node: dict[str, str], wait: str, message: str | None
    ) -> None:
        assert quillcast.run("topic", "create", "best/eff", "--delivery", "best_effort")[0] == 0
        subscriber = quillcast.subscribed("best/eff", "--count", "1")
        publisher = quillcast.start("pub", "best/eff", *([message] if message else []), "--wait", wait)
        if message is None:
            publisher.write("refused\n")
        code, _, err = publisher.end()
        assert code == 2
        assert_one_line(err, "'best/eff' is best_effort and acknowledges nothing; publish without wait")
        assert quillcast.run("pub", "best/eff", "taken")[0] == 0
        assert subscriber.end()[1] == "taken\n"

    def test_a_line_that_is_too_large_is_named(self, quillcast: Commands, node: dict[str, str], tmp_path: Path) -> None:
        assert quillcast.run("topic", "create", "small", "--event-bytes-max", "10")[0] == 0
        subscriber = quillcast.subscribed("small", "--count", "1")
        lines = tmp_path / "lines"
        lines.write_text("small1\nmore than ten bytes\nsmall2\n")
        code, _, err = quillcast.run("pub", "small", "--file", str(lines))
        assert code == 2
        assert_one_line(err, f"line 2 of {lines}: an event of 19 bytes is over the limit of 10")
        assert_one_line(err, "; 1 event published before it, and none after")
        assert subscriber.end()[1] == "small1\n"
        err = quillcast.run("pub", "small", "one", "more than ten bytes")[2]
        assert_one_line(err, "MESSAGE 2: an event of 19 bytes")

    def test_a_peer_that_is_not_there(self, quillcast: Commands, node: dict[str, str]) -> None:
        code, _, err = quillcast.run("status", "--peer", "xyz")
        assert code == 2
        assert_one_line(err, f"there are: {node['node_id'][:8]}")

    @pytest.mark.parametrize("question", [("topic", "show"), ("tree",)], ids=" ".join)
    def test_an_invalid_topic_name(self, quillcast: Commands, node: dict[str, str], question: tuple[str, ...]) -> None:
        code, out, err = quillcast.run(*question, "nobody/knows")
        assert (code, out) == (2, "")
        assert_one_line(err, "there is no topic 'nobody/knows'; `quillcast topic list` shows those of this machine")
        assert quillcast.json("topic", "list") == []  # nor is there one for having been asked about

    def test_checking_an_unknown_topic_is_critical_and_does_not_create_it(
        self, quillcast: Commands, node: dict[str, str]
    ) -> None:
        assert quillcast.run("check", "topic", "nobody/knows")[0] == 2
        assert quillcast.json("topic", "list") == []


@pytest.mark.live
def test_an_unknown_topic_is_an_error_in_a_network_that_creates_none(quillcast: Commands, tmp_path: Path) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text("[topics]\nauto_create = false\n")
    node = quillcast.start("node", "--config", str(settings))
    node.line()
    for command in (("pub", "sport/tennis", "x"), ("sub", "sport/tennis")):
        code, _, err = quillcast.run(*command, "--config", str(settings))
        assert code == 2
        assert_one_line(err, "there is no topic 'sport/tennis'")
