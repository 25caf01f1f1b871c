"""Rejected records: found by check, time and offsets; the range that a replay reads; those that were discarded."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from headwater_streams.ledger.quarantined import (
    Which,
    discard,
    discarded,
    hull,
    rejected,
    summaries,
)
from headwater_streams.quality.rejected import reasons, rejected_beside
from headwater_streams.storage.delta_rows import dataset_of
from headwater_streams.storage.home import Home

TABLE = "silver.departures"
NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("_reason", pa.string()),
        ("_check", pa.string()),
        ("_topic", pa.string()),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_timestamp", pa.timestamp("us", "UTC")),
        ("_batch", pa.int64()),
        ("_generation", pa.int32()),
    ]
)


def row(offset, check="has_carrier", *, reason="carrier is NULL", batch=0, generation=1, partition=0):
    return {
        "_reason": reason,
        "_check": check,
        "_topic": "departures",
        "_partition": partition,
        "_offset": offset,
        "_timestamp": NOON + timedelta(minutes=offset),
        "_batch": batch,
        "_generation": generation,
    }


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path)
    rows = [
        row(3),
        row(7, "has_carrier, delay_sane", reason="carrier is NULL; delay is 9999"),
        row(9, "json", reason="it is no JSON; at 3"),
        row(3, partition=1),
        row(3, "json", reason="read again", batch=4, generation=2),
    ]
    write_deltalake(str(home.table(f"{TABLE}__quarantine")), pa.Table.from_pylist(rows, schema=SCHEMA))
    return home


def offsets(rows):
    return [(row["_partition"], row["_offset"]) for row in rows]


def test_every_reason_of_a_row_is_known():
    assert reasons(row(7, "a, b", reason="x; y")) == {"a": "x", "b": "y"}
    assert reasons(row(7, "json", reason="no JSON; at 3")) == {"json": "no JSON; at 3"}


def test_record_that_was_rejected_again_stands_once_as_it_was_rejected_last(home):
    found = rejected(home, TABLE)
    assert offsets(found) == [(0, 3), (0, 7), (0, 9), (1, 3)]
    assert (found[0]["_check"], found[0]["_generation"]) == ("json", 2)


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        ({"checks": ["delay_sane"]}, [(0, 7)]),
        ({"checks": ["json"]}, [(0, 3), (0, 9)]),
        ({"since": NOON + timedelta(minutes=7)}, [(0, 7), (0, 9)]),
        ({"until": NOON + timedelta(minutes=7)}, [(0, 3), (1, 3)]),
        ({"offsets": {"departures": {0: (3, 9)}}}, [(0, 3), (0, 7)]),
        ({"checks": ["nobody"]}, []),
        ({"checks": ["delay"]}, []),
        ({"offsets": {}}, []),
        (
            {"offsets": {"departures": {1: (0, 9)}, "arrivals": {0: (0, 99)}}, "checks": ["has_carrier"]},
            [(1, 3)],
        ),
    ],
)
def test_filter_finds_rows_by_check_time_and_offsets(home, which, expected):
    assert offsets(rejected(home, TABLE, Which(**which))) == expected


def test_discarded_row_is_no_longer_open_and_stays_in_the_quarantine(home):
    rows = rejected(home, TABLE, Which(checks=["json"]))
    assert discard(home, TABLE, rows, "test traffic", 1000) == 2
    assert discard(home, TABLE, rows, "again", 2000) == 0
    assert offsets(rejected(home, TABLE)) == [(0, 7), (1, 3)]
    assert len(rejected(home, TABLE, Which(discarded=True))) == 4
    assert discarded(home, TABLE)["departures", 0, 9] == "test traffic"
    (summary,) = summaries(home)
    assert (summary.rows, summary.discarded, summary.checks) == (
        2,
        2,
        {"has_carrier": 2, "delay_sane": 1},
    )


def test_replay_reads_the_smallest_range_that_holds_the_rows(home):
    assert hull(rejected(home, TABLE)) == {"departures": {0: (3, 10), 1: (3, 4)}}


def test_data_docs_have_each_check_with_what_it_rejected(home):
    path = home.table(f"{TABLE}__quarantine")
    rows = [{**row(11), "_raw": b"\xff<b>"}]
    raw = SCHEMA.append(pa.field("_raw", pa.binary()))
    write_deltalake(str(path), pa.Table.from_pylist(rows, schema=raw), mode="append", schema_mode="merge")
    carrier = next(each for each in rejected_beside(home, TABLE) if each.check == "has_carrier")
    assert carrier.rows == 4
    assert {each.check for each in rejected_beside(home, TABLE)} == {"has_carrier", "json", "delay_sane"}
    assert rejected_beside(home, "silver.none") == []


def test_row_of_a_record_that_has_several_stands_beside_the_others(tmp_path):
    home, schema = Home(tmp_path), SCHEMA.append(pa.field("_row", pa.int64()))
    rows = [row(3) | {"_row": place} for place in (1, 0)] + [row(3, batch=2) | {"_row": 1}]
    write_deltalake(str(home.table(f"{TABLE}__quarantine")), pa.Table.from_pylist(rows, schema=schema))
    assert [(each["_row"], each["_batch"]) for each in rejected(home, TABLE)] == [(0, 0), (1, 2)]
    (summary,) = summaries(home)
    assert (summary.rows, summary.newest) == (2, NOON + timedelta(minutes=3))
    discard(home, TABLE, rejected(home, TABLE), "test traffic", 1000)
    (summary,) = summaries(home)
    assert (summary.rows, summary.discarded, summary.checks, summary.newest) == (0, 2, {}, None)


def test_values_of_rejected_records_are_not_read_to_count_them(home, monkeypatch):
    read = []

    class Noted:
        def __init__(self, path):
            self.rows = dataset_of(path)
            self.schema = self.rows.schema

        def to_table(self, **what):
            read.append(what.get("columns"))
            return self.rows.to_table(**what)

    monkeypatch.setattr("headwater_streams.ledger.quarantined.dataset_of", Noted)
    assert len(summaries(home)) == 1
    assert rejected(home, TABLE)
    assert all(columns and not {"_raw", "_key", "_headers"} & {*columns} for columns in read)


def test_table_without_a_quarantine_has_no_rejected_rows(tmp_path):
    assert rejected(Home(tmp_path), TABLE) == []
    assert summaries(Home(tmp_path)) == []
