"""A topic of clicks, ten a minute from 10:00 on, and a table at rest that a job could have written of it."""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition
from deltalake import CommitProperties, write_deltalake

from headwater.running.counts import CountsAudit, TopicAudit
from headwater_broker.testing import RunningBroker
from headwater_client import COUNTS_TOPIC, Appended, counted, event_from_json
from headwater_streams.base.extra import Extra
from headwater_streams.base.ledger_entry import LedgerEntry, SourceRange
from headwater_streams.sources.kafka_cluster import KafkaCluster
from headwater_streams.storage.home import Home

START_MS = 1_357_034_400_000  # 2013-01-01T10:00:00Z
MINUTE_MS = 60_000
LATER_MS = START_MS + 10**12  # later than the clock of the machine
TABLE = "silver.clicks"
_ROWS = {
    "_topic": pa.string(),
    "_partition": pa.int32(),
    "_offset": pa.int64(),
    "_batch": pa.int64(),
    "_generation": pa.int32(),
}


def send(running: RunningBroker, numbers: Iterable[int], name: str = "web-1") -> None:
    """Counted records, ten a minute."""
    with counted(Producer({"bootstrap.servers": running.bootstrap}), name=name) as producer:
        for n in numbers:
            producer.produce("clicks", b"%d" % n, timestamp=START_MS + n * 6_000)


def send_uncounted(running: RunningBroker, values: Mapping[int, bytes]) -> None:
    """Records of a program that does not count, by their numbers."""
    producer = Producer({"bootstrap.servers": running.bootstrap})
    for n, value in values.items():
        producer.produce("clicks", value, timestamp=START_MS + n * 6_000)
    assert producer.flush(10) == 0


def commit(
    home: Home,
    start: int,
    end: int,
    *,
    batch: int,
    lacking: Collection[int] = (),
    doubled: Collection[int] = (),
    duplicates: Collection[int] = (),
    quarantined: Collection[int] = (),
    filtered: Collection[int] = (),
    beside: str | None = None,
    topic: str = "clicks",
    table: str = TABLE,
) -> None:
    """A batch of a row job.

    Args:
        home: The home.
        start: The first offset that it read.
        end: One past the last.
        batch: Its number.
        lacking: Offsets whose rows its table lacks, though its commit says that they were written.
        doubled: Offsets whose rows its table has twice.
        duplicates: Offsets that it left out as duplicates, as its commit says.
        quarantined: Offsets that it rejected.
        filtered: Offsets that its function left out.
        beside: The job's first table, where this is another one.
        topic: The topic that it read.
        table: The table that it wrote.
    """
    terms: Mapping[str, int] = {
        "read": end - start,
        "written": end - start - len(duplicates) - len(quarantined) - len(filtered),
        "filtered": len(filtered),
        "duplicate": len(duplicates),
        "quarantined": len(quarantined),
    }
    entry = LedgerEntry(
        job="clicks",
        generation=1,
        batch=batch,
        table=table,
        kind="row",
        sources=(SourceRange(input="clicks", topic=topic, ranges={topic: {0: (start, end)}}),),
        accounting={topic: terms},
        partitions={topic: {0: terms}},
        extra={} if beside is None else {Extra.BESIDE: beside},
    )

    def write(name: str, offsets: Iterable[int], properties: CommitProperties | None = None) -> None:
        rows = [
            {"_topic": topic, "_partition": 0, "_offset": n, "_batch": batch, "_generation": 1}
            for n in offsets
            if n not in lacking
        ]
        table_of_rows = pa.Table.from_pylist(rows, schema=pa.schema(_ROWS))
        write_deltalake(str(home.table(name)), table_of_rows, mode="append", commit_properties=properties)

    if quarantined and beside is None:
        write(f"{table}__quarantine", quarantined)
    left_out = {*duplicates, *quarantined, *filtered}
    write(
        table,
        (n for n in [*range(start, end), *doubled] if n not in left_out),
        CommitProperties(custom_metadata={"userMetadata": entry.to_json()}),
    )


def audit(
    home: Home,
    running: RunningBroker,
    *,
    now_ms: int = LATER_MS,
    mirrors: Sequence[KafkaCluster] = (),
    topics: Sequence[str] = ("clicks",),
    whole: bool = False,
) -> list[TopicAudit]:
    """What an audit says of each topic, by default at a time at which no bucket is open any more."""
    return CountsAudit(
        home,
        KafkaCluster(running.bootstrap),
        bucket_ms=MINUTE_MS,
        grace_ms=MINUTE_MS,
        now_ms=lambda: now_ms,
        mirrors=mirrors,
        whole=whole,
    ).run(topics)


def audit_one(
    home: Home, running: RunningBroker, *, now_ms: int = LATER_MS, whole: bool = False
) -> TopicAudit:
    """What an audit says of the clicks."""
    (found,) = audit(home, running, now_ms=now_ms, whole=whole)
    return found


def words(found: TopicAudit) -> list[str]:
    """What is said of each bucket."""
    return [each.words for each in found.verdicts]


def counts(found: TopicAudit) -> dict[str, int]:
    """How many records each tier saw in all."""
    result: dict[str, int] = {}
    for verdict in found.verdicts:
        for each in verdict.counts:
            name = f"{each.tier} {each.where}".strip()
            result[name] = result.get(name, 0) + each.count
    return result


def appended_by(running: RunningBroker, topic: str = "clicks") -> list[Appended]:
    """All that brokers counted of a topic, oldest first: of records with the same key the newest."""
    consumer = Consumer(
        {"bootstrap.servers": running.bootstrap, "group.id": "t", "enable.partition.eof": True}
    )
    try:
        if COUNTS_TOPIC not in consumer.list_topics(timeout=10).topics:
            return []
        consumer.assign([TopicPartition(COUNTS_TOPIC, 0, 0)])
        events: dict[tuple[str, str], Appended] = {}
        while (message := consumer.poll(10)) is not None and message.error() is None:
            event = event_from_json(message.value())
            if isinstance(event, Appended) and event.topic == topic:
                events.pop((event.key, event.topic_id), None)
                events[event.key, event.topic_id] = event
        return [*events.values()]
    finally:
        consumer.close()


def await_appended(running: RunningBroker, count: int, topic: str = "clicks") -> list[Appended]:
    """The same, once they are so many records in all."""
    deadline_s = time.monotonic() + 30
    while True:
        events = appended_by(running, topic)
        if sum(end - start for each in events for start, end, _ in each.runs) >= count:
            return events
        assert time.monotonic() < deadline_s, events
        time.sleep(0.05)


def lose_power(data_dir: Path, log: str, size: int) -> None:
    """What a power failure leaves of a log that was not flushed: the first bytes of it. The broker must not run."""
    with (data_dir / log / f"{0:020}.log").open("r+b") as file:
        file.truncate(size)
    for path in (
        data_dir / ".kafka_cleanshutdown",
        data_dir / "recovery-point-offset-checkpoint",
        *(data_dir / log).glob("*index"),
    ):
        path.unlink(missing_ok=True)
