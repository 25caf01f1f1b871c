"""Logs with batches that were not checked: a version before 0.2 accepted them, or another program wrote them."""

from __future__ import annotations

from pathlib import Path

from bad_batches import NOW_MS
from headwater_broker.log.batch import (
    HEADER,
    LEADER_EPOCH,
    MAX_TIMESTAMP_MS,
    SIZE_BEFORE_LENGTH_BYTES,
    STAMP,
    last_offset_of,
    size_of,
)
from headwater_broker.log.checkpoints import CHECKED_TIMESTAMPS, CLEAN_SHUTDOWN
from headwater_broker.testing.logs import OneLog

HOUR_MS = 3_600_000


class OldLog(OneLog):
    """A log that an earlier version wrote."""

    def __init__(self, directory: Path, **settings: str) -> None:
        super().__init__(directory, "t", settings, time_ms=NOW_MS + HOUR_MS)

    def take(self, batch: bytearray) -> None:
        """Appends a batch as that version did: by its header, without reading it."""
        view = memoryview(batch)
        header = HEADER.unpack_from(view)
        self.log.append(view, now_ms=self.time_ms, looked_into=(view, header, header[MAX_TIMESTAMP_MS]))
        self.log.write_dirty()

    def restart(self, *, clean: bool = True, upgraded: bool = True) -> None:
        """The next start, of this version."""
        self.manager.close()
        if not clean:
            (self.directory / CLEAN_SHUTDOWN).unlink()
        if upgraded:
            (self.directory / CHECKED_TIMESTAMPS).unlink()
        self.open()

    def offset_at(self, timestamp_ms: int) -> int | None:
        """The offset of the first record at or after a time; None if there is none."""
        place = self.log.offset_for_timestamp(timestamp_ms)
        return None if place is None else place.offset


def append_to_log(folder: Path, batch: bytes | bytearray) -> int:
    """Puts a batch at the end of a partition's newest segment, as another program may; gives its first offset.

    Args:
        folder: The partition's, of a broker that is stopped.
        batch: The batch; neither its base offset nor its leader epoch is in the checksum, and both are made to fit.
    """
    newest = max(folder.glob("*.log"))
    data, at = newest.read_bytes(), 0
    offset, epoch = int(newest.stem), 0
    while at < len(data):
        header = HEADER.unpack_from(data, at)
        offset, epoch = last_offset_of(header) + 1, header[LEADER_EPOCH]
        at += size_of(header)
    stamped = bytearray(batch)
    STAMP.pack_into(stamped, 0, offset, len(batch) - SIZE_BEFORE_LENGTH_BYTES, epoch)
    with newest.open("ab") as file:
        file.write(stamped)
    return offset
