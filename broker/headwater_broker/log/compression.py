"""The five codecs of record batches, read with a bound, and written as every client reads them."""

from __future__ import annotations

import struct

import cramjam

MAX_DECOMPRESSED_BYTES = 64 << 20
"""A batch that claims to be larger is not decompressed."""

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
XERIAL_BLOCK_BYTES = 32 << 10

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_DESCRIPTOR = b"\x60\x40"
"""Version 1, independent blocks (Kafka's reader refuses dependent ones), blocks of up to 64 KiB."""
_LZ4_BLOCK_BYTES = 64 << 10
_LZ4_STORED = 0x80000000

_GZIP_LEVEL = 6
_LZ4_LEVEL = 9
"""With this one, which is the default, Kafka's Lz4BlockOutputStream takes its fast compressor."""
_ZSTD_LEVEL = 3


LONGEST_MAGIC_BYTES = 4

_MAGICS = {GZIP: b"\x1f\x8b", SNAPPY: b"", LZ4: _LZ4_MAGIC, ZSTD: b"\x28\xb5\x2f\xfd"}
"""The first bytes of what each codec writes; raw snappy may begin with any."""

_LENGTH = struct.Struct(">i")
_LZ4_LENGTH = struct.Struct("<I")


class UndecodableError(Exception):
    """The bytes are not what the codec writes, or too many come out of them."""


def is_likely(start: bytes | memoryview, codec: int) -> bool:
    """Whether a codec can have written data that begin with these bytes; False for an unknown codec."""
    magic = _MAGICS.get(codec)
    return magic is not None and bytes(start).startswith(magic)


def decompress(data: bytes | memoryview, codec: int) -> bytes:
    """The decompressed data.

    Raises:
        UndecodableError: Not that codec's, an unknown codec, or more than `MAX_DECOMPRESSED_BYTES`.
    """
    try:
        if codec == NONE:
            return bytes(data)
        if codec == SNAPPY:
            return _decompress_snappy(bytes(data))
        opener = {GZIP: cramjam.gzip, LZ4: cramjam.lz4, ZSTD: cramjam.zstd}[codec]
        size = max(len(data) * 8, 1 << 16)
        while True:
            target = bytearray(min(size, MAX_DECOMPRESSED_BYTES))
            try:
                count = opener.decompress_into(data, target)
            except cramjam.DecompressionError as error:
                if size >= MAX_DECOMPRESSED_BYTES or "whole buffer" not in str(error):
                    raise
                size *= 8
                continue
            return bytes(memoryview(target)[:count])
    except (KeyError, ValueError, cramjam.DecompressionError) as error:
        raise UndecodableError(f"codec {codec}: {error}") from error


def compress(data: bytes, codec: int, level: int | None = None) -> bytes:
    """Compresses as Kafka's clients do, so that all of them read it.

    Args:
        data: What to compress.
        codec: The number in a batch's attributes.
        level: Of the codec, as Kafka's `compression.*.level` count them; None: Kafka's default.

    Raises:
        UndecodableError: An unknown codec.
    """
    if codec == NONE:
        return data
    if codec == GZIP:
        return bytes(cramjam.gzip.compress(data, _GZIP_LEVEL if level is None or level < 0 else level))
    if codec == SNAPPY:
        blocks = (
            _snappy_block(data[at : at + XERIAL_BLOCK_BYTES]) for at in _steps(data, XERIAL_BLOCK_BYTES)
        )
        return XERIAL_HEADER + b"".join(blocks)
    if codec == LZ4:
        checksum = (_xxh32(_LZ4_DESCRIPTOR) >> 8) & 0xFF
        blocks = (
            _lz4_block(data[at : at + _LZ4_BLOCK_BYTES], level) for at in _steps(data, _LZ4_BLOCK_BYTES)
        )
        return b"".join((_LZ4_MAGIC, _LZ4_DESCRIPTOR, bytes((checksum,)), *blocks, _LZ4_LENGTH.pack(0)))
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data, _ZSTD_LEVEL if level is None else level))
    raise UndecodableError(f"codec {codec} is not known")


def _steps(data: bytes, size: int) -> range:
    return range(0, len(data), size)


def _snappy_block(data: bytes) -> bytes:
    block = bytes(cramjam.snappy.compress_raw(data))
    return _LENGTH.pack(len(block)) + block


def _lz4_block(data: bytes, level: int | None) -> bytes:
    if level is None or level == _LZ4_LEVEL:
        block = bytes(cramjam.lz4.compress_block(data, store_size=False))
    else:
        block = bytes(
            cramjam.lz4.compress_block(data, mode="high_compression", compression=level, store_size=False)
        )
    if len(block) >= len(data):
        return _LZ4_LENGTH.pack(len(data) | _LZ4_STORED) + data
    return _LZ4_LENGTH.pack(len(block)) + block


def with_lz4_checksum(data: bytes, *, broken: bool = False) -> bytes:
    """An LZ4 frame with the right checksum in its header; other data as they are.

    Args:
        data: What may be a frame.
        broken: Makes the checksum that message format 0 had, which counts the frame's magic, too (KAFKA-3160).
    """
    if not data.startswith(_LZ4_MAGIC) or len(data) <= 6:
        return data
    end = 14 if data[4] & 0x08 else 6  # with the size of the content, or without
    checksum = (_xxh32(data[0 if broken else 4 : end]) >> 8) & 0xFF
    return b"".join((data[:end], bytes((checksum,)), data[end + 1 :]))


def _xxh32(data: bytes) -> int:
    """xxHash-32 with seed 0 of less than 16 bytes, as the frame's header has them."""
    prime_1, prime_2, prime_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
    prime_4, prime_5 = 0x27D4EB2F, 0x165667B1
    value = (prime_5 + len(data)) & 0xFFFFFFFF
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        value = (value + int.from_bytes(data[at : at + 4], "little") * prime_3) & 0xFFFFFFFF
        value = ((value << 17 | value >> 15) * prime_4) & 0xFFFFFFFF
    for byte in data[whole:]:
        value = (value + byte * prime_5) & 0xFFFFFFFF
        value = ((value << 11 | value >> 21) * prime_1) & 0xFFFFFFFF
    value = ((value ^ value >> 15) * prime_2) & 0xFFFFFFFF
    value = ((value ^ value >> 13) * prime_3) & 0xFFFFFFFF
    return value ^ value >> 16


def _decompress_snappy(data: bytes) -> bytes:
    """Raw snappy, or the blocks that Java clients write."""
    if not data.startswith(XERIAL_MAGIC):
        return decompress_block(data)
    parts, total, at = [], 0, len(XERIAL_HEADER)
    while at < len(data):
        length = int.from_bytes(data[at : at + 4])
        part = decompress_block(data[at + 4 : at + 4 + length])
        total += len(part)
        if total > MAX_DECOMPRESSED_BYTES:
            raise ValueError(f"more than {MAX_DECOMPRESSED_BYTES} bytes")
        parts.append(part)
        at += 4 + length
    return b"".join(parts)


def decompress_block(data: bytes) -> bytes:
    size: int = cramjam.snappy.decompress_raw_len(data)
    if size > MAX_DECOMPRESSED_BYTES:
        raise ValueError(f"{size} bytes")
    return bytes(cramjam.snappy.decompress_raw(data))
