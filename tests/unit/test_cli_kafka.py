"""What the Kafka verbs say of librdkafka's errors."""

from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from headwater.cli._kafka import Cluster


@pytest.mark.parametrize(
    ("code", "said", "told"),
    [
        (KafkaError.TOPIC_ALREADY_EXISTS, "Topic 'orders' already exists.", "topic orders is there already"),
        (KafkaError.INVALID_PARTITIONS, "topic orders is full", "topic orders is full"),
        (KafkaError.INVALID_PARTITIONS, "Too few.", "topic orders: too few"),
    ],
)
def test_error_names_its_subject_once(code: int, said: str, told: str, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, "127.0.0.1:9092")
    assert str(cluster.explain(KafkaError(code, said), "topic orders")) == told
