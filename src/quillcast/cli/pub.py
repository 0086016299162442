"""`quillcast pub`: publish messages, lines of standard input, or lines of a file."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import click
import msgspec

from quillcast.cli.options import JSON, TOPIC
from quillcast.cli.peering import Peering, peering
from quillcast.cli.running import run
from quillcast.cli.streams import lines_of


@click.command(short_help="Publish messages, lines of input, or a file.")
@TOPIC
@click.argument("messages", nargs=-1, metavar="[MESSAGE]...")
@click.option("--file", "file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Publish its lines.")
@click.option(
    "--count",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Publish MESSAGEs or the file so many times.",
)
@click.option(
    "--rate", type=click.FloatRange(min=0, min_open=True), help="Events a second; else as fast as they are taken."
)
@click.option(
    "--wait",
    type=click.Choice(["root", "stable"]),
    help="End when the topic's root has admitted the events (default), or when every subscriber has them.",
)
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(min=0), default=30.0, show_default=True, help="Seconds to wait."
)
@click.option("--key", help="What the events are about.")
@JSON
@peering
def command(
    topic: str,
    messages: tuple[str, ...],
    file: Path | None,
    count: int,
    rate: float | None,
    wait: Literal["root", "stable"] | None,
    timeout_s: float,
    key: str | None,
    as_json: bool,
    peering: Peering,
) -> None:
    """Publish each MESSAGE as an event; without any, each line of standard input or of a file.

    Ends when the events are acknowledged as --wait says. With --json it then prints an object with topic, published,
    wait and seconds.
    """
    if messages and file:
        raise click.UsageError("MESSAGEs and --file are both given; choose one", click.get_current_context())

    async def publish() -> dict[str, Any]:
        async with peering.node() as node:
            with closing(node.publisher(topic)) as publisher:
                pace, published = Pace(rate), 0
                async for payloads in _source(messages, file, count):
                    for payload in payloads:
                        await pace.step()
                        await publisher.publish(payload, key=key.encode() if key else None, timeout_s=timeout_s)
                    published += len(payloads)
                awaited = wait or ("root" if publisher.reliable else None)
                if published and awaited:
                    await publisher.acknowledged(awaited, timeout_s)
                return {"topic": topic, "published": published, "wait": awaited}

    began = time.monotonic()
    result = run(publish())
    if as_json:
        result["seconds"] = round(time.monotonic() - began, 3)
        click.echo(msgspec.json.encode(result).decode())


async def _source(messages: tuple[str, ...], file: Path | None, count: int) -> AsyncIterator[list[bytes]]:
    if messages:
        for _ in range(count):
            yield [os.fsencode(message) for message in messages]
        return
    if file is None:
        if sys.stdin.isatty():
            print("each line is an event; Ctrl-D ends", file=sys.stderr)
        async for lines in lines_of(0):
            yield lines
        return
    for _ in range(count):
        with file.open("rb") as source:
            async for lines in lines_of(source.fileno()):
                yield lines


class Pace:
    """Waits so that steps come `rate` times a second; a step that came late does not delay the next."""

    def __init__(self, rate: float | None) -> None:
        self._rate, self._steps, self._began = rate, 0, time.monotonic()

    async def step(self) -> None:
        """Wait until the next step is due."""
        if self._rate is None:
            return
        due = self._began + self._steps / self._rate
        self._steps += 1
        await asyncio.sleep(max(0.0, due - time.monotonic()))
