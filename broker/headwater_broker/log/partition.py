"""One partition's log: what the server appends to and reads from.

Appending is `tail`'s, looking things up `view`'s. Here is the rest of a log's life: leaders, start and end, flushes,
retention, compaction, another directory, the end. `upkeep` changes the segments for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from headwater_broker.log import checkpoints
from headwater_broker.log.astray import is_astray, write_again
from headwater_broker.log.batch import BadBatchError
from headwater_broker.log.cleaner import CleanerConfig, Cleaning, Dirt, measure_dirt
from headwater_broker.log.cleaner.copy import CleanedSegment
from headwater_broker.log.cleaner.rewrite import Retention
from headwater_broker.log.config import LONG_MAX, LogConfig
from headwater_broker.log.errors import OffsetOutOfRangeError, PartitionOfflineError, StorageError
from headwater_broker.log.flush import Flush
from headwater_broker.log.fs import FileSystem
from headwater_broker.log.health import is_passing
from headwater_broker.log.move import Move
from headwater_broker.log.recovery import LoadedLog, LogLoader
from headwater_broker.log.retention import DeletedFiles, expired_segments
from headwater_broker.log.segment import Segment
from headwater_broker.log.upkeep import Upkeep
from headwater_broker.log.view import LogView

_LOGGER = logging.getLogger(__name__)

MayBegin = Callable[["PartitionLog", int, int], None]
"""Given the log, producer id and epoch of a batch that begins a transaction here; raises where it may not."""


class PartitionLog(LogView):
    """An append-only sequence of record batches with consecutive offsets, in segment files.

    Everything but `Flush.run` belongs to one thread. Get one from `LogManager`, which recovers it.

    Every method that reads or writes raises `PartitionOfflineError` (`CorruptLogError`, `StorageError`) once the
    partition has been taken offline, which is logged once, here; `offline` holds that error. Where only writing
    fails, those that append raise `StorageError`, and `refusal` holds it: for good where nobody knows what the disk
    holds now, otherwise (a full disk, one that is read-only) until `try_again` finds that it works.

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
        self._deleted = DeletedFiles(fs)
        self._cleaning: Cleaning | None = None
        self.move: Move | None = None
        super().__init__(topic, partition, topic_id, directory, config, loaded, fs=fs, now_ms=now_ms)

    def _adopt(self, loaded: LoadedLog, now_ms: int) -> None:
        super()._adopt(loaded, now_ms)
        self._upkeep = Upkeep(
            self._fs, self._health, self.directory, self._deleted, self._reader, self._flusher
        )

    # Moving start and end

    def become_leader(self, leader_epoch: int) -> None:
        """Starts a leader epoch at the log's end; one that is not newer changes nothing."""
        self._health.check()
        if self._pending:
            self._write_queued()
        if self._epochs.assign(leader_epoch, self.log_end_offset):
            self.leader_epoch = leader_epoch
        try:
            self._write_epochs(durable=self.log_end_offset > 0)
        except OSError as error:
            # The batches of an epoch that the checkpoint does not know would be cut off by the next start.
            self._health.refuse(f"cannot write {checkpoints.LEADER_EPOCHS} in {self.directory}", error)

    def try_again(self) -> None:
        if not self._health.is_passing:
            return
        try:
            self._write_epochs(durable=True)
            if self._is_cut_due:
                self._cut_tail()
        except OSError:
            return
        super().try_again()

    def delete_records(self, before_offset: int) -> int:
        """Moves the log's start to `before_offset` (-1: the high watermark) and returns the new start.

        Segments that lie wholly before it are removed by a later `LogManager.tick`; `LogManager.checkpoint` makes the
        new start survive a crash.

        Raises:
            OffsetOutOfRangeError: Past the high watermark, or below -1.
        """
        self._health.check()
        start_offset = self.high_watermark if before_offset == -1 else before_offset
        if not 0 <= start_offset <= self.high_watermark:
            raise OffsetOutOfRangeError(
                f"records of {self.topic}-{self.partition} can be deleted up to offset {self.high_watermark}, not up "
                f"to {before_offset}",
                self.log_start_offset,
                self.log_end_offset,
            )
        self._move_start(start_offset)
        return self.log_start_offset

    def truncate_to(self, offset: int, *, now_ms: int) -> None:
        """Removes every batch that holds `offset` or more, for a follower whose leader says so.

        Have `LogManager.checkpoint` write it down, as Kafka does: a start would miss what was flushed before the cut.
        """
        self._health.check()
        self._write_queued()
        if offset >= self.log_end_offset:
            return
        self.abandon_cleaning()
        self._adopt(self._upkeep.cut(offset, self.config, self.log_start_offset, now_ms), now_ms)
        self._try_to_write_epochs()

    def _move_start(self, offset: int) -> None:
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self._reader.missing.drop_before(offset)
            if self._epochs.truncate_start(offset):
                self._try_to_write_epochs()

    def _try_to_write_epochs(self) -> None:
        """If it fails, the next start removes the epochs, at both ends, that the checkpoint has too many."""
        try:
            self._write_epochs(durable=False)
        except OSError as error:
            _LOGGER.warning("cannot write %s in %s: %s", checkpoints.LEADER_EPOCHS, self.directory, error)

    def _write_epochs(self, *, durable: bool) -> None:
        """Writes the checkpoint, unless it is up to date: a start of many empty logs writes none of them."""
        entries = self._epochs.entries
        if entries == self._stored_epochs:
            return
        path = f"{self.directory}/{checkpoints.LEADER_EPOCHS}"
        self._fs.write_file(path, checkpoints.encode_epochs(entries), durable=durable)
        self._stored_epochs = entries

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
        if not self._health.is_passing:
            self._health.check_writable()
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
        if not self._health.is_passing:
            self._health.check_writable()
        self._write_queued()
        flush = self._new_flush()
        flush.run()
        return flush.complete()

    # Upkeep, called by the manager

    def roll_if_old(self, now_ms: int) -> None:
        """Begins a new segment where the newest was begun `segment.ms` ago by the broker's clock."""
        if (
            self.refusal is None
            and self._active.size_bytes
            and now_ms - self._active.created_ms > self._segment_ms
        ):
            self._roll(now_ms)

    def store_indexes(self) -> None:
        """Brings the newest segment's index files up to what is written."""
        if self.refusal is None and not self._pending:
            self._active.store_rest()

    def look_at_files(self, now_ms: int) -> bool:
        """Looks whether the newest segment's file still holds what was written; returns whether offsets are lost.

        Where it was cut, a new segment is begun, and the offsets that are gone are not given out again.
        """
        if self.offline is not None or self._pending:
            return False
        self._put_back()
        active = self._active
        try:
            written = self._fs.written_bytes(active.file.fd)
            if written >= self._written_position:
                return False
            size_bytes = self._fs.size_bytes(active.file.fd)
            if size_bytes >= self._written_position and active.is_whole_at(written, self._written_position):
                return False
            active.size_bytes = written
            end_offset = active.cut_off(is_cut=True)
        except (BadBatchError, OSError) as error:
            _LOGGER.error("%s: %s", active.log_path, error)
            return False
        self._written_position = active.size_bytes
        self._reader.lose_end(active, end_offset, self.log_end_offset)
        self._roll(now_ms, is_forced=True)
        return True

    def _put_back(self) -> None:
        """Writes open files again that have lost their names: their records would be lost with the process."""
        if self.refusal is not None and not self.is_waiting:
            return
        for segment, end_position in self.written_segments():
            file = segment.open_file
            if file is None or not is_astray(self._fs, file):
                continue
            try:
                saved_path = write_again(self._fs, self.directory, segment, file, end_position)
            except OSError as error:
                self._health.refuse(f"{segment.log_path} was taken away and cannot be written again", error)
                return
            _LOGGER.error(
                "%s was %s while the broker had it open: it is written again, with all of its records%s",
                segment.log_path,
                "replaced by another file" if saved_path else "removed",
                f"; what stood in its place is kept in {saved_path}" if saved_path else "",
            )

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
            modified_ms=self._modified_ms,
        )
        if not count:
            return
        if count == len(segments):
            if count > 1:
                # A full disk has room for a new segment once the others are gone.
                self._delete_oldest(count - 1, now_ms)
                count = 1
            if self.refusal is not None and not self._health.is_passing:
                return
            self._roll(now_ms, is_forced=True)
        self._delete_oldest(count, now_ms)

    def _delete_oldest(self, count: int, now_ms: int) -> None:
        start_offset = self._upkeep.delete_oldest(count, self.config, now_ms)
        _LOGGER.info(
            "%s-%d: deleted %d segments, the log now starts at offset %d",
            self.topic,
            self.partition,
            count,
            max(start_offset, self.log_start_offset),
        )
        self._move_start(start_offset)

    def remove_deleted(self, now_ms: int) -> None:
        """Removes files whose `file.delete.delay.ms` has passed; all of them where there is no room."""
        self._deleted.remove_due(LONG_MAX if self._health.is_passing else now_ms)

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
        if self.refusal is not None or is_busy or not self.config.compacts:
            return None
        return measure_dirt(
            self._reader.segments,
            self.config,
            now_ms=now_ms,
            cleaned_offset=cleaned_offset,
            log_start_offset=self.log_start_offset,
            end_offset=min(self.last_stable_offset, self.recovery_point),
            first_timestamp_ms=Segment.first_batch_timestamp_ms,
            modified_ms=self._modified_ms,
        )

    def _modified_ms(self, segment: Segment) -> int:
        try:
            return self._fs.modified_ms(segment.file.fd)
        except FileNotFoundError:
            return 0  # it is lost, so that the segment may go as well
        except OSError as error:
            raise StorageError(f"cannot read {segment.log_path}: {error.strerror}") from error

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
            raise self._failed(f"cannot compact {self.directory}", error) from error
        return self._cleaning

    def _failed(self, what: str, error: OSError) -> StorageError:
        """What to raise where the system refused something that changed nothing."""
        if not is_passing(error):
            self._health.fail(what, error)
        return StorageError(f"{what}: {error.strerror or error}")

    def replace_segments(self, cleaned: CleanedSegment, base_offsets: Sequence[int], now_ms: int) -> None:
        """Puts a cleaned segment in the place of those that it was made from.

        Raises:
            StorageError: The disk refused; the partition is now offline.
        """
        self._health.check_writable()
        self._upkeep.exchange(cleaned, base_offsets, self.config, now_ms)

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
            raise self._failed(f"cannot move {self.directory}", error) from error

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
        if self.offline is not None or (self.refusal is not None and not self.is_waiting):
            return
        if self._pending:
            self._write_pending()
        if self.recovery_point < self._written_offset or not self._flusher.is_idle(self._written_offset):
            self.flush()
        if self.log_end_offset == 0:
            return
        try:
            self._active.seal()
            # Not synced: where it is lost, the batches since the one before it are read again.
            self._write_snapshot()
        except OSError as error:
            raise self._health.refuse(f"cannot close {self.directory}", error) from error

    def stop_writing(self, error: PartitionOfflineError) -> None:
        """The disk under it is gone: nothing may be appended any more; what can be read may be."""
        if self._health.offline is None:
            self.abandon_cleaning()
            if self._pending:
                self._write_pending()
            self._health.stop(error)

    def retire(self) -> None:
        """The partition was deleted: nothing may be appended or read any more."""
        self.abandon_cleaning()
        self._pending = []
        self._health.close(PartitionOfflineError(f"{self._health.name} was deleted"))
        self._reader.release()
