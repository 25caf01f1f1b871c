"""`headwater consume` where a part of the log is lost or damaged: it says so, and never waits for ever."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headwater_broker.testing import broker

TIMEOUT_S = 60


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log directory with the topic t: batches of ten records, in segments of some."""
    data = tmp_path / "log"
    with broker(data) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1, config={"segment.bytes": "10000"})])["t"].result(TIMEOUT_S)
        producer = Producer({"bootstrap.servers": running.bootstrap, "batch.num.messages": 10})
        for number in range(1000):
            producer.produce("t", b"%d" % number, headers={"filling": b"x" * 60}, partition=0)
        assert producer.flush(TIMEOUT_S) == 0
    return data


def damage(segment: Path) -> None:
    """Overwrites the middle of a segment."""
    content = bytearray(segment.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 40] = b"\xff" * 40
    segment.write_bytes(content)


def read(headwater: Callable[..., Any], bootstrap: str, *arguments: str) -> Any:
    return headwater("consume", "t", "--bootstrap", bootstrap, *arguments)


def test_consume_tells_offsets_that_are_lost_and_reads_what_is_behind_them(headwater: Any, log: Path) -> None:
    logs = sorted((log / "t-0").glob("*.log"))
    first, behind = int(logs[2].stem), int(logs[3].stem)
    logs[2].unlink()
    with broker(log) as running:
        done = read(headwater, running.bootstrap)
        within = read(headwater, running.bootstrap, "--from", str(first + 3), "--to", str(behind + 2))
    told = "headwater: topic t: partition 0 has lost offsets {} to {}: reading goes on behind them\n"
    assert (done.returncode, done.stderr) == (0, told.format(first, behind - 1))
    assert done.stdout.split() == [str(each) for each in range(1000) if not first <= each < behind]
    assert (within.returncode, within.stderr) == (0, told.format(first + 3, behind - 1))
    assert within.stdout.split() == [str(behind), str(behind + 1)]


def test_consume_ends_at_a_batch_that_was_damaged_while_the_broker_runs(headwater: Any, log: Path) -> None:
    with broker(log) as running:
        assert read(headwater, running.bootstrap).stdout.split() == [str(each) for each in range(1000)]
        damage(sorted((log / "t-0").glob("*.log"))[2])
        done = read(headwater, running.bootstrap)
    assert done.returncode == 1
    assert "topic t: partition 0 is damaged in its log: MessageSet at offset " in done.stderr
    assert done.stdout.split() == [str(each) for each in range(len(done.stdout.split()))]


def test_consume_of_a_partition_that_goes_offline_meanwhile_ends(
    headwater: Any, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_CLIENT_TIMEOUT_S", "2")
    damage(sorted((log / "t-0").glob("*.log"))[2])
    with broker(log) as running:
        done = read(headwater, running.bootstrap)
    assert done.returncode == 1
    assert "topic t: partition 0 has no leader" in done.stderr
