"""`quillcast topic`: create, show, list and change topics."""

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from quillcast.cli.asking import SILENT_S, answered, ask_each, peers_here
from quillcast.cli.options import AS, AS_OWNER, DATA, JSON, NETWORK, TEXT, TOPIC, Count, Owner
from quillcast.cli.peering import Peering, peering
from quillcast.cli.rooted import ask_about, called, no_topic
from quillcast.cli.running import run
from quillcast.cli.summary import parts_by_topic, summary
from quillcast.cli.tables import table
from quillcast.core.errors import LocalError
from quillcast.core.status.machines import TopicSummary
from quillcast.core.status.peers import NodeStatus
from quillcast.core.status.topics import Topic, TopicSettings
from quillcast.core.status.trees import TreeStatus
from quillcast.live.discovery.questions import StatusQuestion, TreeQuestion
from quillcast.live.edges.choices import ownership, topic_settings
from quillcast.live.edges.publisher import TIMEOUT_S
from quillcast.live.node.scopeaddress import ScopeAddress
from quillcast.live.node.topicstatus import described_topic
from quillcast.protocol.security.access import entry
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import CHOICES, EVENT_BYTES_MAX, Settings, described
from quillcast.protocol.topics.publishing.changes import check_change, not_owner

if TYPE_CHECKING:
    from quillcast.live.admission.credentials import Credentials

DEFAULTS, TOPICS = Settings(), TopicConfig()
SIZE = Count(min=1, max=EVENT_BYTES_MAX)


def choice(name: str, meaning: str, *, default: str | None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option for a topic's setting."""
    choices = click.Choice(CHOICES[name])
    return click.option(f"--{name}", type=choices, default=default, show_default=default is not None, help=meaning)


def who(role: str, meaning: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option that puts principals on a topic's access list."""

    def checked(context: click.Context, parameter: click.Parameter, principals: tuple[str, ...]) -> tuple[str, ...]:
        try:
            for each in principals:
                entry(role, each)
        except LocalError as problem:
            raise click.BadParameter(str(problem), context, parameter) from problem
        return principals

    return click.option(
        f"--{role}", f"{role}s", type=TEXT, metavar="PRINCIPAL", multiple=True, callback=checked,
        help=f"{meaning} `quillcast credentials show` prints one.",
    )  # fmt: skip


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
@click.option(
    "--event-bytes-max", type=SIZE, default=DEFAULTS.event_bytes_max, show_default=True, help="Largest payload."
)
@choice("partition", "During a partition: acknowledge and say so, or acknowledge nothing.", default=DEFAULTS.partition)
@choice(
    "admission",
    "Who numbers the events: the topic's root, or each publishing peer its own.",
    default=DEFAULTS.admission,
)
@click.option(
    "--root-scope",
    type=TEXT,
    metavar="NAME",
    default="",
    help="The scope whose members number and keep the events: the one whose file says root = true for the topic.",
)
@AS_OWNER
@who("publisher", "Principal that may publish, besides the owner. Repeatable.")
@who("subscriber", "Principal that may subscribe, besides the owner. Repeatable.")
@DATA
@JSON
@peering
def create(
    topic: str,
    peering: Peering,
    owner: Owner | None,
    publishers: tuple[str, ...],
    subscribers: tuple[str, ...],
    data: Path | None,
    as_json: bool,
    **settings: Any,
) -> None:
    """Create TOPIC with these settings, for the whole network.

    With --as the topic has an owner, and only the owner can change it. --publisher and --subscriber restrict who may
    use it; without them everybody may.

    A TOPIC named NODEID:NAME has the peer with that nodeId (32 digits, see `quillcast status --json`) as its root while
    that peer lives.
    """
    described(topic, topic_settings(settings))  # reports invalid settings before any peer is needed
    credentials = None if owner is None else owner.credentials
    if credentials is None and (publishers or subscribers):
        given = "--publisher" if publishers else "--subscriber"
        raise click.UsageError(f"a topic with {given} has an owner: add --as FILE, with the owner's credentials")
    ownership(credentials, publishers, subscribers)
    if not (peering.contacts or peering.join):
        peers_here(peering.network)  # without another peer, the topic would end with this command

    async def create_it() -> tuple[Topic, int]:
        async with peering.node(data=data, within_s=TIMEOUT_S) as node:
            with nullcontext() if owner is None else owner.saved():
                created = await node.create(
                    topic, credentials=credentials, publishers=publishers, subscribers=subscribers, **settings
                )
            return described_topic(created), node.holders(topic)

    created, holders = run(create_it())
    if holders == 1:
        click.echo(
            f"{topic}: no other peer holds these settings, so they are lost; start a peer and create the topic again",
            err=True,
        )
    _tell(created, as_json=as_json)


@command.command("set")
@TOPIC
@choice("delivery", "Guarantee for subscribers. Takes effect when the next session begins.", default=None)
@choice(
    "order", "Whether each publisher's events arrive in order. Takes effect when the next session begins.", default=None
)
@choice(
    "slow", "If a subscriber cannot keep up: cut it and report what it lost, or make publishers wait.", default=None
)
@click.option("--event-bytes-max", type=SIZE, help="Largest payload.")
@choice("partition", "During a partition: acknowledge and say so, or acknowledge nothing.", default=None)
@choice(
    "admission",
    "Who numbers the events: the topic's root, or each publishing peer its own. Takes effect when the next session "
    "begins.",
    default=None,
)
@who(
    "publisher",
    "Principal that may publish, besides the owner. Replaces the current list when the next session begins. "
    "Repeatable.",
)
@who(
    "subscriber",
    "Principal that may subscribe, besides the owner. Replaces the current list when the next session begins. "
    "Repeatable.",
)
@click.option("--yes", is_flag=True, help="Do not ask before a costly change.")
@DATA
@AS
@JSON
@peering
def set_(
    topic: str, peering: Peering, yes: bool, data: Path | None, credentials: "Credentials | None", as_json: bool,
    publishers: tuple[str, ...], subscribers: tuple[str, ...], **settings: Any,
) -> None:  # fmt: skip
    """Change the settings of an existing topic while it is in use.

    Shows what a change costs before it applies; on a terminal it asks.
    """
    wanted = {name: value for name, value in settings.items() if value is not None}
    if not (wanted or publishers or subscribers):
        raise click.UsageError("nothing to set; name a setting, such as --slow wait", click.get_current_context())
    before = to_change(_known(topic, peering.network), peering.scopes).settings
    after = msgspec.structs.replace(before, **wanted)
    _check_owner(topic, before, credentials, lists=bool(publishers or subscribers))
    check_change(topic, _settings(before), _settings(after))
    costs = list(_costs(before, after, opens_session=bool(publishers or subscribers)))
    for cost in costs:
        click.echo(cost, err=True)
    if costs and not yes and sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty():
        click.confirm("apply it?", abort=True, err=True)

    async def change() -> Topic:
        async with peering.node(data=data, within_s=TIMEOUT_S) as node:
            return described_topic(await node.change(
                topic, credentials=credentials, publishers=publishers or None, subscribers=subscribers or None, **wanted
            ))  # fmt: skip

    _tell(run(change()), as_json=as_json)


def _check_owner(topic: str, before: TopicSettings, by: "Credentials | None", *, lists: bool) -> None:
    """Raise the root's refusal before costs are shown."""
    if before.owner is not None and (by is None or by.principal != before.owner):
        raise not_owner(topic, before.owner)
    if before.owner is None and lists:
        raise LocalError(
            f"topic {topic!r} has no owner, so its access list cannot change: create another topic with --as FILE"
        )


def _settings(shown: TopicSettings) -> Settings:
    return Settings(*(getattr(shown, name) for name in Settings.__struct_fields__))


def _costs(before: TopicSettings, after: TopicSettings, *, opens_session: bool) -> Iterator[str]:
    """Describe what will cost more, one line each."""
    if (before.delivery, after.delivery) == ("reliable", "best_effort"):
        yield "delivery = best_effort: lost events are not sent again, and publishers keep no copies"
    guarantees = [(each.delivery, each.order, each.partition, each.admission) for each in (before, after)]
    if opens_session or guarantees[0] != guarantees[1]:
        yield "a new session begins: publishers wait until subscribers have acknowledged what was published before"
    if (before.slow, after.slow) == ("cut", "wait"):
        yield (
            "slow = wait: publishers go no faster than the slowest subscriber, and wait for up to "
            f"{TOPICS.lease_s:g} s when one hangs"
        )
    if after.event_bytes_max > before.event_bytes_max:
        size, mib = after.event_bytes_max, TOPICS.budget_bytes >> 20
        yield (
            f"event_bytes_max = {size}: a peer's buffers ({mib} MiB for all topics) may hold as few as "
            f"{TOPICS.budget_bytes // size} events; slow subscribers are cut earlier"
        )


def _tell(topic: Topic, *, as_json: bool) -> None:
    """Print a topic's settings."""
    if as_json:
        click.echo(msgspec.json.encode(topic).decode())
    else:
        shown = msgspec.structs.asdict(msgspec.structs.replace(topic.settings, access=(), session_state=""))
        click.echo(f"{topic.name}: {', '.join(f'{name} = {value}' for name, value in shown.items() if value)}")


@command.command(short_help="Show a topic's settings, owner and access list.")
@TOPIC
@JSON
@NETWORK
def show(topic: str, network: str, as_json: bool) -> None:
    """Show what is known of TOPIC: its settings, its owner, who may use it, and its part on this machine.

    The peers of this machine are asked first, and then the topic's root.
    """
    for known in _known(topic, network):
        for line in [msgspec.json.encode(known).decode()] if as_json else _lines(known):
            click.echo(line)


def _lines(known: TopicSummary) -> Iterator[str]:
    """Describe a topic, one line for each field."""
    access = ", ".join(known.settings.access) or "everybody"
    settings = {**msgspec.structs.asdict(known.settings), "access": access}
    for name, value in msgspec.structs.asdict(known).items():
        for label, shown in settings.items() if name == "settings" else [(name, value)]:
            yield f"{label}: {'-' if shown in (None, '') else shown}"


@command.command("list", short_help="List the topics of this machine's peers.")
@JSON
@NETWORK
def list_(network: str, as_json: bool) -> None:
    """List the topics that the peers of this machine have a part in, or keep the settings of."""
    topics = _topics(network)
    if as_json:
        click.echo(msgspec.json.encode(topics).decode())
        return
    columns = ["topic", "delivery", "admission", "root", "events", "peers here", "subscriptions", "publishers"]
    for line in table("topics", columns, map(_listed, topics), left_count=4):
        click.echo(line)


def _listed(topic: TopicSummary) -> list[object]:
    root = "-" if topic.root is None else topic.root[:8]
    counts = [topic.events, topic.peers, topic.subscriptions, topic.publishers]
    settings = topic.settings
    return [called(topic.name, settings.root_scope), settings.delivery, settings.admission, root, *counts]


def _known(topic: str, network: str) -> list[TopicSummary]:
    """Return what this machine's peers and the roots know about the topics of this name.

    Raises `UnknownTopic` if there is none.
    """
    here = {each.settings.root_scope: each for each in _topics(network) if each.name == topic}
    if not here or any(each.root is None for each in here.values()):
        for root_scope, tree in ask_about(network, "", TreeQuestion(topic), TreeStatus).items():
            known = here.get(root_scope) or _elsewhere(network, topic, tree)
            if known.root is None:
                here[root_scope] = msgspec.structs.replace(
                    known,
                    settings=tree.settings or known.settings,
                    root=tree.root,
                    events=max(known.events, tree.events),
                )
    return list(here.values())


def to_change(topics: list[TopicSummary], scopes: tuple[str, ...]) -> TopicSummary:
    """The topic that the name means for a member of these scopes. Raises `LocalError` if it has none."""
    names = {ScopeAddress.parse(each).name for each in scopes}
    first = min(topics, key=lambda each: each.settings.root_scope not in (names or {""}))
    if first.settings.root_scope and not names:
        root_scope = first.settings.root_scope
        raise LocalError(
            f"topic {first.name} is rooted at scope {root_scope}: add --scope {root_scope}@HOST:PORT, because only "
            "members of that scope can change it"
        )
    return first


def _elsewhere(network: str, topic: str, tree: TreeStatus) -> TopicSummary:
    """A topic in which no peer of this machine has a part. Raises `UnknownTopic`."""
    if tree.settings is None:
        raise no_topic(network, topic)
    topic_id = described(topic).topic.hex()
    return TopicSummary(topic, topic_id, tree.settings, root=None, events=0, peers=0, subscriptions=0, publishers=0)


def _topics(network: str) -> list[TopicSummary]:
    """What this machine's peers together know, by topic. Raises `Unreachable` if no peer answers."""
    statuses = answered(ask_each(network, peers_here(network), StatusQuestion(), NodeStatus, timeout_s=SILENT_S))
    return [summary(parts) for parts in parts_by_topic(statuses).values()]
