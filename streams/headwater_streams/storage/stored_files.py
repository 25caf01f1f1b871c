"""Small files that are read as they were written, or not at all: JSON with a digest, and what Hadoop wrote."""

import json
import mmap
import zlib
from pathlib import Path
from typing import Any

from headwater_streams.storage.atomic_file import atomic_file
from headwater_streams.storage.damage import DamagedFileError

_DIGEST = "_crc32"
_CRC_HEADER_BYTES, _CRC_MAGIC = 8, b"crc\0"


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Writes an object with a digest of it as its last key, by which `read_json` sees that a byte has changed.

    A reader sees the old file or the new one, after a crash, too.
    """
    with atomic_file(path) as file:
        file.write(json.dumps({**value, _DIGEST: _digest_of(value)}).encode())


def read_json(path: Path) -> dict[str, Any]:
    """The object that was written; one of an older version has no digest, and is not checked.

    Raises:
        DamagedFileError: It is not there, or not what was written.
    """
    value = parsed_json(path, read_bytes(path))
    digest = value.pop(_DIGEST, None)
    if digest is not None and digest != _digest_of(value):
        raise DamagedFileError(path, "is not what was written: its digest does not match")
    return value


def _digest_of(value: dict[str, Any]) -> str:
    # As JSON keeps it: keys of numbers become texts, tuples lists.
    return f"{zlib.crc32(json.dumps(json.loads(json.dumps(value)), sort_keys=True).encode()):08x}"


def read_bytes(path: Path) -> bytes:
    """A file's bytes; the file is not empty.

    Raises:
        DamagedFileError: It is not there, or empty, or does not match the checksum that Hadoop keeps beside it.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise DamagedFileError(path, "is gone") from None
    except OSError as error:
        raise DamagedFileError(path, f"cannot be read ({error.strerror})") from error
    if not data:
        raise DamagedFileError(path, "is empty")
    require_checksum(path, data)
    return data


def parsed_json(path: Path, data: bytes) -> dict[str, Any]:
    """The JSON object in a file or in a line of it.

    Raises:
        DamagedFileError: It is no JSON object.
    """
    try:
        value = json.loads(data)
    except ValueError as error:  # also of bytes that are no UTF-8
        raise DamagedFileError(path, f"is no JSON ({error})") from error
    if not isinstance(value, dict):
        raise DamagedFileError(path, "is no JSON object")
    return value


def require_checksum(path: Path, data: bytes | mmap.mmap) -> None:
    """Checks that a file is what Hadoop wrote, by the file `.<name>.crc` beside it, where there is one.

    That file has "crc\\0", the number of bytes in a piece, and the CRC-32 of each piece, big-endian. A file of another
    form is ignored, as Hadoop does. (Source: Hadoop's ChecksumFileSystem.)

    Raises:
        DamagedFileError: It is not.
    """
    beside = path.with_name(f".{path.name}.crc")
    try:
        stored = beside.read_bytes()
    except OSError:
        return
    piece = int.from_bytes(stored[4:_CRC_HEADER_BYTES], "big")
    if stored[:4] != _CRC_MAGIC or not piece or len(stored) % 4:
        return
    wrong = _first_wrong(data, stored[_CRC_HEADER_BYTES:], piece)
    if wrong is not None:
        raise DamagedFileError(path, f"does not match its checksum {beside.name} from byte {wrong} on")
    if len(stored) != _CRC_HEADER_BYTES + 4 * -(-len(data) // piece):
        raise DamagedFileError(path, f"is cut short: its checksum {beside.name} is of more bytes")


def _first_wrong(data: bytes | mmap.mmap, checksums: bytes, piece: int) -> int | None:
    """Where the first piece begins whose checksum differs."""
    with memoryview(data) as view:
        for number, start in enumerate(range(0, len(data), piece)):
            checksum = zlib.crc32(view[start : start + piece]).to_bytes(4, "big")
            if checksum != checksums[4 * number : 4 * number + 4]:
                return start
    return None
