"""What quarantine says of a line that its parser does not take: which part of it does not fit.

The lines of all tables go through one Spark job.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headwater_streams.sources.line_value import line_problem
from headwater_streams.sources.parsers import ACCESS, SYSLOG, Parser, key_value, template

TABLES: list["ReasonTable"] = []


@dataclass(frozen=True, eq=False)
class ReasonTable:
    """Lines of one parser, each with the reason, without the sentence that all of them begin with; None for a line
    that is taken."""

    parser: Parser
    expected: Mapping[str, str | None]

    def __post_init__(self) -> None:
        TABLES.append(self)


@pytest.fixture(scope="module")
def reasons(spark: SparkSession) -> dict[ReasonTable, dict[str, str | None]]:
    """The reasons for the lines of each table."""
    rows = [(place, line.encode()) for place, table in enumerate(TABLES) for line in table.expected]
    parsed = spark.createDataFrame(rows, "place INT, raw BINARY").select(
        "place",
        "raw",
        *[
            F.when(
                F.col("place") == place,
                table.parser(F.col("raw"), F.timestamp_seconds(F.lit(1_700_000_000))),
            ).alias(f"value{place}")
            for place, table in enumerate(TABLES)
        ],
    )
    columns = []
    for place, table in enumerate(TABLES):
        problem = line_problem(F.col("raw"), F.col(f"value{place}"), table.parser)
        columns.append(
            F.when((F.col("place") == place) & problem.condition, problem.reason).alias(str(place))
        )
    lines: dict[ReasonTable, dict[str, str | None]] = {table: {} for table in TABLES}
    for row in parsed.select("place", "raw", *columns).collect():
        table, line, reason = TABLES[row["place"]], bytes(row["raw"]).decode(), row[str(row["place"])]
        begin = f"the line is not of the format {table.parser.name!r}: "
        assert reason is None or reason.startswith(begin), (line, reason)
        lines[table][line] = None if reason is None else reason.removeprefix(begin)
    return lines


Reasons = dict[ReasonTable, dict[str, str | None]]
_ACCESS = '192.0.2.7 - frank [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 2326 "-" "curl"'
_REQUEST = '"GET / HTTP/1.0" 200 2326 "-" "curl"'
_QUOTED_ADDRESS = _ACCESS.replace("192.0.2.7 ", '"192.0.2.7" ')
_NO_DAY = _ACCESS.replace("10/Oct", "31/Feb")
ACCESS_PARTS = ReasonTable(
    ACCESS,
    {
        _ACCESS: None,
        **{
            line: f"its {part} is not as it should be: {rest}"
            for line, part, rest in [
                (_QUOTED_ADDRESS, "client's address", _QUOTED_ADDRESS),
                (
                    _ACCESS.replace("10/Oct/2000:13", "2000-10-10T13"),
                    "time",
                    f"[2000-10-10T13:55:36 -0700] {_REQUEST}",
                ),
                (_NO_DAY, "time", _NO_DAY),
                (
                    _ACCESS.replace('"GET / HTTP/1.0"', "GET / HTTP/1.0"),
                    "request",
                    _REQUEST.replace('"', "", 2),
                ),
                (_ACCESS.replace(" 200 ", " OK "), "status", 'OK 2326 "-" "curl"'),
                (_ACCESS.replace(" 2326 ", " many "), "size", 'many "-" "curl"'),
                (_ACCESS.replace(" 2326 ", " -5 "), "size", '-5 "-" "curl"'),
                (_ACCESS.replace(" 2326 ", f" {10**18} "), "size", f'{10**18} "-" "curl"'),
                (_ACCESS.replace(' "curl"', " curl"), "end, behind the size,", ' "-" curl'),
                (_ACCESS.partition("2326")[0], "size", ""),
                (f"\ufeff{_ACCESS}".replace(" 200 ", " OK "), "status", 'OK 2326 "-" "curl"'),
            ]
        },
    },
)


@pytest.mark.story
def test_access_log_names_the_part(reasons: Reasons) -> None:
    assert reasons[ACCESS_PARTS] == ACCESS_PARTS.expected


_SYSLOG = '<165>1 2003-10-11T22:14:15Z host app 1 - [a@1 b="c"] text'
SYSLOG_PARTS = ReasonTable(
    SYSLOG,
    {
        _SYSLOG: None,
        _SYSLOG.replace("2003-10-11T", "yesterday "): (
            'its time is not as it should be: yesterday 22:14:15Z host app 1 - [a@1 b="c"] text'
        ),
        _SYSLOG.replace('b="c"', "b=c"): "its structured data is not as it should be: [a@1 b=c] text",
        _SYSLOG.replace("<165>", "<999>"): (
            f"its time or priority is not as it should be: {_SYSLOG.replace('<165>', '<999>')}"
        ),
        "text without a time": "no form of its time and its host is known",
        "<34>Foo 99 22:14:15 host su: text": "no form of its time and its host is known",
    },
)


def test_syslog_names_the_part_of_the_newer_form(reasons: Reasons) -> None:
    assert reasons[SYSLOG_PARTS] == SYSLOG_PARTS.expected


_NO_ZONE = "behind its time is not the name of a zone that is known; let its sender write the offset, as +02:00, or UTC"
SYSLOG_ZONES = ReasonTable(
    SYSLOG,
    {
        "<13>Nov 27 15:00:00 IST h a: x": f"IST {_NO_ZONE}",
        "2026-11-27 15:00:00,5 WIB h a[1]: x": f"WIB {_NO_ZONE}",
        "<13>Nov 27 15:00:00 NAS a[1]: x": None,
    },
)


def test_syslog_names_the_zone_that_is_not_known(reasons: Reasons) -> None:
    assert reasons[SYSLOG_ZONES] == SYSLOG_ZONES.expected


SYSLOG_DATES = ReasonTable(
    SYSLOG,
    {
        **{
            line: f"its date, {date}, is in no calendar"
            for line, date in {
                "<34>Feb 30 22:14:15 CEST host su: text": "Feb 30",
                "<34>Nov 31 22:14:15 IST host su: text": "Nov 31",
                "Feb 30 22:14:15 DB host su: text": "Feb 30",
                "<34>Jun 31 22:14:15 host su: text": "Jun 31",
                "<34>Feb 29 2025 22:14:15 UTC host su: text": "Feb 29 2025",
                "<34>2025 Feb 29 22:14:15 UTC host su: text": "2025 Feb 29",
                "2026-02-30 10:00:00 WIB h a[1]: x": "2026-02-30",
                "<189>29: sw01: 30: *Sep 31 18:48:50.483 UTC: %SYS-5-CONFIG_I: text": "Sep 31",
            }.items()
        },
        "<34>Feb 29 22:14:15 CEST host su: text": None,
        "<34>Feb 29 22:14:15 IST host su: text": f"IST {_NO_ZONE}",
        "<34>Foo 30 22:14:15 CEST host su: text": "no form of its time and its host is known",
    },
)


def test_syslog_names_a_date_that_is_none_whatever_its_zone(reasons: Reasons) -> None:
    assert reasons[SYSLOG_DATES] == SYSLOG_DATES.expected


KEYS_AND_TYPES = ReasonTable(
    key_value("level STRING, took_ms DOUBLE, at TIMESTAMP"),
    {
        "level=info took_ms=1": None,
        "took_ms=long": "took_ms is not DOUBLE: long",
        "level=x at=noon": "at is not TIMESTAMP: noon",
        "other=1": "it has none of the keys level, took_ms, at",
        'level="open': "it is no sequence of key=value pairs and words",
        "level=a took_ms=": None,
        'level="" took_ms=""': "took_ms is not DOUBLE: ",
        "\ufefftook_ms=long": "took_ms is not DOUBLE: long",
    },
)


@pytest.mark.story
def test_key_value_names_the_keys_and_the_types(reasons: Reasons) -> None:
    assert reasons[KEYS_AND_TYPES] == KEYS_AND_TYPES.expected


_LINE = "[2026-11-21 10:00:00] INFO 12 main: started"
PLACEHOLDERS = ReasonTable(
    template("[{at:time}] {level:word} {took_ms:int} {name}: {message}"),
    {
        _LINE: None,
        _LINE.replace("[", "("): f"it departs from the template at {{at}}: {_LINE.replace('[', '(')}",
        _LINE.replace("12", "soon"): "it departs from the template at {took_ms}: soon main: started",
        _LINE.replace(": started", " started"): "it departs from the template at {name}: main started",
        _LINE.replace("2026-11-21", "2026-99-21"): "it has no number or time for at: 2026-99-21 10:00:00",
        _LINE.replace("12", "9" * 30): f"it has no number or time for took_ms: {'9' * 30}",
    },
)


def test_template_names_the_placeholder(reasons: Reasons) -> None:
    assert reasons[PLACEHOLDERS] == PLACEHOLDERS.expected


YEARS = ReasonTable(
    template("{at:time MMM d HH:mm:ss} {message}"),
    {"Feb 29 10:00:00 x": None, "Feb 30 10:00:00 x": "it has no number or time for at: Feb 30 10:00:00"},
)


@pytest.mark.story
def test_template_names_a_time_that_no_year_has(reasons: Reasons) -> None:
    assert reasons[YEARS] == YEARS.expected
