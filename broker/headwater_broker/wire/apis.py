"""The one table of the APIs that this broker answers, and of their versions.

The highest version is Apache Kafka 3.9's, so that clients which infer a broker's release from this table read 3.9. So
is the lowest, but for ACLs, DescribeConfigs and WriteTxnMarkers, which begin with 1, where kio has its first schema
(kio carries Kafka 4's schemas, which dropped the oldest). Others that kio does not have are answered for producers,
consumers and tools from before Kafka 0.11 (librdkafka, sarama and kafkajs still ask like them): Produce and Fetch by
hand, the rest by `older` and `list_offsets_v0`. ApiVersions answers any version.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

PRODUCE = 0
FETCH = 1
LIST_OFFSETS = 2
METADATA = 3
OFFSET_COMMIT = 8
OFFSET_FETCH = 9
FIND_COORDINATOR = 10
JOIN_GROUP = 11
HEARTBEAT = 12
LEAVE_GROUP = 13
SYNC_GROUP = 14
DESCRIBE_GROUPS = 15
LIST_GROUPS = 16
SASL_HANDSHAKE = 17
API_VERSIONS = 18
CREATE_TOPICS = 19
DELETE_TOPICS = 20
DELETE_RECORDS = 21
INIT_PRODUCER_ID = 22
OFFSET_FOR_LEADER_EPOCH = 23
ADD_PARTITIONS_TO_TXN = 24
ADD_OFFSETS_TO_TXN = 25
END_TXN = 26
WRITE_TXN_MARKERS = 27
TXN_OFFSET_COMMIT = 28
DESCRIBE_ACLS = 29
CREATE_ACLS = 30
DELETE_ACLS = 31
DESCRIBE_CONFIGS = 32
ALTER_CONFIGS = 33
ALTER_REPLICA_LOG_DIRS = 34
DESCRIBE_LOG_DIRS = 35
SASL_AUTHENTICATE = 36
CREATE_PARTITIONS = 37
CREATE_DELEGATION_TOKEN = 38
RENEW_DELEGATION_TOKEN = 39
EXPIRE_DELEGATION_TOKEN = 40
DESCRIBE_DELEGATION_TOKEN = 41
DELETE_GROUPS = 42
ELECT_LEADERS = 43
INCREMENTAL_ALTER_CONFIGS = 44
ALTER_PARTITION_REASSIGNMENTS = 45
LIST_PARTITION_REASSIGNMENTS = 46
OFFSET_DELETE = 47
DESCRIBE_CLIENT_QUOTAS = 48
ALTER_CLIENT_QUOTAS = 49
DESCRIBE_USER_SCRAM_CREDENTIALS = 50
ALTER_USER_SCRAM_CREDENTIALS = 51
UPDATE_FEATURES = 57
DESCRIBE_CLUSTER = 60
DESCRIBE_PRODUCERS = 61
DESCRIBE_TRANSACTIONS = 65
LIST_TRANSACTIONS = 66


@dataclass(frozen=True, slots=True)
class Api:
    """One API: its versions as advertised, and the first one with the flexible encoding of KIP-482.

    Attributes:
        key: The number on the wire.
        name: kio's name of its schema package.
        lowest: Lowest version advertised.
        highest: Highest version advertised and answered.
        flexible_from: First flexible version, or None where no version is.
    """

    key: int
    name: str
    lowest: int
    highest: int
    flexible_from: int | None

    def is_flexible(self, version: int) -> bool:
        """Whether this version has tagged fields and compact lengths."""
        return self.flexible_from is not None and version >= self.flexible_from


APIS: Mapping[int, Api] = MappingProxyType(
    {
        api.key: api
        for api in (
            Api(PRODUCE, "produce", 0, 11, 9),
            Api(FETCH, "fetch", 0, 17, 12),
            Api(LIST_OFFSETS, "list_offsets", 0, 9, 6),
            Api(METADATA, "metadata", 0, 12, 9),
            Api(OFFSET_COMMIT, "offset_commit", 0, 9, 8),
            Api(OFFSET_FETCH, "offset_fetch", 0, 9, 6),
            Api(FIND_COORDINATOR, "find_coordinator", 0, 6, 3),
            Api(JOIN_GROUP, "join_group", 0, 9, 6),
            Api(HEARTBEAT, "heartbeat", 0, 4, 4),
            Api(LEAVE_GROUP, "leave_group", 0, 5, 4),
            Api(SYNC_GROUP, "sync_group", 0, 5, 4),
            Api(DESCRIBE_GROUPS, "describe_groups", 0, 5, 5),
            Api(LIST_GROUPS, "list_groups", 0, 5, 3),
            Api(SASL_HANDSHAKE, "sasl_handshake", 0, 1, None),
            Api(API_VERSIONS, "api_versions", 0, 4, 3),
            Api(CREATE_TOPICS, "create_topics", 0, 7, 5),
            Api(DELETE_TOPICS, "delete_topics", 0, 6, 4),
            Api(DELETE_RECORDS, "delete_records", 0, 2, 2),
            Api(INIT_PRODUCER_ID, "init_producer_id", 0, 5, 2),
            Api(OFFSET_FOR_LEADER_EPOCH, "offset_for_leader_epoch", 0, 4, 4),
            Api(ADD_PARTITIONS_TO_TXN, "add_partitions_to_txn", 0, 5, 3),
            Api(ADD_OFFSETS_TO_TXN, "add_offsets_to_txn", 0, 4, 3),
            Api(END_TXN, "end_txn", 0, 4, 3),
            Api(WRITE_TXN_MARKERS, "write_txn_markers", 1, 1, 1),
            Api(TXN_OFFSET_COMMIT, "txn_offset_commit", 0, 4, 3),
            Api(DESCRIBE_ACLS, "describe_acls", 1, 3, 2),
            Api(CREATE_ACLS, "create_acls", 1, 3, 2),
            Api(DELETE_ACLS, "delete_acls", 1, 3, 2),
            Api(DESCRIBE_CONFIGS, "describe_configs", 1, 4, 4),
            Api(ALTER_CONFIGS, "alter_configs", 0, 2, 2),
            Api(ALTER_REPLICA_LOG_DIRS, "alter_replica_log_dirs", 0, 2, 2),
            Api(DESCRIBE_LOG_DIRS, "describe_log_dirs", 0, 4, 2),
            Api(SASL_AUTHENTICATE, "sasl_authenticate", 0, 2, 2),
            Api(CREATE_PARTITIONS, "create_partitions", 0, 3, 2),
            Api(CREATE_DELEGATION_TOKEN, "create_delegation_token", 0, 3, 2),
            Api(RENEW_DELEGATION_TOKEN, "renew_delegation_token", 0, 2, 2),
            Api(EXPIRE_DELEGATION_TOKEN, "expire_delegation_token", 0, 2, 2),
            Api(DESCRIBE_DELEGATION_TOKEN, "describe_delegation_token", 0, 3, 2),
            Api(DELETE_GROUPS, "delete_groups", 0, 2, 2),
            Api(ELECT_LEADERS, "elect_leaders", 0, 2, 2),
            Api(INCREMENTAL_ALTER_CONFIGS, "incremental_alter_configs", 0, 1, 1),
            Api(ALTER_PARTITION_REASSIGNMENTS, "alter_partition_reassignments", 0, 0, 0),
            Api(LIST_PARTITION_REASSIGNMENTS, "list_partition_reassignments", 0, 0, 0),
            Api(OFFSET_DELETE, "offset_delete", 0, 0, None),
            Api(DESCRIBE_CLIENT_QUOTAS, "describe_client_quotas", 0, 1, 1),
            Api(ALTER_CLIENT_QUOTAS, "alter_client_quotas", 0, 1, 1),
            Api(DESCRIBE_USER_SCRAM_CREDENTIALS, "describe_user_scram_credentials", 0, 0, 0),
            Api(ALTER_USER_SCRAM_CREDENTIALS, "alter_user_scram_credentials", 0, 0, 0),
            Api(UPDATE_FEATURES, "update_features", 0, 1, 0),
            Api(DESCRIBE_CLUSTER, "describe_cluster", 0, 1, 0),
            Api(DESCRIBE_PRODUCERS, "describe_producers", 0, 0, 0),
            Api(DESCRIBE_TRANSACTIONS, "describe_transactions", 0, 0, 0),
            Api(LIST_TRANSACTIONS, "list_transactions", 0, 1, 0),
        )
    }
)
