"""Look-ups: rows enriched from a table that changes under the job, each batch at one version, a backfill at the same.

dim.airports   version  0 ------- 1 --------------- 2 ------------>
batches            | 0 |              | 1 |            (2 is newer than what batch 1 read)
"""

import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from amount import drawn_seed
from headwater_streams import backfill
from headwater_streams.backfill import BackfillError
from headwater_streams.base.errors import (
    DataLossError,
    IncompatibleTableError,
    JobDefinitionError,
    LookupKeyError,
)
from headwater_streams.ledger.audit import audit_table
from headwater_streams.plan.job import Job, bind
from headwater_streams.runtime.lookups import Lookups
from headwater_streams.runtime.planning import plan_jobs
from headwater_streams.runtime.runner import JobRunner
from headwater_streams.testing import JobDriver, SimulatedCrash
from support.watching import watch_until

departures = hw.topic("departures", schema="flight_id STRING, dest STRING, departed_at TIMESTAMP")
timed = hw.topic("departures", schema="flight_id STRING, departed_at TIMESTAMP", event_time="departed_at",
                 watermark="1 hour")  # fmt: skip
airports = hw.lookup("dim.airports")


@hw.job(target=hw.delta("silver.named"), dedup=hw.by_offset())
def named(departures: DataFrame, airports: DataFrame) -> DataFrame:
    return hw.enrich(departures, airports, on={"dest": "code"}).select("flight_id", "name")


@hw.job(target=hw.delta("silver.known"), dedup=hw.by_offset())
def known(departures: DataFrame, airports: DataFrame) -> DataFrame:
    return hw.enrich(departures, airports.filter("open"), on={"dest": "code"}, how="inner")


landed = hw.topic(
    "landed", schema="flight_id STRING, landed_at TIMESTAMP", event_time="landed_at", watermark="1 hour"
)
both_coasts = hw.topic("east", "west", schema="flight_id STRING, dest STRING")


@hw.job(
    targets={"named": hw.delta("silver.both_named"), "unknown": hw.delta("silver.unknown")},
    dedup=hw.by_offset(),
)
def split_by_airport(both_coasts: DataFrame, airports: DataFrame) -> Mapping[str, DataFrame]:
    rows = hw.enrich(both_coasts, airports, on={"dest": "code"})
    return {"named": rows.filter("name IS NOT NULL"), "unknown": rows.filter("name IS NULL").select("dest")}


@hw.job(target=hw.delta("silver.multiplied"), dedup=hw.by_offset())
def multiplied(departures: DataFrame, airports: DataFrame) -> DataFrame:
    return departures.join(airports, F.col("dest") == F.col("code")).select("flight_id")


AIRPORTS = "code STRING, name STRING, open BOOLEAN"
AT = "2013-01-01T12:00:00+00:00"


def flight(n: int, dest: str | None) -> dict[str, Any]:
    return {"flight_id": f"f{n}", "dest": dest, "departed_at": "2013-01-01T10:00:00Z"}


@pytest.mark.story
def test_lookup_table_changes_each_batch_reads_the_version_of_its_time(
    drive: Callable[..., JobDriver],
) -> None:
    driver = drive(named)
    driver.put("dim.airports", AIRPORTS, ("JFK", "Kennedy", True))
    driver.send("departures", flight(1, "JFK"), flight(2, "LAX"), flight(3, None), timestamp=AT)
    driver.run()
    driver.put("dim.airports", AIRPORTS, ("JFK", "John F. Kennedy", True), ("LAX", "Los Angeles", True))
    driver.send("departures", flight(4, "JFK"), flight(5, "LAX"), timestamp=AT)
    driver.run()
    assert driver.rows("silver.named", "flight_id", "name", "_offset") == [
        ("f1", "Kennedy", 0),
        ("f2", None, 1),
        ("f3", None, 2),
        ("f4", "John F. Kennedy", 3),
        ("f5", "Los Angeles", 4),
    ]
    told = [entry.extra["lookups"]["airports"] for entry in driver.ledger("silver.named")]
    assert [(t["table"], t["version"]) for t in told] == [("dim.airports", 0), ("dim.airports", 1)]
    audit = audit_table(driver.home, "silver.named")
    assert audit is not None
    assert audit.ok, audit.findings


def test_lookup_inner_unmatched_rows_are_filtered(drive: Callable[..., JobDriver]) -> None:
    driver = drive(known)
    driver.put("dim.airports", AIRPORTS, ("JFK", "Kennedy", True), ("LGA", "La Guardia", False))
    driver.send("departures", flight(1, "JFK"), flight(2, "LGA"), flight(3, "X"), b"bad", timestamp=AT)
    driver.run()
    assert driver.table("silver.known").columns[:5] == ["flight_id", "dest", "departed_at", "name", "open"]
    assert driver.rows("silver.known", "flight_id", "name") == [("f1", "Kennedy")]
    (entry,) = driver.ledger("silver.known")
    assert entry.accounting["departures"] == {
        "read": 4, "written": 1, "filtered": 2, "duplicate": 0, "quarantined": 1,
    }  # fmt: skip


def test_lookup_two_rows_for_a_key_stop_the_batch_and_are_named(drive: Callable[..., JobDriver]) -> None:
    driver = drive(named)
    driver.put("dim.airports", AIRPORTS, ("JFK", "Kennedy", True))
    driver.send("departures", flight(1, "JFK"), timestamp=AT)
    driver.run()
    driver.put(
        "dim.airports", AIRPORTS, ("JFK", "a", True), ("JFK", "b", True), (None, "c", True), (None, "d", True)
    )
    driver.send("departures", flight(2, "JFK"), timestamp=AT)
    told = r"^job 'named', which looks up dim\.airports: .*code='JFK' 2 times\), and rows would be doubled"
    with pytest.raises(LookupKeyError, match=told):
        driver.run()
    assert driver.rows("silver.named", "flight_id") == [("f1",)]
    driver.put("dim.airports", AIRPORTS, ("JFK", "mended", True))
    driver.run()
    assert driver.rows("silver.named", "flight_id", "name") == [("f1", "Kennedy"), ("f2", "mended")]


def test_lookup_plain_join_that_multiplies_rows_is_refused(drive: Callable[..., JobDriver]) -> None:
    driver = drive(multiplied)
    driver.put("dim.airports", AIRPORTS, ("JFK", "a", True), ("JFK", "b", True))
    driver.send("departures", flight(1, "JFK"), timestamp=AT)
    with pytest.raises(
        LookupKeyError,
        match=r"several rows for silver\.multiplied of one record \(departures 0 offset 0: 2\)",
    ):
        driver.run()
    assert driver.rows("silver.multiplied") == []


def test_lookup_of_several_topics_into_several_tables_each_names_the_version(
    drive: Callable[..., JobDriver],
) -> None:
    driver = drive(split_by_airport)
    for version, name in enumerate(["old", "new"]):
        driver.put("dim.airports", AIRPORTS, ("JFK", name, True))
        for topic in ("east", "west"):
            values = [{"flight_id": f"{topic}{version}", "dest": dest} for dest in ("JFK", "X")]
            driver.send(topic, *values, timestamp=AT)
        driver.run()
    assert driver.rows("silver.both_named", "flight_id", "name", "_topic", "_offset") == [
        ("east0", "old", "east", 0), ("east1", "new", "east", 2),
        ("west0", "old", "west", 0), ("west1", "new", "west", 2),
    ]  # fmt: skip
    assert driver.rows("silver.unknown", "dest", "_topic", "_offset") == [
        ("X", "east", 1), ("X", "east", 3), ("X", "west", 1), ("X", "west", 3),
    ]  # fmt: skip
    for table in ("silver.both_named", "silver.unknown"):
        told = [entry.extra["lookups"]["airports"]["version"] for entry in driver.ledger(table)]
        assert told == [0, 1]
        audit = audit_table(driver.home, table)
        assert audit is not None
        assert audit.ok, audit.findings
        assert audit.totals["both_coasts"]["filtered"] == 4


def test_lookup_killed_batch_reads_the_newer_version_if_it_was_not_committed(
    drive: Callable[..., JobDriver],
) -> None:
    driver = drive(named)
    for n, step in enumerate(["before commit", "after commit"]):
        driver.put("dim.airports", AIRPORTS, ("JFK", "old", True))
        driver.send("departures", flight(n, "JFK"), timestamp=AT)
        driver.crash_at(step, "named")
        with pytest.raises(SimulatedCrash):
            driver.run()
        driver.put("dim.airports", AIRPORTS, ("JFK", "new", True))
        driver.run()
    assert driver.rows("silver.named", "flight_id", "name") == [("f0", "new"), ("f1", "old")]
    told = [entry.extra["lookups"]["airports"]["version"] for entry in driver.ledger("silver.named")]
    assert told == [1, 2]


@pytest.mark.story
def test_lookup_column_lost_or_table_gone_is_said(drive: Callable[..., JobDriver]) -> None:
    driver = drive(named)
    driver.send("departures", flight(1, "JFK"), timestamp=AT)
    with pytest.raises(JobDefinitionError, match=r"there is no table 'dim\.airports'"):
        driver.run()
    driver.put("dim.airports", AIRPORTS, ("JFK", "a", True))
    (plan,) = plan_jobs(driver.context, [bind(named)])
    lookups = Lookups(driver.context, plan)
    assert lookups.newest().versions["airports"].version == 0
    assert lookups.newest() is lookups.newest()
    driver.put("dim.airports", "code STRING, name INT", ("JFK", 1))
    with pytest.raises(IncompatibleTableError, match=r"had name string when .* has int at version 1"):
        lookups.newest()
    shutil.rmtree(driver.home.table("dim.airports"))
    with pytest.raises(
        DataLossError, match=r"the look-up dim.airports cannot be read: there is no such table"
    ):
        lookups.newest()


def test_lookup_on_the_way_to_a_window_reads_one_version_a_batch(drive: Callable[..., JobDriver]) -> None:
    @hw.job(target=hw.delta("gold.counts", keys=["name", "window_start"], mode="update"))
    def counts(timed: DataFrame, airports: DataFrame) -> DataFrame:
        rows = hw.enrich(timed, airports, on={"flight_id": "code"})
        return hw.tumbling(rows, "departed_at", "1 hour", by=["name"]).agg(F.count("*").alias("n"))

    driver = drive(counts)
    driver.put("dim.airports", AIRPORTS, ("JFK", "a", True))
    driver.send("departures", {"flight_id": "JFK", "departed_at": "2013-01-01T10:00:00Z"}, timestamp=AT)
    driver.run()
    driver.put("dim.airports", AIRPORTS, ("JFK", "b", True))
    driver.send(
        "departures", *[{"flight_id": "JFK", "departed_at": "2013-01-01T10:00:00Z"}] * 2, timestamp=AT
    )
    driver.run()
    assert driver.rows("gold.counts", "name", "n") == [("a", 1), ("b", 2)]
    read = [
        entry.extra["lookups"]["airports"]["version"]
        for entry in driver.ledger("gold.counts__ingest_enriched")
    ]
    assert read == sorted({*read})
    assert driver.audit() == []
    context, job = driver.context, bind(counts)
    planned = backfill.plan(context, job)
    backfill.run(context, planned.id, job)
    verdict = backfill.verify(context, planned.id, job)
    assert verdict.passed, verdict.findings
    assert (verdict.diff.changed, verdict.diff.added) == (0, 0)
    table = "gold.counts__ingest_enriched"
    with pytest.raises(BackfillError, match=rf"on the way to {table}.*--rebuild --table {table}$"):
        backfill.plan(context, job, lookups="newest")
    driver.send("departures", b"none")
    driver.run()
    with pytest.raises(
        BackfillError, match=rf"records of departures are in quarantine, and what {table} holds"
    ):
        backfill.plan(context, job, rows="quarantined")
    anew: list[str] = []
    for name in (table, None):
        each = backfill.plan_rebuild(context, job, table=name, behind=anew)
        backfill.run(context, each.id, job)
        verdict = backfill.verify(context, each.id, job, recompute="none")
        assert verdict.passed, verdict.findings
        anew.append(each.id)
    for id_ in anew:
        backfill.swap(context, id_)
    assert driver.rows("gold.counts", "name", "n") == [("b", 3)], "as the look-up is now"
    assert driver.audit() == []


def test_lookup_on_the_way_to_a_join_is_refused_with_the_way_out(drive: Callable[..., JobDriver]) -> None:
    @hw.job(target=hw.delta("gold.pairs"))
    def pairs(timed: DataFrame, landed: DataFrame, airports: DataFrame) -> DataFrame:
        rows = hw.enrich(timed, airports, on={"flight_id": "code"})
        return hw.join(
            rows, landed, on=["flight_id"], left_time="departed_at", right_time="landed_at", within="1 hour"
        )

    driver = drive()
    driver.put("dim.airports", AIRPORTS, ("JFK", "a", True))
    with pytest.raises(
        JobDefinitionError, match="rows on the way to a join of streams look nothing up, here in"
    ):
        plan_jobs(driver.context, [bind(pairs)])


@pytest.mark.story
def test_enrich_wrong_arguments_are_refused(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("a", "JFK")], "id STRING, dest STRING")
    table = spark.createDataFrame([("JFK", "x")], "code STRING, id STRING")
    with pytest.raises(JobDefinitionError, match="the rows' side has no column 'des'; it has id, dest"):
        hw.enrich(rows, table, on={"des": "code"})
    with pytest.raises(JobDefinitionError, match="enrich: id stand on both sides"):
        hw.enrich(rows, table, on={"dest": "code"})


def test_enrich_random_rows_streamed_result_equals_batch_result(
    drive: Callable[..., JobDriver], spark: SparkSession
) -> None:
    seed = drawn_seed()
    rng = random.Random(seed)
    codes = [None, *"ABCDEFGH"]
    table = [(code, f"name {code}", rng.random() < 0.7) for code in rng.sample(codes[1:], 5)]
    flights = [flight(n, rng.choice(codes)) for n in range(200)]
    driver = drive(named, known)
    driver.put("dim.airports", AIRPORTS, *table)
    rng.shuffle(flights)
    cut = rng.randint(50, 150)
    for part in (flights[:cut], flights[cut:]):
        driver.send("departures", *part, partition=rng.randrange(2), timestamp=AT)
        driver.run()
    sent = driver.context.source.read(spark, "departures", driver.context.source.partitions("departures"))
    rows = sent.select(F.from_json(F.col("value").cast("string"), departures.schema).alias("v")).select("v.*")
    static = spark.createDataFrame(table, AIRPORTS)
    for job, name in ((named, "silver.named"), (known, "silver.known")):
        batch = job(rows, static)
        assert driver.rows(name, *batch.columns) == sorted(map(tuple, batch.collect()), key=repr)
        audit = audit_table(driver.home, name)
        assert audit is not None
        assert audit.ok, audit.findings


def _mended() -> Job:
    @hw.job(name="named", target=hw.delta("silver.named"), dedup=hw.by_offset())
    def mended(departures: DataFrame, airports: DataFrame) -> DataFrame:
        rows = hw.enrich(departures, airports, on={"dest": "code"})
        return rows.select("flight_id", F.upper("name").alias("name"))

    return bind(mended)


def test_lookup_backfill_reads_the_versions_of_the_live_batches(drive: Callable[..., JobDriver]) -> None:
    driver = drive(named)
    for n, name in enumerate(["first", "second", "third"]):
        driver.put("dim.airports", AIRPORTS, ("JFK", name, True))
        if name != "third":
            driver.send("departures", flight(n, "JFK"), timestamp=AT)
            driver.run()
    job = _mended()
    planned = backfill.plan(driver.context, job)
    assert len(planned.chunks) == 2  # the batches read different versions
    assert backfill.preview(driver.context, planned.id, job).changed == 2
    backfill.run(driver.context, planned.id, job)
    assert backfill.verify(driver.context, planned.id, job).passed
    backfill.swap(driver.context, planned.id)
    assert driver.rows("silver.named", "flight_id", "name") == [("f0", "FIRST"), ("f1", "SECOND")]

    newest = backfill.plan(driver.context, job, lookups="newest")
    assert newest.notes == ("the look-up dim.airports is read at version 2, its newest",)
    after = backfill.preview(driver.context, newest.id, job)
    assert [(sample["before"]["name"], sample["after"]["name"]) for sample in after.samples["changed"]] == [
        ("FIRST", "THIRD"),
        ("SECOND", "THIRD"),
    ]


def test_lookup_backfill_version_gone_is_refused_unless_the_newest_is_asked_for(
    drive: Callable[..., JobDriver], spark: SparkSession
) -> None:
    driver = drive(named)
    driver.put("dim.airports", AIRPORTS, ("JFK", "old", True))
    driver.send("departures", flight(1, "JFK"), timestamp=AT)
    driver.run()
    driver.put("dim.airports", AIRPORTS, ("JFK", "new", True))
    old = spark.read.format("delta").option("versionAsOf", 0).load(str(driver.home.table("dim.airports")))
    (file,) = old.inputFiles()
    Path(urlparse(file).path).unlink()  # what vacuum does after its retention
    with pytest.raises(
        BackfillError, match=r"version 0 of dim\.airports cannot be read: its files were vacuumed; batch 0"
    ):
        backfill.plan(driver.context, bind(named))
    assert backfill.plan(driver.context, bind(named), lookups="newest").rows == 1


opened = hw.topic("opened", schema="code STRING, name STRING, open BOOLEAN")


@hw.job(target=hw.delta("dim.airports"), dedup=hw.by_offset())
def airports_opened(opened: DataFrame) -> DataFrame:
    return opened


def test_lookup_of_a_new_job_waits_until_its_table_has_what_is_there(drive: Callable[..., JobDriver]) -> None:
    jobs = [bind(named), bind(airports_opened)]
    driver = drive(*jobs)
    driver.send("opened", {"code": "JFK", "name": "Kennedy", "open": True})
    driver.send("departures", flight(1, "JFK"), flight(2, "LAX"))
    runner = JobRunner(driver.context, jobs, progress_every_s=None)
    runner.start(interval_s=0.1)
    try:
        watch_until(runner, lambda: runner.batches == {"airports_opened": 1, "named": 1})
        driver.send("opened", {"code": "LAX", "name": "Los Angeles", "open": True})
        watch_until(runner, lambda: runner.batches["airports_opened"] == 2)
        driver.send("departures", flight(3, "LAX"))
        watch_until(runner, lambda: runner.batches["named"] == 2)
    finally:
        runner.stop()
    assert driver.rows("silver.named", "flight_id", "name") == [
        ("f1", "Kennedy"),
        ("f2", None),
        ("f3", "Los Angeles"),
    ]
    assert driver.audit() == []


def test_lookup_of_a_new_job_that_is_stopped_while_its_table_is_filled_does_not_start(
    drive: Callable[..., JobDriver],
) -> None:
    jobs = [bind(named), bind(airports_opened)]
    driver = drive(*jobs)
    driver.send("opened", {"code": "JFK", "name": "Kennedy", "open": True})
    runner = JobRunner(driver.context, jobs, progress_every_s=None)
    runner.start(interval_s=0.1, stopping=lambda: "airports_opened" in runner.batches)
    assert list(runner.batches) == ["airports_opened"]
    runner.stop()
    assert not driver.home.table("silver.named").exists()


@pytest.mark.story
def test_lookup_of_a_new_job_whose_table_cannot_be_filled_is_told_why(
    drive: Callable[..., JobDriver],
) -> None:
    @hw.job(target=hw.delta("dim.airports"), dedup=hw.by_offset())
    @hw.check("some", "count(*) > 100", level="batch", action="fail")
    def airports_opened(opened: DataFrame) -> DataFrame:
        return opened

    jobs = [bind(named), bind(airports_opened)]
    driver = drive(*jobs)
    driver.send("opened", {"code": "JFK", "name": "Kennedy", "open": True})
    runner = JobRunner(driver.context, jobs, progress_every_s=None)
    with pytest.raises(Exception, match="some"):
        runner.start(interval_s=0.1)
    assert not runner.queries
