"""Batches with something wrong inside, each with a right checksum, and what Apache Kafka 3.9.1 answers to them.

One table for the log (tests/unit), for the broker over a socket (tests/clients) and for Apache Kafka (tests/kafka).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from crc32c import crc32c

from headwater_broker.log.compression import compress
from headwater_broker.log.records import write_varint

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NOW_MS = 1_790_000_000_000
_HEADER = struct.Struct(">qiibIhiqqqhii")
_CHECKED_FROM = 21


ACCEPTED = frozenset(
    {
        "good",
        "good, headers",
        "good, tombstone",
        "record length not its shortest form",
        "record attributes set",
        "inner record with a codec",
        "sequence without producer",
        "producer -2",
        "attributes unknown",
        "delete horizon",
        "stamp -1",
        "stamp 0",
        "stamp too large",
        "stamp negative",
    }
)
"""What we accept, as Kafka does."""

ACCEPTED_BY_KAFKA = frozenset(
    {
        "record length of 5 bytes and 40 bits",
        "key length -2",
        "key length least",
        "value length -2",
        "header value length -2",
        "append time",
        "producer without epoch",
    }
)
"""What Kafka accepts and we do not, compressed or not: no client sends it, and not every reader reads it."""

ACCEPTED_BY_KAFKA_PLAIN = frozenset(
    {"deltas from one", "deltas with a gap", "deltas the same", "deltas backwards", "negative delta"}
)
"""What only Kafka accepts, and only uncompressed; its consumers then see offsets twice, or never."""

ACCEPTED_BY_KAFKA_COMPRESSED = frozenset(
    {
        "record length negative",
        "record length too short",
        "record length too long",
        "record length beyond the end",
    }
)
"""What only Kafka accepts, and only compressed; its consumers stop there for ever."""


def raw_record(
    delta: int,
    value: bytes | None = b"value",
    *,
    key: bytes | None = None,
    stamp_delta_ms: int = 0,
    attributes: int = 0,
    headers: Sequence[tuple[bytes, bytes | None]] = (),
    body: bytes | None = None,
    length: int | None = None,
) -> bytes:
    """One record; `body` and `length` replace those that follow from the other arguments."""
    if body is None:
        parts = [
            bytes((attributes,)),
            write_varint(stamp_delta_ms),
            write_varint(delta),
            _sized(key),
            _sized(value),
        ]
        parts.append(write_varint(len(headers)))
        for name, content in headers:
            parts += [_sized(name), _sized(content)]
        body = b"".join(parts)
    return write_varint(len(body) if length is None else length) + body


def raw_batch(
    records: bytes,
    count: int,
    *,
    codec: int = NONE,
    packed: bytes | None = None,
    last_delta: int | None = None,
    base_offset: int = 0,
    attributes: int = 0,
    first_ms: int = NOW_MS,
    greatest_ms: int | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytearray:
    """A batch around `records`, whatever they are; `packed` replaces the bytes that the codec would make of them."""
    data = compress(records, codec) if packed is None else packed
    batch = bytearray(
        _HEADER.pack(
            base_offset,
            _HEADER.size - 12 + len(data),
            -1,
            2,
            0,
            attributes | codec,
            count - 1 if last_delta is None else last_delta,
            first_ms,
            first_ms if greatest_ms is None else greatest_ms,
            *producer,
            count,
        )
    )
    batch += data
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[_CHECKED_FROM:]))
    return batch


def _sized(data: bytes | None) -> bytes:
    return write_varint(-1) if data is None else write_varint(len(data)) + data


def plain(count: int) -> bytes:
    """So many ordinary records."""
    return b"".join(raw_record(delta) for delta in range(count))


_BAD_VARINT = b"\xff" * 10 + b"\x01"


def cases(codec: int) -> Mapping[str, bytearray]:
    """The batches by name, compressed or not."""

    def batch(records: bytes, count: int, **more: object) -> bytearray:
        return raw_batch(records, count, codec=codec, **more)  # type: ignore[arg-type]

    v = write_varint
    start = b"\0" + v(0) + v(0)
    batches = {
        "good": batch(plain(3), 3),
        "good, headers": batch(raw_record(0, headers=[(b"a", b"1"), (b"", None)]), 1),
        "good, tombstone": batch(raw_record(0, None, key=b"k"), 1),
        "more records than the count": batch(plain(3), 2),
        "fewer records than the count": batch(plain(3), 4),
        "huge count": batch(plain(3), 2**31 - 1),
        "negative count": batch(plain(3), -1, last_delta=2),
        "zero count": batch(plain(3), 0, last_delta=0),
        "empty that claims records": batch(b"", 3),
        "empty that claims none": batch(b"", 0),
        "garbage": batch(bytes(range(7, 97)), 3),
        "bytes left over": batch(plain(3) + b"xyz", 3),
        "zeros left over": batch(plain(3) + bytes(30), 3),
        "deltas from one": batch(raw_record(1) + raw_record(2), 2),
        "deltas with a gap": batch(raw_record(0) + raw_record(2), 2),
        "deltas the same": batch(raw_record(0) + raw_record(0), 2),
        "deltas backwards": batch(raw_record(1) + raw_record(0), 2),
        "negative delta": batch(raw_record(-1), 1),
        "last delta too large": batch(plain(3), 3, last_delta=7),
        "last delta too small": batch(plain(3), 3, last_delta=1),
        "last delta negative": batch(plain(3), 3, last_delta=-1),
        "base offset of 5": batch(plain(3), 3, base_offset=5),
        "base offset negative": batch(plain(3), 3, base_offset=-1),
        "record length 0": batch(v(0) + plain(1), 1),
        "record length negative": batch(v(-5) + plain(1)[1:], 1),
        "record length too short": batch(raw_record(0, length=8), 1),
        "record length too long": batch(raw_record(0, length=20), 1),
        "record length one more, one byte more": batch(raw_record(0, length=12) + b"\0", 1),
        "record length beyond the end": batch(raw_record(0, length=1000), 1),
        "record length of 10 bytes": batch(_BAD_VARINT + raw_record(0)[1:], 1),
        "record length of 5 bytes and 40 bits": batch(b"\x96\x80\x80\x80\x70" + raw_record(0)[1:], 1),
        "record length not its shortest form": batch(b"\x96\x80\x00" + raw_record(0)[1:], 1),
        "stamp delta of 11 bytes": batch(
            raw_record(0, body=b"\0" + _BAD_VARINT + v(0) + v(-1) + v(1) + b"x" + v(0)), 1
        ),
        "delta of 6 bytes": batch(
            raw_record(0, body=b"\0" + v(0) + b"\x80" * 5 + b"\0" + v(-1) + v(1) + b"x" + v(0)), 1
        ),
        "key length beyond": batch(raw_record(0, body=start + v(50) + b"k" + v(1) + b"x" + v(0)), 1),
        "key length -2": batch(raw_record(0, body=start + v(-2) + v(1) + b"x" + v(0)), 1),
        "key length least": batch(raw_record(0, body=start + v(-(2**31)) + v(1) + b"x" + v(0)), 1),
        "value length beyond": batch(raw_record(0, body=start + v(-1) + v(50) + b"x" + v(0)), 1),
        "value length -2": batch(raw_record(0, body=start + v(-1) + v(-2) + v(0)), 1),
        "value length huge": batch(raw_record(0, body=start + v(-1) + v(2**31 - 1) + b"x" + v(0)), 1),
        "headers -1": batch(raw_record(0, body=start + v(-1) + v(1) + b"x" + v(-1)), 1),
        "headers claimed": batch(raw_record(0, body=start + v(-1) + v(1) + b"x" + v(2)), 1),
        "headers huge": batch(raw_record(0, body=start + v(-1) + v(1) + b"x" + v(2**31 - 1)), 1),
        "headers left out": batch(raw_record(0, body=start + v(-1) + v(1) + b"x"), 1),
        "header key length -1": batch(
            raw_record(0, body=start + v(-1) + v(1) + b"x" + v(1) + v(-1) + v(0)), 1
        ),
        "header value length -2": batch(
            raw_record(0, body=start + v(-1) + v(1) + b"x" + v(1) + v(1) + b"h" + v(-2)), 1
        ),
        "header key beyond": batch(
            raw_record(0, body=start + v(-1) + v(1) + b"x" + v(1) + v(99) + b"h" + v(0)), 1
        ),
        "header value beyond": batch(
            raw_record(0, body=start + v(-1) + v(1) + b"x" + v(1) + v(1) + b"h" + v(99)), 1
        ),
        "bytes behind the headers": batch(raw_record(0, body=start + v(-1) + v(1) + b"x" + v(0) + b"zz"), 1),
        "record attributes set": batch(raw_record(0, attributes=1), 1),
        "control batch": batch(raw_record(0, b"\0\0\0\1\0\0", key=b"\0\0\0\1"), 1, attributes=0x20),
        "append time": batch(plain(1), 1, attributes=0x08),
        "transactional without a producer": batch(plain(1), 1, attributes=0x10),
        "producer without epoch": batch(plain(1), 1, producer=(7, -1, 0)),
        "producer without sequence": batch(plain(1), 1, producer=(7, 0, -1)),
        "sequence without producer": batch(plain(1), 1, producer=(-1, -1, 5)),
        "producer -2": batch(plain(1), 1, producer=(-2, 0, 0)),
        "attributes unknown": batch(plain(1), 1, attributes=0x4000),
        "delete horizon": batch(plain(1), 1, attributes=0x40),
        "stamp -1": batch(plain(1), 1, greatest_ms=-1),
        "stamp 0": batch(plain(1), 1, greatest_ms=0),
        "stamp too large": batch(plain(1), 1, greatest_ms=NOW_MS + 10**9),
        "stamp negative": batch(plain(1), 1, first_ms=-5, greatest_ms=-5),
    }
    if codec == NONE:
        batches["codec 5"] = raw_batch(plain(1), 1, packed=plain(1), attributes=5)
        batches["codec 7"] = raw_batch(plain(1), 1, packed=plain(1), attributes=7)
    else:
        whole = compress(plain(300), codec)
        batches["compressed garbage"] = raw_batch(
            b"", 1, codec=codec, packed=b"garbage that no codec writes" * 3
        )
        batches["compressed nothing"] = raw_batch(b"", 1, codec=codec, packed=b"")
        batches["compressed cut off"] = raw_batch(b"", 300, codec=codec, packed=whole[:-6])
        batches["compressed and more behind"] = raw_batch(b"", 300, codec=codec, packed=whole + b"more")
        batches["not compressed"] = raw_batch(b"", 1, codec=codec, packed=plain(1))
        batches["compressed twice over"] = raw_batch(b"", 300, codec=codec, packed=compress(whole, codec))
        batches["inner record with a codec"] = batch(raw_record(0, attributes=codec), 1)
    return batches
