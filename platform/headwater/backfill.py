"""Backfills from Python: the verbs of `headwater backfill`, in a notebook or a program.

    planned = hw.backfill.plan(delays, start="2013-01-05", end="2013-01-06")    # records of these timestamps
    hw.backfill.preview(planned)                # the keyed diff; nothing is written
    hw.backfill.run(planned)                    # into a shadow; killed, it goes on where it was
    hw.backfill.verify(planned).passed          # the verdict is stored with the plan
    hw.backfill.swap(planned)                   # one commit
    hw.backfill.rollback(planned)               # one commit back

Each verb takes the plan or its id, and is idempotent. They use the program's Spark session; without one they start a
session and leave it open. `home` is the home of the tables, by default `$HEADWATER_HOME`, else `.headwater`;
`bootstrap` the brokers, by default those of the home's running stack. A job is the function that `@hw.job` declares,
`"PATH_OR_MODULE:job"`, or the name of one of ./jobs. After a plan of a job in a module, the other verbs load the job
from that module.
"""

import builtins
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from headwater.home import home_folder
from headwater.running.clusters import reads_default
from headwater.running.environment import one_job, program_context
from headwater_streams import backfill as _backfill
from headwater_streams.backfill import (
    BackfillError,
    BackfillPlan,
    BatchVersion,
    NothingToRepairError,
    Progress,
    RewindPlan,
    Verdict,
)
from headwater_streams.backfill.diff import SHOWN, Diff
from headwater_streams.backfill.rebuild.spec import RebuildPlan
from headwater_streams.backfill.repair.selection import Moment, Rows
from headwater_streams.backfill.store import AnyPlan, BackfillFolder
from headwater_streams.base.ledger_entry import Ranges
from headwater_streams.plan.job import Job, bind
from headwater_streams.runtime.context import StageContext
from headwater_streams.storage.home import Home

__all__ = [
    "BackfillError",
    "BackfillPlan",
    "NothingToRepairError",
    "RebuildPlan",
    "RewindPlan",
    "Verdict",
    "abort",
    "list",
    "pause",
    "plan",
    "preview",
    "resume",
    "rollback",
    "run",
    "status",
    "swap",
    "verify",
    "versions",
]

AnyJob = Job | Callable[..., Any] | str
"""A job as a person names it: the decorated function, or where it is."""
Planned = AnyPlan | str
"""A plan, or its id."""
_PATH = Path | str | None


def plan(
    job: AnyJob,
    *,
    start: Moment | None = None,
    end: Moment | None = None,
    offsets: Ranges | None = None,
    event_time: tuple[Moment, Moment] | None = None,
    since_version: int | None = None,
    rows: Rows | None = None,
    rebuild: bool = False,
    behind: Sequence[Planned] = (),
    rewind: int | None = None,
    table: str | None = None,
    lookups: Literal["as_read", "newest"] = "as_read",
    home: _PATH = None,
    bootstrap: str | None = None,
) -> AnyPlan:
    """Plans a repair of a range, a rebuild or a rewind, and stores the plan; the same again gives the same plan.

    Ranges are half-open. Without one, all that the job has read is repaired.

    Args:
        job: The job, with the code that is to run.
        start: The records' timestamps from here on, with `end`; ISO 8601 or a datetime, UTC where it does not say.
        end: The records' timestamps before this.
        offsets: Topic -> partition -> (start, end).
        event_time: (start, end) of the event time; aligned outwards to whole windows.
        since_version: What the job committed after this version of its table.
        rows: `"quarantined"`, the records in quarantine; `"late"`, the windows that lack late rows, and
            sessions that were written apart and are one.
        rebuild: The whole table anew beside the live one, with its checkpoint.
        behind: With `rebuild`, the rebuilds whose tables it reads, which are not swapped in yet.
        rewind: Tables, checkpoint and offsets back to this version of the job's table.
        table: With `rewind`, which of the job's tables the version is of; with `rebuild`, one before the job's own,
            which its topic or another operator fills, that is made anew.
        lookups: Look-ups at the versions that the live batches read, or as they are now.
        home: The home of the tables.
        bootstrap: The brokers.

    Raises:
        NothingToRepairError: No row is late, or none in quarantine, where these are meant.
        BackfillError: The arguments contradict each other, or it cannot be done; the sentence says why.
        DataLossError: Records of the range are gone from the topic.
        IncompatibleStateError: A topic of the job was deleted and made again, and the job's next run is refused, too.
    """
    if (start is None) != (end is None):
        raise BackfillError("give start and end together; the end is exclusive")
    timestamps = None if start is None or end is None else (start, end)
    ranges = [offsets, timestamps, event_time, since_version, rows, rebuild or None, rewind]
    if sum(each is not None for each in ranges) > 1:
        raise BackfillError(
            "give one of start and end, offsets, event_time, since_version, rows, rebuild and rewind, not several"
        )
    if behind and not rebuild:
        raise BackfillError(
            "behind= names rebuilds whose tables another one reads; give it with rebuild=True"
        )
    if table is not None and rewind is None and not rebuild:
        raise BackfillError(
            "table= says which table rewind='s version is of, or what rebuild= makes; give one"
        )
    bound, reference = _job_of(job, home)
    context = _context(home, bootstrap, reads=bound)
    if rebuild:
        return _backfill.plan_rebuild(
            context, bound, reference=reference, table=table, behind=[_id_of(planned) for planned in behind]
        )
    if rewind is not None:
        return _backfill.plan_rewind(context, bound, version=rewind, table=table, reference=reference)
    return _backfill.plan(
        context,
        bound,
        offsets=offsets,
        timestamps=timestamps,
        event_time=event_time,
        since_version=since_version,
        rows=rows,
        reference=reference,
        lookups=lookups,
    )


def preview(
    planned: Planned,
    job: AnyJob | None = None,
    *,
    limit: int = SHOWN,
    home: _PATH = None,
    bootstrap: str | None = None,
) -> Diff:
    """The keyed diff that a swap would make of the job's table; nothing is written. See `plan` for the arguments.

    Args:
        limit: The most rows of each kind in the samples.

    Raises:
        BackfillError: There is no such backfill, the job is not the planned one, or there is nothing to compare.
    """
    bound = _planned_job(home, planned, job)
    return _backfill.preview(_context(home, bootstrap), _id_of(planned), bound, limit=limit)


def run(
    planned: Planned,
    job: AnyJob | None = None,
    *,
    on_progress: Callable[[Progress], None] = lambda _: None,
    home: _PATH = None,
    bootstrap: str | None = None,
) -> Progress:
    """Runs what is left of a backfill; killed at any point, the next call goes on from the last step committed.

    Args:
        on_progress: Called after each step.

    Raises:
        BackfillError: There is no such backfill, it was aborted, another process runs it, the code was changed, or a
            topic of the job was deleted and made again.
    """
    bound = _planned_job(home, planned, job)
    return _backfill.run(_context(home, bootstrap), _id_of(planned), bound, on_progress=on_progress)


def verify(
    planned: Planned,
    job: AnyJob | None = None,
    *,
    recompute: Literal["all", "sample", "none"] = "sample",
    home: _PATH = None,
    bootstrap: str | None = None,
) -> Verdict:
    """Proves a finished run and stores the verdict: accounting, offsets, checks, a keyed diff, rows recomputed.

    Args:
        recompute: How much is recomputed from the raw topic by another path.

    Raises:
        BackfillError: The run is not complete, the job is not the one that was planned, or a topic was made again.
    """
    bound = _planned_job(home, planned, job)
    return _backfill.verify(_context(home, bootstrap), _id_of(planned), bound, recompute=recompute)


def swap(
    planned: Planned, *, accept_diff: str | None = None, home: _PATH = None, bootstrap: str | None = None
) -> Mapping[str, Any]:
    """Replaces the live rows by those that a backfill made, in one commit.

    Args:
        accept_diff: The digest of the diff that was read; the swap is refused if it has another one.

    Returns:
        The version that it made, and the proof of what it did.

    Raises:
        BackfillError: There is no passing verdict, what the verdict was given on has changed, or a topic of the job was
            deleted and made again.
    """
    return _backfill.swap(_context(home, bootstrap), _id_of(planned), accept_diff=accept_diff)


def rollback(planned: Planned, *, home: _PATH = None, bootstrap: str | None = None) -> Mapping[str, Any]:
    """Puts the rows from before the swap back, in one commit.

    Raises:
        BackfillError: It was never swapped in, or what it made has changed since.
        DataLossError: The rows from before, or records that the job would read again, are gone.
    """
    return _backfill.rollback(_context(home, bootstrap), _id_of(planned))


def status(planned: Planned, *, home: _PATH = None) -> Mapping[str, Any]:
    """Where a backfill is. No Spark is started, as by the verbs below.

    Raises:
        BackfillError: There is no such backfill, here and below.
    """
    return _backfill.status(_home(home), _id_of(planned))


def pause(planned: Planned, *, home: _PATH = None) -> Mapping[str, Any]:
    """Makes a run stop after the step that it is at; it stays so until `resume`."""
    return _backfill.pause(_home(home), _id_of(planned))


def resume(planned: Planned, *, home: _PATH = None) -> Mapping[str, Any]:
    """Takes a pause back; `run` goes on with what is left."""
    return _backfill.resume(_home(home), _id_of(planned))


def abort(planned: Planned, *, home: _PATH = None) -> Mapping[str, Any]:
    """Gives a backfill up that was not swapped in, and removes its shadow."""
    return _backfill.abort(_home(home), _id_of(planned))


def list(*, home: _PATH = None) -> "builtins.list[dict[str, Any]]":  # noqa: A001 - the verb's name
    """The backfills of a home, the oldest first."""
    return _backfill.list_backfills(_home(home))


def versions(job: AnyJob, *, table: str | None = None, home: _PATH = None) -> "builtins.list[BatchVersion]":
    """The versions of a job's table that its batches made, for `plan(job, rewind=VERSION)`."""
    return _backfill.versions(_home(home), _job_of(job, home)[0], table=table)


def _home(home: _PATH) -> Home:
    return Home(home_folder(home).resolve())


def _context(home: _PATH, bootstrap: str | None, *, reads: Job | None = None) -> StageContext:
    """The session, the home and the brokers; brokers are required where a job's topics are read."""
    needs_broker, jobs = reads is not None and reads_default(reads), [reads] if reads is not None else []
    root = _home(home).root
    return program_context(
        root, bootstrap, app_name="headwater backfill", needs_broker=needs_broker, jobs=jobs
    )


def _id_of(planned: Planned) -> str:
    return planned if isinstance(planned, str) else planned.id


def _job_of(job: AnyJob, home: _PATH) -> tuple[Job, str]:
    """The job, and the reference by which the command line loads it; empty if it cannot."""
    if isinstance(job, str):
        return one_job(job, _home(home).root)
    bound = job if isinstance(job, Job) else bind(job)
    code = bound.code
    # Loading runs the module: not for a program or a notebook; and a job within a function cannot be loaded.
    is_loadable = bound.function.__module__ != "__main__" and code.co_name == code.co_qualname
    is_loadable = is_loadable and Path(code.co_filename).is_file()
    return bound, f"{Path(code.co_filename).resolve()}:{bound.name}" if is_loadable else ""


def _planned_job(home: _PATH, planned: Planned, job: AnyJob | None) -> Job:
    if job is not None:
        return _job_of(job, home)[0]
    stored = BackfillFolder(_home(home), _id_of(planned)).plan()
    if not stored.reference:
        raise BackfillError(f"{stored.id} does not say where its job is; give the job behind the plan, too")
    return one_job(stored.reference)[0]
