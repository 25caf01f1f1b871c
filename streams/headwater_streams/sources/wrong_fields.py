"""The reason for a field whose text is no value of its type: the field, its type and the text."""

from collections.abc import Iterable

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.base.type_name import type_name

_MOST_CHARACTERS = 100
TIME_OF_DAY = r"\s*+T?\d{1,2}:"


def excerpt(text: Column) -> Column:
    """The beginning of a text, as reasons quote it."""
    cut = F.concat(F.substring(text, 1, _MOST_CHARACTERS), F.lit("..."))
    return F.when(F.char_length(text) > _MOST_CHARACTERS, cut).otherwise(text)


def is_not(field: T.StructField, text: Column) -> Column:
    """The sentence about a field with this text."""
    what = F.lit(f"{field.name} is not {type_name(field.dataType)}")
    if isinstance(field.dataType, T.TimestampType):
        is_clock = text.rlike(rf'\A"?{TIME_OF_DAY}')
        what = F.when(is_clock, F.lit(f"{field.name} is a time of day without a date")).otherwise(what)
    return F.concat(what, F.coalesce(F.concat(F.lit(": "), excerpt(text)), F.lit("")))


def wrong_fields(judged: Iterable[tuple[T.StructField, Column, Column]]) -> Column:
    """The sentences about the wrong fields.

    Args:
        judged: Each field, whether it is wrong, and its text.
    """
    sentences = [F.when(wrong, is_not(field, text)) for field, wrong, text in judged]
    named = F.array_join(F.array_compact(F.array(*sentences)), ", ")
    return F.when(named == "", F.lit("the value does not fit the schema")).otherwise(named)
