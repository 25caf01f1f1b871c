"""Rules on single rows: SQL conditions, made of a column and what it may hold."""

import re
from collections.abc import Iterable
from numbers import Number

from headwater_streams.base.at_most import AtMost
from headwater_streams.base.check import InvalidCheckError
from headwater_streams.base.durations import interval_sql, parse_duration
from headwater_streams.base.names import quoted
from headwater_streams.base.rule import BatchRule, RowRule
from headwater_streams.base.text_forms import (
    DATE,
    DECIMAL,
    LOCAL_TIME,
    MINUTES,
    NO_DECIMAL,
    decimal_of,
    whole,
)
from headwater_streams.quality.rules.literals import compared, literal

_TYPES = {
    "integer": "BIGINT",
    "decimal": "DECIMAL(38,18)",
    "number": "DOUBLE",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "boolean": "BOOLEAN",
}
_OCTET = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_FORMS = {
    "uuid": r"(?i)\A[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}\z",
    "email": r"\A[^@\s]+@[^@\s]+\.[^@\s.]+\z",
    "ipv4": rf"\A({_OCTET}\.){{3}}{_OCTET}\z",
}
_TYPE = re.compile(r"([A-Z_]+)(?:\(([0-9]+)(?:,\s*([0-9]+))?\))?")
_SHOWN = 8
_GREAT = 10**6


def not_null(column: str) -> RowRule:
    """The column has a value.

    Example:
        >>> not_null("carrier").condition
        '`carrier` IS NOT NULL'
    """
    return RowRule(f"{column} is not NULL", (column,), f"{quoted(column)} IS NOT NULL")


def null_share(column: str, at_most: str | float) -> BatchRule:
    """At most this share of a batch's rows have no value in the column.

    Example:
        >>> null_share("tail", "5 %").condition
        'count_if(`tail` IS NULL) * 20 <= count(1) * 1'
    """
    try:
        bound = AtMost.of(at_most)
    except ValueError as error:
        raise InvalidCheckError(str(error)) from error
    if bound.share is None:
        raise InvalidCheckError(f"at_most={at_most!r} is no share of the rows, such as '1 %' or 0.01")
    # Of a share as 1/3 the numbers are so great that a BIGINT would overflow.
    exact = "BD" if bound.share.denominator > _GREAT else ""
    of, part = (f"{number}{exact}" for number in (bound.share.denominator, bound.share.numerator))
    sql = f"count_if({quoted(column)} IS NULL) * {of} <= count(1) * {part}"
    return BatchRule(f"at most {bound} of {column} is NULL", (column,), sql)


def in_set(column: str, values: Iterable[object]) -> RowRule:
    """The column has one of these values.

    Raises:
        InvalidCheckError: There are none, or one is of a type that has no literal.

    Example:
        >>> in_set("carrier", ["AA", "UA"]).condition
        "(`carrier` IS NULL OR `carrier` IN ('AA', 'UA'))"
    """
    if isinstance(values, str):
        raise InvalidCheckError(
            f"in_set: {values!r} is one text; write a list of values, such as ['AA', 'UA']"
        )
    allowed = list(values)
    if not allowed:
        raise InvalidCheckError(f"in_set: {column} may have no value at all; give some")
    if len({isinstance(value, str) for value in allowed}) > 1:
        raise InvalidCheckError(f"in_set: {column} may not have texts and other values in one set")
    shown = ", ".join(map(str, allowed[:_SHOWN])) + (", …" if len(allowed) > _SHOWN else "")
    name = quoted(column)
    sql = compared(name, lambda of: f"{name} IN ({', '.join(map(of, allowed))})")
    return _passing_null(column, f"{column} is one of {shown}", sql)


def matches(column: str, pattern: str) -> RowRule:
    r"""Some part of the text matches a regular expression of Java's; `\A` and `\z` hold it to all of it.

    `$` and `\Z` match before a line break at the end, too.

    Example:
        >>> print(matches("tail", r"\AN[0-9]+\z").condition)
        (`tail` IS NULL OR `tail` RLIKE '\\AN[0-9]+\\z')
    """
    if not isinstance(pattern, str) or not pattern:
        raise InvalidCheckError(f"matches: {pattern!r} is no regular expression")
    return _passing_null(column, f"{column} matches {pattern}", _rlike(quoted(column), pattern))


def between(column: str, low: object = None, high: object = None) -> RowRule:
    """The value is not below `low` and not above `high`; one of the two may be left out. NaN is between no numbers.

    The bounds are taken at the column's type: of a FLOAT column 0.1 is the FLOAT next to it.

    Example:
        >>> print(between("delay", -60, 1440).condition, between("delay", high=1440).text)
        (`delay` IS NULL OR (`delay` >= -60 AND `delay` <= 1440)) delay is at most 1440
    """
    name = quoted(column)
    sql, bounds = _bounds(name, low, high, "between")
    if high is None and _is_number(low):
        sql = f"({sql} AND {name} <= DOUBLE('Infinity'))"  # NaN is above all numbers, and no number
    return _passing_null(column, f"{column} is {bounds}", sql)


def length(column: str, low: int | None = None, high: int | None = None) -> RowRule:
    """The text has so many characters.

    Example:
        >>> print(length("carrier", 2, 2).condition)
        (`carrier` IS NULL OR (length(`carrier`) >= 2 AND length(`carrier`) <= 2))
    """
    sql, bounds = _bounds(f"length({quoted(column)})", low, high, "length")
    return _passing_null(column, f"the length of {column} is {bounds}", sql)


def text_of(column: str, kind: str) -> RowRule:
    """The text is that of an `"integer"`, `"decimal"`, `"number"`, `"date"`, `"timestamp"`, `"boolean"`, `"json"`,
    `"uuid"`, `"email"` or `"ipv4"`, or of any type of Spark's SQL such as `"DECIMAL(10,2)"`.

    What a text is goes by the rules of the parsers: nothing of it is dropped or rounded, see docs/reference/values.md.
    The first three are a BIGINT, a DECIMAL(38,18) and a DOUBLE.

    Example:
        >>> print(text_of("amount", "INT").condition)
        (`amount` IS NULL OR try_cast(`amount` AS INT) IS NOT NULL)
    """
    text = quoted(column)
    if kind in _FORMS:
        sql = _rlike(text, _FORMS[kind])
    elif kind == "json":
        # Spark's parser stops behind the first value. What follows one is not at its place in a list, or not in an
        # object.
        sql = " AND ".join(
            f"try_parse_json(concat({begin}, {text}, {end})) IS NOT NULL"
            for begin, end in (("'['", "']'"), ("""'{"":'""", "'}'"))
        )
    elif (written := _TYPE.fullmatch(_TYPES.get(kind, kind))) is not None:
        sql = _text_of_type(text, written[0], *written.groups())
    else:
        kinds = ", ".join([*_TYPES, "json", *_FORMS])
        raise InvalidCheckError(
            f"text_of: {kind!r} is none of {kinds}, nor a type of SQL such as DECIMAL(10,2)"
        )
    return _passing_null(column, f"{column} is the text of {kind}", sql)


def _text_of_type(text: str, kind: str, name: str, size: str | None, scale: str | None) -> str:
    """The same for a type, as `sources.parsers.typed` reads it: Spark's casts drop, round and add."""
    cast = f"try_cast({text} AS {kind})"
    if name in ("CHAR", "VARCHAR") and size:
        return f"char_length({text}) <= {size}"
    if name in ("DECIMAL", "DEC", "NUMERIC"):
        return _in_order(_exact(text, int(scale or 0)), f"{cast} IS NOT NULL")
    if name in ("FLOAT", "REAL", "DOUBLE"):
        is_number = _in_order(_rlike(text, whole(DECIMAL)), f"abs({cast}) < DOUBLE('Infinity')")
        return f"({is_number} OR {_rlike(text, _NO_DECIMAL)})"
    if name == "DATE":
        return _in_order(_rlike(text, DATE), _in_years(cast, "DATE", "9999-12-31"))
    if name == "TIMESTAMP_NTZ":
        time = f"try_cast(replace({text}, ',', '.') AS {kind})"
        return _in_order(_rlike(text, LOCAL_TIME), _in_years(time, name, "9999-12-31 23:59:59.999999"))
    if name in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        with_seconds = f"regexp_replace(replace(trim({text}), ',', '.'), {literal(MINUTES)}, '$1:00$2')"
        time = f"coalesce({cast}, try_cast({with_seconds} AS {kind}))"
        return _in_order(_rlike(text, _DATED), _in_years(time, name, "9999-12-31 23:59:59.999999Z"))
    return f"{cast} IS NOT NULL"


_NO_DECIMAL = rf"\A{NO_DECIMAL}\z"
_DATED = r"\A[ \t]*+[0-9]{4}-[0-9]{1,2}-"
"""A text that begins with a date. Spark takes a time of day for one of this day, and a year for its first day."""


def _exact(text: str, scale: int) -> str:
    """Nothing of a number is behind so many places, but for zeros."""
    is_short = f"(instr({text}, '.') = 0 OR char_length({text}) - instr({text}, '.') <= {scale})"
    return f"({is_short} AND NOT {_rlike(text, '[eE]')} OR {_rlike(text, decimal_of(scale))})"


def _in_years(time: str, kind: str, last: str) -> str:
    """The years that all readers of tables know."""
    zone = "Z" if last.endswith("Z") else ""
    first = "0001-01-01" + (f" 00:00:00{zone}" if " " in last else "")
    return f"{time} BETWEEN {kind} '{first}' AND {kind} '{last}'"


def _in_order(first: str, then: str) -> str:
    """Both hold; the second is not worked out where the first does not."""
    return f"CASE WHEN {first} THEN {then} ELSE FALSE END"


def _rlike(text: str, pattern: str) -> str:
    return f"{text} RLIKE {literal(pattern)}"


def on_time(column: str, within: str, *, arrived: str = "_timestamp") -> RowRule:
    """The event's time is not further behind its arrival than this.

    Args:
        column: The time of the event.
        within: How far, such as `"5 minutes"`.
        arrived: The column with the time of arrival; by default the record's own.

    Example:
        >>> print(on_time("at", "5 minutes").condition)
        (`at` IS NULL OR `at` >= `_timestamp` - INTERVAL '300.000000' SECOND)
    """
    sql = f"{quoted(column)} >= {quoted(arrived)} - {interval_sql(parse_duration(within))}"
    return _passing_null(column, f"{column} is at most {within} behind its arrival", sql)


def _passing_null(column: str, text: str, sql: str) -> RowRule:
    return RowRule(text, (column,), f"({quoted(column)} IS NULL OR {sql})")


def _is_number(value: object) -> bool:
    return isinstance(value, Number) and not isinstance(value, bool)


def _bounds(value: str, low: object, high: object, maker: str) -> tuple[str, str]:
    if low != low or high != high:
        raise InvalidCheckError(f"{maker}: NaN is no bound")
    if low is None and high is None:
        raise InvalidCheckError(f"{maker}: give low=, high= or both")
    if low is None:
        return compared(value, lambda of: f"{value} <= {of(high)}"), f"at most {high}"
    if high is None:
        return compared(value, lambda of: f"{value} >= {of(low)}"), f"at least {low}"
    try:
        swapped = low > high  # type: ignore[operator]  # values of two types are Spark's to judge
    except TypeError:
        swapped = False
    if swapped:
        raise InvalidCheckError(f"{maker}: {low} is above {high}")
    sql = compared(value, lambda of: f"({value} >= {of(low)} AND {value} <= {of(high)})")
    return sql, f"between {low} and {high}"
