"""Jobs in SQL: their tables are what the same SELECT gives over all rows at once, and the ledger adds up."""

import random
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from amount import drawn_seed
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.loader import load_jobs
from headwater_streams.operators.joins.interval import IntervalJoin
from headwater_streams.plan.analysis import analyse
from headwater_streams.runtime.planning import plan_jobs
from headwater_streams.testing import JobDriver

ROWS = "SELECT flight_id, carrier, at, delay * 60 AS delay_s FROM {departures} AS d WHERE d.delay >= 0"
HOURS = """SELECT c.carrier, {window}.start AS hour, count(*) AS flights, max(delay_s) - min(delay_s) spread
           FROM {clean} AS c WHERE carrier <> 'XX' GROUP BY carrier, window(c.at, {size})"""
PAIRS = """SELECT d.flight_id, carrier, landed FROM {departures} AS d JOIN {arrivals} AS a
           ON d.flight_id = a.flight_id AND a.landed BETWEEN d.at AND d.at + INTERVAL 5 HOURS"""

DEPARTURES = """topic('departures', schema => 'flight_id STRING, carrier STRING, at TIMESTAMP, delay INT',
                      event_time => 'at', watermark => '1 hour')"""
ARRIVALS = """topic('arrivals', schema => 'flight_id STRING, landed TIMESTAMP', event_time => 'landed',
                    watermark => '12 hours')"""
CLEAN = "stream(silver.clean, event_time => 'at', watermark => '1 hour')"

SCRIPT = f"""
CREATE STREAMING TABLE silver.clean (CONSTRAINT has_carrier EXPECT (carrier IS NOT NULL))
WITH (dedup = by_offset(origin => true))
AS {ROWS.format(departures=DEPARTURES)};

CREATE STREAMING TABLE gold.hours (CONSTRAINT counted EXPECT (flights > 0) ON VIOLATION FAIL)
WITH (mode = 'update')
AS {HOURS.format(clean=CLEAN, window="window", size="'1 hour'")};

CREATE STREAMING TABLE gold.pairs
AS {PAIRS.format(departures=DEPARTURES, arrivals=ARRIVALS)};
"""
BEGIN = datetime(2013, 1, 1, tzinfo=UTC)


def load(folder: Path, text: str) -> list[object]:
    (folder / "jobs.sql").write_text(text)
    return list(load_jobs([str(folder / "jobs.sql")]))


def test_sql_jobs_give_what_the_select_gives_over_all_rows(
    spark: SparkSession, drive: Callable[..., JobDriver], tmp_path: Path
) -> None:
    seed = drawn_seed()
    rng = random.Random(seed)
    driver = drive(*load(tmp_path, SCRIPT))
    departures, arrivals = [], []
    for number in range(60):
        at = BEGIN + timedelta(minutes=number * 3 + rng.randrange(20))
        row = {
            "flight_id": f"f{number}",
            "carrier": rng.choice(["UA", "DL", "XX", None]),
            "at": at.isoformat(),
        }
        departures.append(row | {"delay": rng.randrange(-5, 60)})
        landed = at + timedelta(minutes=rng.randrange(60, 600))
        arrivals.append({"flight_id": f"f{number}", "landed": landed.isoformat()})
    for begin in range(0, 60, 20):
        driver.send("departures", *departures[begin : begin + 20], timestamp=BEGIN)
        driver.send("arrivals", *rng.sample(arrivals[begin : begin + 20], 20), timestamp=BEGIN)
        driver.run()
    times = ("at", "landed")
    for name, rows in (("departures", departures), ("arrivals", arrivals)):
        typed = [{k: datetime.fromisoformat(v) if k in times else v for k, v in row.items()} for row in rows]
        spark.createDataFrame(typed).createOrReplaceTempView(name)
    kept = spark.sql(ROWS.format(departures="departures")).filter("carrier IS NOT NULL")
    kept.createOrReplaceTempView("clean")
    expected = {
        "silver.clean": kept,
        "gold.hours": spark.sql(HOURS.format(clean="clean", window="window", size="'1 hour'")),
        "gold.pairs": spark.sql(PAIRS.format(departures="departures", arrivals="arrivals")),
    }
    for table, frame in expected.items():
        assert driver.rows(table, *frame.columns) == sorted(map(tuple, frame.collect()), key=repr), table
    assert driver.audit() == []
    assert driver.table("silver.clean__quarantine").count() == sum(
        row["carrier"] is None for row in departures
    )


@pytest.mark.parametrize(
    ("words", "how"),
    [
        ("INNER JOIN", "inner"),
        ("LEFT JOIN", "left"),
        ("RIGHT OUTER JOIN", "right"),
        ("FULL JOIN", "full"),
        ("LEFT SEMI JOIN", "semi"),
    ],
)
def test_sql_join_is_of_its_kind(spark: SparkSession, tmp_path: Path, words: str, how: str) -> None:
    pairs = PAIRS.format(departures=DEPARTURES, arrivals=ARRIVALS).replace("JOIN", words)
    if how == "semi":
        pairs = pairs.replace("carrier, landed FROM", "carrier FROM")
    (job,) = load(tmp_path, f"CREATE STREAMING TABLE gold.pairs AS {pairs}")
    spec = analyse(job, spark, {}).operator  # type: ignore[arg-type]
    assert isinstance(spec, IntervalJoin)
    assert (spec.how, spec.left_time, spec.right_time, spec.within) == (
        how,
        "at",
        "landed",
        timedelta(hours=5),
    )


@pytest.mark.story
@pytest.mark.parametrize(
    ("select", "told"),
    [
        ("SELECT flight_id,\n nothere FROM {d}", "line 2: .*`nothere` cannot be resolved"),
        ("SELECT flight_id FROM {d}\nWHERE delay > 'a' + ", "line 3: "),
        (
            "SELECT carrier,\n sum(delai) AS x FROM {d} GROUP BY carrier, window(at, '1 hour')",
            "line 2: .*`delai`",
        ),
        (
            "SELECT carrier, count(*) AS n FROM {d}\nGROUP BY carrier, window(at, '1 hours ago')",
            "line 3: .*a duration",
        ),
        (
            "SELECT carrier, count(*) AS n,\n delay AS d FROM {d} GROUP BY carrier, window(at, '1 hour')",
            'line 2: .*"delay" is based on columns which are not participating in the GROUP BY',
        ),
        (
            "SELECT stack(2, delay, delay) AS x FROM {d}",
            "line 1: .* cannot use stack, whose rows have no place",
        ),
        ("SELECT count(*) AS x FROM {d}", "cannot use a grouping"),
    ],
)
def test_sql_what_spark_refuses_is_told_with_its_line(
    spark: SparkSession, tmp_path: Path, select: str, told: str
) -> None:
    (job,) = load(tmp_path, "CREATE STREAMING TABLE gold.x AS " + select.format(d=DEPARTURES))
    with pytest.raises(JobDefinitionError, match=told) as refused:
        analyse(job, spark, {})  # type: ignore[arg-type]
    assert str(refused.value).startswith("job 'x': ")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("column", ["l.delay", "d.nothere"])
def test_sql_join_has_no_names_but_those_of_its_inputs(
    spark: SparkSession, tmp_path: Path, column: str
) -> None:
    select = PAIRS.replace("carrier", f"\n{column} AS x")
    pairs = select.format(departures=DEPARTURES, arrivals=ARRIVALS)
    (job,) = load(tmp_path, f"CREATE STREAMING TABLE gold.pairs AS {pairs}")
    with pytest.raises(JobDefinitionError, match=r"line 2: .* Did you mean .*`") as refused:
        analyse(job, spark, {})  # type: ignore[arg-type]
    suggested = str(refused.value).partition("Did you mean")[2]
    assert "`l`" not in suggested
    assert "`r`" not in suggested


@pytest.mark.story
@pytest.mark.parametrize(
    ("statement", "told"),
    [
        (
            "(\n CONSTRAINT a EXPECT (x > 0),\n CONSTRAINT b EXPECT (xx > 0))\nAS SELECT x FROM {t}",
            "line 3: .*`xx`",
        ),
        ("(CONSTRAINT c EXPECT (\n max(xx) > 0) ON VIOLATION FAIL) AS SELECT x FROM {t}", "line 2: .*`xx`"),
        (
            "AS SELECT x\nFROM topic('t', schema => 'x INTT')",
            "line 2: topic 't': schema 'x INTT' is not Spark DDL",
        ),
        ("AS SELECT x\nFROM silver.gone", "line 2: there is no table 'silver.gone'"),
        (
            "\nWITH (mode = 'scd2', keys = (x), sequence_by = 'zz') AS SELECT x FROM {t}",
            "line 2: .*names 'zz'",
        ),
        (
            "\nWITH (mode = 'scd1', keys = (z), sequence_by = 'x') AS SELECT x FROM {t}",
            "line 2: .*the key 'z'",
        ),
        ("AS SELECT x, x FROM {t}", "line 1: the result has two columns named 'x'"),
    ],
)
def test_sql_what_does_not_fit_a_statement_is_told_with_its_line(
    spark: SparkSession, tmp_path: Path, statement: str, told: str
) -> None:
    text = f"CREATE STREAMING TABLE gold.x {statement}".format(t="topic('t', schema => 'x INT')")
    (job,) = load(tmp_path, text)
    with pytest.raises(JobDefinitionError) as refused:
        analyse(job, spark, {})  # type: ignore[arg-type]
    assert re.match(rf"job 'x': {tmp_path}/jobs\.sql, {told}", str(refused.value)), refused.value


@pytest.mark.story
@pytest.mark.parametrize(
    ("statement", "told"),
    [
        (
            "WITH (mode = 'append', state = 'unbounded')\nAS SELECT carrier, count(*) AS n FROM {d} GROUP BY carrier",
            "line 1: an aggregation by key has no final result; write WITH (mode = 'update')",
        ),
        (
            "AS SELECT count(*) AS n FROM {d}",
            "line 1: a SELECT without GROUP BY cannot use a grouping; write GROUP BY with window(time, '1 hour'), or",
        ),
        (
            (
                "AS SELECT t.x, window_start, count(*) AS n\nFROM topic('t', schema => 'x INT, at TIMESTAMP') t "
                "GROUP BY x, window(at, '1 hour')"
            ),
            "line 2: the input 't' feeds state, so it needs event_time => ... and watermark => ...",
        ),
        (
            (
                "AS SELECT\nupper(carrier) AS carrier, window_start, count(*) AS n FROM {d} "
                "GROUP BY carrier, window(at, '1 hour')"
            ),
            "line 2: GROUP BY carrier is by the column carrier of the rows, and upper(carrier) would be a second",
        ),
        (
            "WITH (mode = 'update', keys = (flight_id)) AS SELECT flight_id FROM {d}",
            (
                "line 1: a SELECT without GROUP BY adds rows, and its target's mode is 'append'; for the newest row of "
                "each key write WITH (mode = 'scd1', keys = (...), sequence_by = ...)"
            ),
        ),
        (
            (
                "AS SELECT d.carrier, window_start, count(*) AS n FROM {d} d LEFT JOIN {a} a\n"
                "ON d.flight_id = a.flight_id AND a.landed BETWEEN d.at AND d.at + INTERVAL 5 HOURS "
                "GROUP BY d.carrier, window(at, '1 hour')"
            ),
            "line 1: rows without a partner come out of LEFT JOIN when they expire",
        ),
        (
            "(\nCONSTRAINT late EXPECT (delay + 1)) AS SELECT delay FROM {d}",
            "line 2: check 'late': it is INT, and must be BOOLEAN, a condition: delay + 1",
        ),
    ],
)
def test_sql_what_the_library_refuses_is_told_in_words_of_sql(
    drive: Callable[..., JobDriver], tmp_path: Path, statement: str, told: str
) -> None:
    text = " ".join(DEPARTURES.split()), " ".join(ARRIVALS.split())
    filled = statement.replace("{d}", text[0]).replace("{a}", text[1])
    jobs = load(tmp_path, f"CREATE STREAMING TABLE gold.x {filled}")
    with pytest.raises(JobDefinitionError) as refused:
        plan_jobs(drive().context, jobs)  # type: ignore[arg-type]
    assert str(refused.value).startswith(f"job 'x': {tmp_path}/jobs.sql, {told}")


def test_sql_columns_are_named_in_any_case(drive: Callable[..., JobDriver], tmp_path: Path) -> None:
    landed = f"""CREATE STREAMING TABLE gold.landed AS SELECT Carrier, LANDED FROM {DEPARTURES} d
        JOIN {ARRIVALS} a ON (d.Flight_Id = a.FLIGHT_ID AND a.Landed BETWEEN d.AT AND d.At + INTERVAL 5 HOURS)"""
    hours = f"""CREATE STREAMING TABLE gold.hours WITH (mode = 'update', keys = (carrier, HOUR)) AS
        SELECT CARRIER, Window.Start AS hour, count(*) AS n FROM {DEPARTURES} GROUP BY Carrier, window(AT, '1 hour')"""
    driver = drive(*load(tmp_path, f"{landed};\n{hours}"))
    driver.send("departures", {"flight_id": "F1", "carrier": "UA", "at": BEGIN.isoformat()}, timestamp=BEGIN)
    driver.send("arrivals", {"flight_id": "F1", "landed": BEGIN.isoformat()}, timestamp=BEGIN)
    driver.run()
    landed_at = BEGIN.replace(tzinfo=None)
    assert driver.rows("gold.landed", "Carrier", "LANDED") == [("UA", landed_at)]
    assert driver.rows("gold.hours", "CARRIER", "hour", "n") == [("UA", landed_at, 1)]


LANDED = """SELECT carrier, {window}.start AS hour, count(*) AS landed FROM {departures} AS d JOIN {arrivals} AS a
            ON d.flight_id = a.flight_id AND a.landed BETWEEN d.at AND d.at + INTERVAL 5 HOURS
            WHERE delay >= 0 GROUP BY carrier, window(landed, {size})"""


def test_sql_windows_over_a_join_give_what_the_select_gives_over_all_rows(
    spark: SparkSession, drive: Callable[..., JobDriver], tmp_path: Path
) -> None:
    text = LANDED.format(departures=DEPARTURES, arrivals=ARRIVALS, window="window", size="'1 hour'")
    driver = drive(*load(tmp_path, f"CREATE STREAMING TABLE gold.landed WITH (mode = 'update') AS {text};"))
    sent = [(f"F{n}", "AB"[n % 2], BEGIN + timedelta(minutes=7 * n), n % 5 - 1) for n in range(40)]
    landed = [(name, at + timedelta(hours=1 + n % 6)) for n, (name, _, at, _) in enumerate(sent)]
    for first in (0, 20):
        some = sent[first : first + 20]
        driver.send(
            "departures",
            *[{"flight_id": f, "carrier": c, "at": at.isoformat(), "delay": d} for f, c, at, d in some],
            timestamp=BEGIN,
        )
        arrived = [{"flight_id": f, "landed": at.isoformat()} for f, at in landed[first : first + 20]]
        driver.send("arrivals", *arrived, timestamp=BEGIN)
        driver.run()
    spark.createDataFrame(
        sent, "flight_id STRING, carrier STRING, at TIMESTAMP, delay INT"
    ).createOrReplaceTempView("d0")
    spark.createDataFrame(landed, "flight_id STRING, landed TIMESTAMP").createOrReplaceTempView("a0")
    wanted = spark.sql(
        LANDED.format(departures="d0", arrivals="a0", window="window", size="'1 hour'")
    ).collect()
    found = driver.table("gold.landed").select("carrier", "hour", "landed").collect()
    assert sorted(map(tuple, found)) == sorted(map(tuple, wanted))
    assert wanted
    assert driver.audit() == []
