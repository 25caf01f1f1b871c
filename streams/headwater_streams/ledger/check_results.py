"""Copies what checks came to from ledger entries into `quality.results`: each batch's rows once.

The entry is committed with the batch; the copy follows. The mark of a table in `quality.results` is the newest version
of the table whose entry was copied, so a driver that died in between copies the rest when it starts again.
"""

from headwater_streams.base.errors import CheckFailedError
from headwater_streams.base.extra import Extra
from headwater_streams.base.ledger_entry import LedgerEntry, Ranges, merge_ranges
from headwater_streams.ledger.log import commits, next_commit
from headwater_streams.quality.check_result import results_of
from headwater_streams.quality.results import Judged, append, last_mark, rows_of
from headwater_streams.storage.home import Home


def copy_results(home: Home, table: str) -> int:
    """Copies the results of a table's batches that `quality.results` lacks; returns how many rows were copied."""
    name, path = f"results of {table}", home.table(table)
    since = last_mark(home, name) + 1
    if since >= next_commit(path):
        return 0
    rows, newest = [], -1
    for commit in commits(path, since=since):
        newest = commit.version
        entry = commit.entry
        if entry is None or not Extra.CHECKS.is_in(entry):
            continue
        judged = Judged(
            kind="batch" if entry.is_batch else "backfill",
            at_ms=commit.timestamp_ms,
            table=table,
            job=entry.job,
            generation=entry.generation,
            batch=entry.batch,
            version=commit.version,
            ranges=_ranges(entry),
        )
        rows += rows_of(judged, results_of(Extra.CHECKS.of(entry)))
    return len(rows) if rows and append(home, rows, (name, newest)) else 0


def record_stopped(
    home: Home,
    table: str,
    *,
    job: str,
    generation: int,
    batch: int,
    at_ms: int,
    ranges: Ranges,
    error: CheckFailedError,
) -> bool:
    """Writes the results of a batch that a check stopped, the first time that it does; says whether it did."""
    if not error.results:
        return False
    judged = Judged(
        kind="stopped",
        at_ms=at_ms,
        table=table,
        job=job,
        generation=generation,
        batch=batch,
        ranges=ranges,
    )
    return append(home, rows_of(judged, error.results), (f"stopped {job}/{generation}", batch))


def _ranges(entry: LedgerEntry) -> Ranges:
    return merge_ranges([source.ranges for source in entry.sources])
