"""How running peers of a machine adopt their network's credential once it exists.

A peer without a credential and a member cannot communicate. So a member that starts asks this user's other peers on the
machine, through their control sockets, to become members too, as they would if they started now:

1. `join`: the peer also joins the network of the members, and subscribes there to all its topics;
2. `publish`: when all peers have done so, its publishers move, once everything published before is safe;
3. `leave`: when all peers have done so, it leaves its former network.

So an event reaches its subscribers in whichever of the two networks its publisher is. If a peer cannot become a member,
both it and the member are told why.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from quillcast.core.errors import LocalError, QuillcastError
from quillcast.live.discovery import control
from quillcast.live.discovery.questions import TakeCredentialQuestion
from quillcast.live.discovery.registry import Entry, PeerRegistry

STEPS = ("join", "publish", "leave")
STEP_S = 10.0  # a guess: how long a peer waits for a request for the next step
ASK_S = 5.0  # a guess: how long a member waits for a step; a peer may be suspended


class Adoption:
    """One peer's steps from a network without a credential to the one with it."""

    def __init__(
        self, steps: dict[str, Callable[[], Awaitable[None]]], run: Callable[[Coroutine[Any, Any, None]], None]
    ) -> None:
        """`steps` has the action for each of `STEPS`; `run` starts tasks in the background."""
        self._steps, self._run = steps, run
        self._alone = asyncio.Lock()

    async def take(self, step: str) -> None:
        """Take this step and all earlier ones that were not taken. The last one runs in the background."""
        if step not in STEPS:
            raise LocalError(f"{step!r} is not a step; there are: {', '.join(STEPS)}")
        if step == STEPS[-1]:
            self._run(self._take(step))
            return
        first = STEPS[0] in self._steps
        await self._take(step)
        if first:
            self._run(self._go_on())

    async def _take(self, last: str) -> None:
        async with self._alone:
            for step in STEPS[: STEPS.index(last) + 1]:
                if step in self._steps:
                    await self._steps[step]()
                    del self._steps[step]

    async def _go_on(self) -> None:
        """Take the later steps if no request comes: the asking member may die between two steps."""
        for step in STEPS[1:]:
            await asyncio.sleep(STEP_S)
            await self._take(step)


async def bring_over(place: PeerRegistry, entries: Sequence[Entry], credential: str) -> list[str]:
    """Make this user's peers adopt the network's credential; returns a line about each that does not."""
    staying: list[str] = []
    for step in STEPS:
        answers = await asyncio.gather(
            *(asyncio.to_thread(_ask, place, entry, step, credential) for entry in entries), return_exceptions=True
        )
        here = {entry.node_id for entry in place.entries()}  # the others have ended meanwhile
        for entry, answer in zip(entries, answers, strict=True):
            if isinstance(answer, QuillcastError) and entry.node_id in here:
                staying.append(f"{unheard(entry, place.folder.name)} ({answer})")
            elif isinstance(answer, BaseException) and not isinstance(answer, QuillcastError):
                raise answer
        entries = [entry for entry, answer in zip(entries, answers, strict=True) if answer is None]
    return staying


def unheard(entry: Entry, network: str) -> str:
    """A line for the members of a network about a peer that they cannot contact."""
    whose = "" if entry.is_own else f" of user {entry.user}"
    how = f"with another credential ({entry.credential})" if entry.credential else "without its credential"
    return (
        f"process {entry.pid}{whose} is in network {network!r} {how}, and unreachable from here: start it again with "
        "--join and the line that `quillcast node --invite` prints, or with another --network"
    )


def _ask(place: PeerRegistry, entry: Entry, step: str, credential: str) -> None:
    path = place.control_path(entry.contact)
    control.ask(path, TakeCredentialQuestion(step, credential, os.getpid()), object, timeout_s=ASK_S)
