"""What Java's Admin client found told otherwise than Apache Kafka 3.9 tells it, request by request."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from kio.schema.errors import ErrorCode

from headwater_broker.coordination import ConfigKind, MemoryCoordinator
from headwater_broker.testing import RunningBroker, WireClient, broker
from headwater_broker.wire.apis import (
    ALTER_PARTITION_REASSIGNMENTS,
    CREATE_TOPICS,
    DESCRIBE_CONFIGS,
    DESCRIBE_PRODUCERS,
    INCREMENTAL_ALTER_CONFIGS,
    WRITE_TXN_MARKERS,
)
from support.processes import free_port

TOPIC, BROKER = 2, 4
SET = 0
STATIC, DEFAULT = 4, 5


@pytest.fixture
def client(any_broker: RunningBroker) -> Iterator[WireClient]:
    with WireClient(any_broker.bootstrap) as made:
        yield made


def alter(client: WireClient, kind: int, name: str, key: str, value: str) -> ErrorCode:
    configs = [{"name": key, "config_operation": SET, "value": value}]
    resources = [{"resource_type": kind, "resource_name": name, "configs": configs}]
    answer = client.ask(INCREMENTAL_ALTER_CONFIGS, 1, resources=resources, validate_only=False)
    code: ErrorCode = answer.responses[0].error_code
    return code


def describe(client: WireClient, kind: int, name: str) -> Any:
    resources = [{"resource_type": kind, "resource_name": name, "configuration_keys": None}]
    (result,) = client.ask(
        DESCRIBE_CONFIGS, 4, resources=resources, include_synonyms=True, include_documentation=True
    ).results
    return result


def entries(client: WireClient, name: str = "1") -> dict[str, Any]:
    return {each.name: each for each in describe(client, BROKER, name).configs}


# -- topics ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "assignment",
    [[[]], [[1, 1]], [[7]], [[-1]], [[1, 2]], [[1], [1, 2]]],
    ids=["none", "twice", "unknown", "negative", "one unknown", "unequal"],
)
def test_create_with_an_assignment_that_cannot_be_is_refused_as_one(
    client: WireClient, assignment: list[list[int]]
) -> None:
    topic = {
        "name": f"assigned-{uuid4().hex[:8]}",
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [
            {"partition_index": index, "broker_ids": ids} for index, ids in enumerate(assignment)
        ],
        "configs": [],
    }
    answer = client.ask(CREATE_TOPICS, 7, topics=[topic], timeout=5000, validate_only=False)
    assert answer.topics[0].error_code is ErrorCode.invalid_replica_assignment


@pytest.mark.parametrize("name", ["", "a b", "..", "x" * 250])
def test_configs_of_what_is_no_topic_name_are_refused_as_such(client: WireClient, name: str) -> None:
    assert describe(client, TOPIC, name).error_code is ErrorCode.invalid_topic_exception


def test_configs_of_all_topics_cannot_be_altered(client: WireClient) -> None:
    assert alter(client, TOPIC, "", "retention.ms", "5") is ErrorCode.invalid_request


@pytest.mark.parametrize("text", ["1_000", "\u0661\u0662", "0x10", "1e3", "", "nan"])
def test_numbers_that_kafka_does_not_read_are_refused_wherever_settings_come_in(
    client: WireClient, text: str
) -> None:
    name = f"numbers-{uuid4().hex[:8]}"

    def created(configs: list[dict[str, str]]) -> ErrorCode:
        topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": []}
        answer = client.ask(
            CREATE_TOPICS, 7, topics=[{**topic, "configs": configs}], timeout=5000, validate_only=False
        )
        code: ErrorCode = answer.topics[0].error_code
        return code

    assert created([{"name": "retention.ms", "value": text}]) is ErrorCode.invalid_config
    assert created([]) is ErrorCode.none
    assert alter(client, TOPIC, name, "retention.ms", text) is ErrorCode.invalid_config
    assert alter(client, TOPIC, name, "min.cleanable.dirty.ratio", text if text != "1e3" else "inf") is (
        ErrorCode.invalid_config
    )
    assert alter(client, BROKER, "1", "log.retention.ms", text) is ErrorCode.invalid_request
    assert alter(client, BROKER, "1", "max.connections", text) is ErrorCode.invalid_request
    assert describe(client, BROKER, text or "one").error_code is ErrorCode.invalid_request


# -- the broker's settings -------------------------------------------------------------------------


def test_overrides_of_connections_that_make_no_sense_are_refused_while_running() -> None:
    coordinator = MemoryCoordinator()
    coordinator.set_config(ConfigKind.BROKER, "<default>", {"max.connections.per.ip.overrides": "nonsense"})
    with broker(coordinator=coordinator) as running, WireClient(running.bootstrap) as client:
        name = "max.connections.per.ip.overrides"
        for text in ("127.0.0.9", "127.0.0.9:1_0", "127.0.0.9:\u0663"):
            assert alter(client, BROKER, "1", name, text) is ErrorCode.invalid_request
        assert alter(client, BROKER, "1", name, "127.0.0.9:7") is ErrorCode.none
        assert entries(client)[name].value == "127.0.0.9:7"


@pytest.mark.parametrize("name", ["1", ""])
@pytest.mark.parametrize(
    "rate",
    [
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    ],
)
def test_rates_of_replication_are_taken_while_running(client: WireClient, name: str, rate: str) -> None:
    for text in ("fast", "1_000", "\u0663", "-1"):
        assert alter(client, BROKER, name, rate, text) is ErrorCode.invalid_request
    assert alter(client, BROKER, name, rate, "10000000") is ErrorCode.none
    assert entries(client, name)[rate].value == "10000000"
    assert alter(client, BROKER, "1", "log.retention.ms", "100000") is ErrorCode.none


def test_settings_of_listeners_are_told_as_given() -> None:
    secret = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="s";'
    jaas = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    rate = "listener.name.plaintext.max.connection.creation.rate"
    given = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        jaas: secret,
        rate: "1000",
    }
    with broker(properties=given) as running, WireClient(running.bootstrap) as client:
        found = entries(client)
    assert (found["advertised.listeners"].value, found["advertised.listeners"].config_source) == (
        None,
        DEFAULT,
    )
    assert found["listeners"].config_source == STATIC
    assert (found[jaas].value, found[jaas].is_sensitive, found[jaas].config_source) == (None, True, STATIC)
    assert (found[rate].value, found[rate].is_sensitive, found[rate].read_only) == ("1000", False, False)


def test_settings_advertised_listeners_are_told_where_they_are_given() -> None:
    port = free_port()
    told = f"PLAINTEXT://localhost:{port}"
    given = {"listeners": f"PLAINTEXT://127.0.0.1:{port}", "advertised.listeners": told}
    with broker(properties=given), WireClient(f"127.0.0.1:{port}") as client:
        found = entries(client)["advertised.listeners"]
    assert (found.value, found.config_source) == (told, STATIC)


# -- transactions ----------------------------------------------------------------------------------


def open_transaction(running: RunningBroker, topic: str, committed: int = 0) -> Producer:
    producer = Producer({"bootstrap.servers": running.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    if committed:
        producer.begin_transaction()
        for _ in range(committed):
            producer.produce(topic, b"committed", partition=0)
        producer.commit_transaction(30)
    producer.begin_transaction()
    after_the_marker_ms = int(time.time() * 1000) + 60_000
    producer.produce(topic, b"open", partition=0, timestamp=after_the_marker_ms)
    assert producer.flush(30) == 0
    return producer


def offset(admin: AdminClient, topic: str, spec: OffsetSpec, isolation: IsolationLevel) -> int:
    partition = TopicPartition(topic, 0)
    found: int = admin.list_offsets({partition: spec}, isolation_level=isolation)[partition].result(30).offset
    return found


def test_offset_of_the_greatest_timestamp_is_not_told_before_it_is_committed(
    any_broker: RunningBroker, admin: AdminClient, new_topic: Any
) -> None:
    topic = new_topic(1)
    producer = open_transaction(any_broker, topic, committed=2)
    greatest = OffsetSpec.max_timestamp()
    assert offset(admin, topic, greatest, IsolationLevel.READ_UNCOMMITTED) == 3
    assert offset(admin, topic, greatest, IsolationLevel.READ_COMMITTED) == -1
    producer.commit_transaction(30)


def markers(client: WireClient, topic: str, state: Any, **changed: Any) -> ErrorCode:
    marker = {
        "producer_id": state.producer_id,
        "producer_epoch": state.producer_epoch,
        "coordinator_epoch": state.coordinator_epoch,
        "transaction_result": False,
        "topics": [{"name": topic, "partition_indexes": [0]}],
        **changed,
    }
    answer = client.ask(WRITE_TXN_MARKERS, 1, markers=[marker])
    code: ErrorCode = answer.markers[0].topics[0].partitions[0].error_code
    return code


def test_operator_ends_a_transaction_in_a_partition_that_waits_for_it(
    any_broker: RunningBroker, client: WireClient, admin: AdminClient, new_topic: Any
) -> None:
    topic = new_topic(1)
    producer = open_transaction(any_broker, topic, committed=1)
    (described,) = client.ask(
        DESCRIBE_PRODUCERS, 0, topics=[{"name": topic, "partition_indexes": [0]}]
    ).topics
    (state,) = described.partitions[0].active_producers
    assert state.current_txn_start_offset == 2
    latest = OffsetSpec.latest()
    assert offset(admin, topic, latest, IsolationLevel.READ_COMMITTED) == 2
    nowhere = [{"name": "nowhere", "partition_indexes": [0]}]
    assert markers(client, topic, state, topics=nowhere) is ErrorCode.unknown_topic_or_partition
    old = state.coordinator_epoch - 1
    assert markers(client, topic, state, coordinator_epoch=old) is ErrorCode.transaction_coordinator_fenced
    assert offset(admin, topic, latest, IsolationLevel.READ_COMMITTED) == 2
    assert markers(client, topic, state) is ErrorCode.none
    assert offset(admin, topic, latest, IsolationLevel.READ_COMMITTED) == 4
    producer.commit_transaction(30)


# -- who may ---------------------------------------------------------------------------------------


def test_reassignment_refused_names_each_partition() -> None:
    with (
        broker(properties={"allow.everyone.if.no.acl.found": "false"}) as running,
        WireClient(running.bootstrap) as client,
    ):
        topics = [
            {"name": "t", "partitions": [{"partition_index": each, "replicas": [1]} for each in (0, 3)]}
        ]
        answer = client.ask(ALTER_PARTITION_REASSIGNMENTS, 0, topics=topics, timeout=1000)
    assert answer.error_code is ErrorCode.cluster_authorization_failed
    found = {each.partition_index: each.error_code for each in answer.responses[0].partitions}
    assert found == dict.fromkeys((0, 3), ErrorCode.cluster_authorization_failed)
