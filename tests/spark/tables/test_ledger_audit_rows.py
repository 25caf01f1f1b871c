"""What the audit names in a table of rows: what is gone, or slipped in, beside repairs and in their ranges.

offset   0   1   2   3 | 4   5   6   7 | 8   9   10  11     three batches; [3, 6) is repaired, then [5, 9)
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams import backfill
from headwater_streams.ledger.audit import audit_home
from headwater_streams.plan.job import Job, bind
from headwater_streams.testing import JobDriver

sold = hw.topic("sold", schema="id STRING, price DOUBLE")
NAME = "silver.sold"


def job(rate: float) -> Job:
    @hw.job(name="clean", target=hw.delta(NAME), dedup=hw.by_offset())
    def clean(sold: DataFrame) -> DataFrame:
        return sold.withColumn("tax", F.col("price") * rate)

    return bind(clean)


def three_batches(driver: JobDriver) -> None:
    """Runs three batches of four records."""
    for batch in range(3):
        driver.send("sold", *[{"id": str(batch * 4 + n), "price": 1.0} for n in range(4)])
        driver.run()
    assert driver.audit() == []


def three_batches_and_a_repair(driver: JobDriver) -> None:
    three_batches(driver)
    repaired(driver, 3, 6, 0.25)


def table(driver: JobDriver) -> DeltaTable:
    return DeltaTable(str(driver.home.table(NAME)))


def repaired(driver: JobDriver, start: int, end: int, rate: float) -> str:
    made = job(rate)
    planned = backfill.plan(driver.context, made, offsets={"sold": {0: (start, end)}})
    backfill.run(driver.context, planned.id, made)
    assert backfill.verify(driver.context, planned.id, made).passed
    backfill.swap(driver.context, planned.id)
    return planned.id


def only_repair(driver: JobDriver) -> str:
    """The id of the one repair of a home."""
    (found,) = backfill.list_backfills(driver.home)
    return str(found["id"])


def test_audit_names_rows_beside_repairs_and_in_their_ranges(ready: Callable[..., JobDriver]) -> None:
    driver = ready(three_batches, job(0.2))
    table(driver).delete("_offset = 2")
    gone = f"{NAME} batch 0: 1 row is gone: sold 0 offset 2"
    assert driver.audit() == [gone]
    first = repaired(driver, 3, 6, 0.25)
    assert driver.audit() == [gone], "a repair elsewhere does not bring it back"
    second = repaired(driver, 5, 9, 0.3)
    assert driver.audit() == [gone]

    table(driver).delete("_offset = 4 OR _offset = 6 OR _offset = 10")
    others = [
        f"{NAME} batch 2: 1 row is gone: sold 0 offset 10",
        f"{NAME}, swap of backfill {first}: 1 row is gone: sold 0 offset 4",
        f"{NAME}, swap of backfill {second}: 1 row is gone: sold 0 offset 6",
    ]
    assert driver.audit() == [gone, *others]


@pytest.mark.story
def test_audit_names_rows_after_a_rollback(ready: Callable[..., JobDriver]) -> None:
    driver = ready(three_batches_and_a_repair, job(0.2))
    repair = only_repair(driver)
    backfill.rollback(driver.context, repair)
    assert driver.audit() == []
    table(driver).delete("_offset = 1 OR _offset = 5")
    assert driver.audit() == [
        f"{NAME} batch 0: 1 row is gone: sold 0 offset 1",
        f"{NAME}, rollback of backfill {repair}: 1 row is gone: sold 0 offset 5",
    ]


def test_audit_counts_where_the_files_of_a_repair_were_removed(ready: Callable[..., JobDriver]) -> None:
    driver = ready(three_batches_and_a_repair, job(0.2))
    repair = only_repair(driver)
    table(driver).optimize.compact()
    table(driver).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    (audit,) = audit_home(driver.home, [NAME])
    assert audit.findings == []
    assert audit.notes[-1] == (
        f"{NAME}: of 2 commits, part of whose rows a later repair replaced or have expired, the files were "
        "removed since, so their other rows were not looked at"
    )
    table(driver).delete("_offset = 4 OR _offset = 9")
    found = driver.audit()
    assert f"{NAME} batch 2: 3 rows where its commit wrote 4; its files were removed since" in found[0]
    assert f"{NAME}, swap of backfill {repair}: 2 rows are in its range where it wrote 3" in found[1]


def test_audit_names_a_row_without_coordinates(ready: Callable[..., JobDriver]) -> None:
    driver = ready(three_batches, job(0.2))
    path: Path = driver.home.table(NAME)
    driver.context.spark.sql(
        f"INSERT INTO delta.`{path}` (id, price, tax) VALUES ('x', 1.0, 0.2), ('y', 1.0, 0.2)"
    )
    told = "2 rows of no batch, which no commit wrote: one without coordinates, one without coordinates"
    assert driver.audit() == [f"{NAME}: {told}"]
    repaired(driver, 3, 6, 0.25)
    assert driver.audit() == [f"{NAME}: {told}"]
