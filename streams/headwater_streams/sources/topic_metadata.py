"""A topic's partitions and their offsets, asked of the broker."""

from confluent_kafka import Consumer, KafkaException, TopicPartition

from headwater_streams.errors import JobDefinitionError, StreamsError

_TIMEOUT_S = 10.0


def partitions(bootstrap: str, topic: str) -> dict[int, tuple[int, int]]:
    """The topic's partitions, each with its earliest and its next offset.

    Raises:
        JobDefinitionError: There is no such topic; the message names those that are.
        StreamsError: The broker does not answer.
    """
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "headwater-metadata",
        "allow.auto.create.topics": False,
    }
    consumer = Consumer({**settings, "enable.auto.commit": False}, logger=None)
    try:
        topics = consumer.list_topics(timeout=_TIMEOUT_S).topics
        if topic not in topics or topics[topic].error is not None:
            there = ", ".join(sorted(name for name in topics if not name.startswith("__"))) or "none"
            raise JobDefinitionError(
                f"there is no topic {topic!r}; the broker has {there} (make it with: headwater topics create {topic})"
            )
        found = {}
        for partition in sorted(topics[topic].partitions):
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_TIMEOUT_S)
            found[partition] = (low, high)
        return found
    except KafkaException as error:
        raise StreamsError(
            f"the broker at {bootstrap} does not answer ({error.args[0].str()}); is it up?"
        ) from error
    finally:
        consumer.close()
