"""kill -9 of a process that appends: what it acknowledged is there, whole and in order."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kio.records.readers import read_batch

from amount import amount, drawn_seed
from headwater_broker.log import LogConfig, LogManager
from headwater_broker.testing.batches import build_batch

ROUNDS = amount(small=3, full=8)
CONFIG = LogConfig(segment_bytes=20_000, index_interval_bytes=200, retention_ms=-1)

CHILD = """
import sys
from headwater_broker.log import LogConfig, LogManager
from headwater_broker.testing.batches import build_batch

manager = LogManager(
    [sys.argv[1]],
    config_for=lambda _: LogConfig(segment_bytes=20_000, index_interval_bytes=200, retention_ms=-1),
    checkpoint_interval_ms=0,
)
manager.load()
log = manager.create("t", 0, bytes(16))
log.become_leader(0)
sequence = log.log_end_offset
while True:
    for _ in range(1 + sequence % 3):
        batch = build_batch(
            [b"%d" % (sequence + number) for number in range(1 + sequence % 4)],
            producer_id=1, producer_epoch=0, base_sequence=sequence,
        )
        log.append(memoryview(batch), now_ms=0)
        sequence = log.log_end_offset
    log.write_dirty()
    if sequence % 7 == 0:
        log.flush()
        manager.tick(10**15 + sequence)
    print(sequence, flush=True)
"""


def _read_values(manager: LogManager) -> list[bytes]:
    log = manager.get("t", 0)
    assert log is not None
    values: list[bytes] = []
    while (found := log.read(len(values), 1 << 20)).count:
        data = os.pread(found.fd, found.count, found.position)
        while data:
            batch, size = read_batch(data, 0)
            assert batch.base_offset == len(values)
            values += [record.value or b"" for record in batch.records]
            data = data[size:]
    return values


@pytest.mark.story
def test_log_killed_while_appending_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    seed = drawn_seed()
    rng = random.Random(seed)
    written = 0
    for _ in range(ROUNDS):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(rng.uniform(0, 0.2))
        child.send_signal(signal.SIGKILL)
        acknowledged = [line for line in child.stdout.read().split("\n")[:-1] if line]
        child.stdout.close()
        child.wait()
        manager = LogManager([str(tmp_path)], config_for=lambda _: CONFIG)
        manager.load()
        values = _read_values(manager)
        assert values == [b"%d" % number for number in range(len(values))]
        assert len(values) >= max(int(acknowledged[-1]) if acknowledged else 0, written)
        written = len(values)
        log = manager.get("t", 0)
        assert log is not None
        again = build_batch([values[-1]], producer_id=1, producer_epoch=0, base_sequence=len(values))
        assert log.append(memoryview(again), now_ms=0).base_offset == len(values)
        log.truncate_to(written, now_ms=0)
        if rng.random() < 0.3:
            manager.close()
        else:
            manager._release()
