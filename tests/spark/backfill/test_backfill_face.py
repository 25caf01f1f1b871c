"""`hw.backfill`: the verbs of `headwater backfill` from Python, with a job as a person has it."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater.running.environment import find_jobs
from headwater_streams.testing import JobDriver

clicks = hw.topic("clicks", schema="who STRING, at TIMESTAMP, n INT", event_time="at", watermark="1 hour")
silver_clicks = hw.table("silver.clicks", event_time="at", watermark="1 hour")
HOURLY = hw.delta("gold.hourly", keys=["who", "window_start"], mode="update")


@hw.job(target=hw.delta("silver.clicks"))
def clean(clicks: DataFrame) -> DataFrame:
    return clicks


@hw.job(target=HOURLY)
def hourly(silver_clicks: DataFrame) -> DataFrame:
    return hw.tumbling(silver_clicks, "at", "1 hour", by=["who"]).agg(F.sum("n").alias("n"))


MODULE = """
import headwater as hw
from pyspark.sql import DataFrame, functions as F

silver_clicks = hw.table("silver.clicks", event_time="at", watermark="1 hour")


@hw.job(target=hw.delta("gold.hourly", keys=["who", "window_start"], mode="update"))
def hourly(silver_clicks: DataFrame) -> DataFrame:
    return hw.tumbling(silver_clicks, "at", "1 hour", by=["who"]).agg((10 * F.sum("n")).alias("n"))
"""


def three_hours(driver: JobDriver) -> None:
    for hour, n in ((10, 1), (11, 2), (12, 3)):
        at = f"2013-01-01T{hour}:10:00Z"
        driver.send("clicks", {"who": "ann", "at": at, "n": n}, timestamp=at)
    driver.run()


@pytest.fixture
def driver(ready: Callable[..., JobDriver], monkeypatch: pytest.MonkeyPatch) -> JobDriver:
    found = ready(three_hours, clean, hourly)
    monkeypatch.setenv("HEADWATER_HOME", str(found.home.root))
    return found


def sums(driver: JobDriver) -> list[int]:
    return [n for _, n in driver.rows("gold.hourly", "window_start", "n")]


@pytest.mark.story
def test_backfill_from_python_goes_the_whole_way(driver: JobDriver, tmp_path: Path) -> None:
    (tmp_path / "mended.py").write_text(MODULE)
    where = f"{tmp_path / 'mended.py'}:hourly"
    planned = hw.backfill.plan(where, start="2013-01-01T11:00:00Z", end=datetime(2013, 1, 1, 12, tzinfo=UTC))
    assert planned.reference == where
    assert hw.backfill.plan(where, start="2013-01-01T11:00:00", end="2013-01-01T12:00:00").id == planned.id
    assert hw.backfill.preview(planned).changed == 1
    assert hw.backfill.pause(planned)["state"] == "paused"
    assert hw.backfill.resume(planned)["state"] == "planned"
    assert hw.backfill.run(planned).state == "done"
    assert hw.backfill.verify(planned.id, recompute="none").passed
    assert hw.backfill.status(planned)["state"] == "verified"
    assert hw.backfill.swap(planned)["target"] == "gold.hourly"
    assert sums(driver) == [1, 20, 3]
    assert hw.backfill.rollback(planned)["target"] == "gold.hourly"
    assert sums(driver) == [1, 2, 3]
    assert [each["id"] for each in hw.backfill.list()] == [planned.id]

    function = find_jobs([where])[0].function  # as a module that imports the job has it
    rebuild = hw.backfill.plan(function, rebuild=True, home=driver.home.root)
    assert rebuild.mode == "rebuild"
    assert hw.backfill.abort(rebuild, home=driver.home.root)["state"] == "aborted"
    assert [each.batch for each in hw.backfill.versions(function)] == [0]


def test_backfill_from_python_uses_no_query_session_that_made_a_frame(
    spark: SparkSession, drive: Callable[..., JobDriver], closing_batches: None
) -> None:
    @hw.job(name="hourly", target=hw.delta("gold.hourly", keys=["who", "window_start"]))
    def closed(silver_clicks: DataFrame) -> DataFrame:
        return hw.tumbling(silver_clicks, "at", "1 hour", by=["who"]).agg(F.sum("n").alias("n"))

    driver = drive(clean, closed)
    clicks = [{"who": "ann", "at": f"2013-01-01T{hour}:10:00Z", "n": hour} for hour in (10, 11, 14)]
    driver.send("clicks", *clicks, timestamp="2013-01-01T15:00:00Z")
    driver.run()
    of_a_query = spark.newSession()
    of_a_query.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    of_a_query.createDataFrame([(1,)], "n INT")  # PySpark takes its session for the active one from now on
    planned = hw.backfill.plan(closed, rebuild=True, home=driver.home.root)
    run = hw.backfill.run(planned, closed, home=driver.home.root)
    assert (run.accounting["emitted"], run.accounting["open"]) == (2, 1)


def test_backfill_from_python_needs_the_job_that_no_module_has(driver: JobDriver) -> None:
    @hw.job(name="hourly", target=HOURLY)
    def doubled(silver_clicks: DataFrame) -> DataFrame:
        return hw.tumbling(silver_clicks, "at", "1 hour", by=["who"]).agg((2 * F.sum("n")).alias("n"))

    planned = hw.backfill.plan(doubled, event_time=("2013-01-01T12:00:00Z", "2013-01-01T13:00:00Z"))
    told = "does not say where its job is; give the job behind the plan, too$"
    with pytest.raises(hw.backfill.BackfillError, match=told):
        hw.backfill.run(planned)
    hw.backfill.run(planned, doubled)
    assert hw.backfill.verify(planned, doubled, recompute="none").passed
    hw.backfill.swap(planned)
    assert sums(driver) == [1, 2, 6]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"start": "2013-01-01"}, "give start and end together; the end is exclusive"),
        ({"since_version": 1, "rebuild": True}, "give one of start and end, offsets"),
        ({"behind": ["x"]}, "give it with rebuild=True"),
        ({"table": "gold.hourly"}, "table= says which table rewind='s version is of, or what rebuild= makes"),
        ({"rows": "foo"}, "rows='foo' is neither 'quarantined' nor 'late'"),
        ({"lookups": "foo"}, "lookups='foo' is neither 'as_read' nor 'newest'"),
        ({"start": None, "end": "2013-01-01"}, "give start and end together"),
    ],
)
def test_backfill_from_python_tells_what_contradicts_itself(
    driver: JobDriver, given: dict[str, object], told: str
) -> None:
    with pytest.raises(hw.backfill.BackfillError) as error:
        hw.backfill.plan(hourly, **given)  # type: ignore[arg-type]
    assert told in str(error.value)
