"""Counts the records of a range of offsets with a client of its own: what the broker gives, not what Spark read."""

from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from headwater_streams.base.errors import RefusedError, UnavailableError
from headwater_streams.sources.client_faults import Complaint
from headwater_streams.sources.kafka_cluster import KafkaCluster
from headwater_streams.sources.topic_metadata import forbidden, new_client

_SILENCE_S = 15.0


def count_records(
    cluster: KafkaCluster, reading: Mapping[str, str], topic: str, partition: int, start: int, end: int
) -> int:
    """The number of records in the offsets `[start, end)`.

    Args:
        cluster: The cluster.
        reading: Further settings of the consumer, such as `isolation.level`.
        topic: The topic.
        partition: The partition.
        start: The first offset.
        end: One past the last.

    Raises:
        RefusedError: The broker and this client do not come together, or it may not read the topic.
        UnavailableError: The broker does not answer.
    """
    complaints: list[Complaint] = []
    settings = {
        "group.id": "headwater-metadata",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        **cluster.rdkafka(complaints),
        **reading,
    }
    consumer, count = new_client(Consumer, settings, cluster), 0
    try:
        consumer.assign([TopicPartition(cluster.bare(topic), partition, start)])
        while True:
            message = consumer.poll(_SILENCE_S)
            if message is None:
                fault = cluster.fault(complaints)
                if fault is not None:
                    raise fault
                raise UnavailableError(f"the broker at {cluster.bootstrap} does not answer; is it up?")
            error = message.error()
            if error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                # librdkafka asks for its group's coordinator even where partitions are assigned and nothing is
                # committed. The records come all the same.
                continue
            if error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise RefusedError(forbidden(cluster, topic), topic)
            if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                raise KafkaException(error)
            if error is not None or (message.offset() or 0) >= end:
                return count
            count += 1
    except KafkaException as error:
        raise UnavailableError(
            f"the broker at {cluster.bootstrap} does not give the records of {topic} {partition} "
            f"({error.args[0].str()})"
        ) from error
    finally:
        consumer.close()
