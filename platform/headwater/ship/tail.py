"""One open file: reads whole records from a place on, and notices when the bytes before that place have changed."""

import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from headwater.ship.errors import ReplacedError
from headwater.ship.framing import Framing, Record
from headwater.ship.mark import COPY_BYTES, HEAD_BYTES, TAIL_BYTES, Mark, around, digest

CHUNK_BYTES = 1 << 20
FileKey = tuple[int, int]
"""Device and inode."""


@dataclass(slots=True)
class Chunk:
    """Records that were read at once. Progress is saved at the ends of chunks.

    Attributes:
        records: The records, in order.
        first_ordinal: The number of the first.
        mark: The file's mark behind the last.
        cut: Where a line was cut off that had no end yet; it has to be saved before the chunk is sent.
        waiting: How many are not acknowledged.
    """

    records: list[Record]
    first_ordinal: int
    mark: Mark
    cut: int | None
    waiting: int = field(init=False)

    def __post_init__(self) -> None:
        self.waiting = len(self.records)


class Tail:
    """A file that is being followed.

    Attributes:
        file_id: Its id in the origin headers.
        path: Where it was first seen.
        place: Where it is now.
        pattern: The pattern that named it.
        key: Its device and inode.
        position: The byte up to which it was read.
        ordinal: The number of the next record.
        cut: A byte at which a line is divided because its beginning was sent without an end.
        registered: Whether its id is saved.
        framing: How it is divided.
        acknowledged: The mark up to which everything is acknowledged.
        acknowledged_ordinal: The number of the record there.
        saved: What was last saved of it.
        replaced: Whether what was read of it is in no file any more.
        missing_at: When it was first missing under the patterns.
        grown_at: When something was last read.
        size: Its size when it was last looked at.
        changed_ns: The time of its last change at that look, in nanoseconds since the epoch.
    """

    def __init__(
        self,
        fd: int,
        path: str,
        pattern: str,
        file_id: str,
        framing: Framing,
        *,
        limit_bytes: int,
        now: float,
        mark: Mark | None = None,
        ordinal: int = 0,
        cut: int | None = None,
        head_and_before: tuple[bytes, bytes] = (b"", b""),
    ) -> None:
        self._fd = fd
        stat = os.fstat(fd)
        self.file_id = file_id
        self.path = self.place = path
        self.pattern = pattern
        self.key: FileKey = (stat.st_dev, stat.st_ino)
        self.framing = framing.for_head(head_and_before[0])
        self.position = mark.position if mark is not None else 0
        self.ordinal = ordinal
        self.cut = cut
        self.registered = mark is not None
        self.acknowledged = mark if mark is not None else Mark.of(0, b"", b"")
        self.acknowledged_ordinal = ordinal
        self.saved: object = None
        self.replaced = False
        self.missing_at: float | None = None
        self.grown_at = now
        self.size, self.changed_ns = stat.st_size, stat.st_mtime_ns
        self._head, self._before = head_and_before
        self._limit_bytes = limit_bytes
        self._want = CHUNK_BYTES
        self._looked: tuple[int, int] | None = None
        self._scanned: int | None = None
        self._gap: tuple[int, int] | None = None
        self._blank_to = 0
        self._chunks: deque[Chunk] = deque()

    def start_behind(self, end: int) -> None:
        """Leaves out the whole lines before a byte."""
        self.framing = self.framing.for_head(os.pread(self._fd, HEAD_BYTES, 0))
        while end > 0:
            start = max(0, end - CHUNK_BYTES)
            start -= start % self.framing.unit
            newline = self._last_newline(start, end)
            if newline >= 0:
                self.position = start + newline
                break
            end = start
        self._head, self._before = around(self._fd, self.position)
        self.acknowledged = self.mark

    def _last_newline(self, start: int, end: int) -> int:
        """Where the last line in a part of the file ends; -1 if none does."""
        data, newline = os.pread(self._fd, end - start, start), self.framing.newline
        at = data.rfind(newline)
        while at >= 0 and at % self.framing.unit:
            at = data.rfind(newline, 0, at + len(newline) - 1)
        return at + len(newline) if at >= 0 else -1

    def look(self) -> bool:
        """Reads more of the file's beginning; True if that identifies it: it has a line, or HEAD_BYTES."""
        if self.position <= len(self._head) < HEAD_BYTES:
            head = _written(os.pread(self._fd, HEAD_BYTES, 0))
            if head.startswith(self._head):  # else it was written anew, which `read` will find
                self._head = head
        return len(self._head) == HEAD_BYTES or b"\n" in self._head

    @property
    def mark(self) -> Mark:
        """The mark of what was read."""
        return Mark.of(self.position, self._head, self._before)

    @property
    def acknowledged_mark(self) -> Mark:
        """The mark of what is acknowledged, with all that is known of the file's beginning."""
        return replace(self.acknowledged, head_bytes=len(self._head), head=digest(self._head))

    @property
    def waiting(self) -> bool:
        """Whether something that was read is not acknowledged."""
        return bool(self._chunks)

    def read(self, *, ends: bool = False) -> Chunk | None:
        """The next whole records, some CHUNK_BYTES at most unless one of them is longer.

        Args:
            ends: The file will not grow: what stands behind its last newline is a record too.

        Returns:
            None if there is no whole record.

        Raises:
            ReplacedError: What was read before is no longer there.
        """
        stat = os.fstat(self._fd)
        looked = (stat.st_size, stat.st_mtime_ns)
        if looked == self._looked and not ends:
            return None
        self._looked = None
        back = len(self._before)
        room = min(self._want, max(stat.st_size - self.position, 0) + 1)
        data = os.pread(self._fd, back + room, self.position - back)
        # Checked after the data is read, so that a truncation before that is noticed.
        if data[:back] != self._before or os.pread(self._fd, len(self._head), 0) != self._head:
            raise ReplacedError
        self.size, self.changed_ns = stat.st_size, stat.st_mtime_ns
        body = data[back:]
        if self.position == 0:
            self.framing = self.framing.for_head(body)
        elif self.position % self.framing.unit:  # an earlier run divided it as bytes
            self._go_to(self.position + -self.position % self.framing.unit)
            return self.read(ends=ends)
        if self.framing.blank(body):
            body = self._behind_blank(body, looked)
            if not body:
                return None
        if len(self._head) < HEAD_BYTES and self.position <= len(self._head):
            self._head = _written(self._head[: self.position] + body[: HEAD_BYTES - self.position])
        whole = len(body) < self._want
        body = body[: _whole(len(body), self.framing.unit)]
        blank = self.framing.before_blank(body)
        if blank >= 0:
            body, whole = body[:blank], True
        elif whole:
            body = body[: self.framing.written(body)]
        # One cut at a time: a saved one may still be needed by the next run.
        ends = ends and (self.cut is None or self.acknowledged.position >= self.cut)
        if self.cut is not None and 0 < self.cut - self.position <= len(body):
            body = body[: self.cut - self.position]
            ends = whole = True
        records = self.framing.split(body, self.position, ends=ends and whole)
        if not records and not whole:
            chunk = self._long_line(len(body), ends)
            self._looked = looked if chunk is None else None
            return chunk
        if not records:
            self._looked = looked
            return None
        self._want = CHUNK_BYTES
        limit = self._limit_bytes
        if len(body) > limit and any(len(each.value or b"") > limit for each in records):
            records = [
                each if len(each.value or b"") <= limit else each._replace(value=None) for each in records
            ]
        end = records[-1].end - self.position
        before = body[end - TAIL_BYTES : end] if end >= TAIL_BYTES else self._before + body[:end]
        return self._chunk(records, before[-TAIL_BYTES:], ended=body[:end].endswith(self.framing.newline))

    def parts(self, start: int, end: int) -> Iterator[bytes]:
        """A part of the file, piece by piece.

        Raises:
            ReplacedError: It is no longer there.
        """
        while start < end:
            data = os.pread(self._fd, min(CHUNK_BYTES, end - start), start)
            if not data:
                raise ReplacedError
            yield data
            start += len(data)

    def sent_one(self, chunk: Chunk) -> None:
        """A record of a chunk is acknowledged, or kept elsewhere."""
        chunk.waiting -= 1
        while self._chunks and not self._chunks[0].waiting:
            done = self._chunks.popleft()
            self.acknowledged = done.mark
            self.acknowledged_ordinal = done.first_ordinal + len(done.records)

    def has_changed(self, path: str) -> bool:
        """Whether the file at a path differs in size or time of change from this one at its last look."""
        try:
            stat = os.stat(path)  # noqa: PTH116 - of thousands of files
        except OSError:
            return True
        return (stat.st_size, stat.st_mtime_ns) != (self.size, self.changed_ns)

    def continues_in(self, fd: int) -> bool:
        """Whether another file has what was read of this one."""
        return self.mark.tells_copies and self.mark.match_in(fd) is not None

    @property
    def beginning(self) -> bytes:
        """The first COPY_BYTES, as far as they are known."""
        return self._head[:COPY_BYTES]

    def begins_like(self, head: bytes) -> bool:
        """Whether a file with these first bytes may be a copy of this one, or the beginning of a copy."""
        count = min(len(head), len(self._head))
        return len(self._head) >= COPY_BYTES and head[:count] == self._head[:count]

    def missing_in(self, fd: int, mark: Mark) -> int | None:
        """How many bytes of this file a possible copy still lacks.

        Args:
            fd: The possible copy.
            mark: The mark of its end.

        Returns:
            Bytes; 0 if this file was truncated and the other one has what was read of it; None if it is no copy: it
            differs, or is longer than this file.
        """
        if self.has(mark):
            return max(os.fstat(self._fd).st_size - mark.position, 0)
        return 0 if not self.has(self.mark) and self.continues_in(fd) else None

    def has(self, mark: Mark) -> bool:
        """Whether the file still matches a mark."""
        return mark.match_in(self._fd) is not None

    def end_in(self, fd: int, least_head_bytes: int = COPY_BYTES) -> int | None:
        """Where this file ends in another that has all of it; None if that lacks some, or if this one's beginning has
        fewer bytes than are to be compared."""
        mark = Mark.of_end(self._fd)
        is_enough = mark.head_bytes >= least_head_bytes and mark.position >= self.position
        return mark.position if is_enough and mark.match_in(fd) is not None else None

    def move_to(self, fd: int, place: str) -> None:
        """Goes on in a file that has what was read of this one."""
        os.close(self._fd)
        self._fd = fd
        self.place = place
        stat = os.fstat(fd)
        self.key = (stat.st_dev, stat.st_ino)
        self.size, self.changed_ns = stat.st_size, stat.st_mtime_ns

    @property
    def deleted(self) -> bool:
        """Whether the file has no name any more."""
        return os.fstat(self._fd).st_nlink == 0

    def close(self) -> None:
        """Lets go of the file."""
        os.close(self._fd)

    def _chunk(self, records: list[Record], before: bytes, *, ended: bool) -> Chunk:
        self.position, self._before = records[-1].end, before
        cut = None
        if not ended and self.position != self.cut:
            cut = self.cut = self.position
        chunk = Chunk(records, self.ordinal, self.mark, cut)
        self.ordinal += len(records)
        self._chunks.append(chunk)
        return chunk

    def _behind_blank(self, body: bytes, looked: tuple[int, int]) -> bytes:
        """Goes past the NUL characters before a line; stays before those that are the end of the file.

        A file that was allocated in advance is written over them, and a program without O_APPEND leaves them when its
        file is truncated under it. A gap between lines is looked at twice, as later bytes may be visible first.
        """
        end = self._written_from(body)
        if end is None:
            self.size = self.position
            self._looked = looked
            return b""
        gap, previous = (self.position, end), self._gap
        self._gap = gap
        if self.position and previous != gap:
            return b""
        self._go_to(end)
        return os.pread(self._fd, self._want, self.position)

    def _written_from(self, body: bytes) -> int | None:
        """Where the first character that is no NUL stands, from the place on; None if there is none."""
        blank = self.framing.blank(body)
        if blank < len(body) - len(body) % self.framing.unit:
            return self.position + blank
        at = max(self.position + blank, self._blank_to)
        try:
            at = max(at, os.lseek(self._fd, at, os.SEEK_DATA))
            at -= at % self.framing.unit
            while data := os.pread(self._fd, CHUNK_BYTES, at):
                blank = self.framing.blank(data)
                at += blank
                if blank < len(data) - len(data) % self.framing.unit:
                    return at
        except OSError:  # there is a hole up to the end
            at = os.fstat(self._fd).st_size
        self._blank_to = at
        return None

    def _go_to(self, position: int) -> None:
        self.position = position
        self._head, self._before = around(self._fd, position)

    def _long_line(self, read: int, ends: bool) -> Chunk | None:
        """Handles a line that is longer than what was read: reads it whole, or only looks for its end."""
        if self._want <= self._limit_bytes + 1:
            self._want = min(2 * self._want, self._limit_bytes + 2)
            return self.read(ends=ends)
        at = max(self._scanned or 0, self.position + read)
        at -= (at - self.position) % self.framing.unit
        written = self.position + self.framing.written(os.pread(self._fd, at - self.position, self.position))
        while data := os.pread(self._fd, CHUNK_BYTES, at):
            line_end = self.framing.line_end(data)
            end = at + line_end if line_end >= 0 else at + len(data)
            if self.cut is not None and self.position < self.cut <= end:
                return self._too_long(self.cut, ended=True)
            if line_end >= 0:
                return self._too_long(end, ended=True)
            if data.strip(b"\0"):
                written = at + self.framing.written(data)
            at += _whole(len(data), self.framing.unit) or len(data)
        self._scanned = written
        if not ends:
            return None
        if written - self.position > self._limit_bytes:
            return self._too_long(written, ended=False)
        body = os.pread(self._fd, written - self.position, self.position)
        self._want = CHUNK_BYTES
        records = self.framing.split(body, self.position, ends=True)
        return self._chunk(records, (self._before + body)[-TAIL_BYTES:], ended=False)

    def _too_long(self, end: int, *, ended: bool) -> Chunk:
        self._scanned = None
        self._want = CHUNK_BYTES
        before = os.pread(self._fd, TAIL_BYTES, end - TAIL_BYTES)
        if len(before) < TAIL_BYTES:
            raise ReplacedError
        return self._chunk([Record(self.position, end, None)], before, ended=ended)


def _whole(count: int, unit: int) -> int:
    return count - count % unit


def _written(head: bytes) -> bytes:
    """A file's first bytes without the zeros behind them, which will be written over if it was allocated in advance."""
    return head.rstrip(b"\0")
