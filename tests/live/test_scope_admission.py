"""Who may be a member of a scope: those listed, those with a join line, those with a certificate."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from quillcast.core.errors import LocalError
from quillcast.core.messages import Contact
from quillcast.live.node.scopeaddress import ScopeAddress
from quillcast.live.node.scopeadmission import ScopeAdmission
from quillcast.live.storage.store import Store
from quillcast.protocol.scopes.channels import Party
from quillcast.protocol.scopes.config import Admission, ScopeFile
from quillcast.protocol.scopes.hierarchy import scope_id

NORTH = {"organization": "North", "locality": "Kiruna"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "data")
    yield opened
    opened.close()


def peer(name: str) -> Party:
    id_ = name.encode().ljust(16, b".")
    return Party(id_, Contact(id_, "127.0.0.1:1"))


def scope(name: str) -> Party:
    return Party(scope_id(name.encode()), peer("manager").contact, managed=True, name=name)


def admission(store: Store, **told: object) -> ScopeAdmission:
    return ScopeAdmission(ScopeFile(name="site", admission=Admission(**told)), store)


def test_who_is_listed_is_admitted_and_a_scope_by_its_name(store: Store) -> None:
    site = admission(store, members=(peer("alice").id.hex(), "lab"))
    assert site.refusal(peer("alice"), {}, "") == site.refusal(scope("lab"), {}, "") == ""
    assert "add its nodeId" in site.refusal(peer("bob"), {}, "")
    assert "add its name hall to members" in site.refusal(scope("hall"), {}, "")


def test_a_join_line_admits_one_member_who_stays_admitted(store: Store) -> None:
    site = admission(store, join_line=True)
    line = ScopeAddress.parse(str(site.invite("10.0.0.1:4000", 60)))
    assert (line.name, line.address) == ("site", "10.0.0.1:4000")
    assert "quillcast scope invite site" in site.refusal(peer("alice"), {}, "")
    assert (
        "did not issue its token, or no longer knows it; print a new line: quillcast scope invite site"
        in site.refusal(peer("alice"), {}, "x")
    )
    assert site.refusal(peer("alice"), {}, line.token) == ""
    assert site.refusal(peer("alice"), {}, "") == ""
    assert "each token works only once" in site.refusal(peer("bob"), {}, line.token)
    assert "its token expired" in site.refusal(peer("bob"), {}, site.invite("10.0.0.1:4000", -1).token)


def test_a_join_line_is_of_one_scope_and_only_if_its_file_says_so(store: Store) -> None:
    token = admission(store, join_line=True).invite("10.0.0.1:4000", 60).token
    other = ScopeAdmission(ScopeFile(name="lab", admission=Admission(join_line=True)), store)
    assert "did not issue its token" in other.refusal(peer("alice"), {}, token)
    with pytest.raises(LocalError, match="write join_line = true under"):
        admission(store, members=("lab",)).invite("10.0.0.1:4000", 60)


def test_a_certificate_with_all_attributes_admits_a_peer_and_the_scopes_that_it_manages(store: Store) -> None:
    site = admission(store, certificate=NORTH)
    assert site.refusal(peer("alice"), NORTH, "") == site.refusal(scope("lab"), NORTH, "") == ""
    why = "a certificate that has organization = North and locality = Kiruna (quillcast node --invite --certify)"
    assert why in site.refusal(peer("bob"), {"organization": "South"}, "")
