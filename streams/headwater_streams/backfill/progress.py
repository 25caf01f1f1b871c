"""How far a backfill's run is, and the flag that makes it pause."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from headwater_streams.backfill.store import BackfillFolder, utc_text
from headwater_streams.backfill.values import FolderRecord
from headwater_streams.backfill.whole import WholePlan
from headwater_streams.base.ledger_entry import LedgerEntry

PAUSE = "pause"


@dataclass(frozen=True, kw_only=True)
class Progress(FolderRecord):
    """How far a run is.

    Attributes:
        state: `"planned"`, `"running"`, `"paused"` or `"done"`.
        chunks_done, chunks: Steps committed, and in all; a rebuild's are batches, as many as there were.
        rows_read, rows: Rows read, and as many as the plan estimated.
        accounting: The terms, summed over the chunks.
        rows_per_second: Of the chunks that this process ran.
        updated_at: When a chunk was last committed.
    """

    WHAT = "the progress of a run"
    FILE = "progress"

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
        return self.version_key() | vars(self)

    @classmethod
    def from_json(cls, value: Any) -> "Progress":
        """The progress as it was stored."""
        return cls(**{name: found for name, found in cls.checked(value).items() if name != cls.FORMAT_KEY})


def is_done(folder: BackfillFolder) -> bool:
    """Whether a rebuild has caught up with the live job."""
    progress = folder.known(Progress)
    return progress is not None and progress.state == "done"


def nothing_to_run(planned: WholePlan) -> Progress:
    """The progress of a rewind: the rows and the state that it puts back are there."""
    return Progress(
        state="done",
        chunks_done=0,
        chunks=0,
        rows_read=0,
        rows=0,
        accounting={},
        rows_per_second=0.0,
        updated_at=planned.created_at,
    )


def tell(
    folder: BackfillFolder,
    state: str,
    entries: Sequence[LedgerEntry],
    *,
    chunks: int,
    rows: int,
    rate: float,
    on_progress: Callable[[Progress], None],
) -> Progress:
    """The progress of a run, stored and shown.

    Args:
        folder: The backfill's folder.
        state: Its state.
        entries: The entries of the steps that are committed.
        chunks: How many steps there are in all.
        rows: How many rows the plan estimated.
        rate: Rows per second.
        on_progress: Is shown it.
    """
    accounting = summed(entries)
    now = utc_text(int(time.time() * 1000))
    read = accounting.get("read", 0)
    progress = Progress(
        state=state,
        chunks_done=len(entries),
        chunks=chunks,
        rows_read=read,
        rows=rows,
        accounting=accounting,
        rows_per_second=round(rate, 1),
        updated_at=now,
    )
    folder.write(progress)
    on_progress(progress)
    return progress


def summed(entries: Sequence[LedgerEntry]) -> dict[str, int]:
    """The terms of all steps."""
    total: Counter[str] = Counter()
    for entry in entries:
        total.update(entry.totals)
    return dict(total)
