"""Decompresses data piece by piece, so that nobody has to hold the whole result, or to wait for it.

What a client compressed may decompress to much, or to nothing: a megabyte holds a hundred thousand frames, members or
blocks that are empty and take their time all the same. So a piece, which may be empty, comes after a bounded amount of
work.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

import cramjam
import lz4.frame
import zstandard

from headwater_broker.log.compression import (
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    XERIAL_HEADER,
    XERIAL_MAGIC,
    ZSTD,
    UndecodableError,
    decompress_block,
)

_GZIP_INPUT_BYTES = 16 << 10
_GZIP_EMPTY_INPUT_BYTES = 1 << 10
"""How much is read at once of data that decompress to less than they are: they cost much for what comes out."""

_LZ4_INPUT_BYTES = 64 << 10

_ZSTD_SKIPPABLE = b"\x2a\x4d\x18"
_ZSTD_BLOCK_BYTES = 128 << 10
"""The most that comes out of a block (RFC 8878, 3.1.1.2.4)."""
_ZSTD_LEAST_BLOCK_BYTES = 4 << 10
"""How much a block counts for that decompresses to less."""
_ZSTD_RLE, _ZSTD_PACKED = 1, 2
_ZSTD_WINDOW_BYTES = 1 << 27
"""Windows are those that Kafka's reader takes."""

_ZSTD_KEPT_BYTES = 8 << 20
"""A decompressor that had a larger window, and so holds as much memory, is not used again."""

_idle_zstd: list[zstandard.ZstdDecompressor] = []
"""A decompressor reads one frame at a time. Frames are read side by side: in other threads, and in slices."""


def decompressed_slices(data: bytes | memoryview, codec: int, size: int) -> Iterator[bytes | memoryview]:
    """Decompresses in pieces. Several frames in a row are read as one, as Kafka's readers do; all else is an error.

    Args:
        data: What to decompress.
        codec: The number in a batch's attributes.
        size: Pieces are not larger, in bytes; but for snappy's and zstd's, which may be what came of one block.

    Raises:
        UndecodableError: Not that codec's, cut off, an unknown codec, or a block of snappy that claims more than
            `MAX_DECOMPRESSED_BYTES`.
    """
    if codec not in _SLICES:
        raise UndecodableError(f"codec {codec} is not known")
    try:
        yield from _SLICES[codec](data, size)
    except (
        ValueError,
        RuntimeError,
        EOFError,
        zlib.error,
        zstandard.ZstdError,
        cramjam.DecompressionError,
    ) as error:
        raise UndecodableError(f"codec {codec}: {error}") from error


def _stored(data: bytes | memoryview, size: int) -> Iterator[memoryview]:
    view = memoryview(data)
    for at in range(0, len(view), size):
        yield view[at : at + size]


def _gzip_slices(data: bytes | memoryview, size: int) -> Iterator[bytes]:
    view = memoryview(data)
    at, step = 0, _GZIP_INPUT_BYTES
    while at == 0 or at < len(view):
        member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        while not member.eof:
            if at == len(view):
                raise EOFError("it is cut off")
            end = min(at + step, len(view))
            piece = member.decompress(view[at:end], size)
            if 2 * len(piece) < end - at:
                step = _GZIP_EMPTY_INPUT_BYTES
            yield piece
            at = end - len(member.unconsumed_tail or member.unused_data)


def _snappy_slices(data: bytes | memoryview, _: int) -> Iterator[bytes]:
    data = bytes(data)
    if not data.startswith(XERIAL_MAGIC):
        yield decompress_block(data)
        return
    at = len(XERIAL_HEADER)
    while at < len(data):
        length = int.from_bytes(data[at : at + 4])
        yield decompress_block(data[at + 4 : at + 4 + length])
        at += 4 + length
    if at != len(data):
        raise EOFError("it is cut off")


def _lz4_slices(data: bytes | memoryview, size: int) -> Iterator[bytes]:
    view = memoryview(data)
    at = 0
    while at == 0 or at < len(view):
        frame = lz4.frame.LZ4FrameDecompressor()
        while not frame.eof:
            end = at
            if frame.needs_input:
                if at == len(view):
                    raise EOFError("it is cut off")
                end = min(at + _LZ4_INPUT_BYTES, len(view))
            yield frame.decompress(view[at:end], max_length=size)
            at = end
        at -= len(frame.unused_data or b"")


def _zstd_slices(data: bytes | memoryview, size: int) -> Iterator[bytes]:
    view = memoryview(data)
    at = 0
    while at == 0 or at < len(view):
        if len(view) - at >= 8 and view[at + 1 : at + 4] == _ZSTD_SKIPPABLE and view[at] & 0xF0 == 0x50:
            at += 8 + int.from_bytes(view[at + 4 : at + 8], "little")
            if at > len(view):
                raise EOFError("it is cut off")
            yield b""
            continue
        try:
            decompressor = _idle_zstd.pop()
        except IndexError:
            decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
        frame = decompressor.decompressobj()
        parameters = zstandard.get_frame_parameters(view[at:])
        for end in _zstd_ends(view, at, size, has_checksum=parameters.has_checksum):
            yield frame.decompress(view[at:end])
            at = end
        if not frame.eof:
            raise EOFError("it is cut off")
        if parameters.window_size <= _ZSTD_KEPT_BYTES:
            _idle_zstd.append(decompressor)


def _zstd_ends(data: memoryview, at: int, size: int, *, has_checksum: bool) -> Iterator[int]:
    """Positions to cut a frame at, the last one its end: each part decompresses to at most `size` bytes, or one block.

    zstd's reader bounds its output, but not the input that it reads for it (RFC 8878, 3.1.1).
    """
    at += zstandard.frame_header_size(data[at:])
    is_last = False
    room = size
    while not is_last:
        if at + 3 > len(data):
            raise EOFError("it is cut off")
        block = int.from_bytes(data[at : at + 3], "little")
        is_last, kind, block_bytes = bool(block & 1), block >> 1 & 3, block >> 3
        most = _ZSTD_BLOCK_BYTES if kind == _ZSTD_PACKED else block_bytes
        most = max(most, _ZSTD_LEAST_BLOCK_BYTES)
        if room < size and room < most:
            yield at
            room = size
        room -= most
        at += 3 + (1 if kind == _ZSTD_RLE else block_bytes)
    at += 4 if has_checksum else 0
    if at > len(data):
        raise EOFError("it is cut off")
    yield at


_Slices = Callable[[bytes | memoryview, int], Iterator[bytes | memoryview]]
_SLICES: dict[int, _Slices] = {
    NONE: _stored,
    GZIP: _gzip_slices,
    SNAPPY: _snappy_slices,
    LZ4: _lz4_slices,
    ZSTD: _zstd_slices,
}
