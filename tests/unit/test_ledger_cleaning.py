"""A Delta log that was cut short: the copy in `headwater.ledger` answers, and nothing that is needed is cut away."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

from headwater_streams.base.ledger_entry import LedgerEntry, SourceRange
from headwater_streams.delta.compaction import compact
from headwater_streams.ledger.audit import audit_table
from headwater_streams.ledger.cleaning import clean_log, next_versions
from headwater_streams.ledger.log import commits, commits_backwards, first_version, last_entry, seen_of
from headwater_streams.runtime.upkeep import vacuum
from headwater_streams.storage.home import Home

TABLE = "silver.clicks"
SCHEMA = pa.schema(
    [
        ("_topic", pa.string()),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_batch", pa.int64()),
        ("_generation", pa.int32()),
    ]
)
TOMORROW = datetime.now(UTC) + timedelta(days=1)
YESTERDAY = datetime.now(UTC) - timedelta(days=1)
_NO_CLEAN_UP = {"delta.enableExpiredLogCleanup": "false"}


def _entry(batch: int, **more: object) -> LedgerEntry:
    source = SourceRange(input="clicks", ranges={"clicks": {0: (batch * 2, batch * 2 + 2)}}, topic="clicks")
    terms = {"read": 2, "written": 2, "filtered": 0, "duplicate": 0, "quarantined": 0}
    seen = {"\tclicks\t0": [(0, batch * 2 + 2)]}
    made = LedgerEntry(
        job="clean",
        generation=1,
        batch=batch,
        table=TABLE,
        kind="row",
        sources=(source,),
        accounting={"clicks": terms},
        seen=seen,
        partitions={"clicks": {0: terms}},
    )
    return LedgerEntry(**{**made.__dict__, **more})


def _commit(home: Home, entry: LedgerEntry, rows: pa.Table | None = None) -> None:
    batch = entry.batch
    written = [("clicks", 0, offset, batch, 1) for offset in (batch * 2, batch * 2 + 1)]
    made = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in written], schema=SCHEMA)
    write_deltalake(
        str(home.table(entry.table)),
        made if rows is None else rows,
        mode="append",
        configuration=_NO_CLEAN_UP,
        commit_properties=CommitProperties(custom_metadata={"userMetadata": entry.to_json()}),
    )


def _ran(home: Home, batches: int, checkpoint_at: int | None = None) -> Path:
    path = home.table(TABLE)
    for batch in range(batches):
        _commit(home, _entry(batch))
        if batch == checkpoint_at:
            DeltaTable(str(path)).create_checkpoint()
    return path


def test_log_cut_at_a_checkpoint_answers_as_before(tmp_path: Path) -> None:
    home = Home(tmp_path)
    path = _ran(home, 12, checkpoint_at=7)
    before = [(c.version, c.entry, c.rows_added) for c in commits(path)]
    rows = DeltaTable(str(path)).to_pyarrow_table().num_rows
    assert clean_log(home, TABLE, older_than=TOMORROW, kept=3) == 7
    assert first_version(path) == 7
    assert sorted(p.name for p in (path / "_delta_log").glob("*.json")) == [
        f"{v:020d}.json" for v in range(7, 12)
    ]
    assert DeltaTable(str(path)).to_pyarrow_table().num_rows == rows
    assert DeltaTable(str(path), version=7).to_pyarrow_table().num_rows == 16
    assert [(c.version, c.entry, c.rows_added) for c in commits(path)] == before
    assert [c.version for c in commits_backwards(path)] == list(range(11, -1, -1))
    assert [c.version for c in commits(path, since=3, until=9)] == list(range(3, 9))
    audit = audit_table(home, TABLE)
    assert audit is not None
    assert audit.findings == []
    (partition,) = audit.partitions
    assert (partition.start, partition.end, partition.terms["read"]) == (0, 24, 24)
    last = last_entry(path, "clean", 1)
    assert last is not None
    assert last.batch == 11
    assert seen_of(path, "clean", 1) == {"\tclicks\t0": [(0, 24)]}
    assert clean_log(home, TABLE, older_than=TOMORROW, kept=3) == 0


def test_log_row_deleted_by_hand_is_found_though_its_commit_was_cut(tmp_path: Path) -> None:
    home = Home(tmp_path)
    path = _ran(home, 12, checkpoint_at=9)
    assert clean_log(home, TABLE, older_than=TOMORROW, kept=2) == 9
    DeltaTable(str(path)).delete("_offset = 5")
    audit = audit_table(home, TABLE)
    assert audit is not None
    assert len(audit.findings) == 1
    assert "batch 2" in audit.findings[0]


def test_log_is_kept_without_a_checkpoint_and_while_it_is_young_or_short(tmp_path: Path) -> None:
    home = Home(tmp_path)
    path = _ran(home, 6)
    assert clean_log(home, TABLE, older_than=TOMORROW, kept=2) == 0
    DeltaTable(str(path)).create_checkpoint()
    _commit(home, _entry(6))
    assert clean_log(home, TABLE, older_than=YESTERDAY, kept=1) == 0
    assert clean_log(home, TABLE, older_than=TOMORROW, kept=3) == 0
    assert clean_log(home, TABLE, older_than=TOMORROW, kept=2) == 5


def test_log_that_a_reader_has_not_read_is_kept(tmp_path: Path) -> None:
    home = Home(tmp_path)
    path = _ran(home, 10, checkpoint_at=4)
    DeltaTable(str(path)).create_checkpoint()
    read = SourceRange(input="good", ranges={}, table=TABLE, versions=(0, 5))
    _commit(
        home,
        LedgerEntry(job="windows", generation=1, batch=0, table="gold.x", kind="window", sources=(read,)),
    )
    assert clean_log(home, TABLE, older_than=TOMORROW, kept=1) == 4


def test_log_that_a_new_generation_reads_again_for_its_state_is_kept(tmp_path: Path) -> None:
    home = Home(tmp_path)
    _ran(home, 12, checkpoint_at=4)
    read = SourceRange(input="good", ranges={}, table=TABLE, versions=(0, 8))
    again = {"warm_up": {"watermark_ms": 5, "sources": [replace(read, versions=(3, 8)).to_json()]}}
    begun = _entry(-1, job="hourly", table="gold.hourly", kind="generation", sources=(), extra=again)
    for entry in (_entry(0, job="hourly", table="gold.hourly", sources=(read,)), begun):
        _commit(home, entry)
    assert [*next_versions(home, TABLE)] == [3]
    assert clean_log(home, TABLE, older_than=TOMORROW, kept=3) == 0


def test_log_version_that_a_rollback_puts_back_is_kept(tmp_path: Path) -> None:
    home = Home(tmp_path)
    path = _ran(home, 5, checkpoint_at=2)
    swap = {"backfill": "b1", "action": "swap", "replaced_version": 3}
    _commit(home, _entry(5, kind="backfill", extra=swap))
    for batch in range(6, 9):
        _commit(home, _entry(batch))
    DeltaTable(str(path)).create_checkpoint()
    assert clean_log(home, TABLE, older_than=TOMORROW, kept=1) == 2
    assert DeltaTable(str(path), version=3).to_pyarrow_table().num_rows == 8


def test_compaction_makes_one_file_and_changes_no_row(tmp_path: Path) -> None:
    home = Home(tmp_path)
    path = _ran(home, 8)
    before = sorted(DeltaTable(str(path)).to_pyarrow_table()["_offset"].to_pylist())
    assert compact(path) == 8
    assert compact(path) == 0
    assert len(DeltaTable(str(path)).file_uris()) == 1
    assert sorted(DeltaTable(str(path)).to_pyarrow_table()["_offset"].to_pylist()) == before
    *_, last = commits(path)
    assert (last.data_changed, last.is_append, last.entry) == (False, False, None)
    audit = audit_table(home, TABLE)
    assert audit is not None
    assert audit.findings == []


def test_vacuum_keeps_the_files_that_a_reader_has_not_read(tmp_path: Path) -> None:
    home = Home(tmp_path)
    path = _ran(home, 6)
    read = SourceRange(input="good", ranges={}, table=TABLE, versions=(0, 4))
    _commit(
        home,
        LedgerEntry(job="windows", generation=1, batch=0, table="gold.x", kind="window", sources=(read,)),
    )
    unread = [path / added for commit in commits(path, since=4) for added in commit.added_paths]
    compact(path)
    _commit(home, _entry(6))
    compact(path)
    vacuum(home, TABLE, 0)
    assert all(file.exists() for file in unread)
    last = SourceRange(input="good", ranges={}, table=TABLE, versions=(4, 9))
    _commit(
        home,
        LedgerEntry(job="windows", generation=1, batch=1, table="gold.x", kind="window", sources=(last,)),
    )
    vacuum(home, TABLE, 0)
    assert not any(file.exists() for file in unread)
    assert DeltaTable(str(path)).to_pyarrow_table().num_rows == 14


def test_vacuum_removes_what_nobody_needs_and_keeps_what_a_rollback_offers(tmp_path: Path) -> None:
    home = Home(tmp_path)
    path = _ran(home, 4)
    compact(path)
    swap = {"backfill": "b1", "action": "swap", "replaced_version": 1}
    _commit(home, _entry(4, kind="backfill", extra=swap))
    (path / "part-of-a-commit-that-never-was.parquet").write_bytes(b"x")
    vacuum(home, TABLE, 0)
    assert len(list(path.glob("*.parquet"))) == 4, (
        "those of versions 0 and 1, the compacted one, the last one"
    )
    assert DeltaTable(str(path), version=1).to_pyarrow_table().num_rows == 4
    assert DeltaTable(str(path)).to_pyarrow_table().num_rows == 10
    _commit(home, _entry(5, kind="backfill", extra={**swap, "action": "rollback"}))
    vacuum(home, TABLE, 0)
    assert len(list(path.glob("*.parquet"))) == 3
    assert DeltaTable(str(path)).to_pyarrow_table().num_rows == 12
