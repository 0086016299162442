"""Options shared by several commands, and their completion in shells."""

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from quillcast.core.errors import LocalError
from quillcast.live.discovery.questions import StatusQuestion, TopicsQuestion

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from quillcast.live.admission.credentials import Credentials

RUNTIME_DIR = "QUILLCAST_RUNTIME_DIR"  # as in `live.discovery.runtimefolder`, which is imported only when needed
COMPLETION_TIMEOUT_S = 0.5  # a guess: nobody waits longer after pressing a key


class Count(click.IntRange):
    """A whole number in a range. Click calls it an "integer range" in help and errors."""

    name = "integer"


class Amount(click.FloatRange):
    """A finite number in a range. Click accepts `inf` in some ranges and `nan` in all."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


class Text(click.types.StringParamType):
    """Text that is not blank. An unset shell variable becomes an empty text, which does not select the default."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(super().convert(value, param, ctx))
        if not text.strip() and not _is_default(param, ctx):
            self.fail("the value is blank; write one, or leave it out", param, ctx)
        return text


TEXT = Text()


def _is_default(param: click.Parameter | None, ctx: click.Context | None) -> bool:
    """Whether the value to convert is the option's default and was not given."""
    if param is None or ctx is None or param.name is None:
        return False
    return ctx.get_parameter_source(param.name) is ParameterSource.DEFAULT


class Place(click.Path):
    """A file or folder. A blank name is an error here; `Path("")` would be the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not str(value).strip():
            self.fail("the path is empty; name a file or folder, or . for the current one", param, ctx)
        if not self.dir_okay and Path(value).is_dir():
            self.fail(f"{str(value)!r} is a folder, not a file", param, ctx)
        if not self.file_okay and Path(value).is_file():
            self.fail(f"{str(value)!r} is a file, not a folder", param, ctx)
        return super().convert(value, param, ctx)


def coloured(fd: int) -> bool:
    """Whether to print colour: only to terminals, and not if `NO_COLOR` is set."""
    return os.isatty(fd) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _completed(names: Callable[[str], list[str]]) -> "Callable[..., list[CompletionItem]]":
    """Complete with the `names` that this machine's peers know in a network. Empty if no peer answers."""

    def complete(context: click.Context, _: click.Parameter, begun: str) -> "list[CompletionItem]":
        from click.shell_completion import CompletionItem

        from quillcast.core.errors import QuillcastError

        network = context.params.get("network") or os.environ.get("QUILLCAST_NETWORK") or "default"
        try:
            found = names(network)
        except QuillcastError:
            return []
        return [CompletionItem(name) for name in found if name.startswith(begun)]

    return complete


def _topics(network: str) -> list[str]:
    from quillcast.cli.asking import ask_all
    from quillcast.core.status.topics import TopicStatus

    answers = ask_all(network, TopicsQuestion(), tuple[TopicStatus, ...], timeout_s=COMPLETION_TIMEOUT_S)
    return sorted({topic.name for topics in answers for topic in topics})


def _peers(network: str) -> list[str]:
    from quillcast.cli.asking import peers_here

    return [entry.node_id[:8] for entry in peers_here(network)]


def _networks(_: str) -> list[str]:
    from quillcast.live.discovery.registry import running_networks

    return running_networks()


def _scopes(network: str) -> list[str]:
    from quillcast.cli.asking import ask_all
    from quillcast.core.status.peers import NodeStatus

    statuses = ask_all(network, StatusQuestion(), NodeStatus, timeout_s=COMPLETION_TIMEOUT_S)
    return sorted({name for status in statuses for name in status.manages})


def _topic(context: click.Context, parameter: click.Parameter, topic: str) -> str:
    """The name, if it is a valid topic name. Raises `click.BadParameter`."""
    from quillcast.core.errors import LocalError
    from quillcast.protocol.topics.descriptor import described

    try:
        described(topic)
    except LocalError as problem:
        raise click.BadParameter(str(problem), context, parameter) from problem
    return topic


TOPIC = click.argument("topic", type=TEXT, callback=_topic, shell_complete=_completed(_topics))
SCOPE = click.argument("name", type=TEXT, shell_complete=_completed(_scopes))


def peer_option(meaning: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option that chooses a peer of this machine."""
    return click.option("--peer", type=TEXT, default="", metavar="ID", help=meaning, shell_complete=_completed(_peers))


PEER = peer_option("Query the peer whose id starts like this.  [default: the oldest]")
_NETWORK = click.option(
    "--network",
    type=TEXT,
    shell_complete=_completed(_networks),
    default="default",
    envvar="QUILLCAST_NETWORK",
    show_default=True,
    show_envvar=True,
    help="Name of the network. Peers of one machine and network find each other.",
)


def _look_in(context: click.Context, parameter: click.Parameter, folder: Path | None) -> None:
    """Use this runtime folder in this process and its children. Raises `click.BadParameter` if it cannot be used."""
    from quillcast.live.discovery.runtimefolder import chosen

    if folder is not None:
        try:
            chosen(folder)
        except LocalError as problem:
            raise click.BadParameter(str(problem), context, parameter) from problem
        os.environ[RUNTIME_DIR] = str(folder.absolute())


_RUNTIME_DIR = click.option(
    "--runtime-dir",
    type=Place(path_type=Path),
    envvar=RUNTIME_DIR,
    show_envvar=True,
    callback=_look_in,
    is_eager=True,  # completion of networks and peers uses this folder, too
    expose_value=False,
    help="Folder in which peers of this machine find each other.  [default: the user's own]",
)


def _with_network(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options for the network and for the folder in which its local peers are found."""
    return _NETWORK(_RUNTIME_DIR(command))


NETWORK = _with_network


def _loaded(context: click.Context, _: click.Parameter, file: Path | None) -> "Credentials | None":
    from quillcast.live.admission.credentials import Credentials

    return None if file is None else Credentials.load(file)


class Owner(NamedTuple):
    """The future owner of a topic: its credentials, and the file for them if they are new."""

    credentials: "Credentials"
    file: Path | None = None

    @contextmanager
    def saved(self) -> Iterator[None]:
        """Save new credentials before something is created with them. If its creation is refused, remove the file."""
        if self.file is not None:
            self.credentials.save(self.file)
        try:
            yield
        except LocalError:
            if self.file is not None:
                self.file.unlink()
            raise
        finally:  # it may still be created after a timeout
            if self.file is not None and self.file.exists():
                click.echo(f"created {self.file}, which owns what is created with it", err=True)


def _loaded_or_made(_: click.Context, __: click.Parameter, file: Path | None) -> Owner | None:
    from quillcast.live.admission.credentials import Credentials

    if file is None:
        return None
    return Owner(Credentials.load(file)) if file.exists() else Owner(Credentials.new(), file)


_FILE = Place(dir_okay=False, path_type=Path)
AS = click.option(
    "--as",
    "credentials",
    type=_FILE,
    callback=_loaded,
    help="File with the credentials to use, if the topic has an access list.",
)
AS_OPERATOR = click.option(
    "--as",
    "credentials",
    type=_FILE,
    callback=_loaded,
    help="File with an operator's credentials, if the scope's manager runs on another machine.",
)
AS_OWNER = click.option(
    "--as",
    "owner",
    type=_FILE,
    callback=_loaded_or_made,
    help="File with the owner's credentials; created if it does not exist.",
)
DATA = click.option(
    "--data", type=Place(file_okay=False, path_type=Path), help="Keep the peer's identity in this folder."
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
