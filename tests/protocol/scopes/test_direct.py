"""The direct patterns (figure 21): a client's host finds a peer that serves it, and that peer lets it in."""

from collections.abc import Sequence
from typing import Any

import pytest

from quillcast.core.messages import Contact
from quillcast.protocol.scopes import direct
from quillcast.protocol.scopes.clients import client_id
from quillcast.protocol.scopes.direct import (
    ANSWER_S,
    GUESTS_MAX,
    PROMISE_S,
    AnswerDue,
    DirectPatterns,
    Guest,
    Guests,
)
from quillcast.protocol.scopes.messages import EndClient, ServeClient, ServesClient
from quillcast.protocol.scopes.uses import SECRETS_MAX, Doing, digest
from tests.protocol.recording import ALICE, BOB, CAROL, RecordingHost

BOARD = client_id(ALICE.node_id, 1)
SECRET = b"secret" * 5


def wish(number: int = 1, client: bytes = BOARD, topic: str = "news", doing: Doing = "subscribes") -> ServeClient:
    return ServeClient(number, client, "board", digest(SECRET), topic, doing)


class Controller:
    """Alice, whose client wants to be served directly, and what it is told."""

    def __init__(self, servers: Sequence[Contact] = (BOB, CAROL), unreachable: Sequence[bytes] = ()) -> None:
        self.host = RecordingHost(ALICE)
        self.direct = DirectPatterns(self.host)
        self.told: list[tuple[Contact | None, str]] = []
        self.direct.seek(
            BOARD, "board", digest(SECRET), "news", "subscribes", servers, unreachable,
            lambda *found: self.told.append(found),
        )  # fmt: skip


def test_the_preferred_peer_is_asked_and_serves_the_client_when_it_says_so() -> None:
    controller = Controller()
    assert controller.host.sent == [(BOB, wish())]
    assert controller.host.timers == [(AnswerDue(1, 1), ANSWER_S)]
    controller.direct.served(CAROL, ServesClient(1))
    assert controller.told == [], "nobody else answers for it"
    controller.direct.served(BOB, ServesClient(1))
    assert controller.told == [(BOB, "")]
    controller.direct.overdue(AnswerDue(1, 1))
    controller.direct.served(BOB, ServesClient(1))
    assert (controller.told, controller.direct.searches) == ([(BOB, "")], {})


def test_another_is_asked_when_a_peer_refuses_or_is_silent_and_the_error_says_both() -> None:
    controller = Controller([BOB, BOB, ALICE, CAROL])
    controller.direct.served(BOB, ServesClient(1, "it serves 1024 clients of other peers already"))
    assert controller.host.sent == [(BOB, wish()), (CAROL, wish())], "each once, and not the host itself"
    controller.direct.overdue(AnswerDue(1, 1))
    assert controller.told == [], "the other one has had no time yet"
    controller.direct.overdue(AnswerDue(1, 2))
    ((server, why),) = controller.told
    assert server is None
    assert why == (
        "client board cannot receive 'news' directly: 127.0.0.1:2: it serves 1024 clients of other peers already; "
        "127.0.0.1:3 did not answer within 2 s; connect without receive='direct'"
    )


def test_a_peer_that_cannot_be_reached_costs_no_time() -> None:
    controller = Controller()
    controller.direct.link_lost(CAROL)
    assert controller.host.sent == [(BOB, wish())]
    controller.direct.link_lost(BOB)
    assert controller.host.sent == [(BOB, wish()), (CAROL, wish())]
    controller.direct.link_lost(CAROL)
    ((_, why),) = controller.told
    assert ": 127.0.0.1:2 cannot be reached; 127.0.0.1:3 cannot be reached; " in why


def test_a_peer_that_the_client_cannot_reach_is_not_asked() -> None:
    controller = Controller([BOB, CAROL], [BOB.node_id])
    assert controller.host.sent == [(CAROL, wish())]
    controller.direct.link_lost(CAROL)
    ((_, why),) = controller.told
    assert ": the client cannot reach 127.0.0.1:2; 127.0.0.1:3 cannot be reached; " in why


def test_a_host_that_knows_nobody_says_so() -> None:
    ((server, why),) = Controller([ALICE]).told
    assert server is None
    assert "the peer at 127.0.0.1:1 knows no other peer that could serve it; connect without receive='direct'" in why


def test_nobody_is_asked_for_a_client_that_has_left() -> None:
    controller = Controller()
    controller.direct.client_left(BOARD)
    controller.direct.served(BOB, ServesClient(1, "no"))
    controller.direct.overdue(AnswerDue(1, 1))
    assert (controller.host.sent, controller.told) == ([(BOB, wish())], [])


# --- the server


def promised(guests: Guests, *wishes: ServeClient, now: float = 0.0) -> list[str]:
    return [guests.promise(ALICE, each, now) for each in wishes]


def entered(guests: Guests, secret: bytes = SECRET, client: bytes = BOARD) -> Guest:
    guest = guests.enter(client, secret)
    assert guest is not None
    return guest


def test_a_client_that_its_host_announced_is_let_in_once_with_its_secret_and_does_what_was_announced() -> None:
    host = RecordingHost(BOB)
    server = DirectPatterns(host)
    server.serve(ALICE, wish(7))
    assert host.sent == [(ALICE, ServesClient(7))]
    assert server.guests.enter(BOARD, b"guessed") is None
    guest = entered(server.guests)
    assert server.guests.enter(BOARD, SECRET) is None, "a secret is good for one connection"
    assert (guest.may("news", "subscribes"), guest.may("news", "publishes")) == (True, False)
    server.serve(ALICE, wish(8, doing="publishes"))
    assert guest.may("news", "publishes")


def test_a_client_that_is_expected_again_may_come_when_its_former_connection_has_ended() -> None:
    guests = Guests()
    promised(guests, wish())
    guest = entered(guests)
    promised(guests, wish())
    guests.leave(guest)
    assert entered(guests) is guest
    guests.leave(guest)
    assert (guests.known, guests.rights_count) == ({}, 0)


def test_what_guests_do_is_bounded_together_and_a_peer_that_leaves_takes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "RIGHTS_MAX", 2)
    guests, other = Guests(), client_id(ALICE.node_id, 2)
    wishes = wish(), wish(), wish(client=other), wish(client=other, doing="publishes")
    assert promised(guests, *wishes) == [
        "",
        "",
        "",
        "its clients of other peers use 2 topics already",
    ]
    monkeypatch.setattr(direct, "GUEST_RIGHTS_MAX", 1)
    monkeypatch.setattr(direct, "RIGHTS_MAX", 3)
    assert promised(guests, wish(topic="more")) == ["client board has used 1 topics here since it connected"]
    guests.close()
    assert promised(guests, wish()) == ["it leaves the network"]


def test_a_client_whose_host_ends_it_is_let_in_no_more_and_all_who_were_asked_hear_of_it() -> None:
    controller = Controller()
    controller.direct.served(BOB, ServesClient(1, "no"))
    controller.direct.end(BOARD)
    assert controller.host.sent[2:] == [(BOB, EndClient(BOARD)), (CAROL, EndClient(BOARD))]
    assert (controller.direct.searches, controller.direct.told) == ({}, {})
    guests, ended = Guests(), list[Guest]()
    guests.tell(ended.append)
    promised(guests, wish())
    guest = entered(guests)
    guests.end(CAROL, EndClient(BOARD))
    assert ended == [], "nobody ends the clients of another"
    guests.end(ALICE, EndClient(BOARD))
    guests.leave(guest)
    guests.end(ALICE, EndClient(BOARD))
    assert (ended, guests.known, guests.rights_count) == ([guest], {}, 0)


def test_a_client_may_be_gone_as_soon_as_it_hears_that_nobody_serves_one_of_its_uses() -> None:
    controller = Controller([BOB])

    def leave(*found: Any) -> None:
        controller.told.append(found)
        controller.direct.client_left(BOARD)

    for topic in ("weather", "sport"):
        controller.direct.seek(BOARD, "board", digest(SECRET), topic, "subscribes", [BOB], (), leave)
    controller.direct.link_lost(BOB)
    assert len(controller.told) == 2, "the first use, whose listener does nothing, and the second"
    assert controller.direct.searches == {}


def test_who_was_asked_for_a_client_is_remembered_for_a_bounded_number_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "TOLD_MAX", 2)
    controller = Controller()
    for number in range(2, 5):
        controller.direct.seek(
            client_id(ALICE.node_id, number), "board", digest(SECRET), "news", "subscribes", [BOB], (), lambda *_: None
        )
    assert [*controller.direct.told] == [client_id(ALICE.node_id, number) for number in (3, 4)]


def test_no_peer_announces_the_clients_of_another() -> None:
    guests = Guests()
    assert guests.promise(CAROL, wish(), 0.0) == "a peer can speak only for its own clients"
    assert guests.enter(BOARD, SECRET) is None


def test_clients_that_do_not_come_are_forgotten() -> None:
    guests = Guests()
    others = [wish(client=client_id(ALICE.node_id, 2 + number)) for number in range(GUESTS_MAX)]
    assert set(promised(guests, *others)) == {""}
    assert promised(guests, wish()) == [f"it serves {GUESTS_MAX} clients of other peers already"]
    assert promised(guests, wish(), now=PROMISE_S + 1) == [""]
    assert [*guests.known] == [BOARD]


def test_a_client_that_has_come_stays_and_what_waits_of_it_is_bounded() -> None:
    guests = Guests()
    promised(guests, wish())
    guest = entered(guests)
    topics = [f"news/{number}" for number in range(2 * SECRETS_MAX)]
    for number, topic in enumerate(topics):
        guests.promise(ALICE, ServeClient(9, BOARD, "board", digest(b"%d" % number), topic, "subscribes"), 1.0)
    assert len(guest.secrets) == SECRETS_MAX
    assert all(guest.may(topic, "subscribes") for topic in topics)
    promised(guests, wish(client=client_id(ALICE.node_id, 2)), now=PROMISE_S + 2)
    assert guests.known[BOARD] is guest
    assert guest.secrets == {}
