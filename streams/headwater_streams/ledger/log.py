"""Reads ledger entries back: from a table's Delta log, and from `headwater.ledger` where the log is gone."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headwater_streams.ledger.entry import LedgerEntry


@dataclass(frozen=True)
class Commit:
    """One version of a table.

    Attributes:
        version: The Delta version.
        timestamp_ms: When it was committed.
        operation: Delta's name of the operation, "STREAMING UPDATE", "MERGE", "OPTIMIZE".
        rows_added: Rows in the files that the commit added, from their statistics.
        rows_removed: Rows in the files that it removed, where the log says how many.
        data_changed: False when the commit only moved rows between files.
        entry: The ledger entry, when a job made the commit.
        added_paths: The files it added, relative to the table.
        removed_files: How many files it took away.
    """

    version: int
    timestamp_ms: int
    operation: str
    rows_added: int
    rows_removed: int
    data_changed: bool
    entry: LedgerEntry | None
    added_paths: tuple[str, ...] = ()
    removed_files: int = 0

    @property
    def is_append(self) -> bool:
        """Whether a stream over the table reads the commit's rows: it added some and took none away."""
        return self.data_changed and not self.removed_files and bool(self.added_paths)


def commits(table: Path, *, since: int = 0, until: int | None = None) -> Iterator[Commit]:
    """The commits whose log files exist, oldest first, versions in `[since, until)`."""
    for version, path in _log_files(table):
        if version >= since and (until is None or version < until):
            yield _read(version, path)


def next_commit(table: Path) -> int:
    """The version that the table's next commit will be; no log file is read."""
    files = _log_files(table)
    return files[-1][0] + 1 if files else 0


def commits_backwards(table: Path) -> Iterator[Commit]:
    """The commits whose log files exist, newest first."""
    for version, path in reversed(_log_files(table)):
        yield _read(version, path)


def last_entry(table: Path, job: str, generation: int) -> LedgerEntry | None:
    """The newest entry of a job's generation; commits by others may be newer and are looked behind."""
    for commit in commits_backwards(table):
        entry = commit.entry
        if (
            entry is not None
            and (entry.job, entry.generation) == (job, generation)
            and entry.kind != "backfill"
        ):
            return entry
    return None


def _log_files(table: Path) -> list[tuple[int, Path]]:
    found = (table / "_delta_log").glob("*.json")
    return sorted((int(path.stem), path) for path in found if path.stem.isdigit())


def _read(version: int, path: Path) -> Commit:
    timestamp_ms, operation, entry = 0, "", None
    rows_added = rows_removed = removed_files = 0
    changed = False
    added: list[str] = []
    with path.open() as lines:
        for line in lines:
            action = json.loads(line)
            if "commitInfo" in action:
                info = action["commitInfo"]
                timestamp_ms, operation = info.get("timestamp", 0), info.get("operation", "")
                entry = LedgerEntry.from_json(info.get("userMetadata"))
            elif "add" in action:
                added.append(action["add"]["path"])
                rows_added += _records(action["add"])
                changed |= bool(action["add"]["dataChange"])
            elif "remove" in action:
                removed_files += 1
                rows_removed += _records(action["remove"])
                changed |= bool(action["remove"]["dataChange"])
    return Commit(
        version,
        timestamp_ms,
        operation,
        rows_added,
        rows_removed,
        changed,
        entry,
        tuple(added),
        removed_files,
    )


def _records(action: dict[str, str]) -> int:
    stats = action.get("stats")
    return int(json.loads(stats)["numRecords"]) if stats else 0
