"""Requests that name much are worked on in slices, whatever they ask: no handler walks a long array in one go, nor does
the guard before it where there are rules about who may do what."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headwater_broker.testing import RunningBroker, WireClient, broker
from headwater_broker.wire.apis import (
    ADD_PARTITIONS_TO_TXN,
    ALTER_CLIENT_QUOTAS,
    ALTER_PARTITION_REASSIGNMENTS,
    ALTER_REPLICA_LOG_DIRS,
    CREATE_ACLS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_ACLS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_GROUPS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    FIND_COORDINATOR,
    INCREMENTAL_ALTER_CONFIGS,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    TXN_OFFSET_COMMIT,
)

MANY = 8_000
MOST_SHARE = 0.3
"""Of a request's work, in one piece."""
SHORT_S = 0.006
"""What is no longer may be done in one piece: two slices."""

NAMES = [f"name-{number}" for number in range(MANY)]
PARTITIONS = range(MANY)
OFFSETS = [
    {
        "partition_index": number,
        "committed_offset": 1,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    for number in PARTITIONS
]
PRODUCER = {"transactional_id": "x", "producer_id": 1, "producer_epoch": 0}
ACL = {"host": "*", "operation": 3, "permission_type": 3}
RULES = [
    {**ACL, "resource_type": 1, "resource_name": name, "resource_pattern_type": 3, "principal": "User:a"}
    for name in NAMES
]
FILTERS = [
    {
        "resource_type_filter": 2,
        "resource_name_filter": name,
        "pattern_type_filter": 3,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    for name in NAMES
]

REQUESTS: dict[str, tuple[int, int, dict[str, Any]]] = {
    "offsets of a transaction": (
        *(TXN_OFFSET_COMMIT, 3),
        {
            **PRODUCER,
            "group_id": "g",
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": "t", "partitions": OFFSETS}],
        },
    ),
    "offsets of a group": (
        *(OFFSET_FETCH, 7),
        {
            "group_id": "g",
            "topics": [{"name": "t", "partition_indexes": [*PARTITIONS]}],
            "require_stable": False,
        },
    ),
    "offsets to be deleted": (
        *(OFFSET_DELETE, 0),
        {
            "group_id": "g",
            "topics": [
                {"name": "t", "partitions": [{"partition_index": number} for number in range(1, MANY)]}
            ],
        },
    ),
    "partitions of a transaction": (
        *(ADD_PARTITIONS_TO_TXN, 3),
        {
            "v3_and_below_transactional_id": "x",
            "v3_and_below_producer_id": 1,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": [{"name": "t", "partitions": [*PARTITIONS]}],
        },
    ),
    "transactions": (DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": NAMES}),
    "producers": (DESCRIBE_PRODUCERS, 0, {"topics": [{"name": "t", "partition_indexes": [*PARTITIONS]}]}),
    "coordinators": (FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": NAMES}),
    "groups": (DESCRIBE_GROUPS, 4, {"groups": NAMES, "include_authorized_operations": False}),
    "rules that are none": (CREATE_ACLS, 2, {"creations": RULES}),
    "rules to be deleted": (DELETE_ACLS, 2, {"filters": FILTERS}),
    "epochs": (
        *(OFFSET_FOR_LEADER_EPOCH, 3),
        {
            "replica_id": -1,
            "topics": [
                {
                    "topic": "t",
                    "partitions": [
                        {"partition": number, "current_leader_epoch": -1, "leader_epoch": 0}
                        for number in PARTITIONS
                    ],
                }
            ],
        },
    ),
    "records to be deleted": (
        *(DELETE_RECORDS, 1),
        {
            "timeout": 1000,
            "topics": [
                {
                    "name": "t",
                    "partitions": [{"partition_index": number, "offset": 0} for number in PARTITIONS],
                }
            ],
        },
    ),
    "partitions to be moved": (
        *(ALTER_PARTITION_REASSIGNMENTS, 0),
        {
            "timeout": 1000,
            "topics": [
                {
                    "name": "t",
                    "partitions": [{"partition_index": number, "replicas": None} for number in PARTITIONS],
                }
            ],
        },
    ),
    "directories": (
        *(ALTER_REPLICA_LOG_DIRS, 1),
        {"dirs": [{"path": "/none", "topics": [{"name": "t", "partitions": [*PARTITIONS]}]}]},
    ),
    "settings": (
        *(INCREMENTAL_ALTER_CONFIGS, 0),
        {
            "resources": [{"resource_type": 2, "resource_name": name, "configs": []} for name in NAMES],
            "validate_only": True,
        },
    ),
    "users": (DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": [{"name": name} for name in NAMES]}),
    "quotas": (
        *(ALTER_CLIENT_QUOTAS, 0),
        {"entries": [{"entity": [], "ops": []} for _ in NAMES], "validate_only": True},
    ),
    "topics to be made": (
        *(CREATE_TOPICS, 4),
        {
            "topics": [
                {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
                for name in NAMES[: MANY // 4]
            ],
            "timeout": 1000,
            "validate_only": True,
        },
    ),
    "topics to be deleted": (DELETE_TOPICS, 5, {"topic_names": NAMES, "timeout": 1000}),
    "members that leave": (
        *(LEAVE_GROUP, 3),
        {
            "group_id": "g",
            "members": [{"member_id": name, "group_instance_id": None} for name in NAMES],
        },
    ),
    "partitions to be made": (
        *(CREATE_PARTITIONS, 1),
        {
            "topics": [{"name": name, "count": 2, "assignments": None} for name in NAMES],
            "timeout": 1000,
            "validate_only": True,
        },
    ),
}


GUARDED = (
    "transactions",
    "coordinators",
    "groups",
    "topics to be made",
    "topics to be deleted",
    "partitions to be made",
)
"""Of which many items are looked at by the guard."""


@contextmanager
def started() -> Iterator[RunningBroker]:
    """A broker with a topic of which a group has committed an offset."""
    with broker() as made, WireClient(made.bootstrap) as client:
        topic = {"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        client.ask(CREATE_TOPICS, 2, topics=[topic], timeout=30_000, validate_only=False)
        offset = {"name": "t", "partitions": OFFSETS[:1]}
        member = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
        client.ask(OFFSET_COMMIT, 7, group_id="g", topics=[offset], **member)
        yield made


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with started() as made:
        yield made


@pytest.fixture(scope="module")
def guarded() -> Iterator[RunningBroker]:
    """One with rules that allow all of it."""
    rules = [
        {
            "resource_type": resource_type,
            "resource_name": "kafka-cluster" if resource_type == 4 else "*",
            "resource_pattern_type": 3,
            "principal": "User:ANONYMOUS",
            "host": "*",
            "operation": 2,
            "permission_type": 3,
        }
        for resource_type in (2, 3, 4, 5)
    ]
    with started() as made, WireClient(made.bootstrap) as client:
        answer = client.ask(CREATE_ACLS, 2, creations=rules)
        assert [each.error_code for each in answer.results] == [0] * 4
        yield made


@pytest.fixture(scope="module")
def closed() -> Iterator[RunningBroker]:
    """One that allows nothing."""
    with broker(properties={"allow.everyone.if.no.acl.found": "false"}) as made:
        yield made


@pytest.mark.parametrize(
    ("rules", "kind"),
    [
        *(("running", kind) for kind in REQUESTS),
        *((rules, kind) for rules in ("guarded", "closed") for kind in GUARDED),
    ],
)
def test_large_request_is_worked_on_in_slices(
    request: pytest.FixtureRequest, rules: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    running: RunningBroker = request.getfixturevalue(rules)
    key, version, fields = REQUESTS[kind]
    took_s: list[float] = []
    run = asyncio.events.Handle._run  # what the loop calls for each of its steps

    def timed(handle: asyncio.events.Handle) -> None:
        # Of this thread's own time: however much else runs on the machine.
        began_s = time.thread_time()
        run(handle)
        took_s.append(time.thread_time() - began_s)

    with WireClient(running.bootstrap) as client:
        client.send(key, version, **fields)
        client.receive()  # what is made once is there now
        monkeypatch.setattr(asyncio.events.Handle, "_run", timed)
        gc.disable()
        try:
            client.send(key, version, **fields)
            client.receive()
        finally:
            gc.enable()
    assert max(took_s) < max(MOST_SHARE * sum(took_s), SHORT_S)
