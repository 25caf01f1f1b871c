"""What the demo learns about the jobs from the commits of their tables."""

import json
from pathlib import Path

import pytest

from headwater.demo.reconcile import LogRecord
from headwater.demo.watch import Watch
from headwater_streams.base.ledger_entry import Kind, LedgerEntry, SourceRange
from headwater_streams.storage.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def _commit(home: Home, entry: LedgerEntry | None, table: str = "silver.arrivals", rows: int = 0) -> None:
    log = home.table(table) / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    info = {"timestamp": 0, "operation": "STREAMING UPDATE"}
    if entry is not None:
        info["userMetadata"] = entry.to_json()
    version = len(list(log.iterdir()))
    stats = json.dumps({"numRecords": rows})
    actions = [{"commitInfo": info}, {"add": {"path": "part-0", "dataChange": True, "stats": stats}}]
    text = "".join(json.dumps(action) + "\n" for action in actions[: 1 + bool(rows)])
    (log / f"{version:020}.json").write_text(text)


def _entry(
    batch: int, start: int, end: int, *, written: int | None = None, kind: Kind = "row", partition: int = 0
) -> LedgerEntry:
    ranges = {"arrivals": {partition: (start, end)}}
    read = end - start
    terms = {"read": read, "written": read if written is None else written, "duplicate": 0}
    return LedgerEntry(
        job="clean_arrivals",
        generation=1,
        batch=batch,
        table="silver.arrivals",
        kind=kind,
        sources=(SourceRange(input="arrivals", ranges=ranges, topic="arrivals"),),
        accounting={"arrivals": terms},
    )


def _record(offset: int) -> LogRecord:
    return LogRecord("arrivals", 0, offset, ())


def test_watch_no_tables_everything_is_behind(home: Home) -> None:
    behind = Watch(home).behind({("arrivals", 0): 1, ("departures", 2): 5})
    assert behind == ["silver.departures", "silver.arrivals"]


def test_watch_nothing_produced_nobody_is_behind(home: Home) -> None:
    assert Watch(home).behind({}) == []


def test_watch_follows_new_commits(home: Home) -> None:
    watch = Watch(home)
    _commit(home, None)
    _commit(home, _entry(0, 0, 10))
    assert "silver.arrivals" in watch.behind({("arrivals", 0): 15})
    _commit(home, _entry(1, 10, 15))
    assert "silver.arrivals" not in watch.behind({("arrivals", 0): 15})
    assert "silver.arrivals" in watch.behind({("arrivals", 0): 15, ("arrivals", 1): 1})
    history = watch.tables["silver.arrivals"]
    assert history.batches == {(1, 0), (1, 1)}
    assert history.totals == {"read": 15, "written": 15, "duplicate": 0}


def test_watch_job_behind_a_table_lacks_its_rows_but_not_its_empty_commits(home: Home) -> None:
    watch = Watch(home)
    for entry in (_entry(0, 0, 10), _entry(1, 10, 12)):
        _commit(home, entry, rows=1)
    _commit(home, _entry(2, 12, 15, written=0))
    assert watch.behind({}) == ["gold.flights"]
    read = LedgerEntry(
        job="join_flights",
        generation=1,
        batch=0,
        table="gold.flights",
        kind="join",
        sources=(SourceRange(input="landed", ranges={}, table="silver.arrivals", versions=(0, 2)),),
    )
    _commit(home, read, table="gold.flights")
    assert watch.behind({}) == []


def test_watch_empty_batch_and_backfill_are_no_live_batches(home: Home) -> None:
    watch = Watch(home)
    _commit(home, _entry(0, 0, 10))
    _commit(home, _entry(1, 10, 10))
    _commit(home, _entry(2, 0, 10, kind="backfill"))
    watch.look()
    assert watch.tables["silver.arrivals"].batches == {(1, 0)}


def test_watch_batch_that_read_a_record_is_found_by_its_offset(home: Home) -> None:
    watch = Watch(home)
    for entry in (_entry(0, 0, 10), _entry(1, 10, 10), _entry(2, 10, 25)):
        _commit(home, entry)
    watch.look()
    assert [watch.batch_that_read(_record(offset)) for offset in (0, 9, 10, 24)] == [0, 0, 2, 2]
    with pytest.raises(KeyError, match="arrivals-0 offset 25 is in no batch"):
        watch.batch_that_read(_record(25))


def test_watch_terms_that_do_not_add_up_are_named(home: Home) -> None:
    watch = Watch(home)
    _commit(home, _entry(0, 0, 10, written=9))
    watch.look()
    assert watch.tables["silver.arrivals"].imbalances == [
        "silver.arrivals batch 0, input arrivals: read 10 is not 9 written + 0 duplicate"
    ]


def test_watch_counts_the_records_that_the_jobs_have_read(home: Home) -> None:
    watch = Watch(home)
    assert watch.records_read() == 0
    _commit(home, _entry(0, 0, 3))
    _commit(home, _entry(1, 3, 7))
    _commit(home, _entry(1, 0, 2, partition=1))
    watch.look()
    assert watch.records_read() == 9
