"""librdkafka, through confluent-kafka: what most clients outside the JVM are built on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from headwater_broker.testing import broker

DEADLINE_S = 60


def produce(bootstrap: str, topic: str, values: list[bytes], **config: Any) -> list[int]:
    """Sends values to partition 0 and returns their offsets."""
    offsets: list[int] = []
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            errors.append(error)
        else:
            offsets.append(message.offset())

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **config})
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0
    assert not errors, errors
    return offsets


@contextmanager
def consumer(bootstrap: str, group: str = "readers", **config: Any) -> Iterator[Consumer]:
    """A consumer that is closed at the end."""
    made = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 60_000,
            "heartbeat.interval.ms": 300,
            **config,
        }
    )
    try:
        yield made
    finally:
        made.close()


def take(source: Consumer, count: int) -> list[Message]:
    """Polls until so many messages are there."""
    messages: list[Message] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(messages) < count:
        assert time.monotonic() < deadline, f"{len(messages)} of {count} messages after {DEADLINE_S} s"
        for message in source.consume(count - len(messages), timeout=0.5):
            assert message.error() is None, message.error()
            messages.append(message)
    return messages


def read_all(bootstrap: str, topic: str, count: int, **config: Any) -> list[bytes]:
    """Reads partition 0 from its beginning."""
    with consumer(bootstrap, **config) as reader:
        # Who knows no leader yet looks for the beginning again half a second later.
        reader.list_topics(topic, timeout=DEADLINE_S)
        reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        return [message.value() for message in take(reader, count)]


def until(condition: Callable[[], bool], what: str) -> None:
    """Polls a condition."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S} s: {what}"
        time.sleep(0.05)


@pytest.fixture
def admin(broker_process: Any) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker_process.bootstrap})


@pytest.fixture
def shared_admin(shared_process: Any) -> AdminClient:
    return AdminClient({"bootstrap.servers": shared_process.bootstrap})


def create(admin: AdminClient, name: str, partitions: int = 1, **config: str) -> None:
    topic = NewTopic(
        name, partitions, 1, config={key.replace("_", "."): value for key, value in config.items()}
    )
    admin.create_topics([topic], operation_timeout=30)[name].result(DEADLINE_S)


# -- produce and consume -----------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_produce_each_compression_comes_back_equal(codec: str, memory_bootstrap: str) -> None:
    values = [f"{index}:".encode() * 50 for index in range(500)]
    offsets = produce(memory_bootstrap, f"compressed-{codec}", values, **{"compression.type": codec})
    assert offsets == list(range(500))
    assert read_all(memory_bootstrap, f"compressed-{codec}", 500) == values


@pytest.mark.parametrize("level", ["1", "9"])
@pytest.mark.parametrize("codec", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_produce_into_a_topic_with_a_codec_of_its_own_comes_back_equal(
    codec: str, level: str, memory_bootstrap: str
) -> None:
    topic = f"as-{codec}-{level}"
    levels = {f"compression_{name}_level": level for name in ("gzip", "lz4", "zstd")}
    create(AdminClient({"bootstrap.servers": memory_bootstrap}), topic, compression_type=codec, **levels)
    values = [f"{index}:".encode() * 50 for index in range(500)]
    assert produce(memory_bootstrap, topic, values[:250]) == list(range(250))
    assert produce(memory_bootstrap, topic, values[250:], **{"compression.type": "gzip"}) == list(
        range(250, 500)
    )
    assert read_all(memory_bootstrap, topic, 500) == values


@pytest.fixture(scope="module")
def memory_bootstrap() -> Iterator[str]:
    with broker() as running:
        yield running.bootstrap


def test_produce_and_consume_round_trip_keeps_keys_headers_and_times(shared_process: Any) -> None:
    producer = Producer({"bootstrap.servers": shared_process.bootstrap})
    headers = [("a", b"1"), ("a", b"2"), ("empty", None)]
    producer.produce("events", b"value", key=b"key", headers=headers, timestamp=1_357_000_000_000)
    producer.produce("events", None, key=b"tombstone")
    assert producer.flush(DEADLINE_S) == 0
    with consumer(shared_process.bootstrap) as reader:
        reader.assign([TopicPartition("events", 0, OFFSET_BEGINNING)])
        first, second = take(reader, 2)
    assert (first.key(), first.value(), first.headers()) == (b"key", b"value", headers)
    assert first.timestamp()[1] == 1_357_000_000_000
    assert (second.key(), second.value()) == (b"tombstone", None)


def test_produce_large_messages_grow_the_buffer_and_come_back(memory_bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": memory_bootstrap})
    create(admin, "large", max_message_bytes="20000000")
    values = [bytes([index]) * 5_000_000 for index in range(4)]
    produce(memory_bootstrap, "large", values, **{"message.max.bytes": 15_000_000})
    assert read_all(memory_bootstrap, "large", 4, **{"fetch.message.max.bytes": 20_000_000}) == values


def test_produce_too_large_message_is_refused_and_the_next_goes_on(memory_bootstrap: str) -> None:
    create(AdminClient({"bootstrap.servers": memory_bootstrap}), "limited", max_message_bytes="1000")
    errors: list[int] = []
    producer = Producer({"bootstrap.servers": memory_bootstrap})
    producer.produce("limited", b"x" * 2000, on_delivery=lambda error, _: errors.append(error.code()))
    assert producer.flush(DEADLINE_S) == 0
    assert errors == [KafkaError.MSG_SIZE_TOO_LARGE]
    assert produce(memory_bootstrap, "limited", [b"small"]) == [0]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_produce_each_acks_stores_all(acks: str, memory_bootstrap: str) -> None:
    values = [str(index).encode() for index in range(200)]
    produce(memory_bootstrap, f"acks-{acks}", values, acks=acks)
    assert read_all(memory_bootstrap, f"acks-{acks}", 200) == values


def test_produce_acks_fsync_answers_after_the_flush(memory_bootstrap: str) -> None:
    create(AdminClient({"bootstrap.servers": memory_bootstrap}), "durable", acks_fsync="true")
    values = [str(index).encode() for index in range(200)]
    assert produce(memory_bootstrap, "durable", values, acks="all") == list(range(200))
    assert read_all(memory_bootstrap, "durable", 200) == values


def test_fetch_long_poll_returns_as_soon_as_a_message_comes(memory_bootstrap: str) -> None:
    create(AdminClient({"bootstrap.servers": memory_bootstrap}), "polled")
    waits_s = 60
    with consumer(
        memory_bootstrap, **{"fetch.wait.max.ms": waits_s * 1000, "socket.timeout.ms": 90_000}
    ) as reader:
        reader.assign([TopicPartition("polled", 0, OFFSET_BEGINNING)])
        assert reader.poll(1.0) is None
        producer = Producer({"bootstrap.servers": memory_bootstrap, "linger.ms": 0})
        started = time.monotonic()
        producer.produce("polled", b"now")
        message = reader.poll(waits_s)
        assert message is not None
        assert message.value() == b"now"
        assert time.monotonic() - started < waits_s / 2, "the fetch waited for its time to run out"
        assert producer.flush(DEADLINE_S) == 0


def test_fetch_out_of_range_offset_resets(memory_bootstrap: str) -> None:
    produce(memory_bootstrap, "ranged", [b"a", b"b"])
    with consumer(memory_bootstrap) as reader:
        reader.assign([TopicPartition("ranged", 0, 1000)])
        assert [message.value() for message in take(reader, 2)] == [b"a", b"b"]


# -- restarts ----------------------------------------------------------------------------------------------


def test_idempotent_producer_broker_killed_loses_and_doubles_nothing(broker_process: Any) -> None:
    count = 3000
    delivered: list[int] = []
    errors: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            errors.append(error)
        else:
            delivered.append(message.offset())

    producer = Producer(
        {"bootstrap.servers": broker_process.bootstrap, "enable.idempotence": True, "linger.ms": 2}
        | {"reconnect.backoff.max.ms": 200, "batch.num.messages": 50}
    )
    for index in range(count):
        producer.produce("exact", str(index).encode(), on_delivery=on_delivery)
        producer.poll(0)
        if index in (1000, 2000):
            until(lambda: producer.poll(0.01) >= 0 and len(delivered) > 0, "a first delivery")
            broker_process.kill()
            broker_process.start()
    assert producer.flush(DEADLINE_S) == 0
    assert not errors, errors
    assert sorted(delivered) == list(range(count))
    values = read_all(broker_process.bootstrap, "exact", count)
    assert values == [str(index).encode() for index in range(count)]


def test_restart_after_kill_is_ready_soon_and_keeps_topics_offsets_and_commits(broker_process: Any) -> None:
    bootstrap = broker_process.bootstrap
    produce(bootstrap, "kept", [b"a", b"b", b"c"])
    with consumer(bootstrap, "keepers") as reader:
        reader.commit(offsets=[TopicPartition("kept", 0, 2, "note")], asynchronous=False)
    broker_process.kill()
    broker_process.start()
    assert broker_process.ready_cpu_s < 5, "a clock on the wall would tell how busy the machine is"
    with consumer(bootstrap, "keepers") as reader:
        (committed,) = reader.committed([TopicPartition("kept", 0)], timeout=DEADLINE_S)
        assert (committed.offset, committed.metadata) == (2, "note")
        assert reader.get_watermark_offsets(TopicPartition("kept", 0), timeout=DEADLINE_S) == (0, 3)
    assert produce(bootstrap, "kept", [b"d"]) == [3]


def test_stop_sigterm_exits_zero_and_leaves_the_mark_of_a_clean_shutdown(broker_process: Any) -> None:
    produce(broker_process.bootstrap, "clean", [b"a"])
    data: Path = broker_process.data
    assert broker_process.stop() == 0
    assert (data / ".kafka_cleanshutdown").exists()
    broker_process.start()
    assert read_all(broker_process.bootstrap, "clean", 1) == [b"a"]


# -- admin -------------------------------------------------------------------------------------------------


def test_admin_topics_create_describe_extend_delete(shared_process: Any, shared_admin: AdminClient) -> None:
    create(shared_admin, "made", 3, retention_ms="3600000")
    metadata = shared_admin.list_topics("made", timeout=DEADLINE_S).topics["made"]
    assert sorted(metadata.partitions) == [0, 1, 2]
    assert {each.leader for each in metadata.partitions.values()} == {1}
    shared_admin.create_partitions([NewPartitions("made", 5)])["made"].result(DEADLINE_S)
    assert len(shared_admin.list_topics("made", timeout=DEADLINE_S).topics["made"].partitions) == 5
    with pytest.raises(KafkaException) as again:
        create(shared_admin, "made")
    assert again.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    shared_admin.delete_topics(["made"], operation_timeout=30)["made"].result(DEADLINE_S)
    assert "made" not in shared_admin.list_topics(timeout=DEADLINE_S).topics
    create(shared_admin, "made", 1)
    assert produce(shared_process.bootstrap, "made", [b"fresh"]) == [0]


def test_admin_refuses_what_it_cannot_do_with_a_reason(
    shared_admin: AdminClient, shared_process: Any
) -> None:
    for topic, code, reason in (
        (NewTopic("a/b", 1, 1), KafkaError.TOPIC_EXCEPTION, "Topic name is invalid"),
        (NewTopic("replicated", 1, 2), KafkaError.INVALID_REPLICATION_FACTOR, "one replica"),
        (NewTopic("none", 0, 1), KafkaError.INVALID_PARTITIONS, "larger than 0"),
        (NewTopic("odd", 1, 1, config={"retention.sm": "1"}), KafkaError.INVALID_CONFIG, "retention.ms"),
    ):
        with pytest.raises(KafkaException) as refused:
            shared_admin.create_topics([topic])[topic.topic].result(DEADLINE_S)
        assert refused.value.args[0].code() == code
        assert reason in refused.value.args[0].str()
    missing = shared_admin.delete_topics(["missing"])["missing"]
    with pytest.raises(KafkaException) as refused:
        missing.result(DEADLINE_S)
    assert refused.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_admin_configs_describe_and_alter(shared_admin: AdminClient, shared_process: Any) -> None:
    create(shared_admin, "configured", retention_ms="1000")
    resource = ConfigResource(ResourceType.TOPIC, "configured")
    described = shared_admin.describe_configs([resource])[resource].result(DEADLINE_S)
    assert described["retention.ms"].value == "1000"
    assert not described["retention.ms"].is_default
    assert described["segment.bytes"].is_default
    change = ConfigResource(
        ResourceType.TOPIC,
        "configured",
        incremental_configs=[
            ConfigEntry("segment.bytes", "1048576", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
            ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
        ],
    )
    shared_admin.incremental_alter_configs([change])[change].result(DEADLINE_S)
    described = shared_admin.describe_configs([resource])[resource].result(DEADLINE_S)
    assert described["segment.bytes"].value == "1048576"
    assert described["retention.ms"].value == "604800000"
    assert described["cleanup.policy"].value == "delete,compact"
    this_broker = ConfigResource(ResourceType.BROKER, "1")
    described = shared_admin.describe_configs([this_broker])[this_broker].result(DEADLINE_S)
    assert described["num.partitions"].value == "1"
    assert described["group.min.session.timeout.ms"].value == "1000"


def test_admin_changes_a_running_brokers_settings(admin: AdminClient, broker_process: Any) -> None:
    create(admin, "sized")

    def change(value: str | None) -> None:
        operation = AlterConfigOpType.SET if value else AlterConfigOpType.DELETE
        entry = ConfigEntry("message.max.bytes", value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)

    def refused() -> list[int]:
        errors: list[KafkaError | None] = []
        producer = Producer({"bootstrap.servers": broker_process.bootstrap})
        producer.produce("sized", bytes(5000), partition=0, on_delivery=lambda error, _: errors.append(error))
        producer.flush(DEADLINE_S)
        return [error.code() for error in errors if error is not None]

    assert refused() == []
    change("1000")
    assert refused() == [KafkaError.MSG_SIZE_TOO_LARGE]
    assert broker_process.stop() == 0
    broker_process.start()
    assert refused() == [KafkaError.MSG_SIZE_TOO_LARGE]
    described = ConfigResource(ResourceType.TOPIC, "sized")
    entry = admin.describe_configs([described])[described].result(DEADLINE_S)["max.message.bytes"]
    assert entry.value == "1000"
    assert entry.source == ConfigSource.DYNAMIC_BROKER_CONFIG.value
    change(None)
    assert refused() == []


def test_admin_cluster_names_broker_and_controller(shared_admin: AdminClient, shared_process: Any) -> None:
    cluster = shared_admin.describe_cluster().result(DEADLINE_S)
    assert len(cluster.cluster_id) == 22
    assert cluster.controller.id == 1
    assert [(node.id, f"{node.host}:{node.port}") for node in cluster.nodes] == [
        (1, shared_process.bootstrap)
    ]


def test_admin_offsets_by_time_and_by_the_ends(shared_admin: AdminClient, shared_process: Any) -> None:
    producer = Producer({"bootstrap.servers": shared_process.bootstrap})
    for time_ms in (1000, 2000, 5000, 3000):
        producer.produce("timed", str(time_ms).encode(), partition=0, timestamp=time_ms)
        assert producer.flush(DEADLINE_S) == 0

    def offset(spec: OffsetSpec) -> int:
        partition = TopicPartition("timed", 0)
        request = shared_admin.list_offsets({partition: spec}, isolation_level=IsolationLevel.READ_COMMITTED)
        return int(request[partition].result(DEADLINE_S).offset)

    assert offset(OffsetSpec.earliest()) == 0
    assert offset(OffsetSpec.latest()) == 4
    assert offset(OffsetSpec.max_timestamp()) == 2
    assert offset(OffsetSpec.for_timestamp(1500)) == 1
    assert offset(OffsetSpec.for_timestamp(2001)) == 2
    assert offset(OffsetSpec.for_timestamp(9999)) == -1


def test_admin_delete_records_moves_the_start(admin: AdminClient, broker_process: Any) -> None:
    bootstrap = broker_process.bootstrap
    produce(bootstrap, "trimmed", [b"a", b"b", b"c"])
    partition = TopicPartition("trimmed", 0, 2)
    deleted = admin.delete_records([partition])[partition].result(DEADLINE_S)
    assert deleted.low_watermark == 2
    broker_process.kill()
    broker_process.start()
    assert read_all(bootstrap, "trimmed", 1) == [b"c"]


# -- groups ------------------------------------------------------------------------------------------------


def test_group_of_three_loses_a_member_and_goes_on(shared_process: Any, shared_admin: AdminClient) -> None:
    bootstrap = shared_process.bootstrap
    create(shared_admin, "shared", 6)
    members = [
        Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "trio",
                "client.id": f"member-{index}",
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 60_000,
                "heartbeat.interval.ms": 200,
                "partition.assignment.strategy": "range",
            }
        )
        for index in range(3)
    ]
    for member in members:
        member.subscribe(["shared"])

    def assigned(among: list[Consumer]) -> list[int]:
        for member in among:
            member.poll(0.05)
        return sorted(each.partition for member in among for each in member.assignment())

    def spread(among: list[Consumer]) -> bool:
        sizes = [len(member.assignment()) for member in among]
        return assigned(among) == list(range(6)) and max(sizes) == min(sizes)

    until(lambda: spread(members), "six partitions over three members")
    described = shared_admin.describe_consumer_groups(["trio"])["trio"].result(DEADLINE_S)
    assert len(described.members) == 3
    assert described.state.name == "STABLE"
    assert {member.client_id for member in described.members} == {"member-0", "member-1", "member-2"}
    lost = members.pop()
    lost.close()
    until(lambda: spread(members), "six partitions over two members")
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition in range(6):
        producer.produce("shared", str(partition).encode(), partition=partition)
    assert producer.flush(DEADLINE_S) == 0
    seen: set[bytes] = set()

    def all_seen() -> bool:
        for member in members:
            message = member.poll(0.1)
            if message is not None and message.error() is None:
                seen.add(message.value())
        return len(seen) == 6

    until(all_seen, "one message of each partition")
    for member in members:
        member.close()
    groups = shared_admin.list_consumer_groups().result(DEADLINE_S).valid
    states = [(group.group_id, group.state.name) for group in groups]
    assert [state for state in states if state[0] == "trio"] == [("trio", "EMPTY")]


def test_group_member_that_dies_silently_is_expired(shared_process: Any, shared_admin: AdminClient) -> None:
    bootstrap = shared_process.bootstrap
    create(shared_admin, "watched", 2)
    config = {"bootstrap.servers": bootstrap, "group.id": "pair", "auto.offset.reset": "earliest"}
    timing = {"session.timeout.ms": 1000, "heartbeat.interval.ms": 200, "max.poll.interval.ms": 1000}
    stays = Consumer(config | timing)
    stalls = Consumer(config | timing)
    for each in (stays, stalls):
        each.subscribe(["watched"])

    def both() -> bool:
        stays.poll(0.05)
        stalls.poll(0.05)
        return len(stays.assignment()) == 1 and len(stalls.assignment()) == 1

    until(both, "one partition each")

    def all_here() -> bool:  # the other one polls no more
        stays.poll(0.05)
        return len(stays.assignment()) == 2

    until(all_here, "both partitions with the one that stays")
    stays.close()
    stalls.close()


def test_group_offsets_are_committed_altered_and_deleted(
    shared_process: Any, shared_admin: AdminClient
) -> None:
    bootstrap = shared_process.bootstrap
    produce(bootstrap, "read", [b"a", b"b", b"c"])
    with consumer(bootstrap, "counting") as reader:
        reader.subscribe(["read"])
        assert len(take(reader, 2)) == 2
        reader.commit(asynchronous=False)

    def committed() -> int:
        request = [ConsumerGroupTopicPartitions("counting", [TopicPartition("read", 0)])]
        answer = shared_admin.list_consumer_group_offsets(request)["counting"].result(DEADLINE_S)
        return int(answer.topic_partitions[0].offset)

    assert committed() == 2
    change = [ConsumerGroupTopicPartitions("counting", [TopicPartition("read", 0, 1)])]
    shared_admin.alter_consumer_group_offsets(change)["counting"].result(DEADLINE_S)
    assert committed() == 1
    shared_admin.delete_consumer_groups(["counting"])["counting"].result(DEADLINE_S)
    assert committed() < 0


def test_group_goes_on_after_its_broker_was_killed(broker_process: Any, admin: AdminClient) -> None:
    bootstrap = broker_process.bootstrap
    create(admin, "lasting", 4)
    config = {"bootstrap.servers": bootstrap, "group.id": "lasting", "auto.offset.reset": "earliest"}
    # On a loaded machine a broker takes seconds to start: a session must outlast that for members to go on.
    config |= {"session.timeout.ms": "60000", "heartbeat.interval.ms": "200", "enable.auto.commit": "false"}
    config |= {"reconnect.backoff.max.ms": "200"}
    members = [Consumer(config | {"group.instance.id": "static"}), Consumer(config)]
    for member in members:
        member.subscribe(["lasting"])
    seen: list[bytes] = []

    def read() -> None:
        for member in members:
            for message in member.consume(10, 0.05):
                if message.error() is None:
                    seen.append(message.value())

    def shared() -> bool:
        read()
        return [len(member.assignment()) for member in members] == [2, 2]

    def send(first: int, last: int) -> None:
        producer = Producer({"bootstrap.servers": bootstrap})
        for number in range(first, last):
            producer.produce("lasting", str(number), partition=number % 4)
        assert producer.flush(DEADLINE_S) == 0

    until(shared, "two partitions each")
    send(0, 20)
    until(lambda: read() is None and len(seen) == 20, "20 messages")
    for member in members:
        member.commit(asynchronous=False)
    broker_process.kill()
    broker_process.start()
    send(20, 40)
    until(lambda: read() is None and len(seen) >= 40, "the other 20")
    until(shared, "two partitions each again")
    for member in members:
        member.commit(asynchronous=False)
        member.close()
    assert sorted(seen, key=int) == [str(number).encode() for number in range(40)], "each of them once"
    request = [ConsumerGroupTopicPartitions("lasting")]
    committed = admin.list_consumer_group_offsets(request)["lasting"].result(DEADLINE_S).topic_partitions
    assert [each.offset for each in committed] == [10] * 4
