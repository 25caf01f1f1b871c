"""The test driver beyond what the page of `headwater_streams.testing` shows: what it refuses, and what it finds."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession

import headwater as hw
from headwater.running.pytest_plugin import driving
from headwater_streams.spark.delta_log import delta_log
from headwater_streams.testing import JobDriver

clicks = hw.topic("clicks", schema="id STRING, at TIMESTAMP", event_time="at", max_ahead="9999 days")


@hw.job(target=hw.delta("silver.clicks"), dedup=hw.by_offset(origin=True))
def clean(clicks: DataFrame) -> DataFrame:
    return clicks


@hw.job(target=hw.delta("silver.plain"), dedup=hw.by_offset())
def plain(clicks: DataFrame) -> DataFrame:
    return clicks


def three_clicks(driver: JobDriver) -> None:
    driver.send("clicks", *[{"id": f"c{n}", "at": "2013-01-01T10:00:00Z"} for n in range(3)])
    driver.run()


def noop(clicks: DataFrame) -> DataFrame:
    return clicks


@pytest.mark.story
def test_driver_refuses_what_was_never_sent(drive: Callable[..., JobDriver]) -> None:
    driver = drive(clean)
    driver.send("clicks", {"id": "a"}, {"id": "b"}, offset=7)
    with pytest.raises(ValueError, match=r"^clicks 0 has no offset 9; there are \[7, 8\]$"):
        driver.resend("clicks", 9)
    with pytest.raises(ValueError, match=r"^offsets \[6, 8\] do not follow each other;"):
        driver.resend("clicks", 6, 8)
    with pytest.raises(ValueError, match=r"^no job here reads the topic 'cliks' with an event_time=$"):
        driver.advance("cliks", "2013-01-01T00:00:00Z")
    with pytest.raises(ValueError, match=r"^no job here reads the topic 'cliks'; they read clicks$"):
        driver.send("cliks", {"id": "a"})


def test_driver_goes_on_behind_what_another_one_has_sent(drive: Callable[..., JobDriver]) -> None:
    """A second version of a job, over the tables of the first: its records were taken for redeliveries."""
    at = "2013-01-01T10:00:00Z"
    first = drive(clean)
    first.send("clicks", {"id": "a", "at": at}, {"id": "b", "at": at})
    first.run()
    second = drive(clean)
    second.send("clicks", {"id": "c", "at": at})
    second.send("clicks", {"id": "b", "at": at}, offset=1)
    second.send("clicks", {"id": "d", "at": at})
    second.run()
    assert second.rows("silver.clicks", "id", "_offset") == [("a", 0), ("b", 1), ("c", 2), ("d", 3)]


def test_driver_runs_what_is_sent_again_and_what_is_new_in_one_go(drive: Callable[..., JobDriver]) -> None:
    """Records between that were not sent again were taken for lost ones."""
    at = "2013-01-01T10:00:00Z"
    driver = drive(plain)
    driver.send("clicks", *[{"id": each, "at": at} for each in "abcde"], timestamp=at)
    driver.run()
    driver.resend("clicks", 1)
    driver.send("clicks", {"id": "f", "at": at}, timestamp=at)
    driver.resend("clicks", 5)
    driver.resend("clicks", 3)
    driver.run()
    assert [name for name, _ in driver.rows("silver.plain", "id", "_offset")] == list("abcdef")
    assert driver.accounting("silver.plain") == {"read": 9, "written": 6, "duplicate": 3}
    assert driver.audit() == []


@pytest.mark.story
def test_driver_tells_what_is_no_job_and_what_is_no_table(drive: Callable[..., JobDriver]) -> None:
    with pytest.raises(
        TypeError, match=r"^'noop' is no job; decorate the function with @hw\.job\(target=\.\.\.\)$"
    ):
        drive(noop)
    with pytest.raises(ValueError, match=r"^there is no table 'silver\.clicks'; there are none$"):
        drive(clean).rows("silver.clicks", "id")


def test_driver_sends_nothing_where_no_rows_are_given(ready: Callable[..., JobDriver]) -> None:
    driver = ready(three_clicks, clean)
    driver.send("clicks", *[])
    driver.run()
    assert driver.audit() == []
    assert driver.rows("silver.clicks", "id") == [("c0",), ("c1",), ("c2",)]


def test_driver_resends_what_another_one_has_sent(drive: Callable[..., JobDriver]) -> None:
    at = "2013-01-01T10:00:00Z"
    first = drive(clean)
    first.send("clicks", {"id": "a", "at": at}, {"id": "b", "at": at}, origin=("east", "clicks", 0, 40))
    first.run()
    second = drive(clean)
    second.resend("clicks", 1, as_new=True)
    second.resend("clicks", 0)
    second.resend("clicks", 1)
    second.run()
    assert second.rows("silver.clicks", "id", "_offset") == [("a", 0), ("b", 1)]
    assert second.accounting("silver.clicks") == {"read": 5, "written": 2, "duplicate": 3}
    with pytest.raises(ValueError, match=r"^clicks 1 has no offset 0; there are \[\]$"):
        second.resend("clicks", 0, partition=1)


def test_driver_s_tables_are_let_go_of_behind_its_test(spark: SparkSession, tmp_path: Path) -> None:
    """A session that kept every test's tables had no memory left after an hour of them."""
    with driving(spark, tmp_path) as make:
        driver = make(clean)
        driver.send("clicks", {"id": "a", "at": "2013-01-01T10:00:00Z"})
        driver.run()
        table = driver.home.table("silver.clicks")
        kept = delta_log(spark, table)
        assert delta_log(spark, table).equals(kept)
    assert not delta_log(spark, table).equals(kept)


def test_driver_resends_keep_what_tells_them_apart(drive: Callable[..., JobDriver]) -> None:
    driver = drive(clean)
    values = [{"id": f"c{n}", "at": "2013-01-01T10:00:00Z"} for n in range(3)]
    driver.send("clicks", *values, b"bad", origin=("east", "clicks", 0, 40), headers={"trace": b"x"})
    driver.resend("clicks", 1, 2, as_new=True)
    driver.advance("clicks", "2013-01-01T11:00:00Z", id="later")
    driver.run()
    assert driver.rows("silver.clicks", "id", "_offset") == [("c0", 0), ("c1", 1), ("c2", 2), ("later", 6)]
    assert driver.accounting("silver.clicks") == {"read": 7, "written": 4, "duplicate": 2, "quarantined": 1}
    assert driver.quarantined("silver.clicks") == [("the value is not one JSON object", b"bad")]
    assert driver.audit() == []


def test_driver_crash_that_a_run_did_not_come_to_is_not_met_by_a_later_one(
    ready: Callable[..., JobDriver],
) -> None:
    driver = ready(three_clicks, clean)
    driver.crash_at("before commit")
    driver.run()  # there is nothing to commit
    driver.send("clicks", {"id": "more", "at": "2013-01-01T10:00:00Z"})
    driver.run()
    assert driver.rows("silver.clicks", "id") == [("c0",), ("c1",), ("c2",), ("more",)]


def test_driver_audit_names_a_row_that_is_gone(ready: Callable[..., JobDriver]) -> None:
    driver = ready(three_clicks, clean)
    path = str(driver.home.table("silver.clicks"))
    left = DeltaTable(path).to_pyarrow_dataset().to_table(filter=pc.field("id") != "c1")
    write_deltalake(path, left, mode="overwrite")
    assert driver.audit() == ["silver.clicks batch 0: 1 row is gone: clicks 0 offset 1"]


@pytest.mark.story
def test_driver_audit_names_rows_that_stand_there_twice(ready: Callable[..., JobDriver]) -> None:
    driver = ready(three_clicks, clean)
    path = str(driver.home.table("silver.clicks"))
    again = DeltaTable(path).to_pyarrow_dataset().to_table(filter=pc.field("id") != "c1")
    write_deltalake(path, again, mode="append")
    assert driver.audit() == [
        "silver.clicks: 2 rows stand there twice: clicks 0 offset 0, clicks 0 offset 2",
        "silver.clicks batch 0: 2 rows slipped in: clicks 0 offset 0, clicks 0 offset 2",
    ]


def test_driver_names_a_job_or_a_column_that_is_not_there(drive: Callable[..., JobDriver]) -> None:
    driver = drive(clean)
    with pytest.raises(ValueError, match=r"^no job here is named 'claen'; there are clean$"):
        driver.crash_at("start", "claen")
    driver.send("clicks", {"id": "a", "at": datetime(2013, 1, 1, 10, tzinfo=UTC)})
    driver.run()
    assert driver.rows("silver.clicks", "id", "at") == [("a", datetime(2013, 1, 1, 10))]
    with pytest.raises(ValueError, match=r"^silver\.clicks has no column 'nope'; it has id, at$"):
        driver.rows("silver.clicks", "id", "nope")
    with pytest.raises(TypeError, match=r"is no value of JSON; give a text, a number or the record's bytes"):
        driver.send("clicks", {"id": {1, 2}})
