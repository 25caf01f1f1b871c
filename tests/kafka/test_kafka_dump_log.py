"""Apache Kafka's own `kafka-dump-log` reads what this broker wrote: log, indexes, producer snapshots."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headwater_broker.testing import RunningBroker, broker

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
DumpLog = Callable[..., str]

pytestmark = pytest.mark.story

# librdkafka leaves a batch as it is where compression would not make it smaller, as with a lone record. It waits
# this long for a batch to fill, and `flush` ends the wait when all are there, so that every batch is whole.
WHOLE_BATCHES_MS = 60_000


def write_compacted(running: RunningBroker) -> None:
    """A topic for each codec with four keys, compacted until one record of each but the newest is left."""
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "segment.bytes": "2000"}
    topics = [NewTopic(f"compacted-{codec}", 1, 1, config=settings) for codec in CODECS]
    for future in admin.create_topics(topics).values():
        future.result(60)
    for codec in CODECS:
        producer = Producer(
            {
                "bootstrap.servers": running.bootstrap,
                "compression.type": codec,
                "batch.num.messages": 5,
                "linger.ms": WHOLE_BATCHES_MS,
            }
        )
        for index in range(200):
            value = None if index % 4 == 3 else b"%d" % index * 20
            producer.produce(f"compacted-{codec}", value, key=b"k%d" % (index % 4), partition=0)
        assert producer.flush(60) == 0
    deadline = time.monotonic() + 60
    for codec in CODECS:
        while not _is_clean(running.data_dir, f"compacted-{codec}"):
            assert time.monotonic() < deadline, f"{codec} is not compacted"
            time.sleep(0.05)


def _is_clean(data: Path, topic: str) -> bool:
    """Whether the cleaner has been over everything but the active segment; it keeps its place in a file."""
    checkpoint = data / "cleaner-offset-checkpoint"
    lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
    places = {line.split()[0]: int(line.split()[2]) for line in lines if len(line.split()) == 3}
    active = max(int(path.stem) for path in (data / f"{topic}-0").glob("*.log"))
    return places.get(topic, -1) == active > 0


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A topic for each codec, in several segments, written by an idempotent producer; the broker has stopped."""
    data = tmp_path_factory.mktemp("data")
    properties = {
        "log.segment.bytes": "16384",
        "log.index.interval.bytes": "1000",
        "log.cleaner.backoff.ms": "100",
        "log.segment.delete.delay.ms": "0",
    }
    with broker(data, properties=properties) as running:
        write_compacted(running)
        for codec in CODECS:
            producer = Producer(
                {
                    "bootstrap.servers": running.bootstrap,
                    "compression.type": codec,
                    "enable.idempotence": True,
                    "batch.num.messages": 20,
                    "linger.ms": WHOLE_BATCHES_MS,
                }
            )
            for index in range(600):
                # Lines that compress, but not to nothing.
                value = b" ".join(b"%d" % (index * factor) for factor in range(1, 30))
                stamp_ms = 1_600_000_000_000 + index * 10
                producer.produce(codec, value, key=b"k%d" % index, partition=0, timestamp=stamp_ms)
            assert producer.flush(60) == 0
    return data


Printed = Callable[[list[Path]], str]


@pytest.fixture(scope="module")
def printed(written: Path, dump_log: DumpLog) -> Printed:
    """Gives what the tool printed of some files, all of which it read in two runs: of a log each record."""
    names = [*CODECS, *(f"compacted-{codec}" for codec in CODECS)]
    files = [path for name in names for path in sorted((written / f"{name}-0").iterdir())]
    logs = [path for path in files if path.suffix == ".log"]
    others = [path for path in files if path.suffix in (".index", ".timeindex", ".snapshot")]
    pieces = re.split(r"^Dumping (.+)\n", dump_log(*logs, deep=True) + dump_log(*others), flags=re.MULTILINE)
    by_file = dict(zip(pieces[1::2], pieces[2::2], strict=True))
    return lambda paths: "".join(by_file[str(path)] for path in paths)


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_dump_log_reads_every_record(written: Path, printed: Printed, codec: str) -> None:
    logs = sorted((written / f"{codec}-0").glob("*.log"))
    assert len(logs) > 1
    text = printed(logs)
    offsets = [int(each) for each in re.findall(r"^\| offset: (\d+) CreateTime", text, re.MULTILINE)]
    assert offsets == list(range(600))
    assert set(re.findall(r"compresscodec: (\w+)", text)) == {codec}
    assert "isvalid: true" in text


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_kafka_dump_log_checks_indexes_and_snapshots(written: Path, printed: Printed, codec: str) -> None:
    directory = written / f"{codec}-0"
    files = [*directory.glob("*.index"), *directory.glob("*.timeindex"), *directory.glob("*.snapshot")]
    text = printed(sorted(files))
    assert len(re.findall(r"^offset: \d+ position: \d+", text, re.MULTILINE)) > 10
    assert len(re.findall(r"^timestamp: \d+ offset: \d+", text, re.MULTILINE)) > 10
    assert re.search(r"producerId: \d+ producerEpoch: 0 .* lastSequence: 599", text)


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_dump_log_reads_what_compaction_wrote(written: Path, printed: Printed, codec: str) -> None:
    directory = written / f"compacted-{codec}-0"
    logs = sorted(directory.glob("*.log"))
    active = int(logs[-1].stem)
    text = printed(logs)
    offsets = [int(each) for each in re.findall(r"^\| offset: (\d+) CreateTime", text, re.MULTILINE)]
    assert offsets == sorted(set(offsets))
    assert len([offset for offset in offsets if offset < active]) == 4  # The newest of each key.
    assert {196, 197, 198, 199} <= set(offsets)
    # librdkafka sends a batch as it is where compression would save nothing, as of one record.
    assert codec in (codecs := set(re.findall(r"compresscodec: (\w+)", text)))
    assert codecs <= {codec, "none"}
    assert "deleteHorizonMs: OptionalLong[" in text
    indexes = sorted([*directory.glob("*.index"), *directory.glob("*.timeindex")])
    assert indexes
    printed(indexes)  # the tool has found nothing wrong in any


def test_kafka_dump_log_reads_a_directory_that_is_in_use(tmp_path: Path, dump_log: DumpLog) -> None:
    with broker(tmp_path, properties={"log.index.interval.bytes": "1000"}) as running:
        producer = Producer({"bootstrap.servers": running.bootstrap, "batch.num.messages": 20})
        for index in range(600):
            stamp_ms = 1_600_000_000_000 + index * 10
            producer.produce("used", b"%d" % index * 30, partition=0, timestamp=stamp_ms)
        assert producer.flush(60) == 0
        deadline = time.monotonic() + 60
        while (tmp_path / "used-0" / f"{0:020d}.index").stat().st_size < 10 * 8:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        newest = [tmp_path / "used-0" / f"{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex")]
        text = dump_log(newest[0], deep=True) + dump_log(*newest[1:])
    assert len(re.findall(r"^\| offset: (\d+) CreateTime", text, re.MULTILINE)) == 600
    assert len(re.findall(r"^offset: \d+ position: \d+", text, re.MULTILINE)) >= 10
    assert len(re.findall(r"^timestamp: \d+ offset: \d+", text, re.MULTILINE)) >= 10
