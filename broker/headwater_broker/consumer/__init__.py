"""The ZooKeeper consumer: a group without a coordinator, each member computing the same assignment for
itself.

Members register under `/consumers/<group>/ids`, claim `/consumers/<group>/owners/<topic>/<partition>` and
commit to `/consumers/<group>/offsets`, as in the Kafka paper and in Kafka 0.8; records come by librdkafka.
"""

from headwater_broker.consumer.assignment import STRATEGIES, StrategyName
from headwater_broker.consumer.consumer import NotAssignedError, ZooKeeperConsumer
from headwater_broker.consumer.fetcher import Fetcher, FetchError
from headwater_broker.consumer.record import Record

__all__ = [
    "STRATEGIES",
    "FetchError",
    "Fetcher",
    "NotAssignedError",
    "Record",
    "StrategyName",
    "ZooKeeperConsumer",
]
