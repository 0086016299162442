"""`quillcast node`: run a peer that forwards for others, and admit other machines to the network."""

import asyncio
import sys
from pathlib import Path

import click
import msgspec

from quillcast.cli.asking import choose, peers_here
from quillcast.cli.options import JSON, TEXT, Place
from quillcast.cli.peering import Peering, alone, looked, peering
from quillcast.cli.running import run
from quillcast.core.errors import LocalError
from quillcast.core.status.commands import ClientLineMade, ClientsRevoked, JoinLineMade
from quillcast.live.admission.joinline import JoinLine
from quillcast.live.clients.line import ALL_LINES, ClientLine
from quillcast.live.discovery import control
from quillcast.live.discovery.questions import InviteClientQuestion, InviteQuestion, PeerQuestion, RevokeClientQuestion
from quillcast.live.discovery.registry import PeerRegistry
from quillcast.live.node.node import Node
from quillcast.live.transport import addresses


@click.command(short_help="Run a peer that forwards for others.")
@click.option("--data", type=Place(file_okay=False, path_type=Path), help="Keep identity and topics in this folder.")
@click.option(
    "--journal",
    type=Place(file_okay=False, path_type=Path),
    help="Write a journal of what the peer does to this folder.",
)
@click.option("--invite", is_flag=True, help="Print a new join line from the peer that runs here, and exit.")
@click.option(
    "--invite-client",
    is_flag=True,
    help="Print a line that lets applications on other devices use the peer of this machine, and exit.",
)
@click.option(
    "--revoke-client",
    type=TEXT,
    metavar="LINE",
    help="Revoke a line for applications, or 'all', disconnect those that use it, and exit.",
)
@click.option(
    "--certify",
    type=TEXT,
    metavar="NAME=VALUE",
    multiple=True,
    help="With --invite: an attribute of the certificate, for scopes that ask for it: organization=... Repeatable.",
)
@JSON
@peering
def command(
    data: Path | None, journal: Path | None, invite: bool, invite_client: bool, revoke_client: str | None,
    certify: tuple[str, ...], as_json: bool, peering: Peering,
) -> None:  # fmt: skip
    """Run a peer that has no topics of its own and forwards for others.

    Prints its id and address, and runs until Ctrl-C. The first peer that listens at an address that other machines can
    reach creates the network's credential and prints a line that lets another machine join.
    """
    if invite:
        line = _asked(peering.network, InviteQuestion(dict(map(_attribute, certify))))
        click.echo(msgspec.json.encode(JoinLineMade(line)).decode() if as_json else line)
        return
    if invite_client:
        line = _asked(peering.network, InviteClientQuestion())
        click.echo(msgspec.json.encode(ClientLineMade(line)).decode() if as_json else line)
        return
    if revoke_client is not None:
        _revoke(peering.network, revoke_client, as_json=as_json)
        return
    if certify:
        raise click.UsageError("--certify goes with --invite")

    async def stay() -> None:
        node = peering.node(data=data, journal=journal, make_credential=peering.listen is not None, on_problem=_log)
        async with node:
            _introduce(node, as_json=as_json)
            sys.stdout.flush()
            await asyncio.Event().wait()

    run(stay())


def _introduce(node: Node, *, as_json: bool) -> None:
    """Print the peer's id and address, and how others join."""
    contact = node.contact
    beyond = not addresses.is_loopback(addresses.parse(contact.address)[0])
    line = node.invite() if node.admits and beyond else None
    if as_json:
        told = {
            "node_id": contact.node_id.hex(),
            "address": contact.address,
            "network": node.network,
            "join": None if line is None else str(line),
            "looked_in": node.looked_in,
            "alone": alone(node),
        }
        click.echo(msgspec.json.encode(told).decode())
        return
    click.echo(f"peer {contact.node_id.hex()[:8]} at {contact.address}, network {node.network}")
    if line is not None:
        click.echo(f'quillcast node --join "{line}"')
    found = f"alone so far ({looked(node)}); " if alone(node) else ""
    print(f"{found}{_how_to_join(node, line)}; Ctrl-C ends", file=sys.stderr)


def _how_to_join(node: Node, line: JoinLine | None) -> str:
    """What others have to do to join through this node."""
    if line is not None:
        minutes = node.live.token_life_s / 60
        return (
            f"paste that line on the next machine, within {minutes:.0f} minutes; for one more: quillcast node --invite"
        )
    if node.admits:
        return "other machines cannot reach it there: --listen HOST:PORT lets them join"
    return f"others join with: --contact {node.address}"


def _log(problem: str) -> None:
    print(f"quillcast: {problem}", file=sys.stderr, flush=True)


def _attribute(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"--certify {text}: write NAME=VALUE, such as organization=North")
    return name.strip(), value.strip()


def _revoke(network: str, line: str, *, as_json: bool) -> None:
    """Revoke a line at the peer that gave it out, or all lines at all peers of this machine."""
    if line == ALL_LINES:
        entries = peers_here(network)
    else:
        parsed = ClientLine.parse(line)
        network, entries = parsed.network, choose(parsed.network, parsed.contact.node_id.hex())
    place = PeerRegistry(network)
    ended = sum(control.ask(place.control_path(each.contact), RevokeClientQuestion(line), int) for each in entries)
    if as_json:
        click.echo(msgspec.json.encode(ClientsRevoked(ended)).decode())
    else:
        what = "all lines for applications are" if line == ALL_LINES else "the line is"
        click.echo(f"{what} revoked; disconnected clients: {ended}")


def _asked(network: str, question: PeerQuestion) -> str:
    """The line of the first peer of this machine that gives one."""
    place = PeerRegistry(network)
    problem = None
    for entry in peers_here(network):
        try:
            return control.ask(place.control_path(entry.contact), question, str)
        except LocalError as refused:
            problem = problem or refused
    assert problem is not None
    raise problem
