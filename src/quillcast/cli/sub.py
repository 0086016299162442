"""`quillcast sub`: print the events of topics as they arrive."""

import asyncio
import base64
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from quillcast.cli.options import AS, DATA, JSON, TEXT, TOPIC, Amount, Count
from quillcast.cli.peering import Peering, alone, looked, peering, tell_notices
from quillcast.cli.running import run
from quillcast.cli.streams import Writer
from quillcast.core.errors import QuillcastError
from quillcast.core.ids import short
from quillcast.core.loss import Loss
from quillcast.live.edges.subscription import Event, Subscription
from quillcast.live.node.node import Node

if TYPE_CHECKING:
    from quillcast.live.admission.credentials import Credentials


@click.command(short_help="Print a topic's events as they arrive.")
@TOPIC
@click.option("--count", type=Count(min=1), help="Stop after this many events.")
@click.option(
    "--start",
    type=click.Choice(["now", "earliest"]),
    default="now",
    show_default=True,
    help="Start with new events, or with the earliest that peers still keep (and report how many are gone).",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=Amount(min=0, min_open=True),
    help="Exit with code 1 if no event arrives for this many seconds.",
)
@click.option("--name", type=TEXT, default="", help="Name of this subscription in status, top and check.")
@DATA
@click.option("--quiet", "-q", is_flag=True, help="Print only events, losses and errors.")
@AS
@JSON
@peering
def command(
    topic: str,
    count: int | None,
    start: str,
    timeout_s: float | None,
    name: str,
    data: Path | None,
    quiet: bool,
    credentials: "Credentials | None",
    as_json: bool,
    peering: Peering,
) -> None:
    """Print a topic's events, one line each.

    Payloads go to standard output as they are, each followed by a line end; with --json each is an object with topic,
    payload (payload_base64 if it is not text), key, attributes, publisher, sequence, time_ns and recovered (it may have
    been reported as lost before). Lost events are reported on standard error, as JSON objects with --json. Ends with
    Ctrl-C.
    """
    line = _json_line if as_json else _raw_line

    async def print_events() -> None:
        async with Writer() as writer, peering.node(data=data) as node:
            tell_notices(node)
            tell_loss = _tell_loss_as_json if as_json else _tell_loss
            subscription = node.subscribe(
                topic, start=start, on_lost=lambda loss: tell_loss(topic, loss), credentials=credentials, name=name
            )
            await subscription.started()
            if not quiet:
                _tell_start(node, topic)
            if not as_json:
                _tell_missed(topic, [loss for loss in subscription.lost if loss.why == "start"])
            got = 0
            events = subscription if timeout_s is None else _patiently(subscription, timeout_s)
            async for event in events:
                await writer.write(line(event))
                got += 1
                if got == count:
                    break
            await writer.drain()
            if timeout_s is not None and got != count:
                raise QuillcastError(f"no event of {topic} arrived for {timeout_s:g} s; {got} arrived before")

    run(print_events())


async def _patiently(subscription: Subscription[Event], timeout_s: float) -> AsyncIterator[Event]:
    """The events, until none arrived for `timeout_s`."""
    while True:
        try:
            async with asyncio.timeout(timeout_s):
                event = await anext(subscription)
        except (TimeoutError, StopAsyncIteration):
            return
        yield event


def _raw_line(event: Event) -> bytes:
    return event.payload + b"\n"


def _json_line(event: Event) -> bytes:
    return (
        msgspec.json.encode(
            {
                "topic": event.topic,
                **text_or_base64("payload", event.payload),
                **(text_or_base64("key", event.key) if event.key is not None else {"key": None}),
                "attributes": event.attributes,
                "publisher": event.publisher.hex(),
                "sequence": event.sequence,
                "time_ns": event.time_ns,
                "recovered": event.recovered,
            }
        )
        + b"\n"
    )


def text_or_base64(name: str, data: bytes) -> dict[str, str]:
    """Bytes for a JSON object: under `name` if they are UTF-8 text, otherwise as base64 under `<name>_base64`."""
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def _tell_start(node: Node, topic: str) -> None:
    print(
        f"subscribed to {topic} as peer {short(node.contact.node_id)} at {node.address}"
        f"{f', alone so far ({looked(node)})' if alone(node) else ''}; Ctrl-C ends",
        file=sys.stderr,
    )


def _tell_missed(topic: str, losses: list[Loss]) -> None:
    """Report how many events before an `earliest` start are no longer kept."""
    if losses:
        count = _events(sum(loss.count for loss in losses), at_most=any(loss.uncertain for loss in losses))
        print(f"lost: {count} of {topic} from before this start, which are no longer kept", file=sys.stderr)


def _tell_loss_as_json(topic: str, loss: Loss) -> None:
    whose = None if loss.uncertain else loss.publisher.hex()
    place = {"publisher": whose, "term": loss.term.counter, "first": loss.first, "last": loss.last - 1}
    told = {"lost": topic, "count": loss.count, "why": loss.why, "uncertain": loss.uncertain, **place}
    print(msgspec.json.encode(told).decode(), file=sys.stderr, flush=True)


def _events(count: int, *, at_most: bool) -> str:
    return f"{'up to ' * at_most}{count} event{'s' * (count != 1)}"


def _tell_loss(topic: str, loss: Loss) -> None:
    if loss.why == "start":
        return  # reported together (`_tell_missed`)
    if loss.uncertain:
        which = f"positions {loss.term.counter}:{loss.first} to {loss.term.counter}:{loss.last - 1}, publisher unknown"
    else:
        which = f"publisher {loss.publisher.hex()[:8]} sequences {loss.first} to {loss.last - 1}"
    print(
        f"lost: {_events(loss.count, at_most=loss.uncertain)} of {topic}, {which} ({loss.why})",
        file=sys.stderr,
        flush=True,
    )
