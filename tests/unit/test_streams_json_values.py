"""Spark's JSON as values, beside Python's decimal."""

import json
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import types as T

from headwater_streams.base.json_values import exact_number, exact_values

DIGITS = "123456789012345678901234567890"


DECIMAL = T.DecimalType(38, 10)


@pytest.mark.parametrize(
    ("kind", "written", "value"),
    [
        (T.DecimalType(30, 0), DIGITS, DIGITS),
        (T.DecimalType(38, 8), f"{DIGITS}.12345678", f"{DIGITS}.12345678"),
        (T.DecimalType(12, 2), "5.00", "5.00"),
        (T.DecimalType(12, 2), "-394306.00", "-394306.00"),
        (DECIMAL, "0E-10", "0.0000000000"),
        (DECIMAL, "1E-10", "0.0000000001"),
        (DECIMAL, "null", None),
        (T.DoubleType(), "0.1", 0.1),
        (T.DoubleType(), "2.0000000000000000E-3", 0.002),  # some Javas write more digits than it takes
        (T.DoubleType(), '"NaN"', "NaN"),
        (T.FloatType(), "1.1", 1.1),
        (T.LongType(), "9007199254740993", 9007199254740993),
        (T.ArrayType(DECIMAL), f"[{DIGITS}.10,null]", [f"{DIGITS}.10", None]),
        (T.MapType(T.StringType(), DECIMAL), f'{{"a":{DIGITS}.10}}', {"a": f"{DIGITS}.10"}),
        (T.StructType().add("d", DECIMAL), f'{{"d":{DIGITS}.1}}', {"d": f"{DIGITS}.1"}),
        (T.VariantType(), f'{{"a":[{DIGITS}.1,2.5,7]}}', {"a": [f"{DIGITS}.1", 2.5, 7]}),
    ],
)  # fmt: skip
def test_value_is_what_was_written(kind: T.DataType, written: str, value: Any) -> None:
    found = exact_values(f'{{"x":{written}}}', T.StructType().add("x", kind))
    assert found == {"x": value}
    assert json.loads(json.dumps(found)) == found, "a verdict keeps it so"
    if isinstance(kind, T.DecimalType) and value is not None:
        assert Decimal(value) == Decimal(written)


def test_number_that_no_float_holds_stays_a_text() -> None:
    assert [exact_number(text) for text in ("0.5", "1E+2", f"0.{DIGITS}")] == [0.5, 100.0, f"0.{DIGITS}"]
