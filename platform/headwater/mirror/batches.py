"""From batches as they are fetched to batches as they are produced: 61 bytes of each are written, no record is read.

A batch's checksum is compared before it gets another one: what a disk has damaged is not to be whole at the target.

What a produced batch says:

- Base offset and leader epoch are the target broker's to write.
- The producer id is the mirror's own. The producer ids of the source mean nothing at the target.
- The base sequence is the offset at which the batch is to stand at the target (modulo 2^31). A broker takes a batch of
  a known producer only if its sequence follows that of the batch before. So each append says "here, or not at all": a
  batch that comes again after a crash, from a process that was thought dead or from a second mirror is taken for the
  copy that it is, and none can be left out.
- The transactional bit is gone: only what was committed is mirrored, and there are no markers at the target.

Three kinds of batches are read record by record and written anew: those in which compaction left holes, as brokers
take no batch with holes from a producer; those stamped with the broker's time, as no producer may say so of a batch;
and one whose first records are mirrored already. Their records stay as they are, but for the deltas of offsets and
times.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

from crc32c import crc32c

from headwater.mirror.errors import HaltedError
from headwater_broker.log.batch import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP_MS,
    CHECKED_FROM,
    CHECKSUM,
    CHECKSUM_POSITION,
    CHECKSUM_VALUE,
    COMPRESSION_MASK,
    CONTROL,
    HEADER,
    LAST_OFFSET_DELTA,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_BYTE,
    MAX_SEQUENCE,
    MAX_TIMESTAMP_MS,
    PRODUCER_ID,
    RECORD_COUNT,
    SIZE_BEFORE_LENGTH_BYTES,
    TRANSACTIONAL,
    HeaderTuple,
    last_offset_of,
    size_of,
)
from headwater_broker.log.compression import compress
from headwater_broker.log.records import (
    UnreadableBatchError,
    read_varint,
    split_records,
    uncompressed_records,
    write_varint,
)

Buffer = bytes | memoryview

_MARKER = struct.Struct(">hh")
_ABORT = 0
_NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A batch to be produced.

    Attributes:
        header: The bytes before its records.
        records: The bytes of its records, which may be a part of what was fetched.
        here: The offset at which it is to stand at the target.
        count: How many records it has.
        origin_end: The offset of the source up to which all is mirrored with it.
        first_ms: The base timestamp of its records.
        last_ms: The greatest timestamp of its records.
    """

    header: bytes
    records: Buffer
    here: int
    count: int
    origin_end: int
    first_ms: int
    last_ms: int

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return len(self.header) + len(self.records)


@dataclass(slots=True)
class Planned:
    """What one fetch of a partition becomes.

    Attributes:
        batches: The batches to be produced, in order.
        runs: The runs that they belong to: the first offset of each here, and that at the origin.
    """

    batches: list[Outgoing] = field(default_factory=list)
    runs: list[tuple[int, int]] = field(default_factory=list)

    def place(self, there: int, here: int) -> None:
        """Takes note that a record of the source comes to stand at an offset."""
        ahead = self.runs[-1][1] - self.runs[-1][0] if self.runs else None
        if there - here != ahead:
            self.runs.append((here, there))


class Copying:
    """One partition as it is copied: where it stands on both sides.

    Attributes:
        there: The next offset to fetch of the source.
        here: The next offset to be written at the target.
    """

    __slots__ = ("_epoch", "_producer_id", "here", "there")

    def __init__(self, there: int, here: int, *, producer_id: int, producer_epoch: int) -> None:
        """Begins.

        Args:
            there: The next offset to fetch.
            here: The next offset to be written.
            producer_id: The mirror's.
            producer_epoch: The mirror's.
        """
        self.there, self.here = there, here
        self._producer_id, self._epoch = producer_id, producer_epoch

    def plan(self, data: bytes | memoryview, aborted: Iterable[tuple[int, int]] = ()) -> Planned:
        """Takes what was fetched from `there` on, and moves on to behind it.

        Args:
            data: Batches; the last one may be cut off.
            aborted: The producer id and the first offset of each transaction among them that was aborted.

        Raises:
            HaltedError: A batch cannot be copied.
        """
        planned = Planned()
        try:
            self._plan(data, aborted, planned)
        except HaltedError:
            if not planned.batches:
                raise  # else what came before is copied first, and the next fetch begins here
        return planned

    def _plan(self, data: bytes | memoryview, aborted: Iterable[tuple[int, int]], planned: Planned) -> None:
        view, at = memoryview(data), 0
        to_come = sorted(aborted, key=lambda each: each[1])
        are_aborted: set[int] = set()
        while len(view) - at >= HEADER.size:
            header: HeaderTuple = HEADER.unpack_from(view, at)
            if header[MAGIC_BYTE] != MAGIC:
                raise HaltedError(
                    f"offset {self.there} is in a message set of Kafka before 0.11 (magic {header[MAGIC_BYTE]}), which "
                    "is not copied: have it rewritten by a producer and a consumer, or let it expire"
                )
            size = size_of(header)
            if size > len(view) - at:
                break
            batch, at = view[at : at + size], at + size
            last = last_offset_of(header)
            if last < self.there:
                continue
            while to_come and to_come[0][1] <= last:
                are_aborted.add(to_come.pop(0)[0])
            attributes = header[ATTRIBUTES]
            if attributes & CONTROL:
                if _is_abort(batch, header):
                    are_aborted.discard(header[PRODUCER_ID])
            elif header[RECORD_COUNT] and not (
                attributes & TRANSACTIONAL and header[PRODUCER_ID] in are_aborted
            ):
                self._take(batch, header, planned)
            self.there = last + 1

    def _take(self, batch: memoryview, header: HeaderTuple, planned: Planned) -> None:
        if crc32c(batch[CHECKED_FROM:]) != header[CHECKSUM_VALUE]:
            raise HaltedError(f"the batch at offset {header[BASE_OFFSET]} of the source is damaged")
        is_whole = (
            header[BASE_OFFSET] >= self.there
            and header[RECORD_COUNT] == header[LAST_OFFSET_DELTA] + 1
            and not header[ATTRIBUTES] & LOG_APPEND_TIME
        )
        end, last_ms = last_offset_of(header) + 1, header[MAX_TIMESTAMP_MS]
        records: Buffer = batch[HEADER.size :]
        if is_whole:
            planned.place(header[BASE_OFFSET], self.here)
        else:
            header, records = self._rewritten(batch, header, planned)
        count, first_ms = header[RECORD_COUNT], header[BASE_TIMESTAMP_MS]
        if not count:
            return
        stamped = self._stamped(header, records)
        planned.batches.append(Outgoing(stamped, records, self.here, count, end, first_ms, last_ms))
        self.here += count

    def _stamped(self, header: HeaderTuple, records: Buffer) -> bytes:
        """A header of the mirror's own for records."""
        data = bytearray(HEADER.size)
        HEADER.pack_into(
            data,
            0,
            0,
            HEADER.size - SIZE_BEFORE_LENGTH_BYTES + len(records),
            _NO_EPOCH,
            MAGIC,
            0,
            header[ATTRIBUTES] & COMPRESSION_MASK,
            *header[LAST_OFFSET_DELTA:PRODUCER_ID],
            self._producer_id,
            self._epoch,
            self.here & MAX_SEQUENCE,
            header[RECORD_COUNT],
        )
        checksum = crc32c(records, crc32c(memoryview(data)[CHECKED_FROM:]))
        CHECKSUM.pack_into(data, CHECKSUM_POSITION, checksum)
        return bytes(data)

    def _rewritten(
        self, batch: memoryview, header: HeaderTuple, planned: Planned
    ) -> tuple[HeaderTuple, bytes]:
        """The records of a batch from `there` on, without holes, and what its header says of them."""
        codec = header[ATTRIBUTES] & COMPRESSION_MASK
        is_stamped = bool(header[ATTRIBUTES] & LOG_APPEND_TIME)
        first_ms = header[MAX_TIMESTAMP_MS] if is_stamped else header[BASE_TIMESTAMP_MS]
        records, count, known_runs = bytearray(), 0, len(planned.runs)
        try:
            old = uncompressed_records(batch, header)
            for record in split_records(old, header[RECORD_COUNT]):
                there = header[BASE_OFFSET] + record.offset_delta
                if there < self.there:
                    continue
                planned.place(there, self.here + count)
                _, rest = read_varint(old, record.rest)
                delta_ms = 0 if is_stamped else record.timestamp_delta_ms
                body = old[record.body : record.body + 1] + write_varint(delta_ms) + write_varint(count)
                records += write_varint(len(body) + record.end - rest) + body
                records += old[rest : record.end]
                count += 1
        except UnreadableBatchError as error:
            del planned.runs[known_runs:]
            raise HaltedError(f"{error} (at the source): it cannot be copied") from error
        new = [*header]
        new[LAST_OFFSET_DELTA], new[RECORD_COUNT], new[BASE_TIMESTAMP_MS] = count - 1, count, first_ms
        written: HeaderTuple = tuple(new)  # type: ignore[assignment]
        return written, compress(bytes(records), codec)


def _is_abort(batch: memoryview, header: HeaderTuple) -> bool:
    try:
        marker = next(split_records(uncompressed_records(batch, header), header[RECORD_COUNT]))
    except (UnreadableBatchError, StopIteration):
        return False
    return (
        marker.key is not None
        and len(marker.key) >= _MARKER.size
        and _MARKER.unpack_from(marker.key)[1] == _ABORT
    )
