"""What stands in a Produce request: batches and message sets of all formats, whole, broken, or full of zeros."""

from __future__ import annotations

import random
import struct
from functools import cache
from zlib import crc32

import bad_batches
from headwater_broker.log.compression import compress
from headwater_broker.testing.batches import build_batch, reseal_batch
from wire_fuzz.values import World

_CODECS = (bad_batches.NONE, bad_batches.GZIP, bad_batches.SNAPPY, bad_batches.LZ4, bad_batches.ZSTD)
_BOMB_BYTES = 24_000_000
_HEADER_BYTES = 61
_EXTREMES = (b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff", b"\x00\x00\x00\x00")


def records(rng: random.Random, world: World, is_wild: bool) -> bytes | None:
    """Bytes for the field `records`."""
    kind = rng.random()
    if is_wild and kind < 0.05:
        return None
    if is_wild and kind < 0.25:
        return rng.choice(list(_bad(rng.choice(_CODECS)).values()))
    if is_wild and kind < 0.28:
        return _bomb(rng.choice(_CODECS[1:]))
    data = _messages(rng, 1) if kind < 0.4 else _batch(rng, world)
    if kind > 0.95:
        data += _batch(rng, world)
    return bytes(_broken(rng, data) if is_wild else data)


def _batch(rng: random.Random, world: World) -> bytearray:
    values = [rng.choice((b"v" * rng.randrange(30), None, b"")) for _ in range(rng.choice((1, 1, 2, 5)))]
    producer_id = -1 if rng.random() < 0.5 else world.value(rng, "producer_id", "", "int64")
    has_id = producer_id >= 0
    return build_batch(
        values,
        keys=[rng.choice((None, b"k", b"")) for _ in values],
        timestamps_ms=[rng.choice((0, 5, bad_batches.NOW_MS)) for _ in values],
        producer_id=producer_id,
        producer_epoch=world.value(rng, "producer_epoch", "", "int16") if has_id else -1,
        base_sequence=rng.choice((0, 0, 1, 2**31 - 1)) if has_id else -1,
        attributes=rng.choice(_CODECS) | (0x10 if has_id and rng.random() < 0.4 else 0),
    )


def _broken(rng: random.Random, data: bytes | bytearray) -> bytes:
    """One field of the header, or any byte, is another; the checksum is right, often."""
    changed = bytearray(data)
    if not changed:
        return b""
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(min(len(changed), _HEADER_BYTES) if rng.random() < 0.7 else len(changed))
        if rng.random() < 0.4:
            changed[at : at + 4] = rng.choice(_EXTREMES)
        else:
            changed[at] = rng.choice((0, 1, 2, 3, 0x7F, 0x80, 0xFF, changed[at] ^ (1 << rng.randrange(8))))
    if rng.random() < 0.2:
        del changed[rng.randrange(len(changed)) :]
    if len(changed) > _HEADER_BYTES and rng.random() < 0.8:
        reseal_batch(changed)
    return bytes(changed)


def _messages(rng: random.Random, depth: int) -> bytearray:
    """A message set of format 0 or 1, perhaps within another."""
    magic, codec = rng.choice((0, 1)), rng.choice((0, 0, 1, 2, 3)) if depth else 0
    found = bytearray()
    for number in range(rng.choice((1, 1, 2, 4))):
        value: bytes | None = rng.choice((None, b"", b"value"))
        if codec:
            value = compress(bytes(_messages(rng, depth - 1)), codec)
        body = struct.pack(">bb", magic, codec) + (struct.pack(">q", bad_batches.NOW_MS) if magic else b"")
        for data in (rng.choice((None, b"k")), value):
            body += struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data
        found += struct.pack(">qiI", number, 4 + len(body), crc32(body)) + body
    return found


@cache
def _bad(codec: int) -> dict[str, bytes]:
    return {name: bytes(batch) for name, batch in bad_batches.cases(codec).items()}


@cache
def _bomb(codec: int) -> bytes:
    """A batch of some kilobytes that is one record of many megabytes."""
    packed = compress(bad_batches.raw_record(0, bytes(_BOMB_BYTES)), codec)
    return bytes(bad_batches.raw_batch(b"", 1, codec=codec, packed=packed))
