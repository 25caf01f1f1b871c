"""`headwater.ledger`: a copy of every entry, for when Delta's own log has been cleaned up.

One row for each commit of a job, keyed by (table, generation, version); copying twice changes nothing.

Rows are appended and not merged: see `delta_rows` for what deltalake's MERGE writes into a file.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from headwater_streams.ledger.log import LEDGER_TABLE, Commit, commits
from headwater_streams.storage.delta_files import opened_table, reading
from headwater_streams.storage.delta_log import has_versions
from headwater_streams.storage.delta_rows import dataset_of, require_table
from headwater_streams.storage.home import Home

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
_TRIES = 4


def copy_entries(home: Home, table: str) -> int:
    """Copies a table's entries that the ledger does not have yet; returns how many were copied."""
    for _ in range(_TRIES):
        try:
            return _append_new(home.table(LEDGER_TABLE), home.table(table), table)
        except CommitFailedError:
            continue  # another process copied the same entries: what is left is looked up anew
    return _append_new(home.table(LEDGER_TABLE), home.table(table), table)


def _append_new(path: Path, source: Path, table: str) -> int:
    opened = opened_table(path) if has_versions(path) else None
    copied_until = -1
    if opened is not None:
        with reading(path):
            copied = dataset_of(path, opened).to_table(columns=["version"], filter=pc.field("table") == table)
        copied_until = max(copied["version"].to_pylist(), default=-1)
    rows = [_row(table, commit) for commit in commits(source, since=copied_until + 1) if commit.entry]
    if rows and opened is None:
        require_table(path, SCHEMA)
        return _append_new(path, source, table)
    if rows and opened is not None:
        # Delta refuses the second of two appends of one transaction's name that began at the same version.
        name = Transaction(f"copy of {table}", rows[-1]["version"])
        write_deltalake(
            opened,
            pa.Table.from_pylist(rows, schema=SCHEMA),
            mode="append",
            commit_properties=CommitProperties(app_transactions=[name]),
        )
    return len(rows)


def _row(table: str, commit: Commit) -> dict[str, Any]:
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
