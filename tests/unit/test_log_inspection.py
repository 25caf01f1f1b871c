"""A batch is looked into before it is stored: every record, compressed or not, within what may be done at once."""

from __future__ import annotations

import pytest
from crc32c import crc32c

from bad_batches import ACCEPTED, GZIP, LZ4, NONE, NOW_MS, SNAPPY, ZSTD, cases, plain, raw_batch, raw_record
from headwater_broker.log import inspection
from headwater_broker.log.batch import (
    CHECKED_FROM,
    CHECKSUM_VALUE,
    HEADER,
    MAX_TIMESTAMP_MS,
)
from headwater_broker.log.compression import UndecodableError, compress
from headwater_broker.log.decompression import decompressed_slices
from headwater_broker.log.errors import InvalidBatchError, InvalidRecordError, InvalidTimestampError
from headwater_broker.log.inspection import Allowance, Demands, TooMuchAtOnceError, inspect
from headwater_broker.log.validation import check_batch
from headwater_broker.log.walk import PlainWalker, plain_records

CODECS = (NONE, GZIP, SNAPPY, LZ4, ZSTD)
MANY_BYTES = 1 << 20


@pytest.fixture(params=["as installed", "in Python"])
def _either_walk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "in Python":
        monkeypatch.setattr(inspection, "Walker", PlainWalker)
        monkeypatch.setattr(inspection, "are_plain", plain_records)


@pytest.mark.usefixtures("_either_walk")
@pytest.mark.parametrize("codec", CODECS)
def test_inspect_takes_good_batches_and_refuses_bad_ones(codec: int) -> None:
    for name, data in cases(codec).items():
        batch = memoryview(data)
        if name in ACCEPTED:
            inspect(batch, check_batch(batch, MANY_BYTES), Demands(), "t-0")
            continue
        with pytest.raises(InvalidBatchError):
            pytest.fail(
                f"{name} is taken: {inspect(batch, check_batch(batch, MANY_BYTES), Demands(), 't-0')}"
            )


@pytest.mark.usefixtures("_either_walk")
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("claimed_ms", [-1, 0, NOW_MS, NOW_MS + 10**12])
def test_inspect_makes_the_greatest_timestamp_right(codec: int, claimed_ms: int) -> None:
    records = raw_record(0) + raw_record(1, stamp_delta_ms=700) + raw_record(2, stamp_delta_ms=-10)
    batch = memoryview(raw_batch(records, 3, codec=codec, greatest_ms=claimed_ms))
    assert inspect(batch, check_batch(batch, MANY_BYTES), Demands(), "t-0") == NOW_MS + 700
    header = HEADER.unpack_from(batch)
    assert header[MAX_TIMESTAMP_MS] == NOW_MS + 700
    assert header[CHECKSUM_VALUE] == crc32c(batch[CHECKED_FROM:])


@pytest.mark.parametrize("codec", CODECS)
def test_inspect_names_some_of_the_records_that_are_wrong_and_counts_all(codec: int) -> None:
    batch = memoryview(raw_batch(plain(5_000), 5_000, codec=codec))
    with pytest.raises(InvalidRecordError, match="due to 5000 record errors in total") as keyless:
        inspect(batch, check_batch(batch, MANY_BYTES), Demands(needs_keys=True), "t-0")
    assert [number for number, _ in keyless.value.records] == list(range(100))
    assert len(str(keyless.value)) < 1_000
    with pytest.raises(InvalidTimestampError, match="due to invalid timestamp") as late:
        inspect(batch, check_batch(batch, MANY_BYTES), Demands(latest_ms=NOW_MS - 1), "t-0")
    assert len(late.value.records) == 100


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
def test_inspect_stops_where_more_comes_out_than_is_allowed(codec: int) -> None:
    batch = memoryview(raw_batch(raw_record(0, bytes(50 << 20)), 1, codec=codec))
    assert len(batch) < 300_000
    header = check_batch(batch, MANY_BYTES)
    allowance = Allowance(2 << 20)
    with pytest.raises(TooMuchAtOnceError):
        inspect(batch, header, Demands(), "t-0", allowance)
    assert allowance.remaining >= -inspection.SLICE_BYTES
    assert inspect(batch, header, Demands(), "t-0") == NOW_MS


def _empty_dynamic_blocks(count: int) -> bytes:
    """A member of gzip with blocks that hold nothing but their Huffman tables."""
    # Not the last one, dynamic; the least numbers of lengths, for 18 code lengths.
    fields = [(0, 1), (2, 2), (0, 5), (0, 5), (14, 4)]
    fields += [({2: 1, 3: 2, 17: 2}.get(place, 0), 3) for place in range(18)]  # of 18: 1; of 0 and of 1: 2
    bits = "".join(format(value, f"0{size}b")[::-1] for value, size in fields)
    bits += "0" + format(127, "07b")[::-1] + "0" + format(107, "07b")[::-1]  # 138 and 118 times no code
    bits += "11" + "10" + "0"  # a code for the end, none for distances; the end
    bits *= count
    bits += "1100000000"  # the last block, of the fixed codes: the end
    bits += "0" * (-len(bits) % 8)
    data = bytes(int(bits[at : at + 8][::-1], 2) for at in range(0, len(bits), 8))
    return b"\x1f\x8b\x08\0\0\0\0\0\0\x03" + data + bytes(8)


_EMPTY = {
    "members of gzip": (GZIP, compress(b"", GZIP)),
    "blocks of gzip": (GZIP, _empty_dynamic_blocks(2_000)),
    "blocks of snappy": (SNAPPY, b"\0\0\0\x01\0"),
    "frames of lz4": (LZ4, compress(b"", LZ4)),
    "frames of zstd": (ZSTD, compress(b"", ZSTD)),
    "skipped frames of zstd": (ZSTD, b"\x50\x2a\x4d\x18\0\0\0\0"),
    "blocks of zstd": (ZSTD, b"\x28\xb5\x2f\xfd\0\x50" + b"\0\0\0" * 100_000 + b"\x01\0\0"),
}


@pytest.mark.parametrize("kind", _EMPTY)
def test_inspect_stops_where_nothing_comes_out_of_much(kind: str) -> None:
    codec, empty = _EMPTY[kind]
    packed = compress(raw_record(0), codec) + empty * (900_000 // len(empty))
    batch = memoryview(raw_batch(b"", 1, codec=codec, packed=packed))
    header = check_batch(batch, MANY_BYTES)
    with pytest.raises(TooMuchAtOnceError):
        inspect(batch, header, Demands(), "t-0", Allowance(2 << 20))
    assert inspect(batch, header, Demands(), "t-0") == NOW_MS


def test_inspect_counts_records_that_are_looked_at() -> None:
    batch = memoryview(raw_batch(plain(1), 400_000_000, last_delta=399_999_999))
    with pytest.raises(TooMuchAtOnceError):
        inspect(batch, check_batch(batch, MANY_BYTES), Demands(), "t-0", Allowance(2 << 20))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [1, 63, 4_096, 1 << 20])
def test_decompressed_slices_are_what_was_compressed(codec: int, size: int) -> None:
    for data in (b"", b"a", bytes(range(256)) * 40, bytes(300_000)):
        if size == 1 and len(data) > 20_000:
            continue
        packed = compress(data, codec)
        pieces = [bytes(piece) for piece in decompressed_slices(packed, codec, size)]
        assert b"".join(pieces) == data
        if codec != SNAPPY:
            most = max(size, 128 << 10) if codec == ZSTD else size  # of a block
            assert all(len(piece) <= most for piece in pieces)
        if codec != SNAPPY and size > 1:
            assert b"".join(decompressed_slices(packed + packed, codec, size)) == data + data


@pytest.mark.parametrize("codec", CODECS)
def test_decompressed_slices_are_read_side_by_side(codec: int) -> None:
    """As in another thread, or by a fetch that lets others in."""
    contents = [bytes([number]) * 700_000 + bytes(range(256)) for number in range(4)]
    found = [bytearray() for _ in contents]
    under_way = {
        number: decompressed_slices(compress(content, codec), codec, 64 << 10)
        for number, content in enumerate(contents)
    }
    while under_way:
        for number, slices in list(under_way.items()):
            piece = next(slices, None)
            if piece is None:
                del under_way[number]
            else:
                found[number] += piece
    assert found == contents


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_decompressed_slices_tell_what_is_cut_off_or_more(codec: int) -> None:
    packed = compress(bytes(range(256)) * 40, codec)
    for wrong in (
        *(packed[:-cut] for cut in range(1, len(packed))),
        *(packed + b"x" * more for more in (1, 5, 9)),
    ):
        if codec == SNAPPY and len(wrong) == 16:
            continue  # the blocks that Java writes have no end: none of them is one, too
        with pytest.raises(UndecodableError):
            b"".join(decompressed_slices(wrong, codec, 4_096))


def test_decompressed_slices_skip_what_zstd_says_to() -> None:
    skipped = b"\x53\x2a\x4d\x18\x05\x00\x00\x00hello"
    packed = compress(b"value", ZSTD)
    assert b"".join(decompressed_slices(packed + skipped + packed, ZSTD, 4_096)) == b"valuevalue"
