"""A job's progress as a consumer group's committed offsets, for brokers without our ZooKeeper.

The group is named as the job and has no member, so that every tool that shows a group's lag shows the job's, on any
broker that speaks Kafka's protocol. Spark's own position is its checkpoint; nothing reads these offsets back.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from headwater_streams.sources.topic_metadata import SILENT

_log = logging.getLogger(__name__)


class GroupOffsets:
    """Commits a job's next offsets as those of a group."""

    def __init__(self, bootstrap: str, group: str, *, timeout_s: float = 5.0) -> None:
        """Args: the brokers, the group's name, how long a commit may take. The connection is made at the first."""
        self._bootstrap, self._group, self._timeout_s = bootstrap, group, timeout_s
        self._admin: AdminClient | None = None
        self._answered = _error_logger(group)

    def commit(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commits without waiting for the answer; the first refusal is logged, and the next batch commits again."""
        if not offsets:
            return  # a batch of Spark's own, to move its watermark
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self._bootstrap}, logger=SILENT)
        places = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        futures = self._admin.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(self._group, places)], request_timeout=self._timeout_s
        )
        futures[self._group].add_done_callback(self._answered)


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
