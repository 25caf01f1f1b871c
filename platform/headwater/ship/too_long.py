"""Lines that are too long for a record, and damaged parts of a spool: each is kept in a file of its own."""

import os
from collections.abc import Iterable
from pathlib import Path

from headwater.errors import reason
from headwater.ship.errors import ShipError
from headwater.ship.framing import Record
from headwater_streams.base.plural import quantity


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


def aside_message(file: str, record: Record, count: int, topic: str, place: Path) -> str:
    """The message about a line that was kept aside.

    Args:
        file: The file that it stood in.
        record: Its place there.
        count: How many bytes it has.
        topic: The topic that it was for.
        place: Where it is kept.
    """
    if record.is_damaged:
        return (
            f"{file} is damaged from byte {record.position} to byte {record.end - 1}: these {quantity(count, 'byte')} "
            f"are no message and are kept in {place}; what is around them is shipped"
        )
    return (
        f"the line at byte {record.position} of {file} has {count} bytes, more than a record of {topic} may have "
        f"(max.message.bytes): it is kept in {place}"
    )
