"""Runs jobs: plans them in the order of their tables, starts their queries, watches them, stops them."""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from pyspark.sql import types as T

from headwater_streams.errors import JobDefinitionError
from headwater_streams.ledger.copy import copy_entries
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.generations import current_generation
from headwater_streams.runtime.ingest import with_ingest
from headwater_streams.runtime.job import Job
from headwater_streams.runtime.join_stage import JoinStage
from headwater_streams.runtime.ownership import LeaseFactory, NoLease
from headwater_streams.runtime.plan import JobPlan, analyse
from headwater_streams.runtime.query import JobQuery, Stage
from headwater_streams.runtime.row_stage import RowStage
from headwater_streams.runtime.window_stage import WindowStage

_log = logging.getLogger(__name__)
_STAGES: dict[str, Callable[[StageContext, JobPlan, int], Stage]] = {
    "row": RowStage,
    "window": WindowStage,
    "join": JoinStage,
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
    ) -> None:
        """Plans the jobs.

        Args:
            context: The session, the home, the record source.
            jobs: The jobs; those that read another's table are started after it.
            lease: Makes a job's lease.
            copy_every: After how many batches of a job its entries are copied into `headwater.ledger`.

        Raises:
            JobDefinitionError: A job cannot be planned.
        """
        self._context = context
        self._lease: LeaseFactory = lease or (lambda _job: NoLease())
        self._copy_every = copy_every
        self.plans = plan_jobs(context, jobs)
        self.queries: dict[str, JobQuery] = {}
        self._copied: dict[str, int] = {}

    def start(self, *, interval_s: float = 1.0, jobs: Sequence[str] | None = None) -> None:
        """Starts the queries of all jobs, or of those named."""
        for plan in self.plans:
            if jobs is None or plan.job.name in jobs:
                self._start(plan, once=False, interval_s=interval_s)

    def run_once(self) -> None:
        """Runs each job over what is there now, in the order of their tables.

        Raises:
            BaseException: What ended a job.
        """
        for plan in self.plans:
            query = self._start(plan, once=True, interval_s=0)
            try:
                while not query.wait(3600):
                    pass
                failure = query.failure()
                if failure is not None:
                    raise failure
            finally:
                query.stop()
                self._copy(plan.job)

    def watch(self, seconds: float) -> None:
        """Watches the queries for a while.

        Raises:
            BaseException: What ended one of them.
        """
        until = time.monotonic() + seconds
        while True:
            for name, query in self.queries.items():
                failure = query.failure()
                if failure is not None:
                    raise failure
                self._warn_of_dropped_rows(query)
                if query.batches - self._copied.get(name, 0) >= self._copy_every:
                    self._copied[name] = query.batches
                    self._copy(query.job)
            if time.monotonic() >= until:
                return
            time.sleep(min(0.2, max(0.0, until - time.monotonic())))

    def stop(self) -> None:
        """Stops all queries at a batch boundary and copies what the ledger does not have yet."""
        with ExitStack() as stops:  # where one cannot be stopped, the others are all the same
            for query in self.queries.values():
                stops.callback(query.stop)
        for query in self.queries.values():
            self._copy(query.job)
        self.queries.clear()

    def restart(self, name: str, *, interval_s: float = 1.0) -> None:
        """Stops one job at a batch boundary and starts it again."""
        plan = next(plan for plan in self.plans if plan.job.name == name)
        self.queries.pop(name).stop()
        self._start(plan, once=False, interval_s=interval_s)

    def _start(self, plan: JobPlan, *, once: bool, interval_s: float) -> JobQuery:
        generation = current_generation(self._context, plan.job)
        stage = _STAGES[plan.kind](self._context, plan, generation)
        query = JobQuery(self._context, plan.job, stage, generation, self._lease(plan.job.name))
        try:
            query.start(once=once, interval_s=interval_s)
        except BaseException:
            query.stop()
            raise
        self.queries[plan.job.name] = query
        return query

    def _copy(self, job: Job) -> None:
        sides = (job.target.quarantine_table, job.target.late_table)
        for table in (*[target.name for target in job.targets], *sides):
            if (self._context.home.table(table) / "_delta_log").exists():
                copy_entries(self._context.home, table)

    def _warn_of_dropped_rows(self, query: JobQuery) -> None:
        progress = query.progress() or {}
        dropped = sum(int(o.get("numRowsDroppedByWatermark", 0)) for o in progress.get("stateOperators", ()))
        if dropped:
            _log.error(
                "job %r, batch %s: Spark dropped %d rows behind its watermark; the table lacks them",
                query.job.name,
                progress.get("batchId"),
                dropped,
            )


def plan_jobs(context: StageContext, jobs: Sequence[Job]) -> list[JobPlan]:
    """Plans jobs in the order of their tables; ingest jobs are put before stateful jobs that name topics.

    Raises:
        JobDefinitionError: A job is wrong, or the jobs feed each other in a circle.
    """
    tables = {
        name: context.spark.read.format("delta").load(str(context.home.table(name))).schema
        for name in context.home.tables()
        if any(table.name == name for job in jobs for table in job.tables)
    }
    plans: list[JobPlan] = []
    waiting = list(jobs)
    while waiting:
        targets = {target.name for job in waiting for target in job.targets}
        ready = [job for job in waiting if not any(table.name in targets for table in job.tables)]
        if not ready:
            names = ", ".join(job.name for job in waiting)
            raise JobDefinitionError(f"the jobs {names} read each other's tables in a circle")
        for job in ready:
            plans += _plan_one(context, job, tables)
            waiting.remove(job)
    return plans


def _plan_one(context: StageContext, job: Job, tables: dict[str, T.StructType]) -> list[JobPlan]:
    plan = analyse(job, context.spark, tables)
    parts = [job] if plan.kind == "row" else with_ingest(job)
    plans = [plan] if len(parts) == 1 else []
    if not plans:
        for part in parts:
            plans.append(analyse(part, context.spark, tables))
            tables[part.target.name] = plans[-1].target_schema
    tables.update(plans[-1].schemas)
    return plans
