"""New files that look like copies of followed ones; they are left alone until that is decided."""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from headwater.ship.discovery import Match
from headwater.ship.mark import HEAD_BYTES, Mark
from headwater.ship.tail import CHUNK_BYTES, FileKey, Tail

HOLD_S = 10.0
"""How long a possible copy is left alone once it lacks less than CHUNK_BYTES of its original: logrotate's copytruncate
copies first and truncates then. If the original is not truncated by then, it is a file of its own."""


@dataclass
class PossibleCopy:
    """A new file that looks like the copy of a followed one, and is looked at again before it is read.

    Attributes:
        match: Where it is.
        fd: The file, open: a copy may be compressed and deleted as soon as it is made.
        since: When it was first seen, or seen to grow after much had been missing.
        original: The file that it looks like a copy of.
        mark: The mark up to which it was equal to that.
        missing: How many bytes of the original it lacked then.
    """

    match: Match
    fd: int
    since: float
    original: Tail
    mark: Mark
    missing: int

    def still_matches(self) -> bool:
        """Whether it still has what was compared, and that is enough to leave out what was read in its original."""
        return self.mark.head_bytes == HEAD_BYTES and self.mark.match_in(self.fd) is not None


class PossibleCopies:
    """The files that are left alone."""

    def __init__(self, follows: Callable[[Tail], bool]) -> None:
        """Takes a function that says whether a file is still read."""
        self._follows = follows
        self._files: dict[FileKey, PossibleCopy] = {}

    def __bool__(self) -> bool:
        return bool(self._files)

    def __iter__(self) -> Iterator[tuple[FileKey, PossibleCopy]]:
        return iter(list(self._files.items()))

    def get(self, key: FileKey) -> PossibleCopy | None:
        """The file of a key, if it is left alone."""
        return self._files.get(key)

    def release(self, key: FileKey) -> PossibleCopy | None:
        """Removes a file from the set; the caller owns its descriptor."""
        return self._files.pop(key, None)

    def close(self, keys: Iterable[FileKey] | None = None) -> None:
        """Lets go of some of the files, or of all."""
        for key in list(self._files if keys is None else self._files.keys() & set(keys)):
            os.close(self._files.pop(key).fd)

    def awaits(self, now_ms: int) -> bool:
        """Whether one of them changed so recently that its original may still be truncated."""
        changed_ms = (os.fstat(copy.fd).st_ctime_ns // 1_000_000 for copy in self._files.values())
        return any(now_ms - each < HOLD_S * 1000 for each in changed_ms)

    def waits(self, key: FileKey, match: Match, fd: int, likely: Iterable[Tail], now: float) -> bool:
        """Whether a file is left alone: while its original may be truncated, or has lines that wait."""
        copy = self._files.get(key)
        mark = Mark.of_end(fd)
        for tail in likely:
            missing = tail.missing_in(fd, mark)
            if missing is None:
                continue
            if copy is None:
                copy = self._files[key] = PossibleCopy(match, fd, now, tail, mark, missing)
            elif copy.missing >= CHUNK_BYTES and mark != copy.mark:
                copy.since = now
            copy.match, copy.original, copy.mark, copy.missing = match, tail, mark, missing
            return now - copy.since < HOLD_S
        if copy is None:
            return False
        original = copy.original
        if self._follows(original):
            return not original.has(original.mark)  # truncated, as `read` will find
        return original.replaced and original.waiting

    def has_been_read(self, copy: PossibleCopy) -> bool:
        """Whether a followed file has all of a possible copy."""
        return self._follows(copy.original) and copy.original.has(Mark.of_end(copy.fd))
