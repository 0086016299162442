"""`quillcast node`: run a peer that forwards for others."""

import asyncio
import sys
from pathlib import Path

import click
import msgspec

from quillcast.cli.options import JSON
from quillcast.cli.peering import Peering, peering
from quillcast.cli.running import run


@click.command(short_help="Run a peer that forwards for others.")
@click.option(
    "--data", type=click.Path(file_okay=False, path_type=Path), help="Keep identity and topics in this folder."
)
@click.option("--journal", type=click.Path(file_okay=False, path_type=Path), help="Write what the peer does here.")
@JSON
@peering
def command(data: Path | None, journal: Path | None, as_json: bool, peering: Peering) -> None:
    """Run a peer that has no topics of its own: it is part of the network and forwards for others.

    Prints its id and address, and runs until Ctrl-C.
    """

    async def stay() -> None:
        async with peering.node(data=data, journal=journal) as node:
            contact = node.contact
            if as_json:
                told = {"node_id": contact.node_id.hex(), "address": contact.address, "network": peering.network}
                click.echo(msgspec.json.encode(told).decode())
            else:
                click.echo(f"peer {contact.node_id.hex()[:8]} at {contact.address}, network {peering.network}")
                print(f"others join with: --contact {contact.address}; Ctrl-C ends", file=sys.stderr)
            sys.stdout.flush()
            await asyncio.Event().wait()

    run(stay())
