"""The peer that a command embeds: its network, addresses and settings."""

import functools
import math
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from quillcast.cli.options import NETWORK, TEXT, Place
from quillcast.core.errors import LocalError
from quillcast.files import SETTINGS_BYTES_MAX, read_text
from quillcast.live.admission.joinline import JoinLine
from quillcast.live.discovery.registry import PeerRegistry
from quillcast.live.node.node import Node
from quillcast.live.node.presence import TAKES_PART
from quillcast.live.node.scopestatus import WAITS
from quillcast.live.transport import local_ipc
from quillcast.protocol.config import Config


class PeerSettings(Config, frozen=True, kw_only=True):
    """The settings of a command's own peer in a file."""

    scopes: tuple[str, ...] = ()
    """The scopes that it is a member of, written as for `--scope`."""


class Peering(msgspec.Struct, frozen=True):
    """The options of a command's own peer."""

    network: str
    listen: str | None
    contacts: tuple[str, ...]
    config: Config
    join: JoinLine | None = None
    credential: Path | None = None
    advertise: str | None = None
    config_file: Path | None = None
    wait_for_network: float | None = None
    scopes: tuple[str, ...] = ()

    def node(
        self, *, data: Path | None = None, journal: Path | None = None, within_s: float | None = None, **more: Any
    ) -> Node:
        """Return the peer that these options describe. It reports on standard error what it waits for.

        A member of scopes waits for their managers, up to `within_s` unless an option says how long.
        """
        more.setdefault("on_problem", _tell_if_waiting)
        if self.wait_for_network is None and self.scopes:
            more["wait_for_network"] = within_s
        return Node(
            network=self.network,
            listen=self.listen,
            contacts=self.contacts,
            data=data,
            journal=journal,
            config=self.config,
            join=self.join,
            credential=self.credential,
            advertise=self.advertise,
            scope=self.scopes or None,
            **{"wait_for_network": self.wait_for_network, **more},
        )

    def beside(self, contact: str) -> list[str]:
        """The options for a command that runs another peer on this machine and joins through `contact`."""
        options = ["--network", self.network]
        options += ["--contact", contact] if self.contacts else []
        options += ["--credential", str(self.credential)] if self.credential else []
        return options + (["--config", str(self.config_file)] if self.config_file else [])


class Patience(click.FloatRange):
    """Seconds to wait; without a value, the option means to wait forever."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            seconds: float = super().convert(value, param, ctx)
        except click.BadParameter:
            seconds = math.nan
        if math.isnan(seconds):
            self.fail(f"{value!r} is not a time: write --wait-for-network=SECONDS, or put it last", param, ctx)
        return seconds


def peering(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of a command that embeds a peer. The command gets them as one argument, `peering`."""

    @NETWORK
    @click.option(
        "--contact", "contacts", type=TEXT, multiple=True, metavar="HOST:PORT", help="A peer to join through."
    )
    @click.option(
        "--listen",
        type=TEXT,
        metavar="HOST:PORT",
        help="Where to listen.  [default: a free port that the network's peers can reach]",
    )
    @click.option(
        "--advertise",
        type=TEXT,
        metavar="HOST[:PORT]",
        help="Address to tell others, for example behind a router that forwards a port.",
    )
    @click.option(
        "--join",
        type=TEXT,
        metavar="LINE",
        help="Join the network of another machine with the line that it printed. Needed once.",
    )
    @click.option(
        "--credential",
        type=Place(exists=True, dir_okay=False, path_type=Path),
        help="The network's credential (network.pem), if not in the user's folder (or, for `node`, in --data).",
    )
    @click.option(
        "--wait-for-network",
        type=Patience(min=0),
        is_flag=False,
        flag_value=math.inf,
        metavar="[SECONDS]",
        help="Wait until a peer of the network can be reached, at most this long. With --scope: how long to wait for "
        "its manager.",
    )
    @click.option(
        "--scope",
        "scopes",
        type=TEXT,
        multiple=True,
        metavar="NAME[@HOST:PORT]",
        help="Become a member of this scope. Its manager is found through the network, or at this address. A join line "
        "works too. Repeatable: topics that belong to none of these scopes use the first one.",
    )
    @click.option(
        "--config",
        "config_file",
        type=Place(exists=True, dir_okay=False, path_type=Path),
        help="Scopes and protocol settings (TOML), such as scopes = ['site'] and [overlay] digit_bits = 1.",
    )
    @functools.wraps(command)
    def with_peering(
        network: str,
        contacts: tuple[str, ...],
        listen: str | None,
        advertise: str | None,
        join: str | None,
        credential: Path | None,
        config_file: Path | None,
        wait_for_network: float | None,
        scopes: tuple[str, ...],
        **options: Any,
    ) -> Any:
        config = read_config(config_file) if config_file else PeerSettings()
        scopes = scopes or config.scopes
        line = JoinLine.parse(join) if join is not None else None
        if wait_for_network is not None and not scopes and sys.stderr.isatty():
            _tell_waiting(network, contacts)
        peering = Peering(
            network, listen, contacts, config, line, credential, advertise, config_file, wait_for_network, scopes
        )  # fmt: skip
        return command(peering=peering, **options)

    return with_peering


def _tell_if_waiting(line: str) -> None:
    if line.startswith((WAITS, TAKES_PART)):
        print(f"quillcast: {line}", file=sys.stderr)


def _tell_waiting(network: str, contacts: tuple[str, ...]) -> None:
    """Print that the command may wait, because no other peer is known yet."""
    place = PeerRegistry(network)
    if contacts or not place.entries():
        where = f"at {', '.join(contacts)}" if contacts else f"in {place.looked_in}"
        print(f"waiting for a peer of the network {network!r} {where}; Ctrl-C ends", file=sys.stderr)


def looked(node: Node) -> str:
    """Describe where a node without peers has looked, and whether this machine runs peers that it cannot find there."""
    elsewhere = len([address for address in local_ipc.listening() if address != node.address])
    if not elsewhere:
        return f"looked in {node.looked_in}"
    one = "another peer on this machine belongs"
    others = one if elsewhere == 1 else f"{elsewhere} other peers on this machine belong"
    return f"looked in {node.looked_in}; {others} to another network, user or --runtime-dir"


def tell_notices(node: Node) -> None:
    """Print notices about how the node found its network on standard error."""
    for line in node.notices:
        print(f"quillcast: {line}", file=sys.stderr)


def alone(node: Node) -> bool:
    """Whether the node has never heard from another peer of its network, not even from one that has left."""
    return not node.traffic().counters.messages_in


def read_config(path: Path) -> PeerSettings:
    """Read settings from a TOML file with a table per layer. Raises `LocalError` that names the wrong setting."""
    try:
        told = tomllib.loads(read_text(path, SETTINGS_BYTES_MAX))
        _check_names(path, told, PeerSettings)
        return _converted(path, told)
    except OSError as error:
        raise LocalError(f"cannot read the settings {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise LocalError(f"{path} is not text in UTF-8; convert it") from None
    except tomllib.TOMLDecodeError as error:
        raise LocalError(f"{path} is not valid TOML: {error}") from error
    except msgspec.ValidationError as error:
        what, _, setting = str(error).replace("`", "").partition(" - at $.")
        raise LocalError(f"{path}: {setting}: {what.replace('Expected', 'expected')}") from error


def _converted(path: Path, told: Mapping[str, Any]) -> PeerSettings:
    """Convert settings whose names have been checked. Raises `LocalError` for one that is out of range."""
    try:
        return msgspec.convert(told, PeerSettings)
    except LocalError as problem:
        raise LocalError(f"{path}: {problem}") from problem


def _check_names(path: Path, told: Mapping[str, Any], kind: type[msgspec.Struct], table: str = "") -> None:
    """Raise `LocalError` for an unknown name, so that a typing error does not silently select a default."""
    fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
    for name, value in told.items():
        if name not in fields:
            raise LocalError(f"{path}: unknown setting {table}{name}; there are: {', '.join(fields)}")
        if isinstance(value, dict) and name != "scopes":
            _check_names(path, value, fields[name], f"{name}.")
