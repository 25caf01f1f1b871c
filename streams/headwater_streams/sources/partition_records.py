"""The records of one partition, read with a client of its own and not with Spark."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from headwater_streams.base.errors import RefusedError, UnavailableError
from headwater_streams.sources.client_faults import Complaint
from headwater_streams.sources.kafka_cluster import KafkaCluster
from headwater_streams.sources.topic_metadata import forbidden, new_client

_SILENCE_S = 15.0


class PartitionReader:
    """Reads partitions of topics, one after the other; see `partition_reader`."""

    def __init__(self, cluster: KafkaCluster, consumer: Consumer, complaints: list[Complaint]) -> None:
        self._cluster, self._consumer, self._complaints = cluster, consumer, complaints

    def records(self, topic: str, partition: int, start: int) -> Iterator[Message]:
        """The records from an offset to the partition's end, as it is by then.

        Raises:
            RefusedError: This client may not read the topic, or the broker and it do not come together.
            UnavailableError: The broker does not answer, or does not give the records.
        """
        try:
            self._consumer.assign([TopicPartition(self._cluster.bare(topic), partition, start)])
            yield from self._to_the_end(topic)
        except KafkaException as error:
            raise UnavailableError(
                f"the broker at {self._cluster.bootstrap} does not give the records of {topic} {partition} "
                f"({error.args[0].str()})"
            ) from error

    def _to_the_end(self, topic: str) -> Iterator[Message]:
        while True:
            message = self._consumer.poll(_SILENCE_S)
            if message is None:
                fault = self._cluster.fault(self._complaints)
                if fault is not None:
                    raise fault
                raise UnavailableError(f"the broker at {self._cluster.bootstrap} does not answer; is it up?")
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                return
            elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise RefusedError(forbidden(self._cluster, topic), topic)
            elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
                # Of that one librdkafka complains, as it asks for its group's coordinator even where partitions are
                # assigned and nothing is committed. The records come all the same.
                raise KafkaException(error)


@contextmanager
def partition_reader(
    cluster: KafkaCluster, settings: Mapping[str, str] = MappingProxyType({})
) -> Iterator[PartitionReader]:
    """A reader, for a `with` block.

    Args:
        cluster: The cluster.
        settings: Further settings of the consumer, such as `isolation.level`.

    Raises:
        RefusedError: The settings of the cluster are wrong.
    """
    complaints: list[Complaint] = []
    properties = {
        "group.id": "headwater-metadata",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        **cluster.rdkafka(complaints),
        **settings,
    }
    consumer = new_client(Consumer, properties, cluster)
    try:
        yield PartitionReader(cluster, consumer, complaints)
    finally:
        consumer.close()
