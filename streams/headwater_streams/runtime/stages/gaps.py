"""Offsets that hold no record: markers of transactions, records of aborted ones, and those that compaction removed.

A reader of a topic does not see them, and a lost record would look the same. So where a batch read fewer records
than it has offsets, the records of its ranges are counted once more, by another client than Spark's.
"""

from collections.abc import Mapping, Sequence

from headwater_streams.base.errors import DataLossError, UnavailableError
from headwater_streams.base.extra import Extra, ExtraValues
from headwater_streams.base.ledger_entry import Ranges, SourceRange
from headwater_streams.runtime.context import StageContext


def gaps_extra(
    context: StageContext,
    job: str,
    sources: Sequence[SourceRange],
    accounting: Mapping[str, Mapping[str, int]],
) -> ExtraValues:
    """What an entry's `extra` says of offsets without a record: `{"gaps": {input: {topic: {"0": 3}}}}`, or nothing.

    Args:
        context: Where the topics are.
        job: The job.
        sources: What the batch read.
        accounting: What became of it, with `read`, the records that Spark gave, by input.

    Raises:
        DataLossError: The topic holds records that Spark did not give.
        UnavailableError: Some of those that Spark gave are not there any more.
    """
    by_input = {
        source.input: _gaps(context, job, source.ranges, accounting[source.input]["read"])
        for source in sources
        if source.table is None and source.input in accounting
    }
    gaps = {name: of_input for name, of_input in by_input.items() if of_input}
    return {Extra.GAPS: gaps} if gaps else {}


def _gaps(context: StageContext, job: str, ranges: Ranges, read: int) -> dict[str, dict[str, int]]:
    wide = {
        (topic, partition): end - start
        for topic, partitions in ranges.items()
        for partition, (start, end) in partitions.items()
        if start < end
    }
    if read >= sum(wide.values()):
        return {}
    records = {place: context.source.count_records(*place, *ranges[place[0]][place[1]]) for place in wide}
    if sum(records.values()) < read:
        raise UnavailableError(
            f"job {job!r}: records of {', '.join(ranges)} were compacted away while they were read; they are read again"
        )
    if sum(records.values()) > read:
        places = ", ".join(
            f"{topic} {partition} {list(ranges[topic][partition])}" for topic, partition in records
        )
        raise DataLossError(
            f"job {job!r}: Spark gave {read} records of {places}, and the topic holds {sum(records.values())} there; "
            "nothing of the batch was committed, and the job can be started again"
        )
    gaps: dict[str, dict[str, int]] = {}
    for (topic, partition), count in records.items():
        if count < wide[topic, partition]:
            gaps.setdefault(topic, {})[str(partition)] = wide[topic, partition] - count
    return gaps
