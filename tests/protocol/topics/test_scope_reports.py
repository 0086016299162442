"""What the entry point of a scope tells its parent: events come or members report, then what was put on the link."""

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import DOWN, Envelope
from quillcast.protocol.neighbours.stream_messages import Changes
from quillcast.protocol.topics.root_messages import Confirmed
from quillcast.protocol.topics.stability.scope_reports import LESS_S, PeriodOver, PeriodReport, ScopeReports
from quillcast.protocol.topics.state import link_reports
from quillcast.protocol.topics.state.holders import Child, SourcesChild
from quillcast.protocol.topics.state.link_reports import ChildReport, StreamUp, stream_key
from quillcast.protocol.topics.state.tree import Tree
from tests.protocol.recording import BOB, CAROL, FIRST, PAUL, block
from tests.protocol.topics.parts import CONFIG, Parts
from tests.protocol.topics.test_stream_reporting import STREAM, below, child, events


class Entry:
    """The entry point of a scope: Bob is its parent outside, and Carol its child in the scope."""

    def __init__(self) -> None:
        self.parts = parts = Parts()
        self.tree: Tree = parts.tree()
        self.tree.parent = BOB
        self.tree.flow.begin(FIRST, 0, 0.0, 0)
        self.carol = Child(parts.host, CAROL, 0, FIRST, 0)
        self.tree.enter(self.carol)
        parts.placement.entered = {self.tree.topic: None}
        parts.progress.tell_parent(self.tree, BOB)

    def comes(self, count: int = 1) -> None:
        bundle = Bundle(
            Envelope(self.tree.topic, DOWN, FIRST, self.tree.frontier), (block(PAUL, 0, *[b"event"] * count),)
        )
        self.parts.table.move(self.tree.flow, bundle)

    def has(self, acknowledged: int) -> None:
        """Carol says that all below her have the events up to there."""
        self.carol.note_report(ChildReport(FIRST, acknowledged, FIRST, frontier=acknowledged))
        self.parts.progress.tell(self.tree)

    def told(self) -> tuple[int, int]:
        """What Bob has been told: what everybody has, and what the entry point has."""
        value = link_reports.decode(self.parts.streams.telling(BOB.node_id)[self.tree.topic])
        assert isinstance(value, ChildReport)
        return value.acknowledged, value.frontier

    def passes(self, seconds: float) -> None:
        self.parts.host.time += seconds
        self.parts.dispatch.timer(PeriodOver(self.tree.topic))


def test_a_period_has_one_report() -> None:
    """One input, then which reports are to be made."""
    entry = Entry()
    parts, tree = entry.parts, entry.tree
    reports = ScopeReports(parts.host, CONFIG, parts.streams, parts.placement, parts.budget)

    def came() -> list[PeriodReport]:
        bundle = Bundle(Envelope(tree.topic, DOWN, FIRST, tree.frontier), (block(PAUL, 0, b"event"),))
        parts.table.move(tree.flow, bundle)
        return list(reports.note(tree, bundle))

    assert (came(), reports.settle(tree)) == ([], None), "Carol lacks it"
    assert reports.puts_off_stream(tree, BOB, STREAM, StreamUp(0, 0, 0)) is False, "Bob was not told of this stream"
    parts.host.time = CONFIG.report_s
    assert came() == [PeriodReport(())], "the next period begins"
    assert reports.settle(tree) is None
    entry.carol.note_report(ChildReport(FIRST, 2, FIRST, frontier=2))
    assert reports.settle(tree) == PeriodReport(())
    assert reports.settle(tree) is None


def test_what_came_is_reported_once_everybody_has_it() -> None:
    entry = Entry()
    entry.comes(2)
    entry.parts.progress.tell(entry.tree)
    assert entry.told() == (0, 0)
    entry.has(1)
    assert entry.told() == (0, 0), "in one portion"
    entry.has(2)
    assert entry.told() == (2, 2)


def test_what_somebody_lacks_when_more_comes_is_for_later() -> None:
    entry = Entry()
    entry.comes()
    entry.passes(CONFIG.report_s)
    entry.comes()
    assert entry.told() == (0, 2), "the report on the first one"
    entry.has(1)
    assert entry.told() == (0, 2)
    entry.has(2)
    assert entry.told() == (2, 2)


def test_what_comes_soon_after_belongs_to_the_next_report() -> None:
    entry = Entry()
    entry.comes()
    entry.comes()
    entry.has(1)
    assert entry.told() == (1, 2)
    entry.has(2)
    assert entry.told() == (1, 2)
    entry.passes(CONFIG.report_s)
    assert entry.told() == (2, 2), "nobody need say anything more"


def test_a_timer_that_seems_to_come_a_moment_early_is_not_missed() -> None:
    """Nothing else would begin the next period."""
    entry = Entry()
    entry.comes()
    entry.comes()
    entry.has(1)
    entry.has(2)
    entry.passes(CONFIG.report_s - 1e-9)
    assert entry.told() == (2, 2)


def test_a_full_peer_reports_at_once() -> None:
    entry = Entry()
    entry.comes()
    entry.parts.budget.used_bytes = entry.parts.budget.limit_bytes // 2
    entry.parts.progress.tell(entry.tree)
    assert entry.told() == (0, 1)


def test_who_came_to_the_scope_has_a_moment_to_say_that_it_has_what_was_reported() -> None:
    entry = Entry()
    entry.comes(2)
    entry.has(2)
    entry.passes(CONFIG.report_s)
    entry.comes()
    entry.has(1)
    assert entry.told() == (2, 2)
    entry.passes(LESS_S)
    assert entry.told() == (1, 3)


def test_a_source_above_is_told_that_a_second_peer_has_its_events_and_no_more() -> None:
    parts = Parts()
    tree = below(parts)
    child(parts, tree)
    parts.placement.entered = {tree.topic: None}
    events(parts, tree, 1)
    parts.progress.tell(tree)
    parts.host.time += CONFIG.report_s
    del parts.host.sent[:]
    bundle = Bundle(Envelope(tree.topic, DOWN, STREAM, 1), (block(PAUL, 1, b"event"),))
    parts.table.arrive(BOB, bundle)
    parts.progress.confirm(tree, STREAM, BOB.node_id)
    assert (BOB, Confirmed(tree.topic, STREAM, 2)) in parts.host.sent


def lacking(parts: Parts) -> tuple[Tree, SourcesChild]:
    """All in the scope had two events of a stream, a third one came, and then somebody came that lacks the second."""
    tree = below(parts)
    carol = child(parts, tree)
    parts.placement.entered = {tree.topic: None}
    events(parts, tree, 2)
    carol.note_stream(STREAM, StreamUp(2, 2, 2))
    parts.source_streams.news.touch(tree)
    parts.progress.tell(tree)
    assert stream_told(parts, tree) == 2
    parts.host.time += CONFIG.report_s
    parts.table.arrive(BOB, Bundle(Envelope(tree.topic, DOWN, STREAM, 2), (block(PAUL, 2, b"event"),)))
    carol.note_stream(STREAM, StreamUp(1, 2, 2))
    parts.source_streams.news.touch(tree)
    return tree, carol


def comes(parts: Parts, tree: Tree, carol: SourcesChild) -> None:
    """Carol says who it is that came."""
    carol.note_report(ChildReport(tree.term, 0, tree.term, newcomers=(PAUL,)))
    carol.name(parts.host.time + 1.0)


def test_what_a_peer_that_came_to_the_scope_lacks_of_a_stream_is_told_with_the_word_that_it_came() -> None:
    """Above, its lease ends with that word: until the stream's report followed, nobody would wait for it."""
    parts = Parts()
    tree, carol = lacking(parts)
    comes(parts, tree, carol)
    parts.progress.tell(tree)
    assert stream_told(parts, tree) == 1


def test_what_had_been_put_off_by_then_is_told_with_that_word_too() -> None:
    parts = Parts()
    tree, carol = lacking(parts)
    parts.progress.tell(tree)
    assert stream_told(parts, tree) == 2, "put off"
    comes(parts, tree, carol)
    parts.progress.tell(tree)
    assert stream_told(parts, tree) == 1


def test_the_report_on_a_period_tells_of_streams_before_it_says_who_came() -> None:
    """What is put on a link first may be sent at once, and the rest only with the next changes."""
    parts = Parts()
    tree, carol = lacking(parts)
    parts.progress.tell(tree)
    comes(parts, tree, carol)
    parts.host.time += LESS_S
    del parts.host.sent[:]
    parts.dispatch.timer(PeriodOver(tree.topic))
    parts.streams.hurry(BOB.node_id)
    keys = [
        key
        for to, message in parts.host.sent
        if to == BOB and isinstance(message, Changes)
        for key, _ in message.changes
    ]
    assert keys == [stream_key(tree.topic, STREAM), tree.topic]


def stream_told(parts: Parts, tree: Tree) -> int:
    """What Bob has been told that all in the scope have of the stream."""
    report = link_reports.decode_stream(parts.streams.telling(BOB.node_id)[stream_key(tree.topic, STREAM)])
    assert isinstance(report, StreamUp)
    return report.acknowledged
