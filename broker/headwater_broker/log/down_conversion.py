"""Record batches made into messages of formats 0 and 1, for consumers older than Kafka 0.11; see `message_sets`."""

from __future__ import annotations

from struct import Struct
from zlib import crc32

from headwater_broker.log.batch import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP_MS,
    BATCH_LENGTH,
    COMPRESSION_MASK,
    CONTROL,
    HEADER,
    LOG_APPEND_TIME,
    MAX_TIMESTAMP_MS,
    RECORD_COUNT,
    SIZE_BEFORE_LENGTH_BYTES,
    HeaderTuple,
)
from headwater_broker.log.compression import NONE, ZSTD, compress, with_lz4_checksum
from headwater_broker.log.errors import CorruptBatchError, UnsupportedCodecError
from headwater_broker.log.record_stream import Slices, stream_records, value_of
from headwater_broker.log.records import UnreadableBatchError

_START = Struct(">qi")
_LONG = Struct(">q")
_INT = Struct(">i")

_RECORDS_AT_ONCE = 128
"""So many are looked at before the work may be put aside."""

_PACKED_BYTES = 256 << 10
"""How many bytes of messages are compressed into one, beside the last of them: more takes long in one go."""

_OPENED_BYTES = 4 << 20
"""How many bytes of messages one partition's compressed batches give: compressed anew, these may be next to nothing."""

_SKIPPED_FROM = 10_000
"""In a compressed batch of more records, those before the first one requested are left out."""


def messages_of_batches(
    batches: bytes, magic: int, first_offset: int, room_bytes: int | None = None
) -> Slices[bytes]:
    """The messages that a Fetch request below version 4 gets for whole record batches, as Kafka makes them.

    Headers and transaction markers are left out, as are records before `first_offset` that are not compressed.
    Compressed records are compressed again, in several messages where they are large.

    Args:
        batches: Whole batches, as they are stored.
        magic: Message format, 0 or 1.
        first_offset: What the consumer asked for.
        room_bytes: No further message is begun once there are so many bytes; None: all are made.

    Raises:
        UnsupportedCodecError: Compressed by zstd, which these formats do not have.
        CorruptBatchError: The records cannot be told apart, and no message was made of those before.
    """
    conversion = _Conversion(magic, first_offset, room_bytes)
    at = 0
    while at < len(batches) and not conversion.is_full:
        header = HEADER.unpack_from(batches, at)
        end = at + header[BATCH_LENGTH] + SIZE_BEFORE_LENGTH_BYTES
        if not header[ATTRIBUTES] & CONTROL:
            try:
                yield from conversion.take(memoryview(batches)[at:end], header)
            except UnreadableBatchError as error:
                if not conversion.messages:
                    raise CorruptBatchError(str(error)) from error
                break  # the next read begins with it, and gets the error
            except UnsupportedCodecError:
                if not conversion.messages:
                    raise
                break
        at = end
    return bytes(conversion.messages)


class _Conversion:
    """The messages that one fetch gets of one partition."""

    def __init__(self, magic: int, first_offset: int, room_bytes: int | None) -> None:
        self.messages = bytearray()
        self._magic = magic
        self._first_offset = first_offset
        self._room_bytes = room_bytes
        self._opened_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether no further message is to be begun."""
        if self._room_bytes is None or not self.messages:
            return False
        return len(self.messages) >= self._room_bytes or self._opened_bytes >= _OPENED_BYTES

    def take(self, batch: memoryview, header: HeaderTuple) -> Slices[None]:
        """Takes a batch in, as far as there is room."""
        codec = header[ATTRIBUTES] & COMPRESSION_MASK
        append_time = header[ATTRIBUTES] & LOG_APPEND_TIME
        magic = self._magic
        if codec >= ZSTD:
            raise UnsupportedCodecError(f"message format {magic} has no codec {codec}")
        base_offset, base_ms = header[BASE_OFFSET], header[BASE_TIMESTAMP_MS]
        attributes = append_time if magic else 0
        is_packed = codec != NONE
        from_offset = self._first_offset if not is_packed or header[RECORD_COUNT] > _SKIPPED_FROM else 0
        inside = bytearray()
        # Kafka counts within a compressed message from its first record (MemoryRecordsBuilder).
        counts_from = last_offset = greatest_ms = -1
        for number, record in enumerate(stream_records(batch, header)):
            if number % _RECORDS_AT_ONCE == 0:
                yield
            offset = base_offset + record[3]
            if offset < from_offset:
                continue
            timestamp_ms = header[MAX_TIMESTAMP_MS] if append_time else base_ms + record[4]
            key, value = value_of(record)
            if not is_packed:
                self.messages += _message(offset, magic, attributes, timestamp_ms, key, value)
                if self.is_full:
                    return
                continue
            if not inside:
                counts_from, greatest_ms = (offset if magic else 0), -1
                if number == 0:
                    counts_from = base_offset if magic else 0
            inside += _message(offset - counts_from, magic, attributes, timestamp_ms, key, value)
            last_offset, greatest_ms = offset, max(greatest_ms, timestamp_ms)
            if len(inside) >= _PACKED_BYTES:
                self._pack(inside, codec, last_offset, attributes, greatest_ms)
                inside = bytearray()
                if self.is_full:
                    return
        if inside:
            self._pack(inside, codec, last_offset, attributes, greatest_ms)

    def _pack(
        self, inside: bytearray, codec: int, last_offset: int, attributes: int, greatest_ms: int
    ) -> None:
        if last_offset < self._first_offset and len(inside) >= _PACKED_BYTES:
            return
        self._opened_bytes += len(inside)
        packed = compress(bytes(inside), codec)
        if self._magic == 0:
            packed = with_lz4_checksum(packed, broken=True)
        self.messages += _message(last_offset, self._magic, attributes | codec, greatest_ms, None, packed)


def _message(
    offset: int, magic: int, attributes: int, timestamp_ms: int, key: bytes | None, value: bytes | None
) -> bytes:
    parts = [bytes((magic, attributes))]
    if magic:
        parts.append(_LONG.pack(timestamp_ms))
    for data in (key, value):
        parts += (_INT.pack(-1),) if data is None else (_INT.pack(len(data)), data)
    checked = b"".join(parts)
    return _START.pack(offset, 4 + len(checked)) + crc32(checked).to_bytes(4) + checked
