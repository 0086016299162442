"""Who to join through: named contacts, or peers of this machine and neighbours of former times."""

import asyncio
from collections.abc import Iterable, Sequence

from quillcast.core.errors import Unreachable
from quillcast.core.messages import Contact
from quillcast.live.links import Links
from quillcast.live.rendezvous import Rendezvous

CONTACTS_MAX = 8  # asked at a time, and joined through; a guess: the overlay learns of all others from them


async def find_contacts(
    links: Links, rendezvous: Rendezvous, named: Sequence[str], remembered: Iterable[Contact]
) -> list[Contact]:
    """Enter this peer among those of its machine, and return peers of its network that answer; none: it is the first.

    Raises `Unreachable` if there are `named` addresses, and no peer of this network at any of them.
    """
    with rendezvous.alone():
        entries = rendezvous.entries()
        rendezvous.enter(links.contact)
    if named:
        return await _greet(links, named, needed=True)
    known = dict.fromkeys([*(entry.address for entry in entries), *(contact.address for contact in remembered)])
    known.pop(links.contact.address, None)
    addresses = list(known)
    for first in range(0, len(addresses), CONTACTS_MAX):
        if found := await _greet(links, addresses[first : first + CONTACTS_MAX], needed=False):
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
