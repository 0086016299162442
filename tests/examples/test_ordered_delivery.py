"""The paper's own example of a stronger guarantee, built on the upcalls (Scribe, section 3.2)."""

from examples.ordered_delivery import run


def test_with_the_upcalls_every_subscriber_gets_every_event_in_order_though_a_forwarder_dies() -> None:
    events, got = run(handlers=True)
    assert all(payloads == [b"%d" % number for number in range(events)] for payloads in got.values())


def test_without_them_a_best_effort_topic_loses_events_when_a_forwarder_dies() -> None:
    events, got = run(handlers=False)
    assert any(len(payloads) < events for payloads in got.values())
    assert all(len(payloads) == len(set(payloads)) for payloads in got.values())  # yet repeats nothing
