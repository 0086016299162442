"""`quillcast completion`: print scripts that complete commands, options, topics, peers and networks."""

import os
import sys

import click
from click.shell_completion import get_completion_class

VARIABLE = "_QUILLCAST_COMPLETE"
LINES = {
    "bash": ("~/.bashrc", 'eval "$(quillcast completion bash)"'),
    "zsh": ("~/.zshrc", 'eval "$(quillcast completion zsh)"'),
    "fish": ("~/.config/fish/config.fish", "quillcast completion fish | source"),
}
"""For each shell, the file to change and the line to add."""


@click.command(short_help="Print a completion script for your shell.")
@click.argument("shell", type=click.Choice(list(LINES)))
def command(shell: str) -> None:
    """Print a completion script for SHELL: commands, options, and this machine's topics, peers and networks.

    \b
    Add the line of your shell to its file:
      bash  ~/.bashrc                   eval "$(quillcast completion bash)"
      zsh   ~/.zshrc, after compinit    eval "$(quillcast completion zsh)"
      fish  ~/.config/fish/config.fish  quillcast completion fish | source
    """  # noqa: D301 - click's mark for preformatted text
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(click.get_current_context().find_root().command, {}, "quillcast", VARIABLE).source())
    if os.isatty(1):
        file, line = LINES[shell]
        print(f"to have it in every shell, add to {file}: {line}", file=sys.stderr)
