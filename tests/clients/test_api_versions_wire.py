"""Every API at every version that is advertised, and at one beyond: answered, or refused as Kafka refuses."""

from __future__ import annotations

import dataclasses
import datetime as dt
import struct
import typing
from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from kio.schema.errors import ErrorCode

from headwater_broker.testing import RunningBroker, broker
from headwater_broker.testing.wire import WireClient
from headwater_broker.wire import APIS, Api, apis, fetch, produce
from headwater_broker.wire.codec import message_type
from headwater_broker.wire.reader import without_none

# Those before have no schema; see test_old_formats_wire.
WITH_BATCHES = {apis.PRODUCE: produce.BATCHES_FROM, apis.FETCH: fetch.BATCHES_FROM}
VERSIONS = [
    (api, version)
    for api in APIS.values()
    for version in range(max(api.lowest, WITH_BATCHES.get(api.key, 0)), api.highest + 1)
]


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(properties={"auto.create.topics.enable": "false"}) as started:
        yield started


def nothing(field: dataclasses.Field[Any]) -> Any:
    """The least that can be said in a field."""
    kind, is_optional = without_none(field.type)
    if typing.get_origin(kind) is tuple:
        return ()
    if is_optional:
        return None
    if dataclasses.is_dataclass(kind):
        return {each.name: nothing(each) for each in dataclasses.fields(kind)}
    if isinstance(kind, type):
        for given, value in ((bool, False), (str, ""), (bytes, b""), (float, 0.0), (UUID, None)):
            if issubclass(kind, given):
                return value
        if issubclass(kind, dt.timedelta):
            return 0
    return 0


def least(api: Api, version: int) -> dict[str, Any]:
    """A request that says next to nothing."""
    fields = dataclasses.fields(message_type(api.name, version, "request"))
    return {each.name: nothing(each) for each in fields if each.default is dataclasses.MISSING}


@pytest.mark.parametrize(
    ("api", "version"), VERSIONS, ids=[f"{api.name}-{version}" for api, version in VERSIONS]
)
def test_api_version_that_is_advertised_is_answered(
    running: RunningBroker, api: Api, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    fields = least(api, version)
    if api.key == apis.PRODUCE:
        fields["acks"] = 1
    with WireClient(running.bootstrap) as client:
        client.send(api.key, version, **fields)
        answer = client.receive()
        assert isinstance(answer, message_type(api.name, version, "response"))
        # And the connection goes on.
        assert client.ask(apis.API_VERSIONS, 0).error_code is ErrorCode.none
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_api_version_beyond_closes_the_connection_but_for_api_versions(
    running: RunningBroker, api: Api
) -> None:
    """Kafka's broker does the same: a request whose layout it does not know has no answer that is safe to send."""
    with WireClient(running.bootstrap) as client:
        frame = struct.pack(">hhih", api.key, api.highest + 1, 7, -1) + bytes(64)
        client._socket.sendall(struct.pack(">i", len(frame)) + frame)
        if api.key != apis.API_VERSIONS:
            with pytest.raises(ConnectionError):
                client._exactly(1)
            return
        size, correlation_id, error = struct.unpack(">iih", client._exactly(10))
        assert (correlation_id, error) == (7, ErrorCode.unsupported_version)
        assert size > 100


@pytest.mark.parametrize(
    "api",
    [api for api in APIS.values() if api.key != apis.API_VERSIONS],
    ids=lambda api: api.name,
)
def test_api_version_below_closes_the_connection(running: RunningBroker, api: Api) -> None:
    """A Fetch of a version that is not known must not be read as one that is."""
    with WireClient(running.bootstrap) as client:
        frame = struct.pack(">hhih", api.key, api.lowest - 1, 7, -1) + bytes(64)
        client._socket.sendall(struct.pack(">i", len(frame)) + frame)
        with pytest.raises(ConnectionError):
            client._exactly(1)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_api_request_that_is_cut_short_closes_the_connection(running: RunningBroker, api: Api) -> None:
    version = api.highest
    with WireClient(running.bootstrap) as client:
        frame = struct.pack(">hhih", api.key, version, 7, -1) + (b"\x00" if api.is_flexible(version) else b"")
        client._socket.sendall(struct.pack(">i", len(frame)) + frame)
        with pytest.raises(ConnectionError):
            client._exactly(1)


TOPIC = {"name": "nowhere"}
ONE_PARTITION = [{"partition_index": 0}]


def first(answer: Any, *path: Any) -> Any:
    for step in path:
        answer = answer[step] if isinstance(step, int) else getattr(answer, step)
    return answer


UNKNOWN: list[tuple[str, int, int, dict[str, Any], tuple[Any, ...], ErrorCode]] = [
    (
        "list_offsets of a topic that is not there",
        *(apis.LIST_OFFSETS, 7),
        {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{**TOPIC, "partitions": [{"partition_index": 0, "timestamp": -1}]}],
        },
        ("topics", 0, "partitions", 0, "error_code"),
        ErrorCode.unknown_topic_or_partition,
    ),
    (
        "metadata of a topic that is not there",
        *(apis.METADATA, 12),
        {
            "topics": [{"name": "nowhere", "topic_id": None}],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        },
        ("topics", 0, "error_code"),
        ErrorCode.unknown_topic_or_partition,
    ),
    (
        "metadata of an id that is not there",
        *(apis.METADATA, 12),
        {
            "topics": [{"name": None, "topic_id": uuid4()}],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        },
        ("topics", 0, "error_code"),
        ErrorCode.unknown_topic_id,
    ),
    (
        "metadata of what is no name",
        *(apis.METADATA, 4),
        {"topics": [{"name": "no/name"}], "allow_auto_topic_creation": True},
        ("topics", 0, "error_code"),
        ErrorCode.invalid_topic_exception,
    ),
    (
        "delete of a topic that is not there",
        *(apis.DELETE_TOPICS, 6),
        {"topics": [{"name": "nowhere", "topic_id": None}], "timeout": 100},
        ("responses", 0, "error_code"),
        ErrorCode.unknown_topic_or_partition,
    ),
    (
        "delete of an id that is not there",
        *(apis.DELETE_TOPICS, 6),
        {"topics": [{"name": None, "topic_id": uuid4()}], "timeout": 100},
        ("responses", 0, "error_code"),
        ErrorCode.unknown_topic_id,
    ),
    (
        "delete by name and id at once",
        *(apis.DELETE_TOPICS, 6),
        {"topics": [{"name": "nowhere", "topic_id": uuid4()}], "timeout": 100},
        ("responses", 0, "error_code"),
        ErrorCode.invalid_request,
    ),
    (
        "more partitions for a topic that is not there",
        *(apis.CREATE_PARTITIONS, 3),
        {
            "topics": [{"name": "nowhere", "count": 3, "assignments": None}],
            "timeout": 100,
            "validate_only": False,
        },
        ("results", 0, "error_code"),
        ErrorCode.unknown_topic_or_partition,
    ),
    (
        "more partitions twice",
        *(apis.CREATE_PARTITIONS, 3),
        {
            "topics": [{"name": "nowhere", "count": 3, "assignments": None}] * 2,
            "timeout": 100,
            "validate_only": False,
        },
        ("results", 0, "error_code"),
        ErrorCode.invalid_request,
    ),
    (
        "settings of a topic that is not there",
        *(apis.DESCRIBE_CONFIGS, 4),
        {"resources": [{"resource_type": 2, "resource_name": "nowhere", "configuration_keys": None}]},
        ("results", 0, "error_code"),
        ErrorCode.unknown_topic_or_partition,
    ),
    (
        "deleting records of a topic that is not there",
        *(apis.DELETE_RECORDS, 2),
        {"topics": [{**TOPIC, "partitions": [{"partition_index": 0, "offset": 1}]}], "timeout": 100},
        ("topics", 0, "partitions", 0, "error_code"),
        ErrorCode.unknown_topic_or_partition,
    ),
    (
        "a leader's epoch of a topic that is not there",
        *(apis.OFFSET_FOR_LEADER_EPOCH, 4),
        {"topics": [{"topic": "nowhere", "partitions": [{"partition": 0, "leader_epoch": 0}]}]},
        ("topics", 0, "partitions", 0, "error_code"),
        ErrorCode.unknown_topic_or_partition,
    ),
    (
        "a coordinator of an unknown kind",
        *(apis.FIND_COORDINATOR, 4),
        {"key_type": 9, "coordinator_keys": ["x"]},
        ("coordinators", 0, "error_code"),
        ErrorCode.invalid_request,
    ),
    (
        "an election where there is no partition",
        *(apis.ELECT_LEADERS, 2),
        {"election_type": 0, "topic_partitions": [{"topic": "nowhere", "partitions": [0]}], "timeout": 1000},
        ("replica_election_results", 0, "partition_result", 0, "error_code"),
        ErrorCode.unknown_topic_or_partition,
    ),
    (
        "an election of an unknown kind",
        *(apis.ELECT_LEADERS, 2),
        {"election_type": 5, "topic_partitions": None, "timeout": 1000},
        ("error_code",),
        ErrorCode.invalid_request,
    ),
    (
        "a reassignment where there is no partition",
        *(apis.ALTER_PARTITION_REASSIGNMENTS, 0),
        {"topics": [{**TOPIC, "partitions": [{"partition_index": 0, "replicas": [1]}]}]},
        ("responses", 0, "partitions", 0, "error_code"),
        ErrorCode.unknown_topic_or_partition,
    ),
    (
        "a feature that there is not",
        *(apis.UPDATE_FEATURES, 1),
        {"feature_updates": [{"feature": "metadata.version", "max_version_level": 20, "upgrade_type": 1}]},
        ("results", 0, "error_code"),
        ErrorCode.invalid_request,
    ),
    (
        "brokers of a controller quorum",
        *(apis.DESCRIBE_CLUSTER, 1),
        {"include_cluster_authorized_operations": False, "endpoint_type": 2},
        ("error_code",),
        ErrorCode.mismatched_endpoint_type,
    ),
    (
        "SASL on a listener without",
        *(apis.SASL_HANDSHAKE, 1),
        {"mechanism": "PLAIN"},
        ("error_code",),
        ErrorCode.illegal_sasl_state,
    ),
    (
        "a SASL message on a listener without",
        *(apis.SASL_AUTHENTICATE, 2),
        {"auth_bytes": b"\0a\0b"},
        ("error_code",),
        ErrorCode.illegal_sasl_state,
    ),
    (
        "a token for nobody",
        *(apis.CREATE_DELEGATION_TOKEN, 3),
        {
            "owner_principal_type": None,
            "owner_principal_name": None,
            "renewers": [],
            "max_lifetime": -1,
        },
        ("error_code",),
        ErrorCode.delegation_token_request_not_allowed,
    ),
    (
        "a token for somebody of no kind",
        *(apis.CREATE_DELEGATION_TOKEN, 3),
        {
            "owner_principal_type": None,
            "owner_principal_name": "bob",
            "renewers": [],
            "max_lifetime": -1,
        },
        ("error_code",),
        ErrorCode.delegation_token_request_not_allowed,
    ),
    (
        "a password of a user that is not there",
        *(apis.DESCRIBE_USER_SCRAM_CREDENTIALS, 0),
        {"users": [{"name": "nobody"}]},
        ("results", 0, "error_code"),
        ErrorCode.resource_not_found,
    ),
    (
        "a quota of an unknown kind of entity",
        *(apis.DESCRIBE_CLIENT_QUOTAS, 1),
        {"components": [{"entity_type": "tenant", "match_type": 2, "match": None}], "strict": False},
        ("error_code",),
        ErrorCode.unsupported_version,
    ),
    (
        "an ACL on nothing that there is",
        *(apis.DESCRIBE_ACLS, 3),
        {
            "resource_type_filter": 99,
            "resource_name_filter": None,
            "pattern_type_filter": 1,
            "principal_filter": None,
            "host_filter": None,
            "operation": 1,
            "permission_type": 1,
        },
        ("error_code",),
        ErrorCode.invalid_request,
    ),
]


@pytest.mark.parametrize(
    ("what", "key", "version", "fields", "path", "code"), UNKNOWN, ids=[r[0] for r in UNKNOWN]
)
def test_api_what_is_not_there_has_kafkas_code(
    running: RunningBroker,
    what: str,
    key: int,
    version: int,
    fields: dict[str, Any],
    path: tuple[Any, ...],
    code: ErrorCode,
) -> None:
    with WireClient(running.bootstrap) as client:
        assert first(client.ask(key, version, **fields), *path) is code
