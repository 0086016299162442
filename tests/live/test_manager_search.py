"""How a member finds the managers of its scopes: who answers there, and what is told meanwhile."""

import asyncio
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from quillcast.core.errors import RemoteError, Unreachable
from quillcast.core.messages import Contact
from quillcast.live.node.managersearch import ManagerSearch
from quillcast.live.node.scopeaddress import ScopeAddress
from quillcast.protocol.scopes.channels import Party
from quillcast.protocol.scopes.hierarchy import scope_id
from quillcast.protocol.scopes.messages import ScopeAt, Succession

SITE, HERE, OTHER = scope_id(b"site"), Contact(b"h" * 16, "here:1"), Contact(b"o" * 16, "here:1")
AT = ScopeAt(Succession(SITE, 1, HERE, b"k" * 32))


class Member:
    """What a member is told; `answers` are those of the peers at the address, in turn."""

    def __init__(self, *answers: Contact | Unreachable) -> None:
        self.answers, self.told = [*answers], list[str]()
        self.is_over = asyncio.Event()

    async def greet(self, address: str) -> Contact:
        answer = self.answers.pop(0)
        if isinstance(answer, Unreachable):
            raise answer
        return answer

    async def where(self, name: str) -> ScopeAt:
        return AT

    def call(self, function: Callable[..., None], *arguments: Any) -> None:
        function(*arguments)

    def found(self, party: Party) -> None:
        self.told.append(f"found at {party.contact.node_id[:1].decode()}")
        self.is_over.set()

    def not_found(self, scope: bytes, why: str, *, for_good: bool) -> None:
        self.told.append(why)
        if for_good or not self.answers:
            self.is_over.set()

    async def search(self, text: str, keys: Mapping[bytes, bytes] | None = None) -> list[str]:
        member: Any = self
        pump: Any = SimpleNamespace(call=self.call, loop=asyncio.get_running_loop())
        search = ManagerSearch(member, pump, member, self.where)
        search.begin([ScopeAddress.parse(text)], keys or {})
        async with asyncio.timeout(20.0):
            await self.is_over.wait()
        search.close()
        return self.told


def test_it_asks_again_until_a_peer_answers() -> None:
    async def main() -> None:
        nobody = Unreachable("nobody is there")
        remedy = "start its manager there (quillcast scope serve), or correct the address"
        told = await Member(nobody, nobody, HERE).search("site@127.0.0.1:1")
        assert told == [f"nobody is there; {remedy}"] * 2 + ["found at h"]

    asyncio.run(main())


def test_a_peer_that_can_never_be_the_manager_ends_the_search() -> None:
    async def main() -> None:
        foreign = Unreachable("it is of another network")
        foreign.__cause__ = RemoteError("another network")
        assert await Member(foreign, HERE).search("site@127.0.0.1:1") == ["it is of another network"]

    asyncio.run(main())


def test_the_network_is_believed_only_where_the_manager_itself_answers_and_the_key_is_the_one_of_before() -> None:
    async def main() -> None:
        assert await Member(HERE).search("site") == ["found at h"]
        assert await Member(HERE).search("site", {SITE: b"k" * 32}) == ["found at h"]
        (told,) = await Member(OTHER).search("site")
        assert told.startswith("peer 68686868, which ran its manager, has left here:1; start its manager (quillcast ")
        other = Member()
        (told,) = await other.search("site", {SITE: b"x" * 32})
        assert told.startswith("the peer at here:1 claims the name with another key than the scope had; ")
        assert told.endswith("or write site@HOST:PORT with the address of the peer that runs it")

    asyncio.run(main())
