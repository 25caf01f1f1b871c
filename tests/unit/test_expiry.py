"""Rows that are older than their table keeps them: which they are, what the ledger says, what no backfill brings back.

day            1    2    3
batch 0        a b       c          horizon: day 2
batch 1        d         e
"""

import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from pyspark.sql import types as T

import headwater as hw
from backfill_facts import HOUR, columns, draft, entry, history, part, source
from headwater_streams.backfill.expired import (
    ExpiredFacts,
    Horizon,
    Kept,
    Lost,
    expired_inputs,
    kept_by,
    without_expired,
    without_rows,
)
from headwater_streams.backfill.offsets import Offsets
from headwater_streams.backfill.refusal import Refusal
from headwater_streams.backfill.repair.spec import BackfillPlan, Chunk
from headwater_streams.base.extra import Extra
from headwater_streams.base.ledger_entry import LedgerEntry, identity_terms
from headwater_streams.delta.delta_table import remove_action
from headwater_streams.delta.live_files import all_files
from headwater_streams.ledger.audit import audit_table
from headwater_streams.ledger.audit.rows import check_rows
from headwater_streams.ledger.audit.table_audit import TableAudit
from headwater_streams.ledger.expired import expired_before_us, expired_rows
from headwater_streams.ledger.log import commits, last_entry
from headwater_streams.operators.windows.cumulative import CumulativeWindow
from headwater_streams.operators.windows.tumbling import TumblingWindow
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.expiry import Expiry, aged, expiry_entry, horizon_of, newest_of
from headwater_streams.storage.home import Home

DAY = 24 * HOUR
clicks = hw.topic("clicks", schema="who STRING, at TIMESTAMP", event_time="at")
JOB = part(
    {"clicks": clicks},
    result=columns("who", at=T.TimestampType(), day=T.DateType()),
    target=hw.delta("silver.clicks", partition_by=["day"], keep="2 days"),
)
HORIZON = int(datetime(2013, 1, 2, tzinfo=UTC).timestamp()) * 1_000_000


def _rows(batch: int, first: int, *days: int) -> pa.Table:
    places = range(first, first + len(days))
    return pa.table(
        {
            "who": pa.array(["x"] * len(days)),
            "at": pa.array(
                [datetime(2013, 1, day, 12, tzinfo=UTC) for day in days], pa.timestamp("us", "UTC")
            ),
            "day": pa.array([date(2013, 1, day) for day in days]),
            "_topic": pa.array(["clicks"] * len(days)),
            "_partition": pa.array([0] * len(days), pa.int32()),
            "_offset": pa.array(list(places), pa.int64()),
            "_batch": pa.array([batch] * len(days), pa.int64()),
            "_generation": pa.array([1] * len(days), pa.int32()),
        }
    )


def _batch(number: int, start: int, end: int) -> LedgerEntry:
    count = end - start
    made = entry(number, source({"clicks": {0: (start, end)}}))
    terms = {"read": count, "written": count, "filtered": 0, "duplicate": 0, "quarantined": 0}
    return replace(made, accounting={"clicks": terms}, max_event_time_us=HORIZON + DAY)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home with the two batches."""
    made = Home(tmp_path)
    table = str(made.table("silver.clicks"))
    for number, (first, days) in enumerate([(0, (1, 1, 3)), (3, (1, 3))]):
        told = _batch(number, first, first + len(days)).to_json()
        write_deltalake(
            table,
            _rows(number, first, *days),
            mode="append",
            partition_by=["day"],
            commit_properties=CommitProperties(custom_metadata={"userMetadata": told}),
        )
    return made


def _expire(home: Home, **changed: Any) -> LedgerEntry:
    """Lets go of what is behind the horizon, as `expire` does, with the entry that it writes."""
    table = home.table("silver.clicks")
    version = DeltaTable(str(table)).version()
    found = [a for file in all_files(table, version) if (a := aged(table, file, "at", HORIZON)) is not None]
    assert all(each.is_whole for each in found)
    made = replace(expiry_entry(JOB, 1, "silver.clicks", found, HORIZON, column="at"), **changed)
    actions = [{"commitInfo": {"timestamp": 0, "userMetadata": made.to_json()}}]
    actions += [dict(remove_action(each.file)) for each in found]
    log = table / "_delta_log" / f"{version + 1:020d}.json"
    log.write_text("\n".join(map(json.dumps, actions)))
    return made


def test_horizon_is_a_full_day_hour_or_minute_behind_the_newest_event() -> None:
    minute = HOUR // 60
    assert horizon_of(100 * DAY + 5 * HOUR, 90 * DAY) == 10 * DAY
    assert horizon_of(100 * DAY + 5 * HOUR + 7, 30 * HOUR) == 98 * DAY + 23 * HOUR
    assert horizon_of(10 * HOUR + 59, 90 * minute) == 8 * HOUR + 30 * minute
    assert horizon_of(10 * HOUR + 59, minute) == 9 * HOUR + 59 * minute


def test_newest_event_is_what_the_job_has_seen_or_its_watermark() -> None:
    assert newest_of(_batch(0, 0, 1)) == HORIZON + DAY
    window = entry(0, kind="window", extra={Extra.WATERMARK_MS: 5_000})
    assert newest_of(window) == 5_000_000
    assert newest_of(replace(window, extra={Extra.WATERMARK_MS: None})) is None
    assert newest_of(replace(window, extra={Extra.SEEN_US: 7, Extra.WATERMARK_US: 3})) == 7


def test_event_that_is_ahead_of_the_clock_counts_as_now(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest event is of day 3; by a clock of day 2 one day less has expired."""
    horizons: list[int] = []
    monkeypatch.setattr("headwater_streams.runtime.expiry.expire", lambda *given: horizons.append(given[-1]))
    clock = iter([HORIZON + 30 * DAY, HORIZON + DAY - 1])
    context: Any = SimpleNamespace(home=home, now_ms=lambda: next(clock) // 1_000, step=lambda *_: None)
    for _ in range(2):
        Expiry(context, JOB, 1).after_batch(2)
    assert horizons == [HORIZON - DAY, HORIZON - 2 * DAY]


def test_expired_rows_are_counted_by_file_and_batch(home: Home) -> None:
    table = home.table("silver.clicks")
    found = [aged(table, file, "at", HORIZON) for file in all_files(table, 1)]
    assert sorted(each.rows for each in found if each is not None) == [1, 2]
    assert sum(each is None for each in found) == 2
    (file,) = [f for f in all_files(table, 0) if f.rows == 2]
    noon = HORIZON - DAY // 2
    assert aged(table, file, "at", noon) is None, "the horizon itself is kept"
    assert aged(table, file, "gone", HORIZON) is None


def test_entry_of_an_expiry_says_which_rows_are_gone_and_is_no_batch(home: Home) -> None:
    made = _expire(home)
    again = LedgerEntry.from_json(made.to_json())
    assert again == made
    assert made.totals["expired"] == 3
    assert Extra.EXPIRED.of(made) == [[1, 0, 2], [1, 1, 1]]
    assert (expired_before_us([made]), expired_rows([made, made])[1, 0]) == (HORIZON, 4)
    last = last_entry(home.table("silver.clicks"), "clean", 1)
    assert last is not None
    assert (last.kind, last.batch) == ("row", 1)


def test_audit_expects_what_has_expired_to_be_gone_and_no_more(home: Home) -> None:
    _expire(home)
    audit = audit_table(home, "silver.clicks")
    assert audit is not None
    assert audit.findings == []
    assert audit.notes == ["silver.clicks: 3 rows whose at is before 2013-01-02T00:00:00Z have expired"]


def test_audit_names_a_row_that_is_gone_beside_those_that_have_expired(home: Home) -> None:
    _expire(home)
    table = home.table("silver.clicks")
    (file,) = [f for f in all_files(table, 2) if f.rows == 1][:1]
    log = table / "_delta_log" / f"{3:020d}.json"
    log.write_text(json.dumps(remove_action(file)))
    audit = audit_table(home, "silver.clicks")
    assert audit is not None
    (finding,) = audit.findings
    assert "1 row is gone: clicks 0 offset" in finding


def test_audit_knows_what_has_expired_in_the_shadow_of_a_rebuild(home: Home) -> None:
    """All commits of a shadow have the version by which it was swapped in."""
    _expire(home)
    table = home.table("silver.clicks")
    (file,) = [f for f in all_files(table, 2) if f.rows == 1][:1]
    (table / "_delta_log" / f"{3:020d}.json").write_text(json.dumps(remove_action(file)))
    *batches, expiry = [
        replace(commit, version=9, timestamp_ms=number)
        for number, commit in enumerate(commits(table, until=3))
    ]
    audit = TableAudit("silver.clicks", "clean", "row")
    check_rows(audit, home, batches, [], [], [expiry])
    (finding,) = audit.findings
    assert "1 row is gone: clicks 0 offset" in finding


def test_audit_does_not_believe_an_expiry_that_counts_otherwise(home: Home) -> None:
    extra = {Extra.EXPIRED_BEFORE_US: 0, Extra.EXPIRED_BY: "at", Extra.EXPIRED: [[1, 0, 1], [1, 1, 1]]}
    _expire(home, extra=extra)
    audit = audit_table(home, "silver.clicks")
    assert audit is not None
    assert ["batch 0" in finding for finding in audit.findings] == [True]


def _beside(home: Home, number: int, batch: LedgerEntry, rows: pa.Table | None = None) -> None:
    """Commits a version with an entry, and rows, as another writer than Spark does."""
    table = home.table("silver.clicks")
    if rows is None:
        (table / "_delta_log" / f"{number:020d}.json").write_text(
            json.dumps({"commitInfo": {"timestamp": number, "userMetadata": batch.to_json()}})
        )
        return
    properties = CommitProperties(custom_metadata={"userMetadata": batch.to_json()})
    write_deltalake(str(table), rows, mode="append", partition_by=["day"], commit_properties=properties)


def test_what_came_after_the_last_expiry_is_kept_however_old_it_is(home: Home) -> None:
    path = home.table("silver.clicks")
    assert kept_by(path, JOB, "silver.clicks", 2) is None
    _expire(home)
    _beside(home, 3, _batch(2, 5, 6), _rows(2, 5, 1))
    before = Offsets.of([{"clicks": {0: (0, 5)}}])
    made = kept_by(path, JOB, "silver.clicks", 4)
    assert made == Kept("at", [Horizon(HORIZON, before)])
    # With keep="1 day" another day goes, and then, with a longer one, a row alone that came late.
    later = Offsets.of([{"clicks": {0: (0, 6)}}])
    for number, horizon in ((4, HORIZON + DAY), (5, HORIZON - DAY)):
        _beside(home, number, expiry_entry(JOB, 1, "silver.clicks", [], horizon, column="at"))
    made = kept_by(path, JOB, "silver.clicks", 6)
    assert made == Kept("at", [Horizon(HORIZON + DAY, later)])
    _beside(home, 6, _batch(3, 6, 8))
    _beside(home, 7, expiry_entry(JOB, 1, "silver.clicks", [], HORIZON, column="at"))
    made = kept_by(path, JOB, "silver.clicks", 8)
    all_of_them = Offsets.of([{"clicks": {0: (0, 8)}}])
    assert made == Kept("at", [Horizon(HORIZON + DAY, later), Horizon(HORIZON, all_of_them)])
    assert made.since_us == HORIZON + DAY


def test_horizon_is_by_the_column_by_which_rows_have_expired(home: Home) -> None:
    """The job declared keep_by once, and neither that nor an event time now."""
    _expire(home)
    of = part({"clicks": hw.topic("clicks", schema="who STRING, at TIMESTAMP")}, result=JOB.result)
    assert of.age_column("silver.clicks") is None
    made = kept_by(home.table("silver.clicks"), of, "silver.clicks", 3)
    assert made is not None
    assert made.column == "at"


def test_nothing_has_expired_of_a_table_that_was_emptied_since(home: Home) -> None:
    _expire(home)
    begun = replace(_batch(-1, 0, 0), kind="generation", generation=2, extra={Extra.ACTION: "rebuild"})
    _beside(home, 3, begun)
    assert kept_by(home.table("silver.clicks"), JOB, "silver.clicks", 4) is None


def test_what_a_job_reads_has_expired_since_it_read_it_first(home: Home) -> None:
    """Version 2 of silver.clicks lets go of rows; gold.days has read versions 0 and 1, and is built again of 0 to 2."""
    _expire(home)
    of = part({"kept": hw.table("silver.clicks", event_time="at")}, target=hw.delta("gold.days"))
    context: Any = SimpleNamespace(home=home)
    log = home.table("gold.days") / "_delta_log"
    log.mkdir(parents=True)

    def commit(version: int, made: LedgerEntry, folder: Path = log) -> None:
        info = {"commitInfo": {"timestamp": version, "userMetadata": made.to_json()}}
        (folder / f"{version:020d}.json").write_text(json.dumps(info))

    def read_until(version: int) -> LedgerEntry:
        return entry(0, source({"clicks": {0: (0, 5)}}, of="kept", table="silver.clicks", until=version))

    empty = entry(-1, kind="generation", generation=2, extra={Extra.ACTION: "rebuild"})
    commit(0, read_until(1))
    assert expired_inputs(context, of) == {"silver.clicks": HORIZON}
    commit(1, empty)
    commit(2, read_until(2))
    assert expired_inputs(context, of) == {}
    (log / f"{1:020d}.json").write_text("{}")
    assert expired_inputs(context, of) == {"silver.clicks": HORIZON}
    commit(3, empty, home.table("silver.clicks") / "_delta_log")
    assert expired_inputs(context, of) == {}, "silver.clicks was emptied, and holds all rows again"


def test_windows_have_one_horizon_and_no_offsets(home: Home) -> None:
    _expire(home)
    of = part({"clicks": clicks}, kind="window", result=JOB.result)
    assert kept_by(home.table("silver.clicks"), of, "silver.clicks", 3) == Kept("at", [Horizon(HORIZON)])


def test_rebuild_lets_go_of_the_offsets_alone_that_the_live_table_had(home: Home) -> None:
    """The record at offset 3 came to the live table after its rows of day 1 had expired, and stands."""
    table, before = home.table("silver.clicks"), Offsets.of([{"clicks": {0: (0, 3)}}])
    found = [a for f in all_files(table, 1) if (a := aged(table, f, "at", HORIZON, before)) is not None]
    assert [each.expired for each in found] == [{(1, 0): 2}]
    made = expiry_entry(JOB, 1, "silver.clicks", found, HORIZON, column="at", among=before)
    _expire(home, extra=made.extra)
    (of_batch_1,) = [f for f in all_files(table, 1) if f.name not in {each.file.name for each in found}][:1]
    assert of_batch_1.rows == 1
    kept = kept_by(table, JOB, "silver.clicks", 3)
    assert kept == Kept("at", [Horizon(HORIZON, before)])
    # The whole file of day 1 is gone here, so the audit misses the row that the entry does not name.
    audit = audit_table(home, "silver.clicks")
    assert audit is not None
    (finding,) = audit.findings
    assert "batch 1" in finding
    assert "1 row is gone: clicks 0 offset 3" in finding


def _repair(kind: Any, of: JobPlan, **more: Any) -> BackfillPlan:
    known = history(_batch(0, 0, 3), _batch(1, 3, 5))
    return replace(draft(of, known), kind=kind, **more)


def test_repair_of_rows_notes_that_expired_ones_do_not_come_back() -> None:
    planned = _repair("row", JOB, ranges={"clicks": {0: (0, 5)}})
    assert without_expired(planned, ExpiredFacts(part=JOB)) == planned
    made = without_expired(planned, ExpiredFacts(part=JOB, kept=Kept("at", [Horizon(HORIZON)])))
    assert isinstance(made, BackfillPlan)
    assert made.notes[-1] == "rows whose at is before 2013-01-02T00:00:00Z have expired and do not come back"
    assert without_rows({"read": 5, "written": 5, "filtered": 0}, 0) == {
        "read": 5,
        "written": 5,
        "filtered": 0,
    }
    terms = without_rows({"read": 6, "written": 5, "filtered": 1}, 3)
    assert terms == {"read": 6, "written": 2, "filtered": 1, "expired": 3}
    assert sum(identity_terms("row", terms).values()) == 6


def test_expired_rows_that_are_several_to_a_record_are_counted_by_their_records() -> None:
    """Of four records one became nothing, one two rows that have expired, one two of which one has, and one a row."""
    terms = without_rows({"read": 4, "exploded": 2, "written": 5, "filtered": 2}, 3, wholly=1)
    assert terms == {"read": 4, "exploded": 2, "written": 2, "filtered": 1, "expired": 1}
    assert sum(identity_terms("row", terms).values()) == 4


def test_repair_of_rows_whose_input_has_expired_is_refused() -> None:
    planned = _repair("row", JOB, ranges={"clicks": {0: (2, 5)}})
    facts = ExpiredFacts(part=JOB, inputs_us={"bronze.clicks": HORIZON})
    assert without_expired(planned, facts) == planned, "no row of the range was made of them"
    lost = Lost(table="silver.clicks", source="bronze.clicks", rows=2, ranges={"clicks": {0: (2, 4)}})
    refused = without_expired(planned, replace(facts, lost=[lost]))
    assert isinstance(refused, Refusal)
    assert refused.sentence == (
        "2 rows of silver.clicks in the range were made of rows of bronze.clicks before 2013-01-02T00:00:00Z, which "
        "have expired, and cannot be made again: give a range without the offsets clicks 0 [2, 4)"
    )


def test_repair_of_a_join_whose_partners_may_have_expired_is_refused() -> None:
    planned = _repair("join", JOB, ranges={"clicks": {0: (0, 5)}})
    facts = ExpiredFacts(
        part=JOB, inputs_us={"silver.payments": HORIZON}, partners_us=[("silver.payments", HORIZON - 1)]
    )
    refused = without_expired(planned, facts)
    assert isinstance(refused, Refusal)
    assert "rows of silver.payments before 2013-01-02T00:00:00Z have expired" in refused.sentence
    assert "may have had partners among them" in refused.sentence
    assert without_expired(planned, replace(facts, partners_us=[("silver.payments", HORIZON)])) == planned


def test_repair_of_windows_begins_with_the_first_that_is_kept() -> None:
    of = part({"clicks": clicks}, kind="window", operator=TumblingWindow("at", timedelta(hours=1), ("who",)))
    chunks = [(0, 2 * HOUR), (2 * HOUR, 6 * HOUR)]
    planned = _repair(
        "window",
        part({"clicks": clicks}),
        windows=((0, 6 * HOUR),),
        chunks=tuple(Chunk(number=n, rows=10, span=span) for n, span in enumerate(chunks)),
    )
    facts = ExpiredFacts(part=of, kept=Kept("window_end", [Horizon(4 * HOUR)]))
    made = without_expired(planned, facts)
    assert isinstance(made, BackfillPlan)
    assert made.windows == ((3 * HOUR, 6 * HOUR),), "the window from 3 to 4 ends at the horizon"
    assert [(chunk.number, chunk.span) for chunk in made.chunks] == [(0, (3 * HOUR, 6 * HOUR))]
    assert "windows that begin before 1970-01-01T03:00:00Z are left out" in made.notes[-1]
    of_input = without_expired(planned, ExpiredFacts(part=of, inputs_us={"silver.clicks": 9 * HOUR}))
    assert isinstance(of_input, Refusal)
    assert "what silver.clicks had of that time has expired" in of_input.sentence


def test_repair_leaves_out_a_period_whose_first_steps_have_expired() -> None:
    """Of cumulative windows that begin at 2, in steps of an hour, the one until 3 has expired, and that until 4 not."""
    steps = CumulativeWindow("at", timedelta(hours=2), timedelta(hours=1), ("who",))
    of = part({"clicks": clicks}, kind="window", operator=steps)
    chunk = Chunk(number=0, rows=10, span=(0, 6 * HOUR))
    planned = _repair("window", part({"clicks": clicks}), windows=((0, 6 * HOUR),), chunks=(chunk,))
    made = without_expired(planned, ExpiredFacts(part=of, kept=Kept("window_end", [Horizon(4 * HOUR)])))
    assert isinstance(made, BackfillPlan)
    assert made.windows == ((3 * HOUR, 6 * HOUR),), "none begins at 3"
    made = without_expired(planned, ExpiredFacts(part=of, kept=Kept("window_end", [Horizon(3 * HOUR)])))
    assert isinstance(made, BackfillPlan)
    assert made.windows == ((2 * HOUR, 6 * HOUR),)
