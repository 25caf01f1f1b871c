"""Apache Kafka's own `kafka-dump-log` reads what this broker wrote: log, indexes, producer snapshots."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from headwater_broker.testing import broker

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
DumpLog = Callable[..., str]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A topic for each codec, in several segments, written by an idempotent producer; the broker has stopped."""
    data = tmp_path_factory.mktemp("data")
    properties = {"log.segment.bytes": "16384", "log.index.interval.bytes": "1000"}
    with broker(data, properties=properties) as running:
        for codec in CODECS:
            producer = Producer(
                {
                    "bootstrap.servers": running.bootstrap,
                    "compression.type": codec,
                    "enable.idempotence": True,
                    "batch.num.messages": 20,
                    "linger.ms": 50,
                }
            )
            for index in range(600):
                # Lines that compress, but not to nothing.
                value = b" ".join(b"%d" % (index * factor) for factor in range(1, 30))
                stamp_ms = 1_600_000_000_000 + index * 10
                producer.produce(codec, value, key=b"k%d" % index, partition=0, timestamp=stamp_ms)
            assert producer.flush(30) == 0
    return data


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_dump_log_reads_every_record(written: Path, dump_log: DumpLog, codec: str) -> None:
    logs = sorted((written / f"{codec}-0").glob("*.log"))
    assert len(logs) > 1
    printed = dump_log(*logs, deep=True)
    offsets = [int(each) for each in re.findall(r"^\| offset: (\d+) CreateTime", printed, re.MULTILINE)]
    assert offsets == list(range(600))
    assert set(re.findall(r"compresscodec: (\w+)", printed)) == {codec}
    assert "isvalid: true" in printed


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_kafka_dump_log_checks_indexes_and_snapshots(written: Path, dump_log: DumpLog, codec: str) -> None:
    directory = written / f"{codec}-0"
    files = [*directory.glob("*.index"), *directory.glob("*.timeindex"), *directory.glob("*.snapshot")]
    printed = dump_log(*sorted(files))
    assert len(re.findall(r"^offset: \d+ position: \d+", printed, re.MULTILINE)) > 10
    assert len(re.findall(r"^timestamp: \d+ offset: \d+", printed, re.MULTILINE)) > 10
    assert re.search(r"producerId: \d+ producerEpoch: 0 .* lastSequence: 599", printed)
