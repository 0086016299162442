"""`quillcast topic`: create, show, list and change topics."""

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click
import msgspec

from quillcast.cli.asking import ask_all, ask_peer, peers_here
from quillcast.cli.options import AS, AS_OWNER, JSON, NETWORK, TOPIC
from quillcast.cli.peering import Peering, peering
from quillcast.cli.running import run
from quillcast.cli.tables import counted
from quillcast.core.errors import UnknownTopic
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import CHOICES, Settings, described

if TYPE_CHECKING:
    from quillcast.live.admission.credentials import Credentials

DEFAULTS, TOPICS = Settings(), TopicConfig()


def choice(name: str, meaning: str, *, default: str | None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option for a topic's setting."""
    choices = click.Choice(CHOICES[name])
    return click.option(f"--{name}", type=choices, default=default, show_default=default is not None, help=meaning)


@click.group(invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """Create, show, list and change topics."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@command.command()
@TOPIC
@choice("delivery", "Guarantee for subscribers.", default=DEFAULTS.delivery)
@choice("order", "Whether each publisher's events arrive in order.", default=DEFAULTS.order)
@choice(
    "slow",
    "If a subscriber cannot keep up: cut it and report what it lost, or make publishers wait.",
    default=DEFAULTS.slow,
)
@click.option("--event-bytes-max", default=DEFAULTS.event_bytes_max, show_default=True, help="Largest payload.")
@choice("partition", "During a partition: acknowledge and say so, or acknowledge nothing.", default=DEFAULTS.partition)
@AS_OWNER
@click.option("--publisher", "publishers", metavar="PRINCIPAL", multiple=True, help="Who else may publish. Repeatable.")
@click.option(
    "--subscriber", "subscribers", metavar="PRINCIPAL", multiple=True, help="Who else may subscribe. Repeatable."
)
@JSON
@peering
def create(
    topic: str,
    peering: Peering,
    credentials: "Credentials | None",
    publishers: tuple[str, ...],
    subscribers: tuple[str, ...],
    as_json: bool,
    **settings: Any,
) -> None:
    """Create TOPIC with these settings, for the whole network.

    With --as the topic has an owner, and only the owner can change it. --publisher and --subscriber restrict who may
    use it; without them everybody may. `topic create --as` prints a principal as `owner`.
    """
    if not (peering.contacts or peering.join):
        peers_here(peering.network)  # without another peer, the topic would end with this command

    async def create_it() -> int:
        async with peering.node() as node:
            await node.create(
                topic, credentials=credentials, publishers=publishers, subscribers=subscribers, **settings
            )
            return node.holders(topic)

    if run(create_it()) == 1:
        click.echo(
            f"{topic}: no other peer holds these settings, so they are lost; start a peer and create the topic again",
            err=True,
        )
    owner = {} if credentials is None else {"owner": credentials.principal}
    _tell_settings(topic, {**_settings(settings), **owner}, as_json=as_json)


@command.command("set")
@TOPIC
@choice("delivery", "Guarantee for subscribers; cannot be changed.", default=None)
@choice("order", "Whether each publisher's events arrive in order; cannot be changed.", default=None)
@choice(
    "slow", "If a subscriber cannot keep up: cut it and report what it lost, or make publishers wait.", default=None
)
@click.option("--event-bytes-max", type=click.IntRange(min=1), help="Largest payload.")
@click.option("--yes", is_flag=True, help="Do not ask before a costly change.")
@AS
@JSON
@peering
def set_(
    topic: str, peering: Peering, yes: bool, credentials: "Credentials | None", as_json: bool, **settings: Any
) -> None:
    """Change the settings of an existing topic while it is in use.

    Shows what a change costs before it applies; on a terminal it asks.
    """
    wanted = {name: value for name, value in settings.items() if value is not None}
    if not wanted:
        raise click.UsageError("nothing to set; use --slow or --event-bytes-max", click.get_current_context())
    before = _settings(_known(topic, peering.network))
    costs = list(_costs(before, before | wanted))
    for cost in costs:
        click.echo(cost, err=True)
    if costs and not yes and sys.stdin.isatty() and sys.stderr.isatty():
        click.confirm("apply it?", abort=True, err=True)

    async def change() -> dict[str, Any]:
        async with peering.node() as node:
            return msgspec.structs.asdict((await node.change(topic, credentials=credentials, **wanted)).settings)

    after = run(change())
    _tell_settings(topic, after, as_json=as_json)


def _settings(shown: Mapping[str, Any]) -> dict[str, Any]:
    return {name: shown[name] for name in Settings.__struct_fields__}


def _costs(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """What will cost more, one line each."""
    if (before["slow"], after["slow"]) == ("cut", "wait"):
        yield (
            "slow = wait: publishers go no faster than the slowest subscriber, and wait for up to "
            f"{TOPICS.lease_s:g} s when one hangs"
        )
    if after["event_bytes_max"] > before["event_bytes_max"]:
        size, mib = after["event_bytes_max"], TOPICS.budget_bytes >> 20
        yield (
            f"event_bytes_max = {size}: a peer's buffers ({mib} MiB for all topics) may hold as few as "
            f"{TOPICS.budget_bytes // size} events; slow subscribers are cut earlier"
        )


def _tell_settings(topic: str, settings: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode({"topic": topic, **settings}).decode())
    else:
        click.echo(f"{topic}: {', '.join(f'{name} = {value}' for name, value in settings.items())}")


@command.command()
@TOPIC
@JSON
@NETWORK
def show(topic: str, network: str, as_json: bool) -> None:
    """Show what is known of TOPIC: its settings, its owner, who may use it, and its part on this machine.

    The peers of this machine are asked first, and then the topic's root.
    """
    shown = _known(topic, network)
    if as_json:
        click.echo(msgspec.json.encode(shown).decode())
        return
    for name, value in shown.items():
        click.echo(f"{name}: {_plainly(name, value)}")


def _plainly(name: str, value: Any) -> str:
    if name == "access":
        return ", ".join(value) or "everybody"
    return str(value if value is not None else "-")


@command.command("list")
@JSON
@NETWORK
def list_(network: str, as_json: bool) -> None:
    """List the topics that the peers of this machine have a part in, or keep the settings of."""
    topics = _topics(network)
    if as_json:
        click.echo(msgspec.json.encode(list(topics.values())).decode())
        return
    for topic in topics.values():
        click.echo(
            f"{topic['name']}  {topic['delivery']}, {counted(topic['events'], 'event')}, root "
            f"{(topic['root'] or '?')[:8]}, {counted(topic['members'], 'peer')} here in its tree, "
            f"{counted(topic['subscriptions'], 'subscription')}, {counted(topic['publishers'], 'publisher')}"
        )


def _known(topic: str, network: str) -> dict[str, Any]:
    """What the peers of this machine know of a topic, and what its root knows. Raises `UnknownTopic`."""
    here = _topics(network).get(topic)
    if here is not None and here["root"] is not None:
        return here
    tree = ask_peer(network, "", "tree", topic=topic)
    settings = tree["settings"]
    if settings is None and here is None:
        raise UnknownTopic(f"there is no topic {topic!r}; `quillcast topic list` shows those of this machine")
    shown = here or _nothing_known(settings)
    return {**shown, **(settings or {}), "root": tree["root"], "events": max(shown["events"], tree["events"])}


def _topics(network: str) -> dict[str, dict[str, Any]]:
    """What the peers of this machine know together, by topic."""
    found: dict[str, dict[str, Any]] = {}
    for status in ask_all(network, "status"):
        for part in status["topics"]:
            _merge(found.setdefault(part["name"], _nothing_known(part)), part, status["node_id"])
    return dict(sorted(found.items()))


def _nothing_known(part: Mapping[str, Any]) -> dict[str, Any]:
    """A topic of which only the settings are known."""
    chosen = {name: part[name] for name in ("owner", "access")}
    sums = {"events": 0, "members": 0, "subscriptions": 0, "publishers": 0}
    topic = part.get("topic") or described(part["name"]).topic.hex()
    return {"name": part["name"], "topic": topic, **_settings(part), **chosen, "root": None, **sums}


def _merge(topic: dict[str, Any], part: Mapping[str, Any], node_id: str) -> None:
    """Add what one peer knows."""
    if part["role"] == "root":
        topic["root"] = node_id
        topic |= {name: part[name] for name in (*Settings.__struct_fields__, "owner", "access")}
    topic["events"] = max(topic["events"], part.get("events", 0))
    topic["members"] += "term" in part
    topic["subscriptions"] += part.get("subscriptions", 0)
    topic["publishers"] += part["publishers"]
