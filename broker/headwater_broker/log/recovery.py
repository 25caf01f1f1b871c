"""Opening a partition's directory: after a clean stop, or after any other."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import pairwise

from headwater_broker.log import checkpoints, paths
from headwater_broker.log.batch import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    CONTROL,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    MAX_TIMESTAMP_MS,
    PRODUCER_ID,
    BadBatchError,
    BatchReader,
    HeaderTuple,
    last_offset_of,
)
from headwater_broker.log.claims import greatest_ms
from headwater_broker.log.cleaner.exchange import finish_exchanges
from headwater_broker.log.config import LogConfig
from headwater_broker.log.damage import is_torn, save_broken
from headwater_broker.log.epochs import NO_EPOCH, LeaderEpochs
from headwater_broker.log.errors import CorruptLogError, PartitionOfflineError, StorageError
from headwater_broker.log.fs import FileSystem
from headwater_broker.log.health import is_passing
from headwater_broker.log.index import DamagedIndexError
from headwater_broker.log.missing import MissingRange
from headwater_broker.log.producers import ProducerStates
from headwater_broker.log.replay import Replay
from headwater_broker.log.scan import OF_TRANSACTIONS, note_plain
from headwater_broker.log.segment import Segment
from headwater_broker.log.split import split_overflowed

_LOGGER = logging.getLogger(__name__)
_MOST_OFFSETS_OF_A_BATCH = 1 << 24


@dataclass(slots=True)
class LoadedLog:
    """A log as it was loaded.

    Attributes:
        segments: In order; never empty.
        log_start_offset: See `PartitionLog`.
        log_end_offset: See `PartitionLog`.
        recovery_point: See `PartitionLog`.
        producers: As of the log's end.
        epochs: As of the log's end.
        stored_epochs: What their checkpoint says; None where there is none that can be read.
        unflushed: Segments, except for the newest, that reach past the recovery point.
        missing: Offsets that are lost.
        failure: Why the partition must stay offline; the rest is then of no use.
    """

    segments: list[Segment]
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    producers: ProducerStates
    epochs: LeaderEpochs
    stored_epochs: list[tuple[int, int]] | None
    unflushed: list[Segment]
    missing: list[MissingRange]
    failure: PartitionOfflineError | None = None


class LogLoader:
    """Opens one directory; use an instance once."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        config: LogConfig,
        *,
        clean: bool,
        recovery_point: int,
        log_start_offset: int,
        was_compacted: bool = False,
        is_start_known: bool = False,
        lost_before: MissingRange | None = None,
        doubts_timestamps: bool = False,
        now_ms: int,
    ) -> None:
        """Takes what is known beforehand.

        Args:
            fs: Files.
            directory: The partition's.
            config: The topic's settings.
            clean: Whether the broker that wrote it stopped cleanly.
            recovery_point: From the checkpoint; 0 if there is none.
            log_start_offset: From the checkpoint; 0 if there is none.
            is_start_known: Whether the checkpoint says where the log starts.
            lost_before: What was lost before the log's start when the last broker ran.
            was_compacted: Whether the cleaner's checkpoint names it: then offsets may be missing.
            doubts_timestamps: Whether a version wrote it that believed what clients claim; see `claims`.
            now_ms: The wall clock.
        """
        self._fs = fs
        self._directory = directory
        self._config = config
        self._clean = clean
        self._recovery_point = recovery_point
        self._log_start_offset = log_start_offset
        self._gaps_allowed = was_compacted or config.compacts
        self._is_start_known = is_start_known
        self._lost_before = lost_before
        self._doubts_timestamps = doubts_timestamps
        self._now_ms = now_ms
        self._producers = ProducerStates()
        self._epochs = LeaderEpochs()
        self._epochs_are_known = False
        self._stored_epochs: list[tuple[int, int]] | None = None
        self._segments: list[Segment] = []
        self._snapshots: list[int] = []
        self._missing: list[MissingRange] = []
        self._without_log: list[int] = []

    def load(self) -> LoadedLog:
        """Finds segments, end, producers and epochs; mends what may be mended."""
        try:
            return self._load()
        except OSError as error:
            failure: PartitionOfflineError = StorageError(
                f"cannot read {self._directory}: {error.strerror or error}"
            )
        except CorruptLogError as error:
            failure = error
        if not self._segments:
            self._segments.append(
                Segment(self._fs, self._directory, self._log_start_offset, self._config, self._now_ms)
            )
        return self._loaded(self._recovery_point, failure)

    def _load(self) -> LoadedLog:
        names = self._remove_leftovers(self._fs.names(self._directory))
        self._snapshots = paths.numbered(names, paths.SNAPSHOT_SUFFIX)
        for base_offset in paths.numbered(names, paths.LOG_SUFFIX):
            self._segments.append(
                Segment.open(self._fs, self._directory, base_offset, self._config, self._now_ms)
            )
        if not self._segments:
            self._segments.append(self._new_segment(self._log_start_offset))
        self._load_epochs()
        self._split_sealed()
        self._find_lost_starts()
        end_offset = self._open_segments()
        if end_offset < self._recovery_point:
            end_offset = self._go_on_at_the_recovery_point(end_offset)
        if end_offset < self._log_start_offset:
            end_offset = self._start_over()
        # The checkpoint follows with the next leader epoch: nothing is appended before that.
        self._epochs.truncate_end(end_offset)
        self._epochs.truncate_start(self._start_offset())
        self._remove_stray_snapshots(end_offset)
        for segment in self._segments[:-1]:
            segment.release()
        self._producers.settle(end_offset)
        return self._loaded(end_offset, None)

    def _loaded(self, end_offset: int, failure: PartitionOfflineError | None) -> LoadedLog:
        return LoadedLog(
            segments=self._segments,
            log_start_offset=self._start_offset(),
            log_end_offset=end_offset,
            recovery_point=min(self._recovery_point, end_offset),
            producers=self._producers,
            epochs=self._epochs,
            stored_epochs=self._stored_epochs,
            unflushed=[
                segment
                for segment, following in pairwise(self._segments)
                if following.base_offset > self._recovery_point
            ],
            missing=[
                each
                for each in self._missing
                if each.end_offset > max(each.start_offset, self._log_start_offset)
            ],
            failure=failure,
        )

    def _find_lost_starts(self) -> None:
        """Notes offsets that are missing at the log's start, because the first segments' files are gone.

        A clean stop left segments from the log's start on. After another stop, an index without its log shows that
        the log is gone, since a deletion removes the log last. What was lost before may have been put back since.
        """
        first, lost = self._segments[0].base_offset, self._lost_before
        if lost is not None:
            self._log_start_offset = lost.start_offset
            self._missing.append(lost._replace(end_offset=min(first, lost.end_offset)))
            return
        start = self._log_start_offset
        if not (self._clean and self._is_start_known):
            start = max(start, min([*self._without_log, first]))
        if first > start:
            path = paths.segment_path(self._directory, start, paths.LOG_SUFFIX)
            self._missing.append(MissingRange(start, first, path))

    def _find_lost_ends(self, first_to_scan: int) -> None:
        """Checks that each segment reaches the next one, as it does unless compaction removed something."""
        if self._gaps_allowed:
            return
        for segment, following in pairwise(self._segments[: first_to_scan + 1]):
            try:
                end_offset = segment.cut_off()
            except BadBatchError:
                continue  # a read checks it
            if end_offset < following.base_offset:
                path = segment.log_path
                if segment.size_bytes == self._fs.size_bytes(segment.file.fd):
                    # It ends with a whole batch, as it did before the next file was lost.
                    path = paths.segment_path(self._directory, end_offset, paths.LOG_SUFFIX)
                self._missing.append(MissingRange(end_offset, following.base_offset, path))

    def _go_on_at_the_recovery_point(self, end_offset: int) -> int:
        """Begins a segment behind offsets that were safe on the disk and are lost: they are not given out again."""
        recovery_point, newest = self._recovery_point, self._segments[-1]
        self._missing.append(
            MissingRange(max(end_offset, self._log_start_offset), recovery_point, newest.log_path)
        )
        self._seal(newest)
        self._segments.append(self._new_segment(recovery_point))
        if newest.base_offset == end_offset:
            # Nothing is in it, and offsets of later files would be before its own.
            newest.delete(at_once=True)
            self._segments.remove(newest)
        if recovery_point in self._snapshots:
            self._producers = self._replay.producers(recovery_point)
        else:
            # Their next sequences are not known: each may go on with any, as an unknown producer may.
            self._producers.expire(self._now_ms + 1)
        return recovery_point

    def _start_offset(self) -> int:
        return max(self._log_start_offset, self._segments[0].base_offset)

    def _new_segment(self, base_offset: int) -> Segment:
        return Segment.create(self._fs, self._directory, base_offset, self._config, self._now_ms)

    def _remove_leftovers(self, names: list[str]) -> list[str]:
        remaining = []
        for name in finish_exchanges(self._fs, self._directory, names):
            if name.endswith(paths.TEMPORARY_SUFFIXES):
                self._fs.remove(f"{self._directory}/{name}")
            else:
                remaining.append(name)
        logs = set(paths.numbered(remaining, paths.LOG_SUFFIX))
        for suffix in paths.SEGMENT_SUFFIXES[:-1]:
            for base_offset in paths.numbered(remaining, suffix):
                if base_offset not in logs:
                    self._without_log.append(base_offset)
                    self._fs.remove(paths.segment_path(self._directory, base_offset, suffix))
        return remaining

    def _load_epochs(self) -> None:
        try:
            data = self._fs.read_file(f"{self._directory}/{checkpoints.LEADER_EPOCHS}")
            entries = checkpoints.decode_epochs(data)
        except FileNotFoundError:
            return
        except checkpoints.DamagedCheckpointError as error:
            _LOGGER.warning("%s: rebuilding %s: %s", self._directory, checkpoints.LEADER_EPOCHS, error)
            return
        self._epochs = LeaderEpochs(entries)
        self._epochs_are_known = bool(entries)
        self._stored_epochs = entries

    def _split_sealed(self) -> None:
        """Splits segments that reach further than their indexes can say."""
        newest = self._segments[-1]
        segments: list[Segment] = []
        for segment, following in pairwise(self._segments):
            segments += self._split(segment, following) if _may_overflow(segment, following) else [segment]
        # Whoever holds the list sees the parts in it too.
        self._segments[:] = [*segments, newest]

    def _split(self, segment: Segment, following: Segment | None) -> list[Segment]:
        return split_overflowed(self._fs, self._directory, segment, following, self._config, self._now_ms)

    def _open_segments(self) -> int:
        """Opens every segment, scans those that must be, and returns the log's end."""
        newest = self._segments[-1]
        self._replay = Replay(
            self._fs,
            self._directory,
            self._segments,
            self._snapshots,
            self._now_ms,
            self._rebuild_indexes,
            self._corrupt,
        )
        first_to_scan = self._first_unflushed()
        end_offset = None
        if self._clean:
            first_to_scan = len(self._segments) - 1
            try:
                end_offset = newest.load_newest()
                if end_offset != self._recovery_point:
                    reason = f"it ends with offset {end_offset}, the checkpoint says {self._recovery_point}"
                    raise BadBatchError(newest.size_bytes, reason)
                self._mend_times(newest)
                first_to_scan += 1
            except BadBatchError as error:
                end_offset = None
                _LOGGER.info("%s: scanning after a clean stop: %s", newest.log_path, error)
        for segment in self._segments[: min(first_to_scan, len(self._segments) - 1)]:
            try:
                segment.load_sealed()
            except DamagedIndexError as error:
                _LOGGER.info("%s: rebuilding indexes: %s", self._directory, error)
                self._rebuild_indexes(segment)
            else:
                self._mend_times(segment)
        self._find_lost_ends(first_to_scan)
        for segment in self._segments[:first_to_scan]:
            self._check_last_time(segment)
            self._replay.mend_aborted(segment)
        if end_offset is not None:
            self._producers = self._replay.producers(end_offset)
            return end_offset
        self._producers = self._replay.producers(self._segments[first_to_scan].base_offset)
        return self._scan_segments(first_to_scan)

    def _check_last_time(self, segment: Segment) -> None:
        try:
            segment.check_last_time()
        except DamagedIndexError as error:
            _LOGGER.info("%s: rebuilding indexes: %s", segment.log_path, error)
            try:
                segment.rebuild()
            except BadBatchError:
                segment.release()
                return
            self._seal(segment)
        except BadBatchError:
            return  # a read checks it

    def _mend_times(self, segment: Segment) -> None:
        """Corrects a time index that was made of the timestamps that clients claimed."""
        is_odd = segment.size_bytes > 0 and segment.max_timestamp_ms <= 0
        if (is_odd or self._doubts_timestamps) and segment.has_wrong_claims():
            _LOGGER.info(
                "%s: a client's greatest timestamps were wrong: its indexes are made again", segment.log_path
            )
            self._rebuild_indexes(segment)

    def _first_unflushed(self) -> int:
        """Index of the segment that holds the recovery point."""
        first = 0
        for index, segment in enumerate(self._segments):
            if segment.base_offset <= self._recovery_point:
                first = index
        return first

    def _rebuild_indexes(self, segment: Segment) -> None:
        try:
            segment.rebuild()
        except BadBatchError as error:
            raise self._corrupt(segment, error) from error
        self._seal(segment)

    def _seal(self, segment: Segment) -> None:
        """Writes a segment's indexes; where there is no room, they stay in memory."""
        error = segment.try_to_seal()
        if error is not None:
            if not is_passing(error):
                raise error
            _LOGGER.warning("the indexes of %s stay in memory: %s", segment.log_path, error)

    def _corrupt(self, segment: Segment, error: BadBatchError) -> CorruptLogError:
        return CorruptLogError(
            f"{segment.log_path} is damaged {error}. This is before offset {self._recovery_point}, up to which all "
            "was safe on the disk, so the partition stays offline. Restore the file from a copy; or, to cut the log "
            f"there, remove {checkpoints.CLEAN_SHUTDOWN} and {checkpoints.RECOVERY_POINTS} from the log directory "
            "and start again"
        )

    def _scan_segments(self, first: int) -> int:
        """Checks every batch from segment `first` on, cutting the log where the first bad one begins."""
        expected = self._segments[first].base_offset
        for index in range(first, len(self._segments)):
            segment = self._segments[index]
            is_gap = segment.base_offset > expected and not self._gaps_allowed
            if segment.base_offset < expected or (is_gap and expected >= self._recovery_point):
                self._cut(index, expected, BadBatchError(0, f"offset {expected} was to come first"))
                break
            if is_gap:
                # Records that were safe on the disk are gone, which is no reason to give up those after them.
                path = paths.segment_path(self._directory, expected, paths.LOG_SUFFIX)
                self._missing.append(MissingRange(expected, segment.base_offset, path))
            newest = index == len(self._segments) - 1
            following = None if newest else self._segments[index + 1].base_offset
            expected, error = self._scan(segment, following)
            is_loss = error is not None and error.torn and not newest and expected < self._recovery_point
            if error is not None and (not is_loss or self._gaps_allowed):
                self._cut(index, expected, error)
                break
            if not newest:
                self._seal(segment)
        self._split_newest(expected)
        return expected

    def _split_newest(self, end_offset: int) -> None:
        """Splits the newest segment, where it was scanned and reaches further than its indexes can say."""
        newest = self._segments[-1]
        if end_offset - 1 <= newest.last_possible_offset:
            return
        parts = self._split(newest, None)
        for part in parts[:-1]:
            self._rebuild_indexes(part)
        parts[-1].rebuild()
        parts[-1].trusted_from = 0
        self._segments[-1:] = parts

    def _scan(self, segment: Segment, following: int | None) -> tuple[int, BadBatchError | None]:
        """Notes every whole batch of a segment; returns the next offset, and what ended the scan early.

        No checksum covers the base offset: a batch after a gap is believed once the next batch, or the next segment
        (which begins at `following`), comes after it.
        """
        expected = segment.base_offset
        epoch, epoch_until = NO_EPOCH, segment.base_offset
        size_bytes = segment.size_bytes
        note, record, now_ms = segment.note, self._producers.record, self._now_ms
        pending: tuple[int, int, HeaderTuple] | None = None
        segment.reset()
        segment.forget_aborted()
        segment.size_bytes = 0
        segment.trusted_from = 0
        try:
            reader = BatchReader(self._fs, segment.file.fd, 0, size_bytes, check=True)
            while (batch := reader.next()) is not None:
                position, size, header = batch
                base_offset = header[BASE_OFFSET]
                if base_offset != expected or pending is not None:
                    if pending is not None:
                        expected, pending = self._note_after_gap(segment, *pending), None
                    if base_offset < expected or (base_offset > expected and not self._gaps_allowed):
                        raise _gap(position, header, expected)
                    if base_offset > expected:
                        pending = position, size, header
                        continue
                if header[LEADER_EPOCH] != epoch or base_offset >= epoch_until:
                    epoch = self._check_epoch(position, header)
                    epoch_until = self._epochs.next_start(base_offset)
                last_offset = base_offset + header[LAST_OFFSET_DELTA]
                note(
                    position,
                    size,
                    last_offset,
                    greatest_ms(self._fs, segment.file.fd, position, size, header),
                )
                if header[PRODUCER_ID] >= 0:
                    if header[BASE_SEQUENCE] >= 0:
                        record(header, base_offset, header[MAX_TIMESTAMP_MS], now_ms)
                    elif header[ATTRIBUTES] & CONTROL:
                        self._replay.end_transaction(self._producers, segment, position, size, header)
                expected = last_offset + 1
                if not header[ATTRIBUTES] & OF_TRANSACTIONS:
                    expected = note_plain(
                        reader, segment, self._producers, expected, epoch, epoch_until, now_ms
                    )
        except BadBatchError as error:
            if pending is None or error.position == pending[0]:
                return expected, error
            if error.disordered:
                return expected, _gap(pending[0], pending[2], expected)
            return self._end_after_gap(segment, pending, expected, error)
        if pending is not None:
            if following is None or last_offset_of(pending[2]) >= following:
                return expected, _gap(pending[0], pending[2], expected)
            return self._end_after_gap(segment, pending, expected, None)
        return expected, None

    def _end_after_gap(
        self,
        segment: Segment,
        pending: tuple[int, int, HeaderTuple],
        expected: int,
        error: BadBatchError | None,
    ) -> tuple[int, BadBatchError | None]:
        try:
            return self._note_after_gap(segment, *pending), error
        except BadBatchError as worse:
            return expected, worse

    def _note_after_gap(self, segment: Segment, position: int, size: int, header: HeaderTuple) -> int:
        """Takes a whole batch into the segment and the producers; returns the offset after it."""
        self._check_epoch(position, header)
        last_offset = last_offset_of(header)
        segment.note(
            position, size, last_offset, greatest_ms(self._fs, segment.file.fd, position, size, header)
        )
        if header[PRODUCER_ID] >= 0:
            if header[BASE_SEQUENCE] >= 0:
                self._producers.record(header, header[BASE_OFFSET], header[MAX_TIMESTAMP_MS], self._now_ms)
            elif header[ATTRIBUTES] & CONTROL:
                self._replay.end_transaction(self._producers, segment, position, size, header)
        return last_offset + 1

    def _check_epoch(self, position: int, header: HeaderTuple) -> int:
        """The checksum does not cover the leader epoch: it must be what the checkpoint says, or grow."""
        epoch, recorded = header[LEADER_EPOCH], self._epochs.at(header[BASE_OFFSET])
        if self._epochs_are_known:
            good = recorded in (epoch, NO_EPOCH)
        else:
            good = epoch >= max(recorded, 0) or epoch == NO_EPOCH
            self._epochs.assign(epoch, header[BASE_OFFSET])
        if not good:
            raise BadBatchError(position, f"leader epoch {epoch} where {recorded} was to come")
        return epoch

    def _cut(self, index: int, end_offset: int, error: BadBatchError) -> None:
        """Ends the log at `end_offset`, before what is bad in segment `index`, and keeps what is cut off."""
        segment = self._segments[index]
        newest = index == len(self._segments) - 1
        end_position = error.position
        file_bytes = self._fs.size_bytes(segment.file.fd)
        torn = newest and is_torn(self._fs, segment.file.fd, error, file_bytes)
        if end_offset < self._recovery_point and not torn:
            raise self._corrupt(segment, error)
        if torn:
            level = logging.WARNING if end_offset < self._recovery_point else logging.INFO
            _LOGGER.log(
                level,
                "%s: the last write was cut off %s: the log ends before offset %d",
                segment.log_path,
                error,
                end_offset,
            )
        else:
            saved_paths = [
                save_broken(
                    self._fs,
                    self._directory,
                    max(end_offset, segment.base_offset),
                    segment.file.fd,
                    end_position,
                    file_bytes,
                )
            ]
            for later in self._segments[index + 1 :]:
                saved_paths.append(
                    save_broken(
                        self._fs, self._directory, later.base_offset, later.file.fd, 0, later.size_bytes
                    )
                )
                later.delete(at_once=True)
            _LOGGER.warning(
                "%s is damaged %s: the log is cut before offset %d, and what was cut is kept in %s",
                segment.log_path,
                error,
                end_offset,
                ", ".join(saved_paths),
            )
        del self._segments[index + 1 :]
        if segment.base_offset > end_offset:
            segment.delete(at_once=True)
            del self._segments[index]
        else:
            self._fs.truncate(segment.file.fd, end_position)
            self._fs.sync(segment.file.fd)

    def _start_over(self) -> int:
        """All that is left was deleted by DeleteRecords before: begin an empty log where it ended."""
        _LOGGER.warning(
            "%s ends before offset %d, where the log starts: beginning an empty log there",
            self._directory,
            self._log_start_offset,
        )
        for segment in self._segments:
            segment.delete(at_once=True)
        self._segments = [self._new_segment(self._log_start_offset)]
        self._producers = ProducerStates()
        return self._log_start_offset

    def _remove_stray_snapshots(self, end_offset: int) -> None:
        """Keeps the snapshots where segments begin, and the last one."""
        needed = {segment.base_offset for segment in self._segments}
        needed.update(offset for offset in self._snapshots[-1:] if offset <= end_offset)
        for offset in self._snapshots:
            if offset not in needed:
                self._fs.remove(paths.segment_path(self._directory, offset, paths.SNAPSHOT_SUFFIX))


def _may_overflow(segment: Segment, following: Segment) -> bool:
    """Whether its batches are to be checked: a crash within a split leaves a next part that begins a batch earlier."""
    return following.base_offset > segment.last_possible_offset - _MOST_OFFSETS_OF_A_BATCH


def _gap(position: int, header: HeaderTuple, expected: int) -> BadBatchError:
    return BadBatchError(position, f"offset {header[BASE_OFFSET]} where {expected} was to come")
