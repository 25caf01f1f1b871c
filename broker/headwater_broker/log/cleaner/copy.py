"""Reading segments to be compacted, and writing what is left of them. Touches files only: any thread may do it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from headwater_broker.log import paths
from headwater_broker.log.batch import (
    ATTRIBUTES,
    BASE_OFFSET,
    CONTROL,
    NO_TIMESTAMP,
    RECORD_COUNT,
    TRANSACTIONAL,
    BadBatchError,
    HeaderTuple,
    last_offset_of,
    walk,
)
from headwater_broker.log.cleaner.keys import KeyOffsets
from headwater_broker.log.cleaner.rewrite import Retention, compact_batch, control_type
from headwater_broker.log.cleaner.transactions import TransactionPass
from headwater_broker.log.files import OpenFile
from headwater_broker.log.fs import FileSystem
from headwater_broker.log.index import OffsetIndex, TimeIndex
from headwater_broker.log.records import Record, UnreadableBatchError, split_records, uncompressed_records
from headwater_broker.log.txnindex import encode_transaction_index

_WRITTEN_AT_ONCE_BYTES = 256 << 10
_RECORDS_A_BREATH = 128

Breathe = Callable[[int], None]
"""Called with the bytes handled since the last call; may wait, and raises where the work is to be given up."""


@dataclass(frozen=True, slots=True)
class Source:
    """A sealed segment as the copying thread needs it.

    Attributes:
        base_offset: Of the segment.
        end_offset: Where the next one begins.
        size_bytes: Of its log.
        path: Of its log.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    path: str


def map_keys(
    fs: FileSystem,
    sources: Iterable[Source],
    end_offset: int,
    keys: KeyOffsets,
    transactions: TransactionPass,
    breathe: Breathe,
) -> None:
    """Puts the keys of all records from `keys.end_offset` up to `end_offset` into the map, until it is full.

    A batch whose records cannot be told apart supersedes nothing: no reader sees them. Older versions took such ones.

    Raises:
        BadBatchError: A segment is damaged.
    """
    start_offset = keys.end_offset
    for source in sources:
        for batch, header in _batches(fs, source, breathe):
            base_offset = header[BASE_OFFSET]
            last_offset = last_offset_of(header)
            attributes = header[ATTRIBUTES]
            if attributes & CONTROL:
                transactions.is_empty(header, control_type(_readable(batch, header, breathe)))
            elif (
                not (attributes & TRANSACTIONAL and transactions.is_aborted(header))
                and last_offset >= start_offset
            ):
                if keys.is_full:
                    return
                for record in _readable(batch, header, breathe):
                    if record.key is not None and base_offset + record.offset_delta >= start_offset:
                        keys.put(record.key, base_offset + record.offset_delta)
            keys.end_offset = max(keys.end_offset, last_offset + 1)
    keys.end_offset = end_offset


class CleanedSegment:
    """A segment under `.cleaned` names, as it is written.

    Attributes:
        base_offset: Of the first segment that it replaces.
        size_bytes: Of its log.
        max_timestamp_ms: The greatest timestamp in it.
        max_timestamp_offset: Last offset of the first batch that has it.
    """

    def __init__(self, fs: FileSystem, directory: str, base_offset: int, index_interval_bytes: int) -> None:
        """Makes an empty one."""
        self.base_offset = base_offset
        self._fs = fs
        self._directory = directory
        self._index_interval_bytes = index_interval_bytes
        self._offsets = OffsetIndex(base_offset)
        self._times = TimeIndex(base_offset)
        self._bytes_since_entry = 0
        self._pending: list[bytes] = []
        self._written_bytes = 0
        self._file = OpenFile(fs, self._path(paths.LOG_SUFFIX), os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self.size_bytes = 0
        self.max_timestamp_ms = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset

    def _path(self, suffix: str) -> str:
        return paths.segment_path(self._directory, self.base_offset, suffix + paths.CLEANED_SUFFIX)

    def copy(
        self, sources: Sequence[Source], retention: Retention, transactions: TransactionPass, breathe: Breathe
    ) -> None:
        """Adds what is left of the sources, and closes the segment: everything is on the disk.

        Raises:
            BadBatchError: A segment is damaged.
            OSError: The disk refused.
        """
        for source in sources:
            for batch, header in _batches(self._fs, source, breathe):
                compacted = compact_batch(
                    batch, header, retention, transactions, lambda records: _paced(records, breathe)
                )
                if compacted is not None:
                    self._add(compacted, header)
        self._write()
        self._times.append(self.max_timestamp_ms, self.max_timestamp_offset)
        aborted = encode_transaction_index(transactions.take_retained())
        self._fs.sync(self._file.fd)
        self._write_beside(paths.INDEX_SUFFIX, self._offsets.data)
        self._write_beside(paths.TIME_INDEX_SUFFIX, self._times.data)
        if aborted:
            self._write_beside(paths.TRANSACTION_INDEX_SUFFIX, aborted)
        # Retention of records without timestamps goes by the age of the file.
        newest = OpenFile(self._fs, sources[-1].path, os.O_RDONLY)
        self._fs.set_modified_ms(self._file.fd, self._fs.modified_ms(newest.fd))

    def _write_beside(self, suffix: str, data: bytes | bytearray) -> None:
        self._fs.write_file(self._path(suffix), data, durable=True)

    def _add(self, batch: bytes, header: HeaderTuple) -> None:
        # The same is noted here as `Segment.note` notes of a batch that a client sent.
        last_offset = last_offset_of(header)
        max_timestamp_ms = max_timestamp_of(batch)
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms, self.max_timestamp_offset = max_timestamp_ms, last_offset
        if self._bytes_since_entry > self._index_interval_bytes:
            self._offsets.append(last_offset, self.size_bytes)
            self._times.append(self.max_timestamp_ms, self.max_timestamp_offset)
            self._bytes_since_entry = 0
        self._bytes_since_entry += len(batch)
        self.size_bytes += len(batch)
        self._pending.append(batch)
        if self.size_bytes - self._written_bytes >= _WRITTEN_AT_ONCE_BYTES:
            self._write()

    def _write(self) -> None:
        rest = memoryview(b"".join(self._pending))
        self._pending = []
        while rest:
            count = self._fs.pwritev(self._file.fd, [rest], self._written_bytes)
            rest = rest[count:]
            self._written_bytes += count

    def suffixes(self) -> list[str]:
        """The files that there are; the log is the last."""
        suffixes = (
            paths.INDEX_SUFFIX,
            paths.TIME_INDEX_SUFFIX,
            paths.TRANSACTION_INDEX_SUFFIX,
            paths.LOG_SUFFIX,
        )
        return [suffix for suffix in suffixes if self._fs.exists(self._path(suffix))]

    def remove(self) -> None:
        """Takes back what was written."""
        for suffix in self.suffixes():
            self._fs.remove(self._path(suffix))


def max_timestamp_of(batch: bytes) -> int:
    """The greatest timestamp in a batch's header."""
    return int.from_bytes(batch[35:43], signed=True)


def _readable(batch: bytes, header: HeaderTuple, breathe: Breathe) -> list[Record]:
    """The records of a batch; none where they cannot be told apart."""
    try:
        return list(_paced(split_records(uncompressed_records(batch, header), header[RECORD_COUNT]), breathe))
    except UnreadableBatchError:
        return []


def _paced(records: Iterator[Record], breathe: Breathe) -> Iterator[Record]:
    """The records; a batch may hold so many that the loop's thread would wait for long."""
    for number, record in enumerate(records):
        if not number % _RECORDS_A_BREATH:
            breathe(0)
        yield record


def _batches(fs: FileSystem, source: Source, breathe: Breathe) -> Iterator[tuple[bytes, HeaderTuple]]:
    file = OpenFile(fs, source.path, os.O_RDONLY)
    for position, size, header in walk(fs, file.fd, 0, source.size_bytes, check=True):
        # No checksum covers the base offset.
        if not source.base_offset <= header[BASE_OFFSET] <= last_offset_of(header) < source.end_offset:
            raise BadBatchError(
                position,
                f"offset {header[BASE_OFFSET]} is not between {source.base_offset} and {source.end_offset}",
            )
        yield fs.pread(file.fd, size, position), header
        breathe(size)
