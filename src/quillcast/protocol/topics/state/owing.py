"""What a local subscription is owed from past terms."""

from quillcast.core.ranges import RangeSet, difference
from quillcast.protocol.forwarding.event_places import runs_at, runs_of_others
from quillcast.protocol.forwarding.stream import EndedStream
from quillcast.protocol.topics.state.subscription import Subscription
from quillcast.protocol.topics.state.tree import Tree


def owe(tree: Tree, subscription: Subscription, past: EndedStream) -> None:
    """Let a subscription be owed what it may lack of an earlier term."""
    subscription.owe(past.term, past.end, past.stable)
    if tree.flow.keeps and past.end:
        subscription.expect_again()


def owe_late(tree: Tree, subscription: Subscription, past: EndedStream, *, at_last: bool = False) -> None:
    """Let a subscription be owed what its peer did not know of an earlier term when it began, unless that was over.

    If the term was unknown then, this is open until a peer says how long its events have existed. Events that came
    meanwhile are delivered then. If a peer turns out to have had the events for longer, they are not owed after all.
    `at_last`: no peer said so for as long as the term was kept, so its events are owed.
    """
    term, since = past.term, subscription.since
    if since is None or since <= term:
        owe(tree, subscription, past)
    elif term.was_followed_by(since) or past.was_there(subscription.began_at):
        subscription.owe(term, past.end, past.stable)
        subscription.pass_by(term, past.end)
    elif subscription.term_cursor(term) is not None:
        owe(tree, subscription, past)
        if past.is_dated or at_last:
            subscription.went_on(term)
    elif past.is_dated or at_last:
        _owe_whole(tree, subscription, past)


def _owe_whole(tree: Tree, subscription: Subscription, past: EndedStream) -> None:
    term = past.term
    subscription.begin(term, past.start, went_on=True)
    if tree.flow.keeps or tree.session:  # otherwise the topic was created best-effort
        subscription.expect_again()
    for bundle in past.bundles:
        subscription.channel.restore(bundle)
    if gone := difference(past.seen, RangeSet(past.kept())):
        subscription.skip(term, gone, "unavailable", runs_at(tree.flow, term, gone), runs_of_others(tree.flow, term))
