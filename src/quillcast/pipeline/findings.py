"""The findings of an audit as plain values, for people, reports and scripts."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from quillcast.pipeline.run import Run

Row = Mapping[str, Any]
"""A row of a table, by column."""


class Delays(msgspec.Struct, frozen=True):
    """Delays of deliveries in milliseconds; None without deliveries."""

    p50: float | None
    p99: float | None


class Summary(msgspec.Struct, frozen=True):
    """The most important figures of an audit."""

    peers: int
    topics: int
    published: int
    expected: int
    delivered: int
    duplicates: int
    lost: int
    dropped: int
    kills: int
    repair_s: list[float | None]
    """For each kill, how long it took until all its children had a parent again; None if they never had."""
    delay_ms: Delays


class Findings(NamedTuple):
    """The tables of an audit, collected. Peers and topics are given by name, also in the columns `peer`."""

    run: Run
    journals: list[Row]
    subscribers: list[Row]
    gaps: list[Row]
    delays: list[Row]
    percentiles: Row
    rates: list[Row]
    repairs: list[Row]
    shapes: list[Row]
    trees: list[Row]
    counters: list[Row]
    published: list[Row]
    verdicts: list[Row]
    versions: Mapping[str, str]
    seconds: float
    peers: int = 0
    topics: int = 0
    guarantees: Mapping[str, str] = {}
    """By topic: best_effort or reliable."""

    @property
    def sound(self) -> bool:
        """Whether every verdict holds."""
        return all(verdict["holds"] for verdict in self.verdicts)

    @property
    def fates(self) -> list[Row]:
        """The subscriptions worth reporting: not those that ended before any event arrived."""
        return [row for row in self.subscribers if row["lived"] or row["extra"] or row["duplicated"]]

    def summary(self) -> Summary:
        """The most important figures, for scripts."""
        kept = [row for row in self.subscribers if row["lived"]]
        return Summary(
            peers=self.peers,
            topics=self.topics,
            published=sum(row["events"] for row in self.published),
            expected=sum(row["expected"] for row in kept),
            delivered=sum(row["delivered"] for row in kept),
            duplicates=sum(row["duplicated"] for row in self.subscribers),
            lost=sum(row["lost"] for row in kept),
            dropped=sum(row["dropped"] for row in kept),
            kills=len(self.repairs),
            repair_s=[row["repair_s"] for row in self.repairs],
            delay_ms=Delays(self.percentiles["p50_ms"], self.percentiles["p99_ms"]),
        )

    def tables(self) -> dict[str, Any]:
        """All tables, ready for JSON."""
        rows = self._asdict() | {"run": {"end_ns": self.run.end_ns, "parameters": dict(self.run.parameters)}}
        return {"sound": self.sound, "summary": msgspec.to_builtins(self.summary()), **rows}
