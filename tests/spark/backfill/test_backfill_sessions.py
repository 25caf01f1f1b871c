"""Repairs of sessions: late rows join what was written apart, and of each session all parts are replaced or none.

gap 30 minutes        10:00  10:20  10:45  10:50  11:05  11:35   12:30   13:00  13:10  14:00
UA, in time             a------b-------------|      c------|       |       d
DL, in time                            e----------------|          |
the watermark is 12:30 when these come:   late: f                  |              g
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from random import Random

import pytest
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

import headwater as hw
from amount import drawn_seed
from headwater_streams import backfill
from headwater_streams.backfill import BackfillError, BackfillPlan, Verdict
from headwater_streams.ledger.log import next_commit
from headwater_streams.plan.job import Job, bind
from headwater_streams.testing import JobDriver, SimulatedCrash

SEED = drawn_seed()
departures = hw.topic(
    "departures",
    schema="carrier STRING, departed_at TIMESTAMP, delay INT",
    event_time="departed_at",
    watermark="30 minutes",
)
DAY, GAP = datetime(2013, 1, 1), timedelta(minutes=30)
Event = tuple[str, str, int]
Session = tuple[str, datetime, datetime]

FIRST: list[Event] = [
    ("10:00", "UA", 400), ("10:20", "UA", 1), ("11:05", "UA", 2), ("10:50", "DL", 3), ("13:00", "UA", 4),
]  # fmt: skip
SECOND: list[Event] = [("10:45", "UA", 500), ("10:46", "DL", 600), ("13:10", "UA", 5), ("14:30", "DL", 1)]
END: list[Event] = [("23:50", "ZZ", 1)]


def job_of(delay: Callable[[], Column]) -> Job:
    @hw.job(name="delays", target=hw.delta("gold.delays"))
    @hw.check("known", "carrier IS NOT NULL")
    def delays(departures: DataFrame) -> DataFrame:
        known = departures.filter("delay < 600")
        made = hw.session(known, "departed_at", "30 minutes", by=["carrier"])
        return made.agg(F.count("*").alias("departures"), F.max(delay()).alias("max_delay"))

    return bind(delays)


def cut() -> Job:
    """The job with a mistake: no delay is longer than 100 minutes."""
    return job_of(lambda: F.least("delay", F.lit(100)))


def mended() -> Job:
    return job_of(lambda: F.col("delay"))


def at(clock: str) -> datetime:
    return DAY + timedelta(hours=int(clock[:2]), minutes=int(clock[3:]))


def whole(events: Iterable[Event]) -> dict[Session, tuple[int, int]]:
    """The sessions of events, by hand."""
    found: dict[Session, tuple[int, int]] = {}
    of: dict[str, list[tuple[datetime, int]]] = {}
    for clock, carrier, delay in events:
        if delay < 600:
            of.setdefault(carrier, []).append((at(clock), delay))
    for carrier, rows in of.items():
        for session in _apart(sorted(rows)):
            name = (carrier, session[0][0], session[-1][0] + GAP)
            found[name] = (len(session), max(delay for _, delay in session))
    return found


def _apart(rows: list[tuple[datetime, int]]) -> Iterator[list[tuple[datetime, int]]]:
    begun = 0
    for n in range(1, len(rows) + 1):
        if n == len(rows) or rows[n][0] - rows[n - 1][0] > GAP:
            yield rows[begun:n]
            begun = n


def sessions(driver: JobDriver) -> dict[Session, tuple[int, int]]:
    rows = driver.table("gold.delays").collect()
    found = {
        (r["carrier"], r["window_start"], r["window_end"]): (r["departures"], r["max_delay"]) for r in rows
    }
    assert len(found) == len(rows), "no session stands there twice"
    return found


def send(driver: JobDriver, *events: Event) -> None:
    told = [{"carrier": c, "departed_at": f"2013-01-01T{t}:00Z", "delay": d} for t, c, d in events]
    driver.send("departures", *told, timestamp="2013-01-01T16:00:00Z")
    driver.run()


def between(start: str, end: str) -> tuple[str, str]:
    return f"2013-01-01T{start}:00Z", f"2013-01-01T{end}:00Z"


def repaired(driver: JobDriver, planned: BackfillPlan, job: Job) -> Verdict:
    backfill.run(driver.context, planned.id, job)
    verdict = backfill.verify(driver.context, planned.id, job, recompute="all")
    assert verdict.passed, verdict.findings
    assert "recomputed" in [finding.name for finding in verdict.findings], verdict.notes
    backfill.swap(driver.context, planned.id, accept_diff=verdict.diff.digest)
    assert driver.audit() == []
    return verdict


def one_batch(driver: JobDriver) -> None:
    send(driver, *FIRST)


def test_a_late_row_joins_sessions_that_were_written_apart(ready: Callable[..., JobDriver]) -> None:
    driver, job = ready(one_batch, cut()), mended()
    with pytest.raises(BackfillError, match="the sessions of the range are not all closed yet"):
        backfill.plan(driver.context, job)
    send(driver, *SECOND)
    before = sessions(driver)
    apart = {("UA", at("10:00"), at("10:50")): (2, 100), ("UA", at("11:05"), at("11:35")): (1, 2)}
    alone = {("DL", at("10:50"), at("11:20")): (1, 3)}
    assert before == apart | alone

    planned = backfill.plan(driver.context, job, event_time=between("11:10", "11:12"), rows_per_chunk=2)
    # DL's session holds these times, too, and UA's other part has to come along.
    assert [(s, e) for s, e in planned.windows] == [(micros("10:00"), micros("11:12"))]
    assert any("widened to whole sessions" in note for note in planned.notes)
    assert len(planned.chunks) > 1
    driver.crash_at("after chunk")
    with pytest.raises(SimulatedCrash):
        backfill.run(driver.context, planned.id, job)
    verdict = repaired(driver, planned, job)
    one = {("UA", at("10:00"), at("11:35")): (4, 500)}
    assert sessions(driver) == one | alone
    assert verdict.accounting["late_folded"] == 1
    assert verdict.accounting["read"] == 6, "each row once: the late one that is filtered, too"
    assert verdict.accounting["filtered"] == 1
    assert verdict.accounting["before"] == 4
    with pytest.raises(BackfillError, match=r"no late row of .* waits to be folded in"):
        backfill.plan(driver.context, job, rows="late")

    backfill.rollback(driver.context, planned.id)
    assert sessions(driver) == before
    assert driver.audit() == []
    late = backfill.plan(driver.context, job, rows="late")
    repaired(driver, late, job)
    assert sessions(driver) == one | alone

    # The live job goes on with its state, and what is written by then can be made anew as a whole.
    send(driver, *END)
    send(driver, ("23:51", "ZZ", 1))
    assert sessions(driver) == one | alone | {
        ("UA", at("13:00"), at("13:40")): (2, 5),
        ("DL", at("14:30"), at("15:00")): (1, 1),
    }
    assert driver.audit() == []
    diff = repaired(driver, backfill.plan(driver.context, job), job).diff
    assert (diff.added, diff.removed, diff.changed) == (0, 0, 0)


DL, UA = ("DL", at("10:01"), at("10:31")), ("UA", at("10:00"), at("10:30"))


def written_in_part(driver: JobDriver) -> None:
    send(driver, ("10:00", "UA", 400), ("10:01", "DL", 300), ("11:20", "ZZ", 1))
    send(driver, ("11:20", "ZZ", 1))
    # The watermark is 10:50. They are in time, and begin sessions beside what is written.
    send(driver, ("10:25", "UA", 7), ("11:00", "UA", 8), ("10:55", "UA", 9))
    assert sessions(driver) == {UA: (1, 100), DL: (1, 100)}


def test_a_session_of_which_a_part_is_written_is_left_until_it_is_closed(
    ready: Callable[..., JobDriver],
) -> None:
    driver, job = ready(written_in_part, cut()), mended()
    planned = backfill.plan(driver.context, job, event_time=between("10:00", "12:00"))
    assert planned.windows == ((micros("10:00") + 1, micros("12:00")),)
    assert any("are left as they are" in note for note in planned.notes)
    backfill.run(driver.context, planned.id, job)
    verdict = backfill.verify(driver.context, planned.id, job, recompute="all")
    assert verdict.passed, verdict.findings

    # Meanwhile the live job writes sessions that began in these times and were not closed.
    send(driver, *END)
    send(driver, *END)
    ends = {("ZZ", at("11:20"), at("11:50")): (2, 1)}
    parts = {UA: (1, 100), ("UA", at("10:25"), at("11:30")): (3, 9)}
    assert sessions(driver) == parts | {DL: (1, 100)} | ends
    backfill.swap(driver.context, planned.id, accept_diff=verdict.diff.digest)
    ends |= {DL: (1, 300)}
    assert sessions(driver) == parts | ends
    assert driver.audit() == []
    backfill.rollback(driver.context, planned.id)
    assert sessions(driver) == parts | ends | {DL: (1, 100)}
    assert driver.audit() == []
    again = backfill.plan(
        driver.context, job, rows="late"
    )  # none was: they came in time, behind what was written
    repaired(driver, again, job)
    with pytest.raises(BackfillError, match="waits to be folded in"):
        backfill.plan(driver.context, job, rows="late")
    assert sessions(driver) == {("UA", at("10:00"), at("11:30")): (4, 400)} | ends


def counted(name: str = "counts", **made: Callable[[], Column]) -> Job:
    """Counts departures by carrier; columns of the input, or of the result, may be made otherwise."""

    @hw.job(name=name, target=hw.delta(f"gold.{name}"))
    def job(departures: DataFrame) -> DataFrame:
        carrier = made.get("carrier", lambda: F.col("carrier"))
        found = hw.session(
            departures.withColumn("carrier", carrier()), "departed_at", "30 minutes", by=["carrier"]
        )
        result = found.agg(F.count("*").alias("n"))
        bounds = {bound: made[bound]() for bound in ("window_start", "window_end") if bound in made}
        return result.withColumns(bounds) if bounds else result

    return bind(job)


def counts(driver: JobDriver) -> list[tuple[str, str, int]]:
    rows = driver.table("gold.counts").collect()
    return sorted((r["carrier"], f"{r['window_start']:%H:%M}", r["n"]) for r in rows)


def keys_with_blanks(driver: JobDriver) -> None:
    send(driver, ("10:00", "UA", 1), ("10:20", "UA ", 2), ("10:25", "UA ", 3), ("11:30", "DL", 1))
    send(driver, *END)
    send(driver, *END)


@pytest.mark.parametrize("were_apart", [True, False])
def test_rows_that_the_code_of_now_gives_other_keys_are_in_one_session_each(
    ready: Callable[..., JobDriver], were_apart: bool
) -> None:
    trimmed = counted(carrier=lambda: F.trim("carrier"))
    driver = ready(keys_with_blanks, counted() if were_apart else trimmed)
    apart = [("UA", "10:00", 1), ("UA ", "10:20", 2)]
    now = (apart, [("UA", "10:00", 3)])
    before, after = now if were_apart else now[::-1]
    assert counts(driver) == [("DL", "11:30", 1), *before]
    job = trimmed if were_apart else counted()
    planned = backfill.plan(driver.context, job, event_time=between("10:00", "10:05"))
    assert max(end for _, end in planned.windows) <= micros("10:20") + 1, "DL is another"
    repaired(driver, planned, job)
    assert counts(driver) == [("DL", "11:30", 1), *after]


def one_closed_session(driver: JobDriver) -> None:
    send(driver, ("10:00", "UA", 1), ("10:20", "UA", 2))
    send(driver, *END)
    send(driver, *END)
    assert counts(driver) == [("UA", "05:00", 2)]


def test_sessions_that_were_given_other_bounds_cannot_be_told_and_are_refused(
    ready: Callable[..., JobDriver],
) -> None:
    names = ("window_start", "window_end")
    earlier = {name: lambda name=name: F.col(name) - F.expr("INTERVAL 5 HOURS") for name in names}
    driver = ready(one_closed_session, counted(**earlier))
    with pytest.raises(BackfillError, match=r"begin at times at which .* has no row.* --rebuild"):
        backfill.plan(driver.context, counted(), event_time=between("05:00", "12:00"))


def half_written(driver: JobDriver) -> None:
    send(driver, ("10:00", "BOT", 1), ("10:50", "BOT", 1), ("10:20", "UA", 5))
    send(driver, ("11:55", "BOT", 1))
    send(driver, ("11:56", "BOT", 1))
    send(driver, ("10:25", "BOT", 1), ("11:10", "BOT", 1), ("11:30", "BOT", 1), ("10:21", "UA", 9))


def test_sessions_beside_one_that_is_half_written_are_left_with_it(ready: Callable[..., JobDriver]) -> None:
    driver = ready(half_written, counted())
    with pytest.raises(
        BackfillError, match=r"have to be replaced with those of the range some are not closed"
    ):
        backfill.plan(driver.context, counted(), event_time=between("10:20", "10:22"))


@pytest.mark.story
def test_sessions_that_were_written_since_a_version_began_before_it(drive: Callable[..., JobDriver]) -> None:
    driver = drive(counted(carrier=lambda: F.lower("carrier")))
    send(driver, ("10:00", "UA", 1))
    version = next_commit(driver.home.table("gold.counts")) - 1
    send(driver, ("12:00", "DL", 1))
    assert counts(driver) == []
    send(driver, *END)
    send(driver, *END)
    repaired(driver, backfill.plan(driver.context, counted(), since_version=version), counted())
    assert counts(driver) == [("DL", "12:00", 1), ("UA", "10:00", 1)]


known = hw.table("silver.known", event_time="departed_at", watermark="30 minutes")


def kept(condition: str) -> Job:
    @hw.job(name="kept", target=hw.delta("silver.known"))
    def kept(departures: DataFrame) -> DataFrame:
        return departures.filter(condition)

    return bind(kept)


@hw.job(name="counts", target=hw.delta("gold.counts"))
def behind(known: DataFrame) -> DataFrame:
    return hw.session(known, "departed_at", "30 minutes", by=["carrier"]).agg(F.count("*").alias("n"))


def one_bad_session(driver: JobDriver) -> None:
    send(driver, ("10:00", "UA", 1), ("10:20", "UA", 2), ("14:00", "BAD", 9))
    send(driver, *END)
    send(driver, *END)


def test_session_whose_rows_are_gone_is_found_by_their_offsets(ready: Callable[..., JobDriver]) -> None:
    driver, few = ready(one_bad_session, kept("delay >= 0"), behind), kept("delay < 5")
    ranges = {"departures": {0: (2, 3)}}
    stood = [("BAD", "14:00", 1), ("UA", "10:00", 2)]
    for job, after in ((few, stood), (bind(behind), stood[1:])):
        planned = backfill.plan(driver.context, job, offsets=ranges)
        backfill.run(driver.context, planned.id, job)
        verdict = backfill.verify(driver.context, planned.id, job)
        assert verdict.passed, verdict.findings
        backfill.swap(driver.context, planned.id, accept_diff=verdict.diff.digest)
        assert counts(driver) == after
    assert driver.audit() == []


def test_repairs_of_random_ranges_give_the_sessions_of_all_rows(drive: Callable[..., JobDriver]) -> None:
    rng = Random(SEED)
    driver, job, events = drive(cut()), mended(), list[Event]()
    for hour in range(10, 17):
        few = [
            (_clock(hour * 60 + rng.randrange(-150, 45)), rng.choice("ABC"), rng.choice([1, 200, 700]))
            for _ in range(rng.randrange(4, 12))
        ]
        events += few
        send(driver, *few)
        if hour < 13:
            continue
        start = rng.randrange(9 * 60, 15 * 60)
        span = between(_clock(start), _clock(start + rng.randrange(5, 120)))
        try:
            planned = backfill.plan(driver.context, job, event_time=span, rows_per_chunk=rng.randrange(1, 9))
        except BackfillError as found:
            why = str(found)
        else:
            why = ""
        if why:
            known = ("are not all closed yet", "some are not closed yet", "no row")
            assert any(each in why for each in known), f"seed {SEED}"
            continue
        repaired(driver, planned, job)
        right, now = whole(events), sessions(driver)
        inside = {n: v for n, v in now.items() if any(s <= _us(n[1]) < e for s, e in planned.windows)}
        assert inside.items() <= right.items(), f"seed {SEED}"
    send(driver, *END)
    send(driver, *END)
    for _ in range(2):
        planned = backfill.plan(driver.context, job, rows_per_chunk=rng.randrange(1, 9))
        repaired(driver, planned, job)
        assert sessions(driver) == whole(events), f"seed {SEED}"
        more = [(_clock(rng.randrange(9 * 60, 15 * 60)), rng.choice("ABC"), 1) for _ in range(5)]
        events += more
        send(driver, *more)
    planned = backfill.plan(driver.context, job, rows="late", rows_per_chunk=3)
    repaired(driver, planned, job)
    assert sessions(driver) == whole(events), f"seed {SEED}"


def _clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"


def _us(time: datetime) -> int:
    return round((time - datetime(1970, 1, 1)) / timedelta(microseconds=1))


def micros(clock: str) -> int:
    return _us(at(clock))
