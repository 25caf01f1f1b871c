"""Record batches: golden bytes, what is refused, and the walk over a file."""

from __future__ import annotations

import datetime as dt
import io
import os
import struct
from pathlib import Path

import pytest
from kio.records.readers import read_batch
from kio.records.schema import NewRecordBatch, Record
from kio.records.writers import write_batch
from kio.static.primitive import i8, i16, i32, i64

from headwater_broker.log import (
    CorruptBatchError,
    InvalidRecordError,
    InvalidTimestampError,
    OsFileSystem,
    RecordTooLargeError,
    UnsupportedMagicError,
)
from headwater_broker.log.batch import HEADER, BadBatchError, walk
from headwater_broker.log.inspection import Demands, inspect
from headwater_broker.log.records import UnreadableBatchError, record_timestamps
from headwater_broker.log.validation import check_batch, stamp_append_time
from headwater_broker.testing.batches import build_batch, reseal_batch


def _kio_batch() -> bytes:
    def record(offset: int, seconds: int, value: bytes) -> Record:
        return Record(
            attributes=i8(0),
            timestamp=dt.datetime.fromtimestamp(seconds, dt.UTC),
            offset=i64(offset),
            key=None,
            value=value,
            headers=(),
        )

    buffer = io.BytesIO()
    write_batch(
        buffer,
        NewRecordBatch(
            producer_id=i64(-1),
            producer_epoch=i16(-1),
            partition_leader_epoch=i32(-1),
            base_sequence=i32(-1),
            records=(record(0, 1, b"a"), record(1, 2, b"bc")),
            attributes=i16(0),
        ),
    )
    return buffer.getvalue()


def test_build_batch_two_records_equals_kio() -> None:
    assert bytes(build_batch([b"a", b"bc"], timestamps_ms=[1000, 2000])) == _kio_batch()


def test_check_batch_of_kio_gives_its_header() -> None:
    header = check_batch(memoryview(bytearray(_kio_batch())), 1000)
    assert header[1] == len(_kio_batch()) - 12
    assert header[3] == 2
    assert header[5:9] == (0, 1, 1000, 2000)
    assert header[9:] == (-1, -1, -1, 2)


def test_header_struct_has_the_61_bytes_of_the_format() -> None:
    assert HEADER.size == 61


def test_check_batch_wrong_checksum_refused() -> None:
    batch = build_batch([b"a"])
    batch[-3] ^= 1
    with pytest.raises(CorruptBatchError, match="checksum"):
        check_batch(memoryview(batch), 1000)


@pytest.mark.parametrize("size", [0, 12, 60, 61, 66])
def test_check_batch_cut_short_refused(size: int) -> None:
    with pytest.raises(CorruptBatchError):
        check_batch(memoryview(build_batch([b"value"]))[:size], 1000)


def test_check_batch_two_batches_refused() -> None:
    with pytest.raises(InvalidRecordError, match="more than one"):
        check_batch(memoryview(build_batch([b"a"]) + build_batch([b"b"])), 1000)


@pytest.mark.parametrize("magic", [0, 1])
def test_check_batch_old_magic_refused(magic: int) -> None:
    batch = build_batch([b"a"])
    batch[16] = magic
    with pytest.raises(UnsupportedMagicError, match=f"format {magic}"):
        check_batch(memoryview(batch), 1000)


def test_check_batch_unknown_magic_refused() -> None:
    batch = build_batch([b"a"])
    batch[16] = 3
    with pytest.raises(CorruptBatchError, match="magic 3"):
        check_batch(memoryview(batch), 1000)


def test_check_batch_too_large_refused() -> None:
    batch = build_batch([b"a" * 100])
    check_batch(memoryview(batch), len(batch))
    with pytest.raises(RecordTooLargeError, match=f"{len(batch)} bytes"):
        check_batch(memoryview(batch), len(batch) - 1)


@pytest.mark.parametrize(("count", "delta"), [(2, 0), (1, 1), (0, -1), (-1, -2), (1, 2**31 - 1)])
def test_check_batch_inconsistent_counts_refused(count: int, delta: int) -> None:
    batch = build_batch([b"a"])
    struct.pack_into(">i", batch, 23, delta)
    struct.pack_into(">i", batch, 57, count)
    reseal_batch(batch)
    with pytest.raises(InvalidRecordError):
        check_batch(memoryview(batch), 1000)


@pytest.mark.parametrize(
    ("attributes", "error"),
    [(0x20, InvalidRecordError), (0x10, InvalidRecordError), (0x08, InvalidTimestampError)],
)
def test_check_batch_unwelcome_attributes_refused(attributes: int, error: type[Exception]) -> None:
    with pytest.raises(error):
        check_batch(memoryview(build_batch([b"a"], attributes=attributes)), 1000)


def test_check_batch_producer_without_sequence_refused() -> None:
    with pytest.raises(InvalidRecordError, match="sequence -1"):
        check_batch(memoryview(build_batch([b"a"], producer_id=7, producer_epoch=0)), 1000)


def test_stamp_append_time_every_record_gets_it() -> None:
    batch = build_batch([b"a", b"b"], timestamps_ms=[1000, 2000])
    stamp_append_time(memoryview(batch), 5000)
    assert list(record_timestamps(bytes(batch))) == [(0, 5000), (1, 5000)]
    read_batch(bytes(batch), 0)  # kio checks the checksum


@pytest.mark.parametrize("stamps", [[900, 1050], [1000, 1000], [-1, -1]])
def test_inspect_timestamps_within_bounds_accepted(stamps: list[int]) -> None:
    batch = memoryview(build_batch([b"a", b"b"], timestamps_ms=stamps))
    assert inspect(batch, check_batch(batch, 1000), Demands(False, 900, 1050), "t-0") == max(stamps)


@pytest.mark.parametrize(
    ("stamps", "wrong"),
    [
        ([899, 1000, 1000], [0]),
        ([1000, 1051, 1000], [1]),
        ([1000, 899, 1000], [1]),
        ([1000, 1051, 899], [1, 2]),
        ([1000, -1, 1051], [2]),
    ],
)
def test_inspect_timestamps_out_of_bounds_names_the_records(stamps: list[int], wrong: list[int]) -> None:
    batch = memoryview(build_batch([b"a", b"b", b"c"], timestamps_ms=stamps))
    with pytest.raises(InvalidTimestampError, match="rejected due to invalid timestamp") as raised:
        inspect(batch, check_batch(batch, 1000), Demands(False, 900, 1050), "t-0")
    assert [number for number, _ in raised.value.records] == wrong
    assert all("should be within [900, 1050]" in message for _, message in raised.value.records)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_record_timestamps_every_codec(codec: int) -> None:
    import cramjam

    plain = build_batch([b"a", b"bc"], timestamps_ms=[1000, 2000])
    compress = {
        1: cramjam.gzip.compress,
        2: cramjam.snappy.compress_raw,
        3: cramjam.lz4.compress,
        4: cramjam.zstd.compress,
    }
    batch = bytearray(plain[:61]) + bytes(compress[codec](bytes(plain[61:])))
    batch[22] |= codec
    assert list(record_timestamps(bytes(batch))) == [(0, 1000), (1, 2000)]


def test_record_timestamps_xerial_snappy() -> None:
    import cramjam

    plain = build_batch([b"a", b"bc"], timestamps_ms=[1000, 2000])
    framed = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    for part in (plain[61:65], plain[65:]):
        block = bytes(cramjam.snappy.compress_raw(bytes(part)))
        framed += struct.pack(">i", len(block)) + block
    batch = bytearray(plain[:61]) + framed
    batch[22] |= 2
    assert list(record_timestamps(bytes(batch))) == [(0, 1000), (1, 2000)]


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4, 5])
def test_record_timestamps_garbage_is_an_error(codec: int) -> None:
    batch = bytearray(build_batch([b"abc", b"def"])[:61]) + b"\xff\xfe"
    batch[22] |= codec
    with pytest.raises(UnreadableBatchError):
        list(record_timestamps(bytes(batch)))


def _walk(path: Path, *, check: bool, chunk_bytes: int) -> list[tuple[int, int, int]]:
    fd = os.open(path, os.O_RDONLY)
    try:
        batches = walk(OsFileSystem(), fd, 0, path.stat().st_size, check=check, chunk_bytes=chunk_bytes)
        return [(position, size, header[0]) for position, size, header in batches]
    finally:
        os.close(fd)


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("chunk_bytes", [1, 61, 100, 4096])
def test_walk_any_chunk_size_finds_every_batch(tmp_path: Path, check: bool, chunk_bytes: int) -> None:
    batches = [build_batch([b"x" * (offset * 37 % 200)], base_offset=offset) for offset in range(20)]
    (tmp_path / "log").write_bytes(b"".join(batches))
    found = _walk(tmp_path / "log", check=check, chunk_bytes=chunk_bytes)
    assert [offset for _, _, offset in found] == list(range(20))
    assert [size for _, size, _ in found] == [len(batch) for batch in batches]


@pytest.mark.parametrize("check", [True, False])
def test_walk_offsets_that_go_back_are_bad(tmp_path: Path, check: bool) -> None:
    first = build_batch([b"a", b"b"], base_offset=5)
    (tmp_path / "log").write_bytes(first + build_batch([b"c"], base_offset=6))
    with pytest.raises(BadBatchError, match="do not follow") as caught:
        _walk(tmp_path / "log", check=check, chunk_bytes=100)
    assert caught.value.position == len(first)
    assert not caught.value.torn


@pytest.mark.parametrize("check", [True, False])
def test_walk_cut_file_is_torn(tmp_path: Path, check: bool) -> None:
    first = build_batch([b"a"])
    second = build_batch([b"b" * 100], base_offset=1)
    for kept in range(1, len(second)):
        (tmp_path / "log").write_bytes(first + second[:kept])
        with pytest.raises(BadBatchError) as caught:
            _walk(tmp_path / "log", check=check, chunk_bytes=128)
        assert caught.value.torn
        assert caught.value.position == len(first)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_check_batch_takes_every_codec_as_it_was_sent(codec: int) -> None:
    batch = build_batch([b"a", b"b" * 1000], attributes=codec)
    copy = bytes(batch)
    assert check_batch(memoryview(batch), 10_000)[5] == codec
    assert batch == copy


@pytest.mark.parametrize(("codec", "claimed"), [(0, 1), (0, 3), (1, 4), (4, 3), (1, 5), (4, 7)])
def test_check_batch_that_is_not_what_its_codec_writes_refused(codec: int, claimed: int) -> None:
    batch = build_batch([b"a"], attributes=codec)
    batch[22] = claimed
    reseal_batch(batch)
    with pytest.raises(InvalidRecordError, match=f"codec {claimed}"):
        check_batch(memoryview(batch), 10_000)
