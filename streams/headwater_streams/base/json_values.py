"""Reads JSON that Spark wrote without losing digits: a DECIMAL becomes a text.

Python's `json` makes a float of each number with a fraction, which holds some 17 digits of the 38 that a DECIMAL has.
"""

import json
from decimal import Decimal
from typing import Any

from pyspark.sql import types as T


def exact_number(text: str) -> float | str:
    """A number of JSON with a fraction or an exponent; one that no float holds exactly stays a text.

    Example:
        >>> exact_number("2.5"), exact_number("0.12345678901234567890123")
        (2.5, '0.12345678901234567890123')
    """
    value = float(text)
    return value if Decimal(repr(value)) == Decimal(text) else text


def exact_values(text: str, schema: T.StructType) -> dict[str, Any]:
    """The values of a struct that Spark's `to_json` wrote: a DECIMAL is a text with all its digits, and no exponent.

    Example:
        >>> exact_values('{"a": 1E-7, "b": 0.5}', T.StructType().add("a", "decimal(9,8)").add("b", "double"))
        {'a': '0.0000001', 'b': 0.5}
    """
    value: dict[str, Any] = _exact(json.loads(text, parse_float=Decimal), schema)
    return value


def _exact(value: Any, kind: T.DataType | None) -> Any:
    """A value of a type; a VARIANT has none, and its value is what the JSON says."""
    if isinstance(kind, T.DecimalType) and isinstance(value, int | Decimal):
        return format(Decimal(value), "f")
    if isinstance(value, Decimal):
        return float(value) if isinstance(kind, T.FloatType | T.DoubleType) else exact_number(str(value))
    if isinstance(value, list):
        element = kind.elementType if isinstance(kind, T.ArrayType) else None
        return [_exact(each, element) for each in value]
    if isinstance(value, dict):
        kinds = (
            {field.name: field.dataType for field in kind.fields} if isinstance(kind, T.StructType) else {}
        )
        other = kind.valueType if isinstance(kind, T.MapType) else None
        return {name: _exact(each, kinds.get(name, other)) for name, each in value.items()}
    return value
