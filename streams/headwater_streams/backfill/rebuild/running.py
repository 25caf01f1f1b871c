"""Runs a rebuild: the job's next generation on tables of the shadow, until it has caught up with the live job."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from headwater_streams.backfill.expired import kept_of
from headwater_streams.backfill.handover import made_by
from headwater_streams.backfill.progress import PAUSE, Progress, is_done, tell
from headwater_streams.backfill.rebuild.behind import made_aside, require_unswapped
from headwater_streams.backfill.rebuild.parts import planned_part
from headwater_streams.backfill.rebuild.spec import RebuildPlan, ShadowHome
from headwater_streams.backfill.store import BackfillError, BackfillFolder
from headwater_streams.backfill.topics import on_same_topics
from headwater_streams.base.extra import Extra
from headwater_streams.base.ledger_entry import LedgerEntry
from headwater_streams.delta.marks import Marks, generation_id
from headwater_streams.ledger.log import LEDGER_TABLE, commits
from headwater_streams.operators.dedup.memory import SEEN_TABLE
from headwater_streams.plan.job import Job
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.expiry import expire
from headwater_streams.runtime.runner import JobRunner
from headwater_streams.runtime.stages.failing_rows import carry_blamed
from headwater_streams.runtime.tables import prepare_tables
from headwater_streams.storage.delta_log import has_versions
from headwater_streams.storage.home import Home

_ROUNDS = 5
_LITTLE = 0.01  # of all rows: what comes in while so much is read is little enough


class _PauseRequestedError(Exception):
    """Ends the run before a batch; it never leaves this module."""


def run(
    context: StageContext,
    folder: BackfillFolder,
    planned: RebuildPlan,
    job: Job,
    on_progress: Callable[[Progress], None],
) -> Progress:
    """Runs the shadow up to what the inputs hold now; killed at any point, the next call goes on.

    Raises:
        BackfillError: The code is not what was planned, or a topic was made again.
        CheckFailedError: A check with `action="fail"` does not hold.
    """
    require_unswapped(context, planned)
    found = planned_part(context, job, planned)
    if any(made_by(context.home.table(name), planned.id) for name in planned.tables):
        raise BackfillError(
            f"the backfill {planned.id!r} is swapped in, in part or whole; swap it, or roll it back"
        )
    shadow = shadow_context(context, folder, planned)
    _prepare(shadow, planned, found)
    live = context.home.checkpoint(planned.job, planned.base_generation)
    carry_blamed(live, shadow.home.checkpoint(planned.job, planned.generation))

    started, begun_with = time.monotonic(), _rows_read(shadow_entries(folder, planned))

    def told(state: str) -> Progress:
        entries = shadow_entries(folder, planned)
        rate = (_rows_read(entries) - begun_with) / max(time.monotonic() - started, 1e-9)
        steps = len(entries)
        return tell(
            folder, state, entries, chunks=steps, rows=planned.rows, rate=rate, on_progress=on_progress
        )

    def step(name: str, what: str, batch: int) -> None:
        if what == "start" and folder.has_flag(PAUSE):
            raise _PauseRequestedError
        if what == "end":
            told("running")
        context.step(name, f"shadow {what}", batch)

    told("running")
    runner = JobRunner(replace(shadow, step=step), [job], progress_every_s=None, plans=[found], expires=False)
    try:
        before = begun_with
        with on_same_topics(context, planned):
            for _ in range(_ROUNDS):
                runner.run_once()
                after = _rows_read(shadow_entries(folder, planned))
                if after - before <= _LITTLE * after:
                    break
                before = after
    except _PauseRequestedError:
        return told("paused")
    _let_go(context, shadow, planned, found)
    return told("done")


def _let_go(context: StageContext, shadow: StageContext, planned: RebuildPlan, found: JobPlan) -> None:
    """Lets go in the shadow of what has expired in the live tables: a rebuild does not bring it back."""
    for name in found.schemas:
        kept = kept_of(context, found, name) if has_versions(context.home.table(name)) else None
        if kept is None:
            continue
        for horizon in kept.horizons:
            generation, before_us = planned.generation, horizon.since_us
            expire(shadow, found, generation, name, before_us, column=kept.column, among=horizon.among)


def shadow_context(context: StageContext, folder: BackfillFolder, planned: RebuildPlan) -> StageContext:
    """The same context on the shadow's tables and checkpoint."""
    own = Home(folder.rebuilt)
    places = [(each.name, each.made) for each in made_aside(context.home, planned.behind)]
    places += [(name, own.table(name)) for name in (*planned.tables, SEEN_TABLE, LEDGER_TABLE)]
    home = ShadowHome(context.home.root, tuple(places), folder.rebuilt)
    return replace(context, home=home, marks=Marks(), is_live=False)


def require_caught_up(folder: BackfillFolder, planned: RebuildPlan) -> None:
    """Sees to it that the shadow can be looked at.

    Raises:
        BackfillError: The run has not caught up with the live job yet.
    """
    if not is_done(folder):
        raise BackfillError(f"the backfill {planned.id!r} has not caught up with the live job; run it first")


def shadow_entries(folder: BackfillFolder, planned: RebuildPlan) -> list[LedgerEntry]:
    """The entries of the batches that the shadow's target has."""
    table = Home(folder.rebuilt).table(planned.target)
    if not has_versions(table):
        return []
    return [c.entry for c in commits(table) if c.entry is not None and c.entry.is_batch]


def _prepare(shadow: StageContext, planned: RebuildPlan, found: JobPlan) -> None:
    """Makes the shadow's tables and begins its generation."""
    prepare_tables(shadow, found)
    transaction = shadow.transaction(shadow.home.table(planned.target))
    if transaction.last_batch(generation_id(planned.job)) >= planned.generation:
        return
    entry = LedgerEntry(
        job=planned.job,
        generation=planned.generation,
        batch=-1,
        table=planned.target,
        kind="generation",
        fingerprint=planned.fingerprint,
        extra={
            Extra.ACTION: "rebuild",
            Extra.STARTS: {},
            Extra.LOST: {},
            Extra.AFTER: {"generation": planned.base_generation, "batch": -1},
        },
    )
    transaction.commit(generation_id(planned.job), planned.generation, entry.to_json())


def _rows_read(entries: Sequence[LedgerEntry]) -> int:
    return sum(entry.totals["read"] for entry in entries)
