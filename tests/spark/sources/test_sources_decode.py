"""Which values are records: one JSON object and nothing around it, each refused one with its reason."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.sources.coordinates import ROW_FIELDS
from headwater_streams.sources.csv_value import csv
from headwater_streams.sources.decode import BAD, RAW, RecordDecoder, RowDecoder
from headwater_streams.sources.inputs import TopicInput, table, topic
from headwater_streams.sources.problems import PROBLEMS

_RAW = (
    "topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
_SCHEMA = "a INT, b STRING, of STRUCT<remoteIp: STRING, of: MAP<STRING, ARRAY<INT>>>"
_NOT_ONE = "the value is not one JSON object"
GOOD = [
    '{"a": 1, "b": "x"}',
    ' \t\r\n{"a": 1, "b": "x"} \t\r\n',
    '{"a": 1, "b": "}{"}',
    '{"a": 1, "b": "x", "more": {"deep": {}}}',
    '{"a": 1, "more": {"x": 1}, "b": "x"}',
    '{"a": 1, "list": [{"x": 1}, {"x": 2}]}',
    '{"a": null}',
    "{}",
    '{"b": "\\" } { \\""}',
    '{"a": 1, "b": "}"}',
]
REFUSED = {
    '{"a": 1}{"a": 2}': _NOT_ONE,
    '{"a": 1} {"a": 2}': _NOT_ONE,
    '{"a": 1}, {"a": 2}': _NOT_ONE,
    '{"a": 1} trailing': _NOT_ONE,
    '{"a": 1} trailing}': _NOT_ONE,
    '{"a": 1}}': _NOT_ONE,
    '{"a": 1} "b" {}': _NOT_ONE,
    'leading {"a": 1}': _NOT_ONE,
    '[{"a": 1}]': _NOT_ONE,
    '"text"': _NOT_ONE,
    "1": _NOT_ONE,
    "null": _NOT_ONE,
    '{"a": 1, "b": "tr': _NOT_ONE,
    '{"a": 1,, "b": "x"}': "the value is not valid JSON",
    '{"a": "one"}': 'a is not INT: "one"',
    '{"a": {"x": 1}}': 'a is not INT: {"x": 1}}',
    '{"a": 1, "of": "x"}': 'of is not STRUCT<remoteIp: STRING, of: MAP<STRING, ARRAY<INT>>>: "x"',
    '\ufeff{"a": 1}': _NOT_ONE,
    "": "the value is empty",
    "  \t ": "the value is empty",
}


@pytest.fixture(scope="module")
def decoded(spark: SparkSession) -> list[tuple[str, str | None]]:
    values = [*GOOD, *REFUSED]
    schema = T.StructType.fromDDL(_RAW)
    rows = [("t", 0, offset, None, None, value.encode(), None) for offset, value in enumerate(values)]
    declared = topic("t", schema=_SCHEMA)
    decoder = RecordDecoder(declared, [], origin=False)
    decoded = decoder.decode(decoder.locate(spark.createDataFrame(rows, schema)))
    frame = decoded.rejected(decoded.frame)
    reasons = F.array_join(F.transform(PROBLEMS, lambda problem: problem["reason"]), "; ")
    found = frame.select(F.col("_raw").cast("string"), reasons, BAD).collect()
    assert all(row[2] == bool(row[1]) for row in found), "what is seen to be bad is what has a reason"
    return [(row[0], row[1] or None) for row in found]


@pytest.mark.story
@pytest.mark.parametrize("value", GOOD)
def test_decode_one_object_is_a_record(decoded: list[tuple[str, str | None]], value: str) -> None:
    assert dict(decoded)[value] is None


@pytest.mark.story
@pytest.mark.parametrize("value", REFUSED)
def test_decode_anything_else_is_refused_with_its_reason(
    decoded: list[tuple[str, str | None]], value: str
) -> None:
    assert dict(decoded)[value] == REFUSED[value]


_TEXTS = {
    "ascii": b"x",
    "two bytes": "\u00e9".encode(),
    "three bytes": "\u20ac".encode(),
    "four bytes": "\U0001f600".encode(),
    "the replacement character itself": "\ufffd".encode(),
    "the greatest code point": "\U0010ffff".encode(),
}
_NOT_TEXTS = {
    "a continuation alone": b"\x80",
    "never a byte of UTF-8": b"\xff\xfe",
    "too long a form of a slash": b"\xc0\xaf",
    "half of a surrogate pair": b"\xed\xa0\x80",
    "beyond the greatest code point": b"\xf4\x90\x80\x80",
    "cut off": b"\xe2\x82",
    "Latin-1": "\u00e9".encode("latin-1"),
}


def test_decode_bytes_that_are_not_utf8_are_refused_and_no_others(spark: SparkSession) -> None:
    forms = [b'{"a": 1, "b": "<>"}', b'{"b": "<>", "more": {"deep": {}}}', b'{"<>": 1} \n']
    values = {
        (form, name): form.replace(b"<>", b"p" + text + b"q")
        for form in forms
        for name, text in {**_TEXTS, **_NOT_TEXTS}.items()
    }
    rows = [("t", 0, offset, None, None, value, None) for offset, value in enumerate(values.values())]
    decoder = RecordDecoder(topic("t", schema="a INT, b STRING"), [], origin=False)
    decoded = decoder.decode(decoder.locate(spark.createDataFrame(rows, _RAW)))
    found = decoded.rejected(decoded.frame).orderBy("_offset").select(BAD, f"{PROBLEMS}.reason").collect()
    for (form, name), (bad, reasons) in zip(values, found, strict=True):
        assert bad == (name in _NOT_TEXTS), (form, name)
        assert reasons == (["the value is not UTF-8"] if bad else []), (form, name)


@pytest.mark.parametrize("form", ["json", "csv"])
def test_time_of_day_is_no_time_of_the_day_on_which_it_is_read(spark: SparkSession, form: str) -> None:
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    times = {
        "10:00:00": False, "T10:00": False, " 9:00": False, "10:00:00Z": False, f"{today}T10:00:00Z": True,
        f"{today} 23:59": True, f"{today}T00:00:00+01:00": True, "2050-01-01 10:00": True, "2013-01-01": True,
    }  # fmt: skip
    if form == "json":
        values = [f'{{"a": "{today}", "t": "{time}"}}' for time in times]
        values += ['{"t": 4000000000}', f'{{"t":"{today}T10:00:00Z"}}', '{"t":"10:00"}', '{"t": null}']
        good = [*times.values(), True, True, False, True]
    else:
        values, good = [f"{today},{time}" for time in times], list(times.values())
    declared = topic("t", schema="a STRING, t TIMESTAMP", format=None if form == "json" else csv())
    found = reasons_of(spark, declared, values)
    assert [not reason for reason in found] == good, list(zip(values, found, strict=True))
    assert all(reason.startswith("t is a time of day without a date: ") for reason in found if reason)


def test_milliseconds_in_json_are_no_time_of_the_year_57000(spark: SparkSession) -> None:
    declared = topic("t", schema="a INT, at TIMESTAMP, t TIMESTAMP, u TIMESTAMP", event_time="at")
    values = {
        '{"at": 1700000000, "t": 1700000000, "u": null}': "",
        '{"at": 1700000000, "t": 1700000000000}': "t is not of the years 1 to 9999: +55840-11-08 22:13:20",
        '{"at": 1700000000, "u": -99999999999}': "u is not of the years 1 to 9999: -1199-02-15 14:13:21",
        '{"at": 1700000000, "t": "9999-12-31T23:59:59Z", "u": "0001-01-01T00:00:00Z"}': "",
    }
    assert reasons_of(spark, declared, values) == list(values.values())


def reasons_of(spark: SparkSession, declared: TopicInput, values: Iterable[str]) -> list[str]:
    rows = [("t", 0, offset, None, None, value.encode(), None) for offset, value in enumerate(values)]
    decoder = RecordDecoder(declared, [], origin=False)
    decoded = decoder.decode(decoder.locate(spark.createDataFrame(rows, T.StructType.fromDDL(_RAW))))
    reasons = F.array_join(F.transform(PROBLEMS, lambda problem: problem["reason"]), "; ")
    found = decoded.rejected(decoded.frame).orderBy("_offset").select(reasons, BAD).collect()
    assert all(row[1] == bool(row[0]) for row in found), "what is seen to be bad is what has a reason"
    return [row[0] for row in found]


def test_rejected_row_of_a_table_has_its_times_whole(spark: SparkSession) -> None:
    """Spark's own texts of times in JSON are of milliseconds."""
    at = datetime(2024, 2, 29, 10, 0, 0, 123456)
    kinds = [T.StructField("at", T.TimestampType()), T.StructField("local", T.TimestampNTZType())]
    rows = spark.createDataFrame([("t", 0, 0, at, None, at, at)], T.StructType([*ROW_FIELDS, *kinds]))
    decoder = RowDecoder(table("silver.rows"), ["at", "local"], [])
    row = decoder.decode(decoder.locate(rows)).frame.select(RAW).first()
    assert row is not None
    written = {"at": "2024-02-29T10:00:00.123456Z", "local": "2024-02-29T10:00:00.123456"}
    assert json.loads(row[RAW]) == written
