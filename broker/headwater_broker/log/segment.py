"""One segment: a log file with its indexes, and what of it was checked."""

from __future__ import annotations

import contextlib
import errno
import os
import struct
from collections.abc import Iterator
from itertools import islice

from crc32c import crc32c

from headwater_broker.log import paths
from headwater_broker.log.batch import (
    BASE_OFFSET,
    HEADER,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    MAX_TIMESTAMP_MS,
    NO_TIMESTAMP,
    SEEK_CHUNK_BYTES,
    BadBatchError,
    HeaderTuple,
    walk,
)
from headwater_broker.log.claims import greatest_ms, is_wrong
from headwater_broker.log.config import INT_MAX, LogConfig
from headwater_broker.log.damage import is_torn
from headwater_broker.log.epochs import NO_EPOCH, LeaderEpochs
from headwater_broker.log.files import OpenFile
from headwater_broker.log.fs import FileSystem
from headwater_broker.log.index import DamagedIndexError, OffsetIndex, TimeIndex
from headwater_broker.log.ranges import RangeSet
from headwater_broker.log.txnindex import (
    AbortedTransaction,
    decode_transaction_index,
    encode_transaction_index,
)
from headwater_broker.log.unreadable import LookedAt

_BASE_OFFSET = struct.Struct(">q")
_LOOKED_AT_BEHIND = 100
_STORED_EVERY_BYTES = 64 << 10
"""The newest segment's index files are written after so many bytes: written with every entry, a request of 10 kB would
take a fifth longer. The rest is written within a second."""


class Segment:
    """A run of batches from `base_offset` on.

    Attributes:
        base_offset: The first offset that it may hold, and its files' name.
        size_bytes: Of the log file, counting what is queued to be written to it.
        max_timestamp_ms: The greatest timestamp in it; -1 if there is none.
        max_timestamp_offset: Last offset of the first batch that has it.
        first_timestamp_ms: The greatest timestamp of the first batch, from which its age is counted; None
            while empty.
        created_ms: When it was opened, by the broker's clock.
        last_possible_offset: Offsets beyond do not fit into its indexes.
        entry_due_after: The first batch that begins behind this position gets an index entry.
        is_full: An index has no room: roll before the next batch.
        trusted_from: From this position on, this process wrote or checked every batch.
        looked_at: Where somebody looked at every record.
        used: Whether something was read since `release_idle` was last asked.
        indexes_are_behind: Whether the index files lack so many entries that it is time to write them.
    """

    def __init__(
        self, fs: FileSystem, directory: str, base_offset: int, config: LogConfig, now_ms: int
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._file: OpenFile | None = None
        self._released_identity: tuple[int, int, int] | None = None
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._aborted: list[AbortedTransaction] | None = None
        self._index_files: list[OpenFile] = []
        self._stored_bytes: list[int] | None = None
        self._store_due_after = 0
        self._is_stored = True
        self._is_doubtful = False
        self._keeps_indexes = False
        self._index_interval_bytes = config.index_interval_bytes
        self._max_index_bytes = config.segment_index_bytes
        self._checked = RangeSet()
        self.base_offset = base_offset
        self.size_bytes = 0
        self.max_timestamp_ms = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.first_timestamp_ms: int | None = None
        self.created_ms = now_ms
        self.last_possible_offset = base_offset + INT_MAX
        self.is_full = False
        self.entry_due_after = config.index_interval_bytes
        self.trusted_from = 0
        self.looked_at = LookedAt(0)
        self.used = True
        self.indexes_are_behind = False

    @classmethod
    def create(
        cls, fs: FileSystem, directory: str, base_offset: int, config: LogConfig, now_ms: int
    ) -> Segment:
        """Makes an empty one on the disk."""
        segment = cls(fs, directory, base_offset, config, now_ms)
        segment._file = OpenFile(fs, segment.log_path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        segment._offset_index = OffsetIndex(base_offset)
        segment._time_index = TimeIndex(base_offset)
        segment._aborted = []
        segment.store_entries()
        segment._index_files = []  # most are not written to for long
        return segment

    @classmethod
    def open(
        cls, fs: FileSystem, directory: str, base_offset: int, config: LogConfig, now_ms: int
    ) -> Segment:
        """Opens one that is on the disk; nothing in it is trusted yet."""
        segment = cls(fs, directory, base_offset, config, now_ms)
        segment.size_bytes = segment.trusted_from = fs.size_bytes(segment.file.fd)
        segment.looked_at = LookedAt(segment.size_bytes)
        return segment

    @property
    def log_path(self) -> str:
        """The log file."""
        return paths.segment_path(self._directory, self.base_offset, paths.LOG_SUFFIX)

    @property
    def index_paths(self) -> tuple[str, str]:
        """The offset index and the time index."""
        return (
            paths.segment_path(self._directory, self.base_offset, paths.INDEX_SUFFIX),
            paths.segment_path(self._directory, self.base_offset, paths.TIME_INDEX_SUFFIX),
        )

    @property
    def transaction_index_path(self) -> str:
        """The index of aborted transactions, a file only where there are some."""
        return paths.segment_path(self._directory, self.base_offset, paths.TRANSACTION_INDEX_SUFFIX)

    @property
    def file(self) -> OpenFile:
        """The open log file."""
        if self._file is None:
            try:
                self._file = OpenFile(self._fs, self.log_path, os.O_RDWR)
            except OSError as error:
                if error.errno not in (errno.EROFS, errno.EACCES):
                    raise
                self._file = OpenFile(self._fs, self.log_path, os.O_RDONLY)
            if self._released_identity not in (None, self._fs.identity(self._file.fd)):
                # Another file stands here, or somebody wrote into it.
                self.trusted_from = self.size_bytes
                self._checked = RangeSet()
        return self._file

    @property
    def open_file(self) -> OpenFile | None:
        """The log file, if it is open just now."""
        return self._file

    def take_file(self, file: OpenFile) -> None:
        """Goes on with a copy of the log file that has its name now."""
        self._file = file
        self._forget_stored()

    @property
    def offset_index(self) -> OffsetIndex:
        """The offset index, read when first wanted."""
        if self._offset_index is None:
            self._load_indexes()
        assert self._offset_index is not None
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        """The time index, read when first wanted."""
        if self._time_index is None:
            self._load_indexes()
        assert self._time_index is not None
        return self._time_index

    @property
    def aborted(self) -> list[AbortedTransaction]:
        """Aborted transactions whose markers are in this segment, in order; read when first wanted.

        Raises:
            DamagedIndexError: The file is not what it should be.
        """
        if self._aborted is None:
            data = self._read(self.transaction_index_path)
            checksum = self._read(self._transaction_checksum_path)
            if checksum and checksum != _checksum_of(data):
                raise DamagedIndexError(f"{self.transaction_index_path} does not match its checksum")
            self._aborted = decode_transaction_index(data)
        return self._aborted

    @property
    def has_aborted(self) -> bool:
        """Whether there are any, without reading them."""
        if self._aborted is None:
            if any(map(self._fs.exists, (self.transaction_index_path, self._transaction_checksum_path))):
                return True
            self._aborted = []  # so that a read of committed records need not look for the files again
        return bool(self._aborted)

    @property
    def _transaction_checksum_path(self) -> str:
        """The path of the transaction index's checksum, which also shows that the index is lost."""
        return paths.segment_path(self._directory, self.base_offset, paths.TRANSACTION_CHECKSUM_SUFFIX)

    def _read(self, path: str) -> bytes:
        try:
            return self._fs.read_file(path)
        except FileNotFoundError:
            return b""

    def forget_aborted(self) -> None:
        """Empties the index of aborted transactions, to fill it again."""
        self._aborted = []

    def note(self, position: int, size_bytes: int, last_offset: int, max_timestamp_ms: int) -> None:
        """Takes the batch at `position`, the segment's end, into size and indexes."""
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = max_timestamp_ms
            self.max_timestamp_offset = last_offset
        if position > self.entry_due_after:
            self._add_entry(last_offset, position)
        elif position == 0:
            self.first_timestamp_ms = max_timestamp_ms
        self.size_bytes = position + size_bytes

    def _add_entry(self, last_offset: int, position: int) -> None:
        if last_offset > self.last_possible_offset:
            return  # appending rolls before that; a start splits such a segment
        offsets, times = self.offset_index, self.time_index
        offsets.append(last_offset, position)
        times.append(self.max_timestamp_ms, self.max_timestamp_offset)
        self.entry_due_after = position + self._index_interval_bytes
        self.is_full = self._has_full_index()
        self.indexes_are_behind = position >= self._store_due_after

    def _has_full_index(self) -> bool:
        # The time index keeps one entry free for the last timestamp, which `seal` adds.
        return (
            len(self.offset_index.data) + OffsetIndex.ENTRY_BYTES > self._max_index_bytes
            or len(self.time_index.data) + 2 * TimeIndex.ENTRY_BYTES > self._max_index_bytes
        )

    def load_newest(self) -> int:
        """Finds the segment's end from its indexes, as a clean stop left them.

        Returns:
            The offset after the last one.

        Raises:
            BadBatchError: The log does not end with a whole batch, or the indexes do not lead there.
        """
        if not self.size_bytes:
            self.reset()
            return self.base_offset
        try:
            index, times = self.offset_index, self.time_index
        except DamagedIndexError as error:
            raise BadBatchError(0, str(error)) from error
        if times.data:
            self.max_timestamp_ms, self.max_timestamp_offset = times.last
        next_offset = self.base_offset
        for _, _, header in walk(
            self._fs, self.file.fd, 0, self.size_bytes, check=False, chunk_bytes=HEADER.size
        ):
            self.first_timestamp_ms = header[MAX_TIMESTAMP_MS]
            break
        for position, size, header in self._walk(index.last_position):
            next_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
            stamp_ms = greatest_ms(self._fs, self.file.fd, position, size, header)
            if stamp_ms > self.max_timestamp_ms:
                self.max_timestamp_ms, self.max_timestamp_offset = stamp_ms, next_offset - 1
        if next_offset <= self.base_offset:
            raise BadBatchError(index.last_position, f"offsets do not follow {self.base_offset}")
        self.entry_due_after = index.last_position + self._index_interval_bytes
        return next_offset

    def load_sealed(self) -> None:
        """Takes the greatest timestamp from the time index.

        Raises:
            DamagedIndexError: An index is missing or does not fit the log.
        """
        last = b""
        for path, entry_bytes in zip(
            self.index_paths, (OffsetIndex.ENTRY_BYTES, TimeIndex.ENTRY_BYTES), strict=True
        ):
            try:
                file = OpenFile(self._fs, path, os.O_RDONLY)
            except FileNotFoundError:
                raise DamagedIndexError(f"{path} is missing") from None
            size = self._fs.size_bytes(file.fd)
            if size % entry_bytes:
                raise DamagedIndexError(f"{path} has {size} bytes")
            last = self._fs.pread(file.fd, entry_bytes, max(size - entry_bytes, 0))
        if last:
            self.max_timestamp_ms, self.max_timestamp_offset = TimeIndex(self.base_offset, last).last

    def cut_off(self, *, is_cut: bool = False) -> int:
        """Finds the end of a file that may have lost its tail, and takes that as the segment's; changes no file.

        Args:
            is_cut: The tail is lost: there may be zeros in its place.

        Returns:
            The offset after the last one that is whole; the base offset where there is none.

        Raises:
            BadBatchError: It is damaged in another way.
            OSError: It cannot be read.
        """
        size_bytes = min(self._fs.size_bytes(self.file.fd), self.size_bytes)
        try:
            index = self.offset_index
        except DamagedIndexError:
            return self._note_whole(size_bytes)
        while index.data and index.last_position >= size_bytes:
            del index.data[-OffsetIndex.ENTRY_BYTES :]
        while True:
            start = index.last_position
            end_offset, end_position = self.base_offset, start
            try:
                for position, size, header in walk(
                    self._fs, self.file.fd, start, size_bytes, check=False, chunk_bytes=SEEK_CHUNK_BYTES
                ):
                    end_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
                    end_position = position + size
            except BadBatchError as error:
                if not is_cut and not is_torn(self._fs, self.file.fd, error, size_bytes):
                    raise
            if end_position > start or not index.data:
                break
            # The batch that the last entry points to is not whole.
            del index.data[-OffsetIndex.ENTRY_BYTES :]
        if end_position < self.size_bytes:
            self._end_early(end_position)
            self.time_index.truncate_to(end_offset)
        return end_offset

    def _note_whole(self, size_bytes: int) -> int:
        """Makes the indexes again as far as the file goes; returns the offset after what is whole."""
        end_offset, end_position = self.base_offset, 0
        previous_bytes = self.size_bytes
        self.reset()
        try:
            for position, size, header in walk(self._fs, self.file.fd, 0, size_bytes, check=True):
                end_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
                end_position = position + size
                stamp_ms = greatest_ms(self._fs, self.file.fd, position, size, header)
                self.note(position, size, end_offset - 1, stamp_ms)
        except BadBatchError as error:
            if not is_torn(self._fs, self.file.fd, error, size_bytes):
                raise
        finally:
            self.size_bytes = previous_bytes
        self._end_early(end_position)
        return end_offset

    def _end_early(self, end_position: int) -> None:
        self.size_bytes = end_position
        self.trusted_from = min(self.trusted_from, end_position)
        self._checked.cut(end_position)
        self.looked_at.cut(end_position)
        # The index files fit the log file as it was, and as it may be restored.
        self._keeps_indexes = True

    def is_whole_at(self, hole: int, end_position: int) -> bool:
        """Whether the batch around a hole is what was written: some file systems keep zeros as holes."""
        start = self.offset_index.last_position_within(-1, hole) or 0
        try:
            for position, _, _ in walk(self._fs, self.file.fd, start, end_position, check=True):
                if position > hole:
                    break
        except BadBatchError:
            return False
        return True

    @property
    def is_short(self) -> bool:
        """Whether the file ends before the segment does."""
        return self._fs.size_bytes(self.file.fd) < self.size_bytes

    def reset(self) -> None:
        """Forgets indexes and timestamps, to note every batch again."""
        self._offset_index = OffsetIndex(self.base_offset)
        self._time_index = TimeIndex(self.base_offset)
        self.entry_due_after = self._index_interval_bytes
        self.max_timestamp_ms, self.max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        self.first_timestamp_ms = None
        self.is_full = False
        self._forget_stored()

    def rebuild(self) -> None:
        """Makes the indexes again from the log, checking every batch.

        Raises:
            BadBatchError: The log itself is damaged.
        """
        size_bytes = self.size_bytes
        self.reset()
        try:
            for position, size, header in walk(self._fs, self.file.fd, 0, size_bytes, check=True):
                self._check_place(position, header)
                last_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
                if last_offset > self.last_possible_offset:
                    raise BadBatchError(
                        position, f"offset {last_offset} is beyond {self.last_possible_offset}"
                    )
                stamp_ms = greatest_ms(self._fs, self.file.fd, position, size, header)
                self.note(position, size, last_offset, stamp_ms)
        finally:
            self.size_bytes = size_bytes

    def _check_place(self, position: int, header: HeaderTuple) -> None:
        """Makes sure that a batch belongs to this segment.

        Raises:
            BadBatchError: It does not.
        """
        if header[BASE_OFFSET] < self.base_offset:
            raise BadBatchError(position, f"offset {header[BASE_OFFSET]} is before {self.base_offset}")

    def check_last_time(self) -> None:
        """Checks the segment's greatest timestamp, by which retention and look-ups by time go.

        Raises:
            DamagedIndexError: No batch has it.
            BadBatchError: The log is damaged there.
        """
        if self._keeps_indexes:
            return
        position = 0
        if self.max_timestamp_ms >= 0:
            position = self.check_time(self.max_timestamp_ms, self.max_timestamp_offset)
        # If the index has lost entries, they pointed to later batches behind, most likely to the next ones.
        for start in {position, self.offset_index.last_position}:
            for batch in islice(self._walk(start), _LOOKED_AT_BEHIND):
                if greatest_ms(self._fs, self.file.fd, *batch) > self.max_timestamp_ms:
                    raise DamagedIndexError(f"{self.index_paths[1]} ends before a later batch")

    def check_time(self, timestamp_ms: int, offset: int) -> int:
        """Checks a batch against its entry in the time index: no other check would find such damage.

        Returns:
            Its position.

        Raises:
            DamagedIndexError: It is not.
            BadBatchError: The log is damaged there.
        """
        position = self.position_of(offset)
        for at, size, header in walk(
            self._fs, self.file.fd, position, self.size_bytes, check=False, chunk_bytes=HEADER.size
        ):
            reaches = greatest_ms(self._fs, self.file.fd, at, size, header) == timestamp_ms
            if reaches and header[BASE_OFFSET] <= offset:
                return at
            break
        raise DamagedIndexError(f"no batch with offset {offset} has the greatest timestamp {timestamp_ms}")

    def has_wrong_claims(self) -> bool:
        """Whether a batch claims a greatest timestamp that cannot be; see `claims`."""
        try:
            return any(is_wrong(header) for _, _, header in self._walk(0))
        except BadBatchError:
            return False  # a read checks it

    def position_of(self, offset: int) -> int:
        """Position of the batch that holds `offset`, or of the next one where compaction removed it.

        Raises:
            BadBatchError: The way there is damaged.
        """
        if offset <= self.base_offset or not self.size_bytes:
            return 0
        indexed_position, last_offset = self.offset_index.position_for(offset)
        for position, _, header in self._walk(indexed_position):
            if last_offset is not None and header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] != last_offset:
                raise BadBatchError(position, f"the index says offset {last_offset}")
            last_offset = None
            self._check_place(position, header)
            if header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] >= offset:
                return position
        return self.size_bytes

    def indexed_position(self, offset: int, end_position: int) -> int:
        """Position of a batch at or before the one that holds `offset`, and not behind `end_position`.

        Raises:
            BadBatchError: The index leads astray.
        """
        position, last_offset = self.offset_index.position_for(offset)
        if position >= end_position or last_offset is None:
            return min(position, end_position)
        for _, _, header in walk(
            self._fs, self.file.fd, position, end_position, check=False, chunk_bytes=HEADER.size
        ):
            if header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] != last_offset:
                raise BadBatchError(position, f"the index says offset {last_offset}")
            break
        return position

    def whole_batches(self, position: int, max_bytes: int, end_position: int, *, at_least_one: bool) -> int:
        """How many bytes from `position` are whole batches and at most `max_bytes`.

        Raises:
            BadBatchError: There is no batch.
        """
        limit = position + max_bytes
        if limit >= end_position:
            return end_position - position
        indexed = self.offset_index.last_position_within(position, limit)
        if indexed is not None:
            return indexed - position
        count = 0
        for at, size, _ in walk(
            self._fs, self.file.fd, position, end_position, check=False, chunk_bytes=SEEK_CHUNK_BYTES
        ):
            if at + size > limit:
                return size if at_least_one and count == 0 else count
            count = at + size - position
        return count

    def base_offset_at(self, position: int) -> int:
        """Base offset of the batch at `position`."""
        offset: int = _BASE_OFFSET.unpack(self._fs.pread(self.file.fd, _BASE_OFFSET.size, position))[0]
        return offset

    def distrust(self) -> None:
        """Has everything checked each time that it is read: the disk may have dropped what this process wrote."""
        self._is_doubtful = True
        self.trusted_from = INT_MAX

    def is_trusted(self, position: int, end_position: int) -> bool:
        """Whether this process wrote or checked all of it."""
        if self._is_doubtful:
            return False
        return position >= self.trusted_from or self._checked.covers(
            position, min(end_position, self.trusted_from)
        )

    def check(
        self, position: int, end_position: int, visible_end: int, next_offset: int, epochs: LeaderEpochs
    ) -> None:
        """Checks what may have changed on the disk while nobody looked: checksums, offsets and epochs.

        Args:
            position: Where to begin.
            end_position: Where to end.
            visible_end: Where what may be read of the segment ends.
            next_offset: The offset that follows there.
            epochs: What the leader epochs must be.

        Raises:
            BadBatchError: Something is damaged.
        """
        following = self.base_offset_at(end_position) if end_position < visible_end else next_offset
        last_offset = -1
        for at, _, header in walk(self._fs, self.file.fd, position, end_position, check=True):
            self._check_place(at, header)
            last_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
            if epochs.at(header[BASE_OFFSET]) not in (header[LEADER_EPOCH], NO_EPOCH):
                raise BadBatchError(
                    at, f"leader epoch {header[LEADER_EPOCH]} was not that of offset {header[BASE_OFFSET]}"
                )
        if last_offset >= following:
            raise BadBatchError(
                position, f"last offset {last_offset} is not before {following}, which follows"
            )
        self._checked.add(position, end_position)

    def store_entries(self) -> None:
        """Brings the index files of the newest segment up to what is known; where the disk refuses, later.

        They are for Kafka's tools, which open a directory that is in use: what a start needs is written by `seal`, or
        made again from the log.
        """
        self.indexes_are_behind = False
        self._store_due_after = self.size_bytes + _STORED_EVERY_BYTES
        try:
            if not self._index_files:
                flags = os.O_RDWR | os.O_CREAT | (os.O_TRUNC if self._stored_bytes is None else 0)
                self._index_files = [OpenFile(self._fs, path, flags) for path in self.index_paths]
                self._stored_bytes = self._stored_bytes or [0, 0]
            self._store(0, self.offset_index.data, OffsetIndex.ENTRY_BYTES)
            self._store(1, self.time_index.data, TimeIndex.ENTRY_BYTES)
        except OSError:
            self._forget_stored()

    def store_rest(self) -> None:
        """Brings the index files up to what is known, or lets go of them where nothing came since the last time."""
        entries_bytes = 0 if self._offset_index is None else len(self._offset_index.data)
        if entries_bytes and (self._stored_bytes is None or entries_bytes > self._stored_bytes[0]):
            self.store_entries()
        else:
            self._index_files = []

    def _store(self, number: int, data: bytearray, entry_bytes: int) -> None:
        assert self._stored_bytes is not None
        stored_bytes = self._stored_bytes[number]
        if len(data) > stored_bytes:
            count = self._fs.pwritev(self._index_files[number].fd, [data[stored_bytes:]], stored_bytes)
            self._stored_bytes[number] += count - count % entry_bytes

    def _forget_stored(self) -> None:
        """Has the index files written anew with the next entry."""
        self._index_files = []
        self._stored_bytes = None
        self._store_due_after = 0

    def seal(self) -> None:
        """Writes the indexes whole, with the last timestamp, as the segment stays now."""
        self._is_stored = False
        self._forget_stored()
        self.time_index.append(self.max_timestamp_ms, self.max_timestamp_offset)
        offset_path, time_path = self.index_paths
        self._fs.write_file(offset_path, self.offset_index.data, durable=False)
        self._fs.write_file(time_path, self.time_index.data, durable=False)
        if self._aborted:
            data = encode_transaction_index(self._aborted)
            self._fs.write_file(self.transaction_index_path, data, durable=False)
            self._fs.write_file(self._transaction_checksum_path, _checksum_of(data), durable=False)
        elif self._aborted is not None:
            self._fs.remove(self._transaction_checksum_path)
            self._fs.remove(self.transaction_index_path)
        self._is_stored = True

    def try_to_seal(self) -> OSError | None:
        """Seals it; where the disk refuses, keeps the indexes in memory and none on the disk, and returns the error.

        Indexes that lack their last entries would be believed by the next start; missing ones are made again.
        """
        try:
            self.seal()
        except OSError as error:
            for path in self.index_paths:
                with contextlib.suppress(OSError):
                    self._fs.remove(path)
            return error
        return None

    def release_idle(self) -> None:
        """Lets go of descriptor and indexes of a sealed segment that nobody read for a while."""
        if not self.used:
            self.release()
        self.used = False

    def release(self) -> None:
        """Lets go of descriptor and indexes; they are opened again when needed."""
        if self._file is not None:
            self._released_identity = self._fs.identity(self._file.fd)
        self._file = None
        self._index_files = []
        if not self._keeps_indexes and (self._is_stored or self.try_to_seal() is None):
            self._offset_index = self._time_index = None
            self._aborted = None if self._aborted else self._aborted

    def close(self) -> None:
        """Lets go of everything, without a look at the disk."""
        self._file = None
        self._index_files = []
        self._offset_index = self._time_index = None

    def take_back(self, position: int, offset: int) -> None:
        """Forgets the batches from `position` on, the first of which had `offset`: they were not written.

        Raises:
            BadBatchError: What was written before is not there.
            OSError: It cannot be read.
        """
        self.size_bytes = position
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self._forget_stored()
        if self._aborted:
            self._aborted = [each for each in self._aborted if each.last_offset < offset]
        self.max_timestamp_ms, self.max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        self.load_newest()
        self.is_full = self._has_full_index()

    def truncate_to(self, offset: int) -> int:
        """Cuts the log before the batch that holds `offset`; returns the offset after what is left.

        Raises:
            BadBatchError: The way there is damaged.
        """
        position = self.position_of(offset)
        self._fs.truncate(self.file.fd, position)
        self.size_bytes = position
        self.trusted_from = min(self.trusted_from, position)
        self._checked.cut(position)
        self.looked_at.cut(position)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self._forget_stored()
        self._aborted = [each for each in self.aborted if each.last_offset < offset]
        self.max_timestamp_ms, self.max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        self.is_full = False
        return self.load_newest()

    def index_bytes(self) -> tuple[int, int]:
        """How large the index files are."""
        if self._offset_index is not None and self._time_index is not None:
            return len(self._offset_index.data), len(self._time_index.data)
        offset_path, time_path = self.index_paths
        files = (OpenFile(self._fs, offset_path, os.O_RDONLY), OpenFile(self._fs, time_path, os.O_RDONLY))
        return self._fs.size_bytes(files[0].fd), self._fs.size_bytes(files[1].fd)

    def first_batch_timestamp_ms(self) -> int:
        """The greatest timestamp of the first batch; -1 where there is none."""
        if self.first_timestamp_ms is None and self.size_bytes >= HEADER.size:
            header = HEADER.unpack(self._fs.pread(self.file.fd, HEADER.size, 0))
            self.first_timestamp_ms = header[MAX_TIMESTAMP_MS]
        return NO_TIMESTAMP if self.first_timestamp_ms is None else self.first_timestamp_ms

    @property
    def paths(self) -> list[str]:
        """Every file that it may have."""
        suffixes = (*paths.SEGMENT_SUFFIXES, paths.SNAPSHOT_SUFFIX)
        return [paths.segment_path(self._directory, self.base_offset, suffix) for suffix in suffixes]

    def delete(self, *, at_once: bool, keep_snapshot: bool = False) -> list[str]:
        """Removes the files, or renames them with `.deleted`; open descriptors go on working.

        Returns:
            The files that are still to be removed.
        """
        renamed = []
        for suffix in (*paths.SEGMENT_SUFFIXES, *(() if keep_snapshot else (paths.SNAPSHOT_SUFFIX,))):
            path = paths.segment_path(self._directory, self.base_offset, suffix)
            if not self._fs.exists(path):
                continue
            if at_once:
                self._fs.remove(path)
            else:
                self._fs.rename(path, path + paths.DELETED_SUFFIX)
                renamed.append(path + paths.DELETED_SUFFIX)
        self._file = None
        self._index_files = []
        return renamed

    def _walk(self, position: int) -> Iterator[tuple[int, int, HeaderTuple]]:
        return walk(
            self._fs, self.file.fd, position, self.size_bytes, check=False, chunk_bytes=SEEK_CHUNK_BYTES
        )

    def _load_indexes(self) -> None:
        """Reads both index files.

        Raises:
            DamagedIndexError: They do not fit the log.
        """
        offset_path, time_path = self.index_paths
        try:
            offset_index = OffsetIndex.load(
                self.base_offset, self._fs.read_file(offset_path), self.size_bytes
            )
            self._time_index = TimeIndex.load(self.base_offset, self._fs.read_file(time_path))
        except FileNotFoundError as error:
            raise DamagedIndexError(f"{error.filename} is missing") from None
        self._offset_index = offset_index


def _checksum_of(data: bytes) -> bytes:
    return b"%08x\n" % crc32c(data)
