"""Repairs of a row job that writes several tables: each has its rows of the range anew, or none has.

offset   0   1       2    3    4        5   6     7     8   9    [1, 8) is repaired
before   p   p       b    bad  filtered =1  p     b     p   b    p of people, b of bots
after    p   b       b    bad  p        =1  bad   b     p   b
         |----- batch 0 -----|------- batch 1 ----|-- batch 2 --|
"""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater.cli._verdict_page import page
from headwater_streams import backfill
from headwater_streams.backfill import BackfillError
from headwater_streams.base.errors import IncompatibleStateError, StreamsError
from headwater_streams.ledger.audit import audit_table
from headwater_streams.plan.job import Job, bind
from headwater_streams.runtime.ownership import NoLease
from headwater_streams.runtime.renewal import begin_generations
from headwater_streams.testing import JobDriver, SimulatedCrash

AT = "2013-01-01T12:00:00+00:00"
requests = hw.topic("requests", schema="path STRING, agent STRING, at TIMESTAMP", event_time="at")
TARGETS = {"people": hw.delta("silver.people"), "bots": hw.delta("silver.bots")}
PEOPLE, BOTS, REJECTED = TABLES = ("silver.people", "silver.bots", "silver.people__quarantine")
RANGE = {"requests": {0: (1, 8)}}
BEFORE = {PEOPLE: [0, 1, 6, 8], BOTS: [2, 7, 9], REJECTED: [3]}
AFTER = {PEOPLE: [0, 4, 8], BOTS: [1, 2, 7, 9], REJECTED: [3, 6]}


@hw.job(targets=TARGETS, dedup=hw.by_offset(origin=True))
def split(requests: DataFrame) -> Mapping[str, DataFrame]:
    is_bot, kept = F.col("agent").contains("bot"), F.coalesce(F.col("path") != "/health", F.lit(True))
    return {"people": requests.filter(~is_bot & kept), "bots": requests.filter(is_bot)}


def mended() -> Job:
    @hw.job(targets=TARGETS, name="split", dedup=hw.by_offset(origin=True))
    @hw.check("has_path", "path IS NOT NULL")
    @hw.check("is_known", "agent IS NOT NULL", on="output", action="warn")
    def split(requests: DataFrame) -> Mapping[str, DataFrame]:
        is_bot = F.col("agent").contains("bot") | (F.col("path") == "/robots.txt")
        return {"people": requests.filter(~is_bot), "bots": requests.filter(is_bot)}

    return bind(split)


def _send(driver: JobDriver, *given: tuple[str | None, str] | None, at: int, first: int) -> None:
    """Requests, None for a bad record, from an offset on, with the origin's offsets from another one on."""
    moment = "2013-01-01T10:00:00Z"
    values = [b"bad" if each is None else {"path": each[0], "agent": each[1], "at": moment} for each in given]
    driver.send("requests", *values, timestamp=AT, offset=at, origin=("east", "r", 0, first))


def _offsets(driver: JobDriver) -> dict[str, list[int]]:
    return {name: [row[0] for row in sorted(driver.rows(name, "_offset"))] for name in TABLES}


def three_batches(driver: JobDriver) -> None:
    _send(driver, ("/", "firefox"), ("/robots.txt", "wget"), ("/", "a bot"), None, at=0, first=0)
    driver.run()
    _send(driver, ("/health", "curl"), at=4, first=4)
    _send(driver, ("/robots.txt", "wget"), at=5, first=1)
    _send(driver, (None, "firefox"), at=6, first=5)
    driver.run()
    _send(driver, ("/", "b bot"), ("/", "opera"), ("/", "c bot"), at=7, first=6)
    driver.run()
    assert _offsets(driver) == BEFORE


@pytest.fixture
def ran(ready: Callable[..., JobDriver]) -> JobDriver:
    """A driver behind these three batches."""
    return ready(three_batches, split)


def _ready(driver: JobDriver, job: Job, ranges: Mapping[str, Mapping[int, tuple[int, int]]]) -> str:
    planned = backfill.plan(driver.context, job, offsets=ranges)
    backfill.run(driver.context, planned.id, job)
    verdict = backfill.verify(driver.context, planned.id, job)
    assert verdict.passed, verdict.findings
    return planned.id


def _killed(driver: JobDriver, step: str, verb: Callable[..., Any], *arguments: Any) -> None:
    driver.crash_at(step)
    with pytest.raises(SimulatedCrash):
        verb(driver.context, *arguments)


def _require_refused(driver: JobDriver, remedy: str) -> None:
    """The job, and its next generation, name the backfill that is half done."""
    with pytest.raises(IncompatibleStateError, match=f"has changed silver.*; {remedy}, then start"):
        driver.run()
    for action in ("renew", "rebuild"):
        with pytest.raises(StreamsError, match=rf"has changed silver\..* yet; {remedy}, first"):
            begin_generations(driver.context, [bind(split)], action, lambda _: NoLease())


def test_repair_of_several_tables_is_whole_whatever_kills_it(
    ran: JobDriver, drive: Callable[..., JobDriver]
) -> None:
    context, job = ran.context, mended()
    planned = backfill.plan(context, job, offsets=RANGE, rows_per_chunk=1)
    assert (len(planned.chunks), planned.tables) == (3, (REJECTED, BOTS, PEOPLE))
    assert list(planned.parts) == [PEOPLE, BOTS]
    previewed = backfill.preview_tables(context, planned.id, job)
    changes = {name: (c.diff.added, c.diff.removed, c.diff.unchanged) for name, c in previewed.items()}
    assert changes == {PEOPLE: (1, 2, 0), BOTS: (1, 0, 2)}

    for step in ("before chunk of another table", "after chunk of another table", "after chunk"):
        _killed(ran, step, backfill.run, planned.id, job)
    assert backfill.run(context, planned.id, job).chunks_done == 3
    verdict = backfill.verify(context, planned.id, job, recompute="all")
    assert verdict.passed, verdict.findings
    every = {"read": 7, "duplicate": 1, "quarantined": 2, "quarantined_before": 1}
    assert verdict.accounting == {**every, "written": 1, "filtered": 3, "before": 2}
    assert verdict.beside[BOTS].accounting == {**every, "written": 3, "filtered": 1, "before": 2}
    assert [c.diff.digest for c in previewed.values()] == [
        verdict.diff.digest,
        verdict.beside[BOTS].diff.digest,
    ]
    recomputed = [f.detail for f in verdict.findings if f.name == "recomputed"]
    assert [told.startswith(f"{BOTS}: 3 rows from") for told in recomputed] == [False, True]
    folder = ran.home.root / "backfills" / planned.id
    assert backfill.Verdict.from_json(verdict.to_json()) == verdict
    assert "<h3>silver.bots</h3>" in page(planned.to_json(), verdict.to_json())

    _send(ran, ("/", "edge"), ("/", "d bot"), at=10, first=9)  # behind the range
    ran.run()
    before = {
        name: [*found, *behind]
        for (name, found), behind in zip(BEFORE.items(), ([10], [11], []), strict=True)
    }
    after = {
        name: [*found, *behind] for (name, found), behind in zip(AFTER.items(), ([10], [11], []), strict=True)
    }
    with pytest.raises(
        BackfillError, match=f"has the digest {verdict.digest}, and {verdict.diff.digest} was"
    ):
        backfill.swap(context, planned.id, accept_diff=verdict.diff.digest)
    steps = {
        "before swap of another table": (REJECTED,),
        "after swap of another table": (REJECTED, BOTS),
        "before swap": (REJECTED, BOTS),
    }
    other = backfill.plan(context, job, offsets={"requests": {0: (8, 9)}})
    backfill.run(context, other.id, job)
    assert backfill.verify(context, other.id, job).passed
    for step, swapped in steps.items():
        _killed(ran, step, backfill.swap, planned.id)
        assert _offsets(ran) == {name: (after if name in swapped else before)[name] for name in TABLES}
        assert backfill.status(ran.home, planned.id)["state"] == "swapping"
        assert ran.audit() == []
        _require_refused(ran, "swap it in, or roll it back")
        with pytest.raises(
            BackfillError, match=f"{planned.id}' has changed silver.*; swap that one in, or roll"
        ):
            backfill.swap(context, other.id)
        assert backfill.verify(context, planned.id, job) == verdict
    swapped_in = backfill.swap(context, planned.id, accept_diff=verdict.digest)
    assert _offsets(ran) == after
    assert swapped_in["beside"][BOTS]["proof"]["rows_outside"] == 2
    assert backfill.swap(context, planned.id) == swapped_in
    found = backfill.status(ran.home, planned.id)
    assert (found["state"], found["further"]) == ("swapped", [BOTS])
    assert ran.audit() == []
    audit = audit_table(ran.home, BOTS)
    assert audit is not None
    assert audit.notes == [f"{BOTS}: since the swap of backfill {planned.id} it accounts for +1 rows"]
    for name in (PEOPLE, BOTS):
        *_, last = ran.ledger(name)
        assert (last.table, last.kind, last.extra["action"]) == (name, "backfill", "swap")
        log = DeltaTable(str(ran.home.table(name)))
        (made,) = [c for c in log.history(1) if "userMetadata" in c]
        assert made["version"] == log.version()
    assert not (folder / "rollback.json").exists()

    new = drive(mended())
    _send(new, ("/robots.txt", "wget"), at=12, first=11)
    new.run()
    assert new.audit() == []
    _killed(ran, "before rollback of another table", backfill.rollback, planned.id)
    assert backfill.status(ran.home, planned.id)["state"] == "rolling back"
    _killed(ran, "before rollback", backfill.rollback, planned.id)
    _require_refused(ran, "roll it back again")
    with pytest.raises(BackfillError, match="is half rolled back; roll it back again"):
        backfill.swap(context, planned.id)
    with pytest.raises(BackfillError, match=r"has changed silver.*; roll that one back again, first"):
        backfill.swap(context, other.id)
    with pytest.raises(BackfillError, match="was swapped in; roll it back instead"):
        backfill.abort(ran.home, planned.id)
    backfill.rollback(context, planned.id)
    assert _offsets(ran) == {**before, BOTS: [*before[BOTS], 12]}
    assert backfill.status(ran.home, planned.id)["state"] == "rolled back"
    assert ran.audit() == []
    for name in (PEOPLE, BOTS):
        terms = [entry.totals for entry in ran.ledger(name) if entry.kind == "backfill"]
        assert sum(each["written"] - each["before"] for each in terms) == 0
    with pytest.raises(BackfillError, match="was rolled back; plan again"):
        backfill.swap(context, planned.id)
    new.run()


def test_half_swapped_repair_is_undone_by_its_rollback(ran: JobDriver) -> None:
    done = _ready(ran, mended(), RANGE)
    _killed(ran, "after swap of another table", backfill.swap, done)
    assert backfill.rollback(ran.context, done)["target"] == BOTS, "the target was not reached"
    assert _offsets(ran) == BEFORE
    assert backfill.status(ran.home, done)["state"] == "rolled back"
    assert ran.audit() == []
    ran.run()


def test_repair_leaves_a_table_alone_that_has_no_row_in_the_range(ran: JobDriver) -> None:
    done = _ready(ran, mended(), {"requests": {0: (3, 7)}})
    version = DeltaTable(str(ran.home.table(BOTS))).version()
    assert backfill.swap(ran.context, done)["beside"] == {}
    assert DeltaTable(str(ran.home.table(BOTS))).version() == version
    assert _offsets(ran) == {PEOPLE: [0, 1, 4, 8], BOTS: [2, 7, 9], REJECTED: [3, 6]}
    assert ran.audit() == []
    # A generation that begins with empty tables has nothing of it, and is not taken for one that is half repaired.
    begin_generations(ran.context, [bind(split)], "rebuild", lambda _: NoLease())
    ran.run()
    assert _offsets(ran) == BEFORE
    again = _ready(ran, mended(), RANGE)
    backfill.swap(ran.context, again)
    assert _offsets(ran) == AFTER
    assert ran.audit() == []


def test_repair_is_refused_before_the_first_commit_where_others_changed_one_of_its_tables(
    ran: JobDriver,
) -> None:
    done = _ready(ran, mended(), RANGE)
    DeltaTable(str(ran.home.table(BOTS))).delete("_offset = 2")
    found = _offsets(ran)
    with pytest.raises(BackfillError, match=rf"rows of {BOTS} in the affected range changed"):
        backfill.swap(ran.context, done)
    verdict = backfill.verify(ran.context, done, mended())
    assert [f.detail.split(":")[0] for f in verdict.findings if not f.ok] == [BOTS]
    assert _offsets(ran) == found
    assert backfill.status(ran.home, done)["state"] == "failed"
    assert backfill.abort(ran.home, done)["state"] == "aborted"
    assert not (ran.home.root / "backfills" / done / "further").exists()


both = hw.topic("east", "west", schema="flight_id STRING, dest STRING")
airports = hw.lookup("dim.airports")


@hw.job(
    targets={"named": hw.delta("silver.named"), "unknown": hw.delta("silver.unknown")}, dedup=hw.by_offset()
)
def name_airports(both: DataFrame, airports: DataFrame) -> Mapping[str, DataFrame]:
    rows = hw.enrich(both, airports, on={"dest": "code"})
    return {"named": rows.filter("name IS NOT NULL"), "unknown": rows.filter("name IS NULL").select("dest")}


def two_versions_of_airports(driver: JobDriver) -> None:
    columns = "code STRING, name STRING"
    driver.put("dim.airports", columns, ("JFK", "old"))
    driver.send("east", {"flight_id": "f1", "dest": "JFK"}, {"flight_id": "f2", "dest": "X"}, timestamp=AT)
    driver.run()
    driver.put("dim.airports", columns, ("JFK", "new"), ("X", "ex"))
    driver.send("west", {"flight_id": "f3", "dest": "X"}, timestamp=AT)
    driver.run()
    assert driver.rows("silver.unknown", "dest", "_topic", "_offset") == [("X", "east", 1)]


def test_repair_with_a_newer_look_up_moves_rows_from_table_to_table(ready: Callable[..., JobDriver]) -> None:
    driver, job = ready(two_versions_of_airports, name_airports), bind(name_airports)
    as_read = backfill.plan(driver.context, job)
    assert len(as_read.chunks) == 2
    found = backfill.preview_tables(driver.context, as_read.id, job)
    assert [(c.diff.unchanged, c.diff.samples) for c in found.values()] == [(2, {}), (1, {})]
    newest = backfill.plan(driver.context, job, lookups="newest")
    backfill.run(driver.context, newest.id, job)
    verdict = backfill.verify(driver.context, newest.id, job, recompute="all")
    assert verdict.passed, verdict.findings
    assert (verdict.diff.added, verdict.diff.changed, verdict.diff.unchanged) == (1, 1, 1)
    assert verdict.beside["silver.unknown"].diff.removed == 1
    assert [finding.name for finding in verdict.findings].count("recomputed") == 2
    backfill.swap(driver.context, newest.id, accept_diff=verdict.digest)
    assert driver.rows("silver.named", "flight_id", "name") == [("f1", "new"), ("f2", "ex"), ("f3", "ex")]
    assert driver.rows("silver.unknown") == []
    assert driver.audit() == []


def test_rows_of_another_table_that_nobody_would_make_again_are_found(ran: JobDriver) -> None:
    done = _ready(ran, mended(), RANGE)
    shadow = ran.home.root / "backfills" / done / "further" / BOTS / "shadow"
    DeltaTable(str(shadow)).update(updates={"agent": "'forged'"}, predicate="_offset = 2")
    verdict = backfill.verify(ran.context, done, mended())
    (wrong,) = [finding for finding in verdict.findings if not finding.ok]
    assert (wrong.name, wrong.detail.split(":")[0]) == ("recomputed", BOTS)
    with pytest.raises(BackfillError, match="did not pass"):
        backfill.swap(ran.context, done)
