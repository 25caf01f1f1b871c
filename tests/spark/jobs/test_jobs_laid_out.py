"""Jobs whose tables are laid out: partitions, order, and what a change of them takes.

offset    0    1    2    3    4           days of January 2013, countries
row       a 1  b 1  c 2  d 3  e 1 (late)  DE, FR, DE, "", DE
          |- batch 0 --|  |- batch 1 -|
"""

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams import backfill
from headwater_streams.base.errors import IncompatibleTableError, JobDefinitionError, StreamsError
from headwater_streams.delta.clustering import clustered_by
from headwater_streams.delta.file_swap import FileSwap
from headwater_streams.ledger.audit import audit_home
from headwater_streams.ledger.log import commits
from headwater_streams.plan.job import Job, bind
from headwater_streams.runtime.ownership import NoLease
from headwater_streams.runtime.renewal import begin_generations
from headwater_streams.runtime.rewriting import rewrite
from headwater_streams.runtime.runner import JobRunner
from headwater_streams.runtime.upkeep import Upkeep
from headwater_streams.storage.delta_files import partition_columns
from headwater_streams.testing import JobDriver

AT = "2013-01-05T13:00:00+00:00"
TABLE = "silver.orders"
_SCHEMA = "order_id STRING, country STRING, cents INT, placed_at TIMESTAMP"
orders = hw.topic("orders", schema=_SCHEMA, event_time="placed_at")
timed = hw.topic("timed", schema=_SCHEMA, event_time="placed_at", watermark="1 day")
placed = hw.table(TABLE, event_time="placed_at", watermark="1 day")


def job(*, factor: int = 1, name: str = "clean", **layout: Any) -> Job:
    """The job with a layout; its second form multiplies."""
    if factor == 1:

        @hw.job(name=name, target=hw.delta(TABLE, **layout), dedup=hw.by_offset())
        def clean(orders: DataFrame) -> DataFrame:
            return orders

        return bind(clean)

    @hw.job(name=name, target=hw.delta(TABLE, **layout), dedup=hw.by_offset())
    def multiplied(orders: DataFrame) -> DataFrame:
        return orders.withColumn("cents", F.col("cents") * F.lit(100))

    return bind(multiplied)


@hw.job(
    target=hw.delta(
        "gold.by_day",
        keys=["country", "window_start"],
        mode="update",
        partition_by=["days(window_start)"],
        cluster_by=["country"],
    )
)
def by_day(placed: DataFrame) -> DataFrame:
    return hw.tumbling(placed, "placed_at", "1 day", by=["country"]).agg(F.sum("cents").alias("cents"))


def order(order_id: str, day: int, country: str | None = "DE", cents: int = 1) -> dict[str, Any]:
    return {
        "order_id": order_id,
        "country": country,
        "cents": cents,
        "placed_at": f"2013-01-{day:02d}T10:00:00Z",
    }


def two_batches(driver: JobDriver) -> None:
    driver.send("orders", order("a", 1), order("b", 1, "FR"), order("c", 2), timestamp=AT)
    driver.run()
    driver.send("orders", order("d", 3, ""), order("e", 1), timestamp=AT)
    driver.run()


def folders(driver: JobDriver, table: str = TABLE) -> list[str]:
    """The folders of the live files, one for each file."""
    root = f"{driver.home.table(table)}/"
    uris = DeltaTable(str(driver.home.table(table))).file_uris()
    return sorted(uri.removeprefix("file://").removeprefix(root).rpartition("/")[0] for uri in uris)


PARTITIONED = {"partition_by": ["days(placed_at)", "country"]}
ROWS = [("a", 1), ("b", 1), ("c", 1), ("d", 1), ("e", 1)]


@pytest.mark.story
def test_partitions_of_a_row_job_are_written_read_and_repaired_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    driver = JobDriver(spark, tmp_path, [job(**PARTITIONED)])
    two_batches(driver)
    assert driver.rows(TABLE, "order_id", "cents") == ROWS
    places = {r["order_id"]: (r["placed_at_day"], r["country"]) for r in driver.table(TABLE).collect()}
    assert places["a"] == (date(2013, 1, 1), "DE")
    assert places["d"] == (date(2013, 1, 3), None), "an empty text is NULL in a partition"
    null = "__HIVE_DEFAULT_PARTITION__"
    days = ["1/country=DE", "1/country=DE", "1/country=FR", "2/country=DE", f"3/country={null}"]
    assert folders(driver) == [f"placed_at_day=2013-01-0{each}" for each in days]
    assert driver.audit() == []
    protocol = DeltaTable(str(driver.home.table(TABLE))).protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)

    # Offsets [2, 4): days 2 and 3. What other days have is neither read nor written.
    mended, context = job(factor=100, **PARTITIONED), driver.context
    before = set(DeltaTable(str(driver.home.table(TABLE))).file_uris())
    planned = backfill.plan(context, mended, offsets={"orders": {0: (2, 4)}})
    backfill.run(context, planned.id, mended)
    verdict = backfill.verify(context, planned.id, mended, recompute="all")
    assert verdict.passed, verdict.findings
    backfill.swap(context, planned.id)
    assert driver.rows(TABLE, "order_id", "cents") == [("a", 1), ("b", 1), ("c", 100), ("d", 100), ("e", 1)]
    after = set(DeltaTable(str(driver.home.table(TABLE))).file_uris())
    assert all("placed_at_day=2013-01-01" not in uri for uri in before ^ after)
    assert driver.audit() == []
    backfill.rollback(context, planned.id)
    assert driver.rows(TABLE, "order_id", "cents") == ROWS
    assert driver.audit() == []


def test_a_swap_copies_the_rows_beside_the_repaired_ones_within_their_partition(
    spark: SparkSession, tmp_path: Path
) -> None:
    driver = JobDriver(spark, tmp_path, [job(**PARTITIONED)])
    driver.send("orders", *[order(each, 1) for each in "abc"], order("d", 2), timestamp=AT)
    driver.run()
    mended, context = job(factor=100, **PARTITIONED), driver.context
    planned = backfill.plan(context, mended, offsets={"orders": {0: (1, 2)}})
    backfill.run(context, planned.id, mended)
    verdict = backfill.verify(context, planned.id, mended, recompute="all")
    assert verdict.passed, verdict.findings
    swapped = backfill.swap(context, planned.id)
    assert swapped["proof"]["outside_unchanged"]
    swap = FileSwap(spark, driver.home.table(TABLE))
    of_day = [file.name for file in swap.all_files() if dict(file.values)["placed_at_day"] == "2013-01-01"]
    rest = swap.rest(planned.affected.condition(), of_day)
    assert len(rest.inputFiles()) == len(of_day) < len(swap.all_files()), (
        "what is copied is read of these alone"
    )
    assert sorted(row["order_id"] for row in rest.collect()) == ["a", "c"]
    assert driver.rows(TABLE, "order_id", "cents") == [("a", 1), ("b", 100), ("c", 1), ("d", 1)]
    assert driver.audit() == []


def test_rebuild_of_a_partitioned_table_beside_the_live_one(spark: SparkSession, tmp_path: Path) -> None:
    driver = JobDriver(spark, tmp_path, [job(**PARTITIONED)])
    two_batches(driver)
    # Other partitions, too: the swap brings them.
    mended, context = job(factor=100, partition_by=["country"]), driver.context
    planned = backfill.plan_rebuild(context, mended)
    backfill.run(context, planned.id, mended)
    verdict = backfill.verify(context, planned.id, mended, recompute="all")
    assert verdict.passed, verdict.findings
    backfill.swap(context, planned.id)
    assert partition_columns(driver.home.table(TABLE)) == ("country",)
    assert [cents for _, cents in driver.rows(TABLE, "order_id", "cents")] == [100] * 5
    later = JobDriver(spark, tmp_path, [mended])
    later.send("orders", order("f", 4), timestamp=AT)
    later.run()
    assert later.rows(TABLE, "order_id")[-1] == ("f",)
    assert later.audit() == []
    backfill.rollback(context, planned.id)
    assert partition_columns(driver.home.table(TABLE)) == ("placed_at_day", "country")
    assert driver.audit() == []


def test_other_partitions_are_refused_and_rewritten_or_built_from_empty(
    spark: SparkSession, tmp_path: Path
) -> None:
    driver = JobDriver(spark, tmp_path, [job()])
    two_batches(driver)
    declared = job(partition_by=["days(placed_at)"], cluster_by=["order_id"])
    with pytest.raises(
        IncompatibleTableError, match="is not partitioned, and the job declares it partitioned by"
    ):
        JobDriver(spark, tmp_path, [declared]).run()

    (done,) = rewrite(driver.context, [declared], lambda _: NoLease())
    assert (done.before, done.now, done.rows, done.files) == ((), ("placed_at_day",), 5, 3)
    assert rewrite(driver.context, [declared], lambda _: NoLease()) == []
    later = JobDriver(spark, tmp_path, [declared])
    later.send("orders", order("f", 4), timestamp=AT)
    later.run()
    table = driver.home.table(TABLE)
    assert (partition_columns(table), clustered_by(table)) == (("placed_at_day",), ("order_id",))
    assert later.rows(TABLE, "order_id", "cents") == [*ROWS, ("f", 1)]
    assert later.audit() == []
    assert not any(c.data_changed for c in commits(table) if c.removed_files)

    plain = job(partition_by=["country"])
    begin_generations(later.context, [plain], "rebuild", lambda _: NoLease())
    anew = JobDriver(spark, tmp_path, [plain])
    anew.run()
    assert partition_columns(table) == ("country",)
    assert [order_id for (order_id,) in anew.rows(TABLE, "order_id")] == list("abcdef")
    assert anew.audit() == []


@hw.job(target=hw.delta("silver.again"))
def again(placed: DataFrame) -> DataFrame:
    return placed.select("order_id", "country", "cents")


def test_jobs_that_read_a_table_and_its_other_partitions(spark: SparkSession, tmp_path: Path) -> None:
    """Who reads a table already keeps it from a rewrite; who comes behind one reads what is there, and what comes."""
    driver = JobDriver(spark, tmp_path / "read", [job(), bind(again)])
    two_batches(driver)
    declared = job(partition_by=["country"])
    with pytest.raises(StreamsError, match="again reads it commit by commit"):
        rewrite(driver.context, [declared], lambda _: NoLease())
    assert partition_columns(driver.home.table(TABLE)) == ()
    (done,) = rewrite(driver.context, [job(cluster_by=["order_id"])], lambda _: NoLease())
    assert (done.now, done.rows, done.files) == ((), 5, 1), "in another order they go on"
    driver.send("orders", order("f", 4), timestamp=AT)
    driver.run()
    assert [order_id for (order_id,) in driver.rows("silver.again", "order_id")] == list("abcdef")

    alone = JobDriver(spark, tmp_path / "new", [job()])
    two_batches(alone)
    rewrite(alone.context, [declared], lambda _: NoLease())
    both = JobDriver(spark, tmp_path / "new", [declared, bind(again)])
    both.run()
    both.send("orders", order("f", 4, "IT"), timestamp=AT)
    both.run()
    rows = [("a", "DE"), ("b", "FR"), ("c", "DE"), ("d", None), ("e", "DE"), ("f", "IT")]
    assert both.rows("silver.again", "order_id", "country") == rows
    assert both.audit() == []


def test_rewrite_keeps_a_computed_partition_beside_a_new_one(spark: SparkSession, tmp_path: Path) -> None:
    driver = JobDriver(spark, tmp_path, [job(partition_by=["days(placed_at)"])])
    two_batches(driver)
    declared = job(partition_by=["months(placed_at)", "days(placed_at)"])
    (done,) = rewrite(driver.context, [declared], lambda _: NoLease())
    assert done.now == ("placed_at_month", "placed_at_day")
    assert folders(driver)[0] == "placed_at_month=2013-01-01/placed_at_day=2013-01-01"
    later = JobDriver(spark, tmp_path, [declared])
    later.send("orders", order("f", 4), timestamp=AT)
    later.run()
    assert later.rows(TABLE, "order_id", "cents") == [*ROWS, ("f", 1)]
    assert later.audit() == []


def test_updating_table_looks_only_into_the_partitions_of_its_keys(
    spark: SparkSession, tmp_path: Path
) -> None:
    driver = JobDriver(spark, tmp_path, [job(**PARTITIONED), bind(by_day)])
    two_batches(driver)
    sums = {(r["country"], r["window_start"].day): r["cents"] for r in driver.table("gold.by_day").collect()}
    assert sums == {("DE", 1): 2, ("FR", 1): 1, ("DE", 2): 1, (None, 3): 1}
    assert {folder.partition("=")[0] for folder in folders(driver, "gold.by_day")} == {"window_start_day"}
    before = set(DeltaTable(str(driver.home.table("gold.by_day"))).file_uris())
    driver.send("orders", order("f", 3, "IT"), timestamp=AT)
    driver.run()
    after = set(DeltaTable(str(driver.home.table("gold.by_day"))).file_uris())
    assert all("window_start_day=2013-01-03" in uri for uri in before ^ after)
    assert driver.audit() == []


@hw.job(
    target=hw.delta("gold.sums", keys=["country", "window_start"], mode="update", partition_by=["country"])
)
def sums(timed: DataFrame) -> DataFrame:
    return hw.tumbling(timed, "placed_at", "1 day", by=["country"]).agg(F.sum("cents").alias("cents"))


def test_empty_text_in_a_key_that_is_a_partition_is_a_sentence(spark: SparkSession, tmp_path: Path) -> None:
    driver = JobDriver(spark, tmp_path, [sums])
    driver.send("timed", order("a", 1, ""), timestamp=AT)
    with pytest.raises(JobDefinitionError, match="is partitioned by 'country', a key that is an empty text"):
        driver.run()


def test_rewrite_makes_no_null_of_an_empty_text_in_a_key(spark: SparkSession, tmp_path: Path) -> None:
    def by_country(**layout: Any) -> Job:
        @hw.job(
            name="sums",
            target=hw.delta("gold.sums", keys=["country", "window_start"], mode="update", **layout),
        )
        def summed(timed: DataFrame) -> DataFrame:
            return hw.tumbling(timed, "placed_at", "1 day", by=["country"]).agg(F.sum("cents").alias("cents"))

        return bind(summed)

    driver = JobDriver(spark, tmp_path, [by_country()])
    driver.send("timed", order("a", 1, ""), timestamp=AT)
    driver.run()
    with pytest.raises(IncompatibleTableError, match="rows have an empty text in 'country'"):
        rewrite(driver.context, [by_country(partition_by=["country"])], lambda _: NoLease())
    assert driver.rows("gold.sums", "country", "cents") == [("", 1)]


def test_files_of_a_clustered_table_are_sorted_and_stay_so(spark: SparkSession, tmp_path: Path) -> None:
    declared = job(partition_by=["days(placed_at)"], cluster_by=["country", "order_id"])
    driver = JobDriver(spark, tmp_path, [declared])
    for number in range(4):
        ids = [f"{n:02d}" for n in range(9, 0, -1)]
        sent = [order(f"{number}{each}", 1 + n % 2, "ABC"[n % 3]) for n, each in enumerate(ids)]
        driver.send("orders", *sent, timestamp=AT)
        JobRunner(driver.context, [declared], upkeep=Upkeep(every=3)).run_once()
    made = [*commits(driver.home.table(TABLE))]
    assert any(c.operation == "WRITE" and not c.data_changed and c.added_paths for c in made)
    for uri in DeltaTable(str(driver.home.table(TABLE))).file_uris():
        file = uri.removeprefix("file://")
        rows = spark.read.parquet(file).select("country", "order_id").coalesce(1).collect()
        assert rows == sorted(rows)
    assert driver.table(TABLE).count() == 36
    assert driver.audit() == []
    assert not any(each.findings for each in audit_home(driver.home))


def test_properties_and_comments_of_a_running_job_change_with_its_declaration(
    spark: SparkSession, tmp_path: Path
) -> None:
    driver = JobDriver(spark, tmp_path, [job(comment="first", comments={"cents": "net"})])
    two_batches(driver)
    properties = {"team": "a", "delta.enableChangeDataFeed": True}
    told = job(comment="then", comments={"cents": "gross"}, properties=properties)
    later = JobDriver(spark, tmp_path, [told])
    later.send("orders", order("f", 4), timestamp=AT)
    later.run()
    path = driver.home.table(TABLE)
    detail = spark.sql(f"DESCRIBE DETAIL delta.`{path}`").collect()[0]
    assert detail["description"] == "then"
    assert detail["properties"]["team"] == "a"
    assert (detail["minReaderVersion"], detail["minWriterVersion"]) == (1, 4)
    assert later.table(TABLE).schema["cents"].metadata == {"comment": "gross"}
    version = DeltaTable(str(path)).version()
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", version)
    changes = feed.load(str(path)).select("order_id", "_change_type").collect()
    assert [tuple(row) for row in changes] == [("f", "insert")]
    assert later.audit() == []
