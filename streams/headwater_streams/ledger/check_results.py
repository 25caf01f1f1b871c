"""Copies what checks came to from ledger entries into `quality.results`: each batch's rows once.

The entry is committed with the batch; the copy follows. The mark of a table in `quality.results` is the newest version
of the table whose entry was copied, so a driver that died in between copies the rest when it starts again. A second
mark has Delta's id of the table, for one that was made anew begins with version 0.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from deltalake.exceptions import DeltaError

from headwater_streams.base.errors import CheckFailedError
from headwater_streams.base.extra import Extra
from headwater_streams.base.ledger_entry import Ranges, merge_ranges
from headwater_streams.ledger.log import commits_backwards
from headwater_streams.quality.check_result import results_of
from headwater_streams.quality.results import (
    Judged,
    Mark,
    append,
    last_mark,
    last_stopped,
    opened_results,
    rows_of,
)
from headwater_streams.storage.damage import DamagedFileError
from headwater_streams.storage.delta_rows import table_id
from headwater_streams.storage.home import Home

_log = logging.getLogger(__name__)


def copy_results(home: Home, table: str) -> int:
    """Copies the results of a table's batches that `quality.results` lacks; returns how many rows were copied.

    A job and a backfill of its table may copy at the same time: each result is there once.

    It goes back from the newest commit, so that it costs what is new: a batch without results was made before there
    were any, or by a job without checks, and those before it have been copied.
    """
    path, results, rows = home.table(table), opened_results(home), list[dict[str, Any]]()
    marks = f"results of {table}", f"id of {table}"
    before = copied = last_mark(results, marks[0])
    newest, identity = -1, dict[str, int]()
    for commit in commits_backwards(path):
        if newest < 0:
            newest = commit.version
            if newest < copied and last_mark(results, marks[1]) != _id_of(path):
                copied = -1
            if copied < 0:
                identity = {marks[1]: _id_of(path)}
        entry = commit.entry
        if commit.version <= copied:
            break
        if entry is None or not Extra.CHECKS.is_in(entry):
            if entry is not None and entry.is_batch:
                break
            continue
        judged = Judged(
            kind="batch" if entry.is_batch else "backfill",
            at_ms=commit.timestamp_ms,
            table=table,
            job=entry.job,
            generation=entry.generation,
            batch=entry.batch,
            version=commit.version,
            ranges=merge_ranges([source.ranges for source in entry.sources]),
        )
        rows[:0] = rows_of(judged, results_of(Extra.CHECKS.of(entry)))
    if not rows:
        return 0
    return len(rows) if append(home, rows, Mark(marks[0], before, newest, identity), results) else 0


def _id_of(table: Path) -> int:
    """Delta's id of a table, as a number that a mark can have."""
    return UUID(table_id(table)).int >> 65


def keep_results(home: Home, table: str) -> None:
    """Copies them; a fault is logged, and whoever copies next makes up for it."""
    try:
        copy_results(home, table)
    except (DeltaError, OSError, DamagedFileError) as error:
        _log.warning("%s: the results of its checks wait to be copied: %s", table, error)


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
    """Writes the results of a batch that a check stopped, unless its last try came to the same; says whether it did."""
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
    rows = rows_of(judged, error.results)
    if _compared(last_stopped(home, job, generation, batch)) == _compared(rows):
        return False
    return append(home, rows)


def _compared(rows: Sequence[Mapping[str, Any]]) -> set[tuple[Any, ...]]:
    return {tuple(row[name] for name in ("check", "outcome", "action", "judged", "failed")) for row in rows}
