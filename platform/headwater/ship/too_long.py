"""Lines that are longer than a record may be, each kept in a file of its own."""

import os
from collections.abc import Iterable
from pathlib import Path

from headwater.errors import reason
from headwater.ship.errors import ShipError


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
