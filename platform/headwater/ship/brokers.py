"""What shipping asks of the brokers besides taking records."""

from dataclasses import dataclass
from typing import Any, Protocol

from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigResource

from headwater.errors import UserError
from headwater.ship.errors import ShipError

_DEFAULT_MAX_BYTES = 1_048_588  # Kafka's own default of max.message.bytes


class Brokers(Protocol):
    """The cluster that a verb speaks to."""

    bootstrap: str
    timeout_s: float

    def client_properties(self) -> dict[str, Any]:
        """What every client starts from."""

    def admin(self) -> Any:
        """An admin client."""

    def explain(self, error: Any, subject: str) -> UserError:
        """The sentence for one of librdkafka's errors."""


def answers(brokers: Brokers) -> bool:
    """Whether a broker answers in time."""
    try:
        brokers.admin().list_topics(timeout=brokers.timeout_s)
    except KafkaException:
        return False
    return True


@dataclass(frozen=True)
class TopicLimits:
    """What a topic takes.

    Attributes:
        max_bytes: The most bytes that one of its record batches may have.
        oldest_ms: How old a record's timestamp may be; None if it may be of any age, or the brokers do not report it.
    """

    max_bytes: int
    oldest_ms: int | None = None


def require_topic(brokers: Brokers, topic: str) -> TopicLimits:
    """Requires that the topic exists; brokers that create topics on demand create it now.

    Returns:
        What it takes.

    Raises:
        ShipError: There is no such topic, and the brokers do not create it.
        UserError: They do not answer.
    """
    admin = brokers.admin()
    try:
        metadata = admin.list_topics(topic, timeout=brokers.timeout_s).topics[topic]
        # A topic that was just created has no leader yet.
        if (
            metadata.error is not None
            and not metadata.error.retriable()
            and metadata.error.name() not in _NOT_YET
        ):
            raise ShipError(f"topic {topic}: {metadata.error.str().lower()}")
        if metadata.error is not None and topic not in admin.list_topics(timeout=brokers.timeout_s).topics:
            raise ShipError(f"there is no topic {topic}: make it with headwater topics create {topic}")
    except KafkaException as error:
        raise brokers.explain(error.args[0], f"topic {topic}") from error
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    try:
        described = admin.describe_configs([resource], request_timeout=brokers.timeout_s)[resource].result()
        max_bytes = int(described["max.message.bytes"].value)
    except (KafkaException, KeyError):  # one may write to a topic without being allowed to describe it
        return TopicLimits(_DEFAULT_MAX_BYTES)
    ages_ms = [int(described[name].value) for name in _AGES if name in described]
    return TopicLimits(max_bytes, min(ages_ms, default=None))


_AGES = ("message.timestamp.before.max.ms", "message.timestamp.difference.max.ms")
"""The newer setting, and that of Kafka before 3.6 for both directions; one that is not set is the greatest number."""


_NOT_YET = ("UNKNOWN_TOPIC_OR_PART", "LEADER_NOT_AVAILABLE")
