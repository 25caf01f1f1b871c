"""Removes what is too old from a table's Delta log, once its entries are in `headwater.ledger`.

Delta's own clean-up is switched off: it would take the entries with it. The log is cut at one of its checkpoints, so
that every version from there on can still be read. What is kept, however old:

- the newest hundred commits;
- what a job that reads the table has not read yet;
- versions that a rollback would put back.
"""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from headwater_streams.base.extra import Extra
from headwater_streams.base.ledger_entry import warm_up_sources
from headwater_streams.ledger.copy import copy_entries
from headwater_streams.ledger.log import commits, first_version, next_commit
from headwater_streams.storage.files import is_file, matching, remove
from headwater_streams.storage.home import Home

KEPT_COMMITS = 100


def clean_log(home: Home, table: str, *, older_than: datetime, kept: int = KEPT_COMMITS) -> int:
    """Copies a table's entries, then removes the log files that are older and not needed.

    Args:
        home: The home.
        table: The table.
        older_than: Commits since then are kept.
        kept: How many of the newest commits are kept.

    Returns:
        How many versions were removed.
    """
    path = home.table(table)
    copy_entries(home, table)
    first, limit = first_version(path), next_commit(path) - kept
    if limit <= first:
        return 0
    oldest_ms = older_than.timestamp() * 1000
    for commit in commits(path, since=first):
        if commit.version < limit and commit.timestamp_ms >= oldest_ms:
            limit = commit.version
    limit = min([limit, *offered_versions(path), *next_versions(home, table)])
    cut = max((version for version in _checkpoints(path) if version <= limit), default=first)
    doomed = sorted((number, file) for number, file in _numbered(path) if number < cut)
    for _, file in doomed:  # oldest first: what is left of the log when this is cut short is whole
        remove(file)
    return max(0, cut - first)


def offered_versions(table: Path) -> Iterator[int]:
    """The versions that swaps of backfills replaced and that a rollback can still put back."""
    offered: dict[str, int] = {}
    for entry in (commit.entry for commit in commits(table, since=first_version(table))):
        if entry is None or not Extra.BACKFILL.is_in(entry):
            continue
        backfill, action = Extra.BACKFILL.of(entry), Extra.ACTION.of(entry)
        if action in ("swap", "rebuild", "rewind"):
            offered[backfill] = Extra.REPLACED_VERSION.of(entry)
        elif action in ("rollback", "restore"):
            offered.pop(backfill, None)
    yield from offered.values()


def next_versions(home: Home, table: str) -> Iterator[int]:
    """For each job that reads the table, the version that it reads next; one that reads it again for its state begins
    there."""
    for name in home.tables():
        ends: dict[str, int] = {}
        for commit in commits(home.table(name), since=first_version(home.table(name))):
            if commit.entry is None:
                continue
            again = warm_up_sources(commit.entry)
            for source in again or commit.entry.sources:
                if source.table == table and source.versions is not None:
                    ends[commit.entry.job] = source.versions[0 if again else 1]
        yield from ends.values()


def _checkpoints(path: Path) -> Iterator[int]:
    for number, file in _numbered(path):
        if file.name.endswith(".checkpoint.parquet"):
            yield number


def _numbered(path: Path) -> Iterator[tuple[int, Path]]:
    for file in matching(path / "_delta_log"):
        number = file.name.partition(".")[0]
        if number.isdigit() and is_file(file):
            yield int(number), file
