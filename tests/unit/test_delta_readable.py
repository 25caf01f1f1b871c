"""What the library writes without Spark is plain Parquet: no string views, which other readers cannot open."""

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from headwater_streams.base.ledger_entry import LedgerEntry
from headwater_streams.delta.compaction import compact
from headwater_streams.ledger.copy import copy_entries
from headwater_streams.ledger.log import LEDGER_TABLE
from headwater_streams.operators.dedup.intervals import IntervalSet
from headwater_streams.operators.dedup.memory import SEEN_TABLE, ColdOrigins, take_over
from headwater_streams.runtime.progress import PROGRESS_TABLE, ProgressLog
from headwater_streams.runtime.upkeep import Upkeep, tidy
from headwater_streams.storage.delta_rows import remove_rows
from headwater_streams.storage.home import Home

TABLE = "silver.clicks"


def commit(home: Home, batch: int) -> None:
    entry = LedgerEntry(
        job="clean",
        generation=1,
        batch=batch,
        table=TABLE,
        kind="row",
        sources=(),
        accounting={"clicks": {"read": 1}},
    ).to_json()
    noted = CommitProperties(custom_metadata={"userMetadata": entry})
    write_deltalake(
        str(home.table(TABLE)), pa.table({"a": [f"{batch}"]}), mode="append", commit_properties=noted
    )


def views(table: Path) -> list[str]:
    """The columns, at any depth, that a file of the folder says to be views."""
    files = [*table.glob("*.parquet"), *table.glob("_delta_log/*.parquet")]
    assert files
    return [
        f"{file.name}: {field.name} {field.type}"
        for file in files
        for field in pq.ParquetFile(file).schema_arrow
        if "view" in str(field.type)
    ]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def ledger_of(home: Home) -> list[tuple[str, int]]:
    rows = DeltaTable(str(home.table(LEDGER_TABLE))).to_pyarrow_table().to_pylist()
    return [(row["table"], row["version"]) for row in sorted(rows, key=lambda row: int(row["version"]))]


def test_ledger_has_no_string_views_and_each_entry_once(home: Home) -> None:
    for batch in range(4):
        commit(home, batch)
        assert copy_entries(home, TABLE) == 1
        assert copy_entries(home, TABLE) == 0
    path = home.table(LEDGER_TABLE)
    compact(path)
    DeltaTable(str(path)).create_checkpoint()
    assert ledger_of(home) == [(TABLE, version) for version in range(4)]
    assert views(path) == []
    protocol = DeltaTable(str(path)).protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)


def test_ledger_of_a_version_before_is_mended_by_its_upkeep(home: Home) -> None:
    commit(home, 0)
    copy_entries(home, TABLE)
    ledger = DeltaTable(str(home.table(LEDGER_TABLE)))
    rows = pa.table(ledger.to_pyarrow_table()).set_column(2, "version", pa.array([7], pa.int64()))
    merged = ledger.merge(rows, "t.version = s.version", source_alias="s", target_alias="t")
    merged.when_not_matched_insert_all().execute()
    assert views(home.table(LEDGER_TABLE))
    commit(home, 1)
    tidy(home, Upkeep())
    live = [uri.removeprefix("file://") for uri in DeltaTable(str(home.table(LEDGER_TABLE))).file_uris()]
    assert [pq.ParquetFile(file).schema_arrow.field("job").type for file in live] == [pa.string()]
    assert [version for _, version in ledger_of(home)] == [0, 7]


def test_ledger_copied_by_several_at_once_has_each_entry_once(home: Home) -> None:
    commit(home, 0)
    copy_entries(home, TABLE)
    for batch in range(1, 20):
        commit(home, batch)
    begin, faults = threading.Barrier(6), []

    def copy() -> None:
        begin.wait()
        try:
            copy_entries(home, TABLE)
        except Exception as error:
            faults.append(error)

    threads = [threading.Thread(target=copy) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert ledger_of(home) == [(TABLE, version) for version in range(20)]


def test_ledger_of_a_table_without_entries_is_not_begun(home: Home) -> None:
    write_deltalake(str(home.table(TABLE)), pa.table({"a": ["x"]}))
    assert copy_entries(home, TABLE) == 0
    assert not home.table(LEDGER_TABLE).exists()


def test_progress_that_was_forgotten_in_part_has_no_string_views(home: Home) -> None:
    moments = [datetime.now(UTC) - timedelta(days=9), datetime.now(UTC)]
    log = ProgressLog(home, 0, lambda: moments[0])
    log.event("clean", TABLE, 1, "started", "old")
    moments.reverse()
    log.event("clean", TABLE, 1, "stopped", "new")
    log.flush(now=True)
    path = home.table(PROGRESS_TABLE)
    tidy(home, Upkeep(log_kept_days=5))
    assert [row["message"] for row in DeltaTable(str(path)).to_pyarrow_table().to_pylist()] == ["new"]
    assert views(path) == []
    version = DeltaTable(str(path)).version()
    tidy(home, Upkeep(log_kept_days=5))
    assert DeltaTable(str(path)).version() == version


def test_seen_origins_that_were_taken_over_have_no_string_views(home: Home, tmp_path: Path) -> None:
    table, shadow = home.table(SEEN_TABLE), tmp_path / "shadow"
    for place in (table, shadow):
        cold = ColdOrigins(place, "o'clock", at_hand=1)
        seen = {f"far\tfile-{number}\t0": IntervalSet([(0, 5)]) for number in range(4)}
        cold.let_go(seen, seen, 2, 0)
    take_over(table, shadow, "o'clock", 2)
    assert views(table) == []
    assert len(DeltaTable(str(table)).to_pyarrow_table()) == len(DeltaTable(str(shadow)).to_pyarrow_table())


def test_remove_rows_keeps_the_others_and_commits_nothing_where_none_match(tmp_path: Path) -> None:
    rows = pa.table({"a": ["x", "y", None], "n": [1, 2, 3]})
    write_deltalake(tmp_path, rows)
    remove_rows(tmp_path, pc.field("a") == "q", "a = 'q'")
    assert DeltaTable(tmp_path).version() == 0
    remove_rows(tmp_path, pc.field("a") == "x", "a = 'x'")
    left = DeltaTable(tmp_path).to_pyarrow_table().to_pylist()
    assert sorted(row["n"] for row in left) == [2, 3]
    assert views(tmp_path) == []
