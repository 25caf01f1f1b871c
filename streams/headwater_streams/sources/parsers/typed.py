"""Texts as values of other types, for every format that has texts: CSV, key=value and templates.

A text is a value of a type only where it says exactly that value. Spark's casts take the day of `2024-02-29x` and drop
what follows, round `1.239` for a DECIMAL of two places, and make infinity of `1e400`. docs/reference/values.md has the
rules.

There are no lambdas here: Spark copies each row before and after an expression with one.
"""

import sys

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.base.text_forms import (
    DATE,
    DECIMAL,
    LOCAL_TIME,
    MINUTES,
    NO_DECIMAL,
    decimal_of,
    whole,
)

NUMBER = f"{DECIMAL}|{NO_DECIMAL}"
"""A number with a fraction, and what is none."""


def typed(text: Column, kind: T.DataType) -> Column:
    """A text as a value of a type that is no list, map or struct; NULL where it is no value of it."""
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
    """A text that is a `NUMBER` as DOUBLE or FLOAT, else NULL. Spark would also take Java's `5d` and `0x1p3`, and make
    infinity of a number that is too great for the type."""
    most = sys.float_info.max

    value = text.try_cast(kind)
    decimal_form = text.rlike(whole(DECIMAL))
    # Java accepts characters below the blank around a number, a letter behind it, and hexadecimal digits behind an x.
    has_digits = (text >= F.lit("!")) & F.right(text, F.lit(1)).isin(*"0123456789.")
    is_plain = has_digits & ~F.contains(text, F.lit("x")) & ~F.contains(text, F.lit("X"))
    is_in_range = F.when(is_plain | decimal_form, value.between(-most, most))
    return F.when(is_in_range.otherwise(text.rlike(rf"\A{NO_DECIMAL}\z")), value)


def decimal(text: Column, kind: T.DecimalType) -> Column:
    """A text that is a decimal number as DECIMAL; NULL where it would have to be rounded."""
    places = F.char_length(text) - F.instr(text, ".")
    is_short = (places <= kind.scale) | ~F.contains(text, F.lit("."))
    has_exponent = F.contains(text, F.lit("e")) | F.contains(text, F.lit("E"))
    is_exact = F.when(is_short & ~has_exponent, F.lit(True)).otherwise(text.rlike(decimal_of(kind.scale)))
    return F.when(is_exact, text.try_cast(kind))


def dated(text: Column) -> Column:
    """A text that begins with a date whose year has four digits, else NULL. Spark would take a time of day for one of
    the current day, a longer number for a year, and a year or a month for its first day."""
    is_date = (F.substring(text, 5, 1) == "-") & F.contains(F.substring(text, 7, 2), F.lit("-"))
    return F.when(is_date, text)


def date(text: Column) -> Column:
    """The day of an ISO 8601 date; NULL where a time of day other than midnight would be lost."""
    # A text of ten octets with its second hyphen at this place ends with the day, or with the letter of a time.
    is_plain = (F.octet_length(text) == 10) & _has(text, "-", 8) & ~text.endswith("T")
    is_date = is_plain | text.rlike(DATE)
    return F.when(is_date, text.try_cast("date"))


def iso_time(text: Column) -> Column:
    """The time of an ISO 8601 date, with or without a time of day; NULL if it is none.

    A comma may stand before the fraction, and a blank before the zone. Spark accepts neither the comma nor a zone
    behind minutes. A TIMESTAMP has microseconds: further digits are cut off.
    """
    point = F.replace(dated(F.trim(text)), F.lit(","), F.lit("."))
    other = F.try_to_timestamp(F.regexp_replace(point, MINUTES, "$1:00$2"))
    return F.coalesce(F.try_to_timestamp(dated(text)), other)


def local_time(text: Column) -> Column:
    """An ISO 8601 time that has no zone as TIMESTAMP_NTZ; NULL where it has one, which would be lost."""
    # A text of 19 octets with its marks at these places ends with the seconds, or with the letter of a zone.
    is_plain = (F.octet_length(text) == 19) & _has(text, "-", 8) & _has(text, ":", 17) & ~text.endswith("Z")
    is_local = text.rlike(LOCAL_TIME)
    plain, other = (
        each.try_cast("timestamp_ntz") for each in (text, F.replace(text, F.lit(","), F.lit(".")))
    )
    return F.when(is_plain, plain).when(is_local, other)


def _has(text: Column, mark: str, place: int) -> Column:
    return F.locate(mark, text, place) == place
