"""One job with several tables begins new generations and is looked after: all its tables go together."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams.base.errors import IncompatibleStateError, StreamsError
from headwater_streams.base.ledger_entry import LedgerEntry
from headwater_streams.ledger.log import commits, first_version
from headwater_streams.plan.job import bind
from headwater_streams.runtime import upkeep
from headwater_streams.runtime.compatibility import since_last_run
from headwater_streams.runtime.generations import Action
from headwater_streams.runtime.ownership import NoLease
from headwater_streams.runtime.planning import plan_jobs
from headwater_streams.runtime.renewal import begin_generations
from headwater_streams.runtime.runner import JobRunner
from headwater_streams.testing import JobDriver, SimulatedCrash

AT = "2013-01-01T12:00:00+00:00"
requests = hw.topic("east", "west", schema="path STRING, agent STRING, at TIMESTAMP", event_time="at")
bots = hw.table("silver.bots", event_time="at", watermark="1 hour")
PEOPLE, BOTS = hw.delta("silver.people"), hw.delta("silver.bots")


def _split(requests: DataFrame) -> dict[str, DataFrame]:
    is_bot = F.col("agent").contains("bot")
    return {"people": requests.filter(~is_bot), "bots": requests.filter(is_bot)}


@hw.job(targets={"people": PEOPLE, "bots": BOTS}, dedup=hw.by_offset())
def split(requests: DataFrame) -> Mapping[str, DataFrame]:
    return _split(requests)


@hw.job(targets={"bots": BOTS, "people": PEOPLE}, name="split", dedup=hw.by_offset())
def other_order(requests: DataFrame) -> Mapping[str, DataFrame]:
    return _split(requests)


@hw.job(target=hw.delta("gold.bots", keys=["agent", "window_start"], mode="update"))
def count_bots(bots: DataFrame) -> DataFrame:
    return hw.tumbling(bots, "at", "1 day", by=["agent"]).agg(F.count("*").alias("requests"))


def _request(n: int) -> dict[str, object]:
    agent = "a bot" if n % 3 == 1 else "firefox"
    return {"path": f"/{n}", "agent": agent, "at": f"2013-01-01T10:{n % 60:02d}:00Z"}


def _send(driver: JobDriver, first: int) -> None:
    """Nine good requests and a bad one to each topic, three of them bots'."""
    for topic in ("east", "west"):
        good = [_request(n) for n in range(first, first + 9)]
        driver.send(topic, *good, b"bad", timestamp=AT, offset=first // 9 * 10)


def _tables(driver: JobDriver) -> dict[str, list[tuple[Any, ...]]]:
    places = ("_topic", "_partition", "_offset")
    names = ("silver.people", "silver.bots", "silver.people__quarantine")
    return {name: driver.rows(name, *places) for name in names}


def _begin(driver: JobDriver, action: Action, *jobs: Any) -> list[LedgerEntry]:
    return begin_generations(driver.context, [bind(job) for job in jobs], action, lambda _: NoLease())


def one_batch(driver: JobDriver) -> None:
    _send(driver, 0)
    driver.run()
    assert {name: len(rows) for name, rows in _tables(driver).items()} == {
        "silver.people": 12, "silver.bots": 6, "silver.people__quarantine": 2,
    }  # fmt: skip


@pytest.fixture
def ran(ready: Callable[..., JobDriver]) -> JobDriver:
    """A driver behind a batch of both jobs."""
    return ready(one_batch, split, count_bots)


def test_fan_out_rebuilt_fills_every_table_anew_and_takes_readers_along(ran: JobDriver) -> None:
    with pytest.raises(StreamsError, match=r"job 'count_bots' reads silver\.bots into gold\.bots"):
        _begin(ran, "rebuild", split)
    before = _tables(ran)
    begun = _begin(ran, "rebuild", split, count_bots)
    assert [(entry.job, entry.generation) for entry in begun] == [("split", 2), ("count_bots", 2)]
    assert not any(_tables(ran).values())
    _send(ran, 9)
    ran.run()
    after = _tables(ran)
    assert {name: len(rows) for name, rows in after.items()} == {
        n: 2 * len(rows) for n, rows in before.items()
    }
    assert all(set(before[name]) < set(after[name]) for name in before)
    assert ran.rows("gold.bots", "agent", "requests") == [("a bot", 12)]
    assert ran.audit() == []


@pytest.mark.story
def test_fan_out_rebuild_that_was_interrupted_is_named_and_done_again(ran: JobDriver) -> None:
    before = _tables(ran)
    ran.crash_at("before rebuild", "split")
    with pytest.raises(SimulatedCrash):
        _begin(ran, "rebuild", split, count_bots)
    assert ran.rows("silver.bots", "_offset") == []
    with pytest.raises(
        IncompatibleStateError, match=r"silver\.bots had been emptied and silver\.people had not"
    ):
        ran.run()
    _begin(ran, "rebuild", split, count_bots)
    ran.run()
    assert _tables(ran) == before
    assert ran.rows("gold.bots", "agent", "requests") == [("a bot", 6)]
    assert ran.audit() == []


@pytest.mark.parametrize("step", ["before table", "before commit", "after commit"])
def test_fan_out_renewed_after_a_crash_between_its_tables_has_each_record_once(
    ran: JobDriver, step: str
) -> None:
    before = _tables(ran)
    _send(ran, 9)
    ran.crash_at(step, "split")
    with pytest.raises(SimulatedCrash):
        ran.run()
    (begun,) = _begin(ran, "renew", split)
    assert (begun.generation, begun.extra["lost"]) == (2, {})
    ran.run()
    after = _tables(ran)
    assert {name: len(rows) for name, rows in after.items()} == {
        n: 2 * len(rows) for n, rows in before.items()
    }
    assert all(len(set(rows)) == len(rows) for rows in after.values())
    assert ran.audit() == []


def test_fan_out_table_that_is_gone_or_first_in_another_order_is_refused(ran: JobDriver) -> None:
    (plan,) = plan_jobs(ran.context, [bind(other_order)])
    told = [(each.what, each.remedy, each.why) for each in since_last_run(ran.context, plan)]
    assert ("target", "rebuild", "the first one has the job's state") in told
    path = ran.home.table("silver.bots")
    path.rename(path.with_name("elsewhere"))
    with pytest.raises(
        IncompatibleStateError, match=r"the table silver\.bots: the job's own before, gone now"
    ):
        ran.run()
    assert not path.exists()


def test_fan_out_upkeep_looks_after_every_table_and_a_rebuild_still_finds_its_rows(
    drive: Callable[..., JobDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "_REMOVE_EVERY", 1)
    driver, rounds = drive(split), 4
    often = upkeep.Upkeep(every=2, files_kept_h=0, log_kept_days=0)
    for round_ in range(rounds):
        _send(driver, 9 * round_)
        JobRunner(driver.context, [bind(split)], upkeep=often).run_once()
    for target in (PEOPLE, BOTS):
        path: Path = driver.home.table(target.name)
        assert any(commit.operation == "OPTIMIZE" for commit in commits(path, since=first_version(path)))
        parquet = list(path.glob("*.parquet"))
        assert len(parquet) < rounds, "vacuum left what was compacted"
    whole = _tables(driver)
    assert {name: len(rows) for name, rows in whole.items()} == {
        "silver.people": 12 * rounds, "silver.bots": 6 * rounds, "silver.people__quarantine": 2 * rounds,
    }  # fmt: skip
    assert driver.audit() == []
    _begin(driver, "rebuild", split)
    assert not any(_tables(driver).values())
    driver.run()
    assert _tables(driver) == whole
    assert driver.audit() == []
