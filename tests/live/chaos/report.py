"""The result of a run, in some lines."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.live.chaos import judge
from tests.live.chaos.history import History


@dataclass(frozen=True)
class Verdict:
    """The violations of a run, and its figures."""

    history: History
    violations: list[judge.Violation]

    @classmethod
    def of(cls, folder: Path, bounds: judge.Bounds) -> "Verdict":
        """Judge the diaries in a folder."""
        history = History.read(folder)
        return cls(history, judge.violations(history, bounds))

    def figures(self) -> dict[str, object]:
        """How much happened, and how close it came to the bounds."""
        writers, readers = self.history.writers.values(), self.history.readers.values()
        healthy = [reader for reader in readers if self.history.healthy(reader)]
        refused = Counter(each.why.partition(":")[0] for writer in writers for each in writer.refused)
        reports = [loss for reader in readers for loss in reader.losses]
        return {
            "published": sum(len(writer.published) for writer in writers),
            "acknowledged": sum(len(writer.acknowledged) for writer in writers),
            "stable": sum(len(writer.stable) for writer in writers),
            "refused": dict(refused),
            "subscriptions": len(readers),
            "deliveries": sum(len(reader.deliveries) for reader in readers),
            "faults": dict(self.history.faults),
            "loss_reports": len(reports),
            "loss_reasons": dict(Counter(loss.why for loss in reports)),
            "lost_events": sum(len(reader.told) for reader in readers),
            "lost_positions": sum(reader.uncertain for reader in readers),
            "healthy_silent_s": round(max((judge.silence(self.history, each)[0] for each in healthy), default=0.0), 1),
            "grown_mib": max(
                (max(life.weights) - life.weights[0] for life in self.history.lives.values() if life.weights), default=0
            )
            >> 20,
            "settled_s": round(self.history.settled_at - self.history.finishing_at, 1),
            "problems": len(self.history.problems),
        }

    def __str__(self) -> str:
        kinds = Counter(violation.kind for violation in self.violations)
        figures = ", ".join(f"{name} {value}" for name, value in self.figures().items())
        counted = ", ".join(f"{kind} ({count})" for kind, count in kinds.items())
        return "\n".join([figures, *map(str, self.violations), f"violations: {counted or 'none'}"])
