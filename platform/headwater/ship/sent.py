"""How far each file may have been sent: a journal on this machine, written before the lines are.

    saved      |---- acknowledged ----|                       beside the brokers, once a second
    journal    |---- acknowledged ----|---- may be sent ----|  here, before each chunk

What was sent and not saved is sent again by the next run, under the same coordinates. That is right only where the file
still has what it had up to there: a new one that begins like the old one, with a banner say, would give other lines the
coordinates of those that were sent, and be left out for them.

A line is the JSON of a file's id and mark, a tab and the CRC-32 of that in hexadecimal digits; versions before wrote
no checksum. One that does not match is passed over: a file that is not as a damaged mark says would count as a new one,
and be sent whole under other coordinates.
"""

import json
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from zlib import crc32

from headwater.errors import reason
from headwater.ship.errors import ShipError
from headwater.ship.mark import Mark

_LONGEST_BYTES = 4 << 20


class SentJournal:
    """The newest mark of each file that something may have been sent of."""

    def __init__(self, place: Path, file_ids: Collection[str]) -> None:
        """Reads what an earlier run wrote.

        Args:
            place: The journal; it may not be there yet.
            file_ids: The files whose progress is saved; others are forgotten.

        Raises:
            ShipError: It cannot be written.
        """
        self._place = place
        self._marks = {file_id: mark for file_id, mark in _read(place).items() if file_id in file_ids}
        try:
            self._write_anew()
        except OSError as error:
            raise self._unwritable(error) from error

    def note(self, file_id: str, mark: Mark) -> None:
        """Notes, before it is sent, the mark up to which a file may have been sent.

        Raises:
            ShipError: It cannot be written.
        """
        self._marks[file_id] = mark
        try:
            self._bytes += self._file.write(_line(file_id, mark))
            if self._bytes > max(_LONGEST_BYTES, 2 * self._shortest):
                self._file.close()
                self._write_anew()
        except OSError as error:
            raise self._unwritable(error) from error

    def get(self, file_id: str) -> Mark | None:
        """The mark up to which a file may have been sent; None if nothing is noted."""
        return self._marks.get(file_id)

    def close(self) -> None:
        """Lets go of the file."""
        self._file.close()

    def _write_anew(self) -> None:
        new = self._place.with_name(f"{self._place.name}.new")
        new.write_bytes(b"".join(_line(file_id, mark) for file_id, mark in self._marks.items()))
        new.replace(self._place)
        self._file = self._place.open("ab", buffering=0)
        self._bytes = self._shortest = self._place.stat().st_size

    def _unwritable(self, error: OSError) -> ShipError:
        return ShipError(f"cannot write {self._place}: {reason(error)}")


def _line(file_id: str, mark: Mark) -> bytes:
    data = json.dumps([file_id, asdict(mark)], separators=(",", ":")).encode()
    return b"%s\t%08x\n" % (data, crc32(data))


def _read(place: Path) -> dict[str, Mark]:
    try:
        lines = place.read_bytes().split(b"\n")
    except FileNotFoundError:
        return {}
    marks = {}
    for line in lines:  # of which a machine that lost its power may have left a part
        data, tab, checksum = line.partition(b"\t")
        try:
            if tab and int(checksum, 16) != crc32(data):
                continue
            file_id, mark = json.loads(data)
            marks[str(file_id)] = Mark(**mark)
        except (ValueError, TypeError):
            continue
    return marks
