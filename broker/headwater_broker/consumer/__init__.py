"""The ZooKeeper consumer: a group without a coordinator, each member computing the same assignment for
itself.

Members register under `/consumers/<group>/ids`, claim `/consumers/<group>/owners/<topic>/<partition>` and
commit to `/consumers/<group>/offsets`, as in the Kafka paper and in Kafka 0.8; records come by librdkafka.
"""

from headwater_broker.consumer.assignment import range_assignment
from headwater_broker.consumer.consumer import ZooKeeperConsumer
from headwater_broker.consumer.fetcher import Fetcher, FetchError
from headwater_broker.consumer.record import Record

__all__ = ["FetchError", "Fetcher", "Record", "ZooKeeperConsumer", "range_assignment"]
