"""What of a parser's declaration is refused where it stands, before there is a session."""

import pytest
from pyspark.sql import types as T

from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.sources.parsers import access_log, key_value, syslog, template


@pytest.mark.parametrize(
    "zone", ["Mars/X", "", "CEST", "+2", "UTC+2", "+25:00", "europe/berlin", "EST", "localtime"]
)
def test_syslog_zone_that_is_none_is_refused(zone: str) -> None:
    told = r"^syslog: zone='.*' is not a time zone; write an offset, as '\+02:00', or a name: "
    with pytest.raises(JobDefinitionError, match=told):
        syslog(zone)


def test_syslog_zone_that_is_none_is_refused_with_those_like_it() -> None:
    with pytest.raises(JobDefinitionError, match=": Europe/Berlin, "):
        syslog(zone="Europe/Brlin")


@pytest.mark.parametrize(
    "zone", ["UTC", "Z", "+02:00", "-09:30", "GMT", "UTC+05:30", "Europe/Berlin", "CET", "EST5EDT"]
)
def test_syslog_zone_of_java_is_taken(zone: str) -> None:
    assert syslog(zone).variant == zone


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("", "its schema names no keys; write them as 'level STRING, took_ms DOUBLE'"),
        (" ", "its schema names no keys"),
        (T.StructType([]), "its schema names no keys"),
        (
            "a ARRAY<STRING>",
            "a value cannot be ARRAY, as 'a' is; declare it as STRING and parse it in the job",
        ),
        ("n INT, `a b`: map < STRING, INT>", "a value cannot be MAP, as 'a b' is"),
        ("n INT, s STRUCT<x: INT>", "a value cannot be STRUCT, as 's' is"),
        (
            T.StructType([T.StructField("a", T.ArrayType(T.StringType()))]),
            "a value cannot be ARRAY<STRING>, as 'a' is",
        ),
    ],
)
def test_key_value_schema_that_no_line_can_have_is_refused(schema: str | T.StructType, told: str) -> None:
    with pytest.raises(JobDefinitionError) as refused:
        key_value(schema)
    assert str(refused.value).startswith(f"key_value: {told}")


@pytest.mark.parametrize(
    "schema",
    ["map STRING, array INT", "struct STRING COMMENT 'an ARRAY<STRING>'", "n DECIMAL(10, 4), at TIMESTAMP"],
)
def test_key_value_names_and_comments_are_no_types(schema: str) -> None:
    assert key_value(schema).schema == schema


def test_access_unit_that_is_none_is_refused() -> None:
    with pytest.raises(
        JobDefinitionError, match=r"^access_log: took_unit='min' is not one of 's', 'ms', 'us'$"
    ):
        access_log(took_unit="min")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("HH:mm:ss", r"needs its month and day; write both .*, or take it as text, \{t\}$"),
        ("yyyy", "needs its month and day"),
        ("yyyy-MM", "needs its month and day"),
        ("yyyy-mm-dd HH:mm:ss", "needs its month and day"),
        ("yyyy[-MM[-dd]]", "needs its month and day"),
        ("'Md' HH:mm:ss", "needs its month and day"),
        ("MMM d[ yyyy] HH:mm:ss", r"without the year in \[...\] would be of 1970; write yyyy outside of it"),
        ("yyyy-MM-dd hh:mm:ss", "needs a, its half of the day; write HH where there is none"),
    ],
)
def test_template_time_that_leaves_its_date_or_half_of_the_day_open_is_refused(
    pattern: str, told: str
) -> None:
    with pytest.raises(JobDefinitionError, match=told):
        template(f"{{t:time {pattern}}} {{msg}}")


def test_template_pattern_by_which_spark_reads_no_time_is_refused() -> None:
    with pytest.raises(
        JobDefinitionError, match=r"no time by the letter 'E'; take the name of a day as a word"
    ):
        template("[{at:time EEE MMM dd HH:mm:ss yyyy}] {msg}")
    with pytest.raises(JobDefinitionError, match="no time by the letter 'n'"):
        template("{at:time HH:mm:ss.n} {msg}")
    with pytest.raises(JobDefinitionError, match="a quote in the pattern has no end"):
        template("{at:time yyyy-MM-dd'T} {msg}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{a:float}", r"\{a:float\} is of no known kind; there are word, quoted, int, double, time"),
        ("{a:int 3}", "is of no known kind"),
        ("{a} {a}", "a comes twice"),
        ("{a", r"what begins with '\{a' is no placeholder"),
        ("text", "it has no placeholder"),
    ],
)
def test_template_wrong_one_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(JobDefinitionError, match=message):
        template(text)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("{a:word}{b:word}", "{a:word}{b:word}: nothing tells where {a:word} ends"),
        ("x {a:int}{b:int}", "{a:int}{b:int}: nothing tells where {a:int} ends"),
        ("{a:int}{b:double}", "{a:int}{b:double}: nothing tells"),
        ("{a:double}{b:int}", "{a:double}{b:int}: nothing tells"),
        ("{a:int}0", "{a:int}0: nothing tells"),
        ("{a:double}5 {b}", "{a:double}5: nothing tells"),
    ],
)
def test_template_placeholder_whose_end_nothing_tells_is_refused(text: str, where: str) -> None:
    with pytest.raises(JobDefinitionError) as refused:
        template(text)
    assert str(refused.value).startswith(f"template: {where}")


@pytest.mark.parametrize(
    "text", ["{a:word}: {b}", "{a:word}{b}", "{a:int}{b:word}", "{a:int}ms", "{a:word}{b:int}"]
)
def test_template_placeholder_before_what_ends_it_is_taken(text: str) -> None:
    assert template(text).variant == text
