"""Producers' states made again from a log: from a snapshot, and the batches since."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from headwater_broker.log import paths
from headwater_broker.log.batch import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    CONTROL,
    MAX_TIMESTAMP_MS,
    PRODUCER_ID,
    BadBatchError,
    HeaderTuple,
    walk,
)
from headwater_broker.log.config import LONG_MAX
from headwater_broker.log.errors import CorruptLogError
from headwater_broker.log.fs import FileSystem
from headwater_broker.log.index import DamagedIndexError, OffsetIndex
from headwater_broker.log.markers import decode_marker
from headwater_broker.log.producers import ProducerStates
from headwater_broker.log.segment import Segment
from headwater_broker.log.snapshot import DamagedSnapshotError, decode_snapshot

_LOGGER = logging.getLogger(__name__)

_RECALLED_BYTES = 256 << 10
"""How far before a snapshot to look for a producer's last five batches."""

_Batch = tuple[Segment, int, int, HeaderTuple]
"""Segment, position, size in bytes and header."""


class Replay:
    """Reads what the segments of one directory say about producers and their transactions."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        segments: Sequence[Segment],
        snapshots: list[int],
        now_ms: int,
        rebuild: Callable[[Segment], None],
        corrupt: Callable[[Segment, BadBatchError], CorruptLogError],
    ) -> None:
        """Remembers where.

        Args:
            fs: Files.
            directory: The partition's.
            segments: Its segments; the loader may drop some later.
            snapshots: The offsets that it has snapshots of producers for; one that is damaged is removed.
            now_ms: The wall clock, from when idle producers expire.
            rebuild: Makes a segment's indexes again.
            corrupt: Makes the error for a segment that is damaged before the recovery point.
        """
        self._fs = fs
        self._directory = directory
        self._segments = segments
        self._snapshots = snapshots
        self._now_ms = now_ms
        self._rebuild = rebuild
        self._corrupt = corrupt

    def mend_aborted(self, segment: Segment) -> None:
        """Makes the index of aborted transactions again where its file is damaged."""
        if not segment.has_aborted:
            return
        try:
            _ = segment.aborted
        except DamagedIndexError as error:
            _LOGGER.info("%s: rebuilding it: %s", segment.transaction_index_path, error)
            producers = self.producers(segment.base_offset)
            segment.forget_aborted()
            for each, position, size, header in self._batches_of(segment, 0, LONG_MAX):
                self._note_batch(producers, each, position, size, header, fill=True)
            segment.try_to_seal()

    def producers(self, until_offset: int) -> ProducerStates:
        """Producers as of `until_offset`: from the last snapshot before it, and the batches since."""
        from_offset = self._segments[0].base_offset
        producers = ProducerStates()
        for offset in self._snapshots[::-1]:
            path = paths.segment_path(self._directory, offset, paths.SNAPSHOT_SUFFIX)
            if offset > until_offset or offset < from_offset:
                continue
            try:
                producers = decode_snapshot(self._fs.read_file(path), self._now_ms)
            except DamagedSnapshotError as error:
                _LOGGER.warning("%s: using an older snapshot: %s", path, error)
                self._fs.remove(path)
                self._snapshots.remove(offset)
                continue
            from_offset = offset
            break
        if len(producers):
            producers.recall(self._headers_before(from_offset))
        for segment, position, size, header in self._batches(from_offset, until_offset):
            self._note_batch(producers, segment, position, size, header, fill=False)
        producers.settle(until_offset)
        return producers

    def _note_batch(
        self,
        producers: ProducerStates,
        segment: Segment,
        position: int,
        size: int,
        header: HeaderTuple,
        *,
        fill: bool,
    ) -> None:
        """Takes a batch into the producers' states; with `fill`, an abort into the segment's index too."""
        if header[PRODUCER_ID] < 0:
            return
        if header[BASE_SEQUENCE] >= 0:
            producers.record(header, header[BASE_OFFSET], header[MAX_TIMESTAMP_MS], self._now_ms)
        elif header[ATTRIBUTES] & CONTROL:
            self.end_transaction(producers, segment, position, size, header, fill=fill)

    def end_transaction(
        self,
        producers: ProducerStates,
        segment: Segment,
        position: int,
        size: int,
        header: HeaderTuple,
        *,
        fill: bool = True,
    ) -> None:
        """Takes the marker at `position` into the producers' states, an abort (`fill`) into the index too."""
        marker = decode_marker(self._fs.pread(segment.file.fd, size, position))
        if marker is None:
            return
        aborted = producers.end_transaction(header, header[BASE_OFFSET], marker, self._now_ms)
        if aborted is not None and fill:
            segment.aborted.append(aborted)

    def _batches(self, from_offset: int, until_offset: int) -> Iterator[_Batch]:
        for index, segment in enumerate(self._segments):
            if segment.base_offset >= until_offset:
                return
            if self._segments[index + 1 :] and self._segments[index + 1].base_offset <= from_offset:
                continue
            yield from self._batches_of(segment, self._position_of(segment, from_offset), until_offset)

    def _headers_before(self, offset: int) -> Iterator[HeaderTuple]:
        """Headers of the last batches before `offset`, some `_RECALLED_BYTES` of them."""
        starts: list[tuple[Segment, int]] = []
        remaining_bytes = _RECALLED_BYTES
        for segment in reversed(self._segments):
            if segment.base_offset < offset and remaining_bytes > 0:
                end = self._position_of(segment, offset - 1) if not starts else segment.size_bytes
                start = self._indexed(segment).last_position_within(-1, end - remaining_bytes) or 0
                starts.append((segment, start))
                remaining_bytes -= end - start
        for segment, start in reversed(starts):
            for _, _, _, header in self._batches_of(segment, start, offset):
                yield header

    def _batches_of(self, segment: Segment, position: int, until_offset: int) -> Iterator[_Batch]:
        try:
            for at, size, header in walk(
                self._fs, segment.file.fd, position, segment.size_bytes, check=False
            ):
                if header[BASE_OFFSET] >= until_offset:
                    return
                yield segment, at, size, header
        except BadBatchError as error:
            raise self._corrupt(segment, error) from error

    def _position_of(self, segment: Segment, offset: int) -> int:
        self._indexed(segment)
        try:
            return segment.position_of(offset)
        except BadBatchError as error:
            _LOGGER.info("%s: rebuilding indexes: %s", segment.log_path, error)
            self._rebuild(segment)
            return segment.position_of(offset)

    def _indexed(self, segment: Segment) -> OffsetIndex:
        """The segment's index, made again where it cannot be used."""
        try:
            return segment.offset_index
        except DamagedIndexError as error:
            _LOGGER.info("%s: rebuilding indexes: %s", segment.log_path, error)
            self._rebuild(segment)
            return segment.offset_index
