"""As-of joins: the operator against a plain search, against DuckDB, against look-ups, and between two streams.

weather (observed_at)   --w1 10:00--------w2 11:00--------w3 12:00----->
departures              -------a 10:40---------------b 11:50----------->
backward                       w1                    w2
forward                        w2                    w3
nearest                        w2                    w3

Between two streams the default run looks at forward and nearest in random order (and at backward in a story of its own,
and in test_jobs_weather), with HEADWATER_LONG set at all of them.
"""

import os
import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from amount import drawn_seed
from headwater_streams import backfill
from headwater_streams.backfill import BackfillError
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.ledger.audit import audit_table
from headwater_streams.plan.job import Job, bind
from headwater_streams.runtime.planning import plan_jobs
from headwater_streams.testing import JobDriver, SimulatedCrash

departures = hw.topic("departures", schema="flight STRING, origin STRING, departed_at TIMESTAMP",
                      event_time="departed_at")  # fmt: skip
weather = hw.topic("weather", schema="origin STRING, observed_at TIMESTAMP, temp INT", event_time="observed_at",
                   watermark="1 hour")  # fmt: skip
climate = hw.lookup("dim.climate")


@hw.job(target=hw.delta("gold.departures_weather"), dedup=hw.by_offset())
@hw.check("measured", "temp > -99", on="input", action="warn")
def departures_weather(departures: DataFrame, weather: DataFrame) -> DataFrame:
    return hw.as_of(
        departures.filter("flight != 'private'"), weather.filter("temp > -99"), by=["origin"],
        left_time="departed_at", right_time="observed_at", tolerance="2 hours",
    )  # fmt: skip


@hw.job(target=hw.delta("gold.departures_climate"), dedup=hw.by_offset())
def departures_climate(departures: DataFrame, climate: DataFrame) -> DataFrame:
    return hw.as_of(
        departures, climate, by={"origin": "airport"}, left_time="departed_at", right_time="observed_at",
        direction="nearest",
    ).select("flight", "temp")  # fmt: skip


AT = "2013-01-10T00:00:00+00:00"
DAY = datetime(2013, 1, 1, tzinfo=UTC)


def flight(name: str, time: str, origin: str | None = "JFK") -> dict[str, Any]:
    return {"flight": name, "origin": origin, "departed_at": f"2013-01-{time}:00Z"}


def report(time: str, temp: int | None, origin: str | None = "JFK") -> dict[str, Any]:
    return {"origin": origin, "observed_at": f"2013-01-{time}:00Z", "temp": temp}


Left = tuple[str, str | None, datetime]
Right = tuple[str | None, datetime, int]


def answers(
    lefts: Sequence[Left], rights: Sequence[Right], direction: str, tolerance: timedelta | None
) -> list[tuple[Any, ...]]:
    """The definition, as a search through all right rows."""
    found = []
    for name, origin, time in lefts:
        near = [
            (seen, temp)
            for at, seen, temp in rights
            if at is not None and at == origin and (tolerance is None or abs(seen - time) <= tolerance)
        ]
        back = max((r for r in near if r[0] <= time), default=None)
        ahead = max((r for r in near if r[0] >= time), key=lambda r: (time - r[0], r[1]), default=None)
        best = {"backward": back, "forward": ahead}.get(direction)
        if direction == "nearest":
            best = back if ahead is None or (back and time - back[0] <= ahead[0] - time) else ahead
        found.append((name, best[1] if best else None))
    return sorted(found, key=repr)


def random_rows(rng: random.Random, lefts: int, rights: int) -> tuple[list[Left], list[Right]]:
    """Times in a day by five minutes, so that many are equal, at three airports and at none."""

    def time() -> datetime:
        return DAY + timedelta(minutes=5 * rng.randrange(288))

    origins = ["JFK", "LGA", "EWR", None]
    return (
        [(f"f{n}", rng.choice(origins), time()) for n in range(lefts)],
        [(rng.choice(origins), time(), rng.randrange(40)) for _ in range(rights)],
    )


def seeded() -> random.Random:
    seed = drawn_seed()
    return random.Random(seed)


def test_as_of_random_rows_equal_the_definition(spark: SparkSession) -> None:
    lefts, rights = random_rows(seeded(), 300, 60)
    left = spark.createDataFrame(lefts, "flight STRING, origin STRING, departed_at TIMESTAMP").cache()
    right = spark.createDataFrame(rights, "origin STRING, observed_at TIMESTAMP, temp INT").cache()
    for direction in ("backward", "forward", "nearest"):
        for tolerance in (None, "45 minutes"):
            joined = hw.as_of(
                left, right, by=["origin"], left_time="departed_at", right_time="observed_at",
                direction=direction, tolerance=tolerance,
            )  # fmt: skip
            assert joined.columns == ["flight", "origin", "departed_at", "observed_at", "temp"]
            got = sorted((tuple(r) for r in joined.select("flight", "temp").collect()), key=repr)
            bound = timedelta(minutes=45) if tolerance else None
            assert got == answers(lefts, rights, direction, bound), (direction, tolerance)
    inner = hw.as_of(
        left, right, by=["origin"], left_time="departed_at", right_time="observed_at", how="inner"
    )
    assert inner.count() == sum(temp is not None for _, temp in answers(lefts, rights, "backward", None))


def test_as_of_backward_equals_duckdb(spark: SparkSession) -> None:
    rng = seeded()
    lefts, rights = random_rows(rng, 300, 60)
    rights = list(
        {(at, seen): (at, seen, temp) for at, seen, temp in rights}.values()
    )  # it breaks ties at random
    with duckdb.connect() as connection:
        connection.execute("create table l (flight varchar, origin varchar, t timestamptz)")
        connection.execute("create table r (origin varchar, t timestamptz, temp integer)")
        connection.executemany("insert into l values (?, ?, ?)", lefts)
        connection.executemany("insert into r values (?, ?, ?)", rights)
        expected = connection.execute(
            "select flight, temp from l asof left join r on l.origin = r.origin and l.t >= r.t"
        ).fetchall()
    left = spark.createDataFrame(lefts, "flight STRING, origin STRING, departed_at TIMESTAMP")
    right = spark.createDataFrame(rights, "origin STRING, observed_at TIMESTAMP, temp INT")
    joined = hw.as_of(left, right, by=["origin"], left_time="departed_at", right_time="observed_at")
    got = [tuple(r) for r in joined.select("flight", "temp").collect()]
    assert sorted(got, key=repr) == sorted(expected, key=repr)


def test_as_of_look_up_answers_at_once_by_what_the_table_holds(drive: Callable[..., JobDriver]) -> None:
    schema = "airport STRING, observed_at TIMESTAMP, temp INT"
    driver = drive(departures_climate)
    driver.put("dim.climate", schema, ("JFK", DAY + timedelta(hours=10), 1))
    driver.send("departures", flight("a", "01T10:40"), flight("b", "01T11:50", None), timestamp=AT)
    driver.run()
    driver.put(
        "dim.climate", schema, ("JFK", DAY + timedelta(hours=10), 1), ("JFK", DAY + timedelta(hours=11), 2)
    )
    driver.send("departures", flight("c", "01T10:40"), timestamp=AT)
    driver.run()
    assert driver.rows("gold.departures_climate", "flight", "temp", "_offset") == [
        ("a", 1, 0), ("b", None, 1), ("c", 2, 2),
    ]  # fmt: skip
    audit = audit_table(driver.home, "gold.departures_climate")
    assert audit is not None
    assert audit.ok, audit.findings


def account(driver: JobDriver, table: str = "gold.departures_weather") -> dict[str, dict[str, int]]:
    audit = audit_table(driver.home, table)
    assert audit is not None
    assert audit.ok, audit.findings
    return audit.totals


def run_killed_at(driver: JobDriver, step: str) -> None:
    driver.crash_at(step, "departures_weather")
    with pytest.raises(SimulatedCrash):
        driver.run()
    driver.run()


def test_as_of_streams_rows_wait_until_final_and_are_answered_once_whatever_is_killed(
    drive: Callable[..., JobDriver], spark: SparkSession
) -> None:
    driver = drive(departures_weather)
    driver.send("departures", flight("a", "01T10:40"), flight("b", "01T11:50"), timestamp=AT)
    driver.send("departures", flight("private", "01T10:40"), b"no flight", timestamp=AT)
    driver.send("weather", report("01T10:00", 1), report("01T11:00", 2), timestamp=AT)
    run_killed_at(driver, "after commit")  # the watermark is 10:00
    assert driver.rows("gold.departures_weather", "flight") == []
    driver.send(
        "weather", report("01T10:30", 3), report("01T11:45", 4), report("01T11:50", -99), timestamp=AT
    )
    run_killed_at(
        driver, "before commit"
    )  # 10:30 came in time; the watermark is 10:50: a filtered row moves it, too
    rows = driver.rows("gold.departures_weather", "flight", "temp", "_offset")
    assert rows == [("a", 3, 0)]
    # Behind the watermark a report is late: it must not change what b's answer is, and cannot change a's.
    driver.send("weather", report("01T10:45", 5), report("01T14:00", 6), timestamp=AT)
    driver.send("departures", flight("c", "01T09:00"), flight("d", "01T10:00"), timestamp=AT)
    run_killed_at(driver, "before late")  # c and d are never late; the watermark is 13:00
    rows = driver.rows("gold.departures_weather", "flight", "temp", "_offset")
    assert rows == [("a", 3, 0), ("b", 4, 1), ("c", None, 4), ("d", 1, 5)]
    (pair,) = driver.table("gold.departures_weather").filter("flight = 'a'").select("_sources").collect()
    assert [tuple(place) for place in pair[0]] == [("departures", 0, 0, 1), ("weather", 0, 2, 3)]
    assert driver.rows("gold.departures_weather__late", "temp", "_input") == [(5, "weather")]
    assert account(driver) == {
        "departures": {
            "read": 5,
            "matched": 3,
            "unmatched": 1,
            "waiting": 0,
            "filtered": 1,
            "quarantined": 0,
        },
        "weather": {"read": 7, "kept": 5, "filtered": 1, "late": 1, "quarantined": 0},
    }
    first, second, *_ = driver.ledger("gold.departures_weather")
    assert (first.accounting["departures"]["matched"], first.accounting["departures"]["waiting"]) == (0, 2)
    assert "warnings" not in first.extra
    (told,) = second.extra["warnings"]
    assert told.endswith("1 row fails the check 'measured' (temp > -99)")

    spark.sql(f"DELETE FROM delta.`{driver.home.table('gold.departures_weather')}` WHERE flight = 'a'")
    audit = audit_table(driver.home, "gold.departures_weather")
    assert audit is not None
    assert any("1 row is gone: departures 0 offset 0" in finding for finding in audit.findings)


def test_as_of_streams_account_for_commits_of_an_input_that_brought_no_row(
    drive: Callable[..., JobDriver],
) -> None:
    driver = drive(departures_weather)
    driver.send("weather", report("01T10:00", 1), timestamp=AT)
    driver.send("departures", flight("a", "01T08:40"), timestamp=AT)
    driver.run()
    for topic in ("departures", "weather"):
        driver.send(topic, b"neither", timestamp=AT)
        driver.run()
    driver.send("weather", report("01T12:00", 2), timestamp=AT)
    driver.send("departures", flight("b", "01T10:40"), timestamp=AT)
    driver.run()
    assert driver.rows("gold.departures_weather", "flight", "temp") == [("a", None), ("b", 1)]
    assert driver.audit() == []


trades = hw.topic("trades", schema="symbol STRING, price INT, at TIMESTAMP", event_time="at")
quotes = hw.topic(
    "quotes", schema="symbol STRING, bid INT, at TIMESTAMP", event_time="at", watermark="1 minute"
)


@hw.job(target=hw.delta("gold.quoted"))
def quoted(trades: DataFrame, quotes: DataFrame) -> DataFrame:
    quotes = quotes.withColumn("quoted_at", F.date_format("at", "HH:mm"))
    return hw.as_of(trades, quotes, by=["symbol"], left_time="at", right_time="at", tolerance="1 hour")


@pytest.mark.story
def test_as_of_streams_that_call_their_time_alike_keep_the_left_one(drive: Callable[..., JobDriver]) -> None:
    driver = drive(quoted)
    for topic, name, *rows in (
        ("trades", "price", (1, "10:05"), (2, "10:15")),
        ("quotes", "bid", (3, "10:00"), (4, "10:10"), (5, "10:30")),
    ):
        sent = [{"symbol": "A", name: value, "at": f"2013-01-01T{time}:00Z"} for value, time in rows]
        driver.send(topic, *sent, timestamp=AT)
    driver.run()
    made = driver.table("gold.quoted").select("price", F.date_format("at", "HH:mm"), "bid", "quoted_at")
    assert sorted(map(tuple, made.collect())) == [(1, "10:05", 3, "10:00"), (2, "10:15", 4, "10:10")]
    assert driver.audit() == []


departed = hw.table("silver.departures", event_time="departed_at")
observed = hw.table("silver.weather", event_time="observed_at", watermark="1 hour")
TOLERANCE = timedelta(minutes=45)


@hw.job(target=hw.delta("silver.departures"), dedup=hw.by_offset())
def clean_departures(departures: DataFrame) -> DataFrame:
    return departures


@hw.job(target=hw.delta("silver.weather"), dedup=hw.by_offset())
def clean_weather(weather: DataFrame) -> DataFrame:
    return weather


def found(direction: Any, *, bounded: bool = True, how: Any = "left", late: Any = "table") -> Job:
    name = direction if bounded else f"{direction}_{how}"

    @hw.job(name=name, target=hw.delta(f"gold.{name}"), late=late)
    def answered(departed: DataFrame, observed: DataFrame) -> DataFrame:
        return hw.as_of(
            departed, observed, by=["origin"], left_time="departed_at", right_time="observed_at",
            direction=direction, tolerance="45 minutes" if bounded else None, how=how,
        )  # fmt: skip

    return bind(answered)


def final(
    lefts: Sequence[Left], rights: Sequence[Right], watermark: datetime, direction: str, bounded: bool
) -> list[tuple[Any, ...]]:
    """The answers that no right row beyond the watermark could change, and these."""
    bound = TOLERANCE if bounded else None
    rows = []
    for name, origin, time in lefts:
        if time > watermark:
            continue
        known = [row for row in rights if row[1] <= watermark]
        here = (name, origin or "nowhere", time)
        next_one = (origin or "nowhere", watermark + timedelta(microseconds=1), 1000)
        answer = answers([here], known, direction, bound)
        if answer == answers([here], [*known, next_one], direction, bound):
            rows += answer
    return sorted(rows, key=repr)


def test_as_of_streams_random_order_every_batch_gives_what_became_final(
    drive: Callable[..., JobDriver], deployed: None
) -> None:
    rng = seeded()
    jobs = [
        (found("forward", how="inner", late="count"), "forward", True, "inner"),
        (found("nearest"), "nearest", True, "left"),
    ]
    if "HEADWATER_LONG" in os.environ:
        jobs += [
            (found("backward"), "backward", True, "left"),
            (found("backward", bounded=False, how="inner"), "backward", False, "inner"),
        ]
    driver = drive(clean_departures, clean_weather, *[job for job, *_ in jobs])
    lefts, rights = random_rows(rng, 120, 100)
    # Right rows come within their delay of an hour; left ones when they like. A cut is where a batch ends.
    came = sorted(rights, key=lambda row: row[1] + timedelta(minutes=rng.randrange(60)))
    rng.shuffle(lefts)
    cut = rng.randrange(20, 80)
    # At first there is no report, at last one behind which nothing waits.
    parts = [came[:0], came[:cut], [*came[cut:], ("JFK", DAY + timedelta(days=2), 0)]]
    sent_left: list[Left] = []
    sent_right: list[Right] = []
    late = 0
    for part, new_right in enumerate(parts):
        new_left = lefts[part::3]
        departed = [
            {"flight": name, "origin": origin, "departed_at": time.isoformat()}
            for name, origin, time in new_left
        ]
        reports = [
            {"origin": origin, "observed_at": time.isoformat(), "temp": temp}
            for origin, time, temp in new_right
        ]
        if sent_right:  # behind what the batches before have shown
            behind = max(time for _, time, _ in sent_right) - timedelta(hours=1, minutes=rng.randrange(60))
            reports.append({"origin": "JFK", "observed_at": behind.isoformat(), "temp": 99})
            late += 1
        driver.send("departures", *departed, b"no flight", partition=rng.randrange(2), timestamp=AT)
        driver.send("weather", *reports, b"no report", partition=rng.randrange(2), timestamp=AT)
        driver.run()
        sent_left += new_left
        sent_right += new_right
        watermark = max((time for _, time, _ in sent_right), default=DAY) - timedelta(hours=1)
        for job, direction, bounded, how in jobs:
            expected = final(sent_left, sent_right, watermark, direction, bounded)
            if how == "inner":
                expected = [row for row in expected if row[1] is not None]
            assert driver.rows(job.target.name, "flight", "temp") == expected, (part, job.name)
            totals = account(driver, job.target.name)
            assert totals["observed"]["late"] == late
    for job, direction, bounded, how in jobs:
        whole = answers(lefts, rights, direction, TOLERANCE if bounded else None)
        assert driver.rows(job.target.name, "flight", "temp") == [
            r for r in whole if how == "left" or r[1] is not None
        ]
        totals = account(driver, job.target.name)["departed"]
        assert totals["matched"] + totals["unmatched"] == len(lefts) == totals["read"]
        assert totals["waiting"] == 0
        assert len(driver.rows(f"{job.target.name}__late", "temp")) == (0 if job.late == "count" else late)


def test_as_of_jobs_that_cannot_run_are_refused(drive: Callable[..., JobDriver], spark: SparkSession) -> None:
    driver = drive(departures_weather)

    def refused(options: dict[str, Any], **target: Any) -> str:
        @hw.job(target=hw.delta("gold.refused", **target), dedup=hw.by_offset())
        def wrong(departures: DataFrame, weather: DataFrame) -> DataFrame:
            times = {"left_time": "departed_at", "right_time": "observed_at", "by": ["origin"]}
            return hw.as_of(departures, weather, **{**times, **options})

        with pytest.raises(JobDefinitionError) as error:
            plan_jobs(driver.context, [bind(wrong)])
        return str(error.value)

    assert "direction='forward' between two streams needs tolerance=" in refused({"direction": "forward"})
    assert "its target's mode is 'append'; answers are final" in refused({}, keys=["flight"], mode="update")
    assert "the left side has no column 'departed'; it has" in refused({"left_time": "departed"})
    driver.send("departures", flight("a", "01T10:40"), timestamp=AT)
    driver.run()
    with pytest.raises(BackfillError, match="in the range may still get partners, so the job"):
        backfill.plan(driver.context, bind(departures_weather))
    rows = spark.createDataFrame([("a", DAY, DAY)], "k STRING, t TIMESTAMP, u TIMESTAMP")
    with pytest.raises(JobDefinitionError, match="as_of: t, u stand on both sides"):
        hw.as_of(rows, rows, by=["k"], left_time="t", right_time="u")
    maps = rows.select("k", F.col("t").alias("v"), F.array(F.create_map("k", "u")).alias("m"))
    with pytest.raises(JobDefinitionError, match="'m' of the right side holds a map"):
        hw.as_of(rows, maps, by=["k"], left_time="t", right_time="v")
