"""The records that jobs rejected, as they are worked on: found by check, time and offsets, replayed, or discarded.

A rejected row is never removed by hand: the ledger counts it. What a person has decided to leave as it is stands in
`quality.discarded`, by the record's coordinates, and is left out of what is still open.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import reduce
from operator import and_, or_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import write_deltalake

from headwater_streams.base.ledger_entry import Ranges
from headwater_streams.base.target import QUARANTINE_SUFFIX
from headwater_streams.quality.rejected import CHECK, names_in
from headwater_streams.storage.delta_files import opened_table, reading
from headwater_streams.storage.delta_log import has_versions
from headwater_streams.storage.delta_rows import dataset_of, require_table
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
TOPIC, PARTITION, OFFSET, TIMESTAMP = "_topic", "_partition", "_offset", "_timestamp"
ROW, BATCH, GENERATION = "_row", "_batch", "_generation"
"""As in `sources.coordinates`, which needs Spark."""
_PLACE = [TOPIC, PARTITION, OFFSET]
_COLUMNS = pa.schema(
    [
        (CHECK, pa.string()),
        (TOPIC, pa.string()),
        (PARTITION, pa.int32()),
        (OFFSET, pa.int64()),
        (TIMESTAMP, pa.timestamp("us", "UTC")),
        (ROW, pa.int64()),
        (BATCH, pa.int64()),
        (GENERATION, pa.int32()),
    ]
)
"""What is read of a quarantine: the records themselves may be more than memory holds."""


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

    def condition(self) -> pc.Expression | None:
        """Which they are by time and offsets, to Arrow; None for all."""
        parts = list[pc.Expression]()
        if self.since is not None:
            parts.append(pc.field(TIMESTAMP) >= self.since)
        if self.until is not None:
            parts.append(pc.field(TIMESTAMP) < self.until)
        if self.offsets is not None:
            ranges = [
                (pc.field(TOPIC) == topic)
                & (pc.field(PARTITION) == partition)
                & (pc.field(OFFSET) >= start)
                & (pc.field(OFFSET) < end)
                for topic, partitions in self.offsets.items()
                for partition, (start, end) in partitions.items()
            ]
            parts.append(reduce(or_, ranges, pc.scalar(False)))
        return reduce(and_, parts) if parts else None


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
    """The rejected records of a table that match, by their coordinates, each as it was rejected last; without values.

    A record that was rejected again, as a job was rebuilt, stands once.
    """
    found: list[dict[str, Any]] = rejected_rows(home, table, which or Which()).to_pylist()
    return found


def rejected_rows(home: Home, table: str, which: Which) -> pa.Table:
    """The same as a table."""
    path = home.table(table + QUARANTINE_SUFFIX)
    if not has_versions(path):
        return _COLUMNS.empty_table()
    with reading(path):
        rows = dataset_of(path)
        names = [name for name in _COLUMNS.names if name in rows.schema.names]
        found = rows.to_table(columns=names, filter=which.condition())
    if which.checks:
        texts = [text for text in found[CHECK].unique().to_pylist() if {*which.checks} & {*names_in(text)}]
        found = found.filter(pc.is_in(found[CHECK], value_set=pa.array(texts, pa.string())))
    for name, nothing in zip(_PLACE, ("", 0, 0), strict=True):
        filled = found[name].fill_null(nothing).cast(_COLUMNS.field(name).type)
        found = found.set_column(found.schema.get_field_index(name), name, filled)
    if not which.discarded:
        gone = pa.Table.from_pylist(
            [dict(zip(_PLACE, place, strict=True)) for place in discarded(home, table)],
            schema=pa.schema([_COLUMNS.field(name) for name in _PLACE]),
        )
        found = found.join(gone, _PLACE, join_type="left anti")
    in_order = found.sort_by([(name, "ascending") for name in (GENERATION, BATCH) if name in names])
    keys = [*_PLACE, *({ROW} & {*names})]
    others = [name for name in names if name not in keys]
    last = in_order.group_by(keys, use_threads=False).aggregate(
        [(name, "last", pc.ScalarAggregateOptions(skip_nulls=False)) for name in others]
    )
    return last.rename_columns([name.removesuffix("_last") for name in last.column_names]).sort_by(
        [(name, "ascending") for name in keys]
    )


def place_of(row: Mapping[str, Any]) -> Place:
    """The coordinates of a row's record."""
    return row[TOPIC], row[PARTITION], row[OFFSET]


def summaries(home: Home) -> list[Summary]:
    """Each quarantine of a home that has rows."""
    result = []
    for name in home.tables():
        table = name.removesuffix(QUARANTINE_SUFFIX)
        if table == name:
            continue
        records = rejected_rows(home, table, Which(discarded=True)).num_rows
        if not records:
            continue
        found, checks = rejected_rows(home, table, Which()), Counter[str]()
        for each in found[CHECK].value_counts().to_pylist():
            checks.update(dict.fromkeys(names_in(each["values"]), each["counts"]))
        newest = pc.max(found[TIMESTAMP]).as_py()
        rows = found.num_rows
        result.append(Summary(table, rows, records - rows, dict(checks.most_common()), newest))
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
        columns = ["topic", "partition", "offset", "why"]
        rows = dataset_of(path).to_table(columns=columns, filter=pc.field("table") == table).to_pylist()
    return {(row["topic"], row["partition"], row["offset"]): row["why"] for row in rows}


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
    require_table(path, DISCARDED_SCHEMA)
    write_deltalake(opened_table(path), pa.Table.from_pylist(noted, schema=DISCARDED_SCHEMA), mode="append")
    return len(noted)
