"""Options that commands share."""

import click

NETWORK = click.option(
    "--network",
    default="default",
    envvar="QUILLCAST_NETWORK",
    show_default=True,
    show_envvar=True,
    help="The network's name; peers of one machine and network find each other.",
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
