"""The table of APIs against kio's schemas and against what the server answers."""

from __future__ import annotations

import socket
import struct

import pytest
from kio.schema.index import api_key_map, schema_name_map

from headwater_broker.testing import broker
from headwater_broker.wire import APIS, Api
from headwater_broker.wire.apis import (
    CREATE_ACLS,
    DELETE_ACLS,
    DESCRIBE_ACLS,
    DESCRIBE_CONFIGS,
    WRITE_TXN_MARKERS,
)
from headwater_broker.wire.codec import message_type

KAFKA_3_9_HIGHEST = {
    "produce": 11,
    "fetch": 17,
    "list_offsets": 9,
    "metadata": 12,
    "offset_commit": 9,
    "offset_fetch": 9,
    "find_coordinator": 6,
    "join_group": 9,
    "heartbeat": 4,
    "leave_group": 5,
    "sync_group": 5,
    "describe_groups": 5,
    "list_groups": 5,
    "api_versions": 4,
    "create_topics": 7,
    "delete_topics": 6,
    "delete_records": 2,
    "init_producer_id": 5,
    "offset_for_leader_epoch": 4,
    "add_partitions_to_txn": 5,
    "add_offsets_to_txn": 4,
    "end_txn": 4,
    "write_txn_markers": 1,
    "txn_offset_commit": 4,
    "sasl_handshake": 1,
    "sasl_authenticate": 2,
    "describe_acls": 3,
    "create_acls": 3,
    "delete_acls": 3,
    "describe_configs": 4,
    "alter_replica_log_dirs": 2,
    "describe_log_dirs": 4,
    "alter_configs": 2,
    "create_partitions": 3,
    "delete_groups": 2,
    "incremental_alter_configs": 1,
    "offset_delete": 0,
    "create_delegation_token": 3,
    "renew_delegation_token": 2,
    "expire_delegation_token": 2,
    "describe_delegation_token": 3,
    "elect_leaders": 2,
    "alter_partition_reassignments": 0,
    "list_partition_reassignments": 0,
    "describe_client_quotas": 1,
    "alter_client_quotas": 1,
    "describe_user_scram_credentials": 0,
    "alter_user_scram_credentials": 0,
    "update_features": 1,
    "describe_cluster": 1,
    "describe_producers": 0,
    "describe_transactions": 0,
    "list_transactions": 1,
}
"""From `validVersions` of Apache Kafka 3.9's message definitions."""

FROM_KIOS_LOWEST = {DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS, DESCRIBE_CONFIGS, WRITE_TXN_MARKERS}
"""Their version 0 is not answered."""

each_api = pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)


@each_api
def test_apis_name_and_key_are_those_of_kio(api: Api) -> None:
    assert api_key_map[api.key] == api.name


@each_api
def test_apis_range_is_that_of_kafka(api: Api) -> None:
    known = schema_name_map[api.name]
    assert api.lowest == (min(known) if api.key in FROM_KIOS_LOWEST else 0)
    assert api.highest == KAFKA_3_9_HIGHEST[api.name]
    assert api.highest in known


@each_api
def test_apis_flexible_from_is_that_of_kio(api: Api) -> None:
    for version in range(max(api.lowest, min(schema_name_map[api.name])), api.highest + 1):
        assert api.is_flexible(version) == message_type(api.name, version, "request").__flexible__
        assert api.is_flexible(version) == message_type(api.name, version, "response").__flexible__


def test_apis_all_that_is_in_the_table_is_answered() -> None:
    with broker() as running, socket.create_connection((running.host, running.port)) as connection:
        connection.sendall(struct.pack(">ihhih", 10, 18, 0, 7, -1))
        size = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0]
        answer = connection.recv(size, socket.MSG_WAITALL)
    correlation_id, error, count = struct.unpack_from(">ihi", answer)
    assert (correlation_id, error) == (7, 0)
    listed = {struct.unpack_from(">hhh", answer, 10 + 6 * index) for index in range(count)}
    assert listed == {(api.key, api.lowest, api.highest) for api in APIS.values()}
