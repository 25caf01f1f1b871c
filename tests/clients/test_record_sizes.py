"""How large a topic's records are, as a load looks at some of them."""

import pytest
from confluent_kafka import Producer

from headwater_broker.testing import broker
from headwater_streams.sources.kafka_cluster import KafkaCluster
from headwater_streams.sources.record_sizes import mean_bytes


def test_mean_bytes_are_of_key_value_and_headers() -> None:
    with broker(properties={"num.partitions": "2"}) as running:
        producer = Producer({"bootstrap.servers": running.bootstrap})
        for _ in range(50):
            producer.produce("sizes", key=b"12", value=b"x" * 98, headers={"h": b"1"}, partition=0)
        producer.produce("sizes", value=b"x" * 1000, partition=1)
        producer.flush()
        means = mean_bytes(KafkaCluster(running.bootstrap), "sizes", {0: (0, 50), 1: (0, 1)})
    assert means[0] == pytest.approx(102)
    assert means[1] == pytest.approx(1000)
