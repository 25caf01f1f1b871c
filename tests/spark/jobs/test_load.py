"""A range of a topic into a table by batches of Spark: the rows, the rejected ones and the account of a job."""

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession

import headwater as hw
from headwater_streams.base.errors import IncompatibleTableError
from headwater_streams.ledger.audit import audit_home
from headwater_streams.plan.job import bind
from headwater_streams.runtime.loading import (
    Chunk,
    LoadRefusedError,
    Sizes,
    TableLoad,
    chunks_of,
    load_job,
    remaining,
    requested,
)
from headwater_streams.runtime.planning import plan_jobs
from headwater_streams.testing import JobDriver, SimulatedCrash
from headwater_streams.testing.record_log import RecordLog

clicks = hw.topic("clicks", schema="who STRING, n INT")


@hw.job(target=hw.delta("silver.clicks"))
@hw.check("has_who", "who IS NOT NULL")
def taken(clicks: DataFrame) -> DataFrame:
    """Clicks but those of nothing."""
    return clicks.filter("n > 0")


LOADED = "history.clicks"


def filled(spark: SparkSession, home: Path) -> JobDriver:
    """Twenty clicks: each fifth of nobody, each seventh of nothing."""
    driver = JobDriver(spark, home, [taken])
    rows = [{"who": None if n % 5 == 4 else f"w{n}", "n": 0 if n % 7 == 6 else n + 1} for n in range(20)]
    driver.send("clicks", *rows)
    return driver


def begun(driver: JobDriver, *, chunk_bytes: int = 500, job: object = taken) -> tuple[TableLoad, list[Chunk]]:
    """A load of the whole topic, and its chunks of five records."""
    context = driver.context
    (plan,) = plan_jobs(context, [load_job(bind(job), "clicks", LOADED)])
    load = TableLoad(context, plan)
    ranges = requested("clicks", context.source.partitions("clicks"), {}, {})
    cut_off = load.cut_off()
    left = remaining(ranges, [*load.done(), cut_off])
    sizes = Sizes(bytes_each={0: 100.0})
    return load, chunks_of(left, sizes, cut_off=cut_off, chunk_bytes=chunk_bytes, task_bytes=200)


def test_load_makes_the_rows_and_the_account_of_a_job(spark: SparkSession, tmp_path: Path) -> None:
    driver = filled(spark, tmp_path)
    driver.run()
    load, chunks = begun(driver)
    seen: list[int] = []
    load.run(chunks, lambda progress: seen.append(progress.read))
    assert seen == [5, 10, 15, 20]
    assert sorted(driver.rows(LOADED, "who", "n")) == sorted(driver.rows("silver.clicks", "who", "n"))
    assert sorted(driver.quarantined(LOADED)) == sorted(driver.quarantined("silver.clicks"))
    assert load.accounting() == driver.accounting("silver.clicks")
    assert all(audit.ok for audit in audit_home(driver.context.home, [LOADED, "silver.clicks"]))


@pytest.mark.parametrize(("step", "first"), [("before commit", 0), ("after commit", 5)])
def test_load_that_was_killed_goes_on_behind_its_last_commit(
    spark: SparkSession, tmp_path: Path, step: str, first: int
) -> None:
    driver = filled(spark, tmp_path)
    load, chunks = begun(driver)
    driver.crash_at(step)
    with pytest.raises(SimulatedCrash):
        load.run(chunks, lambda _: None)
    load, chunks = begun(driver)
    assert chunks[0].ranges == {0: (first, first + 5)}
    load.run(chunks[:2], lambda _: None)
    load, rest = begun(driver)
    assert [start for chunk in rest for start, _ in chunk.ranges.values()] == [*range(first + 10, 20, 5)]
    load.run(rest, lambda _: None)
    assert load.accounting()["read"] == 20
    assert begun(driver)[1] == []
    assert all(audit.ok for audit in audit_home(driver.context.home, [LOADED]))


def test_load_that_is_cut_in_other_chunks_after_it_was_killed_rejects_each_record_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The first chunk dies with offset 4 in the quarantine table, and not in the account; 9 would be lost if a larger
    chunk took its place, as a batch's rejected records are written once."""
    driver = filled(spark, tmp_path)
    load, chunks = begun(driver)
    driver.crash_at("before commit")
    with pytest.raises(SimulatedCrash):
        load.run(chunks, lambda _: None)
    load, chunks = begun(driver, chunk_bytes=1_500)
    assert [chunk.ranges for chunk in chunks] == [{0: (0, 5)}, {0: (5, 20)}]
    load.run(chunks, lambda _: None)
    assert sorted(driver.rows(f"{LOADED}__quarantine", "_offset")) == [(offset,) for offset in (4, 9, 14, 19)]
    assert load.accounting()["quarantined"] == 4
    assert driver.audit() == []


def test_load_with_other_code_or_of_another_topic_of_that_name_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    driver = filled(spark, tmp_path)

    @hw.job(name="taken", target=hw.delta("silver.clicks"))
    def changed(clicks: DataFrame) -> DataFrame:
        return clicks.filter("n > 1")

    load, chunks = begun(driver, job=changed)
    driver.crash_at("before commit")
    with pytest.raises(SimulatedCrash):
        load.run(chunks, lambda _: None)
    load, chunks = begun(driver)  # nothing of the other one was committed
    load.run(chunks[:1], lambda _: None)
    with pytest.raises(LoadRefusedError, match=f"of the job was changed since {LOADED} was begun"):
        begun(driver, job=changed)
    begun(driver)
    shutil.rmtree(driver.home.root / "records" / "clicks")
    assert isinstance(driver.context.source, RecordLog)
    driver.context.source.declare("clicks")
    with pytest.raises(LoadRefusedError, match="the topic clicks was deleted and made again"):
        begun(driver)


def test_load_into_a_table_that_was_removed_begins_anew(spark: SparkSession, tmp_path: Path) -> None:
    driver = filled(spark, tmp_path)
    load, chunks = begun(driver)
    load.run(chunks[:2], lambda _: None)
    home = driver.context.home
    shutil.rmtree(home.table(LOADED))
    with pytest.raises(
        LoadRefusedError, match=f"{LOADED}__quarantine has the rejected records of an earlier load"
    ):
        begun(driver)
    shutil.rmtree(home.table(f"{LOADED}__quarantine"))
    load, chunks = begun(driver)
    assert chunks[0].ranges == {0: (0, 5)}
    load.run(chunks, lambda _: None)
    assert load.accounting()["quarantined"] == 4
    assert driver.audit() == []


def test_load_into_the_table_of_a_job_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    driver = filled(spark, tmp_path)
    driver.run()
    (plan,) = plan_jobs(driver.context, [load_job(bind(taken), "clicks", "silver.clicks")])
    with pytest.raises(LoadRefusedError, match="is written by job 'taken': load into a table of its own"):
        TableLoad(driver.context, plan)


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (
            pa.field("zz", pa.int64(), nullable=False),
            "the column 'zz' of the table takes no NULL, and the job has no",
        ),
        (pa.field("n", pa.string()), "the column 'n' is string in the table and int in the job"),
        (pa.field("WHO", pa.string()), "the column 'who' is called 'WHO' in the table"),
    ],
)
def test_load_into_a_table_of_others_that_cannot_hold_its_rows_is_refused(
    spark: SparkSession, tmp_path: Path, column: pa.Field, said: str
) -> None:
    driver = filled(spark, tmp_path)
    path = driver.home.table(LOADED)
    write_deltalake(str(path), pa.table([pa.nulls(0, column.type)], schema=pa.schema([column])))
    with pytest.raises(IncompatibleTableError, match=said):
        begun(driver)
    assert DeltaTable(str(path)).version() == 0


def test_load_of_a_job_that_does_not_read_the_topic_is_refused() -> None:
    with pytest.raises(LoadRefusedError, match="job 'taken' reads clicks: a load needs a job with one input"):
        load_job(bind(taken), "orders", LOADED)
    job = bind(taken)
    two = replace(job, inputs={**job.inputs, "more": hw.topic("more", schema="n INT")})
    with pytest.raises(LoadRefusedError, match="reads clicks, more"):
        load_job(two, "clicks", LOADED)
