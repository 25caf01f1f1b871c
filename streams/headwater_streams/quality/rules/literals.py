"""Values of Python as literals of Spark's SQL."""

from datetime import date, datetime
from decimal import Decimal
from math import isfinite
from numbers import Integral, Rational, Real

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
