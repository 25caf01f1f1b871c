"""Random histories of a compacted log, transactions included, against a dictionary; the seed is printed."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import pytest

from amount import amount, drawn_seed
from headwater_broker.log import CleanerConfig, Isolation, LogConfig, LogManager, Marker
from headwater_broker.log.batch import CONTROL, HEADER, TRANSACTIONAL
from headwater_broker.log.cleaner.keys import BYTES_PER_KEY
from headwater_broker.log.records import read_varint, split_records, uncompressed_records
from headwater_broker.testing.batches import build_batch
from unsynced import Unsynced

OPERATIONS = 300
KEYS = [f"key-{number}" * (number % 3 + 1) for number in range(12)]


class _Clock:
    """The history's own time."""

    def __init__(self, history: History) -> None:
        self._history = history

    def now_ms(self) -> int:
        return self._history.now_ms

    def monotonic(self) -> float:
        return self._history.now_ms / 1000


class History:
    """One run."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory = directory
        self.rng = random.Random(seed)
        self.now_ms = 1_000_000
        self.config = LogConfig(
            cleanup_policy=("compact",),
            segment_bytes=self.rng.choice((400, 2000)),
            index_interval_bytes=100,
            min_cleanable_dirty_ratio=self.rng.choice((0.0, 0.3)),
            min_compaction_lag_ms=self.rng.choice((0, 500)),
            delete_retention_ms=self.rng.choice((0, 1000, 10_000)),
            file_delete_delay_ms=0,
        )
        self.written: list[tuple[int, str, str | None, int]] = []
        self.aborted: set[int] = set()
        self.open_transactions: dict[int, list[int]] = {}
        self.sequences: dict[int, int] = {}
        self.open()

    def open(self) -> None:
        self.manager = LogManager(
            [str(self.directory)],
            config_for=lambda _: self.config,
            clock=_Clock(self),
            fs=Unsynced(),
            cleaner=CleanerConfig(self.rng.choice((3, 1000)) * BYTES_PER_KEY),
        )
        self.manager.load()
        self.log = self.manager.create("t", 0, bytes(16))
        self.log.become_leader(self.log.leader_epoch + 1)

    def run(self) -> None:
        operations = [
            (20, self.put),
            (10, self.put_in_transaction),
            (6, self.end_transaction),
            (4, self.roll),
            (4, self.clean),
            (3, self.check),
            (1, self.reopen_clean),
            (1, self.reopen_killed),
        ]
        weights, functions = zip(*operations, strict=True)
        for _ in range(OPERATIONS):
            self.now_ms += self.rng.randrange(100)
            self.rng.choices(functions, weights)[0]()
        for producer_id in list(self.open_transactions):
            self.end(producer_id, commits=self.rng.random() < 0.5)
        self.now_ms += 100_000
        for _ in range(3):
            self.roll()
            self.clean()
            self.check()
        self.manager.close()

    def _append(self, producer_id: int, attributes: int) -> list[int]:
        count = self.rng.randrange(1, 4)
        keys = [self.rng.choice(KEYS) for _ in range(count)]
        values = [None if self.rng.random() < 0.2 else f"{self.rng.randrange(10**9)}" for _ in range(count)]
        sequence = self.sequences.get(producer_id, 0)
        batch = build_batch(
            [None if value is None else value.encode() for value in values],
            keys=[key.encode() for key in keys],
            timestamps_ms=[self.now_ms - self.rng.randrange(50) for _ in range(count)],
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence if producer_id >= 0 else -1,
            attributes=attributes | self.rng.randrange(5),
        )
        appended = self.log.append(memoryview(batch), now_ms=self.now_ms, may_begin=lambda *_: None)
        self.log.write_dirty()
        self.sequences[producer_id] = sequence + count
        offsets = list(range(appended.base_offset, appended.base_offset + count))
        self.written += [
            (offset, *pair, producer_id) for offset, *pair in zip(offsets, keys, values, strict=True)
        ]
        return offsets

    def put(self) -> None:
        self._append(self.rng.choice((-1, 5)), 0)

    def put_in_transaction(self) -> None:
        producer_id = self.rng.choice((7, 8))
        self.open_transactions.setdefault(producer_id, []).extend(self._append(producer_id, TRANSACTIONAL))

    def end_transaction(self) -> None:
        if self.open_transactions:
            self.end(self.rng.choice(list(self.open_transactions)), commits=self.rng.random() < 0.5)

    def end(self, producer_id: int, *, commits: bool) -> None:
        offsets = self.open_transactions.pop(producer_id)
        self.log.append_marker(producer_id, 0, Marker(commits, 0), now_ms=self.now_ms)
        self.log.write_dirty()
        if not commits:
            self.aborted.update(offsets)

    def roll(self) -> None:
        if self.log._active.size_bytes:
            self.log._roll(self.now_ms)
        self.log.flush()

    def clean(self) -> None:
        cleaning = self.manager.next_cleaning(self.now_ms)
        if cleaning is not None:
            cleaning.run()
            while cleaning.complete(self.now_ms):
                cleaning.run()
            assert cleaning.error is None
        self.manager.tick(self.now_ms)

    def reopen_clean(self) -> None:
        self.manager.close()
        self.open()

    def reopen_killed(self) -> None:
        self.manager._release()
        for name in ("recovery-point-offset-checkpoint", "leader-epoch-checkpoint"):
            if self.rng.random() < 0.5:
                (self.directory / name).unlink(missing_ok=True)
        config, self.config = self.config, LogConfig(segment_bytes=self.config.segment_bytes)
        self.open()
        self.config = config
        self.manager.reconfigure("t")

    def check(self) -> None:
        """What a consumer of committed records makes of the log is what the dictionary holds."""
        stable = self.log.last_stable_offset
        first_open = min(
            (offset for offsets in self.open_transactions.values() for offset in offsets), default=None
        )
        assert stable == (self.log.high_watermark if first_open is None else first_open)
        expected: dict[str, str | None] = {}
        values_by_offset = {}
        for offset, key, value, _ in self.written:
            values_by_offset[offset] = (key, value)
            if offset < stable and offset not in self.aborted:
                expected[key] = value
        table: dict[str, str | None] = {}
        for offset, key, value in self._committed():
            assert values_by_offset[offset] == (key, value)
            assert offset not in self.aborted
            table[key] = value
        alive = {key: value for key, value in table.items() if value is not None}
        assert alive == {key: value for key, value in expected.items() if value is not None}

    def _committed(self) -> list[tuple[int, str, str | None]]:
        found = []
        offset, skipped = self.log.log_start_offset, set()
        while (span := self.log.read(offset, 700, isolation=Isolation.READ_COMMITTED)).count:
            data = os.pread(span.fd, span.count, span.position)
            coming = sorted(span.aborted, key=lambda entry: entry[1])
            while data:
                header = HEADER.unpack_from(data)
                size = header[1] + 12
                last_offset = header[0] + header[6]
                while coming and coming[0][1] <= last_offset:
                    skipped.add(coming.pop(0)[0])
                if header[5] & CONTROL:
                    records = uncompressed_records(data[:size], header)
                    for record in split_records(records, header[12]):
                        if struct.unpack(">hh", record.key or b"")[1] == 0:
                            skipped.discard(header[9])
                elif not (header[5] & TRANSACTIONAL and header[9] in skipped):
                    found += _records(data[:size], header[0], header[12])
                offset = last_offset + 1
                data = data[size:]
        return found


def _records(batch: bytes, base_offset: int, count: int) -> list[tuple[int, str, str | None]]:
    data = uncompressed_records(batch, HEADER.unpack_from(batch))
    found = []
    for record in split_records(data, count):
        _, at = read_varint(data, record.rest)
        length, at = read_varint(data, at)
        length, at = read_varint(data, at + length)
        value = data[at : at + length].decode() if record.has_value else None
        found.append((base_offset + record.offset_delta, (record.key or b"").decode(), value))
    return found


def test_compacted_log_whose_aborted_data_came_back_behind_a_crash(tmp_path: Path) -> None:
    """Markers with a delete horizon were not read, and transactions seemed to begin at those before."""
    History(tmp_path, 1625040355).run()


@pytest.mark.parametrize("round_number", range(amount(small=2, full=5)))
def test_compacted_log_random_history_agrees_with_a_dictionary(tmp_path: Path, round_number: int) -> None:
    seed = drawn_seed()
    History(tmp_path, seed).run()
