"""Runs jobs: plans them in the order of their tables, starts their queries, watches them, stops them."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from headwater_streams.base.errors import FailingRowsFoundError, SourceReplacedError, SupersededError
from headwater_streams.base.target import declared_name
from headwater_streams.ledger.copy import copy_entries
from headwater_streams.operators.windows.count import CountWindow
from headwater_streams.plan.job import Job
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.compatibility import require_compatible, since_last_run
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.faults import BackOff, Restarts
from headwater_streams.runtime.generations import STATELESS, current_generation, require_same_code
from headwater_streams.runtime.lookups import fillers_of
from headwater_streams.runtime.ownership import LeaseFactory, NoLease
from headwater_streams.runtime.planning import plan_jobs
from headwater_streams.runtime.progress import Event, ProgressLog
from headwater_streams.runtime.query import JobQuery, Stage, explain
from headwater_streams.runtime.stages.as_of import AsOfStage
from headwater_streams.runtime.stages.count import CountStage
from headwater_streams.runtime.stages.join import JoinStage
from headwater_streams.runtime.stages.row import RowStage
from headwater_streams.runtime.stages.scd import ScdStage
from headwater_streams.runtime.stages.window import WindowStage
from headwater_streams.runtime.upkeep import Upkeep, tidy
from headwater_streams.sources.inputs import TopicInput
from headwater_streams.spark.checkpoint import last_planned
from headwater_streams.storage.damage import DamagedFileError
from headwater_streams.storage.delta_log import has_versions

_BEGIN_AGAIN = (SupersededError, FailingRowsFoundError)
"""Errors after which a query is started again at once: a rebuild was swapped in, or rows are to be left out."""

_log = logging.getLogger(__name__)
_STAGES: dict[str, Callable[[StageContext, JobPlan, int], Stage]] = {
    "row": RowStage,
    "scd": ScdStage,
    "window": WindowStage,
    "join": JoinStage,
    "as_of": AsOfStage,
}


class JobRunner:
    """Runs a set of jobs in one Spark session."""

    def __init__(
        self,
        context: StageContext,
        jobs: Sequence[Job],
        *,
        lease: LeaseFactory | None = None,
        copy_every: int = 20,
        back_off: BackOff | None = None,
        progress_every_s: float | None = 5.0,
        upkeep: Upkeep | None = None,
        plans: Sequence[JobPlan] | None = None,
    ) -> None:
        """Plans the jobs.

        Args:
            context: The session, the home, the record source.
            jobs: The jobs; those that read another's table are started after it.
            lease: Makes a job's lease.
            copy_every: After how many batches of a job its entries are copied into `headwater.ledger`.
            back_off: The pauses after which a job that met a fault that passes is started again; None: it fails.
            progress_every_s: How long events are gathered before they are appended to `headwater.progress`;
                None: nothing is appended.
            upkeep: When the jobs' tables are compacted and cleaned; None: never.
            plans: Their plans, where another runner has made them and no table that they read has changed since.

        Raises:
            JobDefinitionError: A job cannot be planned.
        """
        self._context = context
        self._lease: LeaseFactory = lease or (lambda _job: NoLease())
        self._copy_every, self._upkeep = copy_every, upkeep
        self.plans = plan_jobs(context, jobs) if plans is None else plans
        self.queries: dict[str, JobQuery] = {}
        self._ended: Counter[str] = Counter()
        self._copied: dict[str, int] = {}
        self._generations: dict[str, int] = {}
        self._restarts = Restarts(back_off)
        self._interval_s = 1.0
        self._progress = None if progress_every_s is None else ProgressLog(context.home, progress_every_s)
        self._noted: dict[str, int] = {}
        self._tidied = 0

    def start(
        self,
        *,
        interval_s: float = 1.0,
        jobs: Sequence[str] | None = None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        """Starts the queries of all jobs, or of those named.

        What fills the tables in which a job that has never run looks things up reads first what is there: that job
        would begin with a table that is still empty.

        Args:
            interval_s: From the start of one batch to that of the next, in seconds.
            jobs: The jobs; by default all.
            stopping: Whether to end at the next batch boundary; asked once a second while something is read first.

        Raises:
            StreamsError: The tables, the topics or the checkpoint of one do not allow it.
        """
        self._interval_s = interval_s
        plans = [plan for plan in self.plans if jobs is None or plan.job.name in jobs]
        fillers = fillers_of(plans, begins=self._begins)
        for plan in plans:
            goes_on = plan.job.name not in fillers or self._read_first(plan, stopping)
            if stopping():
                return
            if goes_on:
                self._start_or_wait(plan, first=True)

    def _begins(self, job: Job) -> bool:
        generation = current_generation(self._context, job)
        return last_planned(self._context.home.checkpoint(job.name, generation)) is None

    def run_once(
        self, *, jobs: Sequence[str] | None = None, stopping: Callable[[], bool] = lambda: False
    ) -> None:
        """Runs each job, or each of those named, over what is there now, in the order of their tables.

        Args:
            jobs: The jobs; by default all.
            stopping: Whether to end at the next batch boundary; asked once a second.

        Raises:
            BaseException: What ended a job.
        """
        for plan in self.plans:
            if (jobs is None or plan.job.name in jobs) and not stopping():
                failure = self._run_to_end(plan, stopping)
                if failure is not None:
                    generation = self.queries[plan.job.name].generation
                    self._wait_or_raise(plan.job.name, generation, failure, waits=False)

    def _read_first(self, plan: JobPlan, stopping: Callable[[], bool]) -> bool:
        """Runs a job over what is there now; whether it is to go on, or waits for a fault to pass."""
        try:
            failure = self._run_to_end(plan, stopping)
        except Exception as error:
            failure = error
        if failure is not None:
            self._retire(plan.job.name)
            self._wait_or_raise(plan.job.name, current_generation(self._context, plan.job), failure)
        return failure is None

    def _run_to_end(self, plan: JobPlan, stopping: Callable[[], bool]) -> BaseException | None:
        """Runs a job over what is there now, and gives what ended it, if it is not the end."""
        while isinstance(failure := self._run_generation(plan, stopping), _BEGIN_AGAIN):
            pass
        return failure

    def _run_generation(self, plan: JobPlan, stopping: Callable[[], bool]) -> BaseException | None:
        query = self._start(plan, once=True, interval_s=0)
        try:
            while not query.wait(1):
                if stopping():
                    query.stop()
            failure = query.failure()
            if failure is None or isinstance(failure, _BEGIN_AGAIN):
                self._note(query, "stopped")
            else:
                self._note_batches(query)
            return failure
        finally:
            query.stop()
            self._flush(now=True)
            self._copy(plan.job)

    def watch(self, seconds: float) -> None:
        """Watches the queries for a while; one that met a fault that passes is started again after a pause.

        Raises:
            BaseException: What ended one of them.
        """
        until = time.monotonic() + seconds
        while True:
            for name in self._restarts.take_due():
                self._start_or_wait(self._plan(name))
            for name, query in list(self.queries.items()):
                failure = query.failure()
                if failure is not None:
                    query.stop()
                    self._note_batches(query)
                    if isinstance(failure, _BEGIN_AGAIN):
                        self._retire(name)
                        self._start_or_wait(self._plan(name))
                        continue
                    self._wait_or_raise(name, query.generation, failure)
                    self._retire(name)
                    continue
                if query.batches:
                    self._restarts.worked(name)
                self._note_batches(query)
                if query.batches - self._copied.get(name, 0) >= self._copy_every:
                    self._copied[name] = query.batches
                    self._copy(query.job)
            self._flush()
            if time.monotonic() >= until:
                return
            time.sleep(min(0.2, max(0.0, until - time.monotonic())))

    def stop(self) -> None:
        """Stops all queries at a batch boundary and copies what the ledger does not have yet."""
        well = [query for query in self.queries.values() if query.failure() is None]
        for query in self.queries.values():
            query.request_stop()
        with ExitStack() as stops:  # the others are stopped even where one cannot be
            for query in self.queries.values():
                stops.callback(query.stop)
        for query in self.queries.values():
            if query in well:
                self._note(query, "stopped")
            self._copy(query.job)
        self._flush(now=True)
        self.queries.clear()

    def restart(self, name: str, *, interval_s: float = 1.0) -> None:
        """Stops one job at a batch boundary and starts it again."""
        self.queries[name].stop()
        self._start(self._plan(name), once=False, interval_s=interval_s)

    @property
    def batches(self) -> dict[str, int]:
        """How many batches each job that has a query has committed since this runner first started it."""
        return {name: self._ended[name] + query.batches for name, query in self.queries.items()}

    def _retire(self, name: str) -> None:
        """Forgets a query that is stopped, but for its batches."""
        query = self.queries.pop(name, None)
        self._ended[name] += query.batches if query is not None else 0

    def _plan(self, name: str) -> JobPlan:
        return next(plan for plan in self.plans if plan.job.name == name)

    def _start_or_wait(self, plan: JobPlan, *, first: bool = False) -> None:
        try:
            self._start(plan, once=False, interval_s=self._interval_s)
        except Exception as error:
            # Who starts it now gets the error. A job that ran beside others waits until its table is swapped in, too.
            waits = not (first and isinstance(error, SourceReplacedError))
            self._wait_or_raise(
                plan.job.name, current_generation(self._context, plan.job), error, waits=waits
            )

    def _wait_or_raise(
        self, name: str, generation: int, failure: BaseException, *, waits: bool = True
    ) -> None:
        pause_s = self._restarts.after(name, failure) if waits else None
        event: Event = "failed" if pause_s is None else "waiting"
        why = _why(name, failure)
        self._tell(self._plan(name).job, generation, event, why)
        if pause_s is None:
            self._flush(now=True)
            raise failure
        _log.warning("job %r: %s; it is started again in %.0f s", name, why, pause_s)

    def _start(self, plan: JobPlan, *, once: bool, interval_s: float) -> JobQuery:
        self._require_fed_compatible(plan.job)
        generation = self._generation_of(plan.job)
        make = CountStage if isinstance(plan.operator, CountWindow) else _STAGES[plan.kind]
        stage = make(self._context, plan, generation)
        lease = self._lease(plan.job.name)
        query = JobQuery(self._context, plan, stage, generation, lease, self._upkeep)
        try:
            query.start(once=once, interval_s=interval_s)
        except BaseException as error:
            query.stop()
            damaged = query.damage_behind(error) if isinstance(error, Exception) else None
            if damaged is not None:
                raise damaged from error
            raise
        self._retire(plan.job.name)
        self.queries[plan.job.name] = query
        self._noted.pop(plan.job.name, None)
        self._copied.pop(plan.job.name, None)
        self._note(query, "started", query.warming_up)
        return query

    def _generation_of(self, job: Job) -> int:
        """The job's generation now: that in which it ran here, or one that a rebuild began while it ran or waited.

        Raises:
            IncompatibleStateError: That rebuild's code was another.
        """
        generation = current_generation(self._context, job)
        if self._generations.get(job.name, generation) != generation:
            require_same_code(self._context, job)
        self._generations[job.name] = generation
        return generation

    def _require_fed_compatible(self, part: Job) -> None:
        """Refuses to read records for a job if one of its later parts cannot go on from its last run."""
        table, names = declared_name(part.target.name), [plan.job.name for plan in self.plans]
        for plan in self.plans[names.index(part.name) + 1 :]:
            is_fed = declared_name(plan.job.target.name) == table
            if is_fed and (plan.kind not in STATELESS or plan.job.comes_before):
                require_compatible(plan.job.name, since_last_run(self._context, plan))

    def _copy(self, job: Job) -> None:
        sides = (job.target.quarantine_table, job.target.late_table)
        for table in (job.target.name, *job.other_tables, *sides):
            if has_versions(self._context.home.table(table)):
                self._copy_entries(table)

    def _copy_entries(self, table: str) -> None:
        """Copies entries to the ledger. A failure does not stop the job, as a log is only cut once it was copied."""
        try:
            copy_entries(self._context.home, table)
        except DamagedFileError as error:
            _log.warning("%s is not copied into headwater.ledger: %s", table, error)

    def _note_batches(self, query: JobQuery) -> None:
        job, last = query.job, self._noted.get(query.job.name, -1)
        if query.last_batch <= last:
            return
        endings = {
            name: f"[{', '.join(i.names)}]"
            if isinstance(i, TopicInput)
            else str(self._context.home.table(i.name))
            for name, i in job.inputs.items()
        }
        for progress in query.progress(last):
            self._noted[job.name] = int(progress["batchId"])
            if self._progress is not None:
                self._progress.batch(job.name, job.target.name, query.generation, progress, endings)
            _warn_of_dropped_rows(job, progress)

    def _note(self, query: JobQuery, event: Event, message: str | None = None) -> None:
        self._note_batches(query)
        self._tell(query.job, query.generation, event, message)

    def _tell(self, job: Job, generation: int, event: Event, message: str | None) -> None:
        if self._progress is not None:
            self._progress.event(job.name, job.target.name, generation, event, message)

    def _flush(self, *, now: bool = False) -> None:
        if self._progress is None:
            return
        appended = self._progress.flush(now=now)
        if self._upkeep is not None and appended // self._upkeep.every > self._tidied:
            self._tidied = appended // self._upkeep.every
            tidy(self._context.home, self._upkeep)


def _warn_of_dropped_rows(job: Job, progress: Mapping[str, Any]) -> None:
    dropped = sum(int(o.get("numRowsDroppedByWatermark", 0)) for o in progress.get("stateOperators", ()))
    if dropped:
        _log.error(
            "job %r, batch %s: Spark dropped %d rows behind its watermark; the table lacks them",
            job.name,
            progress["batchId"],
            dropped,
        )


def _why(name: str, failure: BaseException) -> str:
    """What ended a job, for where its name stands already."""
    return explain(failure).removeprefix(f"job {name!r}").lstrip(",: ")
