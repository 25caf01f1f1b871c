"""Batches that nobody can read: what is wrong with them, and what a reader gets who goes past them."""

from __future__ import annotations

from pathlib import Path

import pytest
from crc32c import crc32c

from bad_batches import GZIP, NONE, NOW_MS, ZSTD, cases, plain, raw_batch, raw_record
from headwater_broker.log import CorruptBatchError, FileRange, finished
from headwater_broker.log.batch import (
    CHECKED_FROM,
    CHECKSUM_VALUE,
    HEADER,
    LAST_OFFSET_DELTA,
    LOG_APPEND_TIME,
    RECORD_COUNT,
    size_of,
)
from headwater_broker.log.unreadable import LookedAt, why_unreadable
from old_log import OldLog

READABLE = frozenset(
    {"good", "good, headers", "good, tombstone", "stamp -1", "stamp 0", "stamp negative", "append time"}
    | {"empty that claims none", "record attributes set", "delete horizon", "last delta too large"}
)
"""What every client reads, among the batches of `bad_batches`."""

UNREADABLE = frozenset(
    {"more records than the count", "fewer records than the count", "huge count", "negative count"}
    | {"empty that claims records", "garbage", "bytes left over", "zeros left over", "negative delta"}
    | {"deltas the same", "deltas backwards", "last delta too small", "record length 0"}
    | {"record length beyond the end", "key length beyond", "headers huge", "headers left out"}
)
"""What none reads, or not as it was meant."""


def reason_of(batch: bytes | bytearray, *, must_fit: bool = False) -> str | None:
    return finished(why_unreadable(bytes(batch), HEADER.unpack_from(batch), must_fit=must_fit))


@pytest.mark.parametrize("codec", [NONE, GZIP, ZSTD])
def test_why_unreadable_tells_which_batches_no_client_reads(codec: int) -> None:
    found = {name: reason_of(batch) for name, batch in cases(codec).items()}
    assert {name for name in READABLE & found.keys() if found[name] is not None} == set()
    assert {name for name in UNREADABLE & found.keys() if found[name] is None} == set()
    assert len(UNREADABLE & found.keys()) > 12


def test_why_unreadable_names_a_time_that_microseconds_do_not_reach() -> None:
    far = raw_batch(raw_record(0) + raw_record(1, stamp_delta_ms=2**62), 2)
    assert reason_of(far) is None, "Kafka's own consumers read it"
    assert reason_of(far, must_fit=True) == (
        f"record 1 has the timestamp {NOW_MS + 2**62} ms, beyond what microseconds can tell"
    )
    stamped = raw_batch(plain(2), 2, attributes=LOG_APPEND_TIME, first_ms=2**62, greatest_ms=NOW_MS)
    assert reason_of(stamped, must_fit=True) is None, "the records have the batch's time"
    stamped = raw_batch(plain(2), 2, attributes=LOG_APPEND_TIME, greatest_ms=2**62)
    assert reason_of(stamped, must_fit=True)
    assert reason_of(stamped) is None


def test_looked_at_covers_what_this_process_wrote_and_what_was_added() -> None:
    looked_at = LookedAt(100)
    assert looked_at.covers(100, 500)
    assert not looked_at.covers(99, 200)
    looked_at.add(50, 100)
    assert looked_at.covers(50, 500)
    assert not looked_at.covers(40, 60)
    looked_at.cut(80)
    assert looked_at.covers(50, 500), "what follows is written by this process"
    looked_at.cut(20)
    assert looked_at.covers(20, 30)


class Reader:
    """Reads a log as a consumer does that goes past what cannot be read."""

    def __init__(self, old: OldLog) -> None:
        self._old = old
        self._fd_batches: list[bytes] = []

    def batches(self, max_bytes: int = 1 << 20) -> list[bytes]:
        """All batches, in the order in which they come."""
        log, at, found = self._old.log, 0, list[bytes]()
        while at < log.log_end_offset:
            part = finished(log.look_at(log.read(at, max_bytes), past_unreadable=True))
            data = part
            if isinstance(part, FileRange):
                assert part.count
                data = self._old.fs.pread(part.fd, part.count, part.position)
            assert isinstance(data, bytes)
            while data:
                header = HEADER.unpack_from(data)
                batch, data = data[: size_of(header)], data[size_of(header) :]
                assert crc32c(batch[CHECKED_FROM:]) == header[CHECKSUM_VALUE]
                at = header[0] + header[LAST_OFFSET_DELTA] + 1
                found.append(batch)
        return found


@pytest.mark.parametrize("codec", [NONE, GZIP])
@pytest.mark.parametrize("max_bytes", [1, 400, 1 << 20])
@pytest.mark.parametrize("restarted", [True, False])
def test_past_unreadable_gives_one_record_for_a_batch_that_cannot_be_read(
    tmp_path: Path, codec: int, max_bytes: int, restarted: bool
) -> None:
    old, bad = OldLog(tmp_path, **{"segment.bytes": "600"}), cases(codec)
    given = [bad["garbage"], *([raw_batch(plain(3), 3, codec=codec)] * 3), bad["negative delta"]]
    given += [bad["fewer records than the count"], raw_batch(plain(1), 1, codec=codec), bad["garbage"]]
    for batch in given:
        old.take(bytearray(batch))
    if not restarted:
        assert next(HEADER.unpack_from(b)[RECORD_COUNT] for b in Reader(old).batches(max_bytes)) == 3
    old.restart()
    assert old.log.log_end_offset == 21
    old.take(raw_batch(plain(2), 2))
    found = Reader(old).batches(max_bytes)
    assert [(HEADER.unpack_from(b)[0], HEADER.unpack_from(b)[RECORD_COUNT]) for b in found] == [
        *[(0, 1), (3, 3), (6, 3), (9, 3), (12, 1), (13, 1), (17, 1), (18, 1), (21, 2)]
    ]
    stored = old.log.read(0, 1)
    first = old.fs.pread(stored.fd, stored.count, stored.position)
    assert first in found[0], "the stand-in holds the batch as it is stored"
    assert b"the batch of offsets 0 to 2 cannot be read: record " in found[0] or codec
    assert b"the batch of offsets 13 to 16 cannot be read: the records end within record 3 of 4" in found[5]
    assert Reader(old).batches(max_bytes) == found


def test_reader_that_does_not_go_past_gets_what_is_before_and_then_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old = OldLog(tmp_path)
    old.take(raw_batch(plain(3), 3))
    old.take(cases(NONE)["garbage"])
    old.take(raw_batch(raw_record(0, stamp_delta_ms=2**62), 1))
    old.restart()
    before = finished(old.log.look_at(old.log.read(0, 1 << 20)))
    assert isinstance(before, FileRange)
    assert before.count == old.log.read(3, 1).position
    for _ in range(3):
        with pytest.raises(
            CorruptBatchError, match=r"^t-0: the batch of offsets 3 to 5 cannot be read: record 0"
        ):
            finished(old.log.look_at(old.log.read(4, 1 << 20)))
    assert caplog.text.count("the batch of offsets 3 to 5 cannot be read") == 1
    behind = old.log.read(6, 1 << 20)
    for _ in range(2):
        assert finished(old.log.look_at(behind)) == behind, (
            "its timestamp is beyond Spark's, not beyond Kafka's"
        )
    assert old.log.read(0, before.count).looked_at is None
    assert isinstance(finished(old.log.look_at(behind, past_unreadable=True)), bytes)
