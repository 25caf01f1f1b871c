"""How large the records of a topic are, by a look at some of them with a client of its own."""

from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaException, TopicPartition

from headwater_streams.base.errors import UnavailableError
from headwater_streams.sources.client_faults import Complaint
from headwater_streams.sources.kafka_cluster import KafkaCluster
from headwater_streams.sources.topic_metadata import new_client

_PLACES, _RECORDS, _SILENCE_S = 3, 100, 5.0


def mean_bytes(cluster: KafkaCluster, topic: str, ranges: Mapping[int, tuple[int, int]]) -> dict[int, float]:
    """The mean bytes of some records of each partition: at its beginning, its middle and its end.

    Args:
        cluster: The cluster.
        topic: The topic.
        ranges: The offsets of each partition.

    Returns:
        A partition of which no record came in time is not named.

    Raises:
        RefusedError: The broker and this client do not come together.
        UnavailableError: The broker does not give records.
    """
    complaints: list[Complaint] = []
    settings = {
        "group.id": "headwater-metadata",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        **cluster.rdkafka(complaints),
    }
    consumer, means = new_client(Consumer, settings, cluster), dict[int, float]()
    try:
        for partition, (start, end) in ranges.items():
            sizes = [
                size
                for place in range(_PLACES)
                for size in _sizes(
                    consumer, cluster.bare(topic), partition, start + (end - start) * place // _PLACES
                )
            ]
            if sizes:
                means[partition] = sum(sizes) / len(sizes)
    except KafkaException as error:
        raise UnavailableError(
            f"the broker at {cluster.bootstrap} does not give the records of {topic} ({error.args[0].str()})"
        ) from error
    finally:
        consumer.close()
    return means


def _sizes(consumer: Consumer, topic: str, partition: int, offset: int) -> list[int]:
    consumer.assign([TopicPartition(topic, partition, offset)])
    sizes: list[int] = []
    while len(sizes) < _RECORDS:
        message = consumer.poll(_SILENCE_S)
        if message is None or message.error() is not None:  # the partition's end, among others
            break
        headers = message.headers() or ()
        size = len(message.key() or b"") + len(message.value() or b"")
        sizes.append(size + sum(len(name) + len(value or b"") for name, value in headers))
    return sizes
