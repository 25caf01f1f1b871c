"""Runs a repair into its shadow table, chunk by chunk, each committed once; and previews what it would change."""

import time
from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame

from headwater_streams.backfill.diff import Diff, keyed_diff
from headwater_streams.backfill.progress import PAUSE, Progress, tell
from headwater_streams.backfill.repair.kept import keep_aside
from headwater_streams.backfill.repair.spec import BackfillPlan
from headwater_streams.backfill.repair.steps import chunk_entry, steps_of
from headwater_streams.backfill.store import BackfillError, BackfillFolder
from headwater_streams.backfill.topics import on_same_topics
from headwater_streams.base.ledger_entry import LedgerEntry
from headwater_streams.base.plural import quantity
from headwater_streams.delta.delta_table import read_version
from headwater_streams.ledger.log import commits
from headwater_streams.plan.job import Job
from headwater_streams.runtime.context import StageContext
from headwater_streams.storage.delta_log import has_versions


def run(
    context: StageContext,
    folder: BackfillFolder,
    planned: BackfillPlan,
    job: Job,
    on_progress: Callable[[Progress], None],
) -> Progress:
    """Runs what is left of a repair; killed at any point, the next call goes on from the last chunk committed.

    Raises:
        BackfillError: The code was changed, or a topic was made again.
        CheckFailedError: A check with `action="fail"` does not hold; the chunk was not committed.
    """
    if len(shadow_entries(folder)) == len(planned.chunks):
        return _told(folder, planned, "done", 0.0, on_progress)
    steps = steps_of(context, planned, job)
    steps.prepare(folder)
    started, read, rate = time.monotonic(), 0, 0.0
    _told(folder, planned, "running", rate, on_progress)
    for chunk in planned.chunks:
        transaction = context.transaction(folder.shadow)
        if transaction.last_batch(planned.app_id) >= chunk.number:
            continue
        if folder.has_flag(PAUSE):
            return _told(folder, planned, "paused", 0.0, on_progress)
        with on_same_topics(context, planned):
            files, accounting = steps.write(folder, transaction, chunk)
        entry = chunk_entry(planned, chunk, accounting, rows=files.rows, checks=steps.results())
        context.step(planned.job, "before chunk", chunk.number)
        transaction.commit(planned.app_id, chunk.number, entry.to_json(), files)
        context.step(planned.job, "after chunk", chunk.number)
        read += accounting["read"]
        rate = read / max(time.monotonic() - started, 1e-9)
        if chunk is not planned.chunks[-1]:
            _told(folder, planned, "running", rate, on_progress)
    for name, part in planned.parts.items():
        keep_aside(context, folder.of_table(planned, name), part)
    return _told(folder, planned, "done", rate, on_progress)


def preview(context: StageContext, planned: BackfillPlan, job: Job, limit: int) -> dict[str, Diff]:
    """The keyed diff that the run would make of each table, the target's first; nothing is written.

    Raises:
        BackfillError: The job is not the one that was planned.
        RowErrorsError: The function raises for more rows than the job allows.
    """
    steps = steps_of(context, planned, job)

    def diffs(after: Mapping[str, DataFrame]) -> dict[str, Diff]:
        return {
            name: keyed_diff(rows_before(context, part), after[name], part.keys, part.columns, limit)
            for name, part in planned.parts.items()
        }

    try:
        try:
            return diffs(steps.preview())
        except Exception as error:
            return diffs(steps.preview(error))
    finally:
        steps.release()


def rows_before(context: StageContext, planned: BackfillPlan) -> DataFrame:
    """The target's rows that are replaced, as they were planned on."""
    target = read_version(context.spark, context.home.table(planned.target), planned.base_version)
    return target.filter(planned.affected.condition())


def shadow_entries(folder: BackfillFolder) -> list[LedgerEntry]:
    """The entries of the chunks that were committed."""
    if not has_versions(folder.shadow):
        return []
    return [c.entry for c in commits(folder.shadow) if c.entry is not None]


def require_done(folder: BackfillFolder, planned: BackfillPlan) -> list[LedgerEntry]:
    """The entries of a run that is complete, those of the target; another table's chunks are committed before.

    Raises:
        BackfillError: It is not.
    """
    entries = shadow_entries(folder)
    if [entry.batch for entry in entries] != [chunk.number for chunk in planned.chunks]:
        chunks = quantity(len(planned.chunks), "chunk")
        raise BackfillError(f"the backfill {planned.id!r} has done {len(entries)} of {chunks}; run it first")
    return entries


def _told(
    folder: BackfillFolder,
    planned: BackfillPlan,
    state: str,
    rate: float,
    on_progress: Callable[[Progress], None],
) -> Progress:
    entries, chunks = shadow_entries(folder), len(planned.chunks)
    return tell(folder, state, entries, chunks=chunks, rows=planned.rows, rate=rate, on_progress=on_progress)
