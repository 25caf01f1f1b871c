"""Random transactions in one partition, read as a consumer of committed records reads, against a model."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from kio.records.readers import read_batch

from amount import drawn_seed
from headwater_broker.log import Isolation, LogConfig, LogManager, Marker, PartitionLog
from headwater_broker.testing.batches import build_batch

ROUNDS = 12
STEPS = 120
PRODUCERS = 4
CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=120, retention_ms=-1)


def _anybody(log: PartitionLog, producer_id: int, producer_epoch: int) -> None:
    """Lets every producer begin a transaction."""


class Model:
    """What the partition must hold.

    `decided` has, for each record by offset, its value and whether its transaction was committed (None: open).
    """

    def __init__(self) -> None:
        self.values: dict[int, bytes] = {}
        self.committed: dict[int, bool | None] = {}
        self.open: dict[int, list[int]] = {}

    def stable_end(self, end_offset: int) -> int:
        return min([offsets[0] for offsets in self.open.values()], default=end_offset)

    def visible(self, end_offset: int) -> list[tuple[int, bytes]]:
        stable = self.stable_end(end_offset)
        return [
            (offset, value)
            for offset, value in self.values.items()
            if offset < stable and self.committed[offset]
        ]


def _consume(log: PartitionLog, offset: int, max_bytes: int) -> list[tuple[int, bytes]]:
    """As Kafka's consumer does it: an abort's records are left out from its first offset to its marker."""
    seen: list[tuple[int, bytes]] = []
    start = offset
    while (found := log.read(offset, max_bytes, isolation=Isolation.READ_COMMITTED)).count:
        data = os.pread(found.fd, found.count, found.position)
        waiting = sorted((first, producer_id) for producer_id, first in found.aborted)
        aborting: set[int] = set()
        while data:
            batch, size = read_batch(data, 0)
            data = data[size:]
            last_offset = batch.base_offset + batch.last_offset_delta
            while waiting and waiting[0][0] <= last_offset:
                aborting.add(waiting.pop(0)[1])
            if batch.attributes & 0x20:
                aborting.discard(batch.producer_id)
            elif not (batch.attributes & 0x10 and batch.producer_id in aborting):
                seen += [
                    (batch.base_offset + index, record.value or b"")
                    for index, record in enumerate(batch.records)
                ]
            offset = last_offset + 1
    return [each for each in seen if each[0] >= start]


def _open(directory: Path) -> tuple[LogManager, PartitionLog]:
    manager = LogManager([str(directory)], config_for=lambda _: CONFIG)
    manager.load()
    log = manager.create("t", 0, bytes(16))
    log.become_leader(0)
    return manager, log


@pytest.mark.parametrize("number", range(ROUNDS))
def test_transactions_random_histories_read_like_the_model(tmp_path: Path, number: int) -> None:
    seed = drawn_seed()
    rng = random.Random(seed)
    model = Model()
    sequences = dict.fromkeys(range(PRODUCERS), 0)
    manager, log = _open(tmp_path)
    stable_before = 0
    for step in range(STEPS):
        producer = rng.randrange(PRODUCERS)
        action = rng.random()
        if action < 0.55:
            plain = producer not in model.open and rng.random() < 0.3
            values = [b"%d-%d" % (step, index) * rng.randint(1, 9) for index in range(rng.randint(1, 4))]
            batch = build_batch(
                values,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=sequences[producer],
                attributes=0 if plain else 0x10,
            )
            base = log.append(memoryview(batch), now_ms=0, may_begin=_anybody).base_offset
            sequences[producer] += len(values)
            for index, value in enumerate(values):
                model.values[base + index] = value
                model.committed[base + index] = True if plain else None
            if not plain:
                model.open.setdefault(producer, []).extend(range(base, base + len(values)))
        elif action < 0.85:
            committed = rng.random() < 0.5
            log.append_marker(producer, 0, Marker(committed, 0), now_ms=0)
            for offset in model.open.pop(producer, []):
                model.committed[offset] = committed
        elif action < 0.9:
            log.write_dirty()
            if rng.random() < 0.5:
                log.flush()
            if rng.random() < 0.5:
                manager.close()
            else:
                manager._release()
            manager, log = _open(tmp_path)
        log.write_dirty()
        stable = log.last_stable_offset
        assert stable == model.stable_end(log.log_end_offset)
        assert stable >= stable_before
        stable_before = stable
        if rng.random() < 0.3:
            start = rng.randint(0, stable)
            expected = [each for each in model.visible(log.log_end_offset) if each[0] >= start]
            assert _consume(log, start, rng.choice([1, 100, 300, 1 << 20])) == expected
    manager.close()
