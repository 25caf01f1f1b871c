"""Texts as values of other types, for every format that has texts: CSV, key=value and templates.

A text is a value of a type only where it says that value: Spark's casts take the day of `2024-02-29x` apart from what
follows it, round `1.239` for a DECIMAL of two places, and make infinity of `1e400`.
docs/reference/values.md has the rules.

There are no lambdas here: with one among its expressions Spark copies each row before and behind it.
"""

import sys

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

_DECIMAL = r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?"
_NO_DECIMAL = "(?i:NaN|[+-]?Inf(?:inity)?)"
NUMBER = f"{_DECIMAL}|{_NO_DECIMAL}"
"""A number with a fraction, and what IEEE 754 has beside numbers, which Spark takes in JSON, too."""
_DAY = "[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
_MIDNIGHT = r"[T ]00:00(?::00(?:[.,]0++)?)?[ ]?(?:Z|UTC|GMT|[+-]00(?::?00)?)?"
_CLOCK = r"[0-9]{1,2}:[0-9]{1,2}(?::[0-9]{1,2}(?:[.,][0-9]*+)?)?"


def typed(text: Column, kind: T.DataType) -> Column:
    """A text as a value of a type that is no list, map or struct; NULL where it is none."""
    if isinstance(kind, T.DoubleType | T.FloatType):
        return number(text, kind)
    if isinstance(kind, T.DecimalType):
        return decimal(text, kind)
    if isinstance(kind, T.TimestampType):
        return iso_time(text)
    if isinstance(kind, T.DateType):
        return date(text)
    if isinstance(kind, T.TimestampNTZType):
        return local_time(text)
    return text.try_cast(kind)


def number(text: Column, kind: T.DataType) -> Column:
    """A text that is a `NUMBER` as DOUBLE or FLOAT, else NULL: Spark takes Java's `5d` and `0x1p3`, too, and one that
    is too great for the type for infinity."""
    most = sys.float_info.max

    value = text.try_cast(kind)
    decimal_form = text.rlike(rf"\A[ \t]*+(?:{_DECIMAL})[ \t]*+\z")
    # Java takes what is less than a blank around a number, a letter behind it, and sixteen digits behind an x.
    has_digits = (text >= F.lit("!")) & F.right(text, F.lit(1)).isin(*"0123456789.")
    is_plain = has_digits & ~F.contains(text, F.lit("x")) & ~F.contains(text, F.lit("X"))
    is_in_range = F.when(is_plain | decimal_form, value.between(-most, most))
    return F.when(is_in_range.otherwise(text.rlike(rf"\A{_NO_DECIMAL}\z")), value)


def decimal(text: Column, kind: T.DecimalType) -> Column:
    """A text that is a decimal number as DECIMAL, NULL where that would have to round it."""
    places = F.char_length(text) - F.instr(text, ".")
    is_short = (places <= kind.scale) | ~F.contains(text, F.lit("."))
    has_exponent = F.contains(text, F.lit("e")) | F.contains(text, F.lit("E"))
    is_exact = F.when(is_short & ~has_exponent, F.lit(True)).otherwise(text.rlike(_of_places(kind.scale)))
    return F.when(is_exact, text.try_cast(kind))


def _of_places(scale: int) -> str:
    """A number without digits behind its scale: with zeros there, with an exponent that moves none there, or 0."""
    zero = r"0*+(?:\.0*+)?(?:[eE][+-]?[0-9]++)?"
    great = rf"[0-9]*+(?:\.[0-9]{{0,{scale}}}0*+)?(?:[eE]\+?[0-9]++)?"
    small = [rf"[0-9]*+(?:\.[0-9]{{0,{scale - power}}}0*+)?[eE]-0*+{power}" for power in range(1, scale + 1)]
    return rf"\A[ \t]*+[+-]?(?:{'|'.join([zero, great, *small])})[ \t]*+\z"


def dated(text: Column) -> Column:
    """A text that begins with a date of four digits for its year, else NULL: Spark takes a time of day for one of the
    day on which it is read, a longer number for a year, and a year or a month for its first day."""
    is_date = (F.substring(text, 5, 1) == "-") & F.contains(F.substring(text, 7, 2), F.lit("-"))
    return F.when(is_date, text)


def date(text: Column) -> Column:
    """The day of an ISO 8601 date, NULL where a time of day beside midnight would be lost."""
    # With its second hyphen there it ends with the day: at most the letter of a time is behind it.
    is_plain = (F.octet_length(text) == 10) & _has(text, "-", 8) & ~text.endswith("T")
    is_date = is_plain | text.rlike(rf"\A[ \t]*+{_DAY}(?:{_MIDNIGHT})?[ \t]*+\z")
    return F.when(is_date, text.try_cast("date"))


def iso_time(text: Column) -> Column:
    """The time of an ISO 8601 date, with its time of day or without; NULL if it is none.

    A comma may stand before the fraction, and a blank before the zone. Spark takes neither the comma nor a zone behind
    minutes. Microseconds are what a TIMESTAMP has: digits beyond are cut off.
    """
    point = F.replace(dated(F.trim(text)), F.lit(","), F.lit("."))
    minutes = r"\A(\S{8,10}[T ][0-9]{1,2}:[0-9]{1,2})([ \t]*+[A-Z+-])"
    other = F.try_to_timestamp(F.regexp_replace(point, minutes, "$1:00$2"))
    return F.coalesce(F.try_to_timestamp(dated(text)), other)


def local_time(text: Column) -> Column:
    """An ISO 8601 time that has no zone as TIMESTAMP_NTZ; NULL where it has one, which would be lost."""
    # With its marks there it ends with the seconds: at most the letter of a zone is behind them.
    is_plain = (F.octet_length(text) == 19) & _has(text, "-", 8) & _has(text, ":", 17) & ~text.endswith("Z")
    is_local = text.rlike(rf"\A[ \t]*+{_DAY}(?:[T ]{_CLOCK})?[ \t]*+\z")
    plain, other = (
        each.try_cast("timestamp_ntz") for each in (text, F.replace(text, F.lit(","), F.lit(".")))
    )
    return F.when(is_plain, plain).when(is_local, other)


def _has(text: Column, mark: str, place: int) -> Column:
    return F.locate(mark, text, place) == place
