"""The topics whose offsets a backfill speaks of, held against those that are there: told by the ids that brokers give.

    planned on    clicks  G3g/R8se    offsets 0 .. 9
                  deleted, made again
    there now     clicks  xyTIM96Y    offsets 0 .. 19     other records, and some have the offsets of the old ones

Of a topic that was made again nothing can be read again that the job has read of the old one. A plan is refused as the
job's next run is; the other steps hold the ids of the plan against those of now.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from headwater_streams.backfill.repair.spec import BackfillPlan
from headwater_streams.backfill.store import BackfillError
from headwater_streams.backfill.whole import WholePlan
from headwater_streams.base.errors import JobDefinitionError, RefusedError, UnavailableError
from headwater_streams.base.target import declared_name
from headwater_streams.plan.job import Job
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.compatibility import recreated_topic_differences, require_compatible
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.generations import current_generation, ids_read, read_by_ledger
from headwater_streams.runtime.positions import check_ends
from headwater_streams.sources.topic_metadata import changed_ids


def ids_of_topics(context: StageContext, parts: Sequence[JobPlan]) -> dict[str, str]:
    """The topics that parts of a job read, each with its id, where its broker gives one and answers.

    Raises:
        IncompatibleStateError: One is not the topic that the job has read, as the job's next run would say, too.
        DataLossError: One whose id is not known ends before what the job has read.
    """
    found: dict[str, str] = {}
    for part in (part for part in parts if part.job.topics):
        asked = {topic: context.source.topic_id(topic) for topic in part.job.topic_names}
        now = {topic: topic_id for topic, topic_id in asked.items() if topic_id is not None}
        generation = current_generation(context, part.job)
        require_compatible(part.job.name, recreated_topic_differences(context, part, generation))
        _require_as_long(context, part.job, [*(now.keys() & ids_read(context, part.job, generation))])
        found |= now
    return found


def require_same_topics(context: StageContext, planned: BackfillPlan | WholePlan) -> None:
    """Sees to it that the topics are those that a backfill was planned on; of a plan of before ids were kept, and where
    nobody answers, nothing is known.

    Raises:
        BackfillError: One was deleted and made again.
    """
    told = [
        f"the topic {topic} was deleted and made again since the backfill {planned.id!r} was planned: its id was {old} "
        f"and is {new}"
        for topic, (old, new) in changed_topics(context, planned).items()
    ]
    if told:
        raise BackfillError(
            f"{'; '.join(told)}; its records are not those that the job {planned.job!r} has read. Begin a new "
            f"generation, unless that is done: headwater jobs renew {declared_name(planned.job)}; then plan again"
        )


def changed_topics(context: StageContext, planned: BackfillPlan | WholePlan) -> dict[str, tuple[str, str]]:
    """The topics that were deleted and made again since a backfill was planned, each with its id then and now."""
    return changed_ids(planned.topic_ids, {name: context.source.topic_id(name) for name in planned.topic_ids})


def read_beyond(read: Mapping[int, int], before: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """What was read of a topic's partitions behind where that had come to before; both are the next offsets.

    Example:
        >>> read_beyond({0: 9, 1: 4, 2: 3}, {0: 5, 1: 4})
        {0: (5, 9), 2: (0, 3)}
    """
    starts = {partition: before.get(partition, 0) for partition in sorted(read)}
    return {p: (start, read[p]) for p, start in starts.items() if start < read[p]}


@contextmanager
def on_same_topics(context: StageContext, planned: BackfillPlan | WholePlan) -> Iterator[None]:
    """Sees to it that what is read in the block is of the topics that a backfill was planned on, the last record, too.

    Raises:
        BackfillError: One was deleted and made again, before the block or in it.
    """
    require_same_topics(context, planned)
    try:
        yield
    except Exception:
        require_same_topics(context, planned)  # of a shorter topic some offsets are missing, which says less
        raise
    require_same_topics(context, planned)


def _require_as_long(context: StageContext, job: Job, known: Sequence[str]) -> None:
    """Sees to it that topics, but those that are known by their ids, reach as far as a job has read."""
    unknown = [topic for topic in job.topic_names if topic not in known]
    read = read_by_ledger(context.home.table(job.target.name), job.name) if unknown else {}
    for topic in (topic for topic in unknown if topic in read):
        try:
            there = context.source.partitions(topic)
        except (UnavailableError, RefusedError, JobDefinitionError):  # what reads the topic says so
            continue
        check_ends(job.name, topic, read[topic], there)
