"""What the Kafka verbs say of librdkafka's errors."""

from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from headwater.cli._kafka import Cluster


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("topic orders is there already", "topic orders is there already"),
        ("Partitions must be more than 0", "topic orders: partitions must be more than 0"),
    ],
)
def test_error_names_its_subject_once(said: str, told: str, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, "127.0.0.1:9092")
    assert str(cluster.explain(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS, said), "topic orders")) == told
