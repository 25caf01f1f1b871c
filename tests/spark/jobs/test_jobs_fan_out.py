"""One job with several tables, and several topics in one input: each record once in each, whatever is interrupted."""

from collections.abc import Callable, Mapping

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams import backfill
from headwater_streams.base.errors import CheckFailedError, JobDefinitionError
from headwater_streams.ledger.audit import audit_home
from headwater_streams.plan.job import bind
from headwater_streams.runtime.planning import plan_jobs
from headwater_streams.testing import JobDriver, SimulatedCrash

AT = "2013-01-01T12:00:00+00:00"
requests = hw.topic("east", "west", schema="path STRING, agent STRING, at TIMESTAMP", event_time="at")
TARGETS = {
    "people": hw.delta("silver.people"),
    "bots": hw.delta("silver.bots"),
    "paths": hw.delta("silver.paths"),
}


@hw.job(targets=TARGETS, dedup=hw.by_offset(origin=True))
@hw.check("has_path", "path IS NOT NULL")
@hw.check("agents_are_named", "agent <> ''", on="output", action="fail")
def split_requests(requests: DataFrame) -> Mapping[str, DataFrame]:
    is_bot = F.col("agent").contains("bot")
    return {
        "bots": requests.filter(is_bot),
        "people": requests.filter(~is_bot),
        "paths": requests.select("path"),
    }


def request(n: int, agent: str = "firefox") -> dict[str, object]:
    return {"path": f"/{n}", "agent": agent, "at": f"2013-01-01T10:{n:02d}:00Z"}


def send(driver: JobDriver, first: int) -> None:
    """Ten requests to each topic, of which three are bots' and one is bad; two were sent before."""
    for topic in ("east", "west"):
        values = [request(n, "a bot" if n % 3 == 1 else "firefox") for n in range(first, first + 9)]
        driver.send(topic, *values, b"bad", timestamp=AT, origin=(topic, "requests", 0, first))
        driver.send(topic, *values[:2], timestamp=AT, origin=(topic, "requests", 0, first))


def counts(driver: JobDriver) -> dict[str, int]:
    tables = ["silver.people", "silver.bots", "silver.paths", "silver.people__quarantine"]
    return {table: driver.table(table).count() for table in tables}


bots = hw.table("silver.bots", event_time="at", watermark="1 hour")


@hw.job(target=hw.delta("gold.bots", keys=["agent", "window_start"], mode="update"))
def count_bots(bots: DataFrame) -> DataFrame:
    return hw.tumbling(bots, "at", "1 day", by=["agent"]).agg(F.count("*").alias("requests"))


def test_fan_out_each_table_has_its_rows_accounts_for_all_and_feeds_another_job(
    drive: Callable[..., JobDriver],
) -> None:
    driver = drive(count_bots, split_requests)
    send(driver, 0)
    driver.run()
    assert counts(driver) == {
        "silver.people": 12, "silver.bots": 6, "silver.paths": 18, "silver.people__quarantine": 2,
    }  # fmt: skip
    assert driver.rows("silver.bots", "_topic", "_offset") == [
        (topic, offset) for topic in ("east", "west") for offset in (1, 4, 7)
    ]
    for table, written in (("silver.people", 12), ("silver.bots", 6), ("silver.paths", 18)):
        (entry,) = driver.ledger(table)
        assert entry.totals == {
            "read": 24, "written": written, "filtered": 18 - written, "duplicate": 4, "quarantined": 2,
        }  # fmt: skip
        assert not entry.imbalances()
        assert sorted(entry.partitions) == ["east", "west"]
        assert [source.ranges for source in entry.sources] == [{"east": {0: (0, 12)}, "west": {0: (0, 12)}}]
    assert driver.table("silver.paths").columns[0] == "path"
    assert driver.rows("gold.bots", "agent", "requests") == [("a bot", 6)]
    assert not [finding for audit in audit_home(driver.home) for finding in audit.findings]


def test_fan_out_repair_of_two_topics_mends_three_tables_of_which_two_have_a_record(
    drive: Callable[..., JobDriver],
) -> None:
    @hw.job(targets=TARGETS, name="split_requests", dedup=hw.by_offset(origin=True))
    @hw.check("has_path", "path IS NOT NULL")
    def mended(requests: DataFrame) -> Mapping[str, DataFrame]:
        is_bot = F.col("agent").contains("bot") | (F.col("path") == "/0")
        return {
            "bots": requests.filter(is_bot),
            "people": requests.filter(~is_bot),
            "paths": requests.select(F.upper("path").alias("path")),
        }

    driver, job = drive(split_requests), bind(mended)
    send(driver, 0)
    driver.run()
    send(driver, 20)
    driver.run()
    before = counts(driver)
    planned = backfill.plan(driver.context, job, offsets={"east": {0: (0, 12)}, "west": {0: (3, 15)}})
    backfill.run(driver.context, planned.id, job)
    verdict = backfill.verify(driver.context, planned.id, job, recompute="all")
    assert verdict.passed, verdict.findings
    backfill.swap(driver.context, planned.id)
    moved = {"silver.people": -1, "silver.bots": 1, "silver.paths": 0, "silver.people__quarantine": 0}
    assert counts(driver) == {table: count + moved[table] for table, count in before.items()}
    assert ("east", 0) in driver.rows("silver.bots", "_topic", "_offset")
    assert driver.audit() == []
    backfill.rollback(driver.context, planned.id)
    assert counts(driver) == before
    send(driver, 40)
    driver.run()
    assert driver.audit() == []


def test_fan_out_crash_between_the_tables_gives_the_same(drive: Callable[..., JobDriver]) -> None:
    driver = drive(split_requests)
    for sent, (step, first, second) in enumerate((("before table", 0, 20), ("before commit", 40, 50)), 1):
        send(driver, first)
        driver.crash_at(step)
        with pytest.raises(SimulatedCrash):
            driver.run()
        send(driver, second)
        driver.run()
        assert counts(driver) == {
            "silver.people": 24 * sent, "silver.bots": 12 * sent, "silver.paths": 36 * sent,
            "silver.people__quarantine": 4 * sent,
        }, step  # fmt: skip
        found = [finding for audit in audit_home(driver.home) for finding in audit.findings]
        assert not found, step


def test_fan_out_failing_check_of_one_table_commits_none(drive: Callable[..., JobDriver]) -> None:
    driver = drive(split_requests)
    driver.send("west", request(1), request(2, ""), timestamp=AT)
    with pytest.raises(CheckFailedError, match="agents_are_named"):
        driver.run()
    assert not any(counts(driver).values())


def lost(requests: DataFrame) -> Mapping[str, DataFrame]:
    return {"people": requests, "bots": requests.groupBy("path").count(), "paths": requests}


def other_names(requests: DataFrame) -> Mapping[str, DataFrame]:
    return {"people": requests, "cats": requests}


def one_frame(requests: DataFrame) -> DataFrame:
    return requests


def windowed(requests: DataFrame) -> Mapping[str, DataFrame]:
    counted = hw.tumbling(requests, "at", "1 day", by=["path"]).agg(F.count("*").alias("n"))
    return {"people": counted, "bots": counted, "paths": counted}


def united(requests: DataFrame) -> Mapping[str, DataFrame]:
    return {"people": requests, "bots": requests, "paths": requests.union(requests)}


@pytest.mark.story
@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lost, "a row-by-row function cannot use a grouping"),
        (other_names, "frames for 'people', 'cats', and targets= names 'people', 'bots', 'paths'"),
        (one_frame, "returned DataFrame, not a dict of DataFrames"),
        (windowed, "job 'windowed': "),
        (united, "hw.topic('a', 'b')"),
    ],
)
def test_fan_out_wrong_function_is_refused_when_planned(
    drive: Callable[..., JobDriver], function: Callable[..., Mapping[str, DataFrame]], told: str
) -> None:
    declared = hw.job(targets=TARGETS)(function)
    with pytest.raises(JobDefinitionError) as refused:
        plan_jobs(drive().context, [bind(declared)])
    assert told in str(refused.value)
