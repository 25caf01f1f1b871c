"""The outcome of the demo, and its JSON."""

from dataclasses import dataclass, field
from typing import Any

from headwater.demo.compare import Comparison


@dataclass(frozen=True)
class EventCounts:
    """One topic: records produced in all, those that were copies, and events that the seed made late."""

    produced: int
    duplicates: int
    late: int


@dataclass
class DemoResult:
    """The outcome; filled while the demo goes on.

    Attributes:
        month: The month of 2013.
        seed: What decided the replay.
        seconds: The wall time.
        events: The counts by topic.
        tables: The comparison of each table with the CSV, after the backfill.
        audit: The books of each topic and partition.
        backfill: The plan and the verdict of the backfill.
        full: What the full demo looked at beside that; empty for the plain one.
        proved: What it proved by that, each as a sentence.
        differences: What is not as it should be, each as a sentence; none of them means ok.
    """

    month: int
    seed: int
    seconds: float = 0.0
    events: dict[str, EventCounts] = field(default_factory=dict)
    tables: dict[str, Comparison] = field(default_factory=dict)
    audit: list[dict[str, Any]] = field(default_factory=list)
    backfill: dict[str, Any] = field(default_factory=dict)
    full: dict[str, Any] = field(default_factory=dict)
    proved: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether everything was as it should be."""
        return not self.differences

    @property
    def last_line(self) -> str:
        """`demo: ok`, or what differs."""
        return "demo: ok" if self.ok else "demo: " + "; ".join(self.differences)

    def to_json(self) -> dict[str, Any]:
        """The object that `headwater demo --json` prints."""
        return {
            "ok": self.ok,
            "seconds": round(self.seconds, 1),
            "month": self.month,
            "seed": self.seed,
            "events": {
                topic: {"produced": counts.produced, "duplicates": counts.duplicates, "late": counts.late}
                for topic, counts in self.events.items()
            },
            "tables": {
                name: {"rows": compared.rows, "expected": compared.expected, "equal": compared.equal}
                for name, compared in self.tables.items()
            },
            "audit": self.audit,
            "backfill": self.backfill,
            **({"full": self.full} if self.full else {}),
        }
