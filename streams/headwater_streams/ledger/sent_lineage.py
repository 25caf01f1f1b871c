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
from headwater_streams.ledger.log import commits, next_commit
from headwater_streams.ledger.openlineage import Run, is_told, runs_of
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

    def of(self, to: str, table: str) -> int:
        """The last version of a table that was told; -1 where none was."""
        return self.sent.get(to, {}).get(table, -1)

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


def untold_runs(table: Path, told: int, period_ms: int, now_ms: int | None) -> Iterator[Run]:
    """The runs of a table with commits that were not told, each whole, in the order in which they are to be told: once
    one is, all commits up to its last one are.

    Args:
        table: Its folder.
        told: The last version that was.
        period_ms: How long a run is.
        now_ms: The time by which runs that are not over are left for later; None takes them, too.
    """
    if next_commit(table) <= told:
        told = -1  # the table was removed and made again: all of it is new
    first = next(filter(is_told, commits(table, since=told + 1)), None)
    if first is None:
        return
    over_ms = None if now_ms is None else now_ms - period_ms
    start_ms = first.timestamp_ms // period_ms * period_ms
    if over_ms is not None and start_ms > over_ms:
        return
    since = _begin_of_period(table, told + 1, start_ms)
    for run in runs_of(commits(table, since=since), period_ms):
        if over_ms is not None and run.start_ms > over_ms:
            return
        if run.commits[-1].version > told:
            yield run


def _begin_of_period(table: Path, version: int, start_ms: int) -> int:
    """The first of the versions before one that are of the same period, or that one."""
    while version > 0:
        earlier = next(commits(table, since=version - 1, until=version), None)
        if earlier is None or earlier.timestamp_ms < start_ms:
            break
        version -= 1
    return version
