"""Finds peers to join through: given contacts, peers of this machine, and earlier neighbours."""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence

from quillcast.core.errors import LocalError, Unreachable
from quillcast.core.messages import Contact
from quillcast.live.discovery.registry import Entry, PeerRegistry
from quillcast.live.transport.links import Links

_GREET_MORE_S = 0.05  # how much later than the first other peers may answer; a guess: some iterations of busy processes
CONTACTS_MAX = 8  # asked at the same time, and joined through; a guess: the overlay learns all others from them


class OtherCredential(LocalError):
    """The peers of this machine are members of a network with a credential, but this peer is not."""

    def __init__(self, network: str, other: Entry) -> None:
        super().__init__(
            f"network {network!r} on this machine admits only peers with its credential {other.credential}; process "
            f"{other.pid} is a member, and this peer is not: use --join with the line that `quillcast node --invite` "
            "prints, or another --network"
        )
        self.credential = other.credential


async def find_contacts(
    links: Links, registry: PeerRegistry, named: Sequence[str], remembered: Iterable[str], *,
    may_be_first: bool = True, patient: bool = False,
) -> list[Contact]:  # fmt: skip
    """Register this peer on its machine and return the peers of its network that answer; none if it is the first.

    Raises `OtherCredential` if peers of this machine are members of a network with a credential and this one is not.
    Raises `Unreachable` if no peer of this network answers at the `named` addresses, if peers of this machine listen
    but do not answer (suspended or hung), or if only peers answer that are still looking for the network themselves,
    because together they would start another one. A peer that is not allowed to be the first (`may_be_first`) also
    raises it if addresses are known and none answers. A `patient` peer is never the first: it raises `Unreachable`
    instead, and is registered only after it has found others.
    """
    credential = links.handshake.tls.fingerprint if links.handshake.tls is not None else ""
    with registry.alone():
        entries = registry.all_entries()
        others = [entry for entry in entries if entry.credential != credential]
        entries = [entry for entry in entries if entry.credential == credential]
        if others and not credential and not named:
            raise OtherCredential(registry.folder.name, others[0])
        if not patient:
            registry.enter(links.contact, credential)
    known = dict.fromkeys([*(entry.address for entry in entries), *remembered])
    known.pop(links.contact.address, None)
    here = {entry.address: entry for entry in entries if entry.address in known}
    needed = patient or not may_be_first
    found = await (_named(links, named) if named else _first(links, list(known), here, needed=needed))
    if patient and not found:
        raise Unreachable(
            f"no peer of the network {registry.folder.name!r} runs on this machine; start one with: quillcast "
            f"node; looked in {registry.looked_in}"
        )
    if patient:
        registry.enter(links.contact, credential)
    return found


async def _named(links: Links, addresses: Sequence[str]) -> list[Contact]:
    """The peers that answer. Raises `Unreachable` if there are none."""
    found, problems = await _greet(links, addresses, addresses)
    if not found:
        raise _nobody(problems)
    return list(found.values())


async def _first(links: Links, addresses: list[str], here: Mapping[str, Entry], *, needed: bool) -> list[Contact]:
    """The peers that answer at the first addresses with a peer of the network; `here` has those of this machine.

    Peers that are still looking for the network themselves count only if no others are known.
    """
    known = [address for address in addresses if address not in here or here[address].joined] or addresses
    found, problems = dict[str, Contact](), dict[str, Unreachable]()
    for first in range(0, len(addresses), CONTACTS_MAX):
        found_now, problems_now = await _greet(links, addresses[first : first + CONTACTS_MAX], known)
        if any(address in known for address in found_now):
            return list(found_now.values())
        found |= found_now
        problems |= problems_now
    silent = [here[address] for address, problem in problems.items() if address in here and _is_silent(problem)]
    if silent and (not found or any(entry.joined for entry in silent)):
        raise _nobody_here(links.handshake.network, [entry.pid for entry in silent])
    if needed and problems and not found:
        raise _nobody(problems)
    return list(found.values())


async def _greet(
    links: Links, addresses: Sequence[str], known: Collection[str]
) -> tuple[dict[str, Contact], dict[str, Unreachable]]:
    """Ask which peers are at these addresses; returns the peers that answer, and the errors of the others.

    Once one of the `known` ones has answered, the others get as much time again: a suspended or hung peer causes no
    delay.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    asked = {address: asyncio.ensure_future(links.greet(address)) for address in addresses}
    waiting = set(asked.values())
    try:
        while waiting and not _answered(task for address, task in asked.items() if address in known):
            _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if waiting:
            await asyncio.wait(waiting, timeout=max(_GREET_MORE_S, loop.time() - began))
    finally:
        for task in asked.values():
            task.cancel()
        answers = await asyncio.gather(*asked.values(), return_exceptions=True)
    found, problems = dict[str, Contact](), dict[str, Unreachable]()
    for address, answer in zip(asked, answers, strict=True):
        if isinstance(answer, Contact):
            found[address] = answer
        elif isinstance(answer, Unreachable):
            problems[address] = answer
        elif not isinstance(answer, asyncio.CancelledError):
            raise answer
    return found, problems


def _answered(asked: Iterable[asyncio.Future[Contact]]) -> bool:
    """Whether a peer has answered or failed with an error other than silence."""
    done = [task for task in asked if task.done()]
    return any(task.cancelled() or not isinstance(task.exception(), Unreachable) for task in done)


def _is_silent(problem: Unreachable) -> bool:
    """Whether a process listens there without answering. An address without a process refuses at once."""
    return isinstance(problem.__cause__, TimeoutError)


def _nobody(problems: Mapping[str, Unreachable]) -> Unreachable:
    return Unreachable("; ".join(map(str, list(problems.values())[-CONTACTS_MAX:])))


def _nobody_here(network: str, silent: Sequence[int]) -> Unreachable:
    pids = ", ".join(map(str, silent[:CONTACTS_MAX]))
    who = f"process {pids} is a peer" if len(silent) == 1 else f"{len(silent)} processes ({pids}) are peers"
    does = "does" if len(silent) == 1 else "do"
    return Unreachable(
        f"{who} of network {network!r} on this machine and {does} not answer. "
        f"{'It' if len(silent) == 1 else 'They'} may be stopped or hung: resume (kill -CONT) or kill "
        f"{'it' if len(silent) == 1 else 'them'}"
    )
