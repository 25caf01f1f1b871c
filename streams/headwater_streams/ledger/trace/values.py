"""Rows of Arrow as Python has them, also those with times that Python has not: it ends with the year 9999."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_UNKNOWN = "(a value that Python does not have)"


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """The rows; a time or a date outside of the years 1 to 9999 is a text."""
    try:
        rows: list[dict[str, Any]] = table.to_pylist()
    except (OverflowError, ValueError):
        columns = [_values(column) for column in table.columns]
        rows = [dict(zip(table.column_names, values, strict=True)) for values in zip(*columns, strict=True)]
    return rows


def _values(column: pa.ChunkedArray) -> list[Any]:
    return [_value(each) for each in column]


def _value(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        kind = value.type
        if pa.types.is_timestamp(kind):
            return str(pc.cast(value.cast(pa.timestamp(kind.unit)), pa.string()))
        if pa.types.is_date(kind):
            return str(pc.cast(value, pa.string()))
        return _UNKNOWN
