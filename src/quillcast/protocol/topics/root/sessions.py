"""How a root gets from one session of its topic to the next (docs/sessions.md; the table is in `state/session.py`).

A session ends as a term does. The root has the next session's settings recorded, stops admitting, and waits for the
subscribers' acknowledgements. Then it begins another term, under the new settings, as if it had transferred the topic
to itself. So order, repeats and losses across sessions are the same as those across terms.
"""

import msgspec

from quillcast.core.dispatch import Dispatch
from quillcast.core.envelope import NO_TERM, Term
from quillcast.core.host import Host, Timer
from quillcast.core.trace import Mark
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import takes_off
from quillcast.protocol.topics.known.known import KnownTopics
from quillcast.protocol.topics.memory.flow_control import FlowControl
from quillcast.protocol.topics.root.resigning import NextSessions
from quillcast.protocol.topics.root_messages import Create
from quillcast.protocol.topics.stability.progress import Progress
from quillcast.protocol.topics.state.effects import Resign
from quillcast.protocol.topics.state.overlay import Overlay
from quillcast.protocol.topics.state.root import Root
from quillcast.protocol.topics.state.session import SessionInput, SessionState, SessionStep
from quillcast.protocol.topics.state.tree import Tree
from quillcast.protocol.topics.trees import Trees

SEND_AGAIN_TIMES = 2  # a publisher may wait this long for a receipt of the former root, then of this one; a guess


class FlushDue(Timer, frozen=True):
    """This term can be flushed now, or has had enough time for it."""

    topic: bytes
    term: Term


class Sessions:
    """A peer's part in the sessions of topics rooted here."""

    __slots__ = ("config", "dispatch", "flow_control", "host", "known", "next_sessions", "progress", "ring", "trees")

    def __init__(
        self, host: Host, config: TopicConfig, ring: Overlay, known: KnownTopics, trees: Trees,
        flow_control: FlowControl, progress: Progress, next_sessions: NextSessions, dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.host, self.config, self.ring, self.known, self.trees = host, config, ring, known, trees
        self.flow_control, self.progress = flow_control, progress
        self.next_sessions, self.dispatch = next_sessions, dispatch
        dispatch.on_timer(FlushDue, self.due)

    def asked(self, tree: Tree, request: Create) -> None:
        """Handle a request for settings that open a session, or one that arrives while one is being opened."""
        if tree.root is None:
            return
        known = tree.descriptor
        if request.descriptor.owner_key and not known.owner_key and known.upcoming is None:
            self._claimed(tree, tree.root, request)
        else:
            tree.root.note_session_asked(request)
            if self._hear(tree, tree.root, SessionInput.ASKED) is SessionStep.RECORD:
                self.known.learn(msgspec.structs.replace(tree.descriptor, upcoming=request.descriptor))

    def _claimed(self, tree: Tree, root: Root, request: Create) -> None:
        """A topic that everybody may use gets an owner and a list: this term is not accepted further (`Flow.disowns`).

        So the next one begins at once. Publishers send unstable events again.
        """
        if self.ring.is_closest(tree.topic):
            self.next_sessions.begin(tree, root, request.descriptor)
        else:
            self.dispatch.order(Resign(tree.topic))  # the next root is asked
        self.ring.route(request, tree.topic)

    def root_here(self, tree: Tree) -> None:
        """Most replicas have recorded this root's term: continue a session change."""
        root = tree.root
        if root is not None:
            self._hear(tree, root, SessionInput.RECORDED)
            if root.session:
                self.progress.hurry(tree)  # peers hold back events of a session that they do not know of
            self._ask_again(tree, root)
            self.recorded(tree)

    def recorded(self, tree: Tree) -> None:
        """Most replicas have recorded settings: check whether they include the next session."""
        if tree.root is not None and tree.root.noted.upcoming is not None:
            self._hear(tree, tree.root, SessionInput.RECORDED)

    def all_stable(self, tree: Tree) -> None:
        """All subscribers have what this root admitted, and what sources numbered, if that ends with the session."""
        if tree.root is not None and not self.trees.closing:
            self._hear(tree, tree.root, SessionInput.FLUSHED)

    def due(self, timer: FlushDue) -> None:
        """Flush that term, or end the session if there was enough time for it."""
        tree = self.trees.by_topic.get(timer.topic)
        root = tree.root if tree is not None else None
        if tree is None or root is None or root.term != timer.term or self.trees.closing:
            return
        if root.session_state is not SessionState.FLUSHING:
            return
        if root.flush_until is not None and self.host.now() >= root.flush_until:
            if not self._loses(root):
                self._hear(tree, root, SessionInput.FLUSHED)
                return
            if not tree.waits:
                self.flow_control.end_slow_leases(tree, root.index)
        self._flush(tree, root)

    def _hear(self, tree: Tree, root: Root, what: SessionInput) -> SessionStep:
        step = root.step(what)
        match step:
            case SessionStep.FLUSH:
                self._flush(tree, root)
            case SessionStep.BEGIN:
                self._begin(tree, root)
        return step

    def _ask_again(self, tree: Tree, root: Root) -> None:
        """Route requests that waited for the next session, or for this root, again to the topic's root."""
        for request in root.take_sessions_asked():
            self.ring.route(request, tree.topic)

    def _loses(self, root: Root) -> bool:
        """Whether nobody looks for missing events of this session in the next one, or sends them again."""
        now, upcoming = root.descriptor, root.noted.upcoming
        if upcoming is None or not now.settings.reliable:
            return False
        return not upcoming.settings.reliable or takes_off(now, upcoming, "publish")

    def _flush(self, tree: Tree, root: Root) -> None:
        """End the session once all subscribers have the admitted events, or had `linger_s` for them.

        If the next session is best-effort, or removes publishers from the list, subscribers have until their leases
        end, and publishers first send unstable events of earlier terms again. Leases of slow subscribers end after
        `lease_s`, unless the topic waits for them.
        """
        now, due, ready_at = self.host.now(), FlushDue(tree.topic, root.term), root.held_until
        if root.after not in (None, NO_TERM):
            ready_at = max(ready_at, root.began_at + SEND_AGAIN_TIMES * self.config.receipt_timeout_s)
        if self._loses(root) and ready_at > now:
            self.host.set_timer(due, ready_at - now)
        elif tree.is_flushed:
            self._hear(tree, root, SessionInput.FLUSHED)
        else:
            root.stop()
            patience_s = self.config.linger_s
            if root.flush_until is None:  # it may already have been closing, to transfer the topic
                patience_s = self.config.lease_s if self._loses(root) else patience_s
                root.flush(now + patience_s)
            self.host.set_timer(due, patience_s)

    def _begin(self, tree: Tree, root: Root) -> None:
        session = root.noted.upcoming
        if not self.ring.is_closest(tree.topic):
            self.dispatch.order(Resign(tree.topic))  # the next root continues with it
            return
        if session is None:  # meanwhile other settings became known, as after a partition
            self.host.trace(Mark("session_called_off"))
            self.next_sessions.call_off(tree, root)
            self._ask_again(tree, root)
            return
        self.host.trace(Mark("session_ended"))
        self.next_sessions.begin(tree, root, session)
        self._ask_again(tree, root)
