"""What of a parser's declaration is refused where it stands, before there is a session."""

import pytest
from pyspark.sql import types as T

from headwater_streams.errors import JobDefinitionError
from headwater_streams.sources.parsers import key_value, syslog


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
