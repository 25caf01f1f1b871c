"""Reading and cutting logs as single requests: fetch sessions, special timestamps, epochs, what is refused."""

from __future__ import annotations

import shutil
import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kio.schema.errors import ErrorCode

from headwater_broker.coordination import MemoryCluster, MemoryCoordinator
from headwater_broker.testing import RunningBroker, broker
from headwater_broker.testing.batches import build_batch
from headwater_broker.testing.wire import WireClient
from headwater_broker.wire.apis import (
    ALTER_REPLICA_LOG_DIRS,
    DELETE_RECORDS,
    DESCRIBE_CONFIGS,
    DESCRIBE_LOG_DIRS,
    FETCH,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
)


def create(running: RunningBroker, partitions: int = 1, **config: str) -> str:
    name = f"wire-{uuid4().hex[:8]}"
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(30)
    return name


def produce(running: RunningBroker, topic: str, partition: int, *stamps_ms: int) -> None:
    producer = Producer({"bootstrap.servers": running.bootstrap})
    for stamp_ms in stamps_ms:
        producer.produce(topic, b"x", b"k", partition=partition, timestamp=stamp_ms)
    assert producer.flush(30) == 0


def fetch(
    client: WireClient,
    topic: str,
    session: tuple[int, int],
    *wanted: tuple[int, int],
    version: int = 12,
    **more: Any,
) -> Any:
    return client.ask(*(FETCH, version), **fetch_fields(topic, session, *wanted, **more))


def fetch_fields(
    topic: str, session: tuple[int, int], *wanted: tuple[int, int], **more: Any
) -> dict[str, Any]:
    partitions = [
        {"partition": number, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        for number, offset in wanted
    ]
    return {
        "replica_id": -1,
        "isolation_level": 0,
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "session_id": session[0],
        "session_epoch": session[1],
        "topics": [{"topic": topic, "partitions": partitions}] if partitions else [],
        "rack_id": "",
        "forgotten_topics_data": [],
        **more,
    }


def told(answer: Any) -> list[tuple[int, int, bool]]:
    """Partition, error and whether there are records, of each partition in an answer."""
    return [
        (each.partition_index, each.error_code, bool(each.records))
        for topic in answer.responses
        for each in topic.partitions
    ]


def test_fetch_session_tells_only_what_is_new(any_broker: RunningBroker) -> None:
    topic = create(any_broker, 3)
    with WireClient(any_broker.bootstrap) as client:
        first = fetch(client, topic, (0, 0), (0, 0), (1, 0), (2, 0))
        session = first.session_id
        assert session > 0
        assert told(first) == [(0, 0, False), (1, 0, False), (2, 0, False)]
        assert told(fetch(client, topic, (session, 1))) == []
        produce(any_broker, topic, 1, 5)
        assert told(fetch(client, topic, (session, 2))) == [(1, 0, True)]
        assert told(fetch(client, topic, (session, 3), (1, 1))) == []
        forgotten = [{"topic": topic, "partitions": [1]}]
        assert told(fetch(client, topic, (session, 4), forgotten_topics_data=forgotten)) == []
        produce(any_broker, topic, 1, 5)
        produce(any_broker, topic, 2, 5)
        assert told(fetch(client, topic, (session, 5))) == [(2, 0, True)]
        wrong = fetch(client, topic, (session, 5))
        assert (wrong.error_code, wrong.session_id) == (ErrorCode.invalid_fetch_session_epoch, 0)
        assert fetch(client, topic, (session, -1), (0, 0)).session_id == 0
        gone = fetch(client, topic, (session, 6))
        assert gone.error_code == ErrorCode.fetch_session_id_not_found


NEVER_MS = 600_000  # the client gives up long before


def fetch_patiently(
    running: RunningBroker, topic: str, *offsets: int, most_bytes: int, least_bytes: int, isolation: int = 0
) -> list[int]:
    """Sizes of the records of each partition, from a fetch that waits until there are enough."""
    asked = [
        {"partition": number, "fetch_offset": offset, "partition_max_bytes": most_bytes}
        for number, offset in enumerate(offsets)
    ]
    with WireClient(running.bootstrap) as client:
        answer = client.ask(
            *(FETCH, 4),
            replica_id=-1,
            max_wait=NEVER_MS,
            min_bytes=least_bytes,
            max_bytes=1 << 20,
            isolation_level=isolation,
            topics=[{"topic": topic, "partitions": asked}],
        )
    return [len(each.records or b"") for each in answer.responses[0].partitions]


@pytest.mark.parametrize("isolation", [0, 1])
def test_fetch_does_not_wait_for_bytes_that_its_limit_leaves_out(
    any_broker: RunningBroker, isolation: int
) -> None:
    """kafka-go asks for 200 bytes and no more: whole batches are fewer, which Kafka's DelayedFetch does not mind."""
    topic = create(any_broker, 2)
    for number in range(6):
        produce(any_broker, topic, number % 2, 5)
    (size, nothing) = fetch_patiently(any_broker, topic, 0, 3, most_bytes=1000, least_bytes=150)
    assert nothing == 0
    one, asked = size // 3, {"isolation": isolation}
    limit = 2 * one - 1
    assert fetch_patiently(any_broker, topic, 0, 3, most_bytes=limit, least_bytes=limit, **asked) == [one, 0]
    assert fetch_patiently(any_broker, topic, 0, 0, most_bytes=limit, least_bytes=2 * limit, **asked) == [
        one,
        one,
    ]
    assert fetch_patiently(any_broker, topic, 1, 1, most_bytes=limit, least_bytes=2 * limit, **asked) == [
        one,
        one,
    ]


def test_fetch_of_an_older_segment_does_not_wait(any_broker: RunningBroker) -> None:
    topic = create(any_broker, segment_bytes="100")
    for _ in range(3):
        produce(any_broker, topic, 0, 5)
    (one,) = fetch_patiently(any_broker, topic, 0, most_bytes=1 << 20, least_bytes=1)
    for offset in (0, 1):
        assert fetch_patiently(any_broker, topic, offset, most_bytes=1 << 20, least_bytes=1 << 20) == [one]


def test_fetch_waits_for_as_many_bytes_as_it_asks_for(any_broker: RunningBroker) -> None:
    topic = create(any_broker)
    produce(any_broker, topic, 0, 5)
    (one,) = fetch_patiently(any_broker, topic, 0, most_bytes=1 << 20, least_bytes=1)
    with ThreadPoolExecutor(1) as elsewhere:
        waiting = elsewhere.submit(
            fetch_patiently, any_broker, topic, 0, most_bytes=1 << 20, least_bytes=one + 1
        )
        assert not wait([waiting], timeout=0.2).done
        produce(any_broker, topic, 0, 5)
        assert waiting.result(30) == [2 * one]


def list_offset(client: WireClient, topic: str, timestamp: int, version: int = 9) -> tuple[int, int, int]:
    asked = {"partition_index": 0, "timestamp": timestamp}
    topics = [{"name": topic, "partitions": [asked]}]
    answer = client.ask(LIST_OFFSETS, version, replica_id=-1, isolation_level=0, topics=topics)
    (found,) = answer.topics[0].partitions
    return found.error_code, found.offset, found.timestamp if isinstance(found.timestamp, int) else -9


def test_fetch_of_many_partitions_waits_for_one_of_them(any_broker: RunningBroker) -> None:
    topic = create(any_broker, 500)
    wanted = [(number, 0) for number in range(500)]
    with WireClient(any_broker.bootstrap) as client:
        client.send(FETCH, 12, **fetch_fields(topic, (0, -1), *wanted, max_wait=20_000))
        time.sleep(0.2)
        assert not client.has_answer()
        produce(any_broker, topic, 321, 5)
        found = told(client.receive())
        assert len(found) == 500
        assert [each for each in found if each[2]] == [(321, 0, True)]
        began_s = time.monotonic()
        found = told(fetch(client, topic, (0, -1), *wanted[:300], max_wait=300))
        assert time.monotonic() - began_s >= 0.3
        assert found == [(number, 0, False) for number in range(300)]


def test_produce_to_many_partitions_answers_for_each(any_broker: RunningBroker) -> None:
    topic = create(any_broker, 700)
    batch, torn = bytes(build_batch([b"x"])), b"torn"
    data = [
        {"index": number, "records": torn if number % 100 == 99 else batch} for number in (*range(700), 900)
    ]
    with WireClient(any_broker.bootstrap) as client:
        for round_number in range(2):
            found = client.ask(
                *(PRODUCE, 9),
                transactional_id=None,
                acks=-1,
                timeout=10_000,
                topic_data=[{"name": topic, "partition_data": data}],
            )
            answers = [each for response in found.responses for each in response.partition_responses]
            assert [each.index for each in answers] == [*range(700), 900]
            errors = {each.index: each.error_code for each in answers if each.error_code}
            assert set(errors) == {*range(99, 700, 100), 900}
            assert {each.base_offset for each in answers if not each.error_code} == {round_number}


def test_list_offsets_every_special_timestamp_from_its_version_on(any_broker: RunningBroker) -> None:
    topic = create(any_broker)
    produce(any_broker, topic, 0, 1000, 3000, 2000)
    with WireClient(any_broker.bootstrap) as client:
        for timestamp, version, offset in (
            (-1, 1, 3),
            (-2, 1, 0),
            (-3, 7, 1),
            (-4, 8, 0),
            (-5, 9, -1),
            (1500, 1, 1),
        ):
            assert list_offset(client, topic, timestamp, version)[:2] == (0, offset)
            if version > 1:
                code, offset, _ = list_offset(client, topic, timestamp, version - 1)
                assert (code, offset) == (ErrorCode.unsupported_version, -1)
        assert list_offset(client, topic, -6)[0] == ErrorCode.unsupported_version


def old_style_offsets(client: WireClient, topic: str, timestamp: int, most: int) -> tuple[int, list[int]]:
    asked = {"partition_index": 0, "timestamp": timestamp, "max_num_offsets": most}
    answer = client.ask(LIST_OFFSETS, 0, replica_id=-1, topics=[{"name": topic, "partitions": [asked]}])
    (found,) = answer.topics[0].partitions
    return found.error_code, list(found.old_style_offsets)


def test_list_offsets_version_0_tells_where_segments_begin(any_broker: RunningBroker) -> None:
    """What kafkajs and sarama ask; Kafka 3.9 answers by the times of the files, newest first."""
    topic = create(any_broker, segment_bytes="100")
    before_ms = int(time.time() * 1000) - 60_000
    after_ms = before_ms + 3_600_000
    with WireClient(any_broker.bootstrap) as client:
        assert old_style_offsets(client, topic, -1, 5) == (0, [0])
        for _ in range(3):  # two of these do not fit into a segment
            produce(any_broker, topic, 0, 5)
        assert old_style_offsets(client, topic, -1, 1) == (0, [3])
        assert old_style_offsets(client, topic, -1, 9) == (0, [3, 2, 1, 0])
        assert old_style_offsets(client, topic, -2, 9) == (0, [0])
        assert old_style_offsets(client, topic, after_ms, 2) == (0, [3, 2])
        assert old_style_offsets(client, topic, before_ms, 9) == (0, [])
        assert old_style_offsets(client, topic, -1, 0) == (0, [])
        assert old_style_offsets(client, topic, -3, 1) == (ErrorCode.unsupported_version, [])
        assert old_style_offsets(client, "nowhere", -1, 1) == (ErrorCode.unknown_topic_or_partition, [])
        admin = AdminClient({"bootstrap.servers": any_broker.bootstrap})
        admin.delete_records([TopicPartition(topic, 0, 1)])[TopicPartition(topic, 0)].result(30)
        assert old_style_offsets(client, topic, -2, 9) == (0, [1])
        assert old_style_offsets(client, topic, -1, 9)[1][-1] == 1


def test_list_offsets_of_a_partition_named_twice_is_refused(any_broker: RunningBroker) -> None:
    topic = create(any_broker)
    with WireClient(any_broker.bootstrap) as client:
        asked = [{"partition_index": 0, "timestamp": -1}] * 2
        answer = client.ask(
            LIST_OFFSETS, 5, replica_id=-1, isolation_level=0, topics=[{"name": topic, "partitions": asked}]
        )
        assert {each.error_code for each in answer.topics[0].partitions} == {ErrorCode.invalid_request}


def test_offset_for_leader_epoch_ends_with_the_log(any_broker: RunningBroker) -> None:
    topic = create(any_broker)
    produce(any_broker, topic, 0, 1, 2, 3)
    with WireClient(any_broker.bootstrap) as client:
        for current, epoch, expected in ((-1, 0, (0, 0, 3)), (0, 5, (0, -1, -1)), (7, 0, (75, -1, -1))):
            asked = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
            answer = client.ask(
                OFFSET_FOR_LEADER_EPOCH, 4, replica_id=-1, topics=[{"topic": topic, "partitions": [asked]}]
            )
            (found,) = answer.topics[0].partitions
            assert (found.error_code, found.leader_epoch, found.end_offset) == expected


def test_delete_records_moves_the_start_but_not_of_a_compacted_topic(any_broker: RunningBroker) -> None:
    deleted, compacted = create(any_broker), create(any_broker, cleanup_policy="compact")
    with WireClient(any_broker.bootstrap) as client:
        for topic, offset, expected in (
            (deleted, 2, (0, 2)),
            (deleted, -1, (0, 3)),
            (deleted, 4, (ErrorCode.offset_out_of_range, -1)),
            (compacted, 2, (ErrorCode.policy_violation, -1)),
        ):
            if offset == 2:
                produce(any_broker, topic, 0, 1, 2, 3)
            topics = [{"name": topic, "partitions": [{"partition_index": 0, "offset": offset}]}]
            (found,) = client.ask(DELETE_RECORDS, 2, topics=topics, timeout=1000).topics[0].partitions
            assert (found.error_code, found.low_watermark) == expected
        assert list_offset(client, deleted, -2)[1] == 3


def send(client: WireClient, topic: str, batch: bytearray, acks: int = -1) -> Any:
    partitions = [{"index": 0, "records": bytes(batch)}]
    answer = client.ask(
        PRODUCE,
        9,
        transactional_id=None,
        acks=acks,
        timeout=1000,
        topic_data=[{"name": topic, "partition_data": partitions}],
    )
    return answer.responses[0].partition_responses[0]


@pytest.mark.parametrize("codec", range(5))
def test_produce_without_a_key_to_a_compacted_topic_names_the_records(
    any_broker: RunningBroker, codec: int
) -> None:
    topic = create(any_broker, cleanup_policy="compact,delete")
    with WireClient(any_broker.bootstrap) as client:
        found = send(client, topic, build_batch([b"1", b"2"], keys=[b"k", None], attributes=codec))
        assert found.error_code == ErrorCode.invalid_record
        assert [each.batch_index for each in found.record_errors] == [1]
        assert "without key" in found.record_errors[0].batch_index_error_message
        assert send(client, topic, build_batch([b"1"], keys=[b"k"], attributes=codec)).error_code == 0


@pytest.mark.parametrize("codec", range(5))
def test_produce_of_old_records_names_them(any_broker: RunningBroker, codec: int) -> None:
    topic = create(any_broker, message_timestamp_before_max_ms="3600000")
    now_ms = int(time.time() * 1000)
    with WireClient(any_broker.bootstrap) as client:
        batch = build_batch([b"1", b"2"], timestamps_ms=[now_ms, 1000], attributes=codec)
        found = send(client, topic, batch)
        assert found.error_code == ErrorCode.invalid_timestamp
        assert [each.batch_index for each in found.record_errors] == [1]
        assert "out of range" in found.record_errors[0].batch_index_error_message
        assert found.error_message == "One or more records have been rejected due to invalid timestamp"


def test_produce_asks_for_no_more_replicas_than_the_topic_has(any_broker: RunningBroker) -> None:
    topic = create(any_broker, min_insync_replicas="2")
    with WireClient(any_broker.bootstrap) as client:
        for acks in (-1, -1, 1):
            assert send(client, topic, build_batch([b"1"]), acks=acks).error_code == ErrorCode.none


def test_produce_too_large_says_for_what(any_broker: RunningBroker) -> None:
    topic = create(any_broker, max_message_bytes="500", segment_bytes="200")
    with WireClient(any_broker.bootstrap) as client:
        assert send(client, topic, build_batch([bytes(600)])).error_code == ErrorCode.message_too_large
        assert send(client, topic, build_batch([bytes(300)])).error_code == ErrorCode.record_list_too_large
        assert send(client, topic, build_batch([bytes(100)])).error_code == 0


def log_dirs(client: WireClient, *topics: str) -> dict[str, dict[tuple[str, int], tuple[int, int, bool]]]:
    """By directory and partition: size, lag, and whether it is on its way there."""
    asked = [{"topic": topic, "partitions": [0, 1]} for topic in topics] or None
    answer = client.ask(DESCRIBE_LOG_DIRS, 4, topics=asked)
    assert answer.error_code == ErrorCode.none
    for each in answer.results:
        assert each.error_code == ErrorCode.none
        assert each.total_bytes >= each.usable_bytes > 0
    return {
        directory.log_dir: {
            (topic.name, each.partition_index): (each.partition_size, each.offset_lag, each.is_future_key)
            for topic in directory.topics
            for each in topic.partitions
        }
        for directory in answer.results
    }


def test_log_dirs_are_described_by_partition(any_broker: RunningBroker) -> None:
    topic = create(any_broker, 2)
    produce(any_broker, topic, 1, 1, 2, 3)
    with WireClient(any_broker.bootstrap) as client:
        (found,) = log_dirs(client, topic).values()
        assert found[topic, 0] == (0, 0, False)
        assert found[topic, 1][0] > 60
        (everything,) = log_dirs(client).values()
        assert everything.items() >= found.items()


def alter_log_dir(client: WireClient, path: str, topic: str, partition: int) -> ErrorCode:
    dirs = [{"path": path, "topics": [{"name": topic, "partitions": [partition]}]}]
    (found,) = client.ask(ALTER_REPLICA_LOG_DIRS, 2, dirs=dirs).results
    code: ErrorCode = found.partitions[0].error_code
    return code


def test_partition_moves_to_another_disk_while_it_is_used(tmp_path: Path) -> None:
    with (
        broker(tmp_path / "a", more_dirs=[tmp_path / "b"]) as running,
        WireClient(running.bootstrap) as client,
    ):
        topic = create(running, 2)
        places = log_dirs(client, topic)
        assert sorted(len(each) for each in places.values()) == [1, 1]
        source = next(path for path, found in places.items() if (topic, 0) in found)
        target = next(path for path in places if path != source)
        produce(running, topic, 0, *range(1000))
        assert alter_log_dir(client, str(tmp_path / "c"), topic, 0) == ErrorCode.log_dir_not_found
        assert alter_log_dir(client, target, "missing", 0) == ErrorCode.unknown_topic_or_partition
        assert alter_log_dir(client, source, topic, 0) == ErrorCode.none
        assert alter_log_dir(client, target, topic, 0) == ErrorCode.none
        deadline = time.monotonic() + 60
        while (topic, 0) in log_dirs(client, topic)[source]:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        produce(running, topic, 0, *range(10))
        assert log_dirs(client, topic)[target][topic, 0][1:] == (0, False)
        assert list_offset(client, topic, -1)[1] == 1010
        assert told(fetch(client, topic, (0, -1), (0, 500))) == [(0, 0, True)]


def test_broker_without_one_of_its_disks_serves_what_is_on_the_others(tmp_path: Path) -> None:
    shared = MemoryCluster()
    directories = [tmp_path / "a", tmp_path / "b"]
    with broker(
        directories[0], more_dirs=directories[1:], coordinator=MemoryCoordinator(cluster=shared)
    ) as running:
        topic = create(running, 2)
        for partition in (0, 1):
            produce(running, topic, partition, 1, 2, 3)
        with WireClient(running.bootstrap) as client:
            places = log_dirs(client, topic)
    shutil.rmtree(directories[1])
    directories[1].write_text("this disk is gone")
    lost = next(key[1] for key in places[str(directories[1])])
    with (
        broker(
            directories[0], more_dirs=directories[1:], coordinator=MemoryCoordinator(cluster=shared)
        ) as running,
        WireClient(running.bootstrap) as client,
    ):
        found = fetch(client, topic, (0, -1), (lost, 0), (1 - lost, 0))
        assert told(found) == [(lost, ErrorCode.kafka_storage_error, False), (1 - lost, 0, True)]
        asked = [{"topic_id": None, "name": topic}]
        (described,) = client.ask(
            *(METADATA, 12),
            topics=asked,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        ).topics
        assert {
            each.partition_index: (each.leader_id, each.offline_replicas) for each in described.partitions
        } == {
            lost: (-1, (1,)),
            1 - lost: (1, ()),
        }
        answer = client.ask(DESCRIBE_LOG_DIRS, 4, topics=None)
        assert {each.log_dir: each.error_code for each in answer.results} == {
            str(directories[0]): ErrorCode.none,
            str(directories[1]): ErrorCode.kafka_storage_error,
        }
        assert alter_log_dir(client, str(directories[1]), topic, 1 - lost) == ErrorCode.kafka_storage_error
        assert alter_log_dir(client, str(directories[0]), topic, lost) == ErrorCode.kafka_storage_error
        # What is new goes to the disk that is left.
        fresh = create(running, 2)
        produce(running, fresh, 0, 1)
        produce(running, fresh, 1, 1)
        assert len(list(directories[0].glob(f"{fresh}-*"))) == 2


def test_settings_of_all_brokers_hold_until_a_broker_has_its_own(any_broker: RunningBroker) -> None:
    topic = create(any_broker)

    def alter(broker_name: str, value: str | None) -> ErrorCode:
        config = {"name": "log.retention.bytes", "config_operation": 0 if value else 1, "value": value}
        resources = [{"resource_type": 4, "resource_name": broker_name, "configs": [config]}]
        (found,) = client.ask(
            INCREMENTAL_ALTER_CONFIGS, 1, resources=resources, validate_only=False
        ).responses
        code: ErrorCode = found.error_code
        return code

    def described(kind: int, name: str, key: str) -> tuple[str, int]:
        resources = [{"resource_type": kind, "resource_name": name, "configuration_keys": [key]}]
        answer = client.ask(
            DESCRIBE_CONFIGS, 4, resources=resources, include_synonyms=True, include_documentation=True
        )
        (found,) = answer.results[0].configs
        assert found.documentation
        assert found.config_type == 5
        return found.value, found.config_source

    with WireClient(any_broker.bootstrap) as client:
        try:
            assert alter("", "1000") == ErrorCode.none
            assert described(4, "", "log.retention.bytes") == ("1000", 3)
            assert described(2, topic, "retention.bytes") == ("1000", 3)
            assert alter("1", "2000") == ErrorCode.none
            assert described(2, topic, "retention.bytes") == ("2000", 2)
            assert alter("2", "1") == ErrorCode.invalid_request
        finally:
            alter("1", None)
            alter("", None)
        assert described(2, topic, "retention.bytes") == ("-1", 5)


def test_loggers_are_described_and_changed(any_broker: RunningBroker) -> None:
    name = "headwater_broker.log.cleaner.cleaning"

    def alter(logger: str, level: str | None, *, validate_only: bool = False) -> ErrorCode:
        config = {"name": logger, "config_operation": 0 if level else 1, "value": level}
        resources = [{"resource_type": 8, "resource_name": "1", "configs": [config]}]
        (found,) = client.ask(
            INCREMENTAL_ALTER_CONFIGS, 1, resources=resources, validate_only=validate_only
        ).responses
        code: ErrorCode = found.error_code
        return code

    def level() -> tuple[str, int]:
        resources = [{"resource_type": 8, "resource_name": "1", "configuration_keys": [name]}]
        answer = client.ask(
            DESCRIBE_CONFIGS, 4, resources=resources, include_synonyms=False, include_documentation=False
        )
        (found,) = answer.results[0].configs
        return found.value, found.config_source

    with WireClient(any_broker.bootstrap) as client:
        before = level()
        assert alter(name, "ERROR", validate_only=True) == ErrorCode.none
        assert level() == before
        assert alter(name, "ERROR") == ErrorCode.none
        assert level() == ("ERROR", 6)
        assert alter(name, "LOUD") == ErrorCode.invalid_config
        assert alter("no.such.logger", "INFO") == ErrorCode.invalid_config
        assert alter("root", None) == ErrorCode.invalid_config
        assert alter(name, None) == ErrorCode.none
        assert level() == before


def test_fetch_session_with_a_long_name_goes_on_in_a_version_that_cannot_say_it(
    any_broker: RunningBroker,
) -> None:
    with WireClient(any_broker.bootstrap) as client:
        first = fetch(client, "x" * 40_000, (0, 0), (0, 0), version=12)
        assert told(first) == [(0, ErrorCode.unknown_topic_or_partition, False)]
        again = fetch(client, "", (first.session_id, 1), version=11)
        assert told(again) == [(0, ErrorCode.unknown_topic_or_partition, False)]
