"""Names the compressed files under the patterns whose lines may not have been shipped, each file once."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from headwater.ship.compressed import SLACK_MS, changed_ms, first_unpacked
from headwater.ship.discovery import Match
from headwater.ship.tail import FileKey

_NAMED = 10


class LeftOut:
    """Names compressed files that are left out.

    The decisions of earlier runs are in a list, by inode and time of change, since rotation renames files. Of the other
    files at a start, only those matter that were changed since progress was last saved: an older one was shipped before
    it was compressed, if its pattern was looked at by then. A part of a followed file never matters.
    """

    def __init__(
        self, patterns: Sequence[str], saved_ms: int, decided: Path | None, *, say: Callable[[str], None]
    ) -> None:
        """Prepare.

        Args:
            patterns: What is looked at.
            saved_ms: When progress of their files was last saved, in milliseconds since the epoch.
            decided: The list of what earlier runs looked at and decided about; None to keep none.
            say: Takes a sentence for people.
        """
        self._say = say
        self._saved_ms = saved_ms
        self._patterns = patterns
        self._place = decided
        self._earlier = _read(decided) if decided is not None else _Decisions()
        self._saved: _Decisions | None = None
        self._first = True
        self._decided: dict[FileKey, int] = {}
        self._growing: dict[FileKey, tuple[int, int]] = {}

    def report_new(self, compressed: Mapping[FileKey, Match], is_part: Callable[[str, bytes], bool]) -> None:
        """Names what came under the patterns since the last look and matters.

        Args:
            compressed: What is there now.
            is_part: Whether a compressed file was made from a followed one, by its path and first unpacked bytes.
        """
        self._decided = {key: at_ms for key, at_ms in self._decided.items() if key in compressed}
        matter = []
        for key, match in compressed.items():
            if key in self._decided:
                continue
            at_ms = changed_ms(match.path)
            is_old = self._first and self._is_old(key, match, at_ms)
            head = b"" if is_old else first_unpacked(match.path)
            is_part_of_one = is_old or is_part(match.path, head)
            if not (is_part_of_one or head or self._first) and self._grows(key, match.path):
                continue
            self._decided[key] = at_ms
            self._growing.pop(key, None)
            if not is_part_of_one:
                matter.append(match.path)
        if matter:
            self._say(_sentence(matter))
        self._first = False
        self._save()

    def _is_old(self, key: FileKey, match: Match, at_ms: int) -> bool:
        if self._earlier.decided.get(key) == at_ms:
            return True
        return match.pattern in self._earlier.patterns and at_ms < self._saved_ms - SLACK_MS

    def _save(self) -> None:
        decisions = _Decisions(self._earlier.patterns.union(self._patterns), dict(self._decided))
        if decisions != self._saved and self._place is not None:
            self._saved = decisions
            decided = [[*key, at_ms] for key, at_ms in decisions.decided.items()]
            new = self._place.with_name(f"{self._place.name}.new")
            with suppress(OSError):  # the next run then names them again
                new.write_text(json.dumps({"patterns": sorted(decisions.patterns), "decided": decided}))
                new.replace(self._place)

    def _grows(self, key: FileKey, path: str) -> bool:
        """Whether a file that cannot be unpacked has changed since the last look: it is being written."""
        try:
            stat = Path(path).stat()
        except OSError:
            return True
        looked, before = (stat.st_size, stat.st_mtime_ns), self._growing.get(key)
        self._growing[key] = looked
        return looked != before


@dataclass(frozen=True)
class _Decisions:
    patterns: frozenset[str] = frozenset()
    decided: dict[FileKey, int] = field(default_factory=dict)


def _read(place: Path) -> _Decisions:
    try:
        value = json.loads(place.read_bytes())
        decided = {(int(device), int(inode)): int(at_ms) for device, inode, at_ms in value["decided"]}
        return _Decisions(frozenset(map(str, value["patterns"])), decided)
    except (OSError, ValueError, TypeError, KeyError):  # there is none, or it is damaged
        return _Decisions()


def _sentence(paths: list[str]) -> str:
    if len(paths) == 1:
        return (
            f"{paths[0]} is compressed and left out: "
            "unless it was shipped before it was compressed, unpack it and ship that"
        )
    *most, last = paths[:_NAMED]
    more = len(paths) - _NAMED
    names = f"{', '.join(paths[:_NAMED])} and {more} more" if more > 0 else f"{', '.join(most)} and {last}"
    return (
        f"{names} are compressed and left out: "
        "unless they were shipped before they were compressed, unpack them and ship that"
    )
