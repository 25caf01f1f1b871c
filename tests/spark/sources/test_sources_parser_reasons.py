"""What quarantine says of a line that its parser does not take: which part of it does not fit."""

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headwater_streams.sources.line_value import line_problem
from headwater_streams.sources.parsers import ACCESS, SYSLOG, Parser, key_value, template

Told = Callable[[Parser, list[str]], list[str | None]]
GOOD = '192.0.2.7 - frank [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 2326 "-" "curl"'


@pytest.fixture
def told(spark: SparkSession) -> Told:
    """The reasons for lines, without the sentence that all of them begin with; None for a line that is taken."""

    def run(parser: Parser, lines: list[str]) -> list[str | None]:
        frame = spark.createDataFrame(
            [(i, line.encode()) for i, line in enumerate(lines)], "i INT, raw BINARY"
        )
        parsed = frame.withColumn("value", parser(F.col("raw"), F.timestamp_seconds(F.lit(1_700_000_000))))
        problem = line_problem(F.col("raw"), F.col("value"), parser)
        reasons = parsed.select("i", F.when(problem.condition, problem.reason).alias("reason"))
        begin = f"the line is not of the format {parser.name!r}: "
        found = [row["reason"] for row in reasons.sort("i").collect()]
        assert all(reason is None or reason.startswith(begin) for reason in found), found
        return [None if reason is None else reason.removeprefix(begin) for reason in found]

    return run


def test_access_log_names_the_part(told: Told) -> None:
    wrong = {
        GOOD.replace("192.0.2.7 ", '"192.0.2.7" '): "client's address",
        GOOD.replace("10/Oct/2000:13", "2000-10-10T13"): "time",
        GOOD.replace("10/Oct", "31/Feb"): "time",
        GOOD.replace('"GET / HTTP/1.0"', "GET / HTTP/1.0"): "request",
        GOOD.replace(" 200 ", " OK "): "status",
        GOOD.replace(" 2326 ", " many "): "size",
        GOOD.replace(" 2326 ", " -5 "): "size",
        GOOD.replace(" 2326 ", f" {10**18} "): "size",
        GOOD.replace(' "curl"', " curl"): "end, behind the size,",
        GOOD.partition("2326")[0]: "size",
        f"\ufeff{GOOD}".replace(" 200 ", " OK "): "status",
    }
    assert told(ACCESS, [GOOD, *wrong]) == [
        None,
        *[f"its {part} is not as it should be" for part in wrong.values()],
    ]


def test_syslog_names_the_part_of_the_newer_form(told: Told) -> None:
    good = '<165>1 2003-10-11T22:14:15Z host app 1 - [a@1 b="c"] text'
    wrong = {
        good.replace("2003-10-11T", "yesterday "): "time",
        good.replace('b="c"', "b=c"): "structured data",
        good.replace("<165>", "<999>"): "time or priority",
    }
    other = ["text without a time", "<34>Foo 99 22:14:15 host su: text"]
    assert told(SYSLOG, [good, *wrong, *other]) == [
        None,
        *[f"its {part} is not as it should be" for part in wrong.values()],
        *["no form of its time and its host is known"] * 2,
    ]


def test_syslog_names_the_zone_that_is_not_known(told: Told) -> None:
    lines = [
        "<13>Nov 27 15:00:00 IST h a: x",
        "2026-11-27 15:00:00,5 WIB h a[1]: x",
        "<13>Nov 27 15:00:00 NAS a[1]: x",
    ]
    more = "behind its time is not the name of a zone that is known; let its sender write the offset, as +02:00, or UTC"
    assert told(SYSLOG, lines) == [f"IST {more}", f"WIB {more}", None]


def test_key_value_names_the_keys_and_the_types(told: Told) -> None:
    parser = key_value("level STRING, took_ms DOUBLE, at TIMESTAMP")
    lines = [
        "level=info took_ms=1",
        "took_ms=long",
        "level=x at=noon",
        "other=1",
        'level="open',
        "level=a took_ms=",
        'level="" took_ms=""',
        "\ufefftook_ms=long",
    ]
    assert told(parser, lines) == [
        None,
        "took_ms is not DOUBLE",
        "at is not TIMESTAMP",
        "it has none of the keys level, took_ms, at",
        "it is no sequence of key=value pairs and words",
        None,
        "took_ms is not DOUBLE",
        "took_ms is not DOUBLE",
    ]


def test_template_names_the_placeholder(told: Told) -> None:
    parser = template("[{at:time}] {level:word} {took_ms:int} {name}: {message}")
    good = "[2026-11-21 10:00:00] INFO 12 main: started"
    lines = [
        good,
        good.replace("[", "("),
        good.replace("12", "soon"),
        good.replace(": started", " started"),
        good.replace("2026-11-21", "2026-99-21"),
        good.replace("12", "9" * 30),
    ]
    assert told(parser, lines) == [
        None,
        "it departs from the template at {at}",
        "it departs from the template at {took_ms}",
        "it departs from the template at {name}",
        "it has no number or time for at",
        "it has no number or time for took_ms",
    ]


def test_template_names_a_time_that_no_year_has(told: Told) -> None:
    parser = template("{at:time MMM d HH:mm:ss} {message}")
    assert told(parser, ["Feb 29 10:00:00 x", "Feb 30 10:00:00 x"]) == [
        None,
        "it has no number or time for at",
    ]
