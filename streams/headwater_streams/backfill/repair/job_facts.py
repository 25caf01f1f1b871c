"""Fills the facts of a job that its repair is planned by, whatever kind it is of."""

from headwater_streams.backfill.history import TableHistory, read_history
from headwater_streams.backfill.jobs import feeding, parts_before, refused_chain
from headwater_streams.backfill.refusal import Refusal
from headwater_streams.backfill.repair.draft import JobFacts
from headwater_streams.backfill.repair.rejected import rejecting_part, rejecting_tables
from headwater_streams.backfill.repair.selection import Selection
from headwater_streams.backfill.topics import ids_of_topics
from headwater_streams.delta.delta_table import read_version
from headwater_streams.ledger.log import next_commit
from headwater_streams.plan.job import Job
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.compatibility import since_last_run
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.planning import plan_jobs
from headwater_streams.runtime.readers import fed_by


def job_facts(context: StageContext, job: Job, selection: Selection) -> JobFacts | Refusal:
    """What the repair of a job follows from, whatever kind it is of.

    Raises:
        IncompatibleStateError: A topic of the job was deleted and made again.
    """
    plans = plan_jobs(context, [job])
    part = refused_chain(plans) or plans[-1]
    if selection.rows == "quarantined" and not isinstance(part, Refusal):
        part = rejecting_part(plans, rejecting_tables(context, plans))
    if isinstance(part, Refusal):
        return part
    before, target = feeding(plans, part), part.job.target.name
    topic_ids = ids_of_topics(context, [*before, part])
    is_there = next_commit(context.home.table(target)) > 0
    history = read_history(context.home.table(target), target, part.job.name) if is_there else None
    return JobFacts(
        job=job.name,
        part=part,
        before=parts_before(context, before, plans[:-1]),
        topic_ids=topic_ids,
        history=history,
        columns={} if history is None else _columns(context, part, history),
        differences=() if history is None else since_last_run(context, part),
        versions={name: next_commit(context.home.table(name)) - 1 for name in part.job.other_tables},
        feeds=fed_by(context.home, [each.name for each in part.job.targets]),
    )


def _columns(context: StageContext, part: JobPlan, history: TableHistory) -> dict[str, dict[str, str]]:
    """The types of the columns of each table of a job that there is."""
    versions = {table: next_commit(context.home.table(table)) - 1 for table in part.schemas}
    versions[part.job.target.name] = history.version
    return {
        table: {
            field.name: field.dataType.simpleString()
            for field in read_version(context.spark, context.home.table(table), version).schema.fields
        }
        for table, version in versions.items()
        if version >= 0
    }
