"""Who to join through: named contacts, or peers of this machine and neighbours of former times."""

import asyncio
from collections.abc import Iterable, Sequence

from quillcast.core.errors import LocalError, Unreachable
from quillcast.core.messages import Contact
from quillcast.live.links import Links
from quillcast.live.rendezvous import Entry, Rendezvous

CONTACTS_MAX = 8  # asked at a time, and joined through; a guess: the overlay learns of all others from them


class OtherCredential(LocalError):
    """The peers of this machine are members of a network with a credential, and this one is not."""

    def __init__(self, network: str, other: Entry) -> None:
        super().__init__(
            f"the peers of network {network!r} on this machine have a network credential ({other.credential}), as "
            f"process {other.pid} has, and this one was not admitted: use --join with the line that "
            "`quillcast node --invite` prints, or another --network"
        )
        self.credential = other.credential


async def find_contacts(
    links: Links, rendezvous: Rendezvous, named: Sequence[str], remembered: Iterable[str], *,
    may_be_first: bool = True, patient: bool = False,
) -> list[Contact]:  # fmt: skip
    """Enter this peer among those of its machine, and return peers of its network that answer; none: it is the first.

    Raises `Unreachable` if there are `named` addresses, and no peer of this network at any; `OtherCredential` if
    peers of this machine are members of a network with a credential, and this one is not. Unless it `may_be_first`,
    `Unreachable` too if addresses are known and nobody answers at any. Who is `patient` is never the first: it raises
    `Unreachable` instead, and is not entered before it has found others.
    """
    credential = links.tls.fingerprint if links.tls is not None else ""
    with rendezvous.alone():
        entries = rendezvous.all_entries()
        others = [entry for entry in entries if entry.credential != credential]
        entries = [entry for entry in entries if entry.credential == credential]
        if others and not credential and not named:
            raise OtherCredential(rendezvous.folder.name, others[0])
        if not patient:
            rendezvous.enter(links.contact, credential)
    known = dict.fromkeys([*(entry.address for entry in entries), *remembered])
    known.pop(links.contact.address, None)
    needed = patient or not may_be_first
    found = await (_greet(links, named, needed=True) if named else _first(links, list(known), needed=needed))
    if patient and not found:
        raise Unreachable(
            f"no peer of the network {rendezvous.folder.name!r} runs on this machine; looked in {rendezvous.looked_in}"
        )
    if patient:
        rendezvous.enter(links.contact, credential)
    return found


async def _first(links: Links, addresses: list[str], *, needed: bool) -> list[Contact]:
    """Those that answer, of the first addresses where anybody does."""
    for first in range(0, len(addresses), CONTACTS_MAX):
        last = first + CONTACTS_MAX >= len(addresses)
        if found := await _greet(links, addresses[first : first + CONTACTS_MAX], needed=last and needed):
            return found
    return []


async def _greet(links: Links, addresses: Sequence[str], *, needed: bool) -> list[Contact]:
    """Ask who is at these addresses."""
    answers = await asyncio.gather(*map(links.greet, addresses), return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, Unreachable):
            raise answer
    found = [answer for answer in answers if isinstance(answer, Contact)]
    if needed and not found:
        raise Unreachable("; ".join(str(answer) for answer in answers))
    return found
