"""Reads what a cluster's mirrors keep, and goes on reading: a batch asks for the runs of its own offsets."""

from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from headwater_streams.base.errors import UnavailableError
from headwater_streams.sources.kafka_cluster import KafkaCluster
from headwater_streams.sources.mirrored import MIRROR_TOPIC, MirrorMap
from headwater_streams.sources.topic_metadata import new_client

_TIMEOUT_S = 10.0
_PLACE = TopicPartition(MIRROR_TOPIC, 0, OFFSET_BEGINNING)


class MirrorReader:
    """What is kept of mirrors into one cluster."""

    def __init__(self, cluster: KafkaCluster) -> None:
        """Args: the cluster; it is asked when something is first wanted of it."""
        self._cluster = cluster
        self._map = MirrorMap()
        self._consumer: Any = None
        self._is_assigned = False
        self._next = 0

    def newest(self) -> MirrorMap:
        """All that is kept now. A mirror keeps a run before it writes the run's first record.

        Raises:
            RefusedError: The brokers refuse this client.
            UnavailableError: They do not answer.
        """
        try:
            return self._read()
        except KafkaException as error:
            raise UnavailableError(
                f"the brokers at {self._cluster.bootstrap} do not send {MIRROR_TOPIC} ({error.args[0].str()}); "
                "are they up?"
            ) from error

    @property
    def read_to(self) -> int:
        """The offset up to which `newest` has read."""
        return self._next

    def close(self) -> None:
        """Lets go of the connection; `newest` makes another one."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer, self._is_assigned = None, False
        self._next, self._map = 0, MirrorMap()

    def _read(self) -> MirrorMap:
        if self._consumer is None:
            self._consumer = new_client(Consumer, self._settings(), self._cluster)
        if not self._is_assigned:  # a topic that is asked for by name may be made by the brokers
            if MIRROR_TOPIC not in self._consumer.list_topics(timeout=_TIMEOUT_S).topics:
                return self._map
            self._consumer.assign([_PLACE])
            self._is_assigned = True
        _, end = self._consumer.get_watermark_offsets(_PLACE, timeout=_TIMEOUT_S)
        while self._next < end:
            message = self._consumer.poll(_TIMEOUT_S)
            if message is None:
                raise UnavailableError(f"the brokers at {self._cluster.bootstrap} do not send {MIRROR_TOPIC}")
            if message.error() is None:
                self._map.read(message.key(), message.value())
                self._next = message.offset() + 1
            elif message.error().name() == "_PARTITION_EOF":  # the last offsets may have no records any more
                self._next = message.offset()
                if message.offset() >= end:
                    break
            elif message.error().name() != "GROUP_AUTHORIZATION_FAILED":  # of a group that is not used
                raise KafkaException(message.error())
        return self._map

    def _settings(self) -> dict[str, Any]:
        return {
            "group.id": "headwater-mirror-map",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "allow.auto.create.topics": False,
            "isolation.level": "read_committed",
            **self._cluster.rdkafka([]),
        }
