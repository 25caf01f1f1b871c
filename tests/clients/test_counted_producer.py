"""`headwater_client.counted` around real producers, against our broker."""

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, SerializingProducer, TopicPartition
from confluent_kafka.serialization import StringSerializer

from headwater_broker.testing import RunningBroker, broker
from headwater_client import (
    COUNTS_TOPIC,
    CountedProducer,
    Counts,
    Source,
    TopicTotals,
    counted,
    event_from_json,
)
from mirrored_topics import make_topic

MINUTE_MS = 60_000


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(properties={"num.partitions": "2"}) as running:
        yield running


def events(running: RunningBroker, name: str) -> tuple[dict[str, Counts], Source | None]:
    """The newest records of each key that a source published, as who reads committed ones sees them."""
    consumer = Consumer(
        {
            "bootstrap.servers": running.bootstrap,
            "group.id": "audit",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    counts: dict[str, Counts] = {}
    source: Source | None = None
    partitions = consumer.list_topics(COUNTS_TOPIC, 5).topics[COUNTS_TOPIC].partitions
    consumer.assign([TopicPartition(COUNTS_TOPIC, number, 0) for number in partitions])
    ended = 0
    while ended < len(partitions):
        message = consumer.poll(10)
        assert message is not None
        if message.error():
            ended += 1
            continue
        event = event_from_json(message.value())
        assert message.key() == event.key.encode()
        if event.source == name:
            if isinstance(event, Counts):
                counts[event.key] = event
            else:
                source = event
    consumer.close()
    return counts, source


def test_counted_counts_what_was_acknowledged_with_its_offsets(running: RunningBroker) -> None:
    start_ms = 1_357_034_400_000
    seen: list[tuple[str, int]] = []
    with counted(Producer({"bootstrap.servers": running.bootstrap}), name="web-1") as producer:
        for n in range(100):
            producer.produce(
                "clicks",
                b"%d" % n,
                partition=n % 2,
                timestamp=start_ms + n * 1200,  # 50 a minute
                on_delivery=lambda error, message: seen.append((message.topic(), message.offset())),
            )
        producer.produce("__internal", b"not counted")
        producer.produce_batch("__internal", [{"value": b"not counted"}])
        assert producer.flush(10) == 0
    counts, source = events(running, "web-1")
    assert len(seen) == 100  # their own callback is called, and for their own records alone
    assert {(each.topic, each.bucket_start_ms): each.acknowledged for each in counts.values()} == {
        ("clicks", start_ms): 50,
        ("clicks", start_ms + MINUTE_MS): 50,
    }
    assert [each.ranges for each in counts.values()] == [
        {0: [(0, 25)], 1: [(0, 25)]},
        {0: [(25, 50)], 1: [(25, 50)]},
    ]
    assert source is not None
    assert source.closed
    assert list(source.topics) == ["clicks"]
    assert source.topics["clicks"].acknowledged == source.topics["clicks"].sent == 100


def test_counted_says_that_it_is_there_before_it_counts(running: RunningBroker) -> None:
    producer = counted(Producer({"bootstrap.servers": running.bootstrap}), name="early")
    producer.produce("clicks", b"x")
    producer._producer.flush(
        10
    )  # as a program that dies before it flushes: what was queued goes out, and no counts
    counts, source = events(running, "early")
    assert not counts
    assert source is not None
    assert (source.closed, source.topics["clicks"].pending) == (False, 1)


def test_counted_batch_and_bad_record(running: RunningBroker) -> None:
    with counted(Producer({"bootstrap.servers": running.bootstrap}), name="batches") as producer:
        assert producer.produce_batch("sales", [{"value": b"a"}, {"value": b"b"}]) == 2
        with pytest.raises(KafkaException):
            producer.produce("sales", b"x" * 2_000_000)  # larger than the client takes: never sent
        with pytest.raises(TypeError):
            producer.produce("sales", value=object())
        producer.flush(10)
    _, source = events(running, "batches")
    assert source is not None
    assert (source.topics["sales"].sent, source.topics["sales"].acknowledged) == (2, 2)


def test_counted_transactions_count_with_their_records(running: RunningBroker) -> None:
    producer = counted(
        Producer({"bootstrap.servers": running.bootstrap, "transactional.id": "t"}), name="transactional"
    )
    producer.init_transactions(10)
    for n, end in enumerate(("commit", "abort", "commit")):
        producer.begin_transaction()
        for _ in range(3):
            producer.produce("paid", b"%d" % n, partition=0, timestamp=5)
        producer.flush(10)  # else an abort takes back what was not sent yet
        getattr(producer, f"{end}_transaction")()
    producer.end()
    counts, source = events(running, "transactional")
    assert sum(each.acknowledged for each in counts.values()) == 6
    # Three records and a marker, three that were aborted and a marker, three records.
    assert sorted(pair for each in counts.values() for pair in each.ranges[0]) == [(0, 3), (8, 11)]
    assert source is not None
    assert (source.closed, source.topics["paid"].sent, source.topics["paid"].acknowledged) == (True, 6, 6)


def test_counted_serializing_producer_keeps_its_serializers(running: RunningBroker) -> None:
    plain = SerializingProducer(
        {"bootstrap.servers": running.bootstrap, "value.serializer": StringSerializer("utf_8")}
    )
    with counted(plain, name="texts") as producer:
        producer.produce("texts", value="x")
    counts, _ = events(running, "texts")
    assert [each.acknowledged for each in counts.values()] == [1]


def test_counted_topic_that_is_refused_keeps_the_counts(running: RunningBroker, caplog: Any) -> None:
    producer = counted(
        Producer({"bootstrap.servers": running.bootstrap, "message.timeout.ms": 500}),
        name="kept",
        topic="no such",
    )
    producer.produce("clicks", b"x")
    producer.flush(10)
    deadline = time.monotonic() + 10
    while "did not take its counts" not in caplog.text and time.monotonic() < deadline:
        producer.poll(0.1)
    assert "producer kept: topic no such did not take its counts" in caplog.text
    producer._topic = COUNTS_TOPIC  # as if somebody had mended it
    producer.end(10)
    counts, _ = events(running, "kept")
    assert [each.acknowledged for each in counts.values()] == [1]


def test_counted_without_acknowledgements_counts_without_offsets(running: RunningBroker) -> None:
    with counted(Producer({"bootstrap.servers": running.bootstrap, "acks": "0"}), name="unsure") as producer:
        producer.produce("clicks", b"x", timestamp=7)
        producer.flush(10)
    counts, _ = events(running, "unsure")
    assert [(each.acknowledged, each.ranges) for each in counts.values()] == [(1, {})]


def test_counted_records_of_which_nothing_is_heard_are_of_the_bucket_that_they_were_sent_with() -> None:
    start_ms = 1_357_034_400_000
    producer = counted(
        Producer({"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 300, "log_level": 0})
    )
    producer.produce("clicks", b"x", timestamp=start_ms)
    producer.produce("clicks", b"x", b"key", 0, None, start_ms + MINUTE_MS)
    producer._producer.flush(10)
    counts = producer._tally.take("web", "a")
    producer._closed = True
    assert [(each.bucket_start_ms, each.uncertain) for each in counts] == [
        (start_ms, 1),
        (start_ms + MINUTE_MS, 1),
    ]


def test_counted_wrong_arguments_are_told() -> None:
    producer = Producer({})
    for arguments in ({"name": ""}, {"name": "a/b"}, {"bucket_s": 0}, {"every_s": -1}):
        with pytest.raises(ValueError, match="give"):
            counted(producer, **arguments)  # type: ignore[arg-type]
    assert isinstance(counted(producer), CountedProducer)


def test_counted_producer_of_several_threads_counts_each_record(running: RunningBroker) -> None:
    with counted(
        Producer({"bootstrap.servers": running.bootstrap}), name="threads", every_s=0.01
    ) as producer:

        def send(thread: int) -> None:
            for n in range(500):
                producer.produce("clicks", b"%d" % n, timestamp=1_357_034_400_000 + thread * MINUTE_MS)
                if n % 50 == 0:
                    producer.flush(10)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(send, range(4)))
    counts, source = events(running, "threads")
    by_bucket: Counter[int] = Counter()
    for each in counts.values():
        by_bucket[each.bucket_start_ms] += each.acknowledged
        assert sum(end - start for pairs in each.ranges.values() for start, end in pairs) == each.acknowledged
    assert list(by_bucket.values()) == [500] * 4
    assert source is not None
    assert source.closed
    assert source.topics["clicks"] == TopicTotals(sent=2000, acknowledged=2000)


def test_counted_counts_that_are_refused_do_not_reach_the_program(running: RunningBroker) -> None:
    """A client that takes no record as large as its counts are."""
    client = Producer({"bootstrap.servers": running.bootstrap, "message.max.bytes": 1000})
    with counted(client, name="small") as producer:
        for n in range(200):
            producer.produce("clicks", b"x", partition=0, timestamp=1_357_034_400_000 + n % 2 * MINUTE_MS)
        assert producer.flush(10) == 0
        assert len(producer) == 0
        producer.produce("clicks", b"x")
        assert producer.flush(10) == 0
        assert len(producer._outbox) < 5  # what can never be sent is not kept


def test_counted_counts_that_wait_hold_up_no_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """The records are delivered; of the topic of counts nothing is heard."""
    monkeypatch.setattr("headwater_client.producer._PATIENCE_S", 0.3)
    with broker(properties={"auto.create.topics.enable": "false"}) as running:
        make_topic(running.bootstrap, "clicks")
        settings = {"bootstrap.servers": running.bootstrap, "topic.metadata.propagation.max.ms": 60_000}
        producer = counted(Producer(settings), name="waits")
        start_s = time.monotonic()
        for _ in range(5):
            producer.produce("clicks", b"x")
            assert producer.flush() == 0
            assert len(producer) == 0
        assert time.monotonic() - start_s < 10
        assert producer._in_flight
        producer._closed = True
        producer.purge()
        assert producer._producer.flush(10) == 0  # else what is reported of these holds the producer for ever


def test_counted_producer_that_ends_with_records_on_their_way_does_not_say_that_it_has_ended() -> None:
    with broker(properties={"auto.create.topics.enable": "false", "num.partitions": "1"}) as running:
        for topic in ("clicks", COUNTS_TOPIC):
            make_topic(running.bootstrap, topic)
        settings = {"bootstrap.servers": running.bootstrap, "topic.metadata.propagation.max.ms": 60_000}
        producer = counted(Producer(settings), name="hasty")
        producer.produce("not-there", b"x", timestamp=1_357_034_400_000)
        producer.end(0.5)
        _, source = events(running, "hasty")
        assert source is not None
        assert (source.closed, source.topics["not-there"].unanswered) == (False, {1_357_034_400_000: 1})
        producer.purge()
        producer.produce("clicks", b"y")  # it is used again, and ends once more
        producer.end()
        _, source = events(running, "hasty")
        assert source is not None
        assert source.closed
        assert source.topics["not-there"] == TopicTotals(sent=1, failed=1)


def test_counted_producer_whose_brokers_are_gone_ends_without_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = Producer({"bootstrap.servers": "127.0.0.1:1", "transactional.id": "gone", "log_level": 0})
    producer = counted(client, name="gone")
    producer.poll(0)  # before there is a transaction
    producer._transactional = True  # as if it had been heard of once
    producer.end(0.2)
    assert "producer gone: topic __headwater_counts did not take its counts" in caplog.text
