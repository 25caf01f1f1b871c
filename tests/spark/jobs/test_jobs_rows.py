"""Row-by-row jobs: decoding, deduplication, quarantine, checks, exactly once."""

import contextlib
import gc
import random
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from amount import drawn_seed
from headwater.sql import SqlSession
from headwater_streams.base.errors import CheckFailedError, DataLossError
from headwater_streams.delta.delta_table import DeltaTransaction
from headwater_streams.plan.job import bind
from headwater_streams.runtime.query import JobQuery
from headwater_streams.runtime.runner import JobRunner
from headwater_streams.testing import JobDriver, SimulatedCrash

departures = hw.topic(
    "departures",
    schema="flight_id STRING, carrier STRING, departed_at TIMESTAMP, delay_minutes INT",
    event_time="departed_at",
    watermark="30 minutes",
)


@hw.job(target=hw.delta("silver.departures"), dedup=hw.by_offset(origin=True))
@hw.check("has_carrier", "carrier IS NOT NULL")
def silver(departures: DataFrame) -> DataFrame:
    return departures.filter(F.col("delay_minutes") < 1000).select("flight_id", "carrier", "departed_at")


@hw.job(target=hw.delta("silver.plain"), dedup=hw.by_offset())
@hw.check("delay_sane", "avg(delay_minutes) < 600", on="input", level="batch", action="fail")
def plain(departures: DataFrame) -> DataFrame:
    return departures


@hw.job(target=hw.delta("silver.projected"))
def projecting(departures: DataFrame) -> DataFrame:
    return departures.select("flight_id", F.col("delay_minutes").alias("hours"))


@hw.job(target=hw.delta("silver.filtered"))
def filtering(departures: DataFrame) -> DataFrame:
    return departures.filter("delay_minutes < 1000").select(
        "flight_id", F.col("delay_minutes").alias("hours")
    )


def event(n: int, **changes: object) -> dict[str, object]:
    moment = f"2013-01-01T{10 + n // 60:02d}:{n % 60:02d}:00Z"
    return {"flight_id": f"f{n}", "carrier": "UA", "departed_at": moment, "delay_minutes": n, **changes}


AT = "2013-01-01T12:00:00+00:00"


@pytest.mark.story
def test_row_job_good_records_are_written_with_their_coordinates(drive: Callable[..., JobDriver]) -> None:
    driver = drive(silver)
    driver.send("departures", event(1), event(2), partition=1, timestamp=AT, origin=("east", "dep", 0, 40))
    driver.run()
    found = driver.rows("silver.departures", "flight_id", "_topic", "_partition", "_offset", "_origin.offset")
    assert found == [("f1", "departures", 1, 0, 40), ("f2", "departures", 1, 1, 41)]
    assert driver.table("silver.departures").columns == [
        "flight_id",
        "carrier",
        "departed_at",
        "_topic",
        "_partition",
        "_offset",
        "_timestamp",
        "_origin",
        "_batch",
        "_generation",
        "_seen_until",
    ]


def test_row_job_copies_in_one_batch_and_in_a_later_one_count_once(drive: Callable[..., JobDriver]) -> None:
    driver = drive(silver)
    driver.send("departures", event(1), timestamp=AT, origin=("east", "dep", 0, 0))
    driver.send("departures", event(1), timestamp=AT, origin=("east", "dep", 0, 0))
    driver.run()
    driver.send("departures", event(1), event(2), timestamp=AT, origin=("east", "dep", 0, 0))
    driver.run()
    assert driver.rows("silver.departures", "flight_id", "_offset") == [("f1", 0), ("f2", 3)]
    first, second = driver.ledger("silver.departures")
    assert first.accounting["departures"]["duplicate"] == 1
    assert second.accounting["departures"] == {
        "read": 2, "written": 1, "filtered": 0, "duplicate": 1, "quarantined": 0,
    }  # fmt: skip
    assert second.seen == {"east\tdep\t0": [(0, 2)]}
    assert not first.imbalances()
    assert not second.imbalances()


def test_row_job_record_whose_origin_is_no_name_goes_to_quarantine(drive: Callable[..., JobDriver]) -> None:
    """Each stopped the job for ever, or was taken for another origin's record."""
    driver = drive(silver)
    origin = {"cluster": b"a", "topic": b"b", "partition": b"0", "offset": b"5"}
    wrong = [{name: value} for name in ("cluster", "topic") for value in (b"\xff", b"a\tb")]
    for change in ({}, *wrong):
        headers = {f"headwater-origin-{k}": v for k, v in {**origin, **change}.items()}
        driver.send("departures", event(1), timestamp=AT, headers=headers)
    driver.run()
    assert driver.rows("silver.departures", "_offset") == [(0,)]
    told = "the headwater-origin headers are incomplete, not decimal numbers or not text"
    rejected = driver.rows("silver.departures__quarantine", "_offset", "_reason")
    assert rejected == [(offset, told) for offset, _ in enumerate(wrong, 1)]
    assert driver.audit() == []


def test_row_job_files_have_no_dictionary_of_what_never_comes_twice_and_no_origin_that_nobody_reads(
    drive: Callable[..., JobDriver],
) -> None:
    """Every reader finds the origin null."""
    driver = drive(projecting)
    driver.send("departures", *[event(n) for n in range(50)], timestamp=AT, origin=("east", "dep", 0, 40))
    driver.run()
    (file,) = driver.table("silver.projected").inputFiles()
    columns = pq.ParquetFile(file.removeprefix("file://")).metadata.row_group(0)
    found = {
        columns.column(i).path_in_schema: columns.column(i).encodings for i in range(columns.num_columns)
    }
    assert "PLAIN" in found["_offset"]
    assert not any("DICTIONARY" in name for name in (*found["_offset"], *found["_timestamp"]))
    assert any("DICTIONARY" in name for name in found["_topic"])
    read = DeltaTable(str(driver.context.home.table("silver.projected"))).to_pyarrow_table()
    assert sorted(read["_offset"].to_pylist()) == list(range(50))

    assert "_origin" not in pq.read_schema(file.removeprefix("file://")).names
    without = sorted([(f"f{n}", None) for n in range(50)], key=repr)
    assert driver.rows("silver.projected", "flight_id", "_origin") == without
    assert sorted((row["flight_id"], row["_origin"]) for row in read.to_pylist()) == without
    with SqlSession(driver.home.root) as sql:
        selected = sql.run("SELECT flight_id, _origin.offset FROM silver.projected ORDER BY flight_id")
        assert [*selected.rows()] == without


BAD = {
    "not json": (b"hello", "value"),
    "truncated": (b'{"flight_id": "x", "carrier": "U', "value"),
    "wrong type": (
        b'{"flight_id":"x","carrier":"UA","departed_at":"2013-01-01T10:00:00Z","delay_minutes":"a"}',
        "value",
    ),
    "empty": (b"", "value"),
    "null": (None, "value"),
    "array": (b'[{"flight_id":"x"}]', "value"),
    "two objects": (b'{"flight_id":"x"}{"flight_id":"y"}', "value"),
    "not utf-8": (b'{"flight_id":"\xff\xfe","departed_at":"2013-01-01T10:00:00Z","carrier":"UA"}', "value"),
    "no event time": (b'{"flight_id":"x","carrier":"UA","delay_minutes":1}', "event_time"),
    "far ahead": (b'{"flight_id":"x","carrier":"UA","departed_at":"2099-01-01T10:00:00Z"}', "event_time"),
    "no carrier": (b'{"flight_id":"x","departed_at":"2013-01-01T10:00:00Z"}', "has_carrier"),
}


@pytest.mark.story
def test_row_job_bad_values_go_to_quarantine_with_every_reason_and_filtered_rows_are_counted(
    drive: Callable[..., JobDriver],
) -> None:
    driver = drive(silver)
    driver.send("departures", event(1), *[value for value, _ in BAD.values()], timestamp=AT)
    driver.send("departures", event(2, delay_minutes=5000), timestamp=AT)
    driver.run()
    assert driver.rows("silver.departures", "flight_id") == [("f1",)]
    found = {row["_offset"]: row for row in driver.table("silver.departures__quarantine").collect()}
    assert sorted(found) == list(range(1, len(BAD) + 1))
    for offset, (name, (value, check)) in enumerate(BAD.items(), 1):
        assert check in found[offset]["_check"].split(", "), name
        assert found[offset]["_reason"], name
        raw = found[offset]["_raw"]
        assert (None if raw is None else bytes(raw)) == value, name
    assert "delay_minutes is not INT" in found[3]["_reason"]
    (entry,) = driver.ledger("silver.departures")
    assert entry.accounting["departures"]["quarantined"] == len(BAD)
    assert entry.accounting["departures"]["filtered"] == 1
    assert not entry.imbalances()


@pytest.mark.story
def test_row_job_event_of_2099_moves_no_watermark(drive: Callable[..., JobDriver]) -> None:
    driver = drive(silver)
    driver.send("departures", event(1), event(2, departed_at="2099-01-01T00:00:00Z"), timestamp=AT)
    driver.run()
    driver.send("departures", event(3), timestamp=AT)
    driver.run()
    found = driver.table("silver.departures").collect()
    assert sorted((row["flight_id"], str(row["_seen_until"])) for row in found) == [
        ("f1", "None"),
        ("f3", "2013-01-01 10:01:00"),
    ]


@pytest.mark.parametrize("rejected", ["some", "all", "one"])
def test_row_job_rejected_rows_of_several_partitions_are_all_in_quarantine(
    drive: Callable[..., JobDriver], rejected: str
) -> None:
    seed = drawn_seed()
    rng, driver = random.Random(seed), drive(plain)
    expected: list[tuple[int, int]] = []
    good: list[tuple[int, int]] = []
    one = rng.randrange(900)
    for partition, start in enumerate((0, 70_000, 5_000_000_000)):
        values: list[Mapping[str, Any] | bytes | None] = []
        for number in range(300):
            bad = {"some": rng.random() < 0.05, "all": True, "one": partition * 300 + number == one}[rejected]
            values.append(rng.choice([b"bad", b"{}", None]) if bad else event(1))
            (expected if bad else good).append((partition, start + number))
        driver.send("departures", *values, partition=partition, offset=start, timestamp=AT)
    driver.run()
    assert sorted(driver.rows("silver.plain__quarantine", "_partition", "_offset")) == sorted(expected)
    assert sorted(driver.rows("silver.plain", "_partition", "_offset")) == sorted(good)
    (entry,) = driver.ledger("silver.plain")
    assert entry.accounting["departures"] == {
        "read": 900, "written": len(good), "filtered": 0, "duplicate": 0, "quarantined": len(expected),
    }  # fmt: skip
    by_partition = [terms["quarantined"] for terms in entry.partitions["departures"].values()]
    assert by_partition == [sum(place == p for place, _ in expected) for p in range(3)]


def test_row_job_function_that_only_projects_accounts_as_one_that_filters(
    drive: Callable[..., JobDriver],
) -> None:
    driver = drive(projecting, filtering)
    for partition in range(2):
        driver.send("departures", event(1), b"bad", event(2), partition=partition, timestamp=AT)
    driver.run()
    (one,), (other,) = driver.ledger("silver.projected"), driver.ledger("silver.filtered")
    assert one.accounting == other.accounting
    assert one.partitions == other.partitions
    assert one.partitions["departures"][1] == {
        "read": 3, "written": 2, "filtered": 0, "duplicate": 0, "quarantined": 1,
    }  # fmt: skip
    assert driver.rows("silver.projected", "hours") == driver.rows("silver.filtered", "hours")


@pytest.mark.parametrize("job", ["projecting", "filtering"])
def test_row_job_rows_that_are_lost_on_the_way_to_the_files_are_missed(
    drive: Callable[..., JobDriver], monkeypatch: pytest.MonkeyPatch, job: str
) -> None:
    driver = drive({"projecting": projecting, "filtering": filtering}[job])
    driver.send("departures", event(1), event(2), timestamp=AT)
    write = DeltaTransaction.write
    monkeypatch.setattr(DeltaTransaction, "write", lambda self, rows: write(self, rows.filter("hours = 1")))
    with pytest.raises(DataLossError, match="1 rows were written where 2 came out"):
        driver.run()


def test_row_job_crash_at_any_step_gives_the_same_tables(drive: Callable[..., JobDriver]) -> None:
    driver = drive(silver)
    driver.send("departures", event(1), b"bad", timestamp=AT, origin=("east", "dep", 0, 0))
    driver.run()
    kept, rejected, read = [0], [1], 2
    for step in ("start", "before quarantine", "before commit", "after commit", "end"):
        driver.send("departures", event(2), b"worse", event(1), timestamp=AT, origin=("east", "dep", 0, read))
        driver.crash_at(step)
        with pytest.raises(SimulatedCrash):
            driver.run()
        driver.send("departures", event(3), timestamp=AT, origin=("east", "dep", 0, read + 3))
        driver.run()
        kept, rejected = [*kept, read, read + 2, read + 3], [*rejected, read + 1]
        read += 4
        assert sorted(driver.rows("silver.departures", "_offset")) == [(offset,) for offset in kept], step
        found = sorted(driver.rows("silver.departures__quarantine", "_offset"))
        assert found == [(offset,) for offset in rejected], step
        accounts = [entry.accounting["departures"]["read"] for entry in driver.ledger("silver.departures")]
        assert sum(accounts) == read, step


def test_row_job_same_offset_redelivered_counts_once(drive: Callable[..., JobDriver]) -> None:
    driver = drive(plain)
    driver.send("departures", event(1), event(2), timestamp=AT)
    driver.run()
    driver.send("departures", event(2), event(3), offset=1, timestamp=AT)
    driver.run()
    assert driver.rows("silver.plain", "flight_id") == [("f1",), ("f2",), ("f3",)]


@pytest.mark.story
def test_row_job_failing_batch_check_commits_nothing(drive: Callable[..., JobDriver]) -> None:
    driver = drive(plain)
    driver.send("departures", event(1, delay_minutes=700), timestamp=AT)
    with pytest.raises(CheckFailedError, match="delay_sane"):
        driver.run()
    assert driver.rows("silver.plain") == []


def test_row_job_that_was_killed_as_its_first_batch_was_planned_begins(
    drive: Callable[..., JobDriver],
) -> None:
    driver = drive(plain)
    driver.send("departures", event(1), timestamp=AT)
    offsets = driver.home.checkpoint("plain", 1) / "offsets"
    offsets.mkdir(parents=True)
    (offsets / ".0.0d2c6ad0-5b1b-4c51-a3c5-1d4c7f1f2f3a.tmp").write_text("v1")
    driver.run()
    assert driver.rows("silver.plain", "flight_id") == [("f1",)]


def run_out(runner: JobRunner) -> JobQuery:
    """The query of a runner's one job, which has run over what is there now; a runner forgets one that failed."""
    running: dict[str, JobQuery] = {}

    def look() -> bool:
        running.update(runner.queries)
        return False

    with contextlib.suppress(CheckFailedError):
        runner.run_once(stopping=look)
    (query,) = running.values()
    return query


@pytest.mark.parametrize("delay", [7, 700], ids=["well", "of a failed batch"])
def test_row_job_query_that_has_ended_is_let_go_by_both_vms(
    drive: Callable[..., JobDriver], delay: int
) -> None:
    driver = drive(plain)
    driver.send("departures", event(1, delay_minutes=delay), timestamp=AT)
    runner = JobRunner(driver.context, [bind(plain)], progress_every_s=None)
    query = run_out(runner)
    jvm: Any = driver.context.spark._jvm
    assert (query.failure() is None) == (delay == 7)
    of_jvm = jvm.java.lang.ref.WeakReference(query._query._jsq.streamingQuery())
    of_python = weakref.ref(query)
    del runner, query
    gc.collect()
    assert of_python() is None
    until = time.monotonic() + 30
    while of_jvm.get() is not None and time.monotonic() < until:
        gc.collect()
        jvm.java.lang.System.gc()
        time.sleep(0.2)
    assert of_jvm.get() is None, "its session and its plans would be kept for as long as the VMs live"
