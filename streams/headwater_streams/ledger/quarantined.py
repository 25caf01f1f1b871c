"""The records that jobs rejected, as they are worked on: found by check, time and offsets, replayed, or discarded.

A rejected row is never removed by hand: the ledger counts it. What a person has decided to leave as it is stands in
`quality.discarded`, by the record's coordinates, and is left out of what is still open.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from headwater_streams.base.ledger_entry import Ranges
from headwater_streams.base.target import QUARANTINE_SUFFIX
from headwater_streams.quality.rejected import CHECK, reasons
from headwater_streams.sources.coordinates import OFFSET, PARTITION, TIMESTAMP, TOPIC
from headwater_streams.storage.delta_files import opened_table, reading
from headwater_streams.storage.delta_log import has_versions
from headwater_streams.storage.delta_rows import dataset_of
from headwater_streams.storage.home import Home

DISCARDED_TABLE = "quality.discarded"
DISCARDED_SCHEMA = pa.schema(
    [
        ("table", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("checks", pa.string()),
        ("why", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
Place = tuple[str, int, int]


@dataclass(frozen=True, kw_only=True)
class Which:
    """Which rejected records are meant; all by default.

    Attributes:
        checks: Those that one of these checks rejected.
        since: Those whose record's own time is this or later.
        until: Those whose record's own time is before this.
        offsets: Those in these half-open ranges, topic -> partition -> (start, end).
        discarded: Whether those that were discarded are among them.
    """

    checks: Sequence[str] = ()
    since: datetime | None = None
    until: datetime | None = None
    offsets: Ranges | None = None
    discarded: bool = False

    def matches(self, row: Mapping[str, Any]) -> bool:
        """Whether a rejected row is one of them, but for what was discarded."""
        if self.checks and not set(self.checks) & set(reasons(row)):
            return False
        at = row[TIMESTAMP]
        if self.since is not None and (at is None or at < self.since):
            return False
        if self.until is not None and (at is None or at >= self.until):
            return False
        if self.offsets is None:
            return True
        start, end = self.offsets.get(row[TOPIC], {}).get(row[PARTITION], (0, 0))
        return bool(start <= row[OFFSET] < end)


@dataclass(frozen=True)
class Summary:
    """A quarantine in numbers.

    Attributes:
        table: The table whose rows were rejected.
        rows: How many are still open.
        discarded: How many were discarded.
        checks: How many of the open ones each check rejected; a row counts for each of its reasons.
        newest: The time of the newest open record.
    """

    table: str
    rows: int
    discarded: int
    checks: Mapping[str, int] = field(default_factory=dict)
    newest: datetime | None = None


def rejected(home: Home, table: str, which: Which | None = None) -> list[dict[str, Any]]:
    """The rejected records of a table that match, by their coordinates; the last rejection of each.

    A record that was rejected again, as a job was rebuilt, stands once.
    """
    which, path = which or Which(), home.table(table + QUARANTINE_SUFFIX)
    if not has_versions(path):
        return []
    with reading(path):
        rows = dataset_of(path).to_table().to_pylist()
    gone = {} if which.discarded else discarded(home, table)
    last: dict[tuple[Place, Any], dict[str, Any]] = {}
    for row in sorted(rows, key=lambda each: (each.get("_generation") or 0, each.get("_batch") or 0)):
        if place_of(row) not in gone and which.matches(row):
            last[place_of(row), row.get("_row")] = row
    return [last[key] for key in sorted(last, key=lambda key: (key[0], key[1] or 0))]


def place_of(row: Mapping[str, Any]) -> Place:
    """The coordinates of a row's record."""
    return row[TOPIC] or "", row[PARTITION] or 0, row[OFFSET] or 0


def summaries(home: Home) -> list[Summary]:
    """Each quarantine of a home that has rows."""
    result = []
    for name in home.tables():
        table = name.removesuffix(QUARANTINE_SUFFIX)
        if table == name:
            continue
        all_rows, gone = rejected(home, table, Which(discarded=True)), discarded(home, table)
        rows = [row for row in all_rows if place_of(row) not in gone]
        if not all_rows:
            continue
        checks = Counter(check for row in rows for check in reasons(row))
        times = [row[TIMESTAMP] for row in rows if row[TIMESTAMP] is not None]
        newest = max(times, default=None)
        result.append(
            Summary(table, len(rows), len(all_rows) - len(rows), dict(checks.most_common()), newest)
        )
    return result


def hull(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, tuple[int, int]]]:
    """The smallest range of each partition that holds the rows' records: what a replay reads again.

    Example:
        >>> hull([{"_topic": "t", "_partition": 0, "_offset": n} for n in (7, 3)])
        {'t': {0: (3, 8)}}
    """
    ranges: dict[str, dict[int, tuple[int, int]]] = {}
    for row in rows:
        topic, partition, offset = place_of(row)
        start, end = ranges.setdefault(topic, {}).get(partition, (offset, offset + 1))
        ranges[topic][partition] = (min(start, offset), max(end, offset + 1))
    return ranges


def discarded(home: Home, table: str) -> dict[Place, str]:
    """The records of a table's quarantine that were discarded, with the reason that somebody gave."""
    path = home.table(DISCARDED_TABLE)
    if not has_versions(path):
        return {}
    with reading(path):
        rows = dataset_of(path).to_table().to_pylist()
    return {
        (row["topic"], row["partition"], row["offset"]): row["why"] for row in rows if row["table"] == table
    }


def discard(home: Home, table: str, rows: Sequence[Mapping[str, Any]], why: str, now_ms: int) -> int:
    """Notes that rejected records are to be left as they are; returns how many were not noted before."""
    before, path = discarded(home, table), home.table(DISCARDED_TABLE)
    new = {place_of(row): row for row in rows if place_of(row) not in before}
    if not new:
        return 0
    noted = [
        {
            "table": table,
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "checks": row[CHECK],
            "why": why,
            "at": datetime.fromtimestamp(now_ms / 1000, UTC),
        }
        for (topic, partition, offset), row in new.items()
    ]
    if not has_versions(path):
        write_deltalake(str(path), DISCARDED_SCHEMA.empty_table(), mode="ignore")
    write_deltalake(opened_table(path), pa.Table.from_pylist(noted, schema=DISCARDED_SCHEMA), mode="append")
    return len(noted)
