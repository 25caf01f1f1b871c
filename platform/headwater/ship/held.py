"""New files that look like copies of followed ones, and are left alone until it is known what they are."""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from headwater.ship.discovery import Match
from headwater.ship.mark import HEAD_BYTES, Mark
from headwater.ship.tail import CHUNK_BYTES, FileKey, Tail

HOLD_S = 10.0
"""How long a file that looks like the copy of a followed one is left alone once it lacks less than CHUNK_BYTES of it:
logrotate's copytruncate copies first and truncates then. If nothing is truncated by then it is a file of its own."""


@dataclass
class Held:
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


class HeldFiles:
    """The files that are left alone."""

    def __init__(self, follows: Callable[[Tail], bool]) -> None:
        """Takes what tells whether a file is read still."""
        self._follows = follows
        self._held: dict[FileKey, Held] = {}

    def __bool__(self) -> bool:
        return bool(self._held)

    def __iter__(self) -> Iterator[tuple[FileKey, Held]]:
        return iter(list(self._held.items()))

    def get(self, key: FileKey) -> Held | None:
        """The file of a key, if it is left alone."""
        return self._held.get(key)

    def release(self, key: FileKey) -> Held | None:
        """Leaves a file alone no longer; its descriptor is the caller's."""
        return self._held.pop(key, None)

    def close(self, keys: Iterable[FileKey] | None = None) -> None:
        """Lets go of some of the files, or of all."""
        for key in list(self._held if keys is None else self._held.keys() & set(keys)):
            os.close(self._held.pop(key).fd)

    def awaits(self, now_ms: int) -> bool:
        """Whether one of them changed so lately that what it is the copy of may yet be truncated."""
        changed_ms = (os.fstat(held.fd).st_ctime_ns // 1_000_000 for held in self._held.values())
        return any(now_ms - each < HOLD_S * 1000 for each in changed_ms)

    def waits(self, key: FileKey, match: Match, fd: int, likely: Iterable[Tail], now: float) -> bool:
        """Whether a file is left alone: while its original may be truncated, or has lines that wait."""
        held = self._held.get(key)
        mark = Mark.of_end(fd)
        for tail in likely:
            missing = tail.missing_in(fd, mark)
            if missing is None:
                continue
            if held is None:
                held = self._held[key] = Held(match, fd, now, tail, mark, missing)
            elif held.missing >= CHUNK_BYTES and mark != held.mark:
                held.since = now
            held.match, held.original, held.mark, held.missing = match, tail, mark, missing
            return now - held.since < HOLD_S
        if held is None:
            return False
        original = held.original
        if self._follows(original):
            return not original.has(original.mark)  # truncated, as `read` will find
        return original.replaced and original.waiting

    def has_been_read(self, held: Held) -> bool:
        """Whether a followed file has all of one."""
        return self._follows(held.original) and held.original.has(Mark.of_end(held.fd))
