"""Jobs of one command do not end each other: who fails or is refused stops who depends on it, and nobody else.

orders   -> clean_orders   -> revenue -> best_hours
payments -> clean_payments
"""

import dataclasses
import logging
from collections.abc import Callable
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams.base.errors import CheckFailedError, UnavailableError
from headwater_streams.plan.job import Job, bind
from headwater_streams.runtime.planning import AbsentJob
from headwater_streams.runtime.restarts import BackOff, Restarts
from headwater_streams.runtime.runner import JobRunner
from headwater_streams.sources.inputs import TopicInput
from headwater_streams.sources.reader import RecordSource
from headwater_streams.testing import JobDriver
from support.watching import watch_until

orders = hw.topic("orders", schema="cents BIGINT, ordered_at TIMESTAMP", event_time="ordered_at")
payments = hw.topic("payments", schema="cents BIGINT")
good_orders = hw.table("silver.orders", event_time="ordered_at", watermark="30 minutes")
hours = hw.table("gold.revenue")
known = hw.lookup("silver.payments")
SOON = Restarts(BackOff(0.1, 0.3))


@hw.job(target=hw.delta("silver.orders"), dedup=hw.by_offset())
@hw.check("plausible", "max(cents) < 1000", level="batch", action="fail")
def clean_orders(orders: DataFrame) -> DataFrame:
    return orders


@hw.job(target=hw.delta("gold.revenue"))
def revenue(good_orders: DataFrame) -> DataFrame:
    return hw.tumbling(good_orders, "ordered_at", "1 hour").agg(F.sum("cents").alias("cents"))


@hw.job(target=hw.delta("gold.best_hours"))
def best_hours(hours: DataFrame) -> DataFrame:
    return hours.filter("cents > 10").select("window_start", "cents")


@hw.job(target=hw.delta("silver.payments"), dedup=hw.by_offset())
def clean_payments(payments: DataFrame) -> DataFrame:
    return payments


@hw.job(target=hw.delta("silver.paid"), dedup=hw.by_offset())
def paid(orders: DataFrame, known: DataFrame) -> DataFrame:
    return hw.enrich(orders, known.withColumn("is_paid", F.lit(True)), on=["cents"])


FUNCTIONS = (clean_orders, revenue, best_hours, clean_payments)


class Away:
    """A source of records whose topics can be away, each for itself."""

    def __init__(self, source: RecordSource) -> None:
        self._source, self.away = source, set[str]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def partitions(self, topic: str) -> dict[int, tuple[int, int]]:
        self._require(topic)
        return self._source.partitions(topic)

    def stream(self, spark: Any, declared: TopicInput, starts: Any) -> DataFrame:
        for topic in declared.names:
            self._require(topic)
        return self._source.stream(spark, declared, starts)

    def _require(self, topic: str) -> None:
        if topic in self.away:
            raise UnavailableError(f"the broker of {topic} does not answer")


def _order(cents: int, at: str = "10:00") -> dict[str, Any]:
    return {"cents": cents, "ordered_at": f"2026-01-01T{at}:00Z"}


def _jobs(*functions: Callable[..., DataFrame]) -> list[Job]:
    return [bind(function) for function in functions or FUNCTIONS]


def _runner(driver: JobDriver, jobs: list[Job], source: Any = None, **more: Any) -> JobRunner:
    context = dataclasses.replace(driver.context, source=source or driver.context.source)
    return JobRunner(context, jobs, restarts=SOON, progress_every_s=0.1, goes_on=True, **more)


def _events(driver: JobDriver) -> dict[str, list[tuple[str, str | None]]]:
    """What each job did but its batches, with the reasons."""
    table = DeltaTable(str(driver.home.table("headwater.progress"))).to_pyarrow_table()
    events: dict[str, list[tuple[str, str | None]]] = {}
    for row in table.sort_by("happened_at").to_pylist():
        if row["event"] != "batch":
            events.setdefault(row["job"], []).append((row["event"], row["message"]))
    return events


@pytest.mark.story
def test_once_job_that_fails_holds_what_reads_its_tables_and_all_others_run(
    drive: Callable[..., JobDriver],
) -> None:
    driver = drive(*FUNCTIONS)
    driver.send("orders", _order(5_000))
    driver.send("payments", {"cents": 5})
    runner = _runner(driver, _jobs())
    runner.run_once()
    assert runner.is_over
    failed, *blocked = runner.outcomes
    assert (failed.job, failed.state) == ("clean_orders", "failed")
    assert "plausible" in failed.message
    assert {(each.job, each.state, each.message) for each in blocked} == {
        (
            "revenue",
            "blocked",
            "job 'revenue' does not run: clean_orders, which writes silver.orders, failed",
        ),
        (
            "best_hours",
            "blocked",
            "job 'best_hours' does not run: revenue, which writes gold.revenue, is blocked, as clean_orders failed",
        ),
    }
    assert runner.batches["clean_payments"] == 1
    runner.stop()
    assert driver.rows("silver.payments", "cents") == [(5,)]
    events = _events(driver)
    assert [event for event, _ in events["clean_payments"]] == ["started", "stopped"]
    assert [event for event, _ in events["clean_orders"]] == ["started", "failed"]
    assert events["revenue"] == [("blocked", "clean_orders, which writes silver.orders, failed")]


@pytest.mark.story
def test_job_that_fails_while_others_run_stops_its_readers_at_a_batch_boundary_and_the_others_go_on(
    drive: Callable[..., JobDriver], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "headwater_streams.runtime.runner")
    driver = drive(*FUNCTIONS)
    driver.send("orders", _order(5), _order(6, "12:00"))
    driver.send("payments", {"cents": 5})
    runner = _runner(driver, _jobs())
    runner.start(interval_s=0.1)
    try:
        watch_until(runner, lambda: runner.batches["revenue"] >= 1)
        driver.send("orders", _order(7_000))
        watch_until(runner, lambda: list(runner.queries) == ["clean_payments"])
        assert not runner.is_over
        driver.send("payments", {"cents": 6})
        watch_until(runner, lambda: runner.batches["clean_payments"] >= 2)
    finally:
        runner.stop()
    assert "the jobs that do not depend on it go on" in caplog.text
    assert sorted(driver.rows("silver.payments", "cents")) == [(5,), (6,)]
    assert sorted(driver.rows("silver.orders", "cents")) == [(5,), (6,)]
    assert [(each.job, each.state) for each in runner.outcomes] == [
        ("clean_orders", "failed"),
        ("revenue", "blocked"),
        ("best_hours", "blocked"),
    ]
    events = _events(driver)
    assert [event for event, _ in events["revenue"]] == ["started", "blocked"]
    assert events["clean_payments"][-1] == ("stopped", None)
    driver.audit()


def test_job_that_is_refused_at_its_start_holds_its_readers_and_the_others_start(
    drive: Callable[..., JobDriver],
) -> None:
    driver = drive(*FUNCTIONS)
    driver.send("orders", _order(5))
    driver.send("payments", {"cents": 5})
    driver.run()

    @hw.job(target=hw.delta("gold.revenue"), name="revenue")
    def other(good_orders: DataFrame) -> DataFrame:
        return hw.tumbling(good_orders, "ordered_at", "2 hours").agg(F.max("cents").alias("cents"))

    runner = _runner(driver, _jobs(clean_orders, other, best_hours, clean_payments))
    runner.start(interval_s=0.1)
    try:
        assert sorted(runner.queries) == ["clean_orders", "clean_payments"]
        driver.send("orders", _order(6))
        watch_until(runner, lambda: runner.batches["clean_orders"] >= 1)
    finally:
        runner.stop()
    assert [(each.job, each.state) for each in runner.outcomes] == [
        ("revenue", "refused"),
        ("best_hours", "blocked"),
    ]
    assert _events(driver)["revenue"][-1][0] == "refused"


def test_job_that_cannot_be_planned_or_loaded_holds_its_readers_and_the_others_run(
    drive: Callable[..., JobDriver],
) -> None:
    @hw.job(target=hw.delta("gold.revenue"), name="revenue")
    def wrong(good_orders: DataFrame) -> DataFrame:
        return good_orders.select("nothing_like_it")

    driver = drive(*FUNCTIONS)
    driver.send("orders", _order(5))
    driver.send("payments", {"cents": 5})
    absent = [AbsentJob("clean_payments", ("silver.payments",), "shop.py, line 3: invalid syntax")]
    runner = _runner(driver, _jobs(clean_orders, wrong, best_hours, paid), absent=absent)
    runner.run_once()
    runner.stop()
    assert {(each.job, each.state) for each in runner.outcomes} == {
        ("revenue", "refused"),
        ("best_hours", "blocked"),
        ("paid", "blocked"),
    }
    messages = {each.job: each.message for each in runner.outcomes}
    assert messages["best_hours"] == (
        "job 'best_hours' is not planned: revenue, which writes gold.revenue, is wrong"
    )
    assert messages["paid"] == (
        "job 'paid' is not planned: clean_payments, which writes silver.payments, could not be loaded"
    )
    assert driver.rows("silver.orders", "cents") == [(5,)]
    assert _events(driver)["clean_payments"] == [("refused", "shop.py, line 3: invalid syntax")]


@pytest.mark.story
def test_broker_of_one_topic_away_its_job_waits_and_comes_back_while_the_others_go_on(
    drive: Callable[..., JobDriver],
) -> None:
    driver = drive(*FUNCTIONS)
    driver.send("orders", _order(5), _order(6, "12:00"))
    driver.send("payments", {"cents": 5})
    source = Away(driver.context.source)
    source.away.add("orders")
    runner = _runner(driver, _jobs(), source)
    runner.start(interval_s=0.1)
    try:
        watch_until(runner, lambda: runner.batches.get("clean_payments") == 1)
        assert list(runner.queries) == ["clean_payments"], "revenue has no table to read yet"
        assert runner.outcomes == []
        source.away.clear()
        watch_until(runner, lambda: runner.batches.get("revenue", 0) >= 1)
    finally:
        runner.stop()
    assert sorted(driver.rows("silver.orders", "cents")) == [(5,), (6,)]
    events = _events(driver)
    assert ("waiting", "the broker of orders does not answer") in events["clean_orders"]
    assert events["revenue"][0] == ("waiting", "it begins once clean_orders has begun")
    assert [event for event, _ in events["revenue"]] == ["waiting", "started", "stopped"]


def test_stop_while_a_job_waits_for_its_retry_ends_at_once_and_says_what_it_waited_for(
    drive: Callable[..., JobDriver],
) -> None:
    driver = drive(*FUNCTIONS)
    driver.send("orders", _order(5))
    driver.send("payments", {"cents": 5})
    source = Away(driver.context.source)
    source.away.add("orders")
    context = dataclasses.replace(driver.context, source=source)
    runner = JobRunner(
        context, _jobs(), restarts=Restarts(BackOff(3600, 3600)), progress_every_s=0.1, goes_on=True
    )
    runner.start(interval_s=0.1)
    watch_until(runner, lambda: runner.batches.get("clean_payments") == 1)
    runner.stop()
    assert runner.is_over
    assert runner.outcomes == []
    events = _events(driver)
    why = "it waited to be started again: the broker of orders does not answer"
    assert events["clean_orders"][-1] == ("stopped", why)
    assert events["revenue"][-1] == ("stopped", "it had not begun")


def test_new_look_up_whose_filler_cannot_read_waits_and_does_not_begin_with_an_empty_table(
    drive: Callable[..., JobDriver],
) -> None:
    driver = drive(clean_payments, paid)
    driver.send("orders", _order(5))
    driver.send("payments", {"cents": 5})
    source = Away(driver.context.source)
    source.away.add("payments")
    runner = _runner(driver, _jobs(clean_payments, paid), source)
    runner.start(interval_s=0.1)
    try:
        runner.watch(2)
        assert not runner.queries
        source.away.clear()
        watch_until(runner, lambda: runner.batches.get("paid") == 1)
    finally:
        runner.stop()
    assert driver.rows("silver.paid", "cents", "is_paid") == [(5, True)]


def test_part_of_a_job_that_fails_ends_the_job_and_with_it_the_command(
    drive: Callable[..., JobDriver],
) -> None:
    """Its ingest part could read on, but then the command would never end."""

    @hw.job(target=hw.delta("gold.per_hour", keys=["window_start"], mode="update"), name="per_hour")
    @hw.check("few", "max(cents) < 10", on="output", level="batch", action="fail")
    def per_hour(orders: DataFrame) -> DataFrame:
        return hw.tumbling(orders, "ordered_at", "1 hour").agg(F.sum("cents").alias("cents"))

    timed = dataclasses.replace(
        bind(per_hour), inputs={"orders": dataclasses.replace(orders, watermark="5 minutes")}
    )
    driver = drive(timed)
    driver.send("orders", _order(500))
    runner = _runner(driver, [timed])
    runner.start(interval_s=0.1)
    try:
        watch_until(runner, lambda: runner.is_over)
    finally:
        runner.stop()
    assert [(each.job, each.state) for each in runner.outcomes] == [("per_hour", "failed")]
    assert _events(driver)["per_hour__ingest_orders"][-1] == ("blocked", "its part per_hour failed")


def test_without_goes_on_the_first_failure_is_raised_as_ever(drive: Callable[..., JobDriver]) -> None:
    driver = drive(*FUNCTIONS)
    driver.send("orders", _order(5_000))
    driver.send("payments", {"cents": 5})
    with pytest.raises(CheckFailedError):
        JobRunner(driver.context, _jobs(), progress_every_s=None).run_once()
