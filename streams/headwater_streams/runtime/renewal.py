"""New generations of several jobs at once: which of them must begin one together."""

import logging
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from headwater_streams.base.errors import JobDefinitionError, RefusedError, StreamsError, UnavailableError
from headwater_streams.base.ledger_entry import LedgerEntry, gone_of, merge_ranges, spelled
from headwater_streams.base.target import declared_name
from headwater_streams.ledger.log import lineage, next_commit, since_rebuilt
from headwater_streams.ledger.shared import recreated_topics
from headwater_streams.plan.job import Job
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.compatibility import (
    asks_to_be_renewed,
    remedy_of,
    require_compatible,
    require_warmable,
    since_last_run,
)
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.generations import (
    STATELESS,
    Action,
    begin_generation,
    is_cut_off,
)
from headwater_streams.runtime.ownership import Lease, LeaseFactory
from headwater_streams.runtime.planning import plan_jobs
from headwater_streams.runtime.readers import readers_by_table
from headwater_streams.runtime.tables import other_writer, table_problems, tables_of
from headwater_streams.spark.damage_behind import reporting_damage
from headwater_streams.storage.delta_log import log_damage
from headwater_streams.storage.files import make_folder, move

_log = logging.getLogger(__name__)


def begin_generations(
    context: StageContext,
    jobs: Sequence[Job],
    action: Action,
    lease: LeaseFactory,
    *,
    ingest: bool = False,
) -> list[LedgerEntry]:
    """Begins the next generation of jobs, and of what must follow them.

    A rebuild goes on to the jobs that read a rebuilt table: they would count its rows twice. The ingest table of a
    stateful job is kept, since nothing that the job does with its rows is in it, unless the job unites several inputs
    there, or they are the rows of another operator, or it cannot hold the topic's columns as they are now, or a rebuild
    is asked to make it anew, too (`ingest`). A stateful job is renewed if it needs that, with a warm-up; what reads
    topics for it, if that needs it or nothing else does. A table to be rebuilt whose log is damaged is moved out of the
    home's tables.

    Raises:
        StreamsError: A job runs, has not run yet, cannot be renewed, or a job that is not named reads the table.
    """
    plans = plan_jobs(context, jobs)
    named = {job.name for job in jobs}
    leases: dict[str, Lease] = {}
    try:
        if action == "rebuild":
            for plan in plans:
                if plan.job.name in named or (ingest and plan.job.topics):
                    _put_aside(context, plan, leases, lease)
        chosen = _chosen(context, plans, named, action, ingest=ingest)
        for plan in chosen:
            _claim(plan, leases, lease)
        # Readers first: a reader that has begun anew reads once whatever is in its input by then.
        with reporting_damage(context.home):
            beginnings = [begin_generation(context, plan, action) for plan in reversed(chosen)]
        return beginnings[::-1]
    finally:
        for each in leases.values():
            each.release()


def _claim(plan: JobPlan, leases: dict[str, Lease], lease: LeaseFactory) -> None:
    if plan.job.name not in leases:
        leases[plan.job.name] = lease(plan.job.name)
        leases[plan.job.name].claim([])


def _put_aside(context: StageContext, plan: JobPlan, leases: dict[str, Lease], lease: LeaseFactory) -> None:
    """Moves a job's tables whose logs are damaged out of the way of new ones; nothing is removed."""
    for name in tables_of(plan):
        table = context.home.table(name)
        damaged = log_damage(table)
        if damaged is None:
            continue
        _claim(plan, leases, lease)
        aside = context.home.set_aside(name)
        make_folder(aside.parent)
        move(table, aside)
        _log.warning("%s: %s %s; the table was moved to %s", name, damaged.path, damaged.what, aside)


def _chosen(
    context: StageContext, plans: Sequence[JobPlan], named: AbstractSet[str], action: Action, *, ingest: bool
) -> list[JobPlan]:
    if action == "renew":
        return _to_renew(context, plans, named)
    requested = named | {plan.job.name for plan in plans if _lacks_its_table(context, plan)}
    requested |= {plan.job.name for plan in plans if plan.is_ingest and table_problems(context, plan)}
    requested |= {plan.job.name for plan in plans if ingest and plan.job.topics}
    chosen = [plan for plan in plans if plan.job.name in requested or _has_done(context, plan)]
    return [
        plan
        for plan in _with_readers(context, plans, chosen)
        if plan.job.name in requested or next_commit(context.home.table(plan.job.target.name))
    ]


def gone_since_read(context: StageContext, jobs: Sequence[Job]) -> dict[str, list[str]]:
    """For each table the records that it has rows of and that its topics do not hold any more: a rebuild loses these
    rows.

    Returns:
        By table, the offsets and topics; a topic whose broker does not answer is passed over.
    """
    gone = {}
    for plan in plan_jobs(context, jobs):
        table = context.home.table(plan.job.target.name)
        if not plan.job.topics or not next_commit(table):
            continue
        entries = [commit.entry for commit in since_rebuilt(lineage(table)) if commit.entry is not None]
        again = sorted(recreated_topics(entries))
        sentences = [f"the topic {topic} before it was made again" for topic in again]
        read = merge_ranges([source.ranges for entry in entries for source in entry.sources])
        for topic in sorted({*read} & {*plan.job.topic_names} - {*again}):
            sentences += _gone(context, topic, read[topic])
        if sentences:
            gone[plan.job.target.name] = sentences
    return gone


def _gone(context: StageContext, topic: str, read: Mapping[int, tuple[int, int]]) -> list[str]:
    try:
        bounds = context.source.partitions(topic)
    except (RefusedError, UnavailableError):
        return []
    except JobDefinitionError:
        return [f"the topic {topic}, which is not there"]
    return spelled({topic: gone_of(read, bounds)})


def ingest_of_other_code(context: StageContext, jobs: Sequence[Job]) -> list[str]:
    """The ingest tables of jobs whose rows were accepted by other code, or with other columns or checks."""
    plans, named = plan_jobs(context, jobs), {job.name for job in jobs}
    others = (plan for plan in plans if plan.job.topics and plan.job.name not in named)
    return [plan.job.target.name for plan in others if has_rows_of_other_code(context, plan)]


def has_rows_of_other_code(context: StageContext, plan: JobPlan) -> bool:
    """Whether a job's table has rows that were written under another code or declaration."""
    entries = (commit.entry for commit in since_rebuilt(lineage(context.home.table(plan.job.target.name))))
    mine = (entry for entry in entries if entry is not None and entry.job == plan.job.name and entry.is_batch)
    return any(entry.fingerprint != plan.job.fingerprint for entry in mine)


def _lacks_its_table(context: StageContext, plan: JobPlan) -> bool:
    """Whether its table is gone though it has run, or is another job's."""
    job = plan.job
    if not next_commit(context.home.table(job.target.name)):
        return context.home.last_generation(job.name) > 0
    return other_writer(context, job, job.target.name) is not None


def _has_done(context: StageContext, plan: JobPlan) -> bool:
    """Whether it is a part of a job before the last part, and has run. A job that was changed may have a new part."""
    table = context.home.table(plan.job.target.name)
    return plan.job.comes_before and next_commit(table) > 0


def _to_renew(context: StageContext, plans: Sequence[JobPlan], named: AbstractSet[str]) -> list[JobPlan]:
    for plan in (plan for plan in plans if plan.kind in STATELESS and plan.job.comes_before):
        differences = since_last_run(context, plan)
        if remedy_of(differences) == "rebuild":
            require_compatible(plan.job.name, differences)
    stateful = [plan for plan in plans if plan.kind not in STATELESS]
    differences_of = {plan.job.name: since_last_run(context, plan, with_state=True) for plan in stateful}
    asking = [plan for plan in stateful if asks_to_be_renewed(differences_of[plan.job.name])]
    reading = [plan for plan in plans if plan.kind in STATELESS and plan.job.topics]
    if asking:
        reading = [
            plan
            for plan in reading
            if remedy_of(since_last_run(context, plan)) != "keep" or is_cut_off(context, plan.job)
        ]
    chosen = [plan for plan in plans if plan in reading or plan in asking]
    chosen = chosen or [plan for plan in plans if plan.job.name in named]
    for plan in chosen:
        if plan.job.name in differences_of:
            require_warmable(plan.job.name, differences_of[plan.job.name])
    return chosen


def _with_readers(
    context: StageContext, plans: Sequence[JobPlan], chosen: Sequence[JobPlan]
) -> list[JobPlan]:
    by_name = {plan.job.name: plan for plan in chosen}
    for plan in plans:  # in the order of their tables
        rebuilt = {target.name for each in by_name.values() for target in each.job.targets}
        if any(table.name in rebuilt for table in plan.job.tables):
            by_name[plan.job.name] = plan
    readers, planned = readers_by_table(context.home), {plan.job.name for plan in plans}
    emptied = [target.name for plan in by_name.values() for target in plan.job.targets]
    for name in emptied:
        for job, table in sorted(readers[name]):
            # Left over: a part that the job had before, or a job whose table one of these takes over.
            is_left_over = (declared_name(job) in by_name and job not in planned) or table in emptied
            if job not in by_name and not is_left_over:
                raise StreamsError(
                    f"job {job!r} reads {name} into {table} and would count its rows twice; "
                    "name its module, too, so that it is rebuilt with it"
                )
    return [plan for plan in plans if plan.job.name in by_name]
