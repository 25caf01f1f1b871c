"""A swap moves metadata only: no data file is written, copied or touched by it, however large the table is.

batch     0        1        2          a file each
offset    0 1 2    3 4 5    6 7 8      of partition 0; [3, 6) is repaired
"""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams import backfill
from headwater_streams.plan.job import Job, bind
from headwater_streams.runtime.context import StageContext
from headwater_streams.testing import JobDriver

readings = hw.topic("readings", schema="device STRING, value INT")
TABLE = "silver.readings"


@hw.job(target=hw.delta(TABLE), dedup=hw.by_offset())
def clean(readings: DataFrame) -> DataFrame:
    return readings


def mended() -> Job:
    @hw.job(name="clean", target=hw.delta(TABLE), dedup=hw.by_offset())
    @hw.check("known", "value <> 4")
    def clean(readings: DataFrame) -> DataFrame:
        return readings.withColumn("value", F.col("value") * 10)

    return bind(clean)


def three_batches(driver: JobDriver) -> None:
    for start in (0, 3, 6):
        driver.send("readings", *[{"device": f"d{n}", "value": n} for n in range(start, start + 3)])
        driver.run()


def run_and_verify(context: StageContext, backfill_id: str, job: Job) -> None:
    backfill.run(context, backfill_id, job)
    assert backfill.verify(context, backfill_id, job).passed


def data_files(home: Path) -> dict[Path, tuple[int, int, int]]:
    """Every data file with what would change if its bytes did: inode, size, time of its last change.

    What checks came to is written with a swap, and is no data of the job's.
    """
    found = {}
    for path in home.rglob("*.parquet"):
        if not {"_delta_log", "checkpoints", "quality"} & {*path.parts}:
            status = path.stat()
            found[path] = (status.st_ino, status.st_size, status.st_mtime_ns)
    return found


def actions(table: Path, version: int, kind: str) -> set[str]:
    lines = (table / "_delta_log" / f"{version:020}.json").read_text().splitlines()
    return {action[kind]["path"] for action in map(json.loads, lines) if kind in action}


def require_only_links(
    before: Mapping[Path, tuple[int, int, int]], after: Mapping[Path, tuple[int, int, int]]
) -> None:
    assert {path: after[path] for path in before if path in after} == {
        path: status for path, status in before.items() if path in after
    }, "a data file was changed"
    assert set(after.values()) <= set(before.values()), "a data file was written"


def test_swap_of_a_repair_of_whole_files_writes_no_data_file(ready: Callable[..., JobDriver]) -> None:
    driver, job = ready(three_batches, clean), mended()
    context, table = driver.context, driver.home.table(TABLE)
    planned = backfill.plan(context, job, offsets={"readings": {0: (3, 6)}})
    run_and_verify(context, planned.id, job)
    driver.send("readings", {"device": "d9", "value": 9})
    driver.run()  # what the job appends meanwhile is not in the way
    before = data_files(driver.home.root)
    swapped = backfill.swap(context, planned.id)
    require_only_links(before, data_files(driver.home.root))
    assert swapped["proof"] == {"rows_outside": 7, "outside_unchanged": True, "inside_is_the_shadow": True}
    shadow = driver.home.root / "backfills" / planned.id / "shadow"
    assert actions(table, swapped["version"], "add") == {path.name for path in shadow.glob("*.parquet")}
    assert len(actions(table, swapped["version"], "remove")) == 1
    values = [0, 1, 2, 30, 50, 6, 7, 8, 9]
    assert driver.rows(TABLE, "value") == [(value,) for value in values]
    assert len(driver.quarantined(TABLE)) == 1
    assert driver.audit() == []
    backfill.rollback(context, planned.id)
    assert driver.rows(TABLE, "value") == [(value,) for value in range(10)]
    assert driver.audit() == []


PART = {"readings": {0: (5, 9)}}
OUTSIDE = "rows outside the range"


def finding_of(verdict: backfill.Verdict, name: str) -> backfill.Finding:
    return next(finding for finding in verdict.findings if finding.name == name)


def test_rows_are_copied_aside_with_statistics_while_a_batch_of_the_session_has_them_left_out(
    ready: Callable[..., JobDriver], setting: Callable[[str, str], None]
) -> None:
    """Found by two swaps at once (HEADWATER_BACKFILL_KILLS), one of them in the session of the live job."""
    driver, job = ready(three_batches, clean), mended()
    planned = backfill.plan(driver.context, job, offsets=PART)
    setting("spark.databricks.delta.stats.collect", "false")
    run_and_verify(driver.context, planned.id, job)
    before = data_files(driver.home.root)
    backfill.swap(driver.context, planned.id)
    require_only_links(before, data_files(driver.home.root))
    values = [0, 1, 2, 3, 4, 50, 60, 70, 80]
    assert driver.rows(TABLE, "value") == [(value,) for value in values]
    assert driver.audit() == []


@pytest.mark.story
def test_swap_of_a_repair_of_a_part_of_a_file_writes_no_data_file(ready: Callable[..., JobDriver]) -> None:
    driver, job = ready(three_batches, clean), mended()
    context = driver.context
    planned = backfill.plan(context, job, offsets=PART)
    backfill.run(context, planned.id, job)
    copied = data_files(driver.home.root)
    verdict = backfill.verify(context, planned.id, job)
    assert finding_of(verdict, OUTSIDE) == backfill.Finding(
        name=OUTSIDE,
        ok=True,
        detail=f"files of {TABLE} that stay: 1; rows to keep of others: 2, copied aside: 2, the same",
    )
    before = data_files(driver.home.root)
    assert before == copied, "the run has copied the other rows of that file"
    swapped = backfill.swap(context, planned.id)
    require_only_links(before, data_files(driver.home.root))
    assert swapped["proof"] == {"rows_outside": 5, "outside_unchanged": True, "inside_is_the_shadow": True}
    assert driver.rows(TABLE, "value") == [(value,) for value in (0, 1, 2, 3, 4, 50, 60, 70, 80)]
    backfill.rollback(context, planned.id)
    assert driver.rows(TABLE, "value") == [(value,) for value in range(9)]


def test_rows_are_copied_aside_again_of_a_file_that_was_made_since_the_run(
    ready: Callable[..., JobDriver], spark: SparkSession
) -> None:
    driver, job = ready(three_batches, clean), mended()
    planned = backfill.plan(driver.context, job, offsets=PART)
    backfill.run(driver.context, planned.id, job)
    spark.sql(f"OPTIMIZE delta.`{driver.home.table(TABLE)}`")
    verdict = backfill.verify(driver.context, planned.id, job)
    assert finding_of(verdict, OUTSIDE).detail.endswith(
        "rows to keep of others: 5, copied aside: 5, the same"
    )
    before = data_files(driver.home.root)
    backfill.swap(driver.context, planned.id)
    require_only_links(before, data_files(driver.home.root))
    assert driver.rows(TABLE, "value") == [(value,) for value in (0, 1, 2, 3, 4, 50, 60, 70, 80)]


def test_swap_copies_the_other_rows_of_a_file_that_was_made_since_the_verdict(
    ready: Callable[..., JobDriver], spark: SparkSession
) -> None:
    driver, job = ready(three_batches, clean), mended()
    context, table = driver.context, driver.home.table(TABLE)
    planned = backfill.plan(context, job, offsets=PART)
    run_and_verify(context, planned.id, job)
    spark.sql(f"OPTIMIZE delta.`{table}`")
    before = data_files(driver.home.root)
    swapped = backfill.swap(context, planned.id)
    assert swapped["proof"] == {"rows_outside": 5, "outside_unchanged": True, "inside_is_the_shadow": True}
    known = set(before.values())
    written = {path for path, status in data_files(driver.home.root).items() if status not in known}
    assert {path.parent for path in written} == {table}
    assert driver.rows(TABLE, "value") == [(value,) for value in (0, 1, 2, 3, 4, 50, 60, 70, 80)]


@pytest.mark.story
def test_verify_finds_copied_rows_that_were_changed(
    ready: Callable[..., JobDriver], spark: SparkSession
) -> None:
    driver, job = ready(three_batches, clean), mended()
    context = driver.context
    planned = backfill.plan(context, job, offsets=PART)
    backfill.run(context, planned.id, job)
    kept = driver.home.root / "backfills" / planned.id / "kept"
    rows = spark.read.format("delta").load(str(kept)).withColumn("value", F.lit(7)).collect()
    schema = spark.read.format("delta").load(str(kept)).schema
    shutil.rmtree(kept)
    spark.createDataFrame(rows, schema).write.format("delta").save(str(kept))
    verdict = backfill.verify(context, planned.id, job)
    assert not verdict.passed
    assert [finding.name for finding in verdict.findings if not finding.ok] == [OUTSIDE]
    with pytest.raises(backfill.BackfillError, match=f"did not pass: {OUTSIDE}|{OUTSIDE}"):
        backfill.swap(context, planned.id)


def test_swap_of_a_rebuild_writes_no_data_file(ready: Callable[..., JobDriver]) -> None:
    driver, job = ready(three_batches, clean), mended()
    context, table = driver.context, driver.home.table(TABLE)
    planned = backfill.plan_rebuild(context, job)
    run_and_verify(context, planned.id, job)
    before = data_files(driver.home.root)
    old = {path.name for path in table.glob("*.parquet")}
    rebuilt = driver.home.root / "backfills" / planned.id / "rebuilt"
    made = {path.name for path in rebuilt.rglob(f"{Path(*TABLE.split('.'))}/*.parquet")}
    assert made
    swapped = backfill.swap(context, planned.id)
    require_only_links(before, data_files(driver.home.root))
    assert actions(table, swapped["version"], "add") == made
    assert actions(table, swapped["version"], "remove") == old
    assert driver.rows(TABLE, "value") == [(value,) for value in (0, 10, 20, 30, 50, 60, 70, 80)]
    backfill.rollback(context, planned.id)
    require_only_links(before, data_files(driver.home.root))
    assert driver.rows(TABLE, "value") == [(value,) for value in range(9)]
