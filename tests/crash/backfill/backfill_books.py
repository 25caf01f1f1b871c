"""What a table must hold version by version, while backfills change by which codes its rows are made."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from backfill_model import Codes, Row, Rows, digest, expected, reach, read

from headwater_streams.ledger.log import commits

_SWAPPED, _TAKEN_BACK = ("swap", "rebuild", "rewind"), ("rollback", "restore")


@dataclass
class Books:
    """A table's codes, version by version.

    Attributes:
        codes: The codes of each version that was looked at.
        digests: What each of them is.
        effects: What each backfill's swap makes of the codes that it finds.
        before: The codes that a backfill's swap found.
        restored: The version that a rewind puts the table back to.
    """

    codes: dict[int, Codes] = field(default_factory=lambda: {-1: Codes(1)})
    digests: dict[int, Row] = field(default_factory=dict)
    effects: dict[str, Callable[[Codes], Codes]] = field(default_factory=dict)
    before: dict[str, Codes] = field(default_factory=dict)
    restored: dict[str, int] = field(default_factory=dict)

    @property
    def now(self) -> Codes:
        """The codes of the newest version that was looked at."""
        return self.codes[max(self.codes)]

    def look(self, path: Path, table: str) -> None:
        """Looks at the versions that came since: each must be of its codes to the last row."""
        for commit in commits(path, since=max(self.codes) + 1):
            codes, extra = self.now, commit.entry.extra if commit.entry is not None else {}
            backfill_id, action = extra.get("backfill", ""), extra.get("action")
            if backfill_id in self.effects and action in _SWAPPED:
                self.before[backfill_id] = codes
                codes = self.effects[backfill_id](codes)
            elif backfill_id in self.before and action in _TAKEN_BACK:
                codes = self.before[backfill_id]
            rows = read(path, table, commit.version)
            wanted = expected(table, codes, reach(table, rows))
            where = f"{table} version {commit.version} ({commit.operation}, {backfill_id} {action})"
            assert rows == wanted, f"{where}: {_first_difference(rows, wanted)}"
            if action == "rewind":
                assert rows == read(path, table, self.restored[backfill_id]), where
            self.codes[commit.version], self.digests[commit.version] = codes, digest(table, rows)


def _first_difference(rows: Rows, wanted: Rows) -> str:
    found, right = set(rows), set(wanted)
    return (
        f"{len(rows)} rows, {len(found)} of them different, {len(wanted)} expected; not to be there: "
        f"{sorted(found - right, key=repr)[:5]}; missing: {sorted(right - found, key=repr)[:5]}"
    )
