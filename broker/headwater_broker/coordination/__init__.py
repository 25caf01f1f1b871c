"""Everything that touches ZooKeeper, behind one interface with an in-memory twin.

`Coordinator` is the interface; `ZooKeeperCoordinator` keeps Kafka's own layout and JSON, `MemoryCoordinator`
keeps the same things in the process and, if given a directory, in one JSON file. `JobLease` is what a
running job holds: the ownership of its input partitions.
"""

from headwater_broker.coordination.api import Assignment, Coordinator
from headwater_broker.coordination.errors import (
    AlreadyExists,
    AlreadyOwned,
    BrokerIdInUse,
    Conflict,
    CoordinationError,
    CoordinatorUnavailable,
    CorruptState,
    DoesNotExist,
    LeaseLost,
    SessionLost,
)
from headwater_broker.coordination.lease import JobLease, Lease
from headwater_broker.coordination.memory import MemoryCoordinator
from headwater_broker.coordination.memory_cluster import MemoryCluster
from headwater_broker.coordination.memory_lease import MemoryJobLease
from headwater_broker.coordination.model import (
    NO_LEADER,
    PRODUCER_ID_BLOCK_SIZE,
    BrokerInfo,
    Change,
    ChangeKind,
    Committed,
    ConfigKind,
    Controller,
    Endpoint,
    PartitionState,
    TopicPartition,
    TopicState,
)
from headwater_broker.coordination.zookeeper.coordinator import ZooKeeperCoordinator

__all__ = [
    "NO_LEADER",
    "PRODUCER_ID_BLOCK_SIZE",
    "AlreadyExists",
    "AlreadyOwned",
    "Assignment",
    "BrokerIdInUse",
    "BrokerInfo",
    "Change",
    "ChangeKind",
    "Committed",
    "ConfigKind",
    "Conflict",
    "Controller",
    "CoordinationError",
    "Coordinator",
    "CoordinatorUnavailable",
    "CorruptState",
    "DoesNotExist",
    "Endpoint",
    "JobLease",
    "Lease",
    "LeaseLost",
    "MemoryCluster",
    "MemoryCoordinator",
    "MemoryJobLease",
    "PartitionState",
    "SessionLost",
    "TopicPartition",
    "TopicState",
    "ZooKeeperCoordinator",
]
