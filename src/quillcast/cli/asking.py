"""Query the running peers of this machine."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import click

from quillcast.core.errors import Leaving, LocalError, RemoteError, Unreachable
from quillcast.live.discovery.control import ask
from quillcast.live.discovery.questions import PeerQuestion
from quillcast.live.discovery.registry import Entry, PeerRegistry

AT_ONCE = 32  # most peers queried at a time; a guess
SILENT_S = 4.0  # a peer that takes longer is silent; a guess: walking a tree takes at most two
T = TypeVar("T")


def peers_here(network: str) -> list[Entry]:
    """The network's peers on this machine, the oldest first. Raises `Unreachable` if there are none."""
    return PeerRegistry(network).running()


def choose(network: str, prefix: str) -> list[Entry]:
    """The peers here whose id begins with `prefix`. Raises `LocalError` with the known peers if there is none."""
    entries = peers_here(network)
    chosen = [entry for entry in entries if entry.node_id.startswith(prefix.lower())]
    if not chosen:
        known = ", ".join(entry.node_id[:8] for entry in entries)
        raise LocalError(f"no peer {prefix!r} of the network {network!r} runs on this machine; there are: {known}")
    return chosen


def ask_peer(network: str, prefix: str, question: PeerQuestion, kind: type[T], *, timeout_s: float = SILENT_S) -> T:
    """Query the oldest peer here that is not leaving and whose id begins with `prefix`. Its answer is a `kind`.

    Without a prefix, any peer will do: peers that do not answer are named on standard error, and the next is asked.
    """
    entries = choose(network, prefix)
    return ask_one(network, entries, question, kind, timeout_s=timeout_s, first_only=bool(prefix))


def ask_one(
    network: str, entries: list[Entry], question: PeerQuestion, kind: type[T], *,
    timeout_s: float = SILENT_S, first_only: bool = False,
) -> T:  # fmt: skip
    """Query the first of these peers that is not leaving, or the next one if it does not answer.

    `first_only`: raises `Unreachable` instead, which names the others.
    """
    place = PeerRegistry(network)
    silent: Unreachable | None = None
    for entry in entries:
        if silent is not None:
            _tell_once(str(silent))
        try:
            return ask(place.control_path(entry.contact), question, kind, timeout_s=timeout_s)
        except Leaving:
            continue
        except Unreachable as problem:
            if problem.__cause__ is None:
                raise  # it is not the peer that is silent
            if first_only:
                raise _silent(entry, entries) from problem
            silent = _silent(entry, [entry])
    raise silent or Leaving(f"the peers of the network {network!r} on this machine are leaving it")


def _silent(silent: Entry, entries: list[Entry]) -> Unreachable:
    others = ", ".join(entry.node_id[:8] for entry in entries if entry is not silent)
    instead = f"; other peers here: {others}" if others else ""
    return Unreachable(f"peer {silent.node_id[:8]} (process {silent.pid}) does not answer; is it stopped?{instead}")


def answered(answers: Sequence[tuple[Entry, T | None]]) -> list[T]:
    """Return the answers. Names silent peers on standard error; raises `Unreachable` if no peer answered."""
    silent = [_silent(entry, [entry]) for entry, answer in answers if answer is None]
    for problem in silent[: -1 if len(silent) == len(answers) else None]:
        _tell_once(str(problem))
    if silent and len(silent) == len(answers):
        raise silent[-1]
    return [answer for _, answer in answers if answer is not None]


def ask_each(
    network: str, entries: list[Entry], question: PeerQuestion, kind: type[T], *, timeout_s: float = SILENT_S
) -> list[tuple[Entry, T | None]]:
    """Return each peer's answer, or None if it gave none within `timeout_s`. Peers that are leaving are left out.

    A peer of another version of quillcast counts as silent, with a line on standard error. Raises `RemoteError` if only
    such peers answer, and `Leaving` if all are leaving.
    """
    place = PeerRegistry(network)

    def answer(entry: Entry) -> T | Leaving | RemoteError | None:
        try:
            return ask(place.control_path(entry.contact), question, kind, timeout_s=timeout_s)
        except (Leaving, RemoteError) as problem:
            return problem
        except Unreachable:
            return None  # it has just ended, or hangs

    with ThreadPoolExecutor(AT_ONCE) as pool:
        told = list(zip(entries, pool.map(answer, entries), strict=True))
    staying = [(entry, each) for entry, each in told if not isinstance(each, Leaving)]
    if told and not staying:
        raise next(each for _, each in told if isinstance(each, Leaving))
    answers = [each for _, each in staying]
    refusals = [each for each in answers if isinstance(each, RemoteError)]
    if refusals and len(refusals) == sum(each is not None for each in answers):
        raise refusals[0]
    for refusal in refusals:
        _tell_once(str(refusal))
    return [(entry, None if isinstance(each, RemoteError) else each) for entry, each in staying]


@cache
def _tell_once(problem: str) -> None:
    click.echo(f"quillcast: {problem}", err=True)


def ask_all(network: str, question: PeerQuestion, kind: type[T], *, timeout_s: float) -> list[T]:
    """The answers of all peers here that answer within `timeout_s`."""
    answers = ask_each(network, peers_here(network), question, kind, timeout_s=timeout_s)
    return [answer for _, answer in answers if answer is not None]
