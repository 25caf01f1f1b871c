"""What may be seen of a log: bytes from an offset on, look-ups by time and leader epoch, producers and transactions.

Segments and indexes are searched by `reader`; this knows how far each kind of reader may see.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

from headwater_broker.log.batch import HEADER, NO_TIMESTAMP, size_of
from headwater_broker.log.config import LONG_MAX
from headwater_broker.log.errors import CorruptBatchError, OffsetOutOfRangeError, PartitionOfflineError
from headwater_broker.log.missing import MissingRange
from headwater_broker.log.producers import ProducerEntry
from headwater_broker.log.record_stream import Slices, finished
from headwater_broker.log.results import EpochEnd, FileRange, Isolation, TimestampAndOffset
from headwater_broker.log.tail import LogTail
from headwater_broker.log.txnindex import AbortedTransaction
from headwater_broker.log.unreadable import readable_until, stand_in, unreadable_text

_LOGGER = logging.getLogger(__name__)

_LOOKED_AT_ONCE_BYTES = 1 << 20
"""How many bytes that were not checked yet one read checks at most."""


class LogView(LogTail):
    """What `PartitionLog` reads with; a base class for the same reason as `LogTail`."""

    @property
    def offline(self) -> PartitionOfflineError | None:
        """Why the partition is offline, or None."""
        return self._health.offline

    @property
    def refusal(self) -> PartitionOfflineError | None:
        """Why the partition takes no records, or None; what it holds can be read unless it is offline."""
        return self._health.error

    @property
    def is_waiting(self) -> bool:
        """Whether the partition takes no records only until the disk does."""
        return self._health.is_passing

    @property
    def missing(self) -> Sequence[MissingRange]:
        """Offsets that are lost, as a file is gone or short."""
        return self._reader.missing.ranges

    @property
    def recovery_point(self) -> int:
        """Everything before it is on the disk for certain."""
        return self._flusher.recovery_point

    @property
    def last_stable_offset(self) -> int:
        """What read_committed may see: up to the first record of a transaction that is not decided yet."""
        unstable = self._producers.first_unstable_offset
        if unstable is None:
            return self.high_watermark
        return min(max(unstable, self.log_start_offset), self.high_watermark)

    @property
    def size_bytes(self) -> int:
        """Bytes in all segments, without indexes."""
        return sum(segment.size_bytes for segment in self._reader.segments)

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        at_least_one: bool = True,
    ) -> FileRange:
        """Finds whole batches from the one that holds `offset` on, in one segment, that a consumer may see.

        Args:
            offset: Of the first record that is wanted; its batch is returned whole.
            max_bytes: At most so much; what is returned may be up to an index interval less.
            isolation: Up to the high watermark, or up to the last stable offset.
            at_least_one: Return the first batch even where it is larger than `max_bytes`.

        Returns:
            A range with `count` 0 where nothing can be sent (yet).

        Raises:
            OffsetOutOfRangeError: Before the log's start or past its end.
            CorruptLogError: A stored batch is damaged; the partition is now offline.
            StorageError: The disk refused; the partition is now offline.
        """
        if self._health.offline is not None:
            raise self._health.offline.again()
        end_offset = high_watermark = stable_offset = self.high_watermark
        bound = None
        if self._producers.unstable:
            stable_offset = self.last_stable_offset
            if isolation and stable_offset < high_watermark:
                end_offset = bound = stable_offset
        if not self.log_start_offset <= offset < end_offset:
            self._check_offset(offset)
            return FileRange(-1, 0, 0, high_watermark, stable_offset, self.log_start_offset, None)
        segment, position, count = self._reader.read(offset, max_bytes, bound, at_least_one=at_least_one)
        file, looked_at = segment.file, None
        if count and position < segment.looked_at.own_from:
            covered = segment.looked_at.covers(position, position + count)
            looked_at = None if covered else segment.looked_at
        aborted: Sequence[tuple[int, int]] = ()
        if isolation and self._has_aborted and count:
            transactions = self._reader.find_aborted(offset, segment, position + count, end_offset)
            aborted = [(each.producer_id, each.first_offset) for each in transactions]
        return FileRange(
            *(file.fd, position, count, high_watermark, stable_offset, self.log_start_offset, file, aborted),
            looked_at,
        )

    def look_at(self, file_range: FileRange, *, past_unreadable: bool = False) -> Slices[FileRange | bytes]:
        """Checks the records of a range from `read` before a reader gets it, unless they were checked before.

        Args:
            file_range: What `read` returned.
            past_unreadable: Whether the reader goes past batches that cannot be read.

        Returns:
            The range as far as its batches can be read. Where the first of them cannot, and the reader goes past: a
            batch of one record that stands for it; see `unreadable`.

        Raises:
            CorruptBatchError: The first batch cannot be read.
            OSError: The disk refused.
        """
        looked_at = file_range.looked_at
        if looked_at is None:
            return file_range
        first = HEADER.unpack(self._fs.pread(file_range.fd, HEADER.size, file_range.position))
        count = min(file_range.count, max(size_of(first), _LOOKED_AT_ONCE_BYTES))
        batches = self._fs.pread(file_range.fd, count, file_range.position)
        count, reason = yield from readable_until(batches, must_fit=True)
        looked_at.add(file_range.position, file_range.position + count)
        if reason is not None and not past_unreadable:
            count, reason = yield from readable_until(batches, must_fit=False)
        if count or reason is None:
            return replace(file_range, count=count)
        message = unreadable_text(first, reason)
        if past_unreadable:
            return stand_in(batches[: size_of(first)], first, message)
        if looked_at.is_news(file_range.position):
            _LOGGER.warning("%s-%d: %s", self.topic, self.partition, message)
        raise CorruptBatchError(f"{self.topic}-{self.partition}: {message}")

    def readable_bytes(self, offset: int, isolation: Isolation = Isolation.READ_UNCOMMITTED) -> int | None:
        """How many bytes `read` could find from an offset on in its segment, whatever the limit.

        Returns:
            None where a consumer may read on in another segment.

        Raises:
            OffsetOutOfRangeError: As `read`, with its other errors.
        """
        self._health.check()
        end_offset, bound = self.high_watermark, None
        if isolation and self._producers.unstable:
            bound = self.last_stable_offset
            end_offset = min(end_offset, bound)
        if not self.log_start_offset <= offset < end_offset:
            self._check_offset(offset)
            return 0
        return self._reader.available(offset, bound if bound == end_offset else None)

    def aborted_transactions(self) -> list[AbortedTransaction]:
        """All that the log knows of, in the order of their markers."""
        self._health.check()
        first = self._reader.segments[0]
        return self._reader.find_aborted(first.base_offset, first, first.size_bytes, LONG_MAX)

    def producers(self) -> Iterable[tuple[int, ProducerEntry]]:
        """Ids and states of the idempotent producers that wrote here and have not expired."""
        self._health.check()
        return self._producers.items()

    def offset_for_timestamp(
        self, timestamp_ms: int, isolation: Isolation = Isolation.READ_UNCOMMITTED
    ) -> TimestampAndOffset | None:
        """The first record that consumers may see whose timestamp is not before `timestamp_ms`, if any."""
        return finished(self.find_timestamp(timestamp_ms, isolation))

    def find_timestamp(
        self, timestamp_ms: int, isolation: Isolation = Isolation.READ_UNCOMMITTED
    ) -> Slices[TimestampAndOffset | None]:
        """The same in slices: a batch that a client wrote may hold millions of records."""
        self._health.check()
        match = yield from self._reader.find_timestamp(timestamp_ms, self.log_start_offset)
        if match is None or (isolation and match[1] >= self.last_stable_offset):
            return None
        return TimestampAndOffset(*match, self.epoch_at(match[1]))

    def offsets_before(self, timestamp_ms: int, *, now_ms: int) -> list[int]:
        """Where segments begin, and the end, as ListOffsets answered before messages had timestamps.

        Args:
            timestamp_ms: Only segments whose files were last written then or before.
            now_ms: The wall clock, which is the end's time.

        Returns:
            Offsets, the newest first; none past the high watermark.
        """
        self._health.check()
        segments = self._reader.segments
        begins = [max(segment.base_offset, self.log_start_offset) for segment in segments]
        if segments[-1].size_bytes:
            begins.append(self.log_end_offset)
        times_ms = [*(self._fs.modified_ms(segment.file.fd) for segment in segments), now_ms]
        while begins and times_ms[len(begins) - 1] > timestamp_ms:
            begins.pop()
        visible = [offset for offset in begins if offset <= self.high_watermark]
        if len(visible) < len(begins):
            visible.append(self.high_watermark)
        return visible[::-1]

    def max_timestamp(self) -> TimestampAndOffset | None:
        """The first record with the greatest timestamp; None in an empty log."""
        return finished(self.find_max_timestamp())

    def find_max_timestamp(self) -> Slices[TimestampAndOffset | None]:
        """The same in slices."""
        self._health.check()
        match = yield from self._reader.find_greatest()
        return TimestampAndOffset(*match, self.epoch_at(match[1])) if match else None

    def earliest(self) -> TimestampAndOffset:
        """The log's start (timestamp -1), as ListOffsets answers it."""
        self._health.check()
        start = self.log_start_offset
        return TimestampAndOffset(NO_TIMESTAMP, start, self.epoch_at(start))

    def latest(self, isolation: Isolation = Isolation.READ_UNCOMMITTED) -> TimestampAndOffset:
        """High watermark or last stable offset (timestamp -1), as ListOffsets answers it."""
        self._health.check()
        committed = isolation is Isolation.READ_COMMITTED
        end = self.last_stable_offset if committed else self.high_watermark
        return TimestampAndOffset(NO_TIMESTAMP, end, self.epoch_at(end))

    def epoch_at(self, offset: int) -> int:
        """The leader epoch in which `offset` was (or is being) written; -1 if not known."""
        return self._epochs.at(offset)

    def end_of_epoch(self, leader_epoch: int) -> EpochEnd:
        """Where `leader_epoch` ends, as OffsetForLeaderEpoch answers it."""
        return self._epochs.end_of(leader_epoch, self.log_end_offset)

    def _check_offset(self, offset: int) -> None:
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(
                f"{self.topic}-{self.partition} holds offsets {self.log_start_offset} to {self.log_end_offset}, not "
                f"{offset}",
                self.log_start_offset,
                self.log_end_offset,
            )
