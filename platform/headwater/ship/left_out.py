"""Which compressed files under the patterns are told of: those whose lines nobody may have shipped, and each once."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from headwater.ship.compressed import SLACK_MS, changed_ms, first_unpacked
from headwater.ship.discovery import Match
from headwater.ship.tail import FileKey

_NAMED = 10


class LeftOut:
    """Tells of compressed files.

    Of those that are there at a start, only what was changed since progress was last saved matters: what is older was
    shipped before it was compressed, or told by an earlier run, which left a list of its patterns. A part of a followed
    file never does.
    """

    def __init__(
        self, patterns: Sequence[str], saved_ms: int, earlier: Path, *, say: Callable[[str], None]
    ) -> None:
        """Prepare.

        Args:
            patterns: What is looked at.
            saved_ms: When progress of their files was last saved, in milliseconds since the epoch.
            earlier: The list of the patterns that earlier runs looked at.
            say: Takes a sentence for people.
        """
        self._say = say
        self._saved_ms = saved_ms
        self._patterns = patterns
        self._place = earlier
        self._earlier = _read(earlier)
        self._first = True
        self._decided: set[FileKey] = set()  # rotation renames what it has compressed
        self._growing: dict[FileKey, tuple[int, int]] = {}

    def tell(self, compressed: Mapping[FileKey, Match], is_part: Callable[[str, bytes], bool]) -> None:
        """Names what came under the patterns since the last look and matters.

        Args:
            compressed: What is there now.
            is_part: Whether a followed file is in one, by its path and the first bytes that it has in it.
        """
        self._decided &= compressed.keys()
        matter = []
        for key, match in compressed.items():
            if key in self._decided:
                continue
            is_old = self._first and self._is_old(match)
            head = b"" if is_old else first_unpacked(match.path)
            is_part_of_one = is_old or is_part(match.path, head)
            if not (is_part_of_one or head or self._first) and self._grows(key, match.path):
                continue
            self._decided.add(key)
            self._growing.pop(key, None)
            if not is_part_of_one:
                matter.append(match.path)
        if matter:
            self._say(_sentence(matter))
        if self._first:
            self._first = False
            self._keep_patterns()

    def _is_old(self, match: Match) -> bool:
        return match.pattern in self._earlier and changed_ms(match.path) < self._saved_ms - SLACK_MS

    def _keep_patterns(self) -> None:
        if not self._earlier.issuperset(self._patterns):
            new = self._place.with_name(f"{self._place.name}.new")
            with suppress(OSError):  # they are told again, then
                new.write_text(json.dumps(sorted(self._earlier.union(self._patterns))))
                new.replace(self._place)

    def _grows(self, key: FileKey, path: str) -> bool:
        """Whether a file that cannot be unpacked is another than at the last look: it is being written."""
        try:
            stat = Path(path).stat()
        except OSError:
            return True
        looked, before = (stat.st_size, stat.st_mtime_ns), self._growing.get(key)
        self._growing[key] = looked
        return looked != before


def _read(place: Path) -> set[str]:
    try:
        found = json.loads(place.read_bytes())
    except (OSError, ValueError):
        return set()
    return {str(each) for each in found} if isinstance(found, list) else set()


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
