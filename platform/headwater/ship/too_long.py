"""Lines that are longer than a record may be, and what is damaged of a spool, each kept in a file of its own."""

import os
from collections.abc import Iterable
from pathlib import Path

from headwater.errors import reason
from headwater.ship.errors import ShipError
from headwater.ship.framing import Record
from headwater_streams.base.plural import counted


def keep_aside(place: Path, parts: Iterable[bytes]) -> int:
    """Writes a line into a file, through to the disk.

    Args:
        place: The file; its folder is made if it is not there.
        parts: The line's bytes, piece by piece.

    Returns:
        How many bytes it has.

    Raises:
        ShipError: It cannot be written.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    try:
        with place.open("wb") as file:
            for part in parts:
                count += file.write(part)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise ShipError(f"cannot write {place}: {reason(error)}") from error
    return count


def why_kept(file: str, record: Record, count: int, topic: str, place: Path) -> str:
    """The sentence about what was kept.

    Args:
        file: What it stood in.
        record: Where it stood there.
        count: How many bytes it has.
        topic: Where it was to go.
        place: Where it is now.
    """
    if record.is_damaged:
        return (
            f"{file} is damaged from byte {record.position} to byte {record.end - 1}: these {counted(count, 'byte')} "
            f"are no message and are kept in {place}; what is around them is shipped"
        )
    return (
        f"the line at byte {record.position} of {file} has {count} bytes, more than a record of {topic} may have "
        f"(max.message.bytes): it is kept in {place}"
    )
