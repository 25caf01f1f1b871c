"""What consumers see of offsets that are lost: an error where they are, and everything else, once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kio.schema.errors import ErrorCode

from headwater.config import load_settings
from headwater.stack.checks import examine
from headwater_broker.testing import RunningBroker, WireClient, broker
from headwater_broker.wire.apis import DESCRIBE_LOG_DIRS, FETCH, LIST_OFFSETS

TIMEOUT_S = 60


@pytest.fixture
def damaged(tmp_path: Path) -> Iterator[tuple[RunningBroker, int, int]]:
    """A broker that has lost one of ten segments of topic t; and its first offset, and the one behind it."""
    data = tmp_path / "stack" / "broker-1" / "log"
    with broker(data) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        settings = {"segment.bytes": "10000"}
        admin.create_topics([NewTopic("t", 1, 1, config=settings)])["t"].result(TIMEOUT_S)
        producer = Producer({"bootstrap.servers": running.bootstrap, "batch.num.messages": 10})
        for number in range(1000):
            producer.produce("t", b"%d" % number * 20, partition=0)
        assert producer.flush(TIMEOUT_S) == 0
    logs = sorted((data / "t-0").glob("*.log"))
    assert len(logs) > 3
    logs[2].unlink()
    with broker(data) as running:
        yield running, int(logs[2].stem), int(logs[3].stem)


def consume(bootstrap: str, policy: str, group: str) -> tuple[list[int], list[KafkaError]]:
    """Reads topic t to its end; gives offsets and errors."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": policy,
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe(["t"])
    offsets: list[int] = []
    errors: list[KafkaError] = []
    deadline = time.monotonic() + TIMEOUT_S
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is None:
                continue
            error = message.error()
            if error is None:
                offset = message.offset()
                assert offset is not None
                offsets.append(offset)
            elif error.code() == KafkaError._PARTITION_EOF:
                if offsets:
                    break
            else:
                errors.append(error)
                break
    except KafkaException as error:
        errors.append(error.args[0])
    consumer.close()
    return offsets, errors


def test_consumer_that_begins_anew_at_the_earliest_offset_reads_all_that_is_left_once(
    damaged: tuple[RunningBroker, int, int],
) -> None:
    running, start, end = damaged
    expected = [*range(start), *range(end, 1000)]
    for group in ("a", "b"):
        assert consume(running.bootstrap, "earliest", group) == (expected, [])


def test_lost_offsets_are_told_by_the_broker_and_the_doctor(
    damaged: tuple[RunningBroker, int, int], tmp_path: Path
) -> None:
    running, start, end = damaged
    with WireClient(running.bootstrap) as client:
        answer = client.ask(DESCRIBE_LOG_DIRS, 4, topics=None)
    assert answer.results[0].error_code == ErrorCode.none
    topics = {topic.name: topic.partitions for topic in answer.results[0].topics}
    lag = topics["t"][0].offset_lag
    assert lag == end - start
    (found,) = [
        each for each in examine(tmp_path, {}, load_settings({}).settings) if each.subject == "records"
    ]
    assert found.state == "wrong"
    assert f"t-0 of broker-1 has lost offsets {start} to {end - 1}" in found.detail


def fetch(client: WireClient, offset: int) -> tuple[ErrorCode, int]:
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    answer = client.ask(
        FETCH,
        11,
        replica_id=-1,
        max_wait=0,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[{"topic": "t", "partitions": [partition]}],
        forgotten_topics_data=[],
        rack_id="",
    )
    found = answer.responses[0].partitions[0]
    return found.error_code, found.log_start_offset


def earliest(client: WireClient, version: int = 4) -> int:
    partition = {"partition_index": 0, "timestamp": -2}
    if version == 0:
        asked = [{"name": "t", "partitions": [{**partition, "max_num_offsets": 1}]}]
        answer = client.ask(LIST_OFFSETS, 0, replica_id=-1, topics=asked)
        return int(answer.topics[0].partitions[0].old_style_offsets[0])
    topics = [{"name": "t", "partitions": [partition]}]
    answer = client.ask(LIST_OFFSETS, version, replica_id=-1, isolation_level=0, topics=topics)
    return int(answer.topics[0].partitions[0].offset)


@pytest.mark.parametrize("version", [0, 4])
def test_lost_offset_is_out_of_range_and_the_earliest_is_behind_it_for_who_was_told(
    damaged: tuple[RunningBroker, int, int], version: int
) -> None:
    running, start, end = damaged
    with WireClient(running.bootstrap, "told") as told, WireClient(running.bootstrap, "other") as other:
        for offset in (start, end - 1):
            assert fetch(told, offset) == (ErrorCode.offset_out_of_range, end)
        assert earliest(other, version) == 0
        assert earliest(told, version) == end
        assert earliest(told, version) == 0
        assert fetch(told, start) == (ErrorCode.offset_out_of_range, end)
        assert fetch(told, end) == (ErrorCode.none, 0)
        assert earliest(told, version) == 0


def test_client_that_asks_over_another_connection_than_it_fetches_with_goes_on_the_second_time(
    damaged: tuple[RunningBroker, int, int],
) -> None:
    """Before it is known for one, it begins anew where the log does, as any client that was just started."""
    running, start, end = damaged
    with (
        WireClient(running.bootstrap, "two") as fetching,
        WireClient(running.bootstrap, "two") as asking,
        WireClient(running.bootstrap, "other") as other,
    ):
        assert fetch(fetching, start)[0] == ErrorCode.offset_out_of_range
        assert earliest(asking) == 0
        assert fetch(fetching, 0)[0] == ErrorCode.none
        assert fetch(fetching, start)[0] == ErrorCode.offset_out_of_range
        assert earliest(other) == 0
        assert earliest(asking) == end
        assert earliest(asking) == 0
        assert fetch(fetching, end)[0] == ErrorCode.none


def test_client_that_comes_after_one_that_was_told_and_left_begins_at_the_beginning(
    damaged: tuple[RunningBroker, int, int],
) -> None:
    running, start, _ = damaged
    with WireClient(running.bootstrap, "same") as first:
        for _ in range(2):
            assert fetch(first, start)[0] == ErrorCode.offset_out_of_range
    with WireClient(running.bootstrap, "same") as second:
        deadline = time.monotonic() + TIMEOUT_S
        while earliest(second) != 0:  # the broker has not seen it leave yet, and there is but one such answer
            assert time.monotonic() < deadline
        assert earliest(second) == 0
