"""The two sparse indexes of a segment; what is in memory is what is in the file, byte for byte."""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right

from headwater_broker.log.batch import NO_TIMESTAMP

_OFFSET_ENTRY = struct.Struct(">iI")
_TIME_ENTRY = struct.Struct(">qi")


class DamagedIndexError(Exception):
    """An index file does not fit its segment; it is rebuilt, so nobody outside sees this."""


class OffsetIndex:
    """From an offset to the position of a batch at or before it."""

    ENTRY_BYTES = _OFFSET_ENTRY.size

    def __init__(self, base_offset: int, data: bytes = b"") -> None:
        self._base_offset = base_offset
        self.data = bytearray(data)

    @classmethod
    def load(cls, base_offset: int, data: bytes, size_bytes: int) -> OffsetIndex:
        """Reads a file's bytes.

        Args:
            base_offset: Of the segment.
            data: The file.
            size_bytes: Of the segment's log.

        Raises:
            DamagedIndexError: Entries do not grow, or point past the log.
        """
        if len(data) % _OFFSET_ENTRY.size:
            raise DamagedIndexError(f"{len(data)} bytes are not a multiple of {_OFFSET_ENTRY.size}")
        last_offset = last_position = -1
        for offset, position in _OFFSET_ENTRY.iter_unpack(data):
            if offset <= last_offset or position <= last_position or position >= size_bytes:
                raise DamagedIndexError(f"the entry for offset {base_offset + offset} is out of order")
            last_offset, last_position = offset, position
        return cls(base_offset, data)

    def __len__(self) -> int:
        return len(self.data) // _OFFSET_ENTRY.size

    def append(self, last_offset: int, position: int) -> None:
        """Adds the batch at `position` that ends with `last_offset`."""
        self.data += _OFFSET_ENTRY.pack(last_offset - self._base_offset, position)

    def position_for(self, offset: int) -> tuple[int, int | None]:
        """Where a walk forward meets the batch that holds `offset`.

        Returns:
            Position of a batch, and the last offset of that batch, or None where the walk starts at the
            beginning.
        """
        slot = bisect_right(range(len(self)), offset - self._base_offset, key=self._relative_offset) - 1
        if slot < 0:
            return 0, None
        return self._position(slot), self._base_offset + self._relative_offset(slot)

    def last_position_within(self, start_position: int, end_position: int) -> int | None:
        """The last indexed batch that begins after `start_position` and not after `end_position`, if any."""
        slot = bisect_right(range(len(self)), end_position, key=self._position) - 1
        if slot < 0:
            return None
        position = self._position(slot)
        return position if position > start_position else None

    @property
    def last_position(self) -> int:
        """Position of the last indexed batch; 0 where there is none."""
        return self._position(len(self) - 1) if self.data else 0

    def truncate_to(self, offset: int) -> None:
        """Drops every batch that reaches `offset`."""
        slot = bisect_left(range(len(self)), offset - self._base_offset, key=self._relative_offset)
        del self.data[slot * _OFFSET_ENTRY.size :]

    def _relative_offset(self, slot: int) -> int:
        offset: int = _OFFSET_ENTRY.unpack_from(self.data, slot * _OFFSET_ENTRY.size)[0]
        return offset

    def _position(self, slot: int) -> int:
        position: int = _OFFSET_ENTRY.unpack_from(self.data, slot * _OFFSET_ENTRY.size)[1]
        return position


class TimeIndex:
    """From a timestamp to an offset before which nothing is as late."""

    ENTRY_BYTES = _TIME_ENTRY.size

    def __init__(self, base_offset: int, data: bytes = b"") -> None:
        self._base_offset = base_offset
        self._read_bytes = len(data)
        self.data = bytearray(data)

    @classmethod
    def load(cls, base_offset: int, data: bytes) -> TimeIndex:
        """Reads a file's bytes.

        Raises:
            DamagedIndexError: Entries do not grow.
        """
        if len(data) % _TIME_ENTRY.size:
            raise DamagedIndexError(f"{len(data)} bytes are not a multiple of {_TIME_ENTRY.size}")
        last_timestamp_ms = last_offset = -1
        for timestamp_ms, offset in _TIME_ENTRY.iter_unpack(data):
            if timestamp_ms <= last_timestamp_ms or offset < last_offset:
                raise DamagedIndexError(f"the entry for timestamp {timestamp_ms} is out of order")
            last_timestamp_ms, last_offset = timestamp_ms, offset
        return cls(base_offset, data)

    def __len__(self) -> int:
        return len(self.data) // _TIME_ENTRY.size

    def append(self, timestamp_ms: int, offset: int) -> None:
        """Adds the greatest timestamp so far; one that is not greater than the last changes nothing."""
        if timestamp_ms > (self.last[0] if self.data else NO_TIMESTAMP):
            self.data += _TIME_ENTRY.pack(timestamp_ms, offset - self._base_offset)

    def offset_for(self, timestamp_ms: int) -> int:
        """An offset from which a walk forward meets the first batch that reaches `timestamp_ms`."""
        slot = self._slot_for(timestamp_ms)
        return self._base_offset + self._entry(slot)[1] if slot >= 0 else self._base_offset

    def claim_for(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Timestamp and offset of the entry that `offset_for` goes by; None where none was read from a file."""
        slot = self._slot_for(timestamp_ms)
        if not 0 <= slot < self._read_bytes // _TIME_ENTRY.size:
            return None
        entry_ms, offset = self._entry(slot)
        return entry_ms, self._base_offset + offset

    def _slot_for(self, timestamp_ms: int) -> int:
        return bisect_right(range(len(self)), timestamp_ms, key=lambda index: self._entry(index)[0]) - 1

    @property
    def last(self) -> tuple[int, int]:
        """Timestamp and offset of the last entry; the index must not be empty."""
        timestamp_ms, offset = self._entry(len(self) - 1)
        return timestamp_ms, self._base_offset + offset

    def truncate_to(self, offset: int) -> None:
        """Drops every entry at `offset` or later."""
        slot = bisect_left(
            range(len(self)), offset - self._base_offset, key=lambda index: self._entry(index)[1]
        )
        del self.data[slot * _TIME_ENTRY.size :]

    def _entry(self, slot: int) -> tuple[int, int]:
        timestamp_ms, offset = _TIME_ENTRY.unpack_from(self.data, slot * _TIME_ENTRY.size)
        return timestamp_ms, offset
