"""Who to join through: named contacts, or peers of this machine and neighbours of former times."""

import asyncio
from collections.abc import Iterable, Sequence

from quillcast.core.errors import LocalError, Unreachable
from quillcast.core.messages import Contact
from quillcast.live.links import Links
from quillcast.live.rendezvous import Entry, Rendezvous

CONTACTS_MAX = 8  # asked at a time, and joined through; a guess: the overlay learns of all others from them


async def find_contacts(
    links: Links, rendezvous: Rendezvous, named: Sequence[str], remembered: Iterable[str], *, may_be_first: bool = True
) -> list[Contact]:
    """Enter this peer among those of its machine, and return peers of its network that answer; none: it is the first.

    Raises `Unreachable` if there are `named` addresses, and no peer of this network at any of them; `LocalError` if the
    peers of this machine are members of a network with a credential, and this one is not. Unless it `may_be_first`,
    `Unreachable` too if addresses are known and nobody answers at any.
    """
    credential = links.tls.fingerprint if links.tls is not None else ""
    with rendezvous.alone():
        entries = rendezvous.entries()
        others = [entry for entry in entries if entry.credential != credential]
        entries = [entry for entry in entries if entry.credential == credential]
        if others and not credential and not entries and not named:
            raise _not_admitted(rendezvous, others[0])
        rendezvous.enter(links.contact, credential)
    if named:
        return await _greet(links, named, needed=True)
    known = dict.fromkeys([*(entry.address for entry in entries), *remembered])
    known.pop(links.contact.address, None)
    addresses = list(known)
    for first in range(0, len(addresses), CONTACTS_MAX):
        last = first + CONTACTS_MAX >= len(addresses)
        if found := await _greet(links, addresses[first : first + CONTACTS_MAX], needed=last and not may_be_first):
            return found
    return []


def _not_admitted(rendezvous: Rendezvous, other: Entry) -> LocalError:
    network = rendezvous.folder.name
    return LocalError(
        f"the peers of network {network!r} on this machine have a network credential ({other.credential}), and this "
        "one was not admitted: use --join with the line that `quillcast node --invite` prints, or another --network"
    )


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
