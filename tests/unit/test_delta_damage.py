"""What is told of a table of which a file of the log, or a data file, is gone, empty, overwritten, cut, or has a bit
flipped; and that other tables and verbs go on."""

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable

from damaged_files import DAMAGES, with_checksum, write_batch, write_checkpoint
from headwater.cli import main
from headwater.running.status import accounts_since, job_status, log_ends
from headwater.sql.errors import SqlError
from headwater.sql.session import SqlSession
from headwater_streams.base.ledger_entry import LedgerEntry, SourceRange
from headwater_streams.delta.live_files import all_files
from headwater_streams.delta.marks import Marks, last_batch
from headwater_streams.ledger.audit import audit_home
from headwater_streams.ledger.cleaning import clean_log
from headwater_streams.ledger.copy import copy_entries
from headwater_streams.ledger.log import commits, last_entry, next_commit
from headwater_streams.runtime.progress import ProgressLog
from headwater_streams.runtime.readers import read_beyond, readers_by_table
from headwater_streams.storage.damage import DamagedFileError, writer_of
from headwater_streams.storage.delta_files import opened_table, reading, table_damage
from headwater_streams.storage.delta_log import log_damage, log_files
from headwater_streams.storage.delta_rows import dataset_of
from headwater_streams.storage.home import Home

TABLE, OTHER = "silver.clean", "silver.other"
ROWS = 10
LogFile = Callable[[Path], Path]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Two tables of three batches, with the checkpoints of their jobs; Hadoop's checksums stand beside all files."""
    found = Home(tmp_path)
    for table in (TABLE, OTHER):
        write_checkpoint(found, table, 3, ROWS)
        for batch in range(3):
            write_batch(found, table, batch, ROWS)
        for file in found.table(table).glob("*.parquet"):
            with_checksum(file)
    return found


def _commit(version: int) -> LogFile:
    return lambda table: table / "_delta_log" / f"{version:020d}.json"


def _sql(home: Home, table: str) -> int:
    with SqlSession(home.root) as session:
        (row,) = session.run(f"SELECT sum(n) AS n FROM {table}").objects()
        return int(str(row["n"]))


READERS: dict[str, Callable[[Home], object]] = {
    "sql": lambda home: _sql(home, TABLE),
    "open": lambda home: opened_table(home.table(TABLE)),
    "rows": lambda home: dataset_of(home.table(TABLE)),
    "files": lambda home: all_files(home.table(TABLE), 2),
    "marks": lambda home: last_batch(home.table(TABLE), "clean/1"),
    "ledger": lambda home: [*commits(home.table(TABLE))],
    "last entry": lambda home: last_entry(home.table(TABLE), "clean", 2),
    "copy": lambda home: copy_entries(home, TABLE),
    "clean": lambda home: clean_log(home, TABLE, older_than=datetime.now(UTC)),
}
"""What reads the log of a table, wherever it stands."""


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("version", [0, 1, 2])
def test_damaged_commit_is_told_by_all_that_read_it(home: Home, version: int, damage: str) -> None:
    table = home.table(TABLE)
    (table / "_delta_log" / f"{2:020d}.crc").write_text("{}")  # as Delta leaves it
    assert table_damage(table) is None
    path = _commit(version)(table)
    DAMAGES[damage](path)
    found = log_damage(table)
    assert found is not None
    assert str(found).startswith(f"{TABLE}: {path} ")
    assert str(found).endswith(
        "; put it back from a copy, or make the table again: headwater jobs rebuild clean"
    )
    for name, read in READERS.items():
        if damage == "one bit" and name in ("ledger", "last entry", "copy", "clean"):
            continue  # the ledger is read too often to hold each commit against its checksum; the audit does
        if damage == "gone" and version == 0 and name in ("ledger", "last entry", "copy", "clean"):
            continue  # as of a log that was cut
        with pytest.raises((DamagedFileError, SqlError)) as told:
            read(home)
        assert str(path) in str(told.value), name
        assert "headwater jobs rebuild clean" in str(told.value), name
    assert _sql(home, OTHER) == sum(range(3 * ROWS))


def _protocol(log: Path) -> None:
    features = ["deletionVectors", "of tomorrow"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
    more = {"readerFeatures": features, "writerFeatures": features}
    (log / f"{3:020d}.json").write_text(json.dumps({"protocol": protocol | more}) + "\n")


def _directory(log: Path) -> None:
    path = log / f"{1:020d}.json"
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (_protocol, "_delta_log cannot be read (Kernel error: Unsupported: Feature 'of tomorrow'"),
        (
            lambda log: (log / f"{2:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json").write_text(
                "{}"
            ),
            "_delta_log cannot be read (Kernel error: No table metadata or protocol found",
        ),
        (_directory, f"{1:020d}.json cannot be read (Is a directory)"),
        (shutil.rmtree, "its folder is gone"),
        (lambda log: [path.unlink() for path in log.iterdir()], "all commits of its log are gone"),
    ],
    ids=["another tool's feature", "another tool's checkpoint", "a directory", "no log", "an empty log"],
)
def test_log_that_cannot_be_opened_is_told_beside_the_other_tables(
    home: Home, capsys: pytest.CaptureFixture[str], harm: Callable[[Path], object], told: str
) -> None:
    harm(home.table(TABLE) / "_delta_log")
    assert main(["audit", "--home", str(home.root)]) == 1
    (finding,) = next(each.findings for each in audit_home(home) if each.table == TABLE)
    assert told in finding
    assert finding.endswith("headwater jobs rebuild clean")
    assert f"{OTHER} " in capsys.readouterr().out
    assert main(["audit", OTHER, "--home", str(home.root)]) == 0


def test_log_folder_without_a_commit_is_no_table(home: Home) -> None:
    """As a job leaves it that is killed while it makes a table, or a power cut."""
    for name in ("gold.begun", "headwater.ledger"):
        log = home.table(name) / "_delta_log"
        log.mkdir(parents=True)
        (log / "_commit_8f3c.json.tmp").write_text("{")
    assert home.tables() == [TABLE, OTHER]
    assert table_damage(home.table("gold.begun")) is None
    assert copy_entries(home, TABLE) == 3
    assert "headwater.ledger" in home.tables()


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_data_file_is_told_with_its_commit(
    home: Home, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    (name,) = list(commits(home.table(TABLE)))[1].added_paths
    path = home.table(TABLE) / name
    DAMAGES[damage](path)
    sentence = str(table_damage(home.table(TABLE)))
    assert sentence.startswith(f"{TABLE}: {path} ")
    assert "version 1 (batch 1 of job 'clean') added; " in sentence
    assert sentence.endswith("headwater jobs rebuild clean")
    findings = {each.table: each.findings for each in audit_home(home)}
    assert findings == {TABLE: [sentence], OTHER: []}
    if damage != "one bit":
        with pytest.raises(SqlError, match=r"version 1 .* added") as told:
            _sql(home, TABLE)
        assert str(told.value) == sentence
        with pytest.raises(DamagedFileError, match="version 1"), reading(home.table(TABLE)):
            dataset_of(home.table(TABLE)).to_table()
        assert table_damage(home.table(TABLE), with_contents=False) is not None
    assert main(["audit", "--home", str(home.root)]) == 1
    printed = capsys.readouterr().out
    assert sentence in printed
    assert f"{OTHER} " in printed


def test_byte_that_changed_in_a_data_file_is_told_by_the_audit(home: Home) -> None:
    (path,) = [home.table(TABLE) / name for name in list(commits(home.table(TABLE)))[2].added_paths]
    data = bytearray(path.read_bytes())
    data[20] ^= 1  # among the values, of which Parquet says nothing
    path.write_bytes(data)
    (finding,) = next(each.findings for each in audit_home(home) if each.table == TABLE)
    assert f"{path} does not match its checksum .{path.name}.crc from byte 0 on" in finding


@pytest.mark.parametrize("damage", sorted(DAMAGES.keys() - {"gone"}))
def test_damaged_checkpoint_of_a_whole_log_may_be_removed(home: Home, damage: str) -> None:
    table = home.table(TABLE)
    DeltaTable(table).create_checkpoint()
    (checkpoint,) = (table / "_delta_log").glob("*.checkpoint.parquet")
    with_checksum(checkpoint)
    DAMAGES[damage](checkpoint)
    sentence = str(table_damage(table))
    assert sentence.startswith(f"{TABLE}: {checkpoint} ")
    assert sentence.endswith("; remove it and _last_checkpoint: all commits that it stands for are there")
    if damage != "one bit":  # which deltalake may read over, and the audit does not
        with pytest.raises(SqlError) as told:
            _sql(home, TABLE)
        assert str(told.value) == sentence
    checkpoint.unlink()
    (table / "_delta_log" / "_last_checkpoint").unlink()
    assert _sql(home, TABLE) == sum(range(3 * ROWS))


def test_damaged_checkpoint_of_a_log_that_was_cut_takes_the_table_with_it(home: Home) -> None:
    table = home.table(TABLE)
    DeltaTable(table).create_checkpoint()
    for version in (0, 1):
        _commit(version)(table).unlink()
    assert log_damage(table) is None
    (checkpoint,) = (table / "_delta_log").glob("*.checkpoint.parquet")
    checkpoint.write_bytes(b"")
    assert "headwater jobs rebuild clean" in str(log_damage(table))
    checkpoint.unlink()
    assert "00000000000000000001.json is gone, a commit of its log, and no checkpoint" in str(
        log_damage(table)
    )


@pytest.mark.parametrize("text", ["", "x", "[]", '{"version": 7}'])
def test_damaged_name_of_the_last_checkpoint_may_be_removed(home: Home, text: str) -> None:
    table = home.table(TABLE)
    DeltaTable(table).create_checkpoint()
    last = table / "_delta_log" / "_last_checkpoint"
    last.write_text(text)
    assert str(log_damage(table)).endswith("; remove it: Delta finds the newest checkpoint without it")
    last.unlink()
    assert log_damage(table) is None
    assert _sql(home, TABLE) == sum(range(3 * ROWS))


def test_summaries_of_versions_may_be_damaged(home: Home) -> None:
    """Delta makes `N.crc` anew, and Hadoop passes over a checksum that is none."""
    table = home.table(TABLE)
    (table / "_delta_log" / f"{2:020d}.crc").write_bytes(b"\xff")
    (table / "_delta_log" / f".{2:020d}.json.crc").write_bytes(b"\xff")
    assert log_damage(table) is None
    assert _sql(home, TABLE) == sum(range(3 * ROWS))


def test_status_shows_the_other_jobs(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    path = _commit(1)(home.table(TABLE))
    path.write_bytes(b"{")
    damaged: list[DamagedFileError] = []
    assert [each["job"] for each in job_status(home.root, None, damaged.append)] == ["other"]
    assert [each.path for each in damaged] == [path]
    assert log_ends(home.root) == {TABLE: 3, OTHER: 3}
    path.unlink()
    assert log_ends(home.root) == {OTHER: 3}
    assert list(accounts_since(home.root, {OTHER: 2})) == ["other"]
    assert main(["jobs", "status", "--json", "--home", str(home.root)]) == 1
    printed = capsys.readouterr()
    assert [each["job"] for each in json.loads(printed.out)] == ["other"]
    assert f"headwater: {TABLE}: {path} is gone" in printed.err


def test_marks_tell_a_damaged_commit(home: Home) -> None:
    table, seen = home.table(TABLE), Marks()
    assert seen.last_batch(table, "clean/1", 1) == 1
    _commit(2)(table).write_bytes(b'{"txn": ')
    with pytest.raises(DamagedFileError, match=r"0002\.json is no commit of a Delta log"):
        seen.last_batch(table, "clean/1", 2)


def test_commit_beside_a_writer_is_not_told_as_gone(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that is listed while a commit is written may show the file after it and not its own."""
    import os

    listed, whole = [], os.listdir

    def half(folder: Path) -> list[str]:
        listed.append(folder)
        names = whole(folder)
        return [name for name in names if not name.endswith("1.json")] if len(listed) == 1 else names

    monkeypatch.setattr("headwater_streams.storage.delta_log.os.listdir", half)
    assert [version for version, _ in log_files(home.table(TABLE))] == [0, 1, 2]
    assert next_commit(home.table("silver.none")) == 0


def test_readers_of_a_damaged_table_are_known_by_its_checkpoint(home: Home) -> None:
    facts = home.checkpoint("other", 1) / "headwater.json"
    told = json.loads(facts.read_text())
    del told["_crc32"]
    told["inputs"] = {"clean": told["inputs"]["clicks"] | {"kind": "table", "ids": {TABLE: "an-id"}}}
    facts.write_text(json.dumps(told))
    _commit(1)(home.table(OTHER)).write_bytes(b"")
    assert readers_by_table(home) == {TABLE: {("other", OTHER)}}
    facts.unlink()
    with pytest.raises(DamagedFileError, match=r"0001\.json is empty"):
        readers_by_table(home)


def test_readers_that_have_read_what_a_table_lost_are_known(home: Home) -> None:
    entry = LedgerEntry(
        job="delays",
        generation=1,
        batch=0,
        table="gold.delays",
        kind="window",
        sources=(SourceRange(input="clean", ranges={}, table=TABLE, versions=(0, 3)),),
    )
    log = home.table("gold.delays") / "_delta_log"
    log.mkdir(parents=True)
    info = {"commitInfo": {"timestamp": 1, "operation": "WRITE", "userMetadata": entry.to_json()}}
    (log / f"{0:020d}.json").write_text(json.dumps(info))
    assert read_beyond(home, TABLE) == []
    newest = _commit(2)(home.table(TABLE))
    newest.unlink()
    newest.with_name(f".{newest.name}.crc").unlink()
    assert read_beyond(home, TABLE) == ["delays"]
    _commit(0)(home.table(OTHER)).write_bytes(b"")
    assert read_beyond(home, TABLE) == ["delays"], "a damaged table of another job does not matter"


def test_writer_of_a_table_is_told_by_the_checkpoints(home: Home) -> None:
    write_checkpoint(home, "gold.delays", 1, ROWS)
    write_checkpoint(home, "gold.delays__ingest_clicks", 1, ROWS)
    assert writer_of(home.root, "gold.delays") == "delays"
    assert writer_of(home.root, "gold.delays__late") == "delays"
    assert writer_of(home.root, "gold.delays__quarantine") == "delays__ingest_clicks"
    assert writer_of(home.root, "dim.names") is None
    path = home.table("gold.delays__ingest_clicks") / "_delta_log" / "0.json"
    assert str(DamagedFileError(path, "is gone")).endswith("headwater jobs rebuild delays --ingest")
    of_nobody = DamagedFileError(home.table("dim.names") / "_delta_log" / "0.json", "is gone")
    assert str(of_nobody).endswith("; put it back from a copy; no job of this home writes the table")


def test_damaged_table_of_the_library_stops_no_job(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    copy_entries(home, OTHER)
    log = ProgressLog(home, 0.0)
    log.event("other", OTHER, 1, "started")
    assert log.flush(now=True) == 1
    path = _commit(0)(home.table("headwater.progress"))
    path.write_bytes(b"x")
    log.event("other", OTHER, 1, "stopped")
    log.flush(now=True)
    assert f"headwater.progress: {path} is no commit" in caplog.text
    assert f"move the folder {home.table('headwater.progress')} away" in caplog.text
    ledger = _commit(0)(home.table("headwater.ledger"))
    ledger.write_bytes(b"")
    with pytest.raises(DamagedFileError, match="the next run copies what the tables' own logs have"):
        copy_entries(home, OTHER)
