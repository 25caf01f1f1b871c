"""Looks through the records of a batch: whether they are what its header says, and what of them matters.

A record is its length, then attributes (one byte), timestamp delta, offset delta, key, value, and the number of its
headers, each a name and a content. Numbers are zigzag integers of variable length, of at most 32 bits (64 for the
timestamp); key, value and content have a length before them, -1 for none.

`_records.c` does the same some hundred times faster; what is here stands for it where it could not be compiled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from headwater_broker.log.records import read_varint

MAX_WRONG = 100
"""So many records are named of those that a topic does not take; the others are counted."""

GOOD, LENGTH, ENDS, DELTA, LONG_NUMBER, HEADERS, NAME, KEY, VALUE, REST, STAMP, TOO_MANY = range(12)
"""What `feed` returns."""

_REASONS = {
    LENGTH: "has a length of {}",
    ENDS: "ends within a field",
    DELTA: "has offset delta {}",
    LONG_NUMBER: "has a number that is too long",
    HEADERS: "has {} headers",
    NAME: "has a header with a name of {} bytes",
    KEY: "has a key of {} bytes",
    VALUE: "has a value of {} bytes",
    REST: "has {} bytes behind its headers",
    STAMP: "has a timestamp that is {} ms away from the first one",
}

(
    _AT_LENGTH,
    _AT_ATTRIBUTES,
    _AT_STAMP,
    _AT_DELTA,
    _AT_KEY,
    _AT_VALUE,
    _AT_HEADERS,
    _AT_NAME,
    _AT_CONTENT,
    _AT_REST,
) = range(10)
_LONG_MAX = 2**63 - 1


class RecordWalker(Protocol):
    """Takes the uncompressed records of one batch, in pieces of any size."""

    def __init__(
        self, count: int, first_ms: int, earliest_ms: int, latest_ms: int, needs_keys: bool, has_gaps: bool, /
    ) -> None:
        """Begins before the first record.

        Args:
            count: How many records there are, as the batch's header says.
            first_ms: The timestamp that their deltas are added to.
            earliest_ms: Records with an earlier timestamp are wrong; those without one (-1) are not.
            latest_ms: So are those with a later one.
            needs_keys: So are those without a key.
            has_gaps: Records may be left out, as compaction does; otherwise their offsets follow one another.
        """

    def feed(self, data: bytes | bytearray | memoryview, /) -> int:
        """Goes on through the next piece; returns 0 while all is well, else the number of an error."""

    def state(self) -> tuple[int, bool, int, int, int]:
        """Records seen whole, whether the last one is, the greatest timestamp (-1 if none), the number that an error
        is about, and how many records are wrong.
        """

    def wrong(self) -> list[tuple[int, int | None]]:
        """The first records that are wrong, each with its timestamp, or with None where it lacks a key."""


class PlainWalker:
    """`RecordWalker` in Python."""

    def __init__(
        self, count: int, first_ms: int, earliest_ms: int, latest_ms: int, needs_keys: bool, has_gaps: bool, /
    ) -> None:
        self._count = count
        self._first_ms = first_ms
        self._bounds_ms = earliest_ms, latest_ms
        self._needs_keys = needs_keys
        self._has_gaps = has_gaps
        self._delta = -1
        self._greatest_ms = -1
        self._stamp_ms = self._number = self._headers = self._remaining_bytes = self._skip = self._value = 0
        self._partial = self._shift = 0
        self._at = _AT_LENGTH
        self._is_keyless = False
        self._wrong: list[tuple[int, int | None]] = []
        self._wrong_count = 0

    def feed(self, data: bytes | bytearray | memoryview, /) -> int:
        at, end = 0, len(data)
        while at < end:
            if self._skip:
                step = min(self._skip, end - at)
                at += step
                self._skip -= step
                self._remaining_bytes -= step
                if not self._skip and self._at == _AT_REST and (error := self._after_header()):
                    return error
                continue
            state = self._at
            if state == _AT_LENGTH:
                if not self._shift and self._number == self._count:
                    self._value = end - at
                    return TOO_MANY
            elif self._remaining_bytes == 0:
                return ENDS
            else:
                self._remaining_bytes -= 1
            byte = data[at]
            at += 1
            if state == _AT_ATTRIBUTES:
                self._at = _AT_STAMP
                continue
            bits = 64 if state == _AT_STAMP else 32
            low, shift = byte & 0x7F, self._shift
            if shift >= bits or (shift + 7 > bits and low >> (bits - shift)):
                return LONG_NUMBER
            partial = self._partial | low << shift
            if byte >= 0x80:
                self._partial, self._shift = partial, shift + 7
                continue
            self._partial = self._shift = 0
            error = self._take((partial >> 1) ^ -(partial & 1))
            if error:
                return error
        return GOOD

    def state(self) -> tuple[int, bool, int, int, int]:
        between = self._at == _AT_LENGTH and not self._shift
        return self._number, between, self._greatest_ms, self._value, self._wrong_count

    def wrong(self) -> list[tuple[int, int | None]]:
        return self._wrong

    def _take(self, value: int) -> int:
        """Goes on behind a number."""
        state = self._at
        if state == _AT_LENGTH:
            if value <= 0:
                return self._fail(LENGTH, value)
            self._remaining_bytes, self._at = value, _AT_ATTRIBUTES
            return GOOD
        if state == _AT_STAMP:
            stamp_ms = self._first_ms + value
            if not -_LONG_MAX - 1 <= stamp_ms <= _LONG_MAX:
                return self._fail(STAMP, value)
            self._stamp_ms, self._at = stamp_ms, _AT_DELTA
            return GOOD
        if state == _AT_DELTA:
            self._at = _AT_KEY
            if value > self._delta if self._has_gaps else value == self._number:
                self._delta = value
                return GOOD
            return self._fail(DELTA, value)
        if state == _AT_KEY:
            self._is_keyless, self._at = value < 0, _AT_VALUE
            return self._sized(value, -1, KEY)
        if state == _AT_VALUE:
            self._at = _AT_HEADERS
            return self._sized(value, -1, VALUE)
        if state == _AT_HEADERS:
            self._headers = value
            return self._after_header() if 0 <= value <= self._remaining_bytes else self._fail(HEADERS, value)
        if state == _AT_NAME:
            self._at = _AT_CONTENT
            return self._sized(value, 0, NAME)
        self._headers -= 1
        self._at = _AT_REST
        return self._sized(value, -1, VALUE) or (GOOD if self._skip else self._after_header())

    def _sized(self, size: int, least: int, error: int) -> int:
        if not least <= size <= self._remaining_bytes:
            return self._fail(error, size)
        self._skip = max(size, 0)
        return GOOD

    def _after_header(self) -> int:
        if self._headers:
            self._at = _AT_NAME
            return GOOD
        if self._remaining_bytes:
            return self._fail(REST, self._remaining_bytes)
        earliest_ms, latest_ms = self._bounds_ms
        stamp_ms = self._stamp_ms
        is_keyless = self._needs_keys and self._is_keyless
        if is_keyless or (stamp_ms != -1 and not earliest_ms <= stamp_ms <= latest_ms):
            if self._wrong_count < MAX_WRONG:
                self._wrong.append((self._number, None if is_keyless else stamp_ms))
            self._wrong_count += 1
        self._greatest_ms = max(self._greatest_ms, stamp_ms)
        self._number += 1
        self._at = _AT_LENGTH
        return GOOD

    def _fail(self, error: int, value: int) -> int:
        self._value = value
        return error


def plain_records(
    batch: bytes | bytearray | memoryview, start: int, count: int, greatest_delta_ms: int, /
) -> bool:
    """`are_plain` in Python.

    Args:
        batch: A batch whose records are not compressed.
        start: Where the first of them begins.
        count: How many there are.
        greatest_delta_ms: What the batch's greatest timestamp is more than its first; not negative.

    Returns:
        Whether they are exactly so many, in order, with that greatest timestamp. Where not, a walker says why.
    """
    data = bytes(memoryview(batch)[start:])
    size, at, greatest = len(data), 0, -1
    try:
        for number in range(count):
            length, at = _number(data, at)
            stop = at + length
            delta_ms, at = read_varint(data, at + 1)
            if delta_ms > greatest:
                if delta_ms > _LONG_MAX:
                    return False
                greatest = delta_ms
            delta, at = _number(data, at)
            key_bytes, at = _number(data, at)
            if key_bytes > 0:
                at += key_bytes
            value_bytes, at = _number(data, at)
            if value_bytes > 0:
                at += value_bytes
            headers, at = _number(data, at)
            if (
                delta != number
                or length <= 0
                or key_bytes < -1
                or value_bytes < -1
                or headers < 0
                or at > stop
            ):
                return False
            for _ in range(headers):
                name_bytes, at = _number(data, at)
                content_bytes, at = _number(data, at + max(name_bytes, 0))
                at += max(content_bytes, 0)
                if name_bytes < 0 or content_bytes < -1 or at > stop:
                    return False
            if at != stop:
                return False
    except IndexError:
        return False
    return at == size and greatest == greatest_delta_ms >= 0


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag integer of at most 32 bits and where it ends; raises IndexError for another."""
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    value, end = read_varint(data, at)
    if end - at > 5 or not -(2**31) <= value < 2**31:
        raise IndexError
    return value, end


if TYPE_CHECKING:
    Walker = PlainWalker
    are_plain = plain_records
else:
    try:
        from headwater_broker.log._records import Walker, are_plain
    except ImportError:
        Walker, are_plain = PlainWalker, plain_records

IS_COMPILED = Walker is not PlainWalker
"""Whether the extension is there."""


def explain(walker: RecordWalker, error: int, count: int) -> str | None:
    """What is wrong with a batch's records, as a sentence; None where nothing is.

    Args:
        walker: What looked through them to the end, or until an error.
        error: What its last `feed` said.
        count: How many records there should be.
    """
    number, is_whole, _, value, _ = walker.state()
    if error == TOO_MANY:
        return f"{value} bytes or more follow the last of {count} records"
    if error:
        return f"record {number} of {count} {_REASONS[error].format(value)}"
    if number < count or not is_whole:
        return f"the records end within record {number} of {count}"
    return None
