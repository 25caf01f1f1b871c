"""What a function makes of each record: one row or none, whatever the totals are.

departures   JFK  LGA             a look-up that has JFK twice and LGA never
result       JFK  JFK             2 rows of 2, and one of the two records is lost
"""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams import backfill
from headwater_streams.base.errors import JobDefinitionError, LookupKeyError
from headwater_streams.ledger.audit import audit_home
from headwater_streams.plan.job import Job, bind
from headwater_streams.runtime.planning import plan_jobs
from headwater_streams.testing import JobDriver

AT = "2013-01-05T12:00:00+00:00"
SCHEMA = "id STRING, dest STRING, at TIMESTAMP"
departures = hw.topic("departures", schema=SCHEMA, event_time="at", watermark="1 hour")
landings = hw.topic("landings", schema=SCHEMA, event_time="at", watermark="1 hour")
named_pairs = hw.table("gold.pairs")
airports = hw.lookup("dim.airports")

AIRPORTS = "code STRING, name STRING"
DOUBLED = [("JFK", "Kennedy"), ("JFK", "John F. Kennedy"), ("SEA", "Seattle")]
MENDED = [("JFK", "Kennedy"), ("LGA", "La Guardia"), ("SEA", "Seattle")]


def named(rows: DataFrame, airports: DataFrame) -> DataFrame:
    return rows.join(airports, F.col("dest") == F.col("code"))


@hw.job(target=hw.delta("silver.rows"), dedup=hw.by_offset())
def rows(departures: DataFrame, airports: DataFrame) -> DataFrame:
    return named(departures, airports).select("id", "name")


@hw.job(target=hw.scd1("dim.newest", keys=["id"], sequence_by="at"), dedup=hw.by_offset())
def newest(departures: DataFrame, airports: DataFrame) -> DataFrame:
    return named(departures, airports).select("id", "at", "name")


@hw.job(targets={"all": hw.delta("silver.all"), "named": hw.delta("silver.named")}, dedup=hw.by_offset())
def fanned(departures: DataFrame, airports: DataFrame) -> Mapping[str, DataFrame]:
    return {"all": departures.select("id"), "named": named(departures, airports).select("id", "name")}


@hw.job(target=hw.delta("gold.windows", keys=["name", "window_start"], mode="update"))
def windows(departures: DataFrame, airports: DataFrame) -> DataFrame:
    found = hw.tumbling(named(departures, airports), "at", "1 hour", by=["name"])
    return found.agg(F.count("*").alias("n"))


KINDS: dict[str, tuple[Job, str]] = {
    "rows": (bind(rows), "silver.rows"),
    "a dimension": (bind(newest), "dim.newest"),
    "several tables": (bind(fanned), "silver.named"),
    "windows": (bind(windows), "gold.windows"),
}


def flight(n: int, dest: str, hour: int = 10) -> dict[str, Any]:
    return {"id": f"f{n}", "dest": dest, "at": f"2013-01-05T{hour}:{n:02}:00Z"}


@pytest.mark.parametrize(
    "kind", [pytest.param("rows", marks=pytest.mark.story), "a dimension", "several tables", "windows"]
)
def test_record_doubled_while_another_is_dropped_stops_the_batch(
    drive: Callable[..., JobDriver], kind: str
) -> None:
    job, table = KINDS[kind]
    driver = drive(job)
    driver.put("dim.airports", AIRPORTS, *DOUBLED)
    driver.send("departures", flight(1, "SEA"), timestamp=AT)
    driver.run()
    before = {target.name: driver.rows(target.name) for target in job.targets}
    driver.send("departures", flight(2, "JFK"), flight(3, "LGA"), timestamp=AT)
    with pytest.raises(
        LookupKeyError, match=r"several rows for .* of one record \(departures 0 offset 1: 2\)"
    ):
        driver.run()
    assert {target.name: driver.rows(target.name) for target in job.targets} == before
    driver.put("dim.airports", AIRPORTS, *MENDED)
    driver.run()
    assert len(driver.rows(table)) == 3
    assert [audit.findings for audit in audit_home(driver.home)] == [[]] * len(audit_home(driver.home))


def test_records_of_joined_rows_may_share_coordinates_and_none_is_doubled(
    drive: Callable[..., JobDriver],
) -> None:
    @hw.job(target=hw.delta("gold.pairs"))
    def pairs(departures: DataFrame, landings: DataFrame) -> DataFrame:
        landed = landings.select(F.col("id").alias("landed"), "dest", F.col("at").alias("landed_at"))
        times = {"left_time": "at", "right_time": "landed_at"}
        return hw.join(departures, landed, on=["dest"], **times, within="5 hours")

    @hw.job(target=hw.delta("silver.pairs"))
    def enriched(named_pairs: DataFrame, airports: DataFrame) -> DataFrame:
        return named(named_pairs, airports).select("id", "landed", "name")

    driver = drive(pairs, enriched)
    driver.put("dim.airports", AIRPORTS, *MENDED)
    driver.send("departures", flight(1, "JFK"), flight(2, "LGA"), timestamp=AT)
    driver.send(
        "landings", flight(1, "JFK"), flight(2, "JFK"), flight(3, "LGA"), flight(4, "LGA"), timestamp=AT
    )
    driver.run()
    both = [("f1", "f1"), ("f1", "f2"), ("f2", "f3"), ("f2", "f4")]
    assert sorted(driver.rows("silver.pairs", "id", "landed")) == both
    driver.put("dim.airports", AIRPORTS, ("JFK", "a"), ("JFK", "b"))
    driver.send("departures", flight(0, "JFK"), flight(0, "LGA"), timestamp=AT)
    with pytest.raises(LookupKeyError, match=r"of one record \(departures 0 offset 2: 4\)"):
        driver.run()
    assert sorted(driver.rows("silver.pairs", "id", "landed")) == both


def test_repair_that_doubles_a_record_is_refused(drive: Callable[..., JobDriver]) -> None:
    @hw.job(name="rows", target=hw.delta("silver.rows"), dedup=hw.by_offset())
    def twice(departures: DataFrame, airports: DataFrame) -> DataFrame:
        both = airports.unionByName(airports).filter("code = 'JFK'")
        return named(departures, both).select("id", "name")

    driver = drive(rows)
    driver.put("dim.airports", AIRPORTS, *MENDED)
    driver.send("departures", flight(1, "JFK"), flight(2, "LGA"), timestamp=AT)
    driver.run()
    changed = bind(twice)
    planned = backfill.plan(driver.context, changed, offsets={"departures": {0: (0, 2)}})
    with pytest.raises(LookupKeyError, match=r"of one record \(departures 0 offset 0: 2\)"):
        backfill.run(driver.context, planned.id, changed)


def test_static_frame_on_the_way_to_a_window_is_judged_as_a_look_up_is(
    drive: Callable[..., JobDriver],
) -> None:
    doubled: list[bool] = [True]

    @hw.job(target=hw.delta("gold.named", keys=["name", "window_start"], mode="update"))
    def static(departures: DataFrame) -> DataFrame:
        known = DOUBLED if doubled[0] else MENDED
        there = departures.sparkSession.createDataFrame(known, AIRPORTS)
        return hw.tumbling(named(departures, there), "at", "1 hour", by=["name"]).agg(F.count("*").alias("n"))

    driver = drive(static)
    driver.send("departures", flight(1, "JFK"), flight(2, "LGA"), timestamp=AT)
    with pytest.raises(LookupKeyError, match=r"of one record \(departures 0 offset 0: 2\)"):
        driver.run()
    doubled[0] = False
    driver.run()
    assert sorted(driver.rows("gold.named", "name", "n")) == [("Kennedy", 1), ("La Guardia", 1)]


def test_static_frame_on_the_way_to_a_join_of_streams_is_refused(drive: Callable[..., JobDriver]) -> None:
    @hw.job(target=hw.delta("gold.pairs"))
    def pairs(departures: DataFrame, landings: DataFrame) -> DataFrame:
        there = departures.sparkSession.createDataFrame(MENDED, AIRPORTS)
        landed = landings.select("dest", F.col("at").alias("landed_at"))
        times = {"left_time": "at", "right_time": "landed_at"}
        return hw.join(named(departures, there), landed, on=["dest"], **times, within="5 hours")

    with pytest.raises(JobDefinitionError, match="look nothing up; enrich them in a row-by-row job"):
        plan_jobs(drive().context, [bind(pairs)])


def test_unpivot_makes_several_rows_and_is_refused(drive: Callable[..., JobDriver]) -> None:
    @hw.job(target=hw.delta("silver.unpivoted"))
    def unpivoted(departures: DataFrame) -> DataFrame:
        return departures.unpivot(["at"], ["id", "dest"], "which", "value")

    with pytest.raises(
        JobDefinitionError, match="cannot use unpivot, whose rows have no place in their record; write inline"
    ):
        plan_jobs(drive().context, [bind(unpivoted)])
