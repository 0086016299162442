"""Questions about a running scope from peers that are no members: one input, and what was ordered."""

import msgspec
import pytest

from quillcast.core.ids import ring_distance
from quillcast.core.messages import Contact
from quillcast.protocol.scopes.channels import KEY_BYTES, Party
from quillcast.protocol.scopes.hierarchy import scope_id
from quillcast.protocol.scopes.manager import ScopeManager
from quillcast.protocol.scopes.messages import AskScope, ScopeAt, ScopeFound, ScopeSays
from quillcast.protocol.scopes.policies.chain import Chain
from quillcast.protocol.scopes.succession import appointed
from quillcast.protocol.scoping import questions as module
from quillcast.protocol.scoping.questions import REMEMBERED_S, TOLD_EVERY, Question, Questions
from tests.protocol.test_scoping import LEASE_S, Site

SITE = scope_id(b"site")


def site(outside: int = 4) -> Site:
    return Site(3, Chain(), outside=outside)


def at(site: Site, number: int) -> Questions:
    return site.village.peers[number].scoping.questions


def keeper(site: Site) -> int:
    """The machine that remembers where the site's manager runs."""
    found = [n for n in site.village.alive() if SITE in at(site, n).remembered]
    assert len(found) == 3
    return min(found, key=lambda n: ring_distance(site.village.world.machines[n].node_id, SITE))


def found(site: Site, asker: int, scope: bytes = SITE) -> Question:
    number = site.village.act(asker, lambda peer: peer.scoping.questions.find(scope))
    site.village.run(2)
    asked = at(site, asker).asked[number]
    site.village.act(asker, lambda peer: peer.scoping.questions.end(number))
    return asked


def test_any_peer_finds_the_manager_of_a_scope() -> None:
    village = site()
    for asker in range(4):
        asked = found(village, asker).found
        assert asked is not None
        assert asked.at is not None
        assert asked.at.succession.contact == village.manager.contact
        assert {each.node_id for each in asked.at.ring} == set(village.ring[-3:])


def test_nobody_knows_a_scope_that_has_no_manager() -> None:
    asked = found(site(), 0, scope_id(b"nowhere"))
    assert asked.found is not None
    assert asked.found.at is None


def test_a_manager_is_forgotten_when_nothing_more_is_heard_of_it_and_found_after_its_return() -> None:
    village = site()
    village.village.kill(village.outside)
    village.village.run(REMEMBERED_S + TOLD_EVERY * LEASE_S)
    asked = found(village, 0).found
    assert asked is not None
    assert asked.at is None
    village.village.world.start(village.manager)
    village.manage(ScopeManager.restored(village.saved, village.config))
    village.village.run(TOLD_EVERY * LEASE_S)
    asked = found(village, 0).found
    assert asked is not None
    assert asked.at is not None
    assert asked.at.succession.epoch == 2


def test_a_manager_that_moved_is_found_where_it_runs_now() -> None:
    village = site()
    party = Party(SITE, village.village.world.machines[0].contact, managed=True, name="site")
    moved = ScopeManager.restored(village.saved, village.config, scope=party)
    village.village.act(0, lambda peer: peer.scoping.manage(moved, village.save))
    village.village.run(15)
    asked = found(village, 1).found
    assert asked is not None
    assert asked.at is not None
    assert asked.at.succession.contact == village.village.world.machines[0].contact


def test_when_the_peer_closest_to_the_id_dies_the_next_one_answers_at_once() -> None:
    village = site()
    closest = keeper(village)
    kept = [n for n in village.village.alive() if SITE in at(village, n).remembered]
    village.village.kill(closest)
    village.village.run(1)
    asker = next(n for n in village.village.alive() if n not in kept)
    asked = found(village, asker).found
    assert asked is not None
    assert asked.at is not None
    assert at(village, asker).remembers(SITE) == asked.at, "it remembers what it found, for when nobody answers"


def test_a_statement_of_another_key_or_a_false_one_replaces_nothing() -> None:
    village = site()
    number = keeper(village)
    known = at(village, number).remembered[SITE][0]
    thief = Contact(village.village.world.machines[0].node_id, "thief")
    other = appointed(Party(SITE, thief, managed=True, name="site"), known.succession.epoch + 5, b"x" * KEY_BYTES)
    assert other is not None
    forged = msgspec.structs.replace(known.succession, epoch=known.succession.epoch + 5, contact=thief)
    for statement in (other, forged):
        village.village.act(number, lambda peer, said=statement: peer.scoping.questions._remember(ScopeAt(said)))
        assert at(village, number).remembered[SITE][0].succession == known.succession
        asked = village.village.act(number, lambda peer: peer.scoping.questions.find(SITE))
        at(village, number).asked[asked].found = None
        at(village, number)._found(thief, ScopeFound(asked, ScopeAt(statement)))
        assert not at(village, number).asked[asked].answered


def test_a_peer_remembers_a_bounded_number_of_scopes(monkeypatch: pytest.MonkeyPatch) -> None:
    village = site()
    number = keeper(village)
    monkeypatch.setattr(module, "REMEMBERED_MAX", 2)
    for name in (b"a", b"b", b"c"):
        party = Party(scope_id(name), village.manager.contact, managed=True, name=name.decode())
        message = ScopeAt(appointed(party, 1, b"x" * KEY_BYTES))
        village.village.act(number, lambda peer, said=message: peer.scoping.questions._remember(said))
    assert len(at(village, number).remembered) == 2
    assert SITE in at(village, number).remembered


def test_an_answer_counts_only_from_the_peer_that_was_asked_and_once() -> None:
    village = site()
    asker, manager, other = at(village, 0), village.manager.contact, village.village.world.machines[1].contact
    came: list[tuple[Contact, AskScope]] = []
    at(village, village.outside).answer = lambda sender, message: came.append((sender, message))
    number = village.village.act(0, lambda peer: peer.scoping.questions.ask(manager, SITE, "status"))
    village.village.run(2)
    assert came == [(asker.host.contact, AskScope(SITE, number, "status"))]
    asker._said(other, ScopeSays(number, b"false"))
    assert not asker.asked[number].answered
    village.village.act(village.outside, lambda peer: peer.scoping.questions.reply(came[0][0], number, b"true"))
    village.village.run(2)
    asker._said(manager, ScopeSays(number, b"late"))
    assert asker.asked[number].says == ScopeSays(number, b"true")
    asker._found(manager, ScopeFound(number))
    assert asker.asked[number].found is None


def test_a_link_that_breaks_ends_the_wait_for_who_is_behind_it() -> None:
    village = site()
    asker, manager, other = at(village, 0), village.manager.contact, village.village.world.machines[1].contact
    at(village, village.outside).answer = lambda sender, message: None
    number = village.village.act(0, lambda peer: peer.scoping.questions.ask(manager, SITE, "status"))
    asker.link_lost(other)
    assert not asker.asked[number].answered
    asker.link_lost(manager)
    assert asker.asked[number].lost


def test_a_statement_about_another_scope_is_no_answer() -> None:
    village = site()
    asker = at(village, 0)
    statement = at(village, keeper(village)).remembered[SITE][0]
    number = village.village.act(0, lambda peer: peer.scoping.questions.find(scope_id(b"elsewhere")))
    asker._found(village.manager.contact, ScopeFound(number, statement))
    assert not asker.asked[number].answered


def test_a_question_for_whom_nobody_answers_is_refused_in_a_sentence() -> None:
    village = site()
    manager = village.manager.contact
    number = village.village.act(0, lambda peer: peer.scoping.questions.ask(manager, SITE, "status"))
    village.village.run(2)
    says = at(village, 0).asked[number].says
    assert says is not None
    assert says.why == f"the peer at {manager.address} does not answer questions"


def test_members_know_their_manager_without_asking() -> None:
    village = site()
    scoping = village.village.peers[village.members[0]].scoping
    assert scoping.manager_of(SITE) == village.manager.contact
    assert village.village.peers[0].scoping.manager_of(SITE) is None


def test_a_peer_that_is_no_part_of_the_network_yet_asks_through_others() -> None:
    village = site()
    world = village.village.world
    machine = world.add()
    world.start(machine)
    through = [world.machines[number].contact for number in (0, village.members[0])]
    number = village.village.act(machine.number, lambda peer: peer.scoping.questions.find(SITE, through))
    village.village.run(2)
    asked = at(village, machine.number).asked[number].found
    assert asked is not None
    assert asked.at is not None
    assert asked.at.succession.contact == village.manager.contact
