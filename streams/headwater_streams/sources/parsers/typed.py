"""Texts as values of other types, for every format that has texts: CSV, key=value and templates.

A text is a value of a type only where it says that value: Spark's casts take the day of `2024-02-29x` apart from what
follows it, round `1.239` for a DECIMAL of two places, and make infinity of `1e400`. docs/values.md has the rules.

What few texts need is in lambdas, which are not compiled: Java compiles no method of more than 8,000 bytes of code, and
one that Spark makes has the expressions of all columns.
"""

import sys

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.sources.parsers.parser import let

_DECIMAL = r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?"
_NO_DECIMAL = "(?i:NaN|[+-]?Inf(?:inity)?)"
NUMBER = f"{_DECIMAL}|{_NO_DECIMAL}"
"""A number with a fraction, and what IEEE 754 has beside numbers, which Spark takes in JSON, too."""
_SMALL = r"\A[ \t]*+[+-]?(?:[0-9]{1,18}+(?:\.[0-9]*+)?|\.[0-9]++)[ \t]*+\z"
"""A number without an exponent that every type with a fraction can hold."""
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

    def checked(value: Column) -> Column:
        is_decimal = text.rlike(rf"\A[ \t]*+(?:{_DECIMAL})[ \t]*+\z")
        return F.when(value.between(-most, most), F.when(is_decimal, value)).when(
            text.rlike(rf"\A{_NO_DECIMAL}\z"), value
        )

    return F.when(text.rlike(_SMALL), text.try_cast(kind)).otherwise(let(text.try_cast(kind), checked))


def decimal(text: Column, kind: T.DecimalType) -> Column:
    """A text that is a decimal number as DECIMAL, NULL where that would have to round it."""
    places = F.char_length(text) - F.instr(text, ".")
    is_short = (places <= kind.scale) | ~F.contains(text, F.lit("."))
    has_exponent = F.contains(text, F.lit("e")) | F.contains(text, F.lit("E"))
    is_plain = is_short & ~has_exponent
    has_places = let(text, lambda known: _has_places(known, kind.scale))
    return F.when(F.when(is_plain, is_plain).otherwise(has_places), text.try_cast(kind))


def _has_places(text: Column, scale: int) -> Column:
    """Whether a decimal number is 0 or a multiple of the scale's last place, whatever its exponent."""
    whole = r"\A\s*[+-]?([0-9]*)\.?([0-9]*)(?:[eE]([+-]?[0-9]{1,9}))?\s*\z"
    before, after, power = (F.regexp_extract(text, whole, group) for group in (1, 2, 3))
    digits = F.concat(before, after)
    zeros = F.char_length(digits) - F.char_length(F.rtrim(digits, F.lit("0")))
    places = F.char_length(after) - zeros - F.coalesce(power.try_cast("int"), F.lit(0))
    return text.rlike(whole) & ((places <= scale) | (zeros == F.char_length(digits)))


def dated(text: Column) -> Column:
    """A text that begins with a date of four digits for its year, else NULL: Spark takes a time of day for one of the
    day on which it is read, a longer number for a year, and a year or a month for its first day."""
    is_date = (F.substring(text, 5, 1) == "-") & F.contains(F.substring(text, 7, 2), F.lit("-"))
    return F.when(is_date, text)


def date(text: Column) -> Column:
    """The day of an ISO 8601 date, NULL where a time of day beside midnight would be lost."""
    is_plain = (F.char_length(text) == 10) & (F.substring(text, 8, 1) == "-")
    is_date = is_plain | text.rlike(rf"\A[ \t]*+{_DAY}(?:{_MIDNIGHT})?[ \t]*+\z")
    return F.when(is_date, text.try_cast("date"))


def iso_time(text: Column) -> Column:
    """The time of an ISO 8601 date, with its time of day or without; NULL if it is none.

    A comma may stand before the fraction, and a blank before the zone. Spark takes neither the comma nor a zone behind
    minutes. Microseconds are what a TIMESTAMP has: digits beyond are cut off.
    """
    minutes = r"\A(\S{8,10}[T ][0-9]{1,2}:[0-9]{1,2})([ \t]*+[A-Z+-])"

    def of_other_forms(known: Column) -> Column:
        point = F.replace(dated(known), F.lit(","), F.lit("."))
        return F.try_to_timestamp(F.regexp_replace(point, minutes, "$1:00$2"))

    return F.coalesce(F.try_to_timestamp(dated(text)), let(F.trim(text), of_other_forms))


def local_time(text: Column) -> Column:
    """An ISO 8601 time that has no zone as TIMESTAMP_NTZ; NULL where it has one, which would be lost."""
    is_local = text.rlike(rf"\A[ \t]*+{_DAY}(?:[T ]{_CLOCK})?[ \t]*+\z")
    return F.when(is_local, F.replace(text, F.lit(","), F.lit(".")).try_cast("timestamp_ntz"))
