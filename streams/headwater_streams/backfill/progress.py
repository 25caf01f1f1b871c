"""How far a backfill's run is, and the flag that makes it pause."""

from dataclasses import dataclass
from typing import Any

PAUSE = "pause"


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Attributes:
        state: `"planned"`, `"running"`, `"paused"` or `"done"`.
        chunks_done, chunks: Steps committed, and in all; a rebuild's are batches, as many as there were.
        rows_read, rows: Rows read, and as many as the plan estimated.
        accounting: The terms, summed over the chunks.
        rows_per_second: Of the chunks that this process ran.
        updated_at: When a chunk was last committed.
    """

    state: str
    chunks_done: int
    chunks: int
    rows_read: int
    rows: int
    accounting: dict[str, int]
    rows_per_second: float
    updated_at: str

    def to_json(self) -> dict[str, Any]:
        """The progress as it is stored and printed."""
        return dict(vars(self))
