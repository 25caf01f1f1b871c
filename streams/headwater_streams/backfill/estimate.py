"""How long a backfill may take: as many rows as it reads, at the rate of the live job's largest batches."""

import pyarrow.dataset as ds

from headwater_streams.backfill.history import read_history
from headwater_streams.backfill.rewind.spec import RewindPlan
from headwater_streams.backfill.store import AnyPlan
from headwater_streams.ledger.log import next_commit
from headwater_streams.runtime.progress import PROGRESS_TABLE
from headwater_streams.storage.delta_rows import dataset_of
from headwater_streams.storage.home import Home


def estimated_s(home: Home, planned: AnyPlan) -> float | None:
    """About how many seconds a backfill's run will take, once Spark has started; None where nothing tells.

    A plan is the same whenever it is made, and this is not: it goes by what the live job did until now.
    """
    rate = None if isinstance(planned, RewindPlan) else live_rate(home, planned.target, planned.job)
    return planned.rows / rate if rate else None


def live_rate(home: Home, target: str, job: str) -> float | None:
    """The rows a second that a job's largest batches read, those that hold half of all rows: what a small one takes is
    its start. By the target's ledger and `headwater.progress`; None where no batch is in both."""
    if not next_commit(home.table(PROGRESS_TABLE)):
        return None
    told = dataset_of(home.table(PROGRESS_TABLE)).to_table(
        ["generation", "batch", "duration_ms"],
        filter=(ds.field("job") == job) & (ds.field("event") == "batch"),
    )
    took_ms = {(row["generation"], row["batch"]): row["duration_ms"] for row in told.to_pylist()}
    entries = read_history(home.table(target), target, job).entries()
    read = ((entry.totals["read"], took_ms.get((entry.generation, entry.batch))) for entry in entries)
    found = sorted(((rows, ms) for rows, ms in read if rows and ms), reverse=True)
    half = sum(rows for rows, _ in found) / 2
    rows = ms = 0
    for of_batch, took in found:
        if rows < half:
            rows, ms = rows + of_batch, ms + took
    return rows / ms * 1000 if ms else None
