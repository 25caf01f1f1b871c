"""A transaction that would span brokers is refused at once and for good: nothing is answered that clients repeat."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headwater_broker.coordination import MemoryCoordinator
from headwater_broker.coordination.memory_cluster import MemoryCluster
from headwater_broker.testing import RunningBroker, WireClient, broker
from headwater_broker.testing.batches import build_batch
from headwater_broker.wire.apis import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    CREATE_TOPICS,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    PRODUCE,
    TXN_OFFSET_COMMIT,
)

ID = "spanning"


@pytest.fixture(scope="module")
def brokers() -> Iterator[dict[int, RunningBroker]]:
    """Two brokers, by id; partition 0 of topic t is on the first, partition 1 on the second."""
    shared = MemoryCluster()
    with (
        broker(broker_id=1, coordinator=MemoryCoordinator(cluster=shared)) as first,
        broker(broker_id=2, coordinator=MemoryCoordinator(cluster=shared)) as second,
    ):
        assignments = [{"partition_index": index, "broker_ids": [index + 1]} for index in (0, 1)]
        topic = {"name": "t", "num_partitions": -1, "replication_factor": -1, "assignments": assignments}
        with WireClient(first.bootstrap) as client:
            answer = client.ask(
                CREATE_TOPICS, 7, topics=[{**topic, "configs": []}], timeout=9000, validate_only=False
            )
            assert answer.topics[0].error_code is ErrorCode.none
        yield {1: first, 2: second}


def coordinator_of(client: WireClient, key: str, key_type: int) -> int:
    answer = client.ask(FIND_COORDINATOR, 6, key_type=key_type, coordinator_keys=[key])
    (found,) = answer.coordinators
    assert found.error_code is ErrorCode.none
    node: int = found.node_id
    return node


def produce(client: WireClient, identity: dict[str, Any], partition: int) -> Any:
    records = build_batch(
        [b"x"],
        producer_id=identity["producer_id"],
        producer_epoch=identity["producer_epoch"],
        base_sequence=0,
        attributes=0x10,
        timestamps_ms=[time.time_ns() // 1_000_000],
    )
    data = [{"name": "t", "partition_data": [{"index": partition, "records": bytes(records)}]}]
    answer = client.ask(PRODUCE, 11, transactional_id=ID, acks=-1, timeout=1000, topic_data=data)
    return answer.responses[0].partition_responses[0]


def test_transaction_over_two_brokers_is_refused_by_each_request(brokers: dict[int, RunningBroker]) -> None:
    with WireClient(brokers[1].bootstrap) as any_client:
        mine = coordinator_of(any_client, ID, 1)
        groups = {coordinator_of(any_client, f"g{index}", 0): f"g{index}" for index in range(20)}
    assert groups.keys() == brokers.keys()
    other = 3 - mine
    with WireClient(brokers[mine].bootstrap) as here, WireClient(brokers[other].bootstrap) as there:
        begun = here.ask(
            INIT_PRODUCER_ID,
            5,
            transactional_id=ID,
            transaction_timeout=60_000,
            producer_id=-1,
            producer_epoch=-1,
        )
        identity = {
            "transactional_id": ID,
            "producer_id": begun.producer_id,
            "producer_epoch": begun.producer_epoch,
        }

        def add(*partitions: int) -> list[ErrorCode]:
            topics = [{"name": "t", "partitions": list(partitions)}]
            fields = {f"v3_and_below_{name}": value for name, value in identity.items()}
            answer = here.ask(ADD_PARTITIONS_TO_TXN, 3, v3_and_below_topics=topics, **fields)
            (topic,) = answer.results_by_topic_v3_and_below
            return [each.partition_error_code for each in topic.results_by_partition]

        assert add(other - 1) == [ErrorCode.policy_violation]
        assert add(mine - 1) == [ErrorCode.none]
        assert produce(here, identity, mine - 1).error_code is ErrorCode.none

        refused = produce(there, identity, other - 1)
        assert refused.error_code is ErrorCode.policy_violation
        assert refused.error_message == (
            f"transactions do not span brokers yet: partition t-{other - 1} is on broker {other}, and "
            f"transactional id '{ID}' is coordinated by broker {mine}"
        )

        def add_offsets(group: str) -> ErrorCode:
            code: ErrorCode = here.ask(ADD_OFFSETS_TO_TXN, 4, group_id=group, **identity).error_code
            return code

        def commit_offset(client: WireClient, group: str) -> ErrorCode:
            offset = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1}
            topics = [{"name": "t", "partitions": [{**offset, "committed_metadata": ""}]}]
            while True:  # a client asks again while the coordinator reads what it has of the group
                answer = client.ask(
                    TXN_OFFSET_COMMIT,
                    4,
                    group_id=group,
                    generation_id=-1,
                    member_id="",
                    group_instance_id=None,
                    topics=topics,
                    **identity,
                )
                code: ErrorCode = answer.topics[0].partitions[0].error_code
                if code is not ErrorCode.coordinator_load_in_progress:
                    return code
                time.sleep(0.05)

        assert add_offsets(groups[other]) is ErrorCode.policy_violation
        assert commit_offset(there, groups[other]) is ErrorCode.policy_violation
        assert add_offsets(groups[mine]) is ErrorCode.none
        assert commit_offset(here, groups[mine]) is ErrorCode.none
        assert here.ask(END_TXN, 4, committed=True, **identity).error_code is ErrorCode.none
