"""One partition's log: what the server appends to and reads from.

It stays one class, though a little long, because it is one interface, half of it documentation; the work is done by
validation, reader, flush, recovery and retention.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from zlib import crc32

from crc32c import crc32c

from headwater_broker.log import checkpoints, paths
from headwater_broker.log.batch import (
    ATTRIBUTES,
    BASE_SEQUENCE,
    BATCH_LENGTH,
    CHECKED_FROM,
    HEADER,
    LAST_OFFSET_DELTA,
    MAGIC,
    MAX_SEQUENCE,
    MAX_TIMESTAMP_MS,
    NO_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    SIZE_BEFORE_LENGTH_BYTES,
    STAMP,
    TRANSACTIONAL,
)
from headwater_broker.log.cleaner import CleanerConfig, Cleaning, Dirt, measure_dirt
from headwater_broker.log.cleaner.copy import CleanedSegment
from headwater_broker.log.cleaner.exchange import exchange
from headwater_broker.log.cleaner.rewrite import Retention
from headwater_broker.log.config import LONG_MAX, LogConfig
from headwater_broker.log.errors import (
    BatchTooLargeError,
    InvalidTransactionStateError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    PartitionOfflineError,
)
from headwater_broker.log.flush import Flush, Flusher
from headwater_broker.log.fs import FileSystem
from headwater_broker.log.health import Health
from headwater_broker.log.markers import Marker, encode_marker
from headwater_broker.log.move import Move
from headwater_broker.log.producers import ProducerEntry
from headwater_broker.log.reader import LogReader
from headwater_broker.log.recovery import LoadedLog, LogLoader
from headwater_broker.log.results import Appended, EpochEnd, FileRange, Isolation, TimestampAndOffset
from headwater_broker.log.retention import DeletedFiles, expired_segments
from headwater_broker.log.segment import Segment
from headwater_broker.log.snapshot import encode_snapshot
from headwater_broker.log.txnindex import AbortedTransaction
from headwater_broker.log.validation import (
    UNUSUAL,
    check_batch,
    check_keys,
    check_timestamps,
    stamp_append_time,
)

_LOGGER = logging.getLogger(__name__)

_PLAIN = Struct(">8xi4xBIhi8xqqhii")
"""Of `HEADER`: length, magic, checksum, attributes, last offset delta, greatest timestamp, producer, count."""

_MAX_BUFFERS = 1024
"""Linux's IOV_MAX: one system call takes no more."""

MayBegin = Callable[["PartitionLog", int, int], None]
"""Given the log, producer id and epoch of a batch that begins a transaction here; raises where it may not."""


class PartitionLog:
    """An append-only sequence of record batches with consecutive offsets, in segment files.

    Everything but `Flush.run` belongs to one thread. Get one from `LogManager`, which recovers it.

    Every method that reads or writes raises `PartitionOfflineError` (`CorruptLogError`, `StorageError`) once the
    partition has been taken offline, which is logged once, here; `offline` holds that error.

    Attributes:
        topic: The topic's name.
        partition: The partition's number.
        topic_id: The topic's id, 16 bytes; None for a directory older than topic ids.
        directory: Where the files are.
        config: The topic's settings; replace it with `configure`.
        leader_epoch: Stamped into appended batches.
        log_start_offset: The first offset that can be read.
        log_end_offset: What the next record gets.
        high_watermark: The first offset that a consumer may not see yet; never moves backwards.
        move: The move to another log directory that is under way, if one is.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        topic_id: bytes | None,
        directory: str,
        config: LogConfig,
        loaded: LoadedLog,
        *,
        fs: FileSystem,
        now_ms: int,
    ) -> None:
        """Is made by `LogManager`."""
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.directory = directory
        self._fs = fs
        self._health = Health(f"{topic}-{partition}")
        self._deleted = DeletedFiles(fs)
        self._cleaning: Cleaning | None = None
        self.move: Move | None = None
        self.configure(config)
        self._adopt(loaded, now_ms)

    def _adopt(self, loaded: LoadedLog, now_ms: int) -> None:
        """Takes what was found on the disk as the log's state."""
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = self._written_offset = self.high_watermark = loaded.log_end_offset
        self.leader_epoch = loaded.epochs.latest
        self._producers = loaded.producers
        self._has_aborted = any(segment.has_aborted for segment in loaded.segments)
        self._epochs = loaded.epochs
        self._active = loaded.segments[-1]
        self._written_position = self._active.size_bytes
        self._pending: list[memoryview] = []
        self._reader = LogReader(
            self._fs, self._health, loaded.segments, loaded.epochs, loaded.log_end_offset, self.write_dirty
        )
        self._flusher = Flusher(
            self._fs,
            self._health,
            (self.directory, self.directory.rpartition("/")[0]),
            loaded.recovery_point,
            loaded.unflushed,
            now_ms if loaded.recovery_point < loaded.log_end_offset else None,
        )
        if loaded.failure is not None:
            self._health.take_offline(loaded.failure)

    def configure(self, config: LogConfig) -> None:
        """Takes new settings from now on; what indexes a segment was begun with stays."""
        self.config = config
        self._max_batch_bytes = config.max_message_bytes
        self._segment_bytes = config.segment_bytes
        # Jitter by name, so that partitions made at once do not roll at once, and a restart changes nothing.
        segment_ms = config.segment_ms
        most_ms = min(config.segment_jitter_ms, segment_ms)
        jitter_ms = crc32(self._health.name.encode()) % most_ms if most_ms else 0
        if config.compacts:
            # Only sealed segments are compacted.
            segment_ms = min(segment_ms, config.max_compaction_lag_ms)
        self._segment_ms = max(segment_ms - jitter_ms, 1)
        self._needs_keys = config.compacts
        self._stamps_time = config.message_timestamp_type == "LogAppendTime"
        self._bounds_time = not self._stamps_time and (
            config.timestamp_after_max_ms != LONG_MAX or config.timestamp_before_max_ms != LONG_MAX
        )
        self._looks_into_batches = self._needs_keys or self._stamps_time or self._bounds_time
        self._exposes_written = config.expose == "written"

    @property
    def offline(self) -> PartitionOfflineError | None:
        """Why the partition is offline, or None."""
        return self._health.error

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

    # Appending

    def append(
        self,
        records: memoryview,
        *,
        now_ms: int,
        may_begin: MayBegin | None = None,
        marker: Marker | None = None,
    ) -> Appended:
        """Checks one client's batch, stamps offset and leader epoch into it in place, and queues its bytes.

        The bytes are written by `write_dirty`: until then `records` must stay as it is (do not refill the
        receive buffer), nothing of it can be read, and no acknowledgement may be sent. A duplicate of one of
        the last five batches of an idempotent producer is not queued again; its answer holds the first copy's
        offsets.

        Args:
            records: Exactly one record batch, writable, as Produce carried it.
            now_ms: The wall clock.
            may_begin: Asked before a batch begins a transaction in this partition; None where none may.
            marker: See `append_marker`, which is how to append one.

        Raises:
            CorruptBatchError: Not one whole batch, or a wrong checksum.
            UnsupportedMagicError: Message format 0 or 1.
            InvalidRecordError: More than one batch, counts that contradict each other, a control batch, a record
                without a key where the topic is compacted.
            RecordTooLargeError: Larger than `max.message.bytes`.
            BatchTooLargeError: Larger than a whole segment.
            InvalidTimestampError: Outside `message.timestamp.before|after.max.ms`.
            OutOfOrderSequenceError: A gap in the producer's sequence.
            InvalidProducerEpochError: The producer was fenced.
            InvalidTransactionStateError: The batch begins a transaction that it may not begin, or is outside of
                the one that is open.
            PartitionOfflineError: See the class.
        """
        if self._health.error is not None:
            raise self._health.error
        header = (
            check_batch(records, self._max_batch_bytes) if marker is None else HEADER.unpack_from(records)
        )
        size = len(records)
        max_timestamp_ms = header[MAX_TIMESTAMP_MS]
        append_time_ms = NO_TIMESTAMP
        base_offset = self.log_end_offset
        last_offset = base_offset + header[LAST_OFFSET_DELTA]
        producer_id = header[PRODUCER_ID]
        if producer_id >= 0 and marker is None:
            transactional = header[ATTRIBUTES] & TRANSACTIONAL
            first = self._producers.find_duplicate(
                producer_id,
                header[PRODUCER_EPOCH],
                header[BASE_SEQUENCE],
                (header[BASE_SEQUENCE] + header[LAST_OFFSET_DELTA]) & MAX_SEQUENCE,
                transactional,
            )
            if first is not None:
                if transactional and self._was_aborted(producer_id, first.base_offset):
                    raise OutOfOrderSequenceError(
                        f"producer {producer_id} sent sequence {header[BASE_SEQUENCE]} again after the transaction "
                        f"that had it, at offset {first.base_offset}, was aborted"
                    )
                append_time_ms = first.timestamp_ms if self._stamps_time else NO_TIMESTAMP
                return Appended(
                    first.base_offset, first.last_offset, append_time_ms, self.log_start_offset, True
                )
            if transactional and not self._producers.has_open_transaction(producer_id):
                if may_begin is None:
                    raise InvalidTransactionStateError("a transaction was begun without its transactional id")
                may_begin(self, producer_id, header[PRODUCER_EPOCH])
        if self._stamps_time:
            stamp_append_time(records, now_ms)
            max_timestamp_ms = append_time_ms = now_ms
        elif self._bounds_time:
            check_timestamps(records, header, self.config, now_ms)
        if self._needs_keys:
            check_keys(records, header, self._health.name)
        active = self._active
        if active.first_timestamp_ms is not None and (
            active.size_bytes + size > self._segment_bytes
            or max_timestamp_ms - active.first_timestamp_ms > self._segment_ms
            or last_offset > active.last_possible_offset
            or active.is_full
        ):
            self._roll(now_ms)
            active = self._active
        elif active.first_timestamp_ms is None:
            active.created_ms = now_ms
        if size > self._segment_bytes:
            raise BatchTooLargeError(
                f"a batch of {size} bytes is larger than a segment of {self._segment_bytes}"
            )
        STAMP.pack_into(records, 0, base_offset, header[BATCH_LENGTH], self.leader_epoch)
        active.note(active.size_bytes, size, last_offset, max_timestamp_ms)
        if producer_id >= 0:
            if marker is None:
                self._producers.record(header, base_offset, max_timestamp_ms, now_ms)
            else:
                aborted = self._producers.end_transaction(header, base_offset, marker, now_ms)
                if aborted is not None:
                    active.aborted.append(aborted)
                    self._has_aborted = True
        if self._flusher.unflushed_since_ms is None:
            self._flusher.unflushed_since_ms = now_ms
        self._pending.append(records)
        self.log_end_offset = last_offset + 1
        return Appended(base_offset, last_offset, append_time_ms, self.log_start_offset, False)

    def append_plain(self, batches: Sequence[memoryview], first: int, *, now_ms: int) -> list[int]:
        """Appends batches as `append` does, from the `first` of them up to one that is not the plainest there is.

        Plain is what needs no more than its checksum looked at: uncompressed, outside of transactions, the next that
        its producer was to send (if that is an idempotent one), in a topic that looks at no keys and times, and not
        the first of a segment. Anything else, and all that is wrong, ends the row without a word: `append` is to
        decide about it.

        Args:
            batches: What Produce requests carried, as for `append`.
            first: Index of the first one to append.
            now_ms: The wall clock.

        Returns:
            The base offsets that they got; none if already the first is not plain.
        """
        base_offsets: list[int] = []
        active = self._active
        first_ms, is_full = active.first_timestamp_ms, active.is_full
        if self._looks_into_batches or self._health.error is not None or first_ms is None or is_full:
            return base_offsets
        unpack, stamp, note = _PLAIN.unpack_from, STAMP.pack_into, active.note
        leader_epoch, last_possible_offset = self.leader_epoch, active.last_possible_offset
        greatest_ms, entry_due_after = active.max_timestamp_ms, active.entry_due_after
        latest_ms = first_ms + self._segment_ms
        base_offset, position = self.log_end_offset, active.size_bytes
        max_batch_bytes, segment_bytes = self._max_batch_bytes, self._segment_bytes
        producer_of = self._producers.get
        try:
            for records in batches[first:] if first else batches:
                size = len(records)
                if size < HEADER.size:
                    break
                # fmt: off
                (length, magic, checksum, attributes, delta, timestamp_ms, producer_id, epoch, sequence,
                 count) = unpack(records)
                # fmt: on
                last_offset = base_offset + delta
                end = position + size
                if (
                    magic != MAGIC
                    or attributes & UNUSUAL
                    or length + SIZE_BEFORE_LENGTH_BYTES != size
                    or delta + 1 != count
                    or delta < 0
                    or size > max_batch_bytes
                    or end > segment_bytes
                    or timestamp_ms > latest_ms
                    or last_offset > last_possible_offset
                    or crc32c(records[CHECKED_FROM:]) != checksum
                ):
                    break
                if producer_id >= 0:
                    producer = producer_of(producer_id)
                    if producer is None or not producer.is_next(epoch, sequence):
                        break
                    producer.keep(sequence, base_offset, delta, timestamp_ms, now_ms)
                stamp(records, 0, base_offset, length, leader_epoch)
                if position > entry_due_after or timestamp_ms > greatest_ms:
                    note(position, size, last_offset, timestamp_ms)
                    greatest_ms, entry_due_after = active.max_timestamp_ms, active.entry_due_after
                    is_full = active.is_full
                base_offsets.append(base_offset)
                position = end
                base_offset = last_offset + 1
                if is_full:
                    break
        finally:
            active.size_bytes = position
            self.log_end_offset = base_offset
            self._pending += batches[first : first + len(base_offsets)]
        if base_offsets and self._flusher.unflushed_since_ms is None:
            self._flusher.unflushed_since_ms = now_ms
        return base_offsets

    def _was_aborted(self, producer_id: int, offset: int) -> bool:
        """Whether the producer's record at `offset` belongs to a transaction that was aborted.

        What has such a record's sequence is no copy of it but another record. librdkafka 2.11 gives sequences out
        again when it drops a batch that may have arrived, to abort a transaction; taken for a duplicate, as Kafka
        takes it, the record would be lost without a word.
        """
        if not self._has_aborted:
            return False
        segment = self._reader.segment_at(offset)
        found = self._reader.find_aborted(offset, segment, segment.size_bytes, offset + 1)
        return any(each.producer_id == producer_id for each in found)

    def append_marker(
        self, producer_id: int, producer_epoch: int, marker: Marker, *, now_ms: int
    ) -> Appended:
        """Ends the producer's transaction in this partition; where none is open, only fences older epochs.

        The marker is queued as a batch is; consumers of committed records see past it once it is written.

        Raises:
            InvalidProducerEpochError: A newer instance of the producer has written.
            CoordinatorFencedError: A newer transaction coordinator has.
            PartitionOfflineError: See the class.
        """
        self._health.check()
        self._producers.check_marker(producer_id, producer_epoch, marker)
        batch = encode_marker(producer_id, producer_epoch, marker, now_ms)
        return self.append(memoryview(batch), now_ms=now_ms, marker=marker)

    @property
    def is_dirty(self) -> bool:
        """Whether something was appended since the last `write_dirty`."""
        return bool(self._pending)

    def write_dirty(self) -> None:
        """Writes all that was queued, with one system call (per 1,024 batches), and makes it readable.

        Where `expose=flushed`, it is readable only after the next flush.

        Raises:
            StorageError: The write failed: the partition is offline, and nothing that was queued may be
                acknowledged.
        """
        pending = self._pending
        if not pending:
            self._health.check()
            return
        active = self._active
        position = self._written_position
        try:
            if len(pending) <= _MAX_BUFFERS:
                position += self._fs.pwritev(active.file.fd, pending, position)
            if position < active.size_bytes:
                self._write_rest(pending, position)
        except OSError as error:
            self._health.fail(f"cannot write to {active.log_path}", error)
        finally:
            # The views would keep the receive buffer from being resized.
            self._pending = []
        self._written_position = active.size_bytes
        self._written_offset = self.log_end_offset
        if self._exposes_written:
            self._expose(active, active.size_bytes, self.log_end_offset)

    def _write_rest(self, pending: list[memoryview], position: int) -> None:
        """Goes on where a system call took less than all."""
        written = position - self._written_position
        rest = memoryview(b"".join(pending))[written:]
        while rest:
            count = self._fs.pwritev(self._active.file.fd, [rest], position)
            rest = rest[count:]
            position += count

    def _expose(self, segment: Segment, position: int, offset: int) -> None:
        self.high_watermark = offset
        self._reader.expose(segment, position, offset)
        if self._producers.unstable:
            self._producers.settle(offset)

    def _roll(self, now_ms: int) -> None:
        """Seals the newest segment and begins another at the log's end."""
        self.write_dirty()
        sealed = self._active
        try:
            sealed.seal()
            self._write_snapshot()
            self._active = Segment.create(self._fs, self.directory, self.log_end_offset, self.config, now_ms)
        except OSError as error:
            self._health.fail(f"cannot begin a segment in {self.directory}", error)
        self._reader.add(self._active)
        self._written_position = 0
        self._flusher.note_sealed(sealed)

    # Reading

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
        if self._health.error is not None:
            raise self._health.error
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
        file = segment.file
        aborted: Sequence[tuple[int, int]] = ()
        if isolation and self._has_aborted and count:
            found = self._reader.find_aborted(offset, segment, position + count, end_offset)
            aborted = [(each.producer_id, each.first_offset) for each in found]
        return FileRange(
            file.fd, position, count, high_watermark, stable_offset, self.log_start_offset, file, aborted
        )

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
        self._health.check()
        found = self._reader.find_timestamp(timestamp_ms, self.log_start_offset)
        if found is None or (isolation and found[1] >= self.last_stable_offset):
            return None
        return TimestampAndOffset(*found, self.epoch_at(found[1]))

    def max_timestamp(self) -> TimestampAndOffset | None:
        """The first record with the greatest timestamp; None in an empty log."""
        self._health.check()
        found = self._reader.find_greatest()
        return TimestampAndOffset(*found, self.epoch_at(found[1])) if found else None

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

    # Moving start and end

    def become_leader(self, leader_epoch: int) -> None:
        """Starts a leader epoch at the log's end; one that is not newer changes nothing."""
        self._health.check()
        if self._epochs.assign(leader_epoch, self.log_end_offset):
            self.leader_epoch = leader_epoch
            self._write_epochs(durable=self.log_end_offset > 0)

    def delete_records(self, before_offset: int) -> int:
        """Moves the log's start to `before_offset` (-1: the high watermark) and returns the new start.

        Segments that lie wholly before it are removed by a later `LogManager.tick`; `LogManager.checkpoint` makes the
        new start survive a crash.

        Raises:
            OffsetOutOfRangeError: Past the high watermark, or below -1.
        """
        self._health.check()
        wanted = self.high_watermark if before_offset == -1 else before_offset
        if not 0 <= wanted <= self.high_watermark:
            raise OffsetOutOfRangeError(
                f"records of {self.topic}-{self.partition} can be deleted up to offset {self.high_watermark}, not up "
                f"to {before_offset}",
                self.log_start_offset,
                self.log_end_offset,
            )
        self._move_start(wanted)
        return self.log_start_offset

    def truncate_to(self, offset: int, *, now_ms: int) -> None:
        """Removes every batch that holds `offset` or more, for a follower whose leader says so."""
        self._health.check()
        self.write_dirty()
        if offset >= self.log_end_offset:
            return
        self.abandon_cleaning()
        keep = self._reader.segment_at(offset)
        newer = self._reader.segments[self._reader.segments.index(keep) + 1 :]
        try:
            for segment in newer:
                segment.delete(at_once=True)
            end_offset = self._reader.mending(keep, lambda: keep.truncate_to(offset))
            keep.seal()
            loaded = LogLoader(
                self._fs,
                self.directory,
                self.config,
                clean=True,
                recovery_point=min(self.recovery_point, end_offset),
                log_start_offset=min(self.log_start_offset, end_offset),
                now_ms=now_ms,
            ).load()
        except OSError as error:
            self._health.fail(f"cannot truncate {keep.log_path}", error)
        self._adopt(loaded, now_ms)

    def _move_start(self, offset: int) -> None:
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            if self._epochs.truncate_start(offset):
                self._write_epochs(durable=False)

    def _write_epochs(self, *, durable: bool) -> None:
        path = f"{self.directory}/{checkpoints.LEADER_EPOCHS}"
        try:
            self._fs.write_file(path, checkpoints.encode_epochs(self._epochs.entries), durable=durable)
        except OSError as error:
            self._health.fail(f"cannot write {path}", error)

    # Flushing

    def flush_due(self, now_ms: int) -> bool:
        """Whether `flush.messages`, `flush.ms` or a new segment ask for a flush, and none is under way."""
        return self._flusher.is_due(self.config, self._written_offset, now_ms)

    def start_flush(self) -> Flush | None:
        """Prepares an fsync of everything written so far.

        Call `Flush.run` in any thread, then `Flush.complete` in this log's thread; what was written meanwhile
        needs another one.

        Returns:
            None where there is nothing to do, or where a flush is under way.
        """
        self._health.check()
        return None if self._flusher.is_idle(self._written_offset) else self._new_flush()

    def _new_flush(self) -> Flush:
        active, position, reader = self._active, self._written_position, self._reader

        def flushed(end_offset: int) -> None:
            # A truncation has replaced the reader: what was flushed may not be there any more.
            if reader is self._reader and not self._exposes_written and end_offset > self.high_watermark:
                self._expose(active, position, end_offset)

        return self._flusher.start(self._written_offset, active, flushed)

    def flush(self) -> int:
        """Writes and fsyncs everything here and now; returns the new recovery point."""
        self._health.check()
        self.write_dirty()
        flush = self._new_flush()
        flush.run()
        return flush.complete()

    # Upkeep, called by the manager

    def roll_if_old(self, now_ms: int) -> None:
        """Begins a new segment where the newest was begun `segment.ms` ago by the broker's clock."""
        if (
            self.offline is None
            and self._active.size_bytes
            and now_ms - self._active.created_ms > self._segment_ms
        ):
            self._roll(now_ms)

    def apply_retention(self, now_ms: int) -> None:
        """Deletes the oldest segments as the topic's settings and DeleteRecords ask."""
        if self.offline is not None or self._cleaning is not None or self.move is not None:
            return
        segments = self._reader.segments
        count = expired_segments(
            segments,
            self.config,
            now_ms=now_ms,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
            log_end_offset=self.log_end_offset,
            modified_ms=lambda segment: self._fs.modified_ms(segment.file.fd),
        )
        if not count:
            return
        if count == len(segments):
            self._roll(now_ms)
        removed = self._reader.remove_oldest(count)
        start_offset = self._reader.segments[0].base_offset
        delay_ms = self.config.file_delete_delay_ms
        try:
            for segment in removed:
                self._deleted.add(now_ms + delay_ms, segment.delete(at_once=delay_ms == 0))
        except OSError as error:
            self._health.fail(f"cannot delete segments in {self.directory}", error)
        self._flusher.note_removed(removed)
        _LOGGER.info(
            "%s-%d: deleted %d segments, the log now starts at offset %d",
            self.topic,
            self.partition,
            count,
            max(start_offset, self.log_start_offset),
        )
        self._move_start(start_offset)

    def remove_deleted(self, now_ms: int) -> None:
        """Removes files whose `file.delete.delay.ms` has passed."""
        self._deleted.remove_due(now_ms)

    def release_idle(self) -> None:
        """Closes old segments that nobody reads."""
        for segment in self._reader.segments[:-1]:
            segment.release_idle()

    def expire_producers(self, before_ms: int) -> None:
        """Forgets producers that wrote nothing since `before_ms`."""
        self._producers.expire(before_ms)

    # Compaction

    def dirt(self, now_ms: int, cleaned_offset: int | None) -> Dirt | None:
        """What there is to compact; None where nothing may be compacted now.

        Args:
            now_ms: The wall clock.
            cleaned_offset: Up to where it was compacted before, if ever.
        """
        is_busy = self._cleaning is not None or self.move is not None
        if self.offline is not None or is_busy or not self.config.compacts:
            return None
        return measure_dirt(
            self._reader.segments,
            self.config,
            now_ms=now_ms,
            cleaned_offset=cleaned_offset,
            log_start_offset=self.log_start_offset,
            end_offset=min(self.last_stable_offset, self.recovery_point),
            first_timestamp_ms=Segment.first_batch_timestamp_ms,
        )

    def start_cleaning(
        self, dirt: Dirt, config: CleanerConfig, now_ms: int, completed: Callable[[Cleaning], None]
    ) -> Cleaning:
        """Prepares a compaction of everything up to `dirt.first_uncleanable_offset`; see `Cleaning`.

        Args:
            dirt: From `dirt`, just now.
            config: How much it may take.
            now_ms: The wall clock.
            completed: Told at the end, however it ended.

        Raises:
            StorageError: The disk refused; the partition is now offline.
        """

        def ended(cleaning: Cleaning) -> None:
            if self._cleaning is cleaning:
                self._cleaning = None
            completed(cleaning)

        last_of_producers = {
            producer_id: (entry.batches[-1].last_offset if entry.batches else None, entry.producer_epoch)
            for producer_id, entry in self._producers.items()
        }
        delete_retention_ms = self.config.delete_retention_ms
        try:
            self._cleaning = Cleaning(
                self._fs,
                self._health.name,
                self.directory,
                self,
                self._reader.segments,
                dirt,
                self.config,
                config,
                lambda keys: Retention(keys, now_ms, delete_retention_ms, last_of_producers),
                ended,
            )
        except OSError as error:
            self._health.fail(f"cannot compact {self.directory}", error)
        return self._cleaning

    def replace_segments(self, cleaned: CleanedSegment, base_offsets: Sequence[int], now_ms: int) -> None:
        """Puts a cleaned segment in the place of those that it was made from.

        Raises:
            StorageError: The disk refused; the partition is now offline.
        """
        self._health.check()
        old = [segment for segment in self._reader.segments if segment.base_offset in base_offsets]
        delay_ms = self.config.file_delete_delay_ms
        try:
            left = exchange(self._fs, self.directory, cleaned.base_offset, cleaned.suffixes(), old)
            segment = Segment.open(self._fs, self.directory, cleaned.base_offset, self.config, now_ms)
            segment.load_sealed()
        except OSError as error:
            self._health.fail(f"cannot replace segments in {self.directory}", error)
        segment.trusted_from = 0
        self._reader.replace(old, segment)
        self._deleted.add(now_ms + delay_ms, left)
        self._flusher.note_removed(old)

    # Moving to another log directory

    def written_segments(self) -> list[tuple[Segment, int]]:
        """Segments with how much of each is written; the newest is the last."""
        segments = self._reader.segments
        sizes = [segment.size_bytes for segment in segments[:-1]]
        return list(zip(segments, [*sizes, self._written_position], strict=True))

    def pause_for_move(self) -> None:
        """Leaves on the disk what the files in another directory are to begin with.

        Raises:
            StorageError: The disk refused; the partition is now offline.
        """
        self.flush()
        try:
            self._active.seal()
            self._write_snapshot()
        except OSError as error:
            self._health.fail(f"cannot move {self.directory}", error)

    def reopen(self, directory: str) -> None:
        """Goes on with the same files in another directory.

        Raises:
            StorageError: They cannot be read; the partition is now offline.
        """
        end_offset, high_watermark = self.log_end_offset, self.high_watermark
        producers, leader_epoch = self._producers, self.leader_epoch
        self.directory = directory
        loaded = LogLoader(
            self._fs,
            directory,
            self.config,
            clean=True,
            recovery_point=end_offset,
            log_start_offset=self.log_start_offset,
            was_compacted=True,
            now_ms=self._active.created_ms,
        ).load()
        self._adopt(loaded, self._active.created_ms)
        self._health.check()
        self.high_watermark = max(self.high_watermark, high_watermark)
        # A file does not say when each producer was last heard.
        self._producers, self.leader_epoch = producers, leader_epoch

    def abandon_cleaning(self) -> None:
        """Gives up a compaction or a move that is under way; what was replaced already stays so."""
        if self.move is not None:
            self.move.abandon()
            self.move = None
        if self._cleaning is not None:
            self._cleaning.abandon()
            self._cleaning = None

    def close(self) -> None:
        """Leaves everything on the disk as a clean stop should; the log is not to be used any more."""
        self.abandon_cleaning()
        if self.offline is not None:
            return
        self.write_dirty()
        if self.recovery_point < self._written_offset or not self._flusher.is_idle(self._written_offset):
            self.flush()
        if self.log_end_offset == 0:
            return
        try:
            self._active.seal()
            # Not synced: where it is lost, the batches since the one before it are read again.
            self._write_snapshot()
        except OSError as error:
            self._health.fail(f"cannot close {self.directory}", error)

    def _write_snapshot(self) -> None:
        path = paths.segment_path(self.directory, self.log_end_offset, paths.SNAPSHOT_SUFFIX)
        self._fs.write_file(path, encode_snapshot(self._producers), durable=False)

    def take_offline(self, error: PartitionOfflineError) -> None:
        """The disk under it is gone: nothing may be appended or read any more."""
        if self._health.error is None:
            self.abandon_cleaning()
            self._pending = []
            self._health.take_offline(error)

    def retire(self) -> None:
        """The partition was deleted: nothing may be appended or read any more."""
        self.abandon_cleaning()
        self._pending = []
        self._health.error = PartitionOfflineError(f"{self._health.name} was deleted")
