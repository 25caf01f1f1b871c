"""Produce requests that look alike, recognised by their bytes.

A producer sends one request after another that differ in nothing but their correlation id and their records. Once one
of them was parsed, another of the same form needs no parsing: its bytes before the records are compared as a whole.
Only the ordinary form is looked for: one partition, no transaction, no tagged fields.
"""

from struct import Struct

from headwater_broker.wire.header import RequestHeader
from headwater_broker.wire.primitives import read_uvarint, write_uvarint
from headwater_broker.wire.produce import FLEXIBLE_FROM, ProduceRequest

_START = Struct(">iii")
"""Size, then API key (0 for Produce) and version in one number, then the correlation id."""

_INT = Struct(">i")
_SIZE_BYTES = 4
_NO_TAGS = b"\x00\x00\x00"
"""The empty tagged fields of the partition, of the topic and of the request."""

_FORMS = 1024
_LENGTHS = 8
_LONGEST_BYTES = 1024
"""Longer forms are not remembered: client ids may be long, and each may be another one."""


class ProduceForm:
    """A Produce request for one partition without its correlation id and its records.

    Attributes:
        api_version: The request's.
        topic: The request's.
        partition: The request's.
        acks: The request's.
    """

    __slots__ = ("_before", "_is_flexible", "_length_at", "acks", "api_version", "partition", "topic")

    def __init__(self, before: bytes, api_version: int, topic: bytes, partition: int, acks: int) -> None:
        self._before = before
        self._length_at = _START.size + len(before)
        self._is_flexible = api_version >= FLEXIBLE_FROM
        self.api_version = api_version
        self.topic = topic
        self.partition = partition
        self.acks = acks

    def is_at(self, buffer: bytearray, start: int) -> bool:
        """Whether what begins there, if it is a whole request at all, may be of this form."""
        return buffer.startswith(self._before, start + _START.size)

    def take(
        self, buffer: bytearray, view: memoryview, start: int, end: int, max_frame_bytes: int
    ) -> tuple[list[memoryview], list[int]]:
        """Records and correlation ids of whole requests of this form in a row.

        Args:
            buffer: The receive buffer.
            view: The same, to have the records' bytes from.
            start: Position of the first request's length prefix.
            end: Position after the last byte that was received.
            max_frame_bytes: Larger requests are none.
        """
        records: list[memoryview] = []
        correlation_ids: list[int] = []
        unpack, startswith = _START.unpack_from, buffer.startswith
        version, before, to_length = self.api_version, self._before, self._length_at
        start_bytes, least_bytes = _START.size, to_length + _INT.size
        while end - start > least_bytes:
            size, kind, correlation_id = unpack(buffer, start)
            frame_end = start + _SIZE_BYTES + size
            if (
                frame_end > end
                or kind != version
                or not least_bytes < size <= max_frame_bytes
                or not startswith(before, start + start_bytes)
            ):
                break
            position = start + to_length
            if self._is_flexible:
                length = buffer[position]
                position += 1
                if length > 0x7F:
                    length, position = read_uvarint(view, position - 1)
                records_end = position + length - 1
                if records_end + 3 != frame_end or not startswith(_NO_TAGS, records_end):
                    break
            else:
                position += 4
                records_end = frame_end
                if _INT.unpack_from(buffer, position - 4)[0] != records_end - position:
                    break
            records.append(view[position:records_end])
            correlation_ids.append(correlation_id)
            start = frame_end
        return records, correlation_ids


class ProduceForms:
    """The forms of one connection's requests.

    Attributes:
        wants_more: The last request had no known form: learn the next.
    """

    __slots__ = ("_by_length", "_last", "wants_more")

    def __init__(self) -> None:
        self.wants_more = True
        self._last: ProduceForm | None = None
        self._by_length: dict[int, dict[bytes, ProduceForm]] = {}

    def find(self, buffer: bytearray, start: int) -> ProduceForm | None:
        """The form of the request that begins there, if it is known."""
        last = self._last
        if last is None or last.is_at(buffer, start):
            return last
        start += _START.size
        for length, forms in self._by_length.items():
            form = forms.get(bytes(buffer[start : start + length]))
            if form is not None:
                self._last = form
                return form
        self.wants_more = True
        return None

    def learn(self, frame: memoryview, header: RequestHeader, request: ProduceRequest) -> None:
        """Remembers the form of a request for one partition, if it is an ordinary one.

        Args:
            frame: The request, without its length prefix.
            header: Its header.
            request: What it says.
        """
        self.wants_more = False
        ((topic, partition, start, end),) = request.partitions
        is_flexible = header.api_version >= FLEXIBLE_FROM
        length = write_uvarint(end - start + 1) if is_flexible else _INT.pack(end - start)
        length_at = start - len(length)
        is_ordinary = (
            request.transactional_id is None
            and frame[length_at:start] == length
            and frame[end:] == (_NO_TAGS if is_flexible else b"")
            and length_at <= _LONGEST_BYTES
        )
        if is_ordinary:
            before = bytes(frame[_START.size - _SIZE_BYTES : length_at])
            if len(self._by_length) >= _LENGTHS:
                self._by_length.clear()
            forms = self._by_length.setdefault(len(before), {})
            if len(forms) >= _FORMS:
                forms.clear()
            form = ProduceForm(before, header.api_version, topic, partition, request.acks)
            self._last = forms[before] = form


def skip_frames(buffer: bytearray, start: int, count: int) -> int:
    """The position behind so many whole frames."""
    for _ in range(count):
        start += _SIZE_BYTES + _INT.unpack_from(buffer, start)[0]
    return start
