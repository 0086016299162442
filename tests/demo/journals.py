"""Journals of several peers, written by hand."""

from pathlib import Path

from quillcast.core import trace
from quillcast.core.envelope import Term
from quillcast.core.trace import Record
from quillcast.live.storage.journal import Journal

ROOT, INNER, LEAF = (bytes([number]) * 16 for number in (1, 2, 3))
TOPIC = b"t" * 16
TERM = Term(1, ROOT)


class Peers:
    """Every peer that writes a record appears."""

    def __init__(self, folder: Path) -> None:
        self.journals = {peer: Journal(folder, peer) for peer in (ROOT, INNER, LEAF)}
        self.now_ns = 0

    def note(self, peer: bytes, *records: Record) -> None:
        for record in records:
            self.now_ns += 1
            self.journals[peer].trace(record, self.now_ns)
        self.journals[peer].flush()


def chain(folder: Path) -> Peers:
    """The root, an inner peer below it and a subscriber below that."""
    peers = Peers(folder)
    peers.note(ROOT, trace.Activated(2), trace.Named(TOPIC, "a/b"), trace.BecameRoot(TOPIC, TERM, "created"))
    peers.note(INNER, trace.Attached(TOPIC, ROOT, "joined", 1))
    peers.note(LEAF, trace.Attached(TOPIC, INNER, "joined", 2), trace.Subscribed(TOPIC, TERM, 0))
    return peers
