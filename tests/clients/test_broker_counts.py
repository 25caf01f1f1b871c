"""What the broker counts of its own, in the topic of counts, where a topic asks for it."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from audited_clicks import MINUTE_MS, START_MS, appended_by, await_appended, lose_power
from headwater_broker.testing import RunningBroker, broker
from headwater_client import COUNTS_TOPIC, Appended
from headwater_streams.sources.kafka_cluster import KafkaCluster
from headwater_streams.sources.topic_metadata import TopicIds

PROPERTIES = {"counts.interval.ms": "20"}
COUNTED = {"counts.bucket.ms": str(MINUTE_MS)}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningBroker]:
    with broker(tmp_path, properties=PROPERTIES) as running:
        yield running


def create(running: RunningBroker, name: str, config: Mapping[str, str] = COUNTED) -> None:
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    admin.create_topics([NewTopic(name, 1, config=dict(config))])[name].result(10)


def send(running: RunningBroker, topic: str, minutes: list[int], **settings: str) -> None:
    producer = Producer({"bootstrap.servers": running.bootstrap, "linger.ms": "100", **settings})
    for n, minute in enumerate(minutes):
        producer.produce(topic, b"%d" % n, timestamp=START_MS + minute * MINUTE_MS)
    assert producer.flush(10) == 0


def runs(events: list[Appended]) -> list[tuple[int, int, int]]:
    return [
        (start, end, (bucket - START_MS) // MINUTE_MS) for each in events for start, end, bucket in each.runs
    ]


def test_broker_counts_records_by_the_minute_of_their_timestamps(running: RunningBroker) -> None:
    create(running, "clicks")
    create(running, "taps", {})
    send(running, "taps", [0])
    send(running, "clicks", [0, 0, 1, 0])
    (event,) = await_appended(running, 4)
    assert (event.source, event.tier, event.partition, event.start, event.end) == (
        "broker-1",
        "broker",
        0,
        0,
        4,
    )
    assert runs([event]) == [(0, 2, 0), (2, 3, 1), (3, 4, 0)]
    send(running, "clicks", [1])
    assert runs(await_appended(running, 5))[-1] == (4, 5, 1)
    assert appended_by(running, "taps") == []
    shown = TopicIds(KafkaCluster(running.bootstrap)).of("clicks")
    assert shown is not None
    assert event.topic_id == shown.replace("+", "-").replace("/", "_")


def test_topic_of_counts_is_made_with_its_settings(running: RunningBroker) -> None:
    # As a counted producer has it made: by asking for it.
    send(running, COUNTS_TOPIC, [])
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    producer = Producer({"bootstrap.servers": running.bootstrap})
    producer.produce(COUNTS_TOPIC, b"{}", b"key")
    assert producer.flush(10) == 0
    resource = ConfigResource(ConfigResource.Type.TOPIC, COUNTS_TOPIC)
    (answer,) = admin.describe_configs([resource]).values()
    settings = {name: each.value for name, each in answer.result(10).items()}
    wanted = ("acks.fsync", "cleanup.policy", "message.timestamp.type", "segment.bytes")
    assert [settings[name] for name in wanted] == ["true", "compact", "LogAppendTime", "104857600"]


def test_broker_counts_a_transaction_once_it_is_decided(running: RunningBroker) -> None:
    create(running, "paid")
    producer = Producer({"bootstrap.servers": running.bootstrap, "transactional.id": "t"})
    producer.init_transactions(10)
    for commit in (True, False, True):
        producer.begin_transaction()
        producer.produce("paid", b"x", timestamp=START_MS)
        producer.produce("paid", b"y", timestamp=START_MS)
        producer.flush(10)
        if commit:
            producer.commit_transaction(10)
        else:
            producer.abort_transaction(10)
    # Two records and a marker, three times.
    assert runs(await_appended(running, 4, "paid")) == [(0, 2, 0), (6, 8, 0)]


def test_broker_goes_on_counting_where_it_ended(tmp_path: Path) -> None:
    with broker(tmp_path, properties=PROPERTIES) as running:
        create(running, "clicks")
        send(running, "clicks", [0, 0])
        await_appended(running, 2)
    with broker(tmp_path, properties=PROPERTIES) as running:
        send(running, "clicks", [0])
        events = await_appended(running, 3)
    assert runs(events) == [(0, 2, 0), (2, 3, 0)]
    assert len({each.instance for each in events}) == 2


def test_broker_counts_again_where_its_log_was_cut(tmp_path: Path) -> None:
    with broker(tmp_path, properties=PROPERTIES) as running:
        create(running, "clicks")
        send(running, "clicks", [0])
        kept = (tmp_path / "clicks-0" / f"{0:020}.log").stat().st_size
        send(running, "clicks", [0, 0])
        await_appended(running, 3)
    lose_power(tmp_path, "clicks-0", kept)
    with broker(tmp_path, properties=PROPERTIES) as running:
        send(running, "clicks", [5])
        assert runs(await_appended(running, 4))[-1] == (1, 2, 5)


def test_broker_says_what_it_counted_with_what_it_said_before(running: RunningBroker) -> None:
    """Else compaction leaves a record of every ten seconds."""
    create(running, "clicks")
    for minute in range(25):
        send(running, "clicks", [minute])
        events = await_appended(running, minute + 1)
    assert [(each.start, each.end, len(each.runs)) for each in events] == [(0, 20, 20), (20, 25, 5)]
    assert runs(events) == [(n, n + 1, n) for n in range(25)]


def test_broker_that_finds_no_counts_says_that_it_may_have_counted_before(tmp_path: Path) -> None:
    with broker(tmp_path, properties=PROPERTIES) as running:
        create(running, "clicks")
        send(running, "clicks", [0, 0])
        await_appended(running, 2)
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.delete_topics([COUNTS_TOPIC])[COUNTS_TOPIC].result(10)
    with broker(tmp_path, properties=PROPERTIES) as running:
        await_appended(running, 2)
        send(running, "clicks", [1])
        events = await_appended(running, 3)
    assert [(runs([each]), each.recounted) for each in events] == [
        ([(0, 2, 0)], True),
        ([(2, 3, 1)], False),
    ]


def test_broker_counts_many_buckets_in_parts(running: RunningBroker) -> None:
    create(running, "clicks")
    send(running, "clicks", [n % 2 for n in range(2_500)])
    events = await_appended(running, 2_500)
    assert [(each.start, each.end) for each in events[:2]] == [(0, 1_000), (1_000, 2_000)] or len(events) > 3
    assert runs(events) == [(n, n + 1, n % 2) for n in range(2_500)]
    assert all(len(json.dumps(each.runs)) < 60_000 for each in events)
