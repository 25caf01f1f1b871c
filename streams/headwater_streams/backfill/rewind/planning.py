"""Plans a rewind: fills the facts by which `rules` decide which commit is gone back to, and whether that can be."""

from headwater_streams.backfill.history import read_history
from headwater_streams.backfill.jobs import feeding
from headwater_streams.backfill.refusal import Refusal, accepted
from headwater_streams.backfill.rewind.remembered import keeps_the_rest, kept_batches
from headwater_streams.backfill.rewind.rules import RewindFacts, commits_of, rewind_of
from headwater_streams.backfill.rewind.sides import repaired_sides
from headwater_streams.backfill.rewind.spec import RewindPlan
from headwater_streams.backfill.rewind.versions import batch_at, table_of
from headwater_streams.backfill.store import stored
from headwater_streams.backfill.topics import ids_of_topics
from headwater_streams.backfill.whole_planning import whole_facts
from headwater_streams.plan.job import Job
from headwater_streams.runtime.compatibility import differences
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.planning import plan_jobs


def plan_rewind(
    context: StageContext, job: Job, *, version: int, table: str | None = None, reference: str = ""
) -> RewindPlan:
    """Plans to put a job back to where its table was at a version, and stores the plan.

    Of a stateful job that names topics, the part behind its ingest tables is put back. All tables of a job that has
    several are put back to where they were after the same batch.

    Args:
        context: The session, the home, the record source.
        job: The job.
        version: The version of its table; that of the last batch up to it is meant, of whichever generation, see
            `versions`.
        table: Of which of the job's tables it is a version, where it has several; by default of the first.
        reference: Where the job was loaded from; the command line loads it from there again.

    Raises:
        BackfillError: There is no such batch, its checkpoint is gone, or a later repair changed a side table that
            another job writes, too.
        DataLossError: Records that would be read again are gone.
        IncompatibleStateError: A topic of the job was deleted and made again.
    """
    plans = plan_jobs(context, [job])
    part, home = plans[-1], context.home
    job, topic_ids = part.job, ids_of_topics(context, [*feeding(plans, part), part])
    named = accepted(table_of(job, table))
    histories = {
        name: read_history(home.table(name), name, job.name) for name in (job.target.name, *job.other_tables)
    }
    version, batch = accepted(batch_at(histories[named], job.name, version))
    placed = commits_of(job, histories, batch)
    at = None if isinstance(placed, Refusal) else placed[job.target.name].entry
    at, checkpoint = at or batch, home.checkpoint(job.name, batch.generation)
    kept = kept_batches(checkpoint, at.batch)
    made = accepted(
        rewind_of(
            RewindFacts(
                whole=whole_facts(context, part, histories[job.target.name], reference),
                named=histories[named],
                version=version,
                at=at,
                placed=placed,
                kept=kept,
                keeps_rest=not kept.has_it or keeps_the_rest(context, job.name, checkpoint, at),
                sides=repaired_sides(home, job, histories[named].repairs(), version),
                held={topic: context.source.partitions(topic) for topic in job.topic_names},
                differences=differences(context, part, at.generation),
                topic_ids=topic_ids,
            )
        )
    )
    return stored(context.home, made, context.now_ms())
