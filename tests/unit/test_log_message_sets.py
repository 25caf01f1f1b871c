"""Message formats 0 and 1: old producers' messages become a record batch, and batches old consumers' messages."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from zlib import crc32

import pytest

from headwater_broker.log import (
    CorruptBatchError,
    InvalidRecordError,
    UnsupportedCodecError,
    batch_of_messages,
    finished,
    messages_of_batches,
    without_zstd,
)
from headwater_broker.log.batch import ATTRIBUTES, BASE_TIMESTAMP_MS, MAX_TIMESTAMP_MS, RECORD_COUNT
from headwater_broker.log.compression import (
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    compress,
    decompress,
    with_lz4_checksum,
)
from headwater_broker.log.records import record_timestamps
from headwater_broker.log.validation import check_batch
from headwater_broker.testing.batches import build_batch

Entry = tuple[int, int, int, bytes | None, bytes | None]
"""Offset, attributes, timestamp, key and value."""


def message(
    value: bytes | None,
    *,
    key: bytes | None = None,
    offset: int = 0,
    magic: int = 1,
    attributes: int = 0,
    timestamp_ms: int = 0,
) -> bytes:
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp_ms) if magic else b"")
    for data in (key, value):
        body += struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data
    return struct.pack(">qiI", offset, 4 + len(body), crc32(body)) + body


def read(messages: bytes) -> list[Entry]:
    """The messages of a set, by the protocol's own description; checks each one's checksum."""
    found: list[Entry] = []
    at = 0
    while at < len(messages):
        offset, size, checksum, magic, attributes = struct.unpack_from(">qiIbb", messages, at)
        end, position, timestamp_ms = at + 12 + size, at + 18, -1
        assert crc32(messages[at + 16 : end]) == checksum
        if magic:
            (timestamp_ms,) = struct.unpack_from(">q", messages, position)
            position += 8
        fields: list[bytes | None] = []
        for _ in range(2):
            (length,) = struct.unpack_from(">i", messages, position)
            position += 4 + max(length, 0)
            fields.append(None if length < 0 else messages[position - length : position])
        assert position == end
        found.append((offset, attributes, timestamp_ms, *fields))
        at = end
    return found


def converted(batches: bytes, magic: int, first_offset: int, room_bytes: int | None = None) -> bytes:
    return finished(messages_of_batches(batches, magic, first_offset, room_bytes))


def values_of(batch: memoryview) -> list[tuple[bytes | None, bytes | None]]:
    return [entry[3:] for entry in opened(converted(bytes(batch), 1, 0))]


def opened(messages: bytes) -> list[Entry]:
    entries = read(messages)
    if entries and entries[0][1] & 7:
        ((_, attributes, _, _, value),) = entries
        assert value is not None
        return read(decompress(value, attributes & 7))
    return entries


def test_message_of_format_0_golden_bytes() -> None:
    # Kafka's guide to the protocol: offset, size, CRC, magic, attributes, key, value.
    expected = bytes.fromhex("000000000000000700000010fd6ebddb0000ffffffff000000026869")
    assert converted(bytes(build_batch([b"hi"], base_offset=7)), 0, 0) == expected


@pytest.mark.parametrize("magic", [0, 1])
def test_batch_of_messages_plain_keeps_keys_values_and_times(magic: int) -> None:
    entries = [(b"a", b"1", 500), (None, b"2", 300), (b"c", None, 900)]
    sent = b"".join(
        message(value, key=key, magic=magic, timestamp_ms=time_ms, offset=number)
        for number, (key, value, time_ms) in enumerate(entries)
    )
    batch = batch_of_messages(memoryview(sent))
    header = check_batch(batch, 1000)
    assert header[RECORD_COUNT] == 3
    times = [500, 300, 900] if magic else [-1, -1, -1]
    assert [time_ms for _, time_ms in record_timestamps(bytes(batch))] == times
    assert (header[BASE_TIMESTAMP_MS], header[MAX_TIMESTAMP_MS]) == (times[0], max(times))
    assert values_of(batch) == [(key, value) for key, value, _ in entries]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
def test_batch_of_messages_compressed_keeps_the_codec(magic: int, codec: int) -> None:
    inside = b"".join(message(b"v%d" % number, magic=magic, offset=number) for number in range(5))
    packed = bytearray(compress(inside, codec))
    if codec == LZ4 and magic == 0:
        packed[6] ^= 0xFF  # the header's checksum, which clients of format 0 counted wrongly
    sent = message(bytes(packed), magic=magic, attributes=codec, offset=4)
    batch = batch_of_messages(memoryview(sent))
    assert check_batch(batch, 1000)[ATTRIBUTES] == codec
    assert values_of(batch) == [(None, b"v%d" % number) for number in range(5)]


def test_batch_of_messages_cut_off_message_is_left_out() -> None:
    sent = message(b"whole") + message(b"torn")[:-1]
    assert values_of(batch_of_messages(memoryview(sent))) == [(None, b"whole")]


def test_batch_of_messages_record_batch_stays_as_it_is() -> None:
    batch = memoryview(build_batch([b"new"]))
    assert batch_of_messages(batch) is batch


def _with_wrong_checksum() -> bytes:
    sent = bytearray(message(b"value"))
    sent[-1] ^= 1
    return bytes(sent)


def _with_wrong_length(length: int) -> bytes:
    body = struct.pack(">bbq", 1, 0, 0) + struct.pack(">ii", -1, length) + b"abc"
    return struct.pack(">qiI", 0, 4 + len(body), crc32(body)) + body


WRAPPED = compress(message(b"x"), GZIP)
BAD: list[tuple[str, bytes, type[Exception]]] = [
    ("checksum", _with_wrong_checksum(), CorruptBatchError),
    ("value past the end", _with_wrong_length(4), CorruptBatchError),
    ("bytes behind the value", _with_wrong_length(2), CorruptBatchError),
    ("huge value", _with_wrong_length(2**31 - 1), CorruptBatchError),
    ("least size", struct.pack(">qi", 0, 13) + bytes(13), CorruptBatchError),
    ("magic", message(b"x", magic=3), CorruptBatchError),
    ("nothing", b"", InvalidRecordError),
    ("only a part", message(b"x")[:-1], InvalidRecordError),
    ("two compressed", message(WRAPPED, attributes=GZIP) * 2, InvalidRecordError),
    ("not what the codec writes", message(b"no gzip", attributes=GZIP), InvalidRecordError),
    ("compressed nothing", message(None, attributes=GZIP), InvalidRecordError),
    ("zstd", message(compress(message(b"x"), ZSTD), attributes=ZSTD), InvalidRecordError),
    (
        "compressed twice",
        message(compress(message(WRAPPED, attributes=GZIP), GZIP), attributes=GZIP),
        InvalidRecordError,
    ),
]


@pytest.mark.parametrize(("sent", "error"), [each[1:] for each in BAD], ids=[each[0] for each in BAD])
def test_batch_of_messages_bad_set_is_refused(sent: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        batch_of_messages(memoryview(sent))


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_batches_plain_begin_with_the_offset_asked_for(magic: int) -> None:
    batches = build_batch([b"a", b"b"], base_offset=10, timestamps_ms=[5, 4]) + build_batch(
        [None], keys=[b"k"], base_offset=20, timestamps_ms=[9]
    )
    times = (4, 9) if magic else (-1, -1)
    assert read(converted(bytes(batches), magic, 11)) == [
        (11, 0, times[0], None, b"b"),
        (20, 0, times[1], b"k", None),
    ]


def test_messages_of_batches_append_time_is_told_in_format_1() -> None:
    batch = bytes(build_batch([b"a", b"b"], timestamps_ms=[5, 8], attributes=8))
    assert [entry[1:3] for entry in read(converted(batch, 1, 0))] == [(8, 8), (8, 8)]
    assert [entry[1:3] for entry in read(converted(batch, 0, 0))] == [(0, -1), (0, -1)]


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
def test_messages_of_batches_compressed_count_from_zero_in_format_1(codec: int) -> None:
    batch = bytes(build_batch([b"a", b"b"], base_offset=40, timestamps_ms=[5, 4], attributes=codec))
    ((offset, attributes, timestamp_ms, key, _),) = read(converted(batch, 1, 41))
    assert (offset, attributes, timestamp_ms, key) == (41, codec, 5, None)
    assert [entry[0] for entry in opened(converted(batch, 1, 41))] == [0, 1]


@pytest.mark.parametrize("codec", [GZIP, SNAPPY])
def test_messages_of_batches_compressed_keep_their_offsets_in_format_0(codec: int) -> None:
    batch = bytes(build_batch([b"a", b"b"], base_offset=40, attributes=codec))
    assert [entry[0] for entry in opened(converted(batch, 0, 41))] == [40, 41]


def test_messages_of_batches_lz4_of_format_0_has_the_checksum_of_its_time() -> None:
    batch = bytes(build_batch([b"a"], attributes=LZ4))
    ((_, _, _, _, value),) = read(converted(batch, 0, 0))
    assert value is not None
    # xxHash-32 of the frame's magic and descriptor, 04 22 4D 18 60 40, as KAFKA-3160 describes it.
    assert value[:7] == bytes.fromhex("04224d1860401a")
    assert values_of(batch_of_messages(memoryview(message(value, magic=0, attributes=LZ4)))) == [(None, b"a")]


def test_messages_of_batches_markers_are_left_out() -> None:
    batches = bytes(build_batch([b"marker"], attributes=0x20) + build_batch([b"a"], base_offset=1))
    assert [entry[0] for entry in read(converted(batches, 1, 0))] == [1]


def test_messages_of_batches_zstd_is_refused() -> None:
    with pytest.raises(UnsupportedCodecError):
        converted(bytes(build_batch([b"a"], attributes=ZSTD)), 1, 0)


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4])
def test_without_zstd_other_codecs_pass(codec: int) -> None:
    batch = memoryview(build_batch([b"a"], attributes=codec))
    assert without_zstd(batch) is batch


def test_without_zstd_refuses_zstd() -> None:
    with pytest.raises(UnsupportedCodecError):
        without_zstd(memoryview(build_batch([b"a"], attributes=ZSTD)))


def test_batch_of_messages_every_cut_is_refused_or_a_part() -> None:
    """A set that ends anywhere gives the messages before, or an error that the server has a code for."""
    whole: Sequence[bytes] = [message(b"one"), message(b"two", magic=0)]
    sent = b"".join(whole)
    for end in range(len(sent)):
        try:
            values = values_of(batch_of_messages(memoryview(sent[:end])))
        except InvalidRecordError:
            values = []
        assert values == ([(None, b"one")] if end >= len(whole[0]) else [])


def test_messages_of_batches_stop_where_there_is_no_room() -> None:
    batches = bytes(build_batch([b"x" * 1000] * 50)) + bytes(build_batch([b"y"], base_offset=50))
    some = read(converted(batches, 1, 3, 10_000))
    assert [entry[0] for entry in some] == list(range(3, 13))
    assert [entry[0] for entry in read(converted(batches, 1, 49, 1))] == [49]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
def test_messages_of_batches_a_large_compressed_batch_comes_in_several_messages(
    codec: int, magic: int
) -> None:
    """Each fetch gets some of it, with the offsets that it would have had in one."""
    count = 12_000
    batch = bytes(
        build_batch([b"%d" % number * 20 for number in range(count)], attributes=codec, base_offset=7)
    )
    seen: dict[int, bytes | None] = {}
    fetches, wanted = 0, 7
    while wanted < 7 + count:
        entries = read(converted(batch, magic, wanted, 1))
        assert entries[0][1] == codec
        for offset, _, _, _, packed in entries:
            assert packed is not None
            inside = _inside(packed, codec, magic, offset)
            assert inside[0][0] == wanted
            seen.update(inside)
            wanted = inside[-1][0] + 1
        fetches += 1
    assert fetches > 3
    assert seen == {7 + number: b"%d" % number * 20 for number in range(count)}


def _inside(packed: bytes, codec: int, magic: int, offset: int) -> list[tuple[int, bytes | None]]:
    """Offsets, as a consumer makes them of the message around, and values."""
    data = with_lz4_checksum(packed) if magic == 0 else packed
    entries = read(decompress(data, codec))
    first = offset - entries[-1][0] if magic else 0
    return [(first + entry[0], entry[4]) for entry in entries]


def test_messages_of_batches_millions_of_records_are_looked_at_a_few_at_a_time() -> None:
    batch = bytes(build_batch([None] * 200_000, attributes=GZIP))
    steps = 0
    slices = messages_of_batches(batch, 1, 150_000, 1)
    while True:
        try:
            next(slices)
        except StopIteration as end:
            found = end.value
            break
        steps += 1
    assert steps > 1000
    assert 0 < len(found) < 30_000


def test_messages_of_batches_records_before_a_bad_one_are_there() -> None:
    batch = build_batch([b"a" * 100, b"b" * 100])
    struct.pack_into(">i", batch, 57, 3)  # one more than there are
    batches = bytes(build_batch([b"first"])) + bytes(batch)
    assert len(read(converted(batches, 1, 0))) == 3
    with pytest.raises(CorruptBatchError, match="ends within a record"):
        converted(bytes(batch)[:-30], 1, 5)
