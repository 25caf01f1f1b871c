"""The end of a log: batches are checked, queued and written here, and segments begun.

It keeps the log's state. `view` decides what may be seen of it, `partition` when it is flushed and what becomes of old
segments.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Self
from zlib import crc32

from crc32c import crc32c

from headwater_broker.log import paths
from headwater_broker.log.batch import (
    ATTRIBUTES,
    BASE_SEQUENCE,
    BATCH_LENGTH,
    CHECKED_FROM,
    GREATEST_TIMESTAMP_MS,
    HEADER,
    LAST_OFFSET_DELTA,
    MAGIC,
    MAX_SEQUENCE,
    MAX_TIMESTAMP_MS,
    NO_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORD_COUNT,
    SIZE_BEFORE_LENGTH_BYTES,
    STAMP,
    TRANSACTIONAL,
    BadBatchError,
    HeaderTuple,
)
from headwater_broker.log.config import LONG_MAX, LogConfig
from headwater_broker.log.errors import (
    BatchTooLargeError,
    InvalidTimestampError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
    PartitionOfflineError,
    StorageError,
)
from headwater_broker.log.flush import Flusher
from headwater_broker.log.fs import FileSystem
from headwater_broker.log.health import Health
from headwater_broker.log.inspection import LONG_MIN, Allowance, Demands, inspect
from headwater_broker.log.markers import Marker, encode_marker
from headwater_broker.log.missing import MissingOffsets
from headwater_broker.log.reader import LogReader
from headwater_broker.log.recompression import recompressed, target_of
from headwater_broker.log.recovery import LoadedLog
from headwater_broker.log.results import Appended
from headwater_broker.log.schema_ids import SchemaIds, check_schema_ids
from headwater_broker.log.segment import Segment
from headwater_broker.log.snapshot import encode_snapshot
from headwater_broker.log.validation import (
    UNUSUAL,
    check_batch,
    stamp_append_time,
    too_large,
)
from headwater_broker.log.walk import IS_COMPILED, are_plain

_LOGGER = logging.getLogger(__name__)

_PLAIN = Struct(">qi4xBIhiqqqhii")
"""`HEADER` without the leader epoch."""

_MOST_AT_ONCE = 20_000 if IS_COMPILED else 500
"""So many records of a batch are checked before others may have their turn."""

_SCHEMA_COSTS = 4_000
"""What it costs to look for a record's ids of schemas, in bytes that could be decompressed in that time."""

_COMPRESSION_COSTS = 32
"""What it costs to compress a byte anew, in bytes that could be decompressed in that time."""

LookedInto = tuple[memoryview, HeaderTuple, int]
"""A batch as it is to be stored, its header, and its greatest timestamp."""

_MAX_BUFFERS = 1024
"""Linux's IOV_MAX: one system call takes no more."""


class LogTail:
    """What `PartitionLog` appends with; its public attributes are documented there.

    It is a base class rather than a part of `PartitionLog`, because a part would cost one more call for each request.
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
        """Begins with what was found on the disk."""
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.directory = directory
        self._fs = fs
        self._health = Health(f"{topic}-{partition}")
        self.write_error: PartitionOfflineError | None = None
        self.schema_ids: SchemaIds | None = None
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
        self._stored_epochs = loaded.stored_epochs
        self._active = loaded.segments[-1]
        self._written_position = self._active.size_bytes
        self._pending: list[memoryview] = []
        self._lost: PartitionOfflineError | None = None
        self._is_cut_due = False
        self._producers.settle_changes()
        self._reader = LogReader(
            self._fs,
            self._health,
            loaded.segments,
            loaded.epochs,
            loaded.log_end_offset,
            self._write_queued,
            MissingOffsets(self._health.name, loaded.missing),
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
        self._demands = Demands(self._needs_keys)
        self._target = target_of(config)
        asks_key, asks_value = (
            config.confluent_key_schema_validation,
            config.confluent_value_schema_validation,
        )
        self._subjects = (
            f"{self.topic}-key" if asks_key else None,
            f"{self.topic}-value" if asks_value else None,
        )
        self._asks_schemas = asks_key or asks_value
        self._looks_into_batches = (
            self._needs_keys
            or self._stamps_time
            or self._bounds_time
            or self._target is not None
            or self._asks_schemas
        )
        self._exposes_written = config.expose == "written"

    def append(
        self,
        records: memoryview,
        *,
        now_ms: int,
        may_begin: Callable[[Self, int, int], None] | None = None,
        marker: Marker | None = None,
        looked_into: LookedInto | None = None,
        allowance: Allowance | None = None,
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
            looked_into: What `look_into` returned for it, if that was done before.
            allowance: How much of it may be looked at now; None: all that there is.

        Raises:
            CorruptBatchError: Not one whole batch, or a wrong checksum.
            UnsupportedMagicError: Message format 0 or 1.
            InvalidRecordError: More than one batch, counts that contradict each other, a control batch, records that
                are not what the header says, or one without a key where the topic is compacted.
            RecordTooLargeError: Larger than `max.message.bytes`.
            BatchTooLargeError: Larger than a whole segment.
            InvalidTimestampError: Outside `message.timestamp.before|after.max.ms`, or beyond what a reader can hold.
            OutOfOrderSequenceError: A gap in the producer's sequence.
            InvalidProducerEpochError: The producer was fenced.
            InvalidTransactionStateError: The batch begins a transaction that it may not begin, or is outside of
                the one that is open.
            PartitionOfflineError: See `PartitionLog`.
            TooMuchAtOnceError: There is more to be looked at than the allowance; nothing was done.
        """
        if self._health.error is not None:
            raise self._health.error.again()
        if marker is not None:
            header = HEADER.unpack_from(records)
            max_timestamp_ms = header[MAX_TIMESTAMP_MS]
        else:
            if looked_into is None:
                looked_into = self.look_into(records, now_ms=now_ms, allowance=allowance)
            records, header, max_timestamp_ms = looked_into
        size = len(records)
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

    def look_into(
        self, records: memoryview, *, now_ms: int, allowance: Allowance | None = None
    ) -> LookedInto:
        """Checks one client's batch and each of its records, and compresses it anew where the topic asks for that.

        It changes nothing of the log, and may be done in another thread.

        Args:
            records: As for `append`; the greatest timestamp in its header is made right in place.
            now_ms: The wall clock.
            allowance: As for `append`.

        Raises:
            InvalidBatchError: One of its subclasses; see `append`.
            TooMuchAtOnceError: There is more to be looked at than the allowance.
        """
        header = check_batch(records, self._max_batch_bytes)
        demands = self._demands
        if self._bounds_time:
            earliest_ms = now_ms - self.config.timestamp_before_max_ms
            latest_ms = now_ms + self.config.timestamp_after_max_ms
            demands = Demands(self._needs_keys, max(earliest_ms, LONG_MIN), min(latest_ms, LONG_MAX))
        greatest_ms = inspect(records, header, demands, self._health.name, allowance)
        if greatest_ms > GREATEST_TIMESTAMP_MS and not self._stamps_time:
            raise InvalidTimestampError(
                f"timestamp {greatest_ms} is no time in milliseconds: the greatest is {GREATEST_TIMESTAMP_MS}"
            )
        if self._asks_schemas:
            if allowance is not None:
                allowance.spend(_SCHEMA_COSTS * header[RECORD_COUNT])
            check_schema_ids(records, header, self._subjects, self.schema_ids)
        if self._target is not None:
            if allowance is not None:
                allowance.spend(_COMPRESSION_COSTS * len(records))
            records = recompressed(records, header, self._target)
            header = HEADER.unpack_from(records)
            if len(records) > self._max_batch_bytes:
                raise too_large(len(records), self._max_batch_bytes)
        return records, header, greatest_ms

    def append_plain(self, batches: Sequence[memoryview], first: int, *, now_ms: int) -> list[int]:
        """Appends batches as `append` does, from the `first` of them up to one that is not the plainest there is.

        Plain is what needs no more than a look at its checksum and records: uncompressed, outside of transactions,
        the next that its producer was to send (if that is an idempotent one), in a topic that looks at no keys and
        times, and not the first of a segment. Anything else, and all that is wrong, ends the row without an error:
        `append` decides about it.

        Args:
            batches: What Produce requests carried, as for `append`.
            first: Index of the first one to append.
            now_ms: The wall clock.

        Returns:
            The base offsets that they got; none if already the first is not plain.
        """
        base_offsets: list[int] = []
        active = self._active
        began_ms, is_full = active.first_timestamp_ms, active.is_full
        if self._looks_into_batches or self._health.error is not None or began_ms is None or is_full:
            return base_offsets
        unpack, stamp, note = _PLAIN.unpack_from, STAMP.pack_into, active.note
        leader_epoch, last_possible_offset = self.leader_epoch, active.last_possible_offset
        greatest_ms, entry_due_after = active.max_timestamp_ms, active.entry_due_after
        latest_ms = began_ms + self._segment_ms
        base_offset, position = self.log_end_offset, active.size_bytes
        max_batch_bytes, segment_bytes = self._max_batch_bytes, self._segment_bytes
        producer_of = self._producers.get
        try:
            for records in batches[first:] if first else batches:
                size = len(records)
                if size < HEADER.size:
                    break
                # fmt: off
                (base, length, magic, checksum, attributes, delta, first_ms, timestamp_ms, producer_id, epoch, sequence,
                 count) = unpack(records)
                # fmt: on
                last_offset = base_offset + delta
                end = position + size
                if (
                    magic != MAGIC
                    or attributes & UNUSUAL
                    or length + SIZE_BEFORE_LENGTH_BYTES != size
                    or delta + 1 != count
                    or not 0 <= delta < _MOST_AT_ONCE
                    or base
                    or size > max_batch_bytes
                    or end > segment_bytes
                    or timestamp_ms > latest_ms
                    or last_offset > last_possible_offset
                    or crc32c(records[CHECKED_FROM:]) != checksum
                    or not are_plain(records, HEADER.size, count, timestamp_ms - first_ms)
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

        A batch with the sequence of such a record is no copy of it but another record. librdkafka 2.11 gives sequences
        out again when it drops a batch that may have arrived, to abort a transaction. If it were taken for a
        duplicate, as Kafka takes it, the record would be lost without an error.
        """
        if not self._has_aborted:
            return False
        segment = self._reader.segment_at(offset)
        transactions = self._reader.find_aborted(offset, segment, segment.size_bytes, offset + 1)
        return any(each.producer_id == producer_id for each in transactions)

    def append_marker(
        self, producer_id: int, producer_epoch: int, marker: Marker, *, now_ms: int
    ) -> Appended:
        """Ends the producer's transaction in this partition; where none is open, only fences older epochs.

        The marker is queued as a batch is; consumers of committed records see past it once it is written.

        Raises:
            InvalidProducerEpochError: A newer instance of the producer has written.
            CoordinatorFencedError: A newer transaction coordinator has.
            PartitionOfflineError: See `PartitionLog`.
        """
        self._health.check()
        self._producers.check_marker(producer_id, producer_epoch, marker)
        batch = encode_marker(producer_id, producer_epoch, marker, now_ms)
        return self.append(memoryview(batch), now_ms=now_ms, marker=marker)

    @property
    def is_dirty(self) -> bool:
        """Whether something was appended since the last `write_dirty`."""
        return bool(self._pending)

    @property
    def written_offset(self) -> int:
        """The first offset that is not written: behind a write that failed, what was appended from there on is lost."""
        return self._written_offset

    def write_dirty(self) -> None:
        """Writes all that was queued, with one system call (per 1,024 batches), and makes it readable.

        Where `expose=flushed`, it is readable only after the next flush.

        Raises:
            StorageError: A write failed, now or since the last call: what was queued is forgotten, as if it had never
                been appended, and nothing of it may be acknowledged: nothing from `written_offset` on. `write_error`
                holds the error until the next call.
            PartitionOfflineError: The partition is offline.
        """
        if self._pending:
            self._write_pending()
        error = self.write_error = self._lost or self._health.offline
        if error is not None:
            self._lost = None
            raise error.again()

    def _write_queued(self) -> None:
        """Writes before the end of the tick; if that fails, `write_dirty` tells those who wait for that, too."""
        if self._pending:
            self._write_pending()
        if self._lost is not None:
            raise self._lost.again()

    def _write_pending(self) -> None:
        pending, active = self._pending, self._active
        position = self._written_position
        try:
            if self._is_cut_due:
                self._cut_tail()
            if len(pending) <= _MAX_BUFFERS:
                position += self._fs.pwritev(active.file.fd, pending, position)
            if position < active.size_bytes:
                self._write_rest(pending, position)
        except OSError as error:
            self._lost = self._take_back(pending, error)
            return
        finally:
            # The views would keep the receive buffer from being resized.
            self._pending = []
        self._written_position = active.size_bytes
        self._written_offset = self.log_end_offset
        if self._producers.changed:
            self._producers.settle_changes()
        if self._health.is_failing:
            self._health.note_written()
        if active.indexes_are_behind:
            active.store_entries()
        if self._exposes_written:
            self._expose(active, active.size_bytes, self.log_end_offset)

    def _write_rest(self, pending: list[memoryview], position: int) -> None:
        """Goes on where a system call took less than all."""
        written = position - self._written_position
        rest = memoryview(b"".join(pending))[written:]
        while rest:
            count = self._fs.pwritev(self._active.file.fd, [rest], position)
            if not count:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            rest = rest[count:]
            position += count

    def _take_back(self, pending: list[memoryview], error: OSError) -> PartitionOfflineError:
        """Makes the log what it was before `pending` was appended; returns the error to raise."""
        active, end_offset = self._active, self._written_offset
        failure: PartitionOfflineError = self._health.refuse(f"cannot write to {active.log_path}", error)
        self._is_cut_due = True
        with contextlib.suppress(OSError):  # cut before the next write, then; a start cuts it as a torn tail
            self._cut_tail()
        first_sequences: dict[int, int] = {}
        for batch in pending:
            header = HEADER.unpack_from(batch)
            if header[PRODUCER_ID] >= 0 and header[BASE_SEQUENCE] >= 0:
                first_sequences.setdefault(header[PRODUCER_ID], header[BASE_SEQUENCE])
        self.log_end_offset = end_offset
        self._producers.take_back(end_offset, first_sequences)
        self._flusher.take_back(end_offset)
        try:
            active.take_back(self._written_position, end_offset)
        except (BadBatchError, OSError) as worse:
            failure = StorageError(f"{active.log_path} cannot be read after a write that failed: {worse}")
            self._health.take_offline(failure)
        return failure

    def _cut_tail(self) -> None:
        """Cuts off what a write that failed has left."""
        self._fs.truncate(self._active.file.fd, self._written_position)
        self._is_cut_due = False

    def try_again(self) -> None:
        """Takes records again after a refusal that may have passed; what must be on the disk before is written."""
        # Those who wait for what was lost are to be told first.
        if self._health.is_passing and self._lost is None:
            self._health.try_again()

    def _expose(self, segment: Segment, position: int, offset: int) -> None:
        self.high_watermark = offset
        self._reader.expose(segment, position, offset)
        if self._producers.unstable:
            self._producers.settle(offset)

    def _roll(self, now_ms: int, *, is_forced: bool = False) -> None:
        """Seals the newest segment and begins another at the log's end, `is_forced` also while records are refused."""
        self._write_queued()
        if not is_forced:
            self._health.check_writable()
        sealed = self._active
        end_offset = self.log_end_offset
        # What the disk does not take of these is made again from the log, by the next start at the latest.
        refused = sealed.try_to_seal()
        try:
            if self._is_cut_due:
                self._cut_tail()
            with contextlib.suppress(OSError):
                self._write_snapshot()
            created = Segment.create(self._fs, self.directory, end_offset, self.config, now_ms)
        except OSError as error:
            with contextlib.suppress(OSError):
                self._fs.remove(paths.segment_path(self.directory, end_offset, paths.SNAPSHOT_SUFFIX))
            raise self._health.refuse(f"cannot begin a segment in {self.directory}", error) from error
        if refused is not None:
            _LOGGER.warning("the indexes of %s stay in memory: %s", sealed.log_path, refused)
        self._active = created
        self._reader.add(created)
        self._written_position = 0
        self._flusher.note_sealed(sealed)

    def _write_snapshot(self) -> None:
        path = paths.segment_path(self.directory, self.log_end_offset, paths.SNAPSHOT_SUFFIX)
        self._fs.write_file(path, encode_snapshot(self._producers), durable=False)
