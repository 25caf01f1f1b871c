"""Plans a rebuild: fills the facts by which `rules` decide what it will replace, and whether that can be made again."""

from collections.abc import Sequence

from headwater_streams.backfill.expired import expired_inputs, kept_of
from headwater_streams.backfill.history import read_history
from headwater_streams.backfill.jobs import feeding, parts_before
from headwater_streams.backfill.rebuild.behind import made_aside, reading_aside, require_unswapped
from headwater_streams.backfill.rebuild.rules import RebuildFacts, part_that_makes, rebuild_of
from headwater_streams.backfill.rebuild.spec import RebuildPlan
from headwater_streams.backfill.refusal import accepted
from headwater_streams.backfill.store import BackfillFolder, stored
from headwater_streams.backfill.topics import ids_of_topics, require_same_topics
from headwater_streams.backfill.whole_planning import WholeFacts, whole_facts
from headwater_streams.ledger.log import next_commit
from headwater_streams.plan.job import Job
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.planning import plan_jobs
from headwater_streams.storage.delta_files import partition_columns
from headwater_streams.storage.delta_log import has_versions


def plan_rebuild(
    context: StageContext,
    job: Job,
    *,
    reference: str = "",
    table: str | None = None,
    behind: Sequence[str] = (),
) -> RebuildPlan:
    """Plans to make a job's tables anew and stores the plan; the same code and tables give the same plan.

    Of a stateful job that names topics, of a window over several inputs, and of a chain of operators, the last part is
    rebuilt, of the tables before it. Where those were made by other code, or what it reads of its topics was let in by
    other columns and checks, they are made anew first (`table`), in their order, and what follows is planned `behind`
    them.

    Args:
        context: The session, the home, the record source.
        job: The job, as its code is now.
        reference: Where the job was loaded from; the command line loads it from there again.
        table: The table before the job's own that is made anew: `"gold.busiest__step_1"`.
        behind: Rebuilds of the tables that it reads, which have caught up and are not swapped in yet: it reads what
            they have made, and is swapped in after them.

    Raises:
        BackfillError: The job has not run yet, there is nothing of those others to read, or what comes to its last
            operator was made by other code and is not made anew.
        DataLossError: Records that the live job read are gone.
        IncompatibleStateError: A topic of the job was deleted and made again.
    """
    plans = [BackfillFolder(context.home, each).plan() for each in behind]
    for each in plans:
        require_same_topics(context, each)
    aside = reading_aside(context, behind)
    parts = plan_jobs(aside, [job])
    part = accepted(part_that_makes(parts, job.name, table))
    before, codes = feeding(parts, part), {each.job: each.fingerprint for each in plans}
    topic_ids = ids_of_topics(context, [*before, part])
    kept = [each for each in before if each.job.name not in codes]
    made = accepted(
        rebuild_of(
            RebuildFacts(
                job=job.name,
                parts=parts,
                part=part,
                kept=parts_before(context, kept, kept),
                behind=tuple(behind),
                aside={each.name for each in made_aside(context.home, behind)},
                codes=codes,
                topic_ids=topic_ids,
                unwritten={of.name for of in part.job.tables if not next_commit(aside.home.table(of.name))},
                whole=_whole(context, part, reference),
                held={topic: context.source.partitions(topic) for topic in part.job.topic_names},
                expired_us=expired_inputs(aside, part),
                kept_us=_kept_us(context, part),
                partitions=_partitions(context, part),
            )
        )
    )
    require_unswapped(context, made)
    return stored(context.home, made, context.now_ms())


def _kept_us(context: StageContext, part: JobPlan) -> int | None:
    kept = kept_of(context, part, part.job.target.name)
    return None if kept is None else kept.since_us


def _partitions(context: StageContext, part: JobPlan) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """The tables whose partitions the rebuild changes: those of now, and those of then."""
    found = {}
    for target in part.job.targets:
        path = context.home.table(target.name)
        if has_versions(path) and partition_columns(path) != target.layout.partition_columns:
            found[target.name] = (partition_columns(path), target.layout.partition_columns)
    return found


def _whole(context: StageContext, part: JobPlan, reference: str) -> WholeFacts | None:
    """The job and its target; None where there is no such table."""
    name = part.job.target.name
    table = context.home.table(name)
    if not next_commit(table):
        return None
    return whole_facts(context, part, read_history(table, name, part.job.name), reference)
