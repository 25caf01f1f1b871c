"""Finding bytes for an offset: segments, indexes, and what consumers may see."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from headwater_broker.log.epochs import LeaderEpochs
from headwater_broker.log.files import OpenFile
from headwater_broker.log.places import Places
from headwater_broker.log.segment import Segment

_CHECKED_AT_ONCE_BYTES = 1 << 20
"""How much that nobody checked since the start one read may make us check."""


class LogReader:
    """The segments of a log, in order, and where what may be read of them ends.

    Attributes:
        segments: Never empty; change them only through this class.
        end_offset: The first offset that may not be read.
    """

    def __init__(self, segments: list[Segment], epochs: LeaderEpochs, end_offset: int) -> None:
        self.segments = segments
        self._base_offsets = [segment.base_offset for segment in segments]
        self._epochs = epochs
        self._places = Places()
        self.end_offset = end_offset
        self._end_segment = segments[-1]
        self._end_position = segments[-1].size_bytes

    def expose(self, segment: Segment, position: int, offset: int) -> None:
        """Lets readers see everything before `offset`, which is at `position`."""
        self._end_segment = segment
        self._end_position = position
        self.end_offset = offset
        self._places.remember(offset, segment, position)

    def add(self, segment: Segment) -> None:
        """Takes a new segment at the end."""
        self.segments.append(segment)
        self._base_offsets.append(segment.base_offset)

    def remove_oldest(self, count: int) -> list[Segment]:
        """Gives up the oldest segments and returns them."""
        removed = self.segments[:count]
        del self.segments[:count]
        del self._base_offsets[:count]
        self._places.clear()
        return removed

    def remove_newest(self, count: int) -> list[Segment]:
        """Gives up the newest segments and returns them; the visible end must not be in them."""
        removed = self.segments[len(self.segments) - count :]
        del self.segments[len(self.segments) - count :]
        del self._base_offsets[len(self._base_offsets) - count :]
        self._places.clear()
        return removed

    def forget_places(self) -> None:
        """Positions have changed."""
        self._places.clear()

    def segment_at(self, offset: int) -> Segment:
        """The segment whose range holds `offset`."""
        return self.segments[max(bisect_right(self._base_offsets, offset) - 1, 0)]

    def visible(self) -> Iterator[tuple[Segment, int]]:
        """Segments in order, with the position where what may be read of each ends."""
        for segment in self.segments:
            if segment is self._end_segment:
                yield segment, self._end_position
                return
            yield segment, segment.size_bytes

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool) -> tuple[OpenFile, int, int]:
        """File, position and count of whole batches from the one that holds `offset`, which must be visible.

        Raises:
            BadBatchError: What is stored there is damaged, or an index leads astray.
            DamagedIndexError: An index cannot be used.
            OSError: The disk refused.
        """
        place = self._places.get(offset)
        if place is None or place[1] >= place[0].size_bytes:
            place = self._find(offset)
        segment, position = place
        segment.used = True
        end_position = self._end_position if segment is self._end_segment else segment.size_bytes
        count = segment.whole_batches(position, max_bytes, end_position, at_least_one=at_least_one)
        if position < segment.trusted_from and not segment.is_trusted(position, position + count):
            count = segment.whole_batches(
                position, min(count, _CHECKED_AT_ONCE_BYTES), position + count, at_least_one=at_least_one
            )
            self._check(segment, position, position + count, end_position)
        if position + count < end_position and count:
            self._places.remember(segment.base_offset_at(position + count), segment, position + count)
        return segment.file, position, count

    def _find(self, offset: int) -> tuple[Segment, int]:
        index = max(bisect_right(self._base_offsets, offset) - 1, 0)
        segment = self.segments[index]
        position = segment.position_of(offset)
        while position >= segment.size_bytes and segment is not self._end_segment:
            # Compaction removed everything from the offset to the segment's end.
            index += 1
            segment, position = self.segments[index], 0
        return segment, position

    def _check(self, segment: Segment, position: int, end_position: int, visible_end: int) -> None:
        following = self.end_offset
        if segment is not self._end_segment:
            following = self._base_offsets[self._base_offsets.index(segment.base_offset) + 1]
        segment.check(position, end_position, visible_end, following, self._epochs)
