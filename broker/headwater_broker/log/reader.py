"""Finding bytes for an offset or a time: segments, indexes, and what consumers may see."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from headwater_broker.log.batch import NO_TIMESTAMP, BadBatchError
from headwater_broker.log.epochs import LeaderEpochs
from headwater_broker.log.errors import CorruptLogError, StorageError
from headwater_broker.log.fs import FileSystem
from headwater_broker.log.health import Health, is_passing
from headwater_broker.log.index import DamagedIndexError
from headwater_broker.log.missing import MissingOffsets, MissingRange
from headwater_broker.log.places import Places
from headwater_broker.log.record_stream import Slices, finished
from headwater_broker.log.segment import Segment
from headwater_broker.log.timestamps import find_greatest, find_timestamp
from headwater_broker.log.txnindex import AbortedTransaction, find_aborted

_LOGGER = logging.getLogger(__name__)

_CHECKED_AT_ONCE_BYTES = 1 << 20
"""How many bytes that were not checked since the start one read checks at most."""

_Result = TypeVar("_Result")


class LogReader:
    """The segments of a log, in order, and where what may be read of them ends.

    Its look-ups take the partition offline where they meet damage: `CorruptLogError` and `StorageError`.

    Attributes:
        segments: Never empty; change them only through this class.
        end_offset: The first offset that may not be read.
        missing: Offsets that are lost.
    """

    def __init__(
        self,
        fs: FileSystem,
        health: Health,
        segments: list[Segment],
        epochs: LeaderEpochs,
        end_offset: int,
        write_queued: Callable[[], None],
        missing: MissingOffsets,
    ) -> None:
        """Lets readers see everything.

        Args:
            fs: Files.
            health: The partition's.
            segments: See the class.
            epochs: The log's.
            end_offset: See the class.
            write_queued: Writes what the newest segment's indexes know already.
            missing: Offsets that are lost.
        """
        self._fs = fs
        self._health = health
        self._epochs = epochs
        self._write_queued = write_queued
        self.missing = missing
        self._places = Places()
        self._base_offsets = [segment.base_offset for segment in segments]
        self.segments = segments
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

    def release(self) -> None:
        """Lets go of every file: whoever sends from one holds it for as long as that takes."""
        for segment in self.segments:
            segment.close()
        self._places.clear()

    def remove_oldest(self, count: int) -> list[Segment]:
        """Gives up the oldest segments and returns them."""
        removed = self.segments[:count]
        del self.segments[:count]
        del self._base_offsets[:count]
        self._places.clear()
        return removed

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """Puts one segment in the place of neighbours that hold the same offsets."""
        first = self.segments.index(old[0])
        self.segments[first : first + len(old)] = [new]
        self._base_offsets[first : first + len(old)] = [new.base_offset]
        self._places.clear()
        if self._end_segment in old:
            self._end_segment, self._end_position = new, new.size_bytes

    def segment_at(self, offset: int) -> Segment:
        """The segment whose range holds `offset`."""
        return self.segments[max(bisect_right(self._base_offsets, offset) - 1, 0)]

    def read(
        self, offset: int, max_bytes: int, end_offset: int | None, *, at_least_one: bool
    ) -> tuple[Segment, int, int]:
        """Segment, position and count of whole batches from the one that holds the (visible) `offset`.

        Where `end_offset` is given, a batch begins with it, and is not to be returned.
        """
        try:
            return self._read(offset, max_bytes, end_offset, at_least_one=at_least_one)
        except (BadBatchError, DamagedIndexError, OSError):
            return self.mending(
                self.segment_at(offset),
                partial(self._read, offset, max_bytes, end_offset, at_least_one=at_least_one),
            )

    def available(self, offset: int, end_offset: int | None) -> int | None:
        """Bytes from the batch that holds the (visible) `offset` on; None where what may be read passes its segment.

        Where `end_offset` is given, a batch begins with it, and does not count.
        """
        segment = self.segment_at(offset)
        end_segment = self._end_segment if end_offset is None else self.segment_at(end_offset)
        if segment is not end_segment:
            return None
        return self.mending(segment, partial(self._available, segment, offset, end_offset))

    def _available(self, segment: Segment, offset: int, end_offset: int | None) -> int:
        end_position = self._end_position if segment is self._end_segment else segment.size_bytes
        if end_offset is not None:
            end_position = self._position_before(segment, end_offset, end_position)
        place = self._places.get(offset)
        position = place[1] if place is not None and place[0] is segment else segment.position_of(offset)
        return max(end_position - position, 0)

    def find_aborted(
        self, offset: int, segment: Segment, end_position: int, end_offset: int
    ) -> list[AbortedTransaction]:
        """Aborted transactions among the visible batches from `offset` to `end_position` in `segment`.

        Args:
            offset: Where the consumer begins.
            segment: Where the batches are.
            end_position: Where they end.
            end_offset: They end before it in any case.
        """
        if end_position < (self._end_position if segment is self._end_segment else segment.size_bytes):
            end_offset = min(end_offset, self.mending(segment, partial(segment.base_offset_at, end_position)))
        transactions: list[AbortedTransaction] = []
        for each in self.segments[self._base_offsets.index(segment.base_offset) :]:
            if not each.has_aborted:
                continue
            entries, is_all = find_aborted(
                self.mending(each, partial(getattr, each, "aborted")), offset, end_offset
            )
            transactions += entries
            if is_all:
                break
        return transactions

    def find_timestamp(self, timestamp_ms: int, start_offset: int) -> Slices[tuple[int, int] | None]:
        """Timestamp and offset of the first visible record at or after both, if any."""
        for segment, end_position in list(self._visible()):
            if segment.max_timestamp_ms >= timestamp_ms:
                find = partial(find_timestamp, self._fs, segment, end_position, timestamp_ms, start_offset)
                match = yield from self._mending_slices(segment, find)
                if match is not None:
                    return match
        return None

    def find_greatest(self) -> Slices[tuple[int, int] | None]:
        """Timestamp and offset of the first visible record with the greatest timestamp, if any has one."""
        best: tuple[int, int] | None = None
        for segment, end_position in list(self._visible()):
            if end_position and segment.max_timestamp_ms > (best[0] if best else NO_TIMESTAMP):
                find = partial(find_greatest, self._fs, segment, end_position)
                candidate = yield from self._mending_slices(segment, find)
                if candidate is not None and (best is None or candidate[0] > best[0]):
                    best = candidate
        return best

    def mending(self, segment: Segment, find: Callable[[], _Result]) -> _Result:
        """Finds something in a segment; where an index leads astray, rebuilds it and tries once more."""
        try:
            try:
                return find()
            except (BadBatchError, DamagedIndexError) as error:
                _LOGGER.info("%s: checking it and rebuilding its indexes: %s", segment.log_path, error)
                self._write_queued()
                segment.rebuild()
                self._places.clear()
                if segment is not self.segments[-1]:
                    segment.try_to_seal()
                return find()
        except (BadBatchError, DamagedIndexError) as error:
            raise self._health.take_offline(
                CorruptLogError(
                    f"{segment.log_path} is damaged {error}: {self._health.name} is offline until the file is restored "
                    "from a copy and the broker restarted"
                )
            ) from error
        except OSError as error:
            if (
                isinstance(error, FileNotFoundError)
                and segment is not self.segments[-1]
                and segment.size_bytes
            ):
                self.lose_tail(segment)
                return find()
            if is_passing(error):
                raise StorageError(f"cannot read {segment.log_path}: {error.strerror}") from error
            self._health.fail(f"cannot read {segment.log_path}", error)

    def _mending_slices(self, segment: Segment, find: Callable[[], Slices[_Result]]) -> Slices[_Result]:
        try:
            return (yield from find())
        except (BadBatchError, DamagedIndexError, OSError):
            return self.mending(segment, lambda: finished(find()))

    def lose_tail(self, segment: Segment) -> None:
        """Takes note that a segment's file has become shorter, or is gone."""
        following = self._base_offsets[self._base_offsets.index(segment.base_offset) + 1]
        try:
            end_offset = segment.cut_off()
        except FileNotFoundError:
            end_offset, segment.size_bytes = segment.base_offset, 0
            segment.reset()
        self._places.clear()
        self.missing.add(MissingRange(end_offset, following, segment.log_path))

    def lose_end(self, segment: Segment, offset: int, end_offset: int) -> None:
        """Takes note that the newest segment ends before `offset` now, while the log goes on at `end_offset`."""
        self._places.clear()
        if self._end_segment is segment:
            self._end_position = min(self._end_position, segment.size_bytes)
        self.missing.add(MissingRange(offset, end_offset, segment.log_path))

    def _visible(self) -> Iterator[tuple[Segment, int]]:
        """Segments in order, with the position where what may be read of each ends."""
        for segment in self.segments:
            if segment is self._end_segment:
                yield segment, self._end_position
                return
            yield segment, segment.size_bytes

    def _read(
        self, offset: int, max_bytes: int, end_offset: int | None, *, at_least_one: bool
    ) -> tuple[Segment, int, int]:
        place = self._places.get(offset)
        if place is None or place[1] >= place[0].size_bytes:
            place = self._find(offset)
        segment, position = place
        segment.used = True
        if segment is not self._end_segment and segment.is_short:
            self.lose_tail(segment)
            return self._read(offset, max_bytes, end_offset, at_least_one=at_least_one)
        _ = segment.file  # opened here, where an error of the system is caught
        end_position = self._end_position if segment is self._end_segment else segment.size_bytes
        if end_offset is not None:
            end_position = self._position_before(segment, end_offset, end_position)
        count = segment.whole_batches(position, max_bytes, end_position, at_least_one=at_least_one)
        if position < segment.trusted_from and not segment.is_trusted(position, position + count):
            count = segment.whole_batches(
                position, min(count, _CHECKED_AT_ONCE_BYTES), position + count, at_least_one=at_least_one
            )
            self._check(segment, position, position + count, end_position)
        if position + count < end_position and count:
            self._places.remember(segment.base_offset_at(position + count), segment, position + count)
        return segment, position, count

    def _position_before(self, segment: Segment, offset: int, end_position: int) -> int:
        """Where the batch that begins with `offset` begins, if that is before `end_position`."""
        if self.segment_at(offset) is not segment:
            return end_position
        place = self._places.get(offset)
        if place is None or place[0] is not segment:
            place = (segment, segment.position_of(offset))
            self._places.remember(offset, *place)
        return min(place[1], end_position)

    def _find(self, offset: int) -> tuple[Segment, int]:
        index = max(bisect_right(self._base_offsets, offset) - 1, 0)
        segment = self.segments[index]
        position = segment.position_of(offset)
        if self.missing:
            self.missing.check(offset, self.segments[0].base_offset, self.end_offset)
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
