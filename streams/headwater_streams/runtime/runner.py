"""Runs jobs: plans them in the order of their tables, starts their queries, watches them, stops them."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from deltalake.exceptions import DeltaError

from headwater_streams.base.errors import SparkEndedError, StreamsError
from headwater_streams.base.target import declared_name
from headwater_streams.base.topics import bare_topic
from headwater_streams.ledger.copy import copy_entries
from headwater_streams.operators.windows.count import CountWindow
from headwater_streams.plan.job import Job
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.compatibility import require_compatible, since_last_run
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.faults import fault_of
from headwater_streams.runtime.generations import STATELESS, current_generation, require_same_code
from headwater_streams.runtime.lookups import fillers_of
from headwater_streams.runtime.ownership import LeaseFactory, NoLease
from headwater_streams.runtime.planning import AbsentJob, NotPlanned, PlannedJobs, plan_each
from headwater_streams.runtime.progress import Event, ProgressLog
from headwater_streams.runtime.query import JobQuery, Stage, explain
from headwater_streams.runtime.restarts import Fault, Restarts
from headwater_streams.runtime.schedule import EndState, Part, Schedule, Start
from headwater_streams.runtime.stages.as_of import AsOfStage
from headwater_streams.runtime.stages.count import CountStage
from headwater_streams.runtime.stages.join import JoinStage
from headwater_streams.runtime.stages.row import RowStage
from headwater_streams.runtime.stages.scd import ScdStage
from headwater_streams.runtime.stages.window import WindowStage
from headwater_streams.runtime.upkeep import Upkeep, tidy
from headwater_streams.sources.inputs import TopicInput
from headwater_streams.spark.checkpoint import last_planned
from headwater_streams.spark.spark_errors import AnyJvmError
from headwater_streams.spark.workers import is_alive
from headwater_streams.storage.damage import DamagedFileError
from headwater_streams.storage.delta_log import has_versions
from headwater_streams.storage.home import Home

_log = logging.getLogger(__name__)
_POLL_S = 0.2
_ENDED = (
    "Spark's process has ended, killed for its memory perhaps; start the jobs again, and they go on where their tables "
    "end"
)
_NOT_WELL: tuple[EndState, ...] = ("failed", "refused", "blocked")
_STAGES: dict[str, Callable[[StageContext, JobPlan, int], Stage]] = {
    "row": RowStage,
    "scd": ScdStage,
    "window": WindowStage,
    "join": JoinStage,
    "as_of": AsOfStage,
}


@dataclass(frozen=True)
class Outcome:
    """How a job ended that is not to run any more, if not well.

    Attributes:
        job: The job, as it was declared.
        state: `"failed"`; `"refused"`: it is wrong, or not what its last run was; `"blocked"`: a job that it depends on
            is one of these.
        message: A sentence that names the job.
    """

    job: str
    state: EndState
    message: str


class JobRunner:
    """Runs a set of jobs in one Spark session."""

    def __init__(
        self,
        context: StageContext,
        jobs: Sequence[Job],
        *,
        lease: LeaseFactory | None = None,
        copy_every: int = 20,
        restarts: Restarts | None = None,
        progress_every_s: float | None = 5.0,
        upkeep: Upkeep | None = None,
        plans: Sequence[JobPlan] | None = None,
        goes_on: bool = False,
        absent: Sequence[AbsentJob] = (),
        expires: bool = True,
    ) -> None:
        """Plans the jobs.

        Args:
            context: The session, the home, the record source.
            jobs: The jobs; those that read another's table are started after it.
            lease: Makes a job's lease.
            copy_every: After how many batches of a job its entries are copied into `headwater.ledger`.
            restarts: After which faults a job is started again, and when; None: after none.
            progress_every_s: How long events are gathered before they are appended to `headwater.progress`;
                None: nothing is appended.
            upkeep: When the jobs' tables are compacted and cleaned; None: never.
            plans: Their plans, where another runner has made them and no table that they read has changed since.
            goes_on: Whether the others go on where a job ends or cannot be planned; `outcomes` then says which did.
                Else the first such error is raised, here or by what runs them.
            absent: With `goes_on`, jobs that could not be loaded: who reads one of their tables is left out.
            expires: Whether rows go that are older than their table keeps them.

        Raises:
            JobDefinitionError: A job cannot be planned.
        """
        self._context = context
        self._lease: LeaseFactory = lease or (lambda _job: NoLease())
        self._copy_every, self._upkeep, self._expires = copy_every, upkeep, expires
        planned = plan_each(context, jobs, absent=absent) if plans is None else PlannedJobs([*plans], [])
        self.plans: Sequence[JobPlan] = planned.plans if goes_on else planned.require_all()
        self.queries: dict[str, JobQuery] = {}
        self._goes_on, self._restarts = goes_on, restarts
        self._schedule = Schedule([], once=True)
        self._errors: dict[str, Exception] = {}
        self._ended: dict[str, int] = {}
        self._copied: dict[str, int] = {}
        self._generations: dict[str, int] = {}
        self._interval_s = 1.0
        self._is_to_stop: Callable[[], bool] = lambda: False
        self._progress = None if progress_every_s is None else ProgressLog(context.home, progress_every_s)
        self._noted: dict[str, int] = {}
        self._tidied = 0
        self._left_out = planned.left_out if goes_on else []
        for each in self._left_out:
            self._tell_left_out(each)
        if self._progress is not None:
            for gone in absent:
                generation = max(1, context.home.last_generation(gone.name))
                self._progress.event(gone.name, gone.tables[0], generation, "refused", gone.why)

    def start(
        self,
        *,
        interval_s: float = 1.0,
        jobs: Sequence[str] | None = None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        """Starts the queries of all jobs, or of those named.

        What fills the tables in which a job that has never run looks things up reads first what is there: that job
        would begin with a table that is still empty. Until then this watches the others.

        Args:
            interval_s: From the start of one batch to that of the next, in seconds.
            jobs: The jobs; by default all.
            stopping: Whether to return, as all is to be stopped; nothing is started any more then, by `watch` neither.

        Raises:
            StreamsError: The tables, the topics or the checkpoint of one do not allow it; see `goes_on`.
        """
        self._interval_s, self._is_to_stop = interval_s, stopping
        self._schedule = self._scheduled(jobs, once=False)
        self._step()
        while self._schedule.is_filling and not stopping():
            time.sleep(_POLL_S)
            self._step()
        for name, others in self._schedule.pending.items():
            if not others:  # it was to be started just now, and all is to be stopped
                continue
            job = self._plan(name).job
            why = f"it begins once {' and '.join(others)} {'has' if len(others) == 1 else 'have'} begun"
            self._tell(job, self._generation_shown(job), "waiting", why)

    def run_once(
        self, *, jobs: Sequence[str] | None = None, stopping: Callable[[], bool] = lambda: False
    ) -> None:
        """Runs each job, or each of those named, over what is there now, in the order of their tables.

        Args:
            jobs: The jobs; by default all.
            stopping: Whether to end at the next batch boundary; asked once a second.

        Raises:
            BaseException: What ended a job; see `goes_on`.
        """
        self._schedule = self._scheduled(jobs, once=True)
        while not stopping():
            self._step()
            if self._schedule.is_over:
                return
            with self._noticing_the_end_of_spark():
                for query in self._running():
                    query.wait(1)
        self._schedule.stop()
        for query in self._running():
            self._not_stopped(query)
            self._observe(query)

    def watch(self, seconds: float) -> None:
        """Watches the queries for a while, or until all have ended; one whose fault may pass is started again after a
        pause.

        Raises:
            BaseException: What ended one of them; see `goes_on`.
        """
        until = time.monotonic() + seconds
        while True:
            self._step()
            if self._schedule.is_over or time.monotonic() >= until:
                return
            time.sleep(min(_POLL_S, max(0.0, until - time.monotonic())))

    @property
    def is_over(self) -> bool:
        """Whether no job runs, waits or is to begin."""
        return self._schedule.is_over

    @property
    def outcomes(self) -> list[Outcome]:
        """The jobs that failed, were refused or are blocked, with `goes_on`, in this order."""
        outcomes = [
            Outcome(each.job.name, each.state, _sentence(each.job.name, each)) for each in self._left_out
        ]
        for job, (name, end) in self._schedule.jobs.items():
            if end.state in _NOT_WELL:
                is_own = name in self._errors
                message = self._named(name) if is_own else f"job {job!r} does not run: {end.why}"
                outcomes.append(Outcome(job, end.state, message))
        return sorted(outcomes, key=lambda each: _NOT_WELL.index(each.state))

    def stop(self) -> None:
        """Stops all queries at a batch boundary and copies what the ledger does not have yet."""
        not_running = self._schedule.stop()
        if self._has_lost_spark():
            self._let_go()
            return
        if self._goes_on:
            for query in self._running():
                if query.failure() is not None:  # since they were watched last
                    self._observe(query)
        well = [query for query in self.queries.values() if query.failure() is None]
        for query in self.queries.values():
            query.request_stop()
        with ExitStack() as stops:  # the others are stopped even where one cannot be
            for query in self.queries.values():
                stops.callback(query.stop)
        for name, query in self.queries.items():
            self._ended[name] = self._ended.get(name, 0) + query.batches
            if query in well and self._schedule.runs(name):
                self._note(query, "stopped")
            if self._schedule.runs(name) or self._schedule.is_stopping(name):
                self._schedule.stopped(name)
            self._copy(query.job)
        for name, why in not_running.items():
            job = self._plan(name).job
            self._tell(job, self._generation_shown(job), "stopped", why)
        self._flush(now=True)
        self.queries.clear()

    def restart(self, name: str, *, interval_s: float = 1.0) -> None:
        """Stops one job at a batch boundary and starts it again; one that waits to be started again is left to that."""
        if name in self.queries:
            self.queries[name].stop()
            self._start(self._plan(name), once=False, interval_s=interval_s)

    @property
    def batches(self) -> dict[str, int]:
        """How many batches each job has committed since this runner first started it."""
        running = {name: query.batches for name, query in self.queries.items()}
        return {
            plan.job.name: self._ended.get(plan.job.name, 0) + running.get(plan.job.name, 0)
            for plan in self.plans
            if plan.job.name in self._ended or plan.job.name in running
        }

    def _scheduled(self, jobs: Sequence[str] | None, *, once: bool) -> Schedule:
        plans = [plan for plan in self.plans if jobs is None or plan.job.name in jobs]
        fillers = set() if once else fillers_of(plans, begins=self._begins)
        writers = {target.name: plan.job.name for plan in plans for target in plan.job.targets}
        parts = [
            Part(
                name=plan.job.name,
                job=declared_name(plan.job.name),
                reads={writers[table]: table for table in sorted(plan.job.table_names) if table in writers},
                fills=plan.job.name in fillers,
            )
            for plan in plans
        ]
        return Schedule(parts, once=once, restarts=self._restarts)

    def _begins(self, job: Job) -> bool:
        try:
            generation = current_generation(self._context, job)
        except StreamsError:  # its start gets the error
            return False
        return last_planned(self._context.home.checkpoint(job.name, generation)) is None

    def _step(self) -> None:
        """Does what is to be done now, and reports to the schedule what became of each query."""
        with self._noticing_the_end_of_spark():
            self._take_turns()

    def _take_turns(self) -> None:
        self._act()
        for query in self._running():
            if self._schedule.runs(query.job.name):  # another's failure may have ended it meanwhile
                self._observe(query)
        self._act()
        for name, query in list(self.queries.items()):
            if self._schedule.is_stopping(name) and query.is_at_boundary:
                self._not_stopped(query)
                self._note_batches(query)
                self._schedule.stopped(name)
                self._wrap_up(query)
                self._retire(name)
        self._flush()

    def _running(self) -> list[JobQuery]:
        return [query for name, query in self.queries.items() if self._schedule.runs(name)]

    def _act(self) -> None:
        # A start takes as long as a broker that is away is waited for, and many may be due.
        while not self._is_to_stop() and (action := self._schedule.next(time.monotonic())) is not None:
            if isinstance(action, Start):
                self._begin(self._plan(action.name), to_end=action.to_end)
            else:
                self.queries[action.name].request_stop()

    def _begin(self, plan: JobPlan, *, to_end: bool) -> None:
        try:
            self._start(plan, once=to_end, interval_s=0 if to_end else self._interval_s)
        except Exception as error:
            self._failed(plan, error, at_start=True)
        else:
            self._schedule.started(plan.job.name, time.monotonic())

    def _observe(self, query: JobQuery) -> None:
        name, is_active = query.job.name, query.is_active
        failure = query.failure()
        if failure is not None:
            self._not_stopped(query)
            self._note_batches(query)
            self._failed(self._plan(name), failure)
        elif not is_active:
            error = self._not_stopped(query)
            if error is not None:
                self._failed(self._plan(name), error)
                return
            self._note(query, "stopped")
            self._schedule.ended(name)
            self._wrap_up(query)
        else:
            if query.batches:
                self._schedule.committed(name)
            self._note_batches(query)
            if query.batches - self._copied.get(name, 0) >= self._copy_every:
                self._copied[name] = query.batches
                self._copy(query.job)

    def _not_stopped(self, query: JobQuery) -> Exception | None:
        """Stops a query and gives what kept it from that, which is logged: the other jobs go on.

        Raises:
            Exception: Spark's process has ended.
        """
        try:
            query.stop()
        except Exception as error:
            if self._has_lost_spark():
                raise
            _log.warning("job %r was not stopped in good order: %s", query.job.name, explain(error))
            return error
        return None

    def _failed(self, plan: JobPlan, failure: BaseException, *, at_start: bool = False) -> None:
        """Tells the schedule what ended a query, or kept it from starting, and people what follows.

        Raises:
            BaseException: The failure, if the others are not to go on, or cannot.
        """
        name = plan.job.name
        if not isinstance(failure, Exception):
            raise failure
        if self._has_lost_spark():
            raise SparkEndedError(_ENDED) from failure
        why, fault = _why(name, failure), fault_of(failure, has_run=self._schedule.has_run(name))
        if at_start and fault is Fault.AGAIN:  # it would be so again, at once
            fault = Fault.STAYS
        pause_s = self._schedule.failed(name, fault, why, time.monotonic())
        query, generation = self.queries.get(name), self._generation_shown(plan.job)
        if pause_s is None:
            self._tell(plan.job, generation, "refused" if fault is Fault.REFUSED else "failed", why)
            self._errors[name] = failure
        elif name in self._schedule.ends:
            self._tell(plan.job, generation, "stopped", self._schedule.ends[name].why)
        elif pause_s:
            self._tell(plan.job, generation, "waiting", why)
            _log.warning("job %r: %s; it is started again in %.0f s", name, why, pause_s)
        if query is not None:
            self._wrap_up(query)
            self._retire(name)
        if pause_s is None:
            self._tell_end(name)
            if not self._goes_on:
                raise failure

    def _tell_end(self, name: str) -> None:
        """Says that a job has ended, and which are blocked for it; all others go on."""
        speaks = self._goes_on and not self._schedule.is_over and not self._schedule.stops
        if speaks:
            _log.error("%s; the jobs that do not depend on it go on", self._named(name))
        for blocked in self._schedule.take_blocked():
            job, why = self._plan(blocked).job, self._schedule.ends[blocked].why
            self._tell(job, self._generation_shown(job), "blocked", why)
            if speaks:
                _log.error("job %r does not run: %s", blocked, why)
        self._flush(now=True)

    def _tell_left_out(self, left_out: NotPlanned) -> None:
        why = left_out.blocked if left_out.error is None else _why(left_out.job.name, left_out.error)
        self._tell(left_out.job, self._generation_shown(left_out.job), left_out.state, why)

    def _named(self, name: str) -> str:
        """The sentence about what ended a job; it names the job."""
        return _sentence(name, explain(self._errors[name]))

    def _has_lost_spark(self) -> bool:
        """Whether Spark's process has ended: no job can run any more."""
        return not is_alive(self._context.spark)

    @contextmanager
    def _noticing_the_end_of_spark(self) -> Iterator[None]:
        """Says so where Spark's process is what the block's error comes of.

        Raises:
            SparkEndedError: It is.
        """
        try:
            yield
        except (AnyJvmError, ConnectionError) as error:
            if self._has_lost_spark():
                raise SparkEndedError(_ENDED) from error
            raise

    def _let_go(self) -> None:
        """Gives back the leases of queries that ended with Spark."""
        for query in self.queries.values():
            with suppress(AnyJvmError, ConnectionError):
                query.stop()
        self._flush(now=True)
        self.queries.clear()

    def _wrap_up(self, query: JobQuery) -> None:
        """Writes what is known of a query that has ended."""
        self._flush(now=True)
        self._copy(query.job)

    def _retire(self, name: str) -> None:
        """Forgets a query that is stopped, but for its batches."""
        query = self.queries.pop(name, None)
        if query is not None:
            self._ended[name] = self._ended.get(name, 0) + query.batches

    def _plan(self, name: str) -> JobPlan:
        return next(plan for plan in self.plans if plan.job.name == name)

    def _generation_shown(self, job: Job) -> int:
        """The generation that an event is said to be of; where the home cannot say, the last one that is known."""
        try:
            return current_generation(self._context, job)
        except Exception:
            return self._generations.get(job.name, 1)

    def _start(self, plan: JobPlan, *, once: bool, interval_s: float) -> JobQuery:
        self._require_fed_compatible(plan.job)
        generation = self._generation_of(plan.job)
        make = CountStage if isinstance(plan.operator, CountWindow) else _STAGES[plan.kind]
        stage = make(self._context, plan, generation)
        lease = self._lease(plan.job.name)
        query = JobQuery(self._context, plan, stage, generation, lease, self._upkeep, expires=self._expires)
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
        except (DeltaError, OSError, DamagedFileError) as error:
            _log.warning("%s is not copied into headwater.ledger: %s", table, error)

    def _note_batches(self, query: JobQuery) -> None:
        job, last = query.job, self._noted.get(query.job.name, -1)
        if query.last_batch <= last:
            return
        endings = endings_of(self._context.home, job)
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


def endings_of(home: Home, job: Job) -> dict[str, str]:
    """What Spark's description of each input's source ends in: topics in brackets, as their cluster calls them, or a
    table's path."""
    return {
        name: f"[{', '.join(map(bare_topic, declared.names))}]"
        if isinstance(declared, TopicInput)
        else str(home.table(declared.name))
        for name, declared in job.inputs.items()
    }


def _warn_of_dropped_rows(job: Job, progress: Mapping[str, Any]) -> None:
    dropped = sum(int(o.get("numRowsDroppedByWatermark", 0)) for o in progress.get("stateOperators", ()))
    if dropped:
        _log.error(
            "job %r, batch %s: Spark dropped %d rows behind its watermark; the table lacks them",
            job.name,
            progress["batchId"],
            dropped,
        )


def _sentence(name: str, about: object) -> str:
    """A sentence about a job; where it does not name the job, it is put before it."""
    text = str(about)
    return text if f"job '{declared_name(name)}" in text else f"job {name!r}: {text}"


def _why(name: str, failure: BaseException) -> str:
    """What ended a job, for where its name stands already."""
    return explain(failure).removeprefix(f"job {name!r}").lstrip(",: ")
