"""Runs a rebuild: the job's next generation on tables of the shadow, until it has caught up with the live job."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from headwater_streams.backfill.handover import made_by
from headwater_streams.backfill.progress import PAUSE, Progress
from headwater_streams.backfill.rebuild.spec import RebuildPlan, ShadowHome
from headwater_streams.backfill.store import BackfillError, BackfillFolder, utc_text
from headwater_streams.dedup.memory import SEEN_TABLE
from headwater_streams.ledger.entry import LedgerEntry
from headwater_streams.ledger.log import LEDGER_TABLE, commits
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.generations import generation_id
from headwater_streams.runtime.job import Job
from headwater_streams.runtime.plan import JobPlan
from headwater_streams.runtime.runner import JobRunner, plan_jobs
from headwater_streams.runtime.tables import prepare_tables
from headwater_streams.sinks.marks import Marks

_ROUNDS = 5
_LITTLE = 0.01  # of all rows: what comes in while so much is read is little enough


class _PauseRequestedError(Exception):
    """Ends the run before a batch; it never leaves this module."""


def run(
    context: StageContext, folder: BackfillFolder, job: Job, on_progress: Callable[[Progress], None]
) -> Progress:
    """Runs the shadow up to what the inputs hold now; killed at any point, the next call goes on.

    Raises:
        BackfillError: The code is not what was planned.
        CheckFailedError: A check with `action="fail"` does not hold.
    """
    planned = rebuild_of(folder)
    found = same_job(context, planned, job)
    if any(made_by(context.home.table(name), planned.id) for name in planned.tables):
        raise BackfillError(
            f"the backfill {planned.id!r} is swapped in, in part or whole; swap it, or roll it back"
        )
    shadow = shadow_context(context, folder, planned)
    _prepare(shadow, planned, found)

    started, begun_with = time.monotonic(), _rows_read(folder, planned)

    def tell(state: str) -> Progress:
        rate = (_rows_read(folder, planned) - begun_with) / max(time.monotonic() - started, 1e-9)
        return _told(folder, planned, state, round(rate, 1), on_progress)

    def step(name: str, what: str, batch: int) -> None:
        if what == "start" and folder.has_flag(PAUSE):
            raise _PauseRequestedError
        if what == "end":
            tell("running")
        context.step(name, f"shadow {what}", batch)

    runner = JobRunner(replace(shadow, step=step), [job], progress_every_s=None)
    try:
        for _ in range(_ROUNDS):
            before = _rows_read(folder, planned)
            runner.run_once(jobs=[planned.job])
            after = _rows_read(folder, planned)
            if after - before <= _LITTLE * after:
                break
    except _PauseRequestedError:
        return tell("paused")
    return tell("done")


def rebuild_of(folder: BackfillFolder) -> RebuildPlan:
    """The plan of a rebuild."""
    found = folder.plan()
    assert isinstance(found, RebuildPlan), "the verbs tell the modes apart"
    return found


def same_job(context: StageContext, planned: RebuildPlan, job: Job) -> JobPlan:
    """The job understood, if it is the one that was planned.

    Raises:
        BackfillError: Its code or its declaration was changed since.
    """
    found = plan_jobs(context, [job])[-1]
    if (found.job.name, found.job.fingerprint) != (planned.job, planned.fingerprint):
        raise BackfillError(
            f"the backfill {planned.id!r} was planned for the job {planned.job!r}, code {planned.fingerprint}, "
            f"and this is {found.job.name!r}, code {found.job.fingerprint}; plan again"
        )
    return found


def shadow_context(context: StageContext, folder: BackfillFolder, planned: RebuildPlan) -> StageContext:
    """The same context on the shadow's tables and checkpoint."""
    names = (*planned.tables, SEEN_TABLE, LEDGER_TABLE)
    home = ShadowHome(context.home.root, folder.rebuilt, names)
    return replace(context, home=home, marks=Marks())


def shadow_entries(folder: BackfillFolder, planned: RebuildPlan) -> list[LedgerEntry]:
    """The entries of the batches that the shadow's target has."""
    table = ShadowHome(folder.path, folder.rebuilt, planned.tables).table(planned.target)
    if not (table / "_delta_log").exists():
        return []
    return [c.entry for c in commits(table) if c.entry is not None and c.entry.is_batch]


def accounting_of(folder: BackfillFolder, planned: RebuildPlan) -> dict[str, int]:
    """The terms of all the shadow's batches."""
    total: Counter[str] = Counter()
    for entry in shadow_entries(folder, planned):
        total.update(entry.totals)
    return dict(total)


def _told(
    folder: BackfillFolder,
    planned: RebuildPlan,
    state: str,
    rate: float,
    on_progress: Callable[[Progress], None],
) -> Progress:
    batches, accounting = len(shadow_entries(folder, planned)), accounting_of(folder, planned)
    read = accounting.get("read", 0)
    now = utc_text(int(time.time() * 1000))
    progress = Progress(state, batches, batches, read, planned.rows, accounting, rate, now)
    folder.write("progress", progress.to_json())
    on_progress(progress)
    return progress


def _prepare(shadow: StageContext, planned: RebuildPlan, found: JobPlan) -> None:
    """Makes the shadow's tables and begins its generation."""
    prepare_tables(shadow, found)
    transaction = shadow.transaction(shadow.home.table(planned.target))
    if transaction.last_batch(generation_id(planned.job)) >= planned.generation:
        return
    entry = LedgerEntry(
        planned.job,
        planned.generation,
        -1,
        planned.target,
        "generation",
        fingerprint=planned.fingerprint,
        extra={
            "action": "rebuild",
            "starts": {},
            "lost": {},
            "after": {"generation": planned.base_generation, "batch": -1},
        },
    )
    transaction.commit(generation_id(planned.job), planned.generation, entry.to_json())


def _rows_read(folder: BackfillFolder, planned: RebuildPlan) -> int:
    return sum(entry.totals.get("read", 0) for entry in shadow_entries(folder, planned))
