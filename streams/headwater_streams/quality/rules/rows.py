"""Rules on single rows: SQL conditions, made of a column and what it may hold."""

import re
from collections.abc import Iterable

from headwater_streams.base.at_most import AtMost
from headwater_streams.base.check import InvalidCheckError
from headwater_streams.base.durations import interval_sql, parse_duration
from headwater_streams.base.names import quoted
from headwater_streams.base.rule import BatchRule, RowRule
from headwater_streams.quality.rules.literals import literal

_CASTS = {
    "integer": "BIGINT",
    "decimal": "DECIMAL(38,18)",
    "number": "DOUBLE",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "boolean": "BOOLEAN",
}
_FORMS = {
    "uuid": "(?i)^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$",
    "email": r"^[^@\s]+@[^@\s]+\.[^@\s.]+$",
    "ipv4": r"^((25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])\.){3}(25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])$",
}
_SHOWN = 8


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
    sql = f"count_if({quoted(column)} IS NULL) * {bound.share.denominator} <= count(1) * {bound.share.numerator}"
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
    shown = ", ".join(map(str, allowed[:_SHOWN])) + (", …" if len(allowed) > _SHOWN else "")
    sql = f"{quoted(column)} IN ({', '.join(map(literal, allowed))})"
    return _passing_null(column, f"{column} is one of {shown}", sql)


def matches(column: str, pattern: str) -> RowRule:
    """Some part of the text matches a regular expression of Java's; `^` and `$` hold it to all of it.

    Example:
        >>> print(matches("tail", r"^N[0-9]").condition)
        (`tail` IS NULL OR `tail` RLIKE '^N[0-9]')
    """
    if not isinstance(pattern, str) or not pattern:
        raise InvalidCheckError(f"matches: {pattern!r} is no regular expression")
    return _passing_null(column, f"{column} matches {pattern}", f"{quoted(column)} RLIKE {literal(pattern)}")


def between(column: str, low: object = None, high: object = None) -> RowRule:
    """The value is not below `low` and not above `high`; one of the two may be left out.

    Example:
        >>> print(between("delay", -60, 1440).condition, between("delay", high=1440).text)
        (`delay` IS NULL OR (`delay` >= -60 AND `delay` <= 1440)) delay is at most 1440
    """
    sql, bounds = _bounds(quoted(column), low, high, "between")
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

    Example:
        >>> print(text_of("amount", "DECIMAL(10,2)").condition)
        (`amount` IS NULL OR try_cast(`amount` AS DECIMAL(10,2)) IS NOT NULL)
    """
    name = quoted(column)
    if kind in _FORMS:
        sql = f"{name} RLIKE {literal(_FORMS[kind])}"
    elif kind == "json":
        sql = f"try_parse_json({name}) IS NOT NULL"
    elif kind in _CASTS or re.fullmatch(r"[A-Z]+(\([0-9]+(,\s*[0-9]+)?\))?", kind):
        sql = f"try_cast({name} AS {_CASTS.get(kind, kind)}) IS NOT NULL"
    else:
        kinds = ", ".join([*_CASTS, "json", *_FORMS])
        raise InvalidCheckError(
            f"text_of: {kind!r} is none of {kinds}, nor a type of SQL such as DECIMAL(10,2)"
        )
    return _passing_null(column, f"{column} is the text of {kind}", sql)


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


def _bounds(value: str, low: object, high: object, maker: str) -> tuple[str, str]:
    if low is None and high is None:
        raise InvalidCheckError(f"{maker}: give low=, high= or both")
    if low is None:
        return f"{value} <= {literal(high)}", f"at most {high}"
    if high is None:
        return f"{value} >= {literal(low)}", f"at least {low}"
    try:
        swapped = low > high  # type: ignore[operator]  # values of two types are Spark's to judge
    except TypeError:
        swapped = False
    if swapped:
        raise InvalidCheckError(f"{maker}: {low} is above {high}")
    return f"({value} >= {literal(low)} AND {value} <= {literal(high)})", f"between {low} and {high}"
