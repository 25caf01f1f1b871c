"""A shipper of files without brokers, and what happens to files: they grow, are copied, truncated and compressed."""

import gzip
import os
import shutil
from dataclasses import replace
from pathlib import Path

from headwater.ship.discovery import sizes_of
from headwater.ship.fileset import FileSet, entry_of
from headwater.ship.framing import lines_of
from headwater.ship.mark import Mark
from headwater.ship.progress import Entry
from headwater.ship.tail import CHUNK_BYTES, Chunk, Tail

LIMIT = 4 * CHUNK_BYTES
BANNER = "#" * 300  # more than is compared to recognise a copy


class Follower:
    """A shipper without brokers: what it would have sent, and what it saved."""

    def __init__(
        self, *patterns: Path, from_end: bool = False, limit_bytes: int = LIMIT, encoding: str = "utf-8"
    ) -> None:
        self.framing = lines_of(encoding)
        self.patterns = [str(each) for each in patterns]
        self.from_end, self.limit_bytes, self.once = from_end, limit_bytes, False
        self.scratch = patterns[0].parent
        self.now, self.saved_ms = 0.0, 0
        self.sent: list[tuple[str, int, int, bytes | None]] = []
        self.saved: dict[str, Entry] = {}
        self.messages: list[str] = []
        self.unacknowledged: list[tuple[Tail, Chunk]] = []
        self.acknowledges = True
        self.journal: dict[str, Mark] = {}
        self.files = self._start()

    def _start(self) -> FileSet:
        return FileSet(
            self.patterns,
            self.framing,
            self.saved.values(),
            limit_bytes=self.limit_bytes,
            from_end=sizes_of(self.patterns) if self.from_end else None,
            once=self.once,
            close_after_s=60,
            scratch=self.scratch,
            say=self.messages.append,
            sent=self.journal.get,
            decided=self.scratch / ".left-out.json",
        )

    def _entry(self, tail: Tail, *, done: bool = False) -> Entry:
        entry = replace(entry_of(tail, done=done), saved_ms=self.saved_ms)
        return Entry.from_json(entry.to_json())  # as the next run reads it

    def kill(self) -> None:
        """kill -9 and a new start: only what was saved is known."""
        self.files.close()
        self.unacknowledged.clear()
        self.files = self._start()

    def poll(self, *, ends: bool = False, hold: bool = True, save: bool = True) -> None:
        """One look, everything read, acknowledged and saved."""
        self.now += 1
        moved = True
        while moved:
            moved = False
            if self.files.stale or not moved:
                self.files.scan(self.now, hold=hold)
                self._register()
            for tail in list(self.files.tails.values()):
                is_over = self.files.can_end(tail, self.now) and not tail.waiting
                chunk = self.files.read(tail, ends=ends or is_over)
                if chunk is not None:
                    self._take(tail, chunk)
                    moved = True
                elif is_over and self.files.follows(tail):
                    self.files.end(tail)
            moved = moved or self.files.stale
        if save:
            self.save()

    def _register(self) -> None:
        for tail in self.files.tails.values():
            if not tail.registered and tail.look():
                self.saved[tail.file_id] = self._entry(tail)
                tail.registered = True

    def _take(self, tail: Tail, chunk: Chunk) -> None:
        tail.grown_at = self.now
        if not tail.registered or chunk.cut is not None:
            self.saved[tail.file_id] = self._entry(tail)
            tail.registered = True
        self.journal[tail.file_id] = chunk.mark
        for ordinal, record in enumerate(chunk.records, chunk.first_ordinal):
            self.sent.append((tail.file_id, ordinal, record.position, record.value))
        if self.acknowledges:
            for _ in chunk.records:
                tail.sent_one(chunk)
        else:
            self.unacknowledged.append((tail, chunk))

    def save(self) -> None:
        for tail in self.files.tails.values():
            if tail.registered:
                self.saved[tail.file_id] = self._entry(tail)
        for tail in [each for each in self.files.ended if not each.waiting]:
            self.saved.pop(tail.file_id, None)
            if not tail.replaced and not tail.deleted and tail.registered:
                self.saved[tail.file_id] = self._entry(tail, done=True)
                self.files.remember(self.saved[tail.file_id])
            self.files.drop(tail)

    @property
    def lines(self) -> list[str]:
        """What a table without duplicates holds: one line for each coordinate, in the order of first arrival."""
        by_coordinate = {(file_id, ordinal): value for file_id, ordinal, _, value in reversed(self.sent)}
        for file_id, ordinal, _, value in self.sent:
            assert by_coordinate[file_id, ordinal] == value, "two lines have the same coordinates"
        ordered = dict.fromkeys((file_id, ordinal) for file_id, ordinal, _, _ in self.sent)
        return [(by_coordinate[each] or b"").decode() for each in ordered]


def append(path: Path, *lines: str, end: str = "\n") -> None:
    with path.open("a") as file:
        file.write("".join(f"{line}\n" for line in lines[:-1]) + lines[-1] + end)


def compress(path: Path) -> Path:
    """As gzip does, which keeps the time of the last change."""
    stat, compressed = path.stat(), path.with_name(f"{path.name}.gz")
    compressed.write_bytes(gzip.compress(path.read_bytes()))
    os.utime(compressed, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    path.unlink()
    return compressed


def copytruncate(path: Path, copy: Path) -> None:
    shutil.copyfile(path, copy)
    os.truncate(path, 0)
