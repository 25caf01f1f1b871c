"""Counts the records of a range of offsets with a client of its own: what the broker gives, not what Spark read."""

from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from headwater_streams.base.errors import UnavailableError

_SILENCE_S = 15.0


def count_records(
    bootstrap: str, reading: Mapping[str, str], topic: str, partition: int, start: int, end: int
) -> int:
    """The number of records in the offsets `[start, end)`.

    Args:
        bootstrap: The broker's `host:port`.
        reading: Further settings of the consumer, such as `isolation.level`.
        topic: The topic.
        partition: The partition.
        start: The first offset.
        end: One past the last.

    Raises:
        UnavailableError: The broker does not answer.
    """
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "headwater-metadata",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        **reading,
    }
    consumer, count = Consumer(settings, logger=None), 0
    try:
        consumer.assign([TopicPartition(topic, partition, start)])
        while True:
            message = consumer.poll(_SILENCE_S)
            if message is None:
                raise UnavailableError(f"the broker at {bootstrap} does not answer; is it up?")
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                raise KafkaException(error)
            if error is not None or (message.offset() or 0) >= end:
                return count
            count += 1
    except KafkaException as error:
        raise UnavailableError(
            f"the broker at {bootstrap} does not give the records of {topic} {partition} ({error.args[0].str()})"
        ) from error
    finally:
        consumer.close()
