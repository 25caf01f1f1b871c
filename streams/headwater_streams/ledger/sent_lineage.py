"""How far a home's lineage was told, and to whom: `lineage.json`.

    {"sent": {"http://127.0.0.1:5000": {"gold.delays": 17}}}

The number is the last version of the table that an event has told of. Where the file is gone, all is told again, under
the same ids.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater_streams.base.record import Record
from headwater_streams.ledger.log import Commit, commits_backwards
from headwater_streams.ledger.openlineage import Run, runs_of
from headwater_streams.storage.damage import DamagedFileError
from headwater_streams.storage.files import exists
from headwater_streams.storage.home import Home
from headwater_streams.storage.records import read_record, write_record

_FILE = "lineage.json"


@dataclass(frozen=True, kw_only=True)
class SentLineage(Record):
    """The last version of each table that was told, by whom it was told to."""

    WHAT = "what lineage was told"

    sent: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """It as it is stored."""
        return self.version_key() | {"sent": {to: dict(tables) for to, tables in self.sent.items()}}

    @classmethod
    def from_json(cls, value: Any) -> "SentLineage":
        """It as it was stored."""
        return cls(sent=cls.checked(value)["sent"])

    def with_version(self, to: str, table: str, version: int) -> "SentLineage":
        """The same after a version of a table was told."""
        return SentLineage(sent={**self.sent, to: {**self.sent.get(to, {}), table: version}})


def sent_lineage(home: Home) -> SentLineage:
    """How far a home's lineage was told.

    Raises:
        DamagedFileError: The file is not what was written.
    """
    path = home.root / _FILE
    try:
        return read_record(path, SentLineage) if exists(path) else SentLineage()
    except DamagedFileError as error:
        raise error.with_remedy("remove it: all is told again, under the same ids") from error


def remember_sent(home: Home, sent: SentLineage) -> None:
    """Stores how far it was told."""
    write_record(home.root / _FILE, sent)


def untold_runs(table: Path, told: int, period_ms: int, now_ms: int | None) -> list[Run]:
    """The runs of a table with commits that were not told, each whole, oldest first.

    Args:
        table: Its folder.
        told: The last version that was.
        period_ms: How long a run is.
        now_ms: The time by which runs that are not over are left for later; None takes them, too.
    """
    newest = next(commits_backwards(table), None)
    if newest is not None and newest.version < told:
        told = -1  # the table was removed and made again: all of it is new
    commits = [*_untold(table, told, period_ms)]
    runs = runs_of(reversed(commits), period_ms)
    return [
        run
        for run in runs
        if run.commits[-1].version > told and (now_ms is None or run.start_ms + period_ms <= now_ms)
    ]


def _untold(table: Path, told: int, period_ms: int) -> Iterator[Commit]:
    """The commits since the beginning of the period of the first that was not told, newest first."""
    start_ms: int | None = None
    for commit in commits_backwards(table):
        if commit.version > told:
            start_ms = commit.timestamp_ms // period_ms * period_ms
        elif start_ms is None or commit.timestamp_ms < start_ms:
            return
        yield commit
