"""`quillcast scope`: run the managers of scopes, show and change them, and check their files and policies."""

import asyncio
import hashlib
import math
import signal
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from quillcast.cli import scopeview
from quillcast.cli.options import AS_OPERATOR, JSON, NETWORK, SCOPE, TEXT, TOPIC, Place
from quillcast.cli.peering import Peering, peering
from quillcast.cli.running import run
from quillcast.core.errors import LocalError
from quillcast.core.status.commands import PolicyChecked, RecoveryChecked, ScopeEntry, ScopeExported
from quillcast.core.status.scopes import PolicyChange, ScopeStatus
from quillcast.files import SETTINGS_BYTES_MAX, read_bytes
from quillcast.live.discovery.questions import InviteToScopeQuestion, SetPolicyQuestion, UnsetPolicyQuestion

CHECK_LIMIT_S = 60.0  # for the check of a recovery protocol; a guess: the built-in ones take less than 5 s

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from quillcast.live.admission.credentials import Credentials
    from quillcast.protocol.scopes.policy import ScopePolicy


@click.group(invoke_without_command=True, short_help="Run, show, change and check scopes.")
@click.pass_context
def command(context: click.Context) -> None:
    """Run, show and change scopes, and check scope files and policies of your own."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@command.command(short_help="Explain scope files, and check them.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=Place(dir_okay=False, path_type=Path))
@JSON
@click.pass_context
def check(context: click.Context, files: tuple[Path, ...], as_json: bool) -> None:
    """Explain what scope files will do, and check them, each by itself and all together.

    Each error is a line with the file, the line in it, and the remedy. Policies of other packages are started once, to
    check their parameters.
    """
    from quillcast.live.scopes import files as scope_files

    checked = scope_files.check(tuple(dict.fromkeys(files)))
    for number, each in enumerate(checked):
        if as_json:
            click.echo(msgspec.json.encode(each.report()).decode())
        elif each.sentences:
            click.echo("\n".join(["", each.file] if number else [each.file]))
            for sentence in each.sentences:
                click.echo(f"  {sentence}")
    if wrong := [fault for each in checked for fault in each.faults]:
        for fault in () if as_json else wrong:
            click.echo(str(fault) if fault.line else f"quillcast: {fault}", err=True)
        context.exit(LocalError.exit_code)


@command.command(short_help="Run the managers of scopes.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=Place(dir_okay=False, path_type=Path))
@click.option(
    "--data",
    type=Place(file_okay=False, path_type=Path),
    required=True,
    help="Keep the peer's identity and the managers' state in this folder, so that they survive a restart.",
)
@click.option(
    "--state",
    type=Place(dir_okay=False, path_type=Path),
    help="Continue from the state that `quillcast scope export` wrote at another peer. Only with a single FILE.",
)
@JSON
@peering
def serve(files: tuple[Path, ...], data: Path, state: Path | None, as_json: bool, peering: Peering) -> None:
    """Run the managers of the scopes that these files describe, in a peer that forwards for others.

    Prints what members need to enter, and runs until Ctrl-C. While it is stopped, members keep their channels.
    """
    from quillcast.live.scopes.serving import in_order

    if state is not None and len(files) > 1:
        raise click.UsageError("--state needs exactly one FILE", click.get_current_context())

    async def stay() -> None:
        node = peering.node(data=data, make_credential=peering.listen is not None, on_problem=_log)
        async with node:
            for file in in_order(files):
                name = await node.manage_scope(file, state=state)
                scope = f"{name}@{node.address}"
                told = f"scope {name}: members enter with --scope {scope}"
                click.echo(msgspec.json.encode(ScopeEntry(name, scope)).decode() if as_json else told)
            sys.stdout.flush()
            await asyncio.Event().wait()

    run(stay())


def _log(line: str) -> None:
    click.echo(f"quillcast: {line}", err=True)


def _shown(lines: Callable[[ScopeStatus], Iterator[str]], name: str, network: str, *, as_json: bool) -> None:
    status = _ask_manager(name, network, as_json=as_json)
    if as_json:
        click.echo(msgspec.json.encode(status).decode())
        return
    for line in lines(status):
        _show(line)


def _show(line: str) -> None:
    """Print text of another peer, without control characters that would move the terminal's cursor."""
    click.echo("".join(sign for sign in line if sign.isprintable()))


def _ask_manager(name: str, network: str, *, as_json: bool) -> ScopeStatus:
    """Return the scope. If its manager is silent, print what a member last knew before the error."""
    try:
        return scopeview.ask_manager(name, network)
    except scopeview.ManagerSilent as silent:
        if silent.memory is not None:
            memory = [msgspec.json.encode(silent.memory).decode()] if as_json else scopeview.memory(silent.memory)
            for line in memory:
                _show(line)
        raise


@command.command(short_help="Show a running scope.")
@SCOPE
@JSON
@NETWORK
def show(name: str, network: str, as_json: bool) -> None:
    """Show the scope NAME: its manager, how many members and topics it has, and the rules that decide for topics.

    This and the next commands ask the scope's manager, wherever it runs. If it does not answer, they show what a member
    last knew.
    """
    _shown(scopeview.show, name, network, as_json=as_json)


@command.command(short_help="List the members of a running scope.")
@SCOPE
@JSON
@NETWORK
def members(name: str, network: str, as_json: bool) -> None:
    """List the members of the scope NAME: when they were heard last, who is in the ring, and their topics."""
    _shown(scopeview.members, name, network, as_json=as_json)


@command.command(short_help="List the topics in a running scope.")
@SCOPE
@JSON
@NETWORK
def topics(name: str, network: str, as_json: bool) -> None:
    """List the topics in the scope NAME: their policies, entry points and channels, and what they wait for."""
    _shown(scopeview.topics, name, network, as_json=as_json)


@command.command(short_help="Draw the channels of a topic in a running scope.")
@SCOPE
@TOPIC
@JSON
@NETWORK
def tree(name: str, topic: str, network: str, as_json: bool) -> None:
    """Draw the channels that the scope NAME ordered for TOPIC. `quillcast tree` draws the actual tree."""
    status = _ask_manager(name, network, as_json=as_json)
    found = scopeview.topic_of(status, topic)
    if as_json:
        click.echo(msgspec.json.encode(found).decode())
        return
    for line in scopeview.tree(status, found):
        click.echo(line)


@command.command(short_help="Write a manager's state to a file, to move it to another peer.")
@click.argument("name", type=TEXT, metavar="NAME")
@click.argument("file", metavar="FILE", type=Place(dir_okay=False, path_type=Path))
@click.option("--data", type=Place(file_okay=False, path_type=Path), required=True, help="The manager's folder.")
@JSON
def export(name: str, file: Path, data: Path, as_json: bool) -> None:
    """Write the state of the manager of the scope NAME to FILE. Stop the manager first.

    `quillcast scope serve --state FILE` continues it at another peer, and the members follow it there. Meanwhile they
    keep their channels. FILE holds the scope's key: keep it secret, and remove it afterwards.
    """
    from quillcast.live.node.scopeexport import export_scope

    export_scope(name, data, file)
    if as_json:
        click.echo(msgspec.json.encode(ScopeExported(name, str(file))).decode())


@command.command(short_help="Apply the changed file of a running scope.")
@SCOPE
@JSON
@NETWORK
def reload(name: str, network: str, as_json: bool) -> None:
    """Have the manager of the scope NAME read the scope's file again, and say what that changes.

    Run this on the manager's machine. Members, clients and senders learn at once what differs. If the file has an
    error, the command prints it with its line, and everything stays as it is.
    """
    reloaded = scopeview.reload(name, network)
    if as_json:
        click.echo(msgspec.json.encode(reloaded).decode())
        return
    for line in scopeview.reloaded(reloaded):
        click.echo(line)


@command.command(short_help="Print a join line of a running scope.")
@SCOPE
@AS_OPERATOR
@JSON
@NETWORK
def invite(name: str, network: str, credentials: "Credentials | None", as_json: bool) -> None:
    """Print a line with which one more peer or scope enters the scope NAME: --scope LINE, or in superscopes of a file.

    It works once, within 15 minutes. A member that entered with it stays admitted. The scope's file must have
    join_line = true.
    """
    line = scopeview.do(InviteToScopeQuestion(name), network, credentials, str)
    click.echo(msgspec.json.encode(ScopeEntry(name, line)).decode() if as_json else line)


def _policies(_: click.Context, __: click.Parameter, begun: str) -> "list[CompletionItem]":
    from click.shell_completion import CompletionItem

    from quillcast.core.extensions import offered
    from quillcast.live.scopes.plugins import POLICIES
    from quillcast.protocol.scopes.policies import BUILT_IN

    if begun.endswith((".", "/")) or "/" in begun:
        return [CompletionItem(begun, type="file")]
    return [CompletionItem(name) for name in sorted({*BUILT_IN, *offered(POLICIES)}) if name.startswith(begun)]


@command.group(invoke_without_command=True, short_help="Set the policies of a running scope, or check a policy.")
@click.pass_context
def policy(context: click.Context) -> None:
    """Set the policies of a running scope, and check a policy of your own."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@policy.command("set", short_help="Change the policy of topics in a running scope.")
@SCOPE
@click.argument("pattern", type=TEXT, metavar="PATTERN")
@click.argument("chosen", type=TEXT, metavar="POLICY", shell_complete=_policies)
@click.argument("parameters", type=TEXT, metavar="[KEY=VALUE]...", nargs=-1)
@click.option(
    "--sha256", type=TEXT, default="", help="The hash of FILE, if POLICY is FILE.py:Class. FILE is beside the scope's."
)
@AS_OPERATOR
@JSON
@NETWORK
def set_policy(
    name: str, pattern: str, chosen: str, parameters: tuple[str, ...], sha256: str, network: str,
    credentials: "Credentials | None", as_json: bool,
) -> None:  # fmt: skip
    """Let topics that match PATTERN use POLICY in the scope NAME, while it is in use.

    A policy that was set precedes the rules of the scope's file, the latest first, and the manager keeps it across
    restarts. Values are written as in TOML. Prints what changed. If the manager runs on another machine, --as names the
    credentials of an operator that the scope's file lists.
    """
    wanted = SetPolicyQuestion(name, pattern, chosen, dict(map(_parameter, parameters)), sha256)
    _change(wanted, network, credentials, as_json=as_json)


@policy.command("unset", short_help="Return to the policy that the scope's file names.")
@SCOPE
@click.argument("pattern", type=TEXT, metavar="PATTERN")
@AS_OPERATOR
@JSON
@NETWORK
def unset_policy(name: str, pattern: str, network: str, credentials: "Credentials | None", as_json: bool) -> None:
    """Return to the policy in the file of the scope NAME for topics that match PATTERN."""
    _change(UnsetPolicyQuestion(name, pattern), network, credentials, as_json=as_json)


def _change(wanted: scopeview.Change, network: str, credentials: "Credentials | None", *, as_json: bool) -> None:
    changed = scopeview.do(wanted, network, credentials, PolicyChange)
    if as_json:
        click.echo(msgspec.json.encode(changed).decode())
        return
    for line in scopeview.change(changed):
        click.echo(line)


@policy.command("check", short_help="Check that a policy keeps the rules.")
@click.argument("name", type=TEXT, metavar="POLICY", shell_complete=_policies)
@click.option(
    "--set", "parameters", type=TEXT, metavar="NAME=VALUE", multiple=True, help="A parameter, as in TOML. Repeatable."
)
@JSON
def check_policy(name: str, parameters: tuple[str, ...], as_json: bool) -> None:
    """Check that POLICY keeps the rules: a name, module:Class, or FILE.py:Class.

    Asks it about groups that result from many joins, leaves and changes, in two processes that must answer alike. For a
    file, this prints the hash that pins it.
    """
    from quillcast.live.scopes.confined import ConfinedPolicy
    from quillcast.live.scopes.plugins import InstalledFilters, opened
    from quillcast.protocol.scopes.conformance import Nonconforming
    from quillcast.protocol.scopes.conformance import check as check_rules

    chosen, sha256 = dict(map(_parameter, parameters)), _sha256(name)
    with ExitStack() as stack:

        def instance(hash_seed: int) -> "ScopePolicy":
            made = opened(name, chosen, sha256=sha256, hash_seed=hash_seed)
            if isinstance(made, ConfinedPolicy):
                stack.enter_context(made)
            return made

        filters = InstalledFilters(lambda line: click.echo(line, err=True))
        try:
            report = check_rules(instance(0), instance(1), customs=filters)
        except Nonconforming as broken:
            raise Nonconforming(f"policy {name} breaks a rule: {broken}") from None
    if as_json:
        click.echo(msgspec.json.encode(PolicyChecked(name, sha256, *report)).decode())
        return
    click.echo(
        f"{name} keeps the rules of policies with delivery {report.delivery}: checked in {report.groups} groups, "
        f"at most {report.fan_out} channels from one member for one origin"
    )
    if sha256:
        click.echo(f'to pin it: sha256 = "{sha256}"')


@command.group(invoke_without_command=True, short_help="Check a recovery protocol of your own.")
@click.pass_context
def recovery(context: click.Context) -> None:
    """Check a recovery protocol of your own."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@recovery.command("check", short_help="Check that a recovery protocol keeps the rules.")
@click.argument("name", type=TEXT, metavar="PROTOCOL")
@JSON
def check_recovery(name: str, as_json: bool) -> None:
    """Check that PROTOCOL keeps the rules: a name that scope files may use for `recovery`.

    Its agents repair in simulated domains of 1 to 30 members, with lost messages.
    """
    from quillcast.live.scopes.plugins import check_recovery as check_known
    from quillcast.live.scopes.plugins import protocol_class
    from quillcast.protocol.reliability.conformance import RepairsWrongly, check
    from quillcast.protocol.reliability.protocols import BUILT_IN

    check_known(name)
    try:
        with _bounded(CHECK_LIMIT_S):
            report = check(BUILT_IN.get(name) or protocol_class(name), whole=name in ("ring", "srm"))
    except _TooLong:
        raise RepairsWrongly(
            f"the check of recovery protocol {name} did not end within {CHECK_LIMIT_S:g} s: does it loop?"
        ) from None
    except RepairsWrongly as broken:
        raise RepairsWrongly(f"recovery protocol {name} breaks a rule: {broken}") from None
    if as_json:
        click.echo(msgspec.json.encode(RecoveryChecked(name, *report)).decode())
        return
    click.echo(
        f"{name} keeps the rules of recovery protocols: checked in {report.domains} domains with {report.messages} "
        f"messages and {report.requests} requests"
    )


class _TooLong(BaseException):
    """The time is up. A `BaseException`, so that code of other packages does not catch it by mistake."""


@contextmanager
def _bounded(limit_s: float) -> Iterator[None]:
    """Raise `_TooLong` after this many seconds, and again if it is caught nevertheless."""

    def interrupt(number: int, frame: object) -> None:
        raise _TooLong

    former = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, limit_s, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)


def _sha256(name: str) -> str:
    """The hash of the file that `FILE.py:Class` names. Empty for other names, and if the file cannot be read."""
    file = Path(name.partition(":")[0])
    try:
        return hashlib.sha256(read_bytes(file, SETTINGS_BYTES_MAX)).hexdigest() if file.suffix == ".py" else ""
    except OSError:
        return ""  # opening the policy will say why


def _parameter(text: str) -> tuple[str, Any]:
    """Parse NAME=VALUE. A value that is not TOML is a text."""
    name, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"parameter {text}: write NAME=VALUE", click.get_current_context())
    try:
        (parsed,) = tomllib.loads(f"value = {value}").values()
    except tomllib.TOMLDecodeError:
        return name.strip(), value.strip()
    if isinstance(parsed, float) and not math.isfinite(parsed):  # a question to a manager would turn it into null
        raise click.UsageError(f"parameter {text}: {parsed} is not a finite number", click.get_current_context())
    return name.strip(), parsed
