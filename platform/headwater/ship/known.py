"""The progress of earlier runs: which files are searched for, and how long it is kept."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from headwater.ship.places import astray
from headwater.ship.progress import Entry

ID_BYTES = 8
_DRAWN = re.compile(f"[0-9a-f]{{{2 * ID_BYTES}}}")

FORGET_MS = 7 * 86_400_000
"""How long the progress of a file that is nowhere to be found is kept: its folder may be mounted again."""


class KnownFiles:
    """The saved progress of files that are not read now.

    Attributes:
        progressed: The patterns that have progress.
        saved_ms: When something of this run's patterns was last saved, in milliseconds since the epoch.
    """

    def __init__(self, entries: Iterable[Entry], patterns: Sequence[str]) -> None:
        """Takes what is saved.

        Args:
            entries: The progress of earlier runs.
            patterns: The patterns of this one: the files of others are left alone.
        """
        self._patterns = patterns
        # A line that is too long is kept in a file named by the id: an id that no shipper drew could be any path.
        self._entries = {entry.file_id: entry for entry in entries if _DRAWN.fullmatch(entry.file_id)}
        strange = astray({entry.place for entry in self._entries.values()}, patterns)
        self._astray = {entry.file_id for entry in self._entries.values() if entry.place in strange}
        self.progressed = {entry.pattern for entry in self._entries.values()}
        self.saved_ms = max((entry.saved_ms for entry in self._here()), default=0)

    def __iter__(self) -> Iterator[Entry]:
        return iter(list(self._entries.values()))

    def by_inode(self) -> dict[int, list[Entry]]:
        """All entries by inode. A truncated file's inode has two: the longer one comes first, as it says more."""
        entries: dict[int, list[Entry]] = {}
        for entry in sorted(self._entries.values(), key=lambda each: -each.mark.position):
            entries.setdefault(entry.inode, []).append(entry)
        return entries

    def missing(self) -> list[Entry]:
        """The entries whose files are searched for where they were last seen."""
        return [entry for entry in self._here() if not entry.done and entry.file_id not in self._astray]

    def finished(self) -> list[Entry]:
        """The entries of files that were read to their ends and let go."""
        return [entry for entry in self._here() if entry.done and entry.file_id not in self._astray]

    def take(self, entry: Entry) -> None:
        """Removes an entry whose file is read again."""
        del self._entries[entry.file_id]

    def remember(self, entry: Entry) -> None:
        """Keeps the progress of a file that was let go, in case it comes back."""
        self._astray.discard(entry.file_id)
        self._entries[entry.file_id] = entry

    def forgotten(self, now_ms: int) -> list[str]:
        """The ids of files that were not found for FORGET_MS; they are no longer looked for."""
        gone = []
        for entry in self._here():
            since_ms = entry.saved_ms if entry.done else entry.missed_ms
            if since_ms is not None and now_ms - since_ms > FORGET_MS:
                gone.append(entry.file_id)
                del self._entries[entry.file_id]
        return gone

    def missed(self, now_ms: int) -> list[Entry]:
        """The entries, to be saved, of files that are missing for the first time: they say since when."""
        missed = [
            replace(entry, missed_ms=now_ms)
            for entry in self._here()
            if entry.missed_ms is None and not entry.done
        ]
        self._entries.update({entry.file_id: entry for entry in missed})
        return missed

    def _here(self) -> list[Entry]:
        return [entry for entry in self._entries.values() if entry.pattern in self._patterns]
