"""`quillcast check`: check the health of a peer, topic, scope or link, as a plug-in for monitors."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
import msgspec

from quillcast.cli import judging
from quillcast.cli.asking import ask_each, ask_peer, choose, peers_here
from quillcast.cli.judging import Bounds, Finding, State, Verdict
from quillcast.cli.options import JSON, NETWORK, PEER, SCOPE, TEXT, TOPIC, Amount, Count, peer_option
from quillcast.cli.rooted import Parts, ask_about, parts_by_root
from quillcast.cli.scopeview import ask_manager
from quillcast.core.errors import LocalError, QuillcastError, RemoteError, UnknownTopic
from quillcast.core.status.peers import LinkStatus, NodeStatus
from quillcast.core.status.trees import TreeStatus
from quillcast.live.discovery.questions import StatusQuestion, TreeQuestion
from quillcast.live.discovery.registry import PeerRegistry

DEFAULTS = Bounds()
ANSWER_TIMEOUT_S = 3.0  # a guess: monitors give up after ten

COUNT, SHARE, TIME = Count(min=0), Amount(min=0, max=100), Amount(min=0)
PROMETHEUS = click.option("--prometheus", is_flag=True, help="Print metrics in Prometheus' text format.")


def bound(
    option: str, kind: click.ParamType[Any], default: float, unit: str, meaning: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option for a threshold of a check."""
    return click.option(option, type=kind, default=default, show_default=True, metavar=unit, help=meaning)


class AskedWrongly(click.UsageError):
    """Wrong arguments. Ends with exit code 3, because 2 would be an alarm for monitors."""

    exit_code = State.UNKNOWN.code


@contextmanager
def _unknown() -> Iterator[None]:
    try:
        yield
    except click.UsageError as problem:
        raise AskedWrongly(problem.format_message(), problem.ctx) from problem


class NotTold(QuillcastError):
    """The answer could not be written, so the caller learned nothing."""

    exit_code = State.UNKNOWN.code


class Checks(click.Group):
    """The checks. A wrong option is not an alarm."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with _unknown():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _unknown():
            try:
                return super().invoke(ctx)
            except OSError as problem:
                raise NotTold(f"{problem.filename or 'the output cannot be written'}: {problem.strerror}") from problem


@click.group(cls=Checks, invoke_without_command=True, short_help="Check the health of a peer, topic, scope or link.")
@click.pass_context
def command(context: click.Context) -> None:
    """Check the health of a peer, topic, scope or link (Nagios exit codes, Prometheus).

    Prints one line. Exit codes: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN (wrong arguments, or the check could not look).
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
        context.exit(State.UNKNOWN.code)


@command.command("peer", short_help="Check this machine's peers, or one of them.")
@peer_option("Check only the peers whose id starts like this.  [default: all]")
@bound("--neighbours-min", COUNT, DEFAULTS.neighbours_min, "NUMBER", "CRITICAL with fewer live neighbours.")
@bound("--buffers-warning", SHARE, 80.0, "PERCENT", "WARNING above this.")
@bound("--buffers-critical", SHARE, 95.0, "PERCENT", "CRITICAL above this.")
@PROMETHEUS
@JSON
@NETWORK
def peer_(
    peer: str,
    network: str,
    neighbours_min: int,
    buffers_warning: float,
    buffers_critical: float,
    prometheus: bool,
    as_json: bool,
) -> None:
    """Check the peers of this machine, or those whose id begins with --peer.

    CRITICAL: none runs; one does not answer, has not joined, or cannot write its journal. WARNING: a neighbour is
    suspected, or there was a recent problem.
    """
    bounds = Bounds(buffers_warning / 100, buffers_critical / 100, neighbours_min)

    def look() -> list[Finding]:
        answers = ask_each(network, choose(network, peer), StatusQuestion(), NodeStatus, timeout_s=ANSWER_TIMEOUT_S)
        return [
            judging.unresponsive_peer(network, entry.node_id) if status is None else judging.of_peer(status, bounds)
            for entry, status in answers
        ]

    _tell("peer", look, {"network": network, "peer": peer}, prometheus=prometheus, as_json=as_json)


@command.command("topic", short_help="Check TOPIC and each of its subscribers.")
@TOPIC
@PEER
@bound("--subscribers-min", COUNT, DEFAULTS.subscribers_min, "NUMBER", "CRITICAL with fewer subscribers.")
@bound("--behind-warning", COUNT, DEFAULTS.behind_warning, "EVENTS", "WARNING if a subscriber is further behind.")
@bound("--behind-critical", COUNT, DEFAULTS.behind_critical, "EVENTS", "CRITICAL if a subscriber is further behind.")
@bound("--late-warning", TIME, DEFAULTS.late_warning_s, "SECONDS", "WARNING if a missing event is older.")
@bound("--late-critical", TIME, DEFAULTS.late_critical_s, "SECONDS", "CRITICAL if a missing event is older.")
@PROMETHEUS
@JSON
@NETWORK
def topic_(
    topic: str,
    peer: str,
    network: str,
    subscribers_min: int,
    behind_warning: int,
    behind_critical: int,
    late_warning: float,
    late_critical: float,
    prometheus: bool,
    as_json: bool,
) -> None:
    """Check TOPIC and each of its subscribers by walking its live tree.

    An event is missing until the application is done with it. CRITICAL: no peer here takes part in the topic, no root
    answers, or a subscriber is far behind. WARNING: a peer of the tree or of this machine does not answer, or a
    subscriber is behind.
    A topic that nobody uses is OK. If topics with different root scopes have the name, checks each.
    """
    bounds = Bounds(
        subscribers_min=subscribers_min,
        behind_warning=behind_warning,
        behind_critical=behind_critical,
        late_warning_s=late_warning,
        late_critical_s=late_critical,
    )

    def look() -> list[Finding]:
        answers = ask_each(network, peers_here(network), StatusQuestion(), NodeStatus, timeout_s=ANSWER_TIMEOUT_S)
        here = parts_by_root(topic, answers)
        if not here:
            raise LocalError(
                f"no peer of this machine takes part in topic {topic}; `quillcast topic list` shows what there is"
            )
        running = {entry.node_id for entry in PeerRegistry(network).entries()}
        unresponsive = [entry.node_id for entry, status in answers if status is None and entry.node_id in running]
        try:
            asked = ask_about(network, peer, TreeQuestion(topic), TreeStatus, statuses=answers)
        except UnknownTopic as problem:  # the topic is known here, but not to the named peer
            raise click.UsageError(str(problem), click.get_current_context()) from problem
        return [
            judging.of_topic(
                network, tree, bounds, root_scope=root, used=_used(here.get(root, [])), unresponsive=unresponsive
            )
            for root, tree in asked.items()
        ]

    _tell("topic", look, {"network": network, "topic": topic}, prometheus=prometheus, as_json=as_json)


def _used(parts: Parts) -> bool:
    return any(part.publishers or part.subscriptions or part.children for _, part in parts)


@command.command("scope", short_help="Check a scope.")
@SCOPE
@PROMETHEUS
@JSON
@NETWORK
def scope_(name: str, network: str, prometheus: bool, as_json: bool) -> None:
    """Check the scope NAME by asking its manager, wherever it runs.

    CRITICAL: nobody knows the scope, or its manager does not answer. WARNING: there are no members, a member has been
    silent for half a lease, a topic waits, or its policy was stopped.
    """

    def look() -> list[Finding]:
        return [judging.of_scope(network, ask_manager(name, network))]

    _tell("scope", look, {"network": network, "scope": name}, prometheus=prometheus, as_json=as_json)


@command.command("link", short_help="Check a peer's links, or one of them.")
@click.argument("neighbour", type=TEXT, metavar="[NEIGHBOUR]", default="")
@PEER
@bound("--waiting-max", COUNT, DEFAULTS.waiting_bytes_max, "BYTES", "WARNING if more bytes are queued.")
@click.option("--round-trip-max", type=TIME, metavar="MS", help="WARNING if longer, UNKNOWN if not measured.")
@PROMETHEUS
@JSON
@NETWORK
def link_(
    neighbour: str,
    peer: str,
    network: str,
    waiting_max: int,
    round_trip_max: float | None,
    prometheus: bool,
    as_json: bool,
) -> None:
    """Check a peer's links, or the one to NEIGHBOUR (the start of its id or address).

    CRITICAL: a link is down or suspected, or there is none. WARNING: its queue is long, or round trips take long.
    """
    bounds = Bounds(waiting_bytes_max=waiting_max, round_trip_ms_max=round_trip_max)

    def look() -> list[Finding]:
        status = ask_peer(network, peer, StatusQuestion(), NodeStatus, timeout_s=ANSWER_TIMEOUT_S)
        links = [link for link in status.neighbours if _leads_to(link, neighbour)]
        if not links:
            raise LocalError(f"peer {status.node_id[:8]} has no link to {neighbour or 'anybody'}")
        return [judging.of_link(status, link, bounds) for link in links]

    _tell("link", look, {"network": network, "neighbour": neighbour}, prometheus=prometheus, as_json=as_json)


def _leads_to(link: LinkStatus, wanted: str) -> bool:
    return link.node_id.startswith(wanted.lower()) or link.address.startswith(wanted)


def _tell(
    what: str, look: Callable[[], list[Finding]], labels: dict[str, str], *, prometheus: bool, as_json: bool
) -> None:
    """Print the findings and end with the worst state. If there is nothing to check, that is CRITICAL."""
    try:
        findings = look()
    except (OSError, RemoteError) as problem:
        findings = [Finding(labels, State.UNKNOWN, str(problem), {})]
    except QuillcastError as problem:
        findings = [Finding(labels, State.CRITICAL, str(problem), {})]
    state = judging.worst(finding.state for finding in findings)
    if as_json:
        click.echo(msgspec.json.encode(Verdict(state, state.code, findings)).decode())
    elif prometheus:
        for metric in judging.prometheus(what, findings):
            click.echo(metric)
    else:
        click.echo(judging.line(findings))
    click.get_current_context().exit(state.code)
