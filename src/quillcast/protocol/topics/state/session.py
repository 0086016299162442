"""The sessions of a topic, as a state table: what a root does in which state (docs/sessions.md).

A session is one numbered configuration of a topic. A root's term belongs to one session, and so do all bundles of that
term. The table says how a root gets from one session to the next; `root/sessions.py` executes it.
"""

from enum import StrEnum


class SessionState(StrEnum):
    """The progress of a root from one session to the next."""

    CLOSED = "closed"
    """The former term is over, and most replicas are recording the next one: nobody admits events."""
    ACTIVE = "active"
    """Events are admitted in this session."""
    PREPARE = "prepare"
    """Most replicas are recording the settings of the next session. Events are still admitted in this one."""
    FLUSHING = "flushing"
    """The next session is known; this one waits until all subscribers have what it admitted."""


class SessionInput(StrEnum):
    """What a root learns."""

    ASKED = "asked"
    """A peer asks for settings that open a session."""
    RECORDED = "recorded"
    """Most replicas have recorded what the state waits for: a term, or the settings of the next session."""
    FLUSHED = "flushed"
    """All subscribers have what was admitted, or the time for it is over."""


class SessionStep(StrEnum):
    """What a root does next."""

    NOTHING = "nothing"
    WAIT = "wait"
    """Answer the request when the next session is active."""
    RECORD = "record"
    """Have the replicas record the settings of the next session; then answer as for `wait`."""
    FLUSH = "flush"
    """Admit nothing more, and wait for the subscribers' acknowledgements."""
    BEGIN = "begin"
    """End the term. Have the replicas record the next one, of the next session, and begin that."""


_S, _I, _D = SessionState, SessionInput, SessionStep
SESSION_TABLE: dict[tuple[SessionState, SessionInput], tuple[SessionState, SessionStep]] = {
    (_S.CLOSED, _I.ASKED): (_S.CLOSED, _D.WAIT),
    (_S.CLOSED, _I.RECORDED): (_S.ACTIVE, _D.NOTHING),
    (_S.CLOSED, _I.FLUSHED): (_S.CLOSED, _D.NOTHING),
    (_S.ACTIVE, _I.ASKED): (_S.PREPARE, _D.RECORD),
    (_S.ACTIVE, _I.RECORDED): (_S.FLUSHING, _D.FLUSH),  # the former root had the next session recorded
    (_S.ACTIVE, _I.FLUSHED): (_S.ACTIVE, _D.NOTHING),
    (_S.PREPARE, _I.ASKED): (_S.PREPARE, _D.WAIT),
    (_S.PREPARE, _I.RECORDED): (_S.FLUSHING, _D.FLUSH),
    (_S.PREPARE, _I.FLUSHED): (_S.PREPARE, _D.NOTHING),
    (_S.FLUSHING, _I.ASKED): (_S.FLUSHING, _D.WAIT),
    (_S.FLUSHING, _I.RECORDED): (_S.FLUSHING, _D.NOTHING),
    (_S.FLUSHING, _I.FLUSHED): (_S.CLOSED, _D.BEGIN),
}
