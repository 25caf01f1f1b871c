"""One partition's log: what the server appends to and reads from."""

from __future__ import annotations

from headwater_broker.log.config import LogConfig
from headwater_broker.log.flush import Flush
from headwater_broker.log.results import Appended, EpochEnd, FileRange, Isolation, TimestampAndOffset


class PartitionLog:
    """An append-only sequence of record batches with consecutive offsets, in segment files.

    Everything but `Flush.run` belongs to one thread. Get one from `LogManager`, which recovers it.

    Every method except `close` raises `PartitionOfflineError` (`CorruptLogError`, `StorageError`) once the
    partition has
    been taken offline; `offline` holds that error.

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
        last_stable_offset: The same for read_committed; at most the high watermark.
        recovery_point: Everything before it is on the disk for certain.
        offline: Why the partition is offline, or None.
    """

    topic: str
    partition: int
    topic_id: bytes | None
    directory: str
    config: LogConfig
    leader_epoch: int
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    recovery_point: int

    def append(self, records: memoryview, *, now_ms: int) -> Appended:
        """Checks one client's batch, stamps offset and leader epoch into it in place, and queues its bytes.

        The bytes are written by `write_dirty`: until then `records` must stay as it is (do not refill the
        receive buffer),
        nothing of it can be read, and no acknowledgement may be sent. A duplicate of one of the last five
        batches of an
        idempotent producer is not queued again; its answer holds the first copy's offsets.

        Args:
            records: Exactly one record batch, writable, as Produce carried it.
            now_ms: The wall clock.

        Raises:
            CorruptBatchError: Not one whole batch, or a wrong checksum.
            UnsupportedMagicError: Message format 0 or 1.
            InvalidRecordError: More than one batch, counts that contradict each other, a control or
                transactional batch.
            RecordTooLargeError: Larger than `max.message.bytes` (or than a whole segment).
            InvalidTimestampError: Outside `message.timestamp.before|after.max.ms`.
            OutOfOrderSequenceError: A gap in the producer's sequence.
            InvalidProducerEpochError: The producer was fenced.
            PartitionOfflineError: See the class.
        """
        raise NotImplementedError

    @property
    def is_dirty(self) -> bool:
        """Whether something was appended since the last `write_dirty`."""
        raise NotImplementedError

    def write_dirty(self) -> None:
        """Writes all that was queued, with one system call (per 1,024 batches), and makes it readable.

        Where `expose=flushed`, it is readable only after the next flush.

        Raises:
            StorageError: The write failed: the partition is offline, and nothing that was queued may be
                acknowledged.
        """
        raise NotImplementedError

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
        """
        raise NotImplementedError

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampAndOffset | None:
        """The first record that consumers may see whose timestamp is not before `timestamp_ms`, if any."""
        raise NotImplementedError

    def max_timestamp(self) -> TimestampAndOffset | None:
        """The first record with the greatest timestamp; None in an empty log."""
        raise NotImplementedError

    def earliest(self) -> TimestampAndOffset:
        """The log's start (timestamp -1), as ListOffsets answers it."""
        raise NotImplementedError

    def latest(self, isolation: Isolation = Isolation.READ_UNCOMMITTED) -> TimestampAndOffset:
        """High watermark or last stable offset (timestamp -1), as ListOffsets answers it."""
        raise NotImplementedError

    def epoch_at(self, offset: int) -> int:
        """The leader epoch in which `offset` was (or is being) written; -1 if not known."""
        raise NotImplementedError

    def end_of_epoch(self, leader_epoch: int) -> EpochEnd:
        """Where `leader_epoch` ends, as OffsetForLeaderEpoch answers it."""
        raise NotImplementedError

    def become_leader(self, leader_epoch: int) -> None:
        """Starts a leader epoch at the log's end; one that is not newer changes nothing."""
        raise NotImplementedError

    def delete_records(self, before_offset: int) -> int:
        """Moves the log's start to `before_offset` (-1: the high watermark) and returns the new start.

        Segments that lie wholly before it are removed by the next `LogManager.tick`.

        Raises:
            OffsetOutOfRangeError: Past the high watermark, or below -1.
        """
        raise NotImplementedError

    def truncate_to(self, offset: int) -> None:
        """Removes every batch that holds `offset` or more, for a follower whose leader says so."""
        raise NotImplementedError

    def flush_due(self, now_ms: int) -> bool:
        """Whether `flush.messages`, `flush.ms` or a new segment ask for a flush."""
        raise NotImplementedError

    def start_flush(self) -> Flush | None:
        """Prepares an fsync of everything written so far; None where there is nothing to do.

        Call `Flush.run` in any thread, then `Flush.complete` in this log's thread. A flush that is already
        under way is
        returned again, so look at `Flush.end_offset` before you count on it.
        """
        raise NotImplementedError

    def flush(self) -> int:
        """Writes and fsyncs everything here and now; returns the new recovery point."""
        raise NotImplementedError

    def configure(self, config: LogConfig) -> None:
        """Takes new settings from now on."""
        raise NotImplementedError

    @property
    def size_bytes(self) -> int:
        """Bytes in all segments, without indexes."""
        raise NotImplementedError

    @property
    def offline(self) -> Exception | None:
        """Why the partition is offline, or None."""
        raise NotImplementedError
