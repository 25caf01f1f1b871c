"""Offsets by time: a broker and the driver's records answer alike, also where timestamps go back."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from headwater_broker.testing import broker
from headwater_streams.sources.reader import KafkaSource, RecordSource
from headwater_streams.testing.record_log import RecordLog

NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)
SECONDS = {0: (0, 10, 5, 20, 15), 1: (3,), 2: ()}
"""Of each partition's records, after noon."""


def _of_a_broker(_: SparkSession, __: Path) -> Iterator[RecordSource]:
    with broker() as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
        for future in admin.create_topics([NewTopic("t", len(SECONDS), 1)]).values():
            future.result()
        producer = Producer({"bootstrap.servers": running.bootstrap})
        for partition, seconds in SECONDS.items():
            for second in seconds:
                producer.produce("t", b"", partition=partition, timestamp=_us(second) // 1000)
        assert producer.flush(10) == 0
        yield KafkaSource(running.bootstrap)


def _of_the_driver(spark: SparkSession, folder: Path) -> Iterator[RecordSource]:
    log = RecordLog(spark, folder)
    records = [
        {
            "topic": "t",
            "partition": partition,
            "offset": offset,
            "timestamp": NOON + timedelta(seconds=second),
        }
        for partition, seconds in SECONDS.items()
        for offset, second in enumerate(seconds)
    ]
    log.append("t", records, {partition: (0, len(seconds)) for partition, seconds in SECONDS.items()})
    yield log


@pytest.mark.story
@pytest.mark.parametrize("source_of", [_of_a_broker, _of_the_driver])
def test_first_since_is_where_kafka_begins(
    spark: SparkSession,
    tmp_path: Path,
    source_of: Callable[[SparkSession, Path], Iterator[RecordSource]],
) -> None:
    for source in source_of(spark, tmp_path):
        assert source.first_since("t", _us(0)) == {0: 0, 1: 0}
        assert source.first_since("t", _us(0) + 1) == {0: 1, 1: 0}
        assert source.first_since("t", _us(3)) == {0: 1, 1: 0}
        assert source.first_since("t", _us(11)) == {0: 3}
        assert source.first_since("t", _us(20)) == {0: 3}
        assert source.first_since("t", _us(21)) == {}


def _us(second: int) -> int:
    return round((NOON + timedelta(seconds=second)).timestamp() * 1e6)
