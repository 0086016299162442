"""`quillcast pub`: publish messages, lines of standard input, or files."""

import asyncio
import itertools
import os
import sys
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
import msgspec
from msgspec import structs

from quillcast.cli.options import AS, DATA, JSON, TEXT, TOPIC, Amount, Count, Place
from quillcast.cli.peering import Peering, alone, looked, peering, tell_notices
from quillcast.cli.running import run
from quillcast.cli.streams import lines_of, whole_of
from quillcast.cli.tables import counted
from quillcast.cli.templates import Template
from quillcast.core.errors import EventTooLarge, NotAdmitted, NotDone, NotJoined, NotStable
from quillcast.core.status.commands import PublishResult
from quillcast.live.config import LiveConfig

if TYPE_CHECKING:
    from quillcast.live.admission.credentials import Credentials
    from quillcast.live.edges.publisher import Publisher
    from quillcast.live.node.node import Node

REASONS = {NotAdmitted: "not admitted", NotJoined: "not joined"}
_LEAVE_S = 0.6  # after a time-out; a guess, so that all ends within a second of --timeout
_START_S_MIN = 1.0  # joining the network gets this long, however short --timeout is; a guess
_WAIT_S_MIN = 0.5  # ... and so does the acknowledgement, if joining took most of it: enough to learn who holds it up


@click.command(short_help="Publish messages, lines of input, or files.")
@TOPIC
@click.argument("messages", nargs=-1, metavar="[MESSAGE]...")
@click.option(
    "--file",
    "files",
    type=Place(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    help="Publish the lines of this file. Repeatable.",
)
@click.option("--whole", is_flag=True, help="Each file, or all of standard input, is one event.")
@click.option(
    "--count",
    type=Count(min=0),
    default=1,
    show_default=True,
    help="Publish MESSAGEs or files this many times; 0: until Ctrl-C.",
)
@click.option(
    "--templates/--no-templates",
    default=None,
    help="Replace {{count}}, {{time}} and others.  [default: in MESSAGEs, not in lines or files]",
)
@click.option(
    "--rate", type=Amount(min=0, min_open=True), help="Events per second.  [default: as fast as they are accepted]"
)
@click.option(
    "--wait",
    type=click.Choice(["root", "stable"]),
    help="Wait until the topic's root has admitted the events (default), or until every subscriber has them.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=Amount(min=0),
    default=45.0,
    show_default=True,
    help="Seconds to wait for the network and for the acknowledgement together (beside --wait-for-network). Time "
    "without room for more events, as in a topic that waits for slow subscribers, does not count.",
)
@click.option("--key", type=TEXT, help="What the events are about.")
@click.option(
    "--attribute",
    "attributes",
    type=TEXT,
    metavar="NAME=VALUE",
    multiple=True,
    help="Further data about the events. Repeatable.",
)
@DATA
@AS
@JSON
@peering
def command(
    topic: str,
    messages: tuple[str, ...],
    files: tuple[Path, ...],
    whole: bool,
    count: int,
    templates: bool | None,
    rate: float | None,
    wait: Literal["root", "stable"] | None,
    timeout_s: float,
    key: str | None,
    attributes: tuple[str, ...],
    data: Path | None,
    credentials: "Credentials | None",
    as_json: bool,
    peering: Peering,
) -> None:
    """Publish each MESSAGE as an event. Without MESSAGE, publish each line of standard input or of files.

    \b
    In a MESSAGE and --key these are replaced for every event:
      {{count}}    1, 2, 3, ...
      {{time}}     now, as 2026-01-31T12:00:00.000000Z; {{time_ns}} as nanoseconds since 1970
      {{random}}   16 hexadecimal digits

    Ends when the events are acknowledged as --wait says. After --timeout it names who holds them up, with exit code 5
    (not admitted, or not stable). Empty input publishes nothing, which is no error; a line on standard error says so.
    With --json it prints an object with topic, published, wait, seconds, alone (whether no other peer was heard) and
    looked_in (where peers of this machine were looked for); if others did not answer in time, also error, reason and
    peers (the ids of those that were waited for).
    """  # noqa: D301 - click's mark for preformatted text
    if contradiction := _contradiction(messages, files, whole=whole):
        raise click.UsageError(contradiction, click.get_current_context())
    more = _attributes(attributes)
    template = Template(filled=bool(messages) if templates is None else templates)
    name = os.fsencode(key) if key else None
    began = time.monotonic()
    source = Source(messages, files, count, whole=whole)
    told = PublishResult(topic=topic, published=0, wait=wait, seconds=0.0)
    published = 0

    async def publish_all(publisher: "Publisher") -> None:
        nonlocal published
        limiter = RateLimiter(rate)
        async for payloads in source.portions():
            for payload in payloads:
                await limiter.step()
                template.next()
                about = name and template.fill(name)
                event = template.fill(payload)
                if wait and not published:
                    await publisher.opened(wait, timeout_s)
                await publisher.publish(event, key=about, attributes=more, timeout_s=timeout_s)
                published += 1
                source.number += 1

    async def publish() -> None:
        nonlocal told
        async with peering.node(data=data, live=_within(timeout_s), within_s=timeout_s) as node:
            waited_s = _waited(timeout_s, began) if peering.wait_for_network is None else 0.0
            tell_notices(node)
            with closing(node.publisher(topic, credentials=credentials)) as publisher:
                try:
                    await publish_all(publisher)
                except EventTooLarge as problem:
                    raise source.refused(problem, publisher, published) from problem
                awaited = wait or ("root" if publisher.reliable else None)
                told = structs.replace(told, wait=awaited, alone=alone(node), looked_in=node.looked_in)
                if published and awaited:
                    await _acknowledged(node, publisher, awaited, timeout_s, waited_s)
                told = structs.replace(told, alone=alone(node))
                _tell_reach(node, publisher, source, published, alone=alone(node))

    def tell(**more: Any) -> None:
        if as_json:
            seconds = round(time.monotonic() - began, 3)
            result = structs.replace(told, published=published, seconds=seconds, **more)
            click.echo(msgspec.json.encode(result).decode())

    try:
        run(publish())
    except NotDone as problem:
        reason = problem.reason if isinstance(problem, NotStable) else REASONS[type(problem)]
        tell(error=str(problem), reason=reason, peers=problem.peers)
        raise
    tell()


def _contradiction(messages: tuple[str, ...], files: tuple[Path, ...], *, whole: bool) -> str | None:
    """Return why these arguments contradict each other; None if they do not."""
    if messages and (files or whole):
        return "MESSAGEs and --file or --whole are both given; choose one"
    if not (messages or files) and sys.stdin is None:  # file descriptor 0 may be a socket by now
        return "standard input is closed; give a MESSAGE or --file"
    return None


def _within(timeout_s: float) -> LiveConfig:
    """The settings of a node that must join its network within `timeout_s`, and never later than other nodes."""
    start_s, usual = max(timeout_s, _START_S_MIN), LiveConfig()
    return LiveConfig(
        connect_timeout_s=min(usual.connect_timeout_s, start_s), join_timeout_s=min(usual.join_timeout_s, start_s)
    )


def _waited(timeout_s: float, began: float) -> float:
    """The part of --timeout that joining the network took. Always leaves some time for the acknowledgement."""
    return min(time.monotonic() - began, max(0.0, timeout_s - _WAIT_S_MIN))


def _tell_reach(node: "Node", publisher: "Publisher", source: "Source", published: int, *, alone: bool) -> None:
    """Print on standard error which peers the events cannot have reached, or that there were no events."""
    if not published:
        print(f"quillcast: nothing was published: {source.name} is empty", file=sys.stderr)
    if publisher.partitioned:
        print("quillcast: the network is partitioned: this holds on this side only", file=sys.stderr)
    if published and alone:
        problem = f"nobody got this: no other peer of network {node.network!r} is known here"
        print(f"quillcast: {problem}; {looked(node)}", file=sys.stderr)


async def _acknowledged(
    node: "Node", publisher: "Publisher", wait: Literal["root", "stable"], timeout_s: float, waited_s: float
) -> None:
    """Wait for the acknowledgement. If it does not arrive in time, leave without waiting any longer."""
    try:
        await publisher.acknowledged(wait, timeout_s, waited_s=waited_s)
    except NotDone:
        await node.leave(timeout_s=_LEAVE_S)
        raise


def _attributes(texts: tuple[str, ...]) -> dict[str, str] | None:
    attributes: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not (name.strip() and sign):
            raise click.UsageError(f"--attribute {text!r}: write NAME=VALUE", click.get_current_context())
        if name in attributes:
            raise click.UsageError(f"--attribute {name!r} is given twice", click.get_current_context())
        attributes[name] = value
    return attributes or None


class Source:
    """The events to publish. For error messages, it knows where the next event comes from."""

    def __init__(self, messages: tuple[str, ...], files: tuple[Path, ...], count: int, *, whole: bool) -> None:
        self._messages, self._files, self._count, self._whole = messages, files, count, whole
        self._where = ""
        self.number = 1
        """The number of the next message, or of the next line of a file."""

    @property
    def place(self) -> str:
        """Where the next event comes from, for error messages."""
        if self._messages:
            return f"MESSAGE {self.number}"
        return self._where if self._whole else f"line {self.number} of {self._where}"

    @property
    def name(self) -> str:
        """Where all events come from, for messages."""
        return ", ".join(map(str, self._files)) or "the input"

    def refused(self, problem: EventTooLarge, publisher: "Publisher", published: int) -> EventTooLarge:
        """The error for the next event. An error about an earlier event is returned unchanged."""
        if publisher.failure is not None:
            return problem
        before = f"{counted(published, 'event')} published before it, and none after"
        return EventTooLarge(f"{self.place}: {problem}; {before}")

    async def portions(self) -> AsyncIterator[list[bytes]]:
        """All events, in portions as they are read."""
        rounds: Iterable[int] = range(self._count) if self._count else itertools.count()
        if self._messages:
            for _ in rounds:
                self.number = 1
                yield [os.fsencode(message) for message in self._messages]
        elif self._files:
            for _ in rounds:
                for file in self._files:
                    with file.open("rb") as source:
                        async for portion in self._read(source.fileno(), str(file)):
                            yield portion
        else:
            if sys.stdin.isatty():
                print("Ctrl-D ends" if self._whole else "each line is an event; Ctrl-D ends", file=sys.stderr)
            async for portion in self._read(0, self.name):
                yield portion

    async def _read(self, fd: int, where: str) -> AsyncIterator[list[bytes]]:
        self._where, self.number = where, 1
        if self._whole:
            yield [await whole_of(fd)]
            return
        async for lines in lines_of(fd):
            yield lines


class RateLimiter:
    """Waits so that steps come `rate` times a second. A late step does not delay the next one."""

    def __init__(self, rate: float | None) -> None:
        self._rate, self._steps, self._began = rate, 0, time.monotonic()

    async def step(self) -> None:
        """Wait until the next step is due."""
        if self._rate is None:
            return
        due = self._began + self._steps / self._rate
        self._steps += 1
        await asyncio.sleep(max(0.0, due - time.monotonic()))
