"""The sender's side of channels."""

from quillcast.core.messages import Contact
from quillcast.protocol.scopes.channels import Address, Ask, Party, Rate
from quillcast.protocol.scopes.effects import Send
from quillcast.protocol.scopes.messages import ChannelAnswer, ChannelRequest
from quillcast.protocol.scopes.requests import ChannelWish, Requests
from tests.protocol.scopes.network import peer, scope, topic

ME, Q, T, U = peer("B"), scope("Q"), topic("t"), topic("u")
MOVED = Party(Q.id, Contact(Q.contact.node_id, "elsewhere:2"), managed=True, name="Q")


def said(requests: Requests, wanted, *rates: Rate) -> list[Send]:
    asking = {party: ChannelWish(topics, dict.fromkeys(rates), {}) for party, topics in wanted.items()}
    return [*requests.want(asking), *requests.settle()]


def test_a_request_shows_the_invitations_of_all_owners_that_ordered_channels() -> None:
    """One of them may count no longer, and the topics of the others are in the same request."""
    requests, wish = Requests(ME, {}), ChannelWish({}, {}, {})
    wish.add(T, (), b"former")
    wish.add(U, (), b"present")
    (ask,) = [*requests.want({Q: wish}), *requests.settle()]
    assert isinstance(ask.message, ChannelRequest)
    assert (ask.message.topics, ask.message.invitations) == ((T, U), (b"former", b"present"))


def test_a_scope_is_asked_once_for_all_topics_and_again_when_they_change() -> None:
    requests = Requests(ME, {})
    assert said(requests, {Q: {T: None}}) == [Send(Q, ChannelRequest(Q.id, ME, 1, (T,)))]
    assert said(requests, {Q: {T: None}}) == []
    assert said(requests, {Q: {T: None, U: None}}) == [Send(Q, ChannelRequest(Q.id, ME, 2, (T, U)))]
    assert said(requests, {}) == [Send(Q, ChannelRequest(Q.id, ME, 3))]


def test_a_scope_is_asked_again_when_the_sender_is_to_send_at_another_rate() -> None:
    requests = Requests(ME, {})
    slow, slower = (Rate(scope("P").id, T, bytes_per_s) for bytes_per_s in (200, 100))
    assert said(requests, {Q: {T: None}}, slow) == [Send(Q, ChannelRequest(Q.id, ME, 1, (T,), (slow,)))]
    assert said(requests, {Q: {T: None}}, slow) == []
    assert said(requests, {Q: {T: None}}, slower) == [Send(Q, ChannelRequest(Q.id, ME, 2, (T,), (slower,)))]
    assert said(requests, {Q: {T: None}}) == [Send(Q, ChannelRequest(Q.id, ME, 3, (T,)))]


def test_a_scope_that_is_named_under_two_addresses_is_asked_at_the_last_one() -> None:
    requests = Requests(ME, {})
    assert said(requests, {Q: {T: None}, MOVED: {U: None}}) == [Send(MOVED, ChannelRequest(Q.id, ME, 1, (T, U)))]
    assert said(requests, {Q: {T: None}, MOVED: {U: None}}) == []


def test_a_sign_of_life_is_the_request_again() -> None:
    requests = Requests(ME, {})
    said(requests, {Q: {T: None}})
    requests.beat()
    assert said(requests, {Q: {T: None}}) == [Send(Q, ChannelRequest(Q.id, ME, 1, (T,)))]


def test_answers_of_an_old_epoch_or_number_are_no_news() -> None:
    requests = Requests(ME, {})
    new, old = Address(peer("C").contact), Address(peer("D").contact)
    said(requests, {Q: {T: None}})
    assert requests.answered(ChannelAnswer(Q.id, 2, 1, ((T, new),)))
    assert not requests.answered(ChannelAnswer(Q.id, 1, 9, ((T, old),)))
    assert not requests.answered(ChannelAnswer(Q.id, 2, 1, ((T, old),)))
    assert not requests.answered(ChannelAnswer(scope("R").id, 2, 2, ((T, old),)))
    assert (requests.spec(Ask(Q), T), requests.spec(Ask(Q), U)) == (new, None)
