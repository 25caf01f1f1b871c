"""Whether a topic still has what a job reads next; it is checked before Spark reads it.

Spark stops for the same reasons, with a stack trace that names no range (`failOnDataLoss`); where a topic was made
again and has grown past the job's offset, it goes on in silence.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from headwater_streams.base.errors import DataLossError
from headwater_streams.ledger.log import last_entry
from headwater_streams.plan.job import Job
from headwater_streams.runtime.context import StageContext
from headwater_streams.sources.inputs import TopicInput
from headwater_streams.sources.reader import RecordSource
from headwater_streams.spark.checkpoint import is_committed, last_planned, read_offsets

Positions = dict[str, dict[int, int]]
"""The next offset of each partition, by topic."""


def next_offsets(source: RecordSource, declared: TopicInput, checkpoint: Path, done: int) -> Positions:
    """The offsets that a query reads next of its topics; empty before its first batch.

    Args:
        source: Where the topics are.
        declared: The input that names them.
        checkpoint: The query's checkpoint.
        done: The last batch that the job's table has; -1 for none.
    """
    batch = last_planned(checkpoint)
    end = None if batch is None else read_offsets(checkpoint, batch)
    if batch is None or end is None:
        return {}
    before = read_offsets(checkpoint, batch - 1) if batch else None
    again = batch > done and not is_committed(checkpoint, batch)
    positions: Positions = {}
    for index, offset in enumerate(end.sources):
        if offset is not None and source.is_offset_of(declared, offset):
            previous = before.sources[index] if before is not None else None
            for topic, ranges in source.ranges(declared, checkpoint, index, previous, offset).items():
                positions[topic] = {p: (start if again else stop) for p, (start, stop) in ranges.items()}
    return positions


def beyond_end(positions: Mapping[int, int], bounds: Mapping[int, tuple[int, int]]) -> dict[int, int]:
    """The partitions that end before the offset that is wanted next, each with its end: the topic is another one, or
    was cut short.

    Example:
        >>> beyond_end({0: 5, 1: 9, 2: 1}, {0: (0, 7), 1: (2, 4)})
        {1: 4, 2: 0}
    """
    ends = {partition: bounds.get(partition, (0, 0))[1] for partition in sorted(positions)}
    return {partition: end for partition, end in ends.items() if positions[partition] > end}


def check_positions(
    job: str, topic: str, positions: Mapping[int, int], bounds: Mapping[int, tuple[int, int]]
) -> None:
    """Checks that a topic holds what a job reads next.

    Args:
        job: The job.
        topic: The topic.
        positions: The next offset of each partition.
        bounds: The earliest and the next offset of each partition of the topic.

    Raises:
        DataLossError: It does not; the message names every range that is gone.
    """
    check_ends(job, topic, positions, bounds)
    gone = []
    for partition, position in sorted(positions.items()):
        earliest = bounds[partition][0] if partition in bounds else 0
        if position < earliest:
            gone.append(f"partition {partition} offsets [{position}, {earliest})")
    if gone:
        raise DataLossError(
            f"job {job!r}: records of {topic} that it has not read are gone, removed by the topic's retention: "
            f"{'; '.join(gone)}; nothing was read past them; to go on without them: headwater jobs renew {job}"
        )


def check_ends(
    job: str, topic: str, positions: Mapping[int, int], bounds: Mapping[int, tuple[int, int]]
) -> None:
    """Checks that a topic reaches as far as a job has read; arguments as above.

    Raises:
        DataLossError: It does not, so it is another one of the same name, or was cut short.
    """
    shrunk = [
        f"partition {partition} ends at {end} and the job has read to {positions[partition]}"
        for partition, end in beyond_end(positions, bounds).items()
    ]
    if shrunk:
        raise DataLossError(recreated_topic_message(job, topic, "; ".join(shrunk)))


def check_next(
    source: RecordSource,
    job: Job,
    checkpoint: Path,
    done: int,
    bounds_of: Callable[[str], Mapping[int, tuple[int, int]] | None],
) -> None:
    """Checks that topics hold what a job reads next of them.

    Args:
        source: Where the topics are.
        job: The job.
        checkpoint: Its checkpoint.
        done: The last batch that its table has; -1 for none.
        bounds_of: Gives the earliest and the next offset of each partition of a topic; None where nobody answers.

    Raises:
        DataLossError: As `check_positions`.
    """
    for declared in job.topics:
        for topic, positions in next_offsets(source, declared, checkpoint, done).items():
            partitions = bounds_of(topic)
            if partitions is not None:
                check_positions(job.name, topic, positions, partitions)


def records_gone(context: StageContext, job: Job, generation: int) -> str | None:
    """A sentence about the records that a job would read next and that its topics do not have any more.

    Args:
        context: The home, the record source.
        job: The job.
        generation: Its generation.

    Returns:
        None where all is there, the job has not run yet, or nobody answers.
    """
    last = last_entry(context.home.table(job.target.name), job.name, generation)
    checkpoint, done = context.home.checkpoint(job.name, generation), -1 if last is None else last.batch

    def bounds_of(topic: str) -> Mapping[int, tuple[int, int]] | None:
        return None if context.source.topic_id(topic) is None else context.source.partitions(topic)

    try:
        check_next(context.source, job, checkpoint, done, bounds_of)
    except DataLossError as error:
        return str(error)
    return None


def recreated_topic_message(job: str, topic: str, how: str) -> str:
    """The sentence for a topic that is not the one that a job has read."""
    return (
        f"job {job!r}: {topic} is not the topic that it has read: {how}; it was deleted and made again, or cut "
        f"short; to read what is there now: headwater jobs renew {job}"
    )
