"""The files that are followed: new ones taken up, renamed and copied ones known again, finished ones let go."""

import os
import re
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headwater.errors import reason
from headwater.ship.compressed import not_unpacked, open_compressed
from headwater.ship.discovery import Match, matching_files, neighbours
from headwater.ship.errors import ReplacedError
from headwater.ship.framing import Framing
from headwater.ship.mark import COPY_BYTES, HEAD_BYTES, Mark
from headwater.ship.places import astray
from headwater.ship.progress import Entry
from headwater.ship.tail import CHUNK_BYTES, Chunk, FileKey, Tail
from headwater_streams.plural import counted

_ID_BYTES = 8
_DRAWN = re.compile(f"[0-9a-f]{{{2 * _ID_BYTES}}}")
HOLD_S = 10.0
"""How long a file that looks like the copy of a followed one is left alone once it lacks less than CHUNK_BYTES of it:
logrotate's copytruncate copies first and truncates then. If nothing is truncated by then it is a file of its own."""

DELETED_QUIET_S = 5.0
"""How long a deleted file that its writer may still hold has to be quiet before it is let go."""

FORGET_MS = 7 * 86_400_000
"""How long the progress of a file that is nowhere to be found is kept: its folder may be mounted again."""


@dataclass
class _Held:
    """A new file that looks like the copy of a followed one, and is looked at again before it is read.

    Attributes:
        match: Where it is.
        fd: The file, open: a copy may be compressed and deleted as soon as it is made.
        since: When it was first seen, or seen to grow after much had been missing.
        original: What it looks like the copy of.
        mark: Up to where it was seen to be that.
        missing: How many bytes of the original it lacked then.
    """

    match: Match
    fd: int
    since: float
    original: Tail
    mark: Mark
    missing: int

    def known(self) -> bool:
        """Whether it still has what was seen, and that is enough to leave it out where its original was read."""
        return self.mark.head_bytes == HEAD_BYTES and self.mark.found_in(self.fd) is not None


class FileSet:
    """Follows what patterns name.

    Attributes:
        tails: The files that are read.
        stale: Whether a look is due, because a file was truncated or written anew.
        ended: Those that are read no more, until their last lines are acknowledged.
        refused: Where the last look found what could not be opened.
    """

    def __init__(
        self,
        patterns: Sequence[str],
        framing: Framing,
        entries: Iterable[Entry],
        *,
        limit_bytes: int,
        from_end: Mapping[FileKey, int] | None,
        close_after_s: float,
        scratch: Path,
        say: Callable[[str], None],
        sent: Callable[[str], Mark | None],
        once: bool = False,
    ) -> None:
        """Prepare.

        Args:
            patterns: Absolute paths or glob patterns.
            framing: How the files are divided.
            entries: The progress of earlier runs.
            limit_bytes: A longer line is not read into memory.
            from_end: How large files were at the start, to leave out at the first look what they held then, but
                for those of a pattern that has progress; None to leave out nothing.
            close_after_s: How long a file that left the patterns has to be quiet before it is let go.
            scratch: A folder for what has to be unpacked.
            say: Takes a sentence for people.
            sent: Up to where something may have been sent of a file, by its id; see `SentJournal`.
            once: What cannot be read is not tried again later.
        """
        self._sent = sent
        self.tails: dict[FileKey, Tail] = {}
        self.ended: list[Tail] = []
        self.stale = True
        self.refused: set[str] = set()
        self._patterns = patterns
        self._framing = framing
        # What is too long for a record is kept under its file's id: one that no shipper drew could be any path.
        self._known = {entry.file_id: entry for entry in entries if _DRAWN.fullmatch(entry.file_id)}
        strange = astray({entry.place for entry in self._known.values()}, patterns)
        self._astray = {entry.file_id for entry in self._known.values() if entry.place in strange}
        self._limit_bytes = limit_bytes
        self._from_end = from_end or {}
        self._progressed = {entry.pattern for entry in self._known.values()}
        self._first = True
        self._moved = False
        self._close_after_s = close_after_s
        self._say = say
        self._scratch = scratch
        self._held: dict[FileKey, _Held] = {}
        self._unreadable: set[str] = set()
        self._once = once
        self._left_out: set[str] = set()

    def scan(self, now: float, *, hold: bool = True) -> None:
        """Looks for files that came, left or moved.

        Args:
            now: The time of a monotonic clock.
            hold: Whether what looks like a copy may be left alone for a while; not where `from_end` leaves it out.
        """
        found, compressed = matching_files(self._patterns)
        new = {key: match for key, match in found.items() if key not in self.tails}
        if new and self._known:
            self._resume_by_inode(new, now)
        self._find_moved(new, now)
        if self._first:
            self._find_compressed(now)
        self._take_up(new, now, hold=hold)
        self.refused = self._unreadable & {match.path for match in new.values()}
        for key, tail in self.tails.items():
            if key in found:
                tail.place, tail.left_at = found[key].path, None
            elif tail.left_at is None:
                tail.left_at = now
        self._tell_left_out(compressed)
        self._first, self.stale, self._moved = False, self._moved, False

    def awaits(self, now_ms: int) -> bool:
        """Whether a file that looks like a copy changed so lately that what it is the copy of may yet be truncated."""
        changed_ms = (os.fstat(held.fd).st_ctime_ns // 1_000_000 for held in self._held.values())
        return any(now_ms - each < HOLD_S * 1000 for each in changed_ms)

    @property
    def holds(self) -> bool:
        """Whether a file that looks like a copy is left alone."""
        return bool(self._held)

    def follows(self, tail: Tail) -> bool:
        """Whether a file is read still."""
        return self.tails.get(tail.key) is tail

    def read(self, tail: Tail, *, ends: bool = False) -> Chunk | None:
        """Reads from a file; if it was truncated or written anew, finds where its lines went.

        Returns:
            None if there is nothing, for now, or the file is read no more.
        """
        if not self.follows(tail):
            return None
        try:
            return tail.read(ends=ends)
        except ReplacedError:
            self._succeed(tail)
            return None

    def left(self, tail: Tail, now: float) -> bool:
        """Whether a file is no longer under the patterns and has been quiet for long enough."""
        if tail.left_at is None:
            return False
        quiet_s = min(self._close_after_s, DELETED_QUIET_S) if tail.deleted else self._close_after_s
        return now - max(tail.left_at, tail.grown_at) >= quiet_s

    def end(self, tail: Tail) -> None:
        """Reads no more of a file; it is in `ended` until its lines are acknowledged."""
        del self.tails[tail.key]
        self.ended.append(tail)

    def drop(self, tail: Tail) -> None:
        """Lets go of a file that ended."""
        self.ended.remove(tail)
        tail.close()

    def forgotten(self, now_ms: int) -> list[str]:
        """The ids of files that were not found for FORGET_MS; they are no longer looked for."""
        gone = []
        for entry in self._absent():
            since_ms = entry.saved_ms if entry.done else entry.missed_ms
            if since_ms is not None and now_ms - since_ms > FORGET_MS:
                gone.append(entry.file_id)
                del self._known[entry.file_id]
        return gone

    def missed(self, now_ms: int) -> list[Entry]:
        """What is to be saved of files that were not found for the first time: since when they are missed."""
        missed = [
            replace(entry, missed_ms=now_ms)
            for entry in self._absent()
            if entry.missed_ms is None and not entry.done
        ]
        self._known.update({entry.file_id: entry for entry in missed})
        return missed

    def remember(self, entry: Entry) -> None:
        """Keeps the progress of a file that was let go, in case it comes back."""
        self._astray.discard(entry.file_id)
        self._known[entry.file_id] = entry

    def close(self) -> None:
        """Lets go of all files."""
        for tail in [*self.tails.values(), *self.ended]:
            tail.close()
        for held in self._held.values():
            os.close(held.fd)

    def _absent(self) -> list[Entry]:
        """The progress of files under these patterns that no look found."""
        known = () if self._first else self._known.values()
        return [entry for entry in known if entry.pattern in self._patterns]

    def _resume_by_inode(self, new: Mapping[FileKey, Match], now: float) -> None:
        by_inode: dict[int, list[Entry]] = {}
        # Where a truncated file's inode has two entries, the longer one is tried first: it says more.
        for entry in sorted(self._known.values(), key=lambda each: -each.mark.position):
            by_inode.setdefault(entry.inode, []).append(entry)
        for key, match in new.items():
            for entry in by_inode.get(key[1], ()):
                if self._resume(entry, key, match.path, now):
                    break

    def _find_moved(self, new: Mapping[FileKey, Match], now: float) -> None:
        """Finds what was renamed out of the patterns, or copied and truncated, since an earlier run."""
        missing = self._missing()
        folders: dict[Path, list[tuple[FileKey, str]]] = {}
        for entry in missing:
            folder = Path(entry.place).parent
            if folder not in folders:
                folders[folder] = [
                    *(neighbours(entry.place) if self._first else ()),
                    *((key, match.path) for key, match in new.items() if Path(match.path).parent == folder),
                ]
                folders[folder] = [each for each in folders[folder] if each[0] not in self.tails]
            for key, path in folders[folder]:
                likely = key not in self.tails and (key[1] == entry.inode or entry.mark.tells_copies)
                if likely and self._resume(entry, key, path, now):
                    break

    def _missing(self) -> list[Entry]:
        """The progress of files that are to be looked for where they were last seen."""
        return [
            entry
            for entry in self._known.values()
            if not entry.done and entry.pattern in self._patterns and entry.file_id not in self._astray
        ]

    def _find_compressed(self, now: float) -> None:
        """Finds what was compressed since an earlier run, and names what is gone."""
        for entry in self._missing():
            read_ms = entry.saved_ms if entry.size <= entry.mark.position else None
            found = self._open_compressed(entry.place, entry.mark, read_ms)
            if found is not None:
                self._resume_in(entry, *found, now)
            elif entry.size > entry.mark.position:
                unread = counted(entry.size - entry.mark.position, "byte")
                self._say(f"{entry.place} is gone, with at least {unread} of it not read yet")

    def _tell_left_out(self, compressed: Sequence[str]) -> None:
        """Names each compressed file that came under the patterns, but for what is read as a file's rest."""
        read = {tail.place for tail in self.tails.values()}
        for path in compressed:
            # One that appears beside a followed file of its name is made of that.
            followed = path in read or (not self._first and path.rpartition(".")[0] in read)
            if path not in self._left_out and not followed:
                self._say(
                    f"{path} is compressed and left out: "
                    "unless it was shipped before it was compressed, unpack it and ship that"
                )
        self._left_out = set(compressed)

    def _resume(self, entry: Entry, key: FileKey, path: str, now: float) -> bool:
        fd = self._open(path, key)
        return fd is not None and self._resume_in(entry, fd, path, now)

    def _resume_in(self, entry: Entry, fd: int, path: str, now: float) -> bool:
        known, sent = entry.mark.found_in(fd), self._sent(entry.file_id)
        differs = sent is not None and sent.position > entry.mark.position and sent.found_in(fd) is None
        if known is None or differs:
            os.close(fd)
            return False
        tail = Tail(
            fd,
            entry.path,
            entry.pattern,
            entry.file_id,
            self._framing,
            limit_bytes=self._limit_bytes,
            now=now,
            mark=entry.mark,
            ordinal=entry.ordinal,
            cut=entry.cut,
            known=known,
        )
        tail.place = path
        tail.look()
        self.tails[tail.key] = tail
        del self._known[entry.file_id]
        return True

    def _take_up(self, new: Mapping[FileKey, Match], now: float, *, hold: bool) -> None:
        """Follows new files, but for what looks like the copy of a followed one and may yet be known for it."""
        for key in self._held.keys() & self.tails.keys():  # it goes on where an earlier run ended
            os.close(self._held.pop(key).fd)
        alike: dict[bytes, list[Tail]] = defaultdict(list)
        for tail in self.tails.values():
            alike[tail.beginning].append(tail)
        candidates = {**{key: held.match for key, held in self._held.items()}, **new}
        for key, match in sorted(candidates.items(), key=_originals_first):
            if key in self.tails:
                continue
            held = self._held.get(key)
            fd = self._open(match.path, key) if held is None else held.fd
            if fd is None:
                continue
            head = os.pread(fd, HEAD_BYTES, 0)
            similar = alike[head[:COPY_BYTES]] if len(head) >= COPY_BYTES else list(self.tails.values())
            held_back = hold and self._passed_over(fd, match) is None
            likely = [tail for tail in similar if head and held_back and tail.begins_like(head)]
            if self._waits(key, match, fd, likely, now):
                continue
            held = self._held.pop(key, None)
            # What left the patterns, compressed say, is done with where a followed file has all of it.
            if not head or (key not in new and held is not None and self._has_all_of(held)):
                os.close(fd)
                continue
            tail = self._begin(fd, match, now, held)
            alike[tail.beginning].append(tail)

    def _begin(self, fd: int, match: Match, now: float, held: _Held | None) -> Tail:
        tail = Tail(
            fd, *match, secrets.token_hex(_ID_BYTES), self._framing, limit_bytes=self._limit_bytes, now=now
        )
        passed = self._passed_over(fd, match)
        if passed is not None:
            tail.start_behind(passed)
        elif held is not None and held.original.replaced and held.known():
            # Its original grew behind the copy and was read there before it was truncated.
            tail.start_behind(min(held.mark.position, held.original.position))
        tail.look()
        self.tails[tail.key] = tail
        return tail

    def _passed_over(self, fd: int, match: Match) -> int | None:
        """Up to where a file is left out by `from_end`, if it is."""
        if not self._first or match.pattern in self._progressed:
            return None
        stat = os.fstat(fd)
        size = self._from_end.get((stat.st_dev, stat.st_ino))
        return size if size is not None and size <= stat.st_size else None

    def _waits(self, key: FileKey, match: Match, fd: int, likely: Iterable[Tail], now: float) -> bool:
        """Whether a file is left alone: while its original may be truncated, or has lines that wait."""
        held = self._held.get(key)
        mark = Mark.of_end(fd)
        for tail in likely:
            missing = tail.missing_in(fd, mark)
            if missing is None:
                continue
            if held is None:
                held = self._held[key] = _Held(match, fd, now, tail, mark, missing)
            elif held.missing >= CHUNK_BYTES and mark != held.mark:
                held.since = now
            held.match, held.original, held.mark, held.missing = match, tail, mark, missing
            return now - held.since < HOLD_S
        if held is None:
            return False
        original = held.original
        if self.follows(original):
            return not original.has(original.mark)  # truncated, as `read` will find
        return original.replaced and original.waiting

    def _has_all_of(self, held: _Held) -> bool:
        return self.follows(held.original) and held.original.has(Mark.of_end(held.fd))

    def _succeed(self, tail: Tail) -> None:
        """The lines of a file that was truncated or written anew are in a copy of it, or gone."""
        del self.tails[tail.key]
        self.stale = True
        copies = [*((key, held.match.path) for key, held in self._held.items()), *neighbours(tail.place)]
        for key, path in copies:
            held = self._held.get(key)
            if key == tail.key:
                continue
            fd = os.dup(held.fd) if held is not None else self._open(path, key)
            if fd is None:
                continue
            followed = self.tails.get(key)
            if tail.continues_in(fd) and (followed is None or not followed.mark.found_in(fd)):
                if followed is not None:  # the copy was written over it
                    self._succeed(followed)
                if held is not None:
                    os.close(self._held.pop(key).fd)
                tail.move_to(fd, path)
                self.tails[tail.key] = tail
                return
            os.close(fd)
        # What was read to its end may have grown since.
        read_ms = None if tail.size > tail.position else tail.changed_ns // 1_000_000
        found = self._open_compressed(tail.place, tail.mark, read_ms)
        if found is not None:
            tail.move_to(*found)
            self.tails[tail.key] = tail
            return
        if tail.size > tail.position:
            unread = counted(tail.size - tail.position, "byte")
            other = not_unpacked(tail.place)
            self._say(
                f"{tail.place} was truncated or written anew with {unread} of it not read yet, and no copy is beside it"
                + (f", unless it is {other}, which is not unpacked here" if other else "")
            )
        tail.replaced = True
        self.ended.append(tail)

    def _open_compressed(self, place: str, mark: Mark, read_ms: int | None) -> tuple[int, str] | None:
        return open_compressed(place, mark, self._scratch, read_ms=read_ms) if mark.tells_copies else None

    def _open(self, path: str, key: FileKey) -> int | None:
        """Opens a file that was found; None if it cannot be read, or another one has its name since."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            if path not in self._unreadable:
                self._unreadable.add(path)
                again = "" if self._once else "; it is tried again"
                self._say(f"cannot read {path}: {reason(error)}{again}")
            return None
        self._unreadable.discard(path)
        there = os.fstat(fd)
        if (there.st_dev, there.st_ino) == key:
            return fd
        os.close(fd)
        self._moved = True
        return None


def _originals_first(found: tuple[FileKey, Match]) -> tuple[int, int]:
    """Sorts files before their copies, which are no longer, and changed no earlier."""
    try:
        stat = Path(found[1].path).stat()
    except OSError:
        return 0, 0
    return -stat.st_size, stat.st_ctime_ns


def entry_of(tail: Tail, *, done: bool = False) -> Entry:
    """What is saved of a file, but for the time."""
    mark = tail.acknowledged_mark
    return Entry(
        tail.file_id,
        tail.path,
        tail.place,
        tail.pattern,
        *tail.key,
        mark,
        tail.acknowledged_ordinal,
        tail.cut if tail.cut is not None and tail.cut > mark.position else None,
        tail.size,
        done,
        saved_ms=0,
    )
