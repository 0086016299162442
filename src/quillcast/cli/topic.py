"""`quillcast topic`: create topics, show one, list all."""

from collections.abc import Callable, Mapping
from typing import Any

import click
import msgspec

from quillcast.cli.asking import ask_all, peers_here
from quillcast.cli.options import JSON, NETWORK, TOPIC
from quillcast.core.errors import UnknownTopic
from quillcast.protocol.topics.descriptor import CHOICES, Settings

DEFAULTS = Settings()


def choice(name: str, meaning: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option of a topic's setting."""
    choices, default = CHOICES[name], getattr(DEFAULTS, name)
    return click.option(f"--{name}", type=click.Choice(choices), default=default, show_default=True, help=meaning)


@click.group(invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """Create topics, show one, list all."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@command.command()
@TOPIC
@choice("delivery", "What subscribers are owed.")
@choice("order", "Whether a publisher's events come in its order.")
@choice("slow", "Who does not keep up: is cut off and told what it lost, or publishers wait.")
@click.option("--event-bytes-max", default=DEFAULTS.event_bytes_max, show_default=True, help="Largest payload.")
@JSON
@NETWORK
def create(topic: str, network: str, as_json: bool, **settings: Any) -> None:
    """Create TOPIC with these settings, which stand for all of the network."""
    from quillcast.cli.running import run
    from quillcast.live.node import Node

    peers_here(network)  # a topic lives in its peers: with this command as the only one it would end at once

    async def create_it() -> None:
        async with Node(network=network) as node:
            await node.create(topic, **settings)

    run(create_it())
    if as_json:
        click.echo(msgspec.json.encode({"topic": topic, **settings}).decode())
    else:
        chosen = [f"{name} = {settings[name]}" for name in Settings.__struct_fields__]
        click.echo(f"{topic}: {', '.join(chosen)}")


@command.command()
@TOPIC
@JSON
@NETWORK
def show(topic: str, network: str, as_json: bool) -> None:
    """Show what the peers of this machine know of TOPIC."""
    shown = _topics(network).get(topic)
    if shown is None:
        raise UnknownTopic(
            f"no peer of this machine has a part in {topic!r}; `quillcast topic list` shows those that are"
        )
    if as_json:
        click.echo(msgspec.json.encode(shown).decode())
        return
    for name, value in shown.items():
        click.echo(f"{name}: {value if value is not None else '-'}")


@command.command("list")
@JSON
@NETWORK
def list_(network: str, as_json: bool) -> None:
    """List the topics that the peers of this machine have a part in."""
    topics = _topics(network)
    if as_json:
        click.echo(msgspec.json.encode(list(topics.values())).decode())
        return
    for topic in topics.values():
        click.echo(
            f"{topic['name']}  {topic['delivery']}, {topic['events']} events, root {(topic['root'] or '?')[:8]}, "
            f"{topic['members']} peers here in its tree, {topic['subscriptions']} subscriptions, "
            f"{topic['publishers']} publishers"
        )


def _topics(network: str) -> dict[str, dict[str, Any]]:
    """What the peers of this machine know together, by topic."""
    found: dict[str, dict[str, Any]] = {}
    for status in ask_all(network, "status"):
        for part in status["topics"]:
            _merge(found.setdefault(part["name"], _nothing_known(part)), part, status["node_id"])
    return dict(sorted(found.items()))


def _nothing_known(part: Mapping[str, Any]) -> dict[str, Any]:
    settings = {name: part[name] for name in Settings.__struct_fields__ if name in part}
    sums = {"events": 0, "members": 0, "subscriptions": 0, "publishers": 0}
    return {"name": part["name"], "topic": part["topic"], **settings, "root": None, **sums}


def _merge(topic: dict[str, Any], part: Mapping[str, Any], node_id: str) -> None:
    """Add what one peer knows."""
    if part["role"] == "root":
        topic["root"] = node_id
    topic["events"] = max(topic["events"], part.get("frontier", 0))
    topic["members"] += "term" in part
    topic["subscriptions"] += part.get("subscriptions", 0)
    topic["publishers"] += part["publishers"]
