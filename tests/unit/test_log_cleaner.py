"""Compaction: which records stay, what becomes of batches, when a log's turn comes, a crash at every step."""

from __future__ import annotations

import os
import random
import shutil
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from kio.records.readers import read_batch

from amount import drawn_seed
from headwater_broker.log import InvalidRecordError, Marker
from headwater_broker.log.batch import DELETE_HORIZON, HEADER
from headwater_broker.log.checkpoints import encode_offsets
from headwater_broker.log.cleaner import CleanerConfig
from headwater_broker.log.cleaner.keys import BYTES_PER_KEY, KeyOffsets
from headwater_broker.log.cleaner.rewrite import Retention, compact_batch
from headwater_broker.log.cleaner.transactions import TransactionPass
from headwater_broker.log.records import read_varint, split_records, uncompressed_records
from headwater_broker.log.txnindex import AbortedTransaction
from headwater_broker.testing.batches import build_batch, reseal_batch
from headwater_broker.testing.faults import FaultyFileSystem
from headwater_broker.testing.logs import OneLog
from unsynced import Unsynced

HOUR_MS = 3_600_000
CONTROL_KEYS = {"abort": struct.pack(">hh", 0, 0), "commit": struct.pack(">hh", 0, 1)}


class Found(NamedTuple):
    """One record read back."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int


class Broker(OneLog):
    """A manager with one compacted partition, on a clock that the test sets; two batches fill a segment."""

    def __init__(self, directory: Path, **settings: str) -> None:
        compacted = {
            "cleanup.policy": "compact",
            "segment.bytes": "300",
            "index.interval.bytes": "0",
            "file.delete.delay.ms": "0",
            "min.cleanable.dirty.ratio": "0",
        }
        super().__init__(
            directory, "t", compacted | settings, time_ms=HOUR_MS, retention_check_interval_ms=300_000
        )

    def put(self, *pairs: tuple[str, str | None], **batch: int) -> int:
        """One batch of these keys and values; returns its base offset."""
        data = build_batch(
            [None if value is None else value.encode() for _, value in pairs],
            keys=[key.encode() for key, _ in pairs],
            timestamps_ms=[self.time_ms] * len(pairs),
            **batch,
        )
        appended = self.log.append(memoryview(data), now_ms=self.time_ms)
        self.log.write_dirty()
        return appended.base_offset

    def roll(self) -> None:
        """Seals and flushes everything, so that it may be compacted."""
        self.log._roll(self.time_ms)
        self.log.flush()

    def clean(self) -> bool:
        """Compacts as long as a log's turn has come; returns whether there was anything to do."""
        any_done = False
        while (cleaning := self.manager.next_cleaning(self.time_ms)) is not None:
            cleaning.run()
            while cleaning.complete(self.time_ms):
                cleaning.run()
            assert cleaning.error is None
            any_done = True
        return any_done

    def batches(self) -> list[bytes]:
        """Everything that a consumer is sent, batch by batch; all of it can be read."""
        found = self.raw_batches()
        for batch in found:
            if not batch[22] & 7:
                read_batch(batch, 0)
        return found

    def raw_batches(self) -> list[bytes]:
        """Everything that a consumer is sent, batch by batch."""
        offset, found = self.log.log_start_offset, []
        while (span := self.log.read(offset, 1 << 20)).count:
            data = os.pread(span.fd, span.count, span.position)
            while data:
                base_offset, length = struct.unpack_from(">qi", data)
                found.append(data[: length + 12])
                offset = base_offset + struct.unpack_from(">i", data, 23)[0] + 1
                data = data[length + 12 :]
        return found

    def records(self) -> list[Found]:
        return [record for batch in self.batches() for record in records_of(batch)]

    def values(self) -> dict[str, str | None]:
        """The table that a consumer makes of the log."""
        table = {found.key: found.value for found in self.records()}
        return {
            (key or b"").decode(): None if value is None else value.decode() for key, value in table.items()
        }

    def logs(self) -> list[str]:
        return sorted(path.name for path in (self.directory / "t-0").glob("*.log"))


def records_of(batch: bytes) -> list[Found]:
    header = HEADER.unpack_from(batch)
    data = uncompressed_records(batch, header)
    found = []
    for record in split_records(data, header[12]):
        _, at = read_varint(data, record.rest)
        key_length, at = read_varint(data, at)
        value_length, at = read_varint(data, at + max(key_length, 0))
        value = data[at : at + value_length] if record.has_value else None
        stamp_ms = header[7] + record.timestamp_delta_ms
        found.append(Found(header[0] + record.offset_delta, record.key, value, stamp_ms))
    return found


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    opened = Broker(tmp_path)
    yield opened
    opened.manager.close()


def test_compaction_keeps_the_last_record_of_each_key_at_its_offset(broker: Broker) -> None:
    for round_number in range(20):
        broker.put(("a", f"{round_number}"), ("b", f"{round_number}"), (f"only-{round_number}", "x"))
    broker.roll()
    assert broker.clean()
    found = broker.records()
    assert [(each.offset, each.key, each.value) for each in found if each.key in (b"a", b"b")] == [
        (57, b"a", b"19"),
        (58, b"b", b"19"),
    ]
    assert sum(each.key.startswith(b"only-") for each in found if each.key) == 20
    assert broker.log.log_end_offset == 60
    assert broker.put(("a", "new")) == 60


def test_compaction_never_touches_the_newest_segment(broker: Broker) -> None:
    broker.put(("a", "1"))
    broker.put(("a", "2"))
    broker.log.flush()
    assert not broker.clean()
    assert len(broker.records()) == 2


def test_compaction_leaves_what_is_not_flushed(broker: Broker) -> None:
    broker.put(("a", "1"))
    broker.put(("a", "2"))
    broker.log._roll(broker.time_ms)
    assert not broker.clean()
    broker.log.flush()
    assert broker.clean()
    assert [each.value for each in broker.records()] == [b"2"]


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_compaction_of_every_codec_stays_in_it(tmp_path: Path, codec: int) -> None:
    broker = Broker(tmp_path, **{"segment.bytes": "3000"})
    for value in "12345":
        broker.put(("a", value), (f"b{value}", "x" * 1000), attributes=codec)
    broker.roll()
    assert broker.clean()
    assert broker.values() == {f"b{value}": "x" * 1000 for value in "12345"} | {"a": "5"}
    assert {batch[22] & 7 for batch in broker.batches()} == {codec}
    assert len([each for each in broker.records() if each.key == b"a"]) == 1
    broker.manager.close()


def test_compaction_merges_small_segments(broker: Broker) -> None:
    for number in range(40):
        broker.put(("a", f"{number}"), ("b", f"{number}"))
    broker.roll()
    before = len(broker.logs())
    assert before > 12
    assert broker.clean()
    broker.put(("a", "last"))
    broker.roll()
    # Segments were full when they were grouped: what is left of them is merged the next time.
    assert broker.clean()
    assert len(broker.logs()) == 2
    assert broker.values() == {"a": "last", "b": "39"}
    directory = broker.directory / "t-0"
    assert not [path.name for path in directory.iterdir() if path.suffix in (".cleaned", ".swap")]


def test_compaction_reads_at_every_offset_as_before(broker: Broker) -> None:
    for number in range(30):
        broker.put((f"{number % 7}", f"{number}"))
    broker.roll()
    broker.clean()
    offsets = [each.offset for each in broker.records()]
    for wanted in range(broker.log.log_end_offset):
        span = broker.log.read(wanted, 1)
        first = (
            struct.unpack_from(">q", os.pread(span.fd, span.count, span.position))[0] if span.count else 30
        )
        assert first == next((offset for offset in offsets if offset >= wanted), 30)


def test_compaction_while_a_fetch_is_sent_leaves_its_bytes(broker: Broker) -> None:
    for number in range(10):
        broker.put(("a", f"{number}"))
    span = broker.log.read(0, 1 << 20)
    before = os.pread(span.fd, span.count, span.position)
    broker.roll()
    assert broker.clean()
    broker.manager.tick(broker.time_ms)
    assert os.pread(span.fd, span.count, span.position) == before


def test_tombstone_stays_for_delete_retention_ms_after_its_first_compaction(tmp_path: Path) -> None:
    broker = Broker(tmp_path, **{"delete.retention.ms": "1000"})
    broker.put(("a", "1"), ("b", "1"))
    tombstone = broker.put(("a", None), ("c", "1"))
    broker.roll()
    assert broker.clean()
    (batch,) = [each for each in broker.batches() if struct.unpack_from(">q", each)[0] == tombstone]
    assert batch[22] & DELETE_HORIZON
    assert struct.unpack_from(">q", batch, 27)[0] == broker.time_ms + 1000
    assert [each for each in broker.records() if each.key == b"a"] == [
        Found(tombstone, b"a", None, broker.time_ms)
    ]
    assert {each.timestamp_ms for each in broker.records()} == {broker.time_ms}
    broker.time_ms += 999
    broker.put(("d", "1"))
    broker.roll()
    assert broker.clean()
    assert broker.values()["a"] is None
    broker.time_ms += 1
    broker.put(("e", "1"))
    broker.roll()
    assert broker.clean()
    assert broker.values() == dict.fromkeys("bcde", "1")
    broker.manager.close()


def test_last_batch_of_a_producer_stays_without_records(broker: Broker) -> None:
    producer = {"producer_id": 5, "producer_epoch": 0}
    for sequence in range(6):
        broker.put(("a", f"{sequence}"), **producer, base_sequence=sequence)
    broker.put(("a", "other"))
    broker.roll()
    assert broker.clean()
    batches = broker.batches()
    assert [struct.unpack_from(">q", batch)[0] for batch in batches] == [5, 6]
    assert len(batches[0]) == 61
    assert struct.unpack_from(">qhi", batches[0], 43) == (5, 0, 5)
    broker.manager.close()
    shutil.rmtree(broker.directory / "t-0" / "none", ignore_errors=True)
    for snapshot in (broker.directory / "t-0").glob("*.snapshot"):
        snapshot.unlink()
    broker.open()
    assert broker.put(("a", "next"), **producer, base_sequence=6) == 7


def test_compaction_goes_on_where_the_map_was_full(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.manager.close()
    broker.cleaner = CleanerConfig(10 * BYTES_PER_KEY)
    broker.open()
    for number in range(100):
        broker.put((f"{number % 50}", f"{number}"))
    broker.roll()
    passes = 0
    while (cleaning := broker.manager.next_cleaning(broker.time_ms)) is not None:
        cleaning.run()
        while cleaning.complete(broker.time_ms):
            cleaning.run()
        assert len(cleaning._keys) <= 10
        passes += 1
    assert passes >= 10
    assert broker.values() == {f"{number % 50}": f"{number}" for number in range(50, 100)}
    assert len(broker.records()) == 50
    broker.manager.close()


def test_min_compaction_lag_leaves_what_is_young(tmp_path: Path) -> None:
    broker = Broker(tmp_path, **{"min.compaction.lag.ms": "1000"})
    broker.put(("a", "1"))
    broker.put(("a", "2"))
    broker.roll()
    assert not broker.clean()
    broker.time_ms += 1001
    assert broker.clean()
    assert broker.values() == {"a": "2"}
    broker.manager.close()


def test_min_compaction_lag_without_timestamps_goes_by_the_file(tmp_path: Path) -> None:
    broker = Broker(tmp_path, **{"min.compaction.lag.ms": "1000"})
    for value in (b"1", b"2"):
        data = build_batch([value], keys=[b"a"], timestamps_ms=[-1])
        broker.log.append(memoryview(data), now_ms=broker.time_ms)
        broker.log.write_dirty()
    broker.roll()
    for path in (tmp_path / "t-0").glob("*.log"):
        os.utime(path, ns=(broker.time_ms * 1_000_000,) * 2)
    assert not broker.clean()
    broker.time_ms += 1001
    assert broker.clean()
    assert sum(path.stat().st_size for path in (tmp_path / "t-0").glob("*.log")) == len(data)
    broker.manager.close()


def test_max_compaction_lag_wins_over_the_dirty_ratio_and_rolls(tmp_path: Path) -> None:
    broker = Broker(tmp_path, **{"max.compaction.lag.ms": "1000", "min.cleanable.dirty.ratio": "1"})
    broker.put(("a", "1"))
    broker.put(("a", "2"))
    broker.manager.tick(broker.time_ms)
    assert len(broker.logs()) == 1
    broker.time_ms += 1001
    broker.manager.tick(broker.time_ms)
    assert len(broker.logs()) == 2
    broker.log.flush()
    assert broker.clean()
    assert [each.value for each in broker.records()] == [b"2"]
    broker.manager.close()


def test_dirty_ratio_decides(tmp_path: Path) -> None:
    broker = Broker(tmp_path, **{"min.cleanable.dirty.ratio": "0.5", "segment.bytes": "100000"})
    for number in range(100):
        broker.put((f"{number}", "x"))
    broker.roll()
    assert broker.clean()
    assert not broker.clean()
    for number in range(50):
        broker.put((f"{number}", "y"))
    broker.roll()
    assert not broker.clean()
    for number in range(51):
        broker.put((f"{number}", "z"))
    broker.roll()
    assert broker.clean()
    assert broker.values() == {f"{number}": "z" if number < 51 else "x" for number in range(100)}
    broker.manager.close()


def test_compact_and_delete_does_both(tmp_path: Path) -> None:
    broker = Broker(
        tmp_path, **{"cleanup.policy": "compact,delete", "retention.ms": "5000", "segment.bytes": "100"}
    )
    broker.time_ms = time.time_ns() // 1_000_000  # an emptied segment is as old as its file
    broker.put(("a", "1"))
    broker.put(("a", "2"))
    broker.put(("b", "2"))
    broker.roll()
    assert broker.clean()
    assert broker.values() == {"a": "2", "b": "2"}
    broker.time_ms += 400_000
    broker.put(("c", "3"))
    broker.manager.tick(broker.time_ms)
    assert broker.values() == {"c": "3"}
    assert broker.log.log_start_offset == 3
    broker.manager.close()


def test_keyless_record_refused_by_number(broker: Broker) -> None:
    batch = build_batch([b"1", b"2", b"3"], keys=[b"a", None, b"c"])
    with pytest.raises(InvalidRecordError) as caught:
        broker.log.append(memoryview(batch), now_ms=0)
    assert [number for number, _ in caught.value.records] == [1]
    assert "Compacted topic cannot accept message without key" in caught.value.records[0][1]
    assert broker.log.log_end_offset == 0


def test_records_that_do_not_decompress_refused(broker: Broker) -> None:
    batch = build_batch([b"1"], keys=[b"a"])
    batch[22] |= 4
    from headwater_broker.testing.batches import reseal_batch

    reseal_batch(batch)
    with pytest.raises(InvalidRecordError):
        broker.log.append(memoryview(batch), now_ms=0)


def test_checkpoint_is_kafkas_and_survives(broker: Broker) -> None:
    for number in range(5):
        broker.put(("a", f"{number}"))
    broker.roll()
    assert broker.clean()
    checkpoint = broker.directory / "cleaner-offset-checkpoint"
    assert checkpoint.read_bytes() == encode_offsets({("t", 0): 5})
    broker.manager.close()
    broker.open()
    assert not broker.clean()
    broker.put(("a", "9"))
    broker.roll()
    assert broker.clean()
    assert broker.values() == {"a": "9"}


def test_compaction_of_a_log_that_is_deleted_meanwhile_is_given_up(broker: Broker) -> None:
    broker.put(("a", "1"))
    broker.put(("a", "2"))
    broker.roll()
    cleaning = broker.manager.next_cleaning(broker.time_ms)
    assert cleaning is not None
    broker.manager.delete("t", 0)
    cleaning.run()
    assert not cleaning.complete(broker.time_ms)
    assert not cleaning.is_done
    assert cleaning.error is None


@pytest.mark.parametrize(("byte", "message"), [(68, "checksum"), (70, "is not between 0 and 2")])
def test_compaction_of_a_damaged_segment_fails_and_is_not_tried_again(
    broker: Broker, byte: int, message: str
) -> None:
    broker.put(("a", "1"))
    broker.put(("a", "2"))
    broker.roll()
    path = broker.directory / "t-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[byte] ^= 1
    path.write_bytes(data)
    cleaning = broker.manager.next_cleaning(broker.time_ms)
    assert cleaning is not None
    cleaning.run()
    assert not cleaning.complete(broker.time_ms)
    assert message in str(cleaning.error)
    assert broker.manager.next_cleaning(broker.time_ms) is None
    assert path.read_bytes() == data


def test_unclean_start_after_a_compaction_keeps_everything(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    for number in range(30):
        broker.put((f"{number % 4}", f"{number}"))
    broker.roll()
    assert broker.clean()
    broker.put(("z", "1"))
    expected = broker.records()
    broker.manager._release()
    # The settings of the topic are not known yet when a start recovers, and no checkpoint says what was flushed.
    (tmp_path / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    broker.settings["cleanup.policy"] = "delete"
    broker.open()
    assert broker.records() == expected
    assert not list((tmp_path / "t-0").glob("*.broken"))
    broker.manager.close()


# Transactions


def marker(kind: str, producer_id: int, base_offset: int, stamp_ms: int = 0) -> bytes:
    return bytes(
        build_batch(
            [struct.pack(">hi", 0, 0)],
            keys=[CONTROL_KEYS[kind]],
            timestamps_ms=[stamp_ms],
            base_offset=base_offset,
            producer_id=producer_id,
            producer_epoch=0,
            attributes=0x30,
        )
    )


def data(producer_id: int, base_offset: int, *keys: str) -> bytes:
    return bytes(
        build_batch(
            [b"x"] * len(keys),
            keys=[key.encode() for key in keys],
            base_offset=base_offset,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=base_offset,
            attributes=0x10,
        )
    )


def compact(
    batches: list[bytes], aborted: list[AbortedTransaction], now_ms: int = 0, superseded: tuple[str, ...] = ()
) -> tuple[list[bytes], TransactionPass]:
    """One pass over batches in which some keys have later records."""
    keys = KeyOffsets(1 << 20, 0)
    for key in superseded:
        keys.put(key.encode(), 1000)
    keys.end_offset = 1000
    transactions = TransactionPass(aborted, 0)
    retention = Retention(keys, now_ms, 100, {})
    left = [compact_batch(batch, HEADER.unpack_from(batch), retention, transactions) for batch in batches]
    return [batch for batch in left if batch is not None], transactions


def test_aborted_data_go_and_their_marker_and_index_entry_stay_one_pass_longer() -> None:
    entry = AbortedTransaction(7, 0, 3, 4)
    batches = [
        data(7, 0, "a"),
        data(8, 1, "b"),
        data(7, 2, "c"),
        marker("abort", 7, 3),
        marker("commit", 8, 4),
    ]
    left, transactions = compact(batches, [entry])
    assert left == [batches[1], batches[3], batches[4]]
    assert transactions.take_retained() == [entry]
    # Now nothing of it is left: the marker gets its time to go, the entry goes.
    left, transactions = compact(left, [entry], now_ms=50)
    assert [struct.unpack_from(">q", batch)[0] for batch in left] == [1, 3, 4]
    assert left[1][22] & DELETE_HORIZON
    assert struct.unpack_from(">q", left[1], 27)[0] == 150
    assert not left[2][22] & DELETE_HORIZON
    assert transactions.take_retained() == []
    assert len(compact(left, [], now_ms=149)[0]) == 3
    assert [struct.unpack_from(">q", batch)[0] for batch in compact(left, [], now_ms=150)[0]] == [1, 4]


def test_commit_marker_stays_as_long_as_its_data() -> None:
    batches = [data(7, 0, "a", "b"), marker("commit", 7, 2)]
    left, _ = compact(batches, [], superseded=("a",))
    assert [struct.unpack_from(">q", batch)[0] for batch in left] == [0, 2]
    assert left[1] == batches[1]
    left, _ = compact(left, [], superseded=("a", "b"))
    assert left == [batches[1]]
    left, _ = compact(left, [], now_ms=10)
    assert left[0][22] & DELETE_HORIZON
    assert compact(left, [], now_ms=110)[0] == []


def test_aborted_transaction_before_the_pass_says_nothing_of_later_data() -> None:
    transactions = TransactionPass([AbortedTransaction(7, 0, 3, 4)], start_offset=4)
    assert not transactions.is_aborted(HEADER.unpack_from(data(7, 5, "a")))


def test_aborted_keys_supersede_nothing_and_the_transaction_index_follows(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.put(("a", "committed"))
    for producer_id, commits in ((7, False), (8, True)):
        batch = build_batch(
            [b"x", b"y"],
            keys=[b"a" if not commits else b"b", b"c"],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            attributes=0x10,
        )
        broker.log.append(memoryview(batch), now_ms=0, may_begin=lambda *_: None)
        broker.log.append_marker(producer_id, 0, Marker(commits, 0), now_ms=broker.time_ms)
    broker.roll()
    assert [entry[:2] for entry in broker.log.aborted_transactions()] == [(7, 1)]
    assert broker.clean()
    left = [(each.offset, each.key) for each in broker.records()]
    assert [each for each in left if each[1] in (b"a", b"b", b"c")] == [(0, b"a"), (4, b"b"), (5, b"c")]
    assert [offset for offset, _ in left] == [0, 3, 4, 5, 6]
    assert [entry[:2] for entry in broker.log.aborted_transactions()] == [(7, 1)]
    broker.put(("b", "superseded"))
    broker.roll()
    assert broker.clean()
    # The aborted producer's last batch stays for its sequence numbers, and keeps marker and entry alive.
    assert [entry[:2] for entry in broker.log.aborted_transactions()] == [(7, 1)]
    broker.manager.close()
    broker.open()
    assert [entry[:2] for entry in broker.log.aborted_transactions()] == [(7, 1)]
    broker.manager.close()


# Crashes


class CrashError(BaseException):
    """The process ends here."""


class Crashing(FaultyFileSystem, Unsynced):
    """Ends the process at the n-th change of names."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.left = after

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise CrashError

    def rename(self, source: str, target: str) -> None:
        self._count()
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self._count()
        super().remove(path)


def test_crash_at_every_rename_of_a_compaction_loses_and_brings_back_nothing(tmp_path: Path) -> None:
    seed = drawn_seed()
    rng = random.Random(seed)
    made = Broker(tmp_path / "made", **{"delete.retention.ms": "0", "segment.bytes": "700"})
    table: dict[str, str] = {}
    for number in range(60):
        key = f"k{rng.randrange(8)}"
        value = None if rng.random() < 0.3 else f"{number}"
        made.put((key, value), producer_id=3, producer_epoch=0, base_sequence=number)
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value
    made.roll()
    assert made.clean()
    made.time_ms += 1
    made.put(("last", "1"))
    made.roll()
    made.manager.close()
    table["last"] = "1"
    steps = 0
    while True:
        directory = tmp_path / "crashed"
        shutil.copytree(tmp_path / "made", directory)
        broker = Broker.__new__(Broker)
        broker.__dict__.update(made.__dict__)
        broker.directory, broker.fs = directory, Crashing(10**9)
        broker.open()
        assert isinstance(broker.fs, Crashing)
        broker.fs.left = steps
        try:
            assert broker.clean()
        except CrashError:
            broker.fs = Crashing(10**9)
            broker.manager._release()
            broker.open()
        else:
            break
        found = {key: value for key, value in broker.values().items() if value is not None}
        assert found == table, f"after {steps} renames"
        names = [path.name for path in (directory / "t-0").iterdir()]
        assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]
        assert not [name for name in names if name.endswith(".broken")]
        broker.clean()
        assert {key: value for key, value in broker.values().items() if value is not None} == table
        assert broker.put(("more", "1"), producer_id=3, producer_epoch=0, base_sequence=60) == 61
        broker.manager.close()
        shutil.rmtree(directory)
        steps += 1
    assert steps > 20
    broker.fs.left = 10**9
    broker.manager.close()


def test_clean_leaves_a_batch_that_no_reader_can_read(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.put(("a", "1"), ("b", "1"))
    unreadable = memoryview(build_batch([b"2", b"2"], keys=[b"a", b"b"], timestamps_ms=[broker.time_ms] * 2))
    unreadable[-5] = 99  # the length of the last key: versions before took that
    reseal_batch(unreadable.obj)
    broker.log.append(unreadable, now_ms=0, looked_into=(unreadable, HEADER.unpack_from(unreadable), 0))
    broker.put(("a", "3"))
    broker.put(("c", "1"))
    broker.roll()
    assert broker.clean()
    left = {struct.unpack_from(">q", batch)[0]: batch for batch in broker.raw_batches()}
    assert sorted(left) == [0, 2, 4, 5]
    assert left[2][8:12] + left[2][16:] == bytes(unreadable)[8:12] + bytes(unreadable)[16:]
    assert [found.key for found in records_of(left[0])] == [b"b"]
    assert not broker.clean()
