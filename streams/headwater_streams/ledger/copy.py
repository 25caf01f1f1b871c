"""`headwater.ledger`: a copy of every entry, for when Delta's own log has been cleaned up.

One row for each commit of a job, keyed by (table, generation, version); copying twice changes nothing.
"""

from datetime import UTC, datetime

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from headwater_streams.delta_rows import dataset_of
from headwater_streams.ledger.log import LEDGER_TABLE, Commit, commits
from headwater_streams.runtime.home import Home

_RANGE = pa.struct(
    [("topic", pa.string()), ("partition", pa.int32()), ("start", pa.int64()), ("end", pa.int64())]
)
SCHEMA = pa.schema(
    [
        ("table", pa.string()),
        ("generation", pa.int32()),
        ("version", pa.int64()),
        ("committed_at", pa.timestamp("us", "UTC")),
        ("job", pa.string()),
        ("batch", pa.int64()),
        ("kind", pa.string()),
        ("rows_added", pa.int64()),
        ("ranges", pa.list_(_RANGE)),
        ("accounting", pa.map_(pa.string(), pa.map_(pa.string(), pa.int64()))),
        ("entry", pa.string()),
    ]
)
"""`entry` is the whole entry as JSON; the other columns are there to be queried."""


def copy_entries(home: Home, table: str) -> int:
    """Copies a table's entries that the ledger does not have yet; returns how many commits were looked at."""
    path = home.table(LEDGER_TABLE)
    known = -1
    if (path / "_delta_log").exists():
        ledger = dataset_of(path)
        versions = ledger.to_table(columns=["version"], filter=_is_table(table)).column("version")
        known = max(versions.to_pylist(), default=-1)
    rows = [_row(table, commit) for commit in commits(home.table(table), since=known + 1) if commit.entry]
    if not rows:
        return 0
    batch = pa.Table.from_pylist(rows, schema=SCHEMA)
    if known < 0:
        write_deltalake(str(path), batch.slice(0, 0), mode="ignore")
    merge = DeltaTable(str(path)).merge(
        batch,
        predicate="t.table = s.table AND t.generation = s.generation AND t.version = s.version",
        source_alias="s",
        target_alias="t",
    )
    merge.when_not_matched_insert_all().execute()
    return len(rows)


def _is_table(table: str) -> object:
    import pyarrow.compute as pc

    return pc.field("table") == table


def _row(table: str, commit: Commit) -> dict[str, object]:
    entry = commit.entry
    assert entry is not None
    ranges = [
        {"topic": topic, "partition": partition, "start": start, "end": end}
        for source in entry.sources
        for topic, partitions in source.ranges.items()
        for partition, (start, end) in partitions.items()
    ]
    accounting = [(name, list(terms.items())) for name, terms in entry.accounting.items()]
    return {
        "table": table,
        "generation": entry.generation,
        "version": commit.version,
        "committed_at": datetime.fromtimestamp(commit.timestamp_ms / 1000, UTC),
        "job": entry.job,
        "batch": entry.batch,
        "kind": entry.kind,
        "rows_added": commit.rows_added,
        "ranges": ranges,
        "accounting": accounting,
        "entry": entry.to_json(),
    }
