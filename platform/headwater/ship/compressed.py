"""Compressed files: known by their first bytes, whatever their names are, and unpacked piece by piece."""

import bz2
import gzip
import lzma
import os
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import zstandard

from headwater.ship.discovery import COMPRESSED, beside
from headwater.ship.mark import HEAD_BYTES, Mark, digest

SLACK_MS = 5000
"""A file counts as older than saved progress only if its last change was more than this before."""

_PIECE_BYTES = 1 << 16
# A block of some bytes may stand for 128 KiB of equal ones, and all of a piece are unpacked at once.
_ZSTD_PIECE_BYTES = 1 << 10


def _pieces_of(opener: Callable[..., Any]) -> Callable[[IO[bytes]], Iterator[bytes]]:
    def pieces(raw: IO[bytes]) -> Iterator[bytes]:
        with opener(raw) as stream:
            while piece := stream.read(_PIECE_BYTES):
                yield piece

    return pieces


def _zstd_pieces(raw: IO[bytes]) -> Iterator[bytes]:
    frame = None
    while data := raw.read(_ZSTD_PIECE_BYTES):
        while data:
            frame = frame or zstandard.ZstdDecompressor().decompressobj()
            yield frame.decompress(data)
            data = frame.unused_data
            if frame.eof:
                frame = None
    if frame is not None:
        raise EOFError("its last frame has no end")


_KINDS: dict[bytes, Callable[[IO[bytes]], Iterator[bytes]]] = {
    b"\x1f\x8b": _pieces_of(gzip.open),
    b"BZh": _pieces_of(bz2.open),
    b"\xfd7zXZ\x00": _pieces_of(lzma.open),
    b"\x28\xb5\x2f\xfd": _zstd_pieces,
}
_BLOCKS_OF_BZIP2 = (b"1AY&SY", b"\x17rE8P\x90")
"""What follows `BZh` and a digit: a block, or the end of a file without blocks."""


def is_compressed(head: bytes) -> bool:
    """Whether a file with these first bytes is compressed, as gzip, bzip2, xz or zstd do it."""
    return _kind(head) is not None


def _kind(head: bytes) -> Callable[[IO[bytes]], Iterator[bytes]] | None:
    if head.startswith(b"BZh") and not head[4:].startswith(_BLOCKS_OF_BZIP2):
        return None
    return next((pieces for magic, pieces in _KINDS.items() if head.startswith(magic)), None)


def first_unpacked(path: str | Path) -> bytes:
    """The first HEAD_BYTES of a compressed file's content; fewer if it has fewer, is cut off or is not compressed."""
    head = b""
    try:
        for piece in _unpacked(path):
            head += piece
            if len(head) >= HEAD_BYTES:
                break
    except _UnreadableError:
        pass
    return head[:HEAD_BYTES]


class _UnreadableError(Exception):
    """It is no compressed file, or not a whole one."""


def _unpacked(path: str | Path) -> Iterator[bytes]:
    try:
        with Path(path).open("rb") as raw:
            pieces = _kind(raw.read(16))
            if pieces is None:
                raise _UnreadableError
            raw.seek(0)
            yield from pieces(raw)
    except (OSError, EOFError, zlib.error, lzma.LZMAError, zstandard.ZstdError) as error:
        raise _UnreadableError from error


def open_compressed(
    places: Iterable[str],
    mark: Mark,
    scratch: Path,
    *,
    read_ms: int | None = None,
    heads: dict[str, bytes] | None = None,
) -> tuple[int, str] | None:
    """Looks for a file in compressed files.

    Args:
        places: Where they are.
        mark: What was read of the file.
        scratch: A folder for the unpacked file, which has no name there and ends with the process.
        read_ms: When it had been read to its end, in milliseconds since the epoch; None if it had not. Compressing
            keeps the time of a file's last change, so a file that was changed before then has nothing new.
        heads: The first unpacked bytes of files that were looked at before, by path; those of this look are added.

    Returns:
        A descriptor of the unpacked file, and the path of the compressed one; None if none has what was read of it.
    """
    heads = {} if heads is None else heads
    for path in places:
        if read_ms is not None and changed_ms(path) < read_ms - SLACK_MS:
            continue
        if path not in heads:
            heads[path] = first_unpacked(path)
        if digest(heads[path][: mark.head_bytes]) != mark.head:
            continue
        try:
            with tempfile.TemporaryFile(dir=scratch) as unpacked:
                for piece in _unpacked(path):
                    unpacked.write(piece)
                unpacked.flush()
                if mark.match_in(unpacked.fileno()) is not None:
                    return os.dup(unpacked.fileno()), path
        except (OSError, _UnreadableError):  # it is still being written, or there is no room
            continue
    return None


def compressed_beside(place: str) -> list[str]:
    """The compressed files in the folder of a path, by their names."""
    return [str(path) for path in beside(place) if path.name.endswith(COMPRESSED)]


def not_unpacked(places: Iterable[str], place: str) -> str | None:
    """The newest of the compressed files that is named like a file, and compressed in a way that is unknown here."""
    alike = [path for path in places if Path(path).name.startswith(Path(place).stem)]
    others = [path for path in alike if not is_compressed(_first_bytes(path))]
    return max(others, key=_moved_ns) if others else None


def changed_ms(path: str) -> int:
    """When a file was last changed, in milliseconds since the epoch; 0 of one that is gone."""
    try:
        return Path(path).stat().st_mtime_ns // 1_000_000
    except OSError:
        return 0


def _first_bytes(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(16)
    except OSError:
        return b""


def _moved_ns(path: str) -> int:
    try:
        return Path(path).stat().st_ctime_ns
    except OSError:
        return 0
