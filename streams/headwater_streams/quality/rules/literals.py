"""Values of Python as literals of Spark's SQL."""

from collections.abc import Callable
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal
from math import isfinite
from numbers import Integral, Rational, Real
from struct import pack, unpack

from headwater_streams.base.check import InvalidCheckError

Value = str | bool | int | float | Decimal | date | datetime


def literal(value: object) -> str:
    """A value as a literal of Spark's SQL.

    Raises:
        InvalidCheckError: It is of a type that has none.

    Example:
        >>> print(literal("it's"), literal(1.5), literal(date(2013, 1, 1)))
        'it\\'s' 1.5D DATE '2013-01-01'
    """
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, Integral):  # NumPy's numbers are none of Python's, or have another repr
        return str(int(value))
    if isinstance(value, Real) and not isinstance(value, Rational):
        number = float(value)
        return f"{number!r}D" if isfinite(number) else f"DOUBLE('{number}')"
    if isinstance(value, Decimal) and value.is_finite():
        return f"{value:f}BD"
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    raise InvalidCheckError(
        f"{value!r} cannot stand in a check; it may be a text, a number, a boolean, a date or a datetime"
    )


def compared(column: str, sql: Callable[[Callable[[object], str]], str]) -> str:
    """A comparison of a column with values, which are taken at the column's type.

    Spark compares a FLOAT with 0.1 as DOUBLEs: the 0.1 that was written is 0.10000000149011612 then, and neither 0.1
    nor at most 0.1. DuckDB and NumPy take such a literal for a FLOAT. `typeof` is of the column and not of a row, so
    Spark's optimizer leaves one of the two comparisons.

    Args:
        column: The column, in SQL.
        sql: Gives the comparison; is called with what makes a value a literal.

    Example:
        >>> compared("`x`", lambda literal: f"`x` <= {literal(0.1)}")
        "IF(typeof(`x`) = 'float', `x` <= 0.1F, `x` <= 0.1D)"
        >>> compared("`x`", lambda literal: f"`x` <= {literal(0.5)}")
        '`x` <= 0.5D'
    """
    of_others, of_float = sql(literal), sql(_float_literal)
    return of_others if of_others == of_float else f"IF(typeof({column}) = 'float', {of_float}, {of_others})"


def _float_literal(value: object) -> str:
    """A value as a literal of a FLOAT, where it is another number as one, and not too great for one nor too small."""
    text = literal(value)
    if isinstance(value, bool) or not isinstance(value, Real | Decimal):
        return text
    with suppress(OverflowError):
        (nearest,) = unpack("f", pack("f", value))
        if nearest not in (0, value) and isfinite(nearest):
            return f"{text.removesuffix('BD').removesuffix('D')}F"
    return text
