"""Compares the log with what the producer remembers and with what the jobs read of it.

After a kill the journal says which slice to go on with. Records of that slice may be in the log already, while their
reports are lost: `reconcile` reads the log's tail, recognises the records by their origin, and notes them. The slice is
then sent again as a whole; whoever deduplicates by origin sees each event once.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from headwater.demo.events import TOPICS, Event, Headers, ReplayPlan
from headwater.demo.journal import Journal
from headwater.demo.topic_log import TopicLog
from headwater.errors import UserError


def values_of(event: Event) -> tuple[bytes]:
    """The one value that an event is sent with."""
    return (event.value,)


def reconcile(
    plan: ReplayPlan,
    journal: Journal,
    log: TopicLog,
    values: Callable[[Event], Iterable[bytes]] = values_of,
) -> int:
    """Find the records that reached the log without a delivery report in the journal, and note them there.

    Args:
        plan: What the demo sends; every record found must be of it.
        journal: The reports that were kept.
        log: The brokers' log.
        values: The values that an event may have been sent with.

    Returns:
        How many records were found.

    Raises:
        UserError: The log is shorter than the journal says, or holds a record that the demo did not send.
    """
    events = {emission.event.headers: emission.event for emission in plan.emissions}
    unreported: Counter[tuple[str, int]] = Counter()
    for topic in TOPICS:
        for partition in log.partitions(topic):
            start, (_, end) = journal.next_offset(topic, partition), log.offsets(topic, partition)
            if end < start:
                raise UserError(
                    f"{topic}-{partition} ends at offset {end}, but {start} records were acknowledged: "
                    "the log lost some; use another --home"
                )
            for message in log.read(topic, partition, start, end):
                event = events.get(tuple(message.headers() or ()))
                is_ours = event is not None and event.topic == topic and message.value() in values(event)
                if not is_ours:
                    raise UserError(
                        f"{topic}-{partition} offset {message.offset()} holds a record that is not "
                        "the demo's; use another --home"
                    )
                unreported[topic, partition] += 1
    if unreported:
        journal.record_unreported(unreported)
    return unreported.total()


@dataclass(frozen=True, slots=True)
class LogRecord:
    """Where a record stands, and the origin that its headers name."""

    topic: str
    partition: int
    offset: int
    origin: Headers


def read_records(log: TopicLog, topic: str) -> list[LogRecord]:
    """Every record of `topic`, partition by partition."""
    return [
        LogRecord(topic, partition, message.offset(), tuple(message.headers() or ()))
        for partition in log.partitions(topic)
        for message in log.read(topic, partition, *log.offsets(topic, partition))
    ]


@dataclass(frozen=True)
class Copies:
    """How often records came again: all copies, and those in a later batch than the first of their origin."""

    all: int
    in_later_batches: int


def count_copies(records: Sequence[LogRecord], batch_of: Callable[[LogRecord], int]) -> Copies:
    """Count records whose origin an earlier one had.

    Args:
        records: What the log holds, in any order.
        batch_of: The batch in which the job read a record.

    Returns:
        The counts; they come from the log itself, not from the job that removed the copies.
    """
    first_batch: dict[Headers, int] = {}
    for record in records:
        batch = batch_of(record)
        first_batch[record.origin] = min(batch, first_batch.get(record.origin, batch))
    later = sum(batch_of(record) > first_batch[record.origin] for record in records)
    return Copies(len(records) - len(first_batch), later)
