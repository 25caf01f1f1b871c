"""The files that are followed: takes up new ones, recognises renamed and copied ones, lets go of finished ones."""

import os
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from headwater.ship.beginnings import Beginnings
from headwater.ship.compressed import compressed_beside, is_compressed, not_unpacked, open_compressed
from headwater.ship.discovery import Match, Matches, matching_files, neighbours
from headwater.ship.errors import ReplacedError
from headwater.ship.framing import Framing, wide_encoding
from headwater.ship.known import ID_BYTES, KnownFiles
from headwater.ship.left_out import LeftOut
from headwater.ship.mark import COPY_BYTES, HEAD_BYTES, Mark, around, digest
from headwater.ship.opening import Opener
from headwater.ship.possible_copies import PossibleCopies, PossibleCopy
from headwater.ship.progress import Entry
from headwater.ship.tail import Chunk, FileKey, Tail
from headwater_streams.base.plural import quantity

DELETED_QUIET_S = 5.0
"""How long a deleted file that its writer may still hold has to be quiet before it is let go."""


class FileSet:
    """Follows what patterns name.

    Attributes:
        tails: The files that are read.
        stale: Whether a look is due, because a file was truncated or written anew.
        ended: Those that are read no more, until their last lines are acknowledged.
        refused: The paths that could not be opened at the last look.
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
        decided: Path | None = None,
    ) -> None:
        """Prepare.

        Args:
            patterns: Absolute paths or glob patterns.
            framing: How the files are divided.
            entries: The progress of earlier runs.
            limit_bytes: A longer line is not read into memory.
            from_end: The files' sizes at the start. The first look leaves out what they held then, except in files of
                a pattern that has progress. None leaves out nothing.
            close_after_s: How long a file that left the patterns has to be quiet before it is let go.
            scratch: A folder for what has to be unpacked.
            say: Takes a sentence for people.
            sent: The mark up to which a file, by its id, may have been sent; see `SentJournal`.
            once: What cannot be read is not tried again later.
            decided: The list of compressed files that earlier runs decided about; see `LeftOut`.
        """
        self._sent = sent
        self.tails: dict[FileKey, Tail] = {}
        self.ended: list[Tail] = []
        self.stale = True
        self.refused: set[str] = set()
        self._patterns = patterns
        self._framing = framing
        self._known = KnownFiles(entries, patterns)
        self._limit_bytes = limit_bytes
        self._from_end = from_end or {}
        self._progressed = self._known.progressed
        self._first = True
        self._close_after_s = close_after_s
        self._say = say
        self._scratch = scratch
        self._possible_copies = PossibleCopies(self.follows)
        self._packed: set[FileKey] = set()
        self._files = Opener(say, again=not once)
        self._left_out = LeftOut(patterns, self._known.saved_ms, decided, say=say)

    def scan(self, now: float, *, hold: bool = True) -> None:
        """Looks for files that came, left or moved.

        Args:
            now: The time of a monotonic clock.
            hold: Whether a possible copy may be left alone for a while; not what `from_end` leaves out.
        """
        matches = self._look()
        new = {key: match for key, match in matches.files.items() if key not in self.tails}
        self._resume_by_inode(new, now)
        self._find_moved(new, now)
        parts = self._find_compressed(matches, now) if self._first else set()
        self._take_up(matches, new, now, hold=hold)
        self.refused = self._files.refused([match.path for match in new.values()], matches.refused)
        for key, tail in self.tails.items():
            if key in matches.files:
                tail.place, tail.missing_at = matches.files[key].path, None
            elif tail.missing_at is None:
                tail.missing_at = now
        self._left_out.report_new(
            matches.compressed, lambda path, head: path in parts or self._is_part(path, head)
        )
        self._first, self.stale, self._files.moved = False, self._files.moved, False

    def awaits(self, now_ms: int) -> bool:
        """Whether a possible copy changed so recently that its original may still be truncated."""
        return self._possible_copies.awaits(now_ms)

    @property
    def holds(self) -> bool:
        """Whether there is a possible copy that is left alone."""
        return bool(self._possible_copies)

    def follows(self, tail: Tail) -> bool:
        """Whether a file is still read."""
        return self.tails.get(tail.key) is tail

    def read(self, tail: Tail, *, ends: bool = False) -> Chunk | None:
        """Reads from a file; if it was truncated or written anew, finds where its lines went.

        Returns:
            None if there is nothing, for now, or the file is read no more.
        """
        if not self.follows(tail):
            return None
        try:
            chunk = tail.read(ends=ends)
        except ReplacedError:
            self._find_successor(tail)
            return None
        if chunk is not None and chunk.first_ordinal == 0 and tail.framing.unit == 1:
            self._report_encoding(tail)
        return chunk

    def _report_encoding(self, tail: Tail) -> None:
        encoding = wide_encoding(tail.beginning)
        if encoding is not None:
            self._say(
                f"{tail.place} looks like {encoding} without a byte order mark, and is divided at each byte 0A: ship "
                f"it with --encoding {encoding}, and with another --name so that it is sent from its beginning"
            )

    def can_end(self, tail: Tail, now: float) -> bool:
        """Whether a file is no longer under the patterns and has been quiet for long enough."""
        if tail.missing_at is None:
            return False
        quiet_s = min(self._close_after_s, DELETED_QUIET_S) if tail.deleted else self._close_after_s
        return now - max(tail.missing_at, tail.grown_at) >= quiet_s

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
        return [] if self._first else self._known.forgotten(now_ms)

    def missed(self, now_ms: int) -> list[Entry]:
        """The entries, to be saved, of files that are missing for the first time: they say since when."""
        return [] if self._first else self._known.missed(now_ms)

    def remember(self, entry: Entry) -> None:
        """Keeps the progress of a file that was let go, in case it comes back."""
        self._known.remember(entry)

    def close(self) -> None:
        """Lets go of all files."""
        for tail in [*self.tails.values(), *self.ended]:
            tail.close()
        self._possible_copies.close()

    def _look(self) -> Matches:
        """What is under the patterns; a compressed file is recognised by its name or, once opened, by its bytes."""
        matches = matching_files(self._patterns)
        if self._first:
            files = {key: match for key, match in matches.files.items() if key not in self.tails}
            packed = [
                key for key, match in files.items() if is_compressed(self._head(key, match.path, files))
            ]
        else:
            packed = list(self._packed & matches.files.keys())
        self._packed.intersection_update(matches.files)
        for key in packed:
            self._set_aside(matches, key)
        return matches

    def _set_aside(self, matches: Matches, key: FileKey) -> None:
        self._packed.add(key)
        matches.compressed[key] = matches.files.pop(key)

    def _resume_by_inode(self, new: Mapping[FileKey, Match], now: float) -> None:
        by_inode = self._known.by_inode() if new else {}
        for key, match in new.items():
            for entry in by_inode.get(key[1], ()):
                if self._resume(entry, key, match.path, now):
                    break

    def _find_moved(self, new: Mapping[FileKey, Match], now: float) -> None:
        """Finds what was renamed out of the patterns, or copied and truncated, since an earlier run.

        A copy may be in any folder that the patterns name: logrotate's olddir.
        """
        missing = self._known.missing()
        if not missing:
            return
        places = {key: match.path for key, match in new.items() if key not in self.tails}
        if self._first:
            for folder in {Path(entry.place).parent for entry in missing}:
                beside = neighbours(str(folder / "_"))
                places = {**{key: path for key, path in beside if key not in self.tails}, **places}
        heads = {key: head for key, path in places.items() if (head := self._head(key, path, new))}
        beginnings = Beginnings(heads)
        for entry in missing:
            folder = Path(entry.place).parent
            for key in beginnings.like(entry.mark):
                is_near = key in new or Path(places[key]).parent == folder
                likely = key not in self.tails and (key[1] == entry.inode or entry.mark.tells_copies)
                if is_near and likely and self._resume(entry, key, places[key], now):
                    break

    def _head(self, key: FileKey, path: str, new: Mapping[FileKey, Match]) -> bytes:
        """The first bytes of a file; none of one that cannot be read."""
        fd = self._files.open(path, key) if key in new else self._files.open_beside(path, key)
        if fd is None:
            return b""
        try:
            return os.pread(fd, HEAD_BYTES, 0)
        finally:
            os.close(fd)

    def _find_compressed(self, matches: Matches, now: float) -> set[str]:
        """Finds what was compressed since an earlier run, and names what is gone.

        Returns:
            The compressed files in which there are followed ones.
        """
        named = [match.path for match in matches.compressed.values()]
        folders: dict[Path, list[str]] = {}
        heads: dict[str, bytes] = {}
        parts = set()
        for entry in [*self._known.missing(), *self._known.finished()]:
            read_ms = entry.saved_ms if entry.size <= entry.mark.position else None
            folder = Path(entry.place).parent
            if folder not in folders:
                folders[folder] = compressed_beside(entry.place)
            places = dict.fromkeys([*folders[folder], *named])
            unpacked = self._open_compressed(places, entry.mark, read_ms, heads)
            if unpacked is not None:
                parts.add(unpacked[1])
            if unpacked is not None and entry.done and os.fstat(unpacked[0]).st_size <= entry.mark.position:
                os.close(unpacked[0])
            elif unpacked is not None:
                self._resume_in(entry, *unpacked, now)
            elif not entry.done and entry.size > entry.mark.position:
                unread = quantity(entry.size - entry.mark.position, "byte")
                self._say(f"{entry.place} is gone, with at least {unread} of it not read yet")
        return parts

    def _is_part(self, path: str, head: bytes) -> bool:
        """Whether a compressed file, of which these are the first unpacked bytes, was made from a followed one.

        While that is followed, an equal beginning is enough; at the first look the compressed file must also have what
        was read.
        """
        tails = [*self.tails.values(), *self.ended]
        places = {tail.place for tail in tails}
        # A compressed file that appears beside a followed one of its name was made from it.
        if path in places or (not self._first and path.rpartition(".")[0] in places):
            return True
        if self._first:
            return any(
                tail.begins_like(head) and self._has_compressed(path, tail.mark)
                for tail in self.tails.values()
            )
        return len(head) >= COPY_BYTES and (
            any(tail.begins_like(head) for tail in tails)
            or any(
                entry.mark.tells_copies and digest(head[: entry.mark.head_bytes]) == entry.mark.head
                for entry in self._known
            )
        )

    def _has_compressed(self, path: str, mark: Mark) -> bool:
        unpacked = self._open_compressed([path], mark, None)
        if unpacked is not None:
            os.close(unpacked[0])
        return unpacked is not None

    def _resume(self, entry: Entry, key: FileKey, path: str, now: float) -> bool:
        fd = self._files.open_beside(path, key)
        return fd is not None and self._resume_in(entry, fd, path, now)

    def _resume_in(self, entry: Entry, fd: int, path: str, now: float) -> bool:
        head_and_before, sent = entry.mark.match_in(fd), self._sent(entry.file_id)
        differs = sent is not None and sent.position > entry.mark.position and sent.match_in(fd) is None
        if self._framing.names_are_unique and path == entry.path:
            # What was acknowledged is not sent again, even if the file was damaged since.
            mark = min(entry.mark, Mark.of_end(fd), key=lambda each: each.position)
            entry, head_and_before, differs = replace(entry, mark=mark), around(fd, mark.position), False
        if head_and_before is None or differs:
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
            head_and_before=head_and_before,
        )
        tail.place = path
        tail.look()
        self.tails[tail.key] = tail
        self._known.take(entry)
        return True

    def _take_up(self, matches: Matches, new: Mapping[FileKey, Match], now: float, *, hold: bool) -> None:
        """Follows new files, except possible copies of followed ones that are not decided yet."""
        self._possible_copies.close(self.tails.keys())  # those that were resumed from an earlier run
        alike: dict[bytes, list[Tail]] = defaultdict(list)
        for tail in self.tails.values():
            alike[tail.beginning].append(tail)
        candidates = {**{key: copy.match for key, copy in self._possible_copies}, **new}
        for key, match in sorted(candidates.items(), key=_originals_first):
            if key in self.tails:
                continue
            copy = self._possible_copies.get(key)
            fd = self._files.open(match.path, key) if copy is None else copy.fd
            if fd is None:
                continue
            head = os.pread(fd, HEAD_BYTES, 0)
            if is_compressed(head):
                self._set_aside(matches, key)
                os.close(fd)
                continue
            similar = alike[head[:COPY_BYTES]] if len(head) >= COPY_BYTES else list(self.tails.values())
            similar = [tail for tail in similar if head and tail.begins_like(head)]
            if self._replaces(match, fd, similar):
                self._possible_copies.release(key)
                continue
            backed_up = _backed_up(match, fd, similar)
            may_wait = hold and backed_up is None and self._passed_over(fd, match) is None
            likely = similar if may_wait else []
            if self._possible_copies.waits(key, match, fd, likely, now):
                continue
            copy = self._possible_copies.release(key)
            # A possible copy that left the patterns, by compression say, is dropped if a followed file has all of it.
            if not head or (
                key not in new and copy is not None and self._possible_copies.has_been_read(copy)
            ):
                os.close(fd)
                continue
            tail = self._begin(fd, match, now, copy, backed_up=backed_up)
            alike[tail.beginning].append(tail)

    def _replaces(self, match: Match, fd: int, similar: Iterable[Tail]) -> bool:
        """Goes on in a file that has all of a deleted one. `sed -i`, rsync and editors write a new file and rename it;
        a move to another file system is a copy."""
        for tail in similar:
            if tail.deleted and tail.end_in(fd) is not None:
                del self.tails[tail.key]
                tail.move_to(fd, match.path)
                self.tails[tail.key] = tail
                return True
        return False

    def _begin(
        self, fd: int, match: Match, now: float, copy: PossibleCopy | None, *, backed_up: int | None = None
    ) -> Tail:
        tail = Tail(
            fd, *match, secrets.token_hex(ID_BYTES), self._framing, limit_bytes=self._limit_bytes, now=now
        )
        passed = self._passed_over(fd, match)
        if passed is None:
            passed = backed_up
        if passed is not None:
            tail.start_behind(passed)
        elif copy is not None and copy.original.replaced and copy.still_matches():
            # Its original grew behind the copy and was read there before it was truncated.
            tail.start_behind(min(copy.mark.position, copy.original.position))
        tail.look()
        self.tails[tail.key] = tail
        return tail

    def _passed_over(self, fd: int, match: Match) -> int | None:
        """The byte up to which `from_end` leaves a file out; None if it does not."""
        if not self._first or match.pattern in self._progressed:
            return None
        stat = os.fstat(fd)
        size = self._from_end.get((stat.st_dev, stat.st_ino))
        return size if size is not None and size <= stat.st_size else None

    def _find_successor(self, tail: Tail) -> None:
        """Goes on in the copy of a file that was truncated or written anew; without one, its lines are gone."""
        del self.tails[tail.key]
        self.stale = True
        matches = self._look()
        for key, path, fd in self._copies(tail, matches):
            followed = self.tails.get(key)
            if tail.continues_in(fd) and (followed is None or not followed.mark.match_in(fd)):
                if followed is not None:  # the copy was written over it
                    self._find_successor(followed)
                self._possible_copies.close([key])
                tail.move_to(fd, path)
                self.tails[tail.key] = tail
                return
            os.close(fd)
        # What was read to its end may have grown since.
        read_ms = None if tail.size > tail.position else tail.changed_ns // 1_000_000
        named = [match.path for match in matches.compressed.values()]
        places = dict.fromkeys([*compressed_beside(tail.place), *named])
        unpacked = self._open_compressed(places, tail.mark, read_ms)
        if unpacked is not None:
            tail.move_to(*unpacked)
            self.tails[tail.key] = tail
            return
        if tail.size > tail.position:
            unread = quantity(tail.size - tail.position, "byte")
            other = not_unpacked(places, tail.place)
            self._say(
                f"{tail.place} was truncated or written anew with {unread} of it not read yet, and no copy is beside it"
                + (f", unless it is {other}, which is not unpacked here" if other else "")
            )
        tail.replaced = True
        self.ended.append(tail)

    def _copies(self, tail: Tail, matches: Matches) -> Iterator[tuple[FileKey, str, int]]:
        """What may be the copy of a file, open: possible copies, then files beside it or under the patterns."""
        others = {key: each for key, each in self._possible_copies if key != tail.key}
        for key, each in others.items():
            yield key, each.match.path, os.dup(each.fd)
        near = dict(neighbours(tail.place))
        for key, path in {**near, **{key: match.path for key, match in matches.files.items()}}.items():
            followed = self.tails.get(key)
            # A copy may be written over a followed file, which has changed then.
            if key == tail.key or key in others or (followed is not None and not followed.has_changed(path)):
                continue
            open_it = self._files.open if key in matches.files else self._files.open_beside
            fd = open_it(path, key)
            if fd is not None:
                yield key, path, fd

    def _open_compressed(
        self,
        places: Iterable[str],
        mark: Mark,
        read_ms: int | None,
        heads: dict[str, bytes] | None = None,
    ) -> tuple[int, str] | None:
        if not mark.tells_copies:
            return None
        return open_compressed(places, mark, self._scratch, read_ms=read_ms, heads=heads)


def _backed_up(match: Match, fd: int, similar: Iterable[Tail]) -> int | None:
    """How much of a new file was read when another had its name, which `sed -i.bak` and editors keep as a backup."""
    backups = (tail for tail in similar if match.path in (tail.place, tail.path))
    ends = (tail.end_in(fd, HEAD_BYTES) for tail in backups)
    return next((end for end in ends if end is not None), None)


def _originals_first(item: tuple[FileKey, Match]) -> tuple[int, int]:
    """Sorts files before their copies, which are no longer, and changed no earlier."""
    try:
        stat = Path(item[1].path).stat()
    except OSError:
        return 0, 0
    return -stat.st_size, stat.st_ctime_ns


def entry_of(tail: Tail, *, done: bool = False) -> Entry:
    """What is saved of a file, without the time."""
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
