"""A job that is not what its last run was: what goes on, what is refused, and the generations that mend it."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams.base.errors import IncompatibleStateError, IncompatibleTableError, StreamsError
from headwater_streams.ledger.audit import audit_home
from headwater_streams.plan.job import bind
from headwater_streams.runtime.compatibility import since_last_run
from headwater_streams.runtime.ownership import NoLease
from headwater_streams.runtime.planning import plan_jobs
from headwater_streams.runtime.renewal import begin_generations
from headwater_streams.runtime.tables import table_problems
from headwater_streams.testing import JobDriver

clicks = hw.topic("clicks", schema="who STRING, n INT, at TIMESTAMP", event_time="at", watermark="10 minutes")
slower = hw.topic("clicks", schema="who STRING, n INT, at TIMESTAMP", event_time="at", watermark="20 minutes")
sooner = hw.topic("clicks", schema="who STRING, n INT, at TIMESTAMP", event_time="at", watermark="5 minutes")
wider = hw.topic(
    "clicks", schema="who STRING, n BIGINT, at TIMESTAMP", event_time="at", watermark="10 minutes"
)
good = hw.table("silver.clicks", event_time="at", watermark="10 minutes")
AT = "2026-01-01T12:00:00+00:00"


@hw.job(target=hw.delta("silver.clicks"), dedup=hw.by_offset())
@hw.check("has_who", "who IS NOT NULL")
def clean(clicks: DataFrame) -> DataFrame:
    return clicks.select("who", "n", "at")


@hw.job(target=hw.delta("silver.clicks"), name="clean", dedup=hw.by_offset())
@hw.check("has_who", "who IS NOT NULL")
def cleaner(clicks: DataFrame) -> DataFrame:
    return clicks.select("who", "at", F.lower("who").alias("lower"))


def _per_hour(rows: DataFrame, *aggregates: Column, by: tuple[str, ...] = ("who",)) -> DataFrame:
    return hw.tumbling(rows, "at", "1 hour", by=list(by)).agg(*aggregates)


_TARGET = hw.delta("gold.per_hour", keys=["who", "window_start"], mode="update")


@hw.job(target=_TARGET, name="per_hour")
def per_hour(good: DataFrame) -> DataFrame:
    return _per_hour(good, F.sum("n").alias("total"))


@hw.job(target=_TARGET, name="per_hour")
def renamed(good: DataFrame) -> DataFrame:
    # another text, the same plan
    result = _per_hour(good, F.sum("n").alias("total"))
    return result.select("*")


@hw.job(target=_TARGET, name="per_hour")
def other_sum(good: DataFrame) -> DataFrame:
    return _per_hour(good, F.sum(F.col("n") * 2).alias("total"))


@hw.job(target=_TARGET, name="per_hour")
def greatest(good: DataFrame) -> DataFrame:
    return _per_hour(good, F.max("who").alias("total"))


@hw.job(target=hw.delta("gold.per_hour", keys=["n", "window_start"], mode="update"), name="per_hour")
def other_key(good: DataFrame) -> DataFrame:
    return _per_hour(good, F.count("*").alias("total"), by=("n",))


@hw.job(target=hw.delta("gold.direct", keys=["who", "window_start"], mode="update"), name="direct")
def direct(clicks: DataFrame) -> DataFrame:
    return _per_hour(clicks, F.count("*").alias("clicks"))


@hw.job(target=hw.delta("gold.direct", keys=["who", "window_start"], mode="update"), name="direct")
def _direct_by_n(clicks: DataFrame) -> DataFrame:
    return _per_hour(clicks, F.sum("n").alias("clicks"))


def click(n: int, time: str, who: str | None = "a") -> dict[str, Any]:
    return {"who": who, "n": n, "at": f"2026-01-01T{time}:00Z"}


def three_batches(driver: JobDriver) -> None:
    driver.send("clicks", click(1, "10:00"), click(2, "10:30", "b"), click(0, "10:31", None), timestamp=AT)
    driver.run()
    driver.send("clicks", click(3, "11:50"), click(4, "10:40"), timestamp=AT, offset=3)
    driver.run()
    driver.send(
        "clicks", click(5, "10:10"), click(6, "11:55"), timestamp=AT, offset=5
    )  # the first one is late
    driver.run()


def _differences(driver: JobDriver, job: Any) -> list[str]:
    plans = plan_jobs(driver.context, [bind(job)])
    return [f"{each.remedy}: {each.what}" for plan in plans for each in since_last_run(driver.context, plan)]


def _audit(driver: JobDriver) -> dict[str, list[str]]:
    return {audit.table: audit.findings for audit in audit_home(driver.home) if audit.findings}


def three_batches_by_the_hour(driver: JobDriver) -> None:
    three_batches(driver)
    assert driver.rows("gold.per_hour", "who", "total") == [("a", 5), ("a", 9), ("b", 2)]
    assert driver.rows("gold.per_hour__late", "n") == [(5,)]


@pytest.fixture
def ran(ready: Callable[..., JobDriver]) -> JobDriver:
    """A driver behind three batches of both jobs."""
    return ready(three_batches_by_the_hour, clean, per_hour)


def test_state_unchanged_job_has_no_difference(ran: JobDriver) -> None:
    assert _differences(ran, clean) == []
    assert _differences(ran, per_hour) == []
    assert _differences(ran, renamed) == ["keep: function or declaration"]


@pytest.mark.story
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            other_sum,
            r"state: total = sum\(n\) before, total = sum\(\(n \* 2\)\) now; .*the old expressions",
        ),
        (other_key, "target keys: update by who, window_start before, update by n, window_start now"),
    ],
    ids=["aggregate", "key"],
)
def test_state_changed_job_is_refused_with_the_same_words_and_nothing_is_written(
    ran: JobDriver, spark: SparkSession, changed: Any, words: str
) -> None:
    before = ran.rows("gold.per_hour")
    driver = JobDriver(spark, ran.home.root, [clean, changed])
    driver.send("clicks", click(7, "11:57"), timestamp=AT, offset=7)
    with pytest.raises(IncompatibleStateError, match=words) as refused:
        driver.run()
    assert "headwater jobs rebuild per_hour" in str(refused.value)
    assert ran.rows("gold.per_hour") == before


def test_state_row_job_with_other_columns_goes_on(ran: JobDriver, spark: SparkSession) -> None:
    assert _differences(ran, cleaner) == [
        "keep: columns",
        "keep: columns",
        "keep: function or declaration",
    ]
    driver = JobDriver(spark, ran.home.root, [cleaner])
    driver.send("clicks", click(7, "11:57", "C"), timestamp=AT, offset=7)
    driver.run()
    assert driver.rows("silver.clicks", "n", "lower")[-1] == (None, "c")


def test_state_longer_watermark_is_refused_and_a_shorter_one_goes_on(
    ready: Callable[..., JobDriver], spark: SparkSession, tmp_path: Path
) -> None:
    ready(three_batches, direct)
    driver = JobDriver(spark, tmp_path, [replace(bind(direct), inputs={"clicks": slower})])
    with pytest.raises(
        IncompatibleStateError, match=r"watermark.*10 minutes before, 20 minutes now.*would drop them"
    ):
        driver.run()
    folded = JobDriver(spark, tmp_path, [_direct_by_n])
    folded.send("clicks", click(7, "11:57"), timestamp=AT, offset=7)
    with pytest.raises(
        IncompatibleStateError, match=r"state: clicks = count\(1\) before, clicks = sum\(n\) now"
    ):
        folded.run()
    assert [entry.batch for entry in folded.ledger("gold.direct__ingest_clicks")] == [0, 1, 2], (
        "nothing is read for a job that is refused"
    )
    driver = JobDriver(spark, tmp_path, [replace(bind(direct), inputs={"clicks": sooner})])
    driver.run()
    assert driver.rows("gold.direct", "who", "clicks") == [
        ("a", 2),
        ("a", 3),
        ("b", 1),
        (None, 1),
    ]
    assert _audit(driver) == {}


def test_state_other_shuffle_partitions_stay_the_checkpoints(
    ran: JobDriver, setting: Callable[[str, str], None]
) -> None:
    setting("spark.sql.shuffle.partitions", "7")
    assert _differences(ran, per_hour) == ["keep: shuffle partitions"]
    ran.send("clicks", click(7, "11:57"), timestamp=AT, offset=7)
    ran.run()
    assert ran.rows("gold.per_hour", "who", "total") == [("a", 16), ("a", 5), ("b", 2)]
    assert _differences(ran, per_hour) == ["keep: shuffle partitions"]


def test_state_table_removed_under_a_checkpoint_is_refused(ran: JobDriver) -> None:
    shutil.rmtree(ran.home.table("gold.per_hour"))
    ran.send("clicks", click(7, "11:57"), timestamp=AT, offset=7)
    with pytest.raises(IncompatibleStateError, match=r"the table gold.per_hour.*lacks what the job has read"):
        ran.run()
    assert not ran.home.table("gold.per_hour").exists()
    (told,) = [sentence for found in audit_home(ran.home) for sentence in found.findings]
    assert told.startswith(
        "gold.per_hour: its folder is gone, and the job 'per_hour' goes on behind the rows"
    )
    assert told.endswith("headwater jobs rebuild per_hour")
    assert [found.findings for found in audit_home(ran.home, ["gold.per_hour"])] == [[told]]


@pytest.mark.story
def test_rebuild_changed_window_job_gives_what_a_fresh_one_gives(ran: JobDriver, spark: SparkSession) -> None:
    driver = JobDriver(spark, ran.home.root, [clean, other_sum])
    begun = begin_generations(ran.context, [bind(other_sum)], "rebuild", lambda _: NoLease())
    assert [(entry.job, entry.generation) for entry in begun] == [("per_hour", 2)]
    assert driver.rows("gold.per_hour") == driver.rows("gold.per_hour__late") == []
    driver.run()
    driver.send("clicks", click(7, "11:57"), timestamp=AT, offset=7)
    driver.run()
    assert driver.rows("gold.per_hour", "who", "total", "_generation") == [
        ("a", 10, 2),
        ("a", 32, 2),
        ("b", 4, 2),
    ]
    assert driver.rows("gold.per_hour__late", "n", "_generation") == [(5, 2)]
    assert _audit(driver) == {}


def test_rebuild_row_job_takes_its_readers_along(ran: JobDriver) -> None:
    with pytest.raises(StreamsError, match=r"job 'per_hour' reads silver.clicks into gold.per_hour"):
        begin_generations(ran.context, [bind(clean)], "rebuild", lambda _: NoLease())
    before = ran.rows("silver.clicks", "who", "n")
    begun = begin_generations(ran.context, [bind(clean), bind(per_hour)], "rebuild", lambda _: NoLease())
    assert [entry.job for entry in begun] == ["clean", "per_hour"]
    assert ran.rows("silver.clicks") == ran.rows("silver.clicks__quarantine") == []
    ran.run()
    assert ran.rows("silver.clicks", "who", "n") == before
    assert len(ran.rows("silver.clicks__quarantine")) == 1
    # All came in one batch this time, so what was late is in time.
    assert ran.rows("gold.per_hour", "who", "total") == [("a", 10), ("a", 9), ("b", 2)]
    assert _audit(ran) == {}


@pytest.mark.story
def test_rebuild_takes_columns_of_another_type(ran: JobDriver, spark: SparkSession) -> None:
    driver = JobDriver(spark, ran.home.root, [clean, greatest])
    found = _differences(driver, greatest)
    assert "rebuild: state" in found
    assert "keep: column total" not in found, "it is refused, below"
    with pytest.raises(
        IncompatibleTableError, match=r"'total' is bigint in the table and string in the job.*jobs rebuild"
    ):
        driver.run()
    begin_generations(driver.context, [bind(greatest)], "rebuild", lambda _: NoLease())
    driver.run()
    assert driver.rows("gold.per_hour", "who", "total") == [("a", "a"), ("a", "a"), ("b", "b")]
    assert dict(driver.table("gold.per_hour").dtypes)["total"] == "string"
    assert _audit(driver) == {}


def test_rebuild_takes_the_ingest_table_along_where_that_cannot_hold_the_topic_s_columns(
    ready: Callable[..., JobDriver], spark: SparkSession
) -> None:
    driver = ready(three_batches, direct)
    longer = replace(bind(_direct_by_n), inputs={"clicks": wider})
    after = JobDriver(spark, driver.home.root, [longer])
    with pytest.raises(StreamsError, match="headwater jobs rebuild"):
        after.run()
    begin_generations(after.context, [longer], "rebuild", lambda _: NoLease())
    after.run()
    assert (
        sum(total for (total,) in after.rows("gold.direct", "clicks")) == 21
    )  # in one batch nothing is late
    assert dict(after.table("gold.direct__ingest_clicks").dtypes)["n"] == "bigint"
    assert _audit(after) == {}


totals = hw.delta("gold.totals", keys=["who", "window_start"], mode="update")


@hw.job(target=totals)
def totals_of(clicks: DataFrame) -> DataFrame:
    return _per_hour(clicks, F.sum("n").alias("total"))


@hw.job(target=totals)
def sums_of(clicks: DataFrame) -> DataFrame:
    return _per_hour(clicks, F.sum("n").alias("total"))


def test_table_of_another_job_is_not_written_to_until_it_is_taken_over(
    drive: Callable[..., JobDriver],
) -> None:
    driver = drive(totals_of)
    driver.send("clicks", {"who": "ann", "n": 1, "at": "2026-01-01T10:00:00Z"}, timestamp=AT)
    driver.run()
    other, context = drive(sums_of), driver.context
    with pytest.raises(IncompatibleTableError) as refused:
        other.run()
    assert "gold.totals__ingest_clicks is written by the job 'totals_of__ingest_clicks'" in str(refused.value)
    assert "@hw.job(name='totals_of')" in str(refused.value)
    assert str(refused.value).endswith("headwater jobs rebuild sums_of")
    told = [
        problem for plan in plan_jobs(context, [bind(sums_of)]) for problem in table_problems(context, plan)
    ]
    assert [problem.partition(" is written")[0] for problem in told] == [
        "gold.totals__ingest_clicks",
        "gold.totals",
    ]
    driver.send("clicks", {"who": "ann", "n": 2, "at": "2026-01-01T10:30:00Z"}, timestamp=AT)
    driver.run()
    assert driver.rows("gold.totals", "who", "total") == [("ann", 3)]
    begun = begin_generations(context, [bind(sums_of)], "rebuild", lambda _: NoLease())
    assert [entry.table for entry in begun] == ["gold.totals__ingest_clicks", "gold.totals"]
    with pytest.raises(IncompatibleTableError, match="written by the job 'sums_of__ingest_clicks'"):
        driver.run()
    other.run()
    assert other.rows("gold.totals", "who", "total") == [("ann", 3)]
    assert other.audit() == []


def test_rebuild_of_a_job_that_has_not_run_is_refused(drive: Callable[..., JobDriver]) -> None:
    with pytest.raises(StreamsError, match="has not run"):
        begin_generations(drive(totals_of).context, [bind(totals_of)], "rebuild", lambda _: NoLease())


def two_batches(driver: JobDriver) -> None:
    for minute in ("10:00", "10:30"):
        driver.send("clicks", {"who": "ann", "n": 1, "at": f"2026-01-01T{minute}:00Z"}, timestamp=AT)
        driver.run()


@pytest.mark.parametrize("gone", [("gold/totals",), ("gold/totals", "gold/totals__ingest_clicks")])
def test_table_that_was_removed_is_made_anew_by_a_rebuild(
    ready: Callable[..., JobDriver], gone: tuple[str, ...]
) -> None:
    driver = ready(two_batches, totals_of)
    for table in gone:
        shutil.rmtree(driver.home.root / "tables" / table)
    with pytest.raises(StreamsError, match="headwater jobs rebuild totals_of"):
        driver.run()
    begun = begin_generations(driver.context, [bind(totals_of)], "rebuild", lambda _: NoLease())
    assert len(begun) == len(gone)
    driver.run()
    driver.send("clicks", {"who": "ann", "n": 1, "at": "2026-01-01T10:45:00Z"}, timestamp=AT)
    driver.run()
    assert driver.rows("gold.totals", "who", "total") == [("ann", 3)]
    assert driver.audit() == []
