"""`quillcast credentials`: make the credentials of applications, and show the principal that access lists name."""

from pathlib import Path

import click
import msgspec

from quillcast.cli.options import JSON, Place
from quillcast.core.status.commands import CredentialsShown

FILE = click.argument("file", type=Place(dir_okay=False, path_type=Path))


@click.group(invoke_without_command=True, short_help="Make credentials, and show their principal.")
@click.pass_context
def command(context: click.Context) -> None:
    """Make the credentials of an application, and show their principal: the name that access lists have for them.

    The file is secret, the principal is not.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@command.command(short_help="Write new credentials, and print their principal.")
@FILE
@JSON
def new(file: Path, as_json: bool) -> None:
    """Write new credentials to FILE, which must not exist, and print their principal."""
    from quillcast.live.admission.credentials import Credentials

    made = Credentials.new()
    made.save(file)
    _tell(file, made.principal, as_json=as_json)


@command.command()
@FILE
@JSON
def show(file: Path, as_json: bool) -> None:
    """Print the principal of the credentials in FILE."""
    from quillcast.live.admission.credentials import Credentials

    _tell(file, Credentials.load(file).principal, as_json=as_json)


def _tell(file: Path, principal: str, *, as_json: bool) -> None:
    shown = msgspec.json.encode(CredentialsShown(str(file), principal)).decode() if as_json else principal
    click.echo(shown)
