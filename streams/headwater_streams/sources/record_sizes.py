"""How large the records of a topic are, by a look at some of them with a client of its own."""

from collections.abc import Mapping
from itertools import islice
from statistics import fmean

from confluent_kafka import Message

from headwater_streams.sources.kafka_cluster import KafkaCluster
from headwater_streams.sources.partition_records import partition_reader

_PLACES, _RECORDS = 3, 100


def mean_bytes(cluster: KafkaCluster, topic: str, ranges: Mapping[int, tuple[int, int]]) -> dict[int, float]:
    """The mean bytes of some records of each partition: at its beginning, its middle and its last third.

    Args:
        cluster: The cluster.
        topic: The topic.
        ranges: The offsets of each partition.

    Returns:
        A partition without records is not named.

    Raises:
        RefusedError: The broker and this client do not come together, or it may not read the topic.
        UnavailableError: The broker does not answer.
    """
    means: dict[int, float] = {}
    with partition_reader(cluster, {"auto.offset.reset": "earliest"}) as reader:
        for partition, (start, end) in ranges.items():
            places = [start + (end - start) * place // _PLACES for place in range(_PLACES)]
            sizes = [
                _size(message)
                for place in places
                for message in islice(reader.records(topic, partition, place), _RECORDS)
            ]
            if sizes:
                means[partition] = fmean(sizes)
    return means


def _size(message: Message) -> int:
    headers = message.headers() or ()
    size = len(message.key() or b"") + len(message.value() or b"")
    return size + sum(len(name) + len(value or b"") for name, value in headers)
