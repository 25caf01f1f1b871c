"""Arrow columns to plain values: each type's form, nulls, slices, nesting."""

import datetime as dt
import json
import math
import random
import uuid
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest

from amount import drawn_seed
from headwater.sql.output import json_text
from headwater.sql.result import Result, unique_names
from headwater.sql.values import iso_duration, plain_values

UTC = dt.UTC


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([1, None, 2**63 - 1]), [1, None, 2**63 - 1]),
        (pa.array([True, None]), [True, None]),
        (pa.array([None, None]), [None, None]),
        (
            pa.array([Decimal("12.50"), None, Decimal("0.0000000001")]),
            ["12.5000000000", None, "0.0000000001"],
        ),
        (
            pa.array([0, 1_500_000, -1, None], pa.timestamp("us", "UTC")),
            ["1970-01-01T00:00:00Z", "1970-01-01T00:00:01.500000Z", "1969-12-31T23:59:59.999999Z", None],
        ),
        (pa.array([1], pa.timestamp("s")), ["1970-01-01T00:00:01Z"]),
        (pa.array([1], pa.timestamp("ms", "UTC")), ["1970-01-01T00:00:00.001000Z"]),
        (pa.array([1_999], pa.timestamp("ns")), ["1970-01-01T00:00:00.000001Z"]),
        (pa.array([2**63 - 1, -(2**63) + 1], pa.timestamp("us")), [None, None]),
        (pa.array([dt.date(2013, 1, 1), None]), ["2013-01-01", None]),
        (pa.array([2**31 - 1], pa.date32()), [None]),
        (pa.array([dt.time(10, 0), dt.time(10, 0, 0, 5)]), ["10:00:00", "10:00:00.000005"]),
        (pa.array([dt.timedelta(days=1, hours=2), dt.timedelta(seconds=-1)]), ["P1DT2H", "PT-1S"]),
        (pa.array([b"\xff\x00", None]), ["/wA=", None]),
        (pa.array([b"ab", None], pa.binary(2)), ["YWI=", None]),
        (pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
        (pa.array([[1], None, [], [2, None]]), [[1], None, [], [2, None]]),
        (pa.array([[1, 2], None], pa.list_(pa.int32(), 2)), [[1, 2], None]),
        (
            pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": None}]),
            [{"a": 1, "b": "x"}, None, {"a": None, "b": None}],
        ),
        (pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int8())), [{"k": 1}, None, {}]),
        (pa.array([[(7, 1)]], pa.map_(pa.int8(), pa.int8())), [{"7": 1}]),
        (pa.array([[{"t": dt.datetime(2013, 1, 1, tzinfo=UTC)}]]), [[{"t": "2013-01-01T00:00:00Z"}]]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_plain_values_of_each_type(array, expected):
    assert plain_values(array) == expected


@pytest.mark.parametrize(
    "array",
    [
        pa.array([[1, 2], None, [], [3], [4, 5, 6]]),
        pa.array([{"a": [1]}, None, {"a": None}, {"a": [2, 3]}, {"a": []}]),
        pa.array(
            [[("k", [1])], None, [], [("m", [2, 3])], [("n", None)]],
            pa.map_(pa.string(), pa.list_(pa.int8())),
        ),
        pa.array([0, None, 2, 3, 4], pa.timestamp("us", "UTC")),
    ],
    ids=lambda array: str(array.type),
)
def test_plain_values_of_a_slice_are_the_slice_of_the_values(array):
    whole = plain_values(array)
    for start in range(len(array)):
        for length in range(len(array) - start + 1):
            assert plain_values(array.slice(start, length)) == whole[start : start + length]


def test_plain_values_of_text_that_is_not_utf8_are_replaced_not_refused():
    array = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0\4\0\0\0"), pa.py_buffer(b"ok\xff\xfe")]
    )
    assert plain_values(array) == ["ok", "��"]


def test_plain_values_for_people_show_bytes_as_text():
    assert plain_values(pa.array([b'{"a":1}', b"\xff"]), readable_bytes=True) == ['{"a":1}', "\\xff"]


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({"months": 0, "days": 0, "micros": 0}, "PT0S"),
        ({"months": 14, "days": 3, "micros": 3_661_000_001}, "P1Y2M3DT1H1M1.000001S"),
        ({"months": -14, "days": -3, "micros": -3_661_500_000}, "P-1Y-2M-3DT-1H-1M-1.5S"),
        ({"months": 0, "days": 0, "micros": -500_000}, "PT-0.5S"),
        ({"months": 0, "days": 2, "micros": -1_000_000}, "P2DT-1S"),
    ],
)
def test_iso_duration_keeps_each_parts_sign(parts, text):
    assert iso_duration(**parts) == text


def test_plain_values_of_duckdb_types_keep_their_meaning():
    with duckdb.connect() as connection:
        connection.execute("SET arrow_lossless_conversion = true")
        table = connection.sql(
            """SELECT 170141183460469231731687303715884105727::HUGEINT AS big, (-1)::HUGEINT AS minus,
                      340282366920938463463374607431768211455::UHUGEINT AS huge, [3::HUGEINT] AS bigs,
                      {'a': 2::HUGEINT} AS inside, true AS yes, INTERVAL '1 month 26 hours' AS span,
                      '00000000-0000-0000-0000-000000000007'::UUID AS id, '{"a": 1}'::JSON AS doc,
                      'infinity'::TIMESTAMP AS never, 1.5 AS exact, sum(1) AS total"""
        ).to_arrow_table()
    assert next(Result.from_arrow(table).objects()) == {
        "big": 2**127 - 1,
        "minus": -1,
        "huge": 2**128 - 1,
        "bigs": [3],
        "inside": {"a": 2},
        "yes": True,
        "span": "P1MT26H",
        "id": str(uuid.UUID(int=7)),
        "doc": '{"a": 1}',
        "never": None,
        "exact": "1.5",
        "total": 1,
    }


def test_timestamps_agree_with_datetime_over_random_moments():
    seed = drawn_seed()
    rng = random.Random(seed)
    micros = [rng.randrange(-(10**16), 10**17) for _ in range(500)]
    epoch = dt.datetime(1970, 1, 1, tzinfo=UTC)
    expected = [
        (epoch + dt.timedelta(microseconds=each)).isoformat().replace("+00:00", "Z") for each in micros
    ]
    assert plain_values(pa.array(micros, pa.timestamp("us", "UTC"))) == expected


def test_unique_names_number_repeats_without_taking_a_later_name():
    assert unique_names(["a", "a", "a_1", "a"]) == ("a", "a_2", "a_1", "a_3")


def test_result_of_many_chunks_gives_each_row_once():
    table = pa.table({"n": pa.chunked_array([list(range(10_000)), list(range(10_000, 20_001))])})
    assert [row["n"] for row in Result.from_arrow(table).objects()] == list(range(20_001))


def test_json_text_turns_what_json_lacks_into_null_at_any_depth():
    text = json_text({"a": math.nan, "b": [math.inf, 1.5], "c": {"d": -math.inf}, "e": 10**30})
    assert text == '{"a": null, "b": [null, 1.5], "c": {"d": null}, "e": 1000000000000000000000000000000}'
    assert json.loads(text)["e"] == 10**30
