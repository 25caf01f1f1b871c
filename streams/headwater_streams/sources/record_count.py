"""Counts the records of a range of offsets with a client of its own: what the broker gives, not what Spark read."""

from collections.abc import Mapping

from headwater_streams.sources.kafka_cluster import KafkaCluster
from headwater_streams.sources.partition_records import partition_reader


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
    count = 0
    with partition_reader(cluster, reading) as reader:
        for message in reader.records(topic, partition, start):
            if (message.offset() or 0) >= end:
                break
            count += 1
    return count
