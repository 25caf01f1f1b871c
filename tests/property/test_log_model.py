"""Random operations on a log against a model that is a list; the seed is printed and can be given back."""

from __future__ import annotations

import os
import random
import struct
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from kio.records.readers import read_batch

from amount import amount, drawn_seed
from headwater_broker.log import (
    LogConfig,
    LogManager,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    PartitionLog,
    TimestampAndOffset,
)
from headwater_broker.testing.batches import build_batch
from unsynced import Unsynced

OPERATIONS = 400
CONFIG = LogConfig(
    segment_bytes=2000,
    index_interval_bytes=150,
    retention_bytes=9000,
    retention_ms=-1,
    file_delete_delay_ms=5,
)


@dataclass
class Model:
    """What the log should hold: batches of `(base offset, values, timestamps)`, and the log's start."""

    batches: list[tuple[int, list[bytes], list[int]]] = field(default_factory=list)
    start: int = 0
    end: int = 0
    written: int = 0

    def holding(self, offset: int) -> int:
        """Base offset of the batch that holds `offset`."""
        return next(base for base, values, _ in self.batches if base + len(values) > offset)

    def records(self) -> list[tuple[int, int]]:
        """Timestamp and offset of every record that can be read."""
        return [
            (stamp, base + delta)
            for base, _, stamps in self.batches
            for delta, stamp in enumerate(stamps)
            if self.start <= base + delta < self.written
        ]


class Fuzz:
    """One run."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory = directory
        self.rng = random.Random(seed)
        self.model = Model()
        self.now_ms = 1_000_000
        self.sequences = dict.fromkeys(range(3), 0)
        self.last: dict[int, tuple[bytes, int]] = {}
        self.in_flight: list[tuple[int, object]] = []
        self.open()

    def open(self) -> None:
        self.manager = LogManager(
            [str(self.directory)], config_for=lambda _: CONFIG, retention_check_interval_ms=0, fs=Unsynced()
        )
        self.manager.load()
        self.log: PartitionLog = self.manager.create("t", 0, bytes(16))
        self.log.become_leader(self.log.leader_epoch + 1)

    def run(self) -> None:
        operations = [
            (20, self.append),
            (4, self.append_producer),
            (2, self.append_duplicate),
            (8, self.write),
            (12, self.read),
            (4, self.find_timestamp),
            (2, self.flush),
            (2, self.tick),
            (1, self.delete_records),
            (1, self.truncate),
            (1, self.reopen_clean),
            (1, self.reopen_killed),
        ]
        weights, functions = zip(*operations, strict=True)
        for _ in range(OPERATIONS):
            self.rng.choices(functions, weights)[0]()
            self.check()
        self.write()
        self.reopen_clean()
        self.check()
        self.manager.close()

    def check(self) -> None:
        model, log = self.model, self.log
        # A new segment begins with everything before it written.
        assert model.written <= log.high_watermark <= model.end
        model.written = log.high_watermark
        assert (log.log_start_offset, log.log_end_offset) == (model.start, model.end)

    def _batch(self, **producer: int) -> bytearray:
        count = self.rng.randrange(1, 6)
        values = [self.rng.randbytes(self.rng.choice((1, 10, 100))) for _ in range(count)]
        self.now_ms += self.rng.randrange(100)
        stamps = [self.now_ms - self.rng.randrange(500) for _ in range(count)]
        self.model.batches.append((self.model.end, values, stamps))
        self.model.end += count
        return build_batch(values, timestamps_ms=stamps, **producer)

    def append(self) -> None:
        expected = self.model.end
        appended = self.log.append(memoryview(self._batch()), now_ms=self.now_ms)
        assert appended.base_offset == expected
        assert appended.last_offset == self.model.end - 1

    def append_producer(self) -> None:
        producer_id, expected = self.rng.choice(list(self.sequences)), self.model.end
        sequence = self.sequences[producer_id]
        batch = self._batch(producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        copy = bytes(batch)
        appended = self.log.append(memoryview(batch), now_ms=self.now_ms)
        assert (appended.base_offset, appended.duplicate) == (expected, False)
        self.sequences[producer_id] += self.model.end - expected
        self.last[producer_id] = (copy, expected)

    def append_duplicate(self) -> None:
        if self.last:
            producer_id = self.rng.choice(list(self.last))
            batch, base_offset = self.last[producer_id]
            appended = self.log.append(memoryview(bytearray(batch)), now_ms=self.now_ms)
            assert (appended.base_offset, appended.duplicate) == (base_offset, True)
            gap = build_batch(
                [b"x"],
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=self.sequences[producer_id] + 1,
            )
            with pytest.raises(OutOfOrderSequenceError):
                self.log.append(memoryview(gap), now_ms=self.now_ms)

    def write(self) -> None:
        self.log.write_dirty()
        self.model.written = self.model.end

    def read(self) -> None:
        model = self.model
        offset = self.rng.randrange(model.start - 3, model.end + 3)
        max_bytes = self.rng.choice((1, 100, 500, 10_000))
        if not model.start <= offset <= model.end:
            with pytest.raises(OffsetOutOfRangeError):
                self.log.read(offset, max_bytes)
            return
        for _ in range(self.rng.randrange(1, 4)):
            found = self.log.read(offset, max_bytes)
            if offset >= model.written:
                assert found.count == 0
                return
            data = os.pread(found.fd, found.count, found.position)
            assert struct.unpack_from(">q", data)[0] == model.holding(offset)
            first = struct.unpack_from(">i", data, 8)[0] + 12
            assert len(data) <= max(max_bytes, first)
            self.in_flight = [(offset, (found, data)), *self.in_flight[:2]]
            offset = self._compare(data)

    def _compare(self, data: bytes) -> int:
        """Checks served batches against the model; returns the offset after them."""
        offset = -1
        batches = {base: (values, stamps) for base, values, stamps in self.model.batches}
        while data:
            batch, size = read_batch(data, 0)
            values, stamps = batches[batch.base_offset]
            assert [record.value for record in batch.records] == values
            assert batch.max_timestamp == max(stamps)
            offset = batch.base_offset + len(values)
            assert offset <= self.model.written
            data = data[size:]
        return offset

    def find_timestamp(self) -> None:
        records = self.model.records()
        target = self.now_ms - self.rng.randrange(3000)
        found = next(((stamp, offset) for stamp, offset in records if stamp >= target), None)
        answer = self.log.offset_for_timestamp(target)
        assert (answer[:2] if answer else None) == found
        assert (answer is None) or isinstance(answer, TimestampAndOffset)

    def flush(self) -> None:
        if self.rng.random() < 0.5:
            assert self.log.flush() == self.model.end
            self.model.written = self.model.end
        elif flush := self.log.start_flush():
            flush.run()
            if self.rng.random() < 0.5:
                self.append()
                self.write()
            flush.complete()

    def tick(self) -> None:
        for _, (found, data) in self.in_flight:  # type: ignore[misc]
            assert os.pread(found.fd, found.count, found.position) == data
        self.write()
        self.manager.tick(self.now_ms)
        assert self.log.log_start_offset >= self.model.start
        self.model.start = self.log.log_start_offset
        for _, (found, data) in self.in_flight:  # type: ignore[misc]
            assert os.pread(found.fd, found.count, found.position) == data

    def delete_records(self) -> None:
        offset = self.rng.randrange(self.model.start, self.model.written + 1)
        assert self.log.delete_records(offset) == offset
        self.model.start = offset
        self.manager.checkpoint()

    def truncate(self) -> None:
        self.write()
        self.in_flight = []
        model = self.model
        bases = [base for base, values, _ in model.batches if base >= model.start][-6:]
        if not bases:
            return
        offset = self.rng.choice(bases) + self.rng.randrange(2)
        model.batches = [batch for batch in model.batches if batch[0] + len(batch[1]) <= offset]
        self.log.truncate_to(offset, now_ms=self.now_ms)
        self.manager.checkpoint()
        if offset < model.end:
            model.end = model.written = self.log.log_end_offset
            assert model.end == (
                model.batches[-1][0] + len(model.batches[-1][1]) if model.batches else model.start
            )
            self._forget_producers()
        self.log.become_leader(self.log.leader_epoch + 1)

    def _forget_producers(self) -> None:
        """After a cut the producers go on with new ids, as the batches that they know are gone."""
        self.sequences = {producer_id + 10: 0 for producer_id in self.sequences}
        self.last = {}

    def reopen_clean(self) -> None:
        self.write()
        self.manager.close()
        self.open()

    def reopen_killed(self) -> None:
        self.manager._release()
        model = self.model
        model.batches = [batch for batch in model.batches if batch[0] < model.written]
        if model.end != model.written:
            self._forget_producers()
        model.end = model.written
        self.open()


@pytest.mark.parametrize("round_number", range(amount(small=2, full=5)))
def test_log_random_operations_agree_with_the_model(tmp_path: Path, round_number: int) -> None:
    seed = drawn_seed()
    Fuzz(tmp_path, seed).run()
