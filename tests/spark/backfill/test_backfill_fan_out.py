"""Rewinds and rebuilds of a job with several tables: all go back to one batch, and forward again to the same rows."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams import backfill
from headwater_streams.backfill import BackfillError
from headwater_streams.base.errors import IncompatibleStateError, StreamsError
from headwater_streams.delta.compaction import compact
from headwater_streams.plan.job import bind
from headwater_streams.runtime.ownership import NoLease
from headwater_streams.runtime.renewal import begin_generations
from headwater_streams.testing import JobDriver, SimulatedCrash

AT = "2013-01-01T12:00:00+00:00"
requests = hw.topic("requests", schema="path STRING, agent STRING, at TIMESTAMP", event_time="at")
bots = hw.table("silver.bots", event_time="at", watermark="1 hour")
TARGETS = {"people": hw.delta("silver.people"), "bots": hw.delta("silver.bots")}
TABLES = ("silver.people", "silver.bots", "silver.people__quarantine")
Rows = dict[str, list[tuple[Any, ...]]]


@hw.job(targets=TARGETS, dedup=hw.by_offset())
def split(requests: DataFrame) -> Mapping[str, DataFrame]:
    is_bot = F.col("agent").contains("bot")
    return {"people": requests.filter(~is_bot), "bots": requests.filter(is_bot)}


@hw.job(targets=TARGETS, name="split", dedup=hw.by_offset())
def split_anew(requests: DataFrame) -> Mapping[str, DataFrame]:
    is_bot = F.col("agent").contains("bot") | (F.col("path") == "/robots.txt")
    return {"people": requests.filter(~is_bot), "bots": requests.filter(is_bot)}


@hw.job(target=hw.delta("gold.bots"))
def copy_bots(bots: DataFrame) -> DataFrame:
    return bots.select("path")


def _send(driver: JobDriver, batch: int) -> None:
    """Two requests of people, the second for robots.txt, one of a bot, and a bad one, at offsets of the batch's own."""
    given = [("/", "firefox"), ("/robots.txt", "wget"), ("/", "a bot")]
    values = [{"path": path, "agent": agent, "at": "2013-01-01T10:00:00Z"} for path, agent in given]
    driver.send("requests", *values, b"bad", timestamp=AT, offset=4 * batch)


def _tables(driver: JobDriver) -> Rows:
    return {name: driver.rows(name, "_topic", "_partition", "_offset") for name in TABLES}


def _rows(*batches: int) -> Rows:
    """What the tables have after some batches."""
    places = {"silver.people": (0, 1), "silver.bots": (2,), "silver.people__quarantine": (3,)}
    return {
        name: sorted((("requests", 0, 4 * batch + n) for batch in batches for n in numbers), key=repr)
        for name, numbers in places.items()
    }


def four_batches(driver: JobDriver) -> None:
    """Runs four batches; the small files of the tables become one."""
    for batch in range(4):
        _send(driver, batch)
        driver.run()
        if batch == 1:
            assert compact(driver.home.table("silver.bots")) == 2  # from here on its versions are others
    assert [compact(driver.home.table(name)) for name in TABLES[:2]] == [4, 3]
    assert _tables(driver) == _rows(0, 1, 2, 3)


@pytest.fixture
def ran(ready: Callable[..., JobDriver]) -> JobDriver:
    """A driver behind these four batches."""
    return ready(four_batches, split)


def test_fan_out_rewind_puts_all_tables_back_to_one_batch_whatever_kills_it(ran: JobDriver) -> None:
    _send(ran, 4)
    ran.crash_at("before commit")
    with pytest.raises(SimulatedCrash):
        ran.run()
    whole, back, every = _rows(0, 1, 2, 3), _rows(0, 1), _rows(0, 1, 2, 3, 4)
    found = {name: (whole if name == TABLES[0] else every)[name] for name in TABLES}
    assert _tables(ran) == found, "the job died between its tables"

    context, job = ran.context, bind(split)
    with pytest.raises(BackfillError, match=r"silver\.cats is no table of the job 'split'; it writes"):
        backfill.plan_rewind(context, job, version=2, table="silver.cats")
    planned = backfill.plan_rewind(context, job, version=3, table="silver.bots")
    assert (planned.batch, planned.ranges) == (1, {"requests": {0: (8, 16)}})
    assert planned.back_to == {"silver.bots": 2, "silver.people": 2}
    previewed = backfill.preview_tables(context, planned.id, job, limit=2)
    assert list(previewed) == ["silver.people", "silver.bots"]
    assert [len(change.diff.samples["removed"]) for change in previewed.values()] == [2, 2]
    verdict = backfill.verify(context, planned.id, job)
    assert (verdict.passed, verdict.diff.removed, verdict.diff.unchanged) == (True, 4, 4)
    told = (verdict.diff.digest, verdict.beside["silver.bots"].diff.digest)
    assert tuple(change.diff.digest for change in previewed.values()) == told
    of_bots = verdict.beside["silver.bots"].diff
    assert (of_bots.removed, of_bots.unchanged) == (3, 2)
    with pytest.raises(
        BackfillError, match=f"has the digest {verdict.digest}, and {verdict.diff.digest} was"
    ):
        backfill.swap(context, planned.id, accept_diff=verdict.diff.digest)

    for step, put_back in (
        ("after rewind of another table", TABLES[2:]),
        ("before rewind of the table", TABLES[1:]),
    ):
        ran.crash_at(step)
        with pytest.raises(SimulatedCrash):
            backfill.swap(context, planned.id, accept_diff=verdict.digest)
        assert backfill.status(ran.home, planned.id)["state"] == "swapping"
        assert _tables(ran) == {name: (back if name in put_back else found)[name] for name in TABLES}
    with pytest.raises(IncompatibleStateError, match=f"the backfill '{planned.id}' has changed silver"):
        ran.run()
    for action in ("renew", "rebuild"):
        with pytest.raises(StreamsError, match=rf"the backfill '{planned.id}' has changed silver"):
            begin_generations(context, [job], action, lambda _: NoLease())
    swapped = backfill.swap(context, planned.id, accept_diff=verdict.digest)
    assert (swapped["generation"], backfill.status(ran.home, planned.id)["further"]) == (2, ["silver.bots"])
    assert _tables(ran) == back
    assert ran.audit() == []

    ran.run()
    assert _tables(ran) == every
    assert ran.audit() == []
    ran.crash_at("before restore of the table")
    with pytest.raises(SimulatedCrash):
        backfill.rollback(context, planned.id)
    assert backfill.status(ran.home, planned.id)["state"] == "rolling back"
    with pytest.raises(IncompatibleStateError, match=r"has changed silver.*; roll it back again"):
        ran.run()
    with pytest.raises(StreamsError, match=r"has changed silver.*; roll it back again, first"):
        begin_generations(context, [job], "renew", lambda _: NoLease())
    with pytest.raises(BackfillError, match="is half rolled back; roll it back again"):
        backfill.swap(context, planned.id)
    assert backfill.rollback(context, planned.id)["generation"] == 3
    assert _tables(ran) == found
    ran.run()
    assert _tables(ran) == every
    assert ran.audit() == []


def test_fan_out_rewind_is_refused_where_others_changed_a_table(
    ran: JobDriver, drive: Callable[..., JobDriver]
) -> None:
    planned = backfill.plan_rewind(ran.context, bind(split), version=3)
    assert (planned.batch, planned.back_to) == (2, {"silver.bots": 4, "silver.people": 3})
    backfill.verify(ran.context, planned.id, bind(split))
    DeltaTable(str(ran.home.table("silver.bots"))).delete("_offset = 2")
    with pytest.raises(BackfillError, match=r"silver\.bots was changed by DELETE \(version \d+\) since"):
        backfill.swap(ran.context, planned.id)
    drive(copy_bots).run()
    assert backfill.plan_rewind(ran.context, bind(split), version=3).feeds == ("copy_bots",)


def test_fan_out_rebuilt_aside_has_every_table_in_its_verdict_and_its_swap(
    ran: JobDriver, drive: Callable[..., JobDriver]
) -> None:
    context, job = ran.context, bind(split_anew)
    planned = backfill.plan_rebuild(context, job)
    backfill.run(context, planned.id, job)
    verdict = backfill.verify(context, planned.id, job)
    assert verdict.passed, verdict.findings
    assert (verdict.diff.removed, verdict.beside["silver.bots"].diff.added) == (4, 4)
    ran.crash_at("before rebuild of the table")
    with pytest.raises(SimulatedCrash):
        backfill.swap(context, planned.id)
    assert backfill.swap(context, planned.id, accept_diff=verdict.digest)["proof"]["rows"] == 12
    after = drive(split_anew)
    _send(after, 4)
    after.run()
    assert [len(after.rows(name, "_offset")) for name in TABLES] == [5, 10, 5]
    assert after.audit() == []
