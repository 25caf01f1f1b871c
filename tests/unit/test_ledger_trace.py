"""Tracing rows to their records and records to their rows, over ledgers that are written by hand."""

import math
import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from headwater.cli._trace_lines import lines_of_row
from headwater_streams.base.ledger_entry import LedgerEntry, SourceRange
from headwater_streams.ledger.log import Commit
from headwater_streams.ledger.trace import (
    Place,
    Span,
    TableHistory,
    TracedRow,
    notes_of,
    records_of,
    trace_record,
    trace_rows,
)
from headwater_streams.ledger.trace.history import During, why_without_row
from headwater_streams.ledger.trace.narrowing import counted_by, period_of
from headwater_streams.ledger.trace.places import joined, place_of, spans_of
from headwater_streams.ledger.trace.values import rows_of

T0 = datetime(2013, 1, 1, 10, tzinfo=UTC)
INGEST, HOURLY, BUSY = "gold.hourly__ingest_clicks", "gold.hourly", "silver.busy"


def commit(version: int, entry: LedgerEntry) -> Commit:
    return Commit(version, version, "STREAMING UPDATE", 1, 0, True, entry, ("part",))


def entry(table: str, batch: int, kind: Any, *sources: SourceRange, **more: Any) -> LedgerEntry:
    job = table.partition(".")[2]
    return LedgerEntry(job=job, generation=1, batch=batch, table=table, kind=kind, sources=sources, **more)


def of_topic(start: int, end: int, topic: str = "clicks", name: str = "clicks") -> SourceRange:
    return SourceRange(input=name, topic=topic, ranges={topic: {0: (start, end)}})


def of_table(
    table: str, versions: tuple[int, int], start: int, end: int, name: str = "clicks"
) -> SourceRange:
    return SourceRange(input=name, table=table, versions=versions, ranges={"clicks": {0: (start, end)}})


def row(offset: int, batch: int = 0, topic: str = "clicks", **values: Any) -> dict[str, Any]:
    at = {"_topic": topic, "_partition": 0, "_offset": offset, "_batch": batch, "_generation": 1}
    return {**values, **at}


def window(key: str, hour: int, start: int, end: int, rows: int, **values: Any) -> dict[str, Any]:
    sources = [{"topic": "clicks", "partition": 0, "start": start, "end": end}]
    begin = T0 + timedelta(hours=hour)
    own = {"key": key, "window_start": begin, "window_end": begin + timedelta(hours=1)}
    return {**own, **values, "_sources": sources, "_rows": rows, "_batch": 0, "_generation": 1}


class FakeTables:
    """Tables in memory: commits and rows, as `HomeTables` gives those of a home."""

    def __init__(
        self, commits: Mapping[str, Sequence[Commit]], rows: Mapping[str, Sequence[dict[str, Any]]]
    ) -> None:
        self._commits, self._rows = commits, rows

    def names(self) -> Sequence[str]:
        return sorted({*self._commits, *self._rows})

    def history(self, table: str) -> TableHistory:
        return TableHistory.of(table, self._commits.get(table, ()))

    def rows_at(self, table: str, spans: Sequence[Span], during: During | None = None) -> pa.Table:
        def is_in(each: dict[str, Any]) -> bool:
            return during is None or during.start <= each.get(during.column, during.start) < during.end

        return self._table(
            table, lambda each: is_in(each) and any(s.holds(p) for s in spans for p in [place_of(each)] if p)
        )

    def rows_over(self, table: str, place: Place) -> pa.Table:
        return self._table(table, lambda each: any(s is not None and s.holds(place) for s in spans_of(each)))

    def window_time(self, job: str) -> str | None:
        return "at" if job == "hourly" else None

    def _table(self, table: str, chosen: Any) -> pa.Table:
        rows = self._rows.get(table) or [row(-1)]  # a table without rows has columns, too
        schema = pa.Table.from_pylist([*rows]).schema
        return pa.Table.from_pylist([e for e in rows if e.get("_offset") != -1 and chosen(e)], schema=schema)


def clicks(*values: tuple[int, str, float]) -> list[dict[str, Any]]:
    """Rows of the ingest table: offset, key, and the hour of each."""
    return [row(offset, key=key, at=T0 + timedelta(hours=hour)) for offset, key, hour in values]


@pytest.fixture
def tables() -> FakeTables:
    """Clicks by hour and key, two of them apart, and a job that filters the hours.

    offset   0    1    2    3    4         5            6
    key      a    b    a    a    (no key)  a            filtered by the ingest job
    hour     10   10   11   10             9, late
    """
    counts = {"read": 7, "written": 5, "filtered": 1, "quarantined": 1}
    commits = {
        INGEST: [
            commit(
                1,
                entry(
                    INGEST,
                    0,
                    "row",
                    of_topic(0, 7),
                    accounting={"clicks": counts},
                    partitions={"clicks": {0: counts}},
                ),
            )
        ],
        HOURLY: [commit(1, entry(HOURLY, 0, "window", of_table(INGEST, (1, 2), 0, 7)))],
        BUSY: [
            commit(
                1,
                entry(
                    BUSY,
                    0,
                    "row",
                    of_table(HOURLY, (1, 2), 0, 7, "hourly"),
                    accounting={"hourly": {"read": 3, "written": 1, "filtered": 2}},
                ),
            )
        ],
        f"{HOURLY}__late": [],
        f"{HOURLY}__quarantine": [],
    }
    late = row(5, key="a", at=T0 - timedelta(hours=1), _input="clicks")
    rows = {
        INGEST: clicks((0, "a", 0.1), (1, "b", 0.2), (2, "a", 1.5), (3, "a", 0.9), (5, "a", -1)),
        HOURLY: [window("a", 0, 0, 4, 2, n=2), window("b", 0, 1, 2, 1, n=1), window("a", 1, 2, 3, 1, n=1)],
        BUSY: [row(0, key="a", n=2)],
        f"{HOURLY}__late": [late],
        f"{HOURLY}__quarantine": [row(4, _reason="has_key: key IS NOT NULL", _raw=b"{}")],
    }
    return FakeTables(commits, rows)


def offsets(traced: TracedRow) -> list[int]:
    return sorted({place.offset for span in records_of(traced) for place in span.places(100)})


def test_trace_of_a_window_finds_just_the_rows_that_it_counts(tables: FakeTables) -> None:
    (traced,) = trace_rows(tables, HOURLY, [window("a", 0, 0, 4, 2, n=2)])
    (behind,) = traced.inputs
    assert (traced.job, traced.version, behind.table, behind.count, behind.note) == (
        "hourly",
        1,
        INGEST,
        2,
        "",
    )
    assert offsets(traced) == [0, 3], "of the range [0, 4), neither the other key's nor the other hour's"


def test_trace_of_a_row_of_a_window_goes_through_both_jobs(tables: FakeTables) -> None:
    (traced,) = trace_rows(tables, BUSY, [row(0, key="a", n=2)])
    (hourly,) = traced.inputs[0].rows
    assert hourly.table == HOURLY
    assert hourly.inputs[0].table == INGEST
    assert offsets(traced) == [0, 3]


def test_trace_of_a_window_whose_key_is_computed_says_what_it_does_not_know(tables: FakeTables) -> None:
    (traced,) = trace_rows(tables, HOURLY, [window("A", 0, 0, 4, 2, n=2)])
    assert traced.inputs[0].count == 3
    assert traced.inputs[0].note == (
        "the window counts 2 of these 3 rows: which of them, its columns do not say"
    )


def test_trace_follows_no_more_rows_than_it_may_and_counts_all(tables: FakeTables) -> None:
    (traced,) = trace_rows(tables, HOURLY, [window("a", 0, 0, 4, 2, n=2)], most=1)
    assert (traced.inputs[0].count, len(traced.inputs[0].rows)) == (2, 1)
    assert [*notes_of(traced)] == [f"of 2 rows of {INGEST} the first 1 were followed"]


def test_trace_of_a_record_leads_through_windows_to_the_last_table(tables: FakeTables) -> None:
    (step,) = trace_record(tables, Place("clicks", 0, 0))
    (hourly,) = step.further
    (busy,) = hourly.further
    assert [each.fate for each in (step, hourly, busy)] == ["row", "row", "row"]
    assert [each.table for each in (step, hourly, busy)] == [INGEST, HOURLY, BUSY]


def test_trace_of_a_record_of_another_key_reaches_its_own_window_only(tables: FakeTables) -> None:
    (step,) = trace_record(tables, Place("clicks", 0, 1))
    (hourly,) = step.further
    assert hourly.values is not None
    assert hourly.values["key"] == "b"
    (busy,) = hourly.further
    assert (busy.fate, busy.why) == ("left out", "the job's function dropped it")


@pytest.mark.parametrize(
    ("offset", "fate", "why"),
    [
        (4, "quarantined", "has_key: key IS NOT NULL"),
        (6, "left out", "the job's function dropped it"),
        (7, "not read", "the job has read up to offset 7 so far"),
    ],
)
def test_trace_of_a_record_without_a_row_says_why(
    tables: FakeTables, offset: int, fate: str, why: str
) -> None:
    (step,) = trace_record(tables, Place("clicks", 0, offset))
    assert (step.fate, step.why) == (fate, why)


def test_trace_of_a_late_record_is_a_row_of_the_ingest_table_and_late_to_the_windows(
    tables: FakeTables,
) -> None:
    (step,) = trace_record(tables, Place("clicks", 0, 5))
    assert (step.table, step.fate) == (INGEST, "row")
    assert [(each.table, each.fate) for each in step.further] == [(f"{HOURLY}__late", "late")]


def test_trace_of_a_record_of_a_topic_that_no_job_reads_is_empty(tables: FakeTables) -> None:
    assert trace_record(tables, Place("orders", 0, 0)) == []


def test_trace_of_a_pair_names_both_of_its_records() -> None:
    pairs = "gold.pairs"
    sides = of_topic(0, 9, "left", "left"), of_topic(0, 9, "right", "right")
    history = TableHistory.of(pairs, [commit(1, entry(pairs, 0, "join", *sides))])
    pair = row(3, topic="left") | {
        "_sources": [
            {"topic": "left", "partition": 0, "start": 3, "end": 4},
            {"topic": "right", "partition": 0, "start": 5, "end": 6},
        ]
    }
    tables = FakeTables({pairs: history.commits}, {pairs: [pair]})
    (traced,) = trace_rows(tables, pairs, [pair])
    assert [(each.input, list(map(str, each.spans))) for each in traced.inputs] == [
        ("left", ["left:0:3"]),
        ("right", ["right:0:5"]),
    ]
    (step,) = trace_record(tables, Place("right", 0, 5))
    assert (step.fate, step.table) == ("row", pairs)
    alone = pair | {"_sources": [pair["_sources"][0], None]}
    (traced,) = trace_rows(tables, pairs, [alone])
    assert [each.input for each in traced.inputs] == ["left"], "it found no partner"


def test_trace_of_a_join_of_a_topic_with_itself_knows_the_sides() -> None:
    pairs = "gold.pairs"
    sides = of_topic(0, 9, name="first"), of_topic(0, 9, name="second")
    history = TableHistory.of(pairs, [commit(1, entry(pairs, 0, "join", *sides))])
    assert [history.input_of(Span("clicks", 0, 3, 4), side).input for side in (0, 1)] == ["first", "second"]  # type: ignore[union-attr]


def test_trace_of_a_row_of_the_first_version_names_the_row_that_its_batch_read() -> None:
    made_of = {"silver.rows": [row(0, n=1), row(0, batch=1, n=2)], BUSY: [row(0, n=1)]}
    commits = {
        "silver.rows": [
            commit(batch, entry("silver.rows", batch, "row", of_topic(batch, batch + 1))) for batch in (0, 1)
        ],
        BUSY: [commit(1, entry(BUSY, 0, "row", of_table("silver.rows", (0, 1), 0, 1)))],
    }
    (traced,) = trace_rows(FakeTables(commits, made_of), BUSY, made_of[BUSY])
    assert [each.values["n"] for each in traced.inputs[0].rows] == [1]


def test_trace_prints_numbers_that_json_does_not_have() -> None:
    values = {"a": math.nan, "b": -math.inf, "c": None, "d": 0.5}
    (line,) = lines_of_row(TracedRow("t", "", "", None, None, None, values, ()), {})
    assert line.startswith("t  a=NaN, b=-Infinity, c=NULL, d=0.5  ")


def test_trace_of_a_repaired_row_names_the_repair_until_it_is_taken_back() -> None:
    table, place = "silver.clicks", Span("clicks", 0, 4, 5)
    batch = commit(1, entry(table, 0, "row", of_topic(0, 9)))
    swap = commit(2, entry(table, 7, "backfill", of_topic(3, 6), extra={"action": "swap", "backfill": "b-1"}))
    back = commit(
        3, entry(table, 8, "backfill", of_topic(3, 6), extra={"action": "rollback", "backfill": "b-1"})
    )
    assert TableHistory.of(table, [batch, swap]).written_by(row(4), [place]) is swap
    assert TableHistory.of(table, [batch, swap]).written_by(row(7), [Span("clicks", 0, 7, 8)]) is batch
    assert TableHistory.of(table, [batch, swap, back]).written_by(row(4), [place]) is batch


def test_trace_of_a_record_before_the_job_began_says_so() -> None:
    table = "silver.clicks"
    tables = FakeTables({table: [commit(1, entry(table, 0, "row", of_topic(5, 9)))]}, {table: [row(5)]})
    (step,) = trace_record(tables, Place("clicks", 0, 2))
    assert (step.fate, step.why) == ("not read", "the job began at offset 5")
    (step,) = trace_record(tables, Place("clicks", 3, 2))
    assert step.why == "the job has read nothing of partition 3 yet"


def test_trace_of_a_row_that_no_commit_wrote_has_no_job() -> None:
    table = "silver.clicks"
    tables = FakeTables({table: []}, {table: [row(5)]})
    (traced,) = trace_rows(tables, table, [row(5)])
    assert (traced.job, traced.version) == ("", None)
    assert traced.inputs[0].note == "the ledger of silver.clicks does not say by which input they came"


def test_record_without_a_row_has_each_reason_that_its_batch_allows() -> None:
    assert why_without_row({"read": 2, "written": 1, "duplicate": 1}) == "it had been read before"
    assert why_without_row({"read": 3, "written": 1, "filtered": 1, "duplicate": 1}) == (
        "the job's function dropped it (so of 1 records of its batch), or it had been read before (1)"
    )
    assert why_without_row({"read": 1, "written": 1}).endswith("it was removed from the table afterwards")


def test_trace_of_a_count_window_has_its_last_row_both_ways(tables: FakeTables) -> None:
    """Its end is the time of its last row, 10:54 of row 3."""
    end = T0 + timedelta(hours=0.9)
    counted = window("a", 0, 0, 4, 2, n=2) | {"window_start": T0 + timedelta(hours=0.1), "window_end": end}
    counted["window_index"] = 0
    (traced,) = trace_rows(tables, HOURLY, [counted])
    assert (offsets(traced), traced.inputs[0].note) == ([0, 3], "")
    rows = {**tables._rows, HOURLY: [counted]}
    (step,) = trace_record(FakeTables(tables._commits, rows), Place("clicks", 0, 3))
    assert [(each.table, each.fate) for each in step.further] == [(HOURLY, "row")]


def test_trace_reads_of_a_busy_topic_only_what_is_of_the_windows_time(tables: FakeTables) -> None:
    asked: list[During | None] = []
    read = tables.rows_at

    def rows_at(table: str, spans: Sequence[Span], during: During | None = None) -> pa.Table:
        asked.extend([during] if table == INGEST and len(spans) == 1 and len(spans[0]) > 1 else [])
        return read(table, spans, during)

    tables.rows_at = rows_at  # type: ignore[method-assign]
    trace_rows(tables, HOURLY, [window("a", 0, 0, 4, 2, n=2)])
    assert asked == [During("at", T0, T0 + timedelta(hours=1))]


def test_rows_of_a_window_are_found_without_the_name_of_its_time() -> None:
    rows = pa.Table.from_pylist(
        [{"key": "a", "sent": T0 - timedelta(days=1), "at": T0 + timedelta(minutes=m)} for m in (0, 59, 60)]
    )
    counted = counted_by(window("a", 0, 0, 3, 2), rows)
    assert (counted.is_exact, counted.by, counted.rows.num_rows) == (True, ("at",), 2)


def test_rows_of_a_window_are_not_chosen_by_a_result_of_the_same_name() -> None:
    rows = pa.Table.from_pylist([{"key": k, "delay": d} for k, d in (("a", 10), ("a", 20), ("b", 15))])
    counted = counted_by({"key": "a", "delay": 15.0, "_rows": 2}, rows)
    assert (counted.is_exact, counted.by) == (True, ("key",)), "15 is the average, not a part of the key"


def test_rows_of_a_window_with_a_null_in_its_key_are_those_with_a_null() -> None:
    rows = pa.Table.from_pylist([{"key": "a"}, {"key": None}])
    assert counted_by({"key": None, "_rows": 1}, rows).rows.to_pylist() == [{"key": None}]


def test_rows_of_a_window_that_are_gone_are_counted() -> None:
    rows = pa.Table.from_pylist([{"key": "a"}])
    assert counted_by({"key": "a", "_rows": 3}, rows).note == (
        "the window counts 3 rows, of which 1 are still there"
    )


def test_ranges_that_touch_are_one() -> None:
    spans = [Span("b", 0, 0, 2), Span("a", 0, 4, 6), Span("a", 0, 0, 5), Span("a", 1, 6, 7)]
    assert list(map(str, joined(spans))) == ["a:0:[0, 6)", "a:1:6", "b:0:[0, 2)"]


@pytest.mark.parametrize(
    "text",
    [
        "clicks",
        "clicks:0",
        ":0:1",
        "clicks:a:1",
        "clicks:0:-1",
        "clicks:0:²",
        f"clicks:0:{2**63}",
        f"clicks:{2**31}:0",
    ],
)
def test_text_that_names_no_record_is_none(text: str) -> None:
    assert Place.parse(text) is None


@pytest.mark.parametrize("seed", range(30))
def test_trace_of_random_windows_is_the_truth_both_ways(seed: int) -> None:
    """Rows of a few keys over some hours in random order, some late, folded into windows whose ranges overlap: each
    window leads to its rows, and each row to its window or to the late table."""
    rng = random.Random(seed)
    keys = [*"abc", None][: rng.randint(1, 4)]
    rows = [
        row(offset, key=rng.choice(keys), at=T0 + timedelta(minutes=rng.randrange(300)))
        for offset in range(rng.randint(1, 60))
    ]
    late = {each["_offset"] for each in rows if rng.random() < 0.2}
    members: dict[tuple[Any, int], list[int]] = {}
    for each in rows:
        if each["_offset"] not in late:
            hour = (each["at"] - T0) // timedelta(hours=1)
            members.setdefault((each["key"], hour), []).append(each["_offset"])
    windows = [
        window(key, hour, min(its), max(its) + 1, len(its), n=len(its))
        for (key, hour), its in members.items()
    ]
    lates = [each | {"_input": "clicks"} for each in rows if each["_offset"] in late]
    commits = {
        INGEST: [commit(1, entry(INGEST, 0, "row", of_topic(0, len(rows))))],
        HOURLY: [commit(1, entry(HOURLY, 0, "window", of_table(INGEST, (1, 2), 0, len(rows))))],
    }
    tables = FakeTables(commits, {INGEST: rows, HOURLY: windows, f"{HOURLY}__late": lates})
    for traced, its in zip(trace_rows(tables, HOURLY, windows, most=99), members.values(), strict=True):
        assert (offsets(traced), traced.inputs[0].note) == (its, ""), f"seed {seed}"
    for each in rows:
        (step,) = trace_record(tables, Place("clicks", 0, each["_offset"]))
        (onward,) = step.further
        if each["_offset"] in late:
            assert onward.fate == "late", f"seed {seed}"
        else:
            assert onward.values is not None
            assert (onward.fate, onward.values["key"]) == ("row", each["key"]), f"seed {seed}"
            assert onward.values["window_start"] <= each["at"] < onward.values["window_end"]


def test_times_that_python_does_not_have_are_texts_in_traced_rows() -> None:
    """Such a time is often why a row is traced."""
    at = pa.array([0, 253_402_300_800_000_000, -62_135_596_800_000_001], pa.timestamp("us", "UTC"))
    day = pa.array([0, 3_000_000, -1_000_000], pa.date32())
    nested = pa.ListArray.from_arrays(pa.array(range(4), pa.int32()), at)
    first, after, before = rows_of(pa.table({"at": at, "day": day, "nested": nested}))
    assert (first["at"], first["day"].isoformat()) == (datetime(1970, 1, 1, tzinfo=UTC), "1970-01-01")
    assert after["at"].startswith("10000-01-01 00:00:00")
    assert after["day"].startswith("10183-")
    assert before["at"].startswith("0000-12-31 23:59:59")
    assert [each["n"] for each in rows_of(pa.table({"n": [1]}))] == [1]
    far = window("a", 0, 0, 4, 2) | {"window_start": after["at"], "window_end": after["at"]}
    assert period_of(far) is None
