"""A job's progress as a consumer group's committed offsets, for brokers without our ZooKeeper.

The group is named as the job and has no member, so that every tool that shows a group's lag shows the job's, on any
broker that speaks Kafka's protocol. Spark's own position is its checkpoint; nothing reads these offsets back.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from headwater_streams.base.errors import StreamsError
from headwater_streams.base.topics import bare_topic, cluster_of
from headwater_streams.sources.kafka_cluster import KafkaCluster
from headwater_streams.sources.topic_metadata import new_client

_log = logging.getLogger(__name__)


class GroupOffsets:
    """Commits a job's next offsets as those of a group."""

    def __init__(self, cluster: KafkaCluster, group: str, *, timeout_s: float = 5.0) -> None:
        """Args: the cluster, the group's name, how long a commit may take. The connection is made at the first."""
        self._cluster, self._group, self._timeout_s = cluster, group, timeout_s
        self._admin: AdminClient | None = None
        self._answered = _error_logger(group)

    def commit(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commits without waiting for the answer; the first refusal is logged, and the next batch commits again."""
        if not offsets:
            return  # a batch of Spark's own, to move its watermark
        if self._admin is None:
            self._admin = new_client(AdminClient, self._cluster.rdkafka(), self._cluster)
        places = [
            TopicPartition(bare_topic(topic), partition, offset)
            for (topic, partition), offset in offsets.items()
        ]
        futures = self._admin.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(self._group, places)], request_timeout=self._timeout_s
        )
        futures[self._group].add_done_callback(self._answered)


class GroupOffsetsOfClusters:
    """Commits a job's next offsets in each cluster whose topics it reads."""

    def __init__(self, cluster_named: Callable[[str], KafkaCluster], group: str) -> None:
        """Args: gives a cluster by its name, the default one by an empty name; the group's name."""
        self._cluster_named, self._group = cluster_named, group
        self._of: dict[str, GroupOffsets] = {}

    def commit(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """See `GroupOffsets`; where no brokers are known, nothing is committed."""
        for name in dict.fromkeys(cluster_of(topic) for topic, _ in offsets):
            try:
                cluster = self._cluster_named(name)
                if not cluster.bootstrap:
                    continue
                if name not in self._of:
                    self._of[name] = GroupOffsets(cluster, self._group)
                self._of[name].commit(
                    {place: offset for place, offset in offsets.items() if cluster_of(place[0]) == name}
                )
            except StreamsError as error:  # it would have stopped the batch, had the batch needed it
                _log.warning("job %r: its progress is not shown as a group's offsets: %s", self._group, error)


def _error_logger(group: str) -> Callable[[Any], None]:
    """A callback that takes the answers, in a thread of librdkafka's, and logs the first error.

    It refers to no client. With the last reference in a pending request, the client would be destroyed in that thread,
    and librdkafka then ends the process.
    """
    errors: list[object] = []

    def answered(future: Any) -> None:
        error = future.exception()
        if error is not None and not errors:
            errors.append(error)
            _log.warning("job %r: its progress is not shown as a group's offsets: %s", group, error)

    return answered
