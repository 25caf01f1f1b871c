"""What versions before took from a client: greatest timestamps that were wrong, and batches that nobody can read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bad_batches import GZIP, NONE, NOW_MS, ZSTD, cases, plain, raw_batch, raw_record
from headwater_broker.log import OsFileSystem, find_unreadable
from old_log import HOUR_MS, OldLog


def _records(first_ms: int) -> bytes:
    return raw_record(0) + raw_record(1, stamp_delta_ms=500) + raw_record(2, stamp_delta_ms=20)


@pytest.mark.parametrize("claimed_ms", [-1, 0])
@pytest.mark.parametrize("codec", [NONE, GZIP, ZSTD])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("is_mixed", [True, False])
def test_open_finds_records_by_time_whose_greatest_timestamp_was_wrong(
    tmp_path: Path, claimed_ms: int, codec: int, clean: bool, is_mixed: bool
) -> None:
    old = OldLog(tmp_path, **{"segment.bytes": "400", "index.interval.bytes": "0"})
    for number in range(9):
        first_ms = NOW_MS + number * 10_000
        is_wrong = not is_mixed or number % 2
        greatest_ms = claimed_ms if is_wrong else first_ms + 500
        old.take(raw_batch(_records(first_ms), 3, codec=codec, first_ms=first_ms, greatest_ms=greatest_ms))
    old.restart(clean=clean)
    assert old.offset_at(NOW_MS) == 0
    for number in range(9):
        first_ms = NOW_MS + number * 10_000
        assert old.offset_at(first_ms) == 3 * number
        assert old.offset_at(first_ms + 1) == 3 * number + 1
        assert old.offset_at(first_ms + 501) == (3 * number + 3 if number < 8 else None)
    greatest = old.log.max_timestamp()
    assert greatest is not None
    assert (greatest.timestamp_ms, greatest.offset) == (NOW_MS + 80_500, 25)
    old.restart(upgraded=False)
    assert old.offset_at(NOW_MS + 80_001) == 25


def test_retention_leaves_records_of_now_whose_greatest_timestamp_was_0(tmp_path: Path) -> None:
    old = OldLog(tmp_path, **{"segment.bytes": "150", "retention.ms": str(24 * HOUR_MS)})
    for _ in range(4):
        old.take(raw_batch(plain(3), 3, greatest_ms=0))
    old.restart()
    old.time_ms += 300_000
    old.manager.tick(old.time_ms)
    assert old.log.log_start_offset == 0


@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_find_unreadable_names_the_batches_that_no_consumer_can_read(tmp_path: Path, codec: int) -> None:
    old = OldLog(tmp_path / "log", **{"segment.bytes": "300"})
    bad = cases(codec)
    old.take(raw_batch(plain(3), 3, codec=codec))
    old.take(bad["garbage"])
    old.take(raw_batch(plain(2), 2, codec=codec))
    old.take(bad["fewer records than the count"])
    old.take(raw_batch(plain(1), 1, codec=codec))
    found = list(find_unreadable(OsFileSystem(), str(tmp_path / "log")))
    assert [each[:4] for each in found] == [("t", 0, 3, 5), ("t", 0, 8, 11)]
    assert found[1].reason == "the records end within record 3 of 4"
    old.restart()
    assert [each[:4] for each in find_unreadable(OsFileSystem(), str(tmp_path / "log"))] == [
        each[:4] for each in found
    ]


def test_find_unreadable_passes_over_what_compaction_left_and_what_is_being_written(tmp_path: Path) -> None:
    old = OldLog(tmp_path / "log", **{"cleanup.policy": "compact", "segment.bytes": "100000"})
    for _ in range(3):
        old.take(raw_batch(b"".join(raw_record(n, key=b"%d" % (n % 2)) for n in range(4)), 4))
    old.log._roll(old.time_ms)
    old.log.flush()
    cleaning = old.manager.next_cleaning(old.time_ms)
    assert cleaning is not None
    cleaning.run()
    cleaning.complete(old.time_ms)
    old.take(raw_batch(plain(3), 3))
    assert list(find_unreadable(OsFileSystem(), str(tmp_path / "log"))) == []
    shutil.copytree(tmp_path / "log", tmp_path / "copy")
    newest = max((tmp_path / "copy" / "t-0").glob("*.log"))
    newest.write_bytes(newest.read_bytes()[:-5])
    assert list(find_unreadable(OsFileSystem(), str(tmp_path / "copy"))) == []
