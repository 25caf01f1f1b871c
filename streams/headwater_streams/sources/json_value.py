"""Values that are one JSON object: parsed, and judged."""

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.sources.problems import Problem
from headwater_streams.type_name import type_name

CORRUPT = "_corrupt_record"


def parse_json(text: Column, schema: T.StructType) -> Column:
    """The declared columns of a value, and the text itself in `_corrupt_record` where it does not fit them."""
    whole = T.StructType([*schema.fields, T.StructField(CORRUPT, T.StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    # Else "20240101" would be a date of the year 57385: so many days after 1970, as Spark wrote dates long ago.
    return F.from_json(text, whole, {**options, "enableDateTimeParsingFallback": "false"})


def not_json(text: Column) -> Column:
    """Whether a value's text alone says that it is no JSON object: null, not UTF-8, or none or several of them."""
    # Spark works out both sides of an AND for every row where they share a part, but not the other branch of a WHEN.
    return F.when(_is_flat(text), F.lit(False)).otherwise(
        text.isNull() | ~F.is_valid_utf8(text) | ~_is_one(text, _bare(text))
    )


def json_problem(text: Column, value: Column, schema: T.StructType, unread: Column) -> Problem:
    """What is wrong with a value: null, empty, not UTF-8, not one JSON object, not JSON, or a field of another type.

    Args:
        text: The value.
        value: What was parsed of it.
        schema: The declared columns.
        unread: What `not_json` gave.
    """
    corrupt = value.getField(CORRUPT).isNotNull()
    bare = _bare(text)
    not_one = ~F.coalesce(_is_flat(text), F.lit(False)) & ~_is_one(text, bare)
    reason = (
        F.when(text.isNull(), F.lit("the value is null"))
        .when(bare == "", F.lit("the value is empty"))
        .when(~F.is_valid_utf8(text), F.lit("the value is not UTF-8"))
        .when(not_one & (~_is_object(bare) | ~corrupt), F.lit("the value is not one JSON object"))
        .when(F.try_parse_json(text).isNull(), F.lit("the value is not valid JSON"))
        .otherwise(wrong_fields(lambda name: F.get_json_object(text, f"$['{name}']"), value, schema))
    )
    return Problem("value", unread | corrupt, reason)


def _is_flat(text: Column) -> Column:
    """Whether it is UTF-8 whose last character is the first brace that closes: one object at most.

    It is seen without parsing, and without Spark's own functions on text, which go from byte to byte: `split` makes a
    string of Java's, in which what is not UTF-8 is replaced, and Java decodes, finds a character and encodes in long
    strides.
    """
    before = F.get(F.split(text, "}", 2), F.lit(0))
    return (F.concat(before, F.lit("}")) == text) & text.startswith("{")


def _bare(text: Column) -> Column:
    return F.btrim(text, F.lit(" \t\r\n"))


def _is_object(bare: Column) -> Column:
    return bare.startswith("{") & bare.endswith("}")


def _is_one(text: Column, bare: Column) -> Column:
    # Spark's parser stops after the first object; what follows it would be lost without a word.
    alone = F.json_array_length(F.concat(F.lit("["), text, F.lit("]"))) == 1
    return _is_object(bare) & F.coalesce(alone, F.lit(False))


def wrong_fields(given: Callable[[str], Column], value: Column, schema: T.StructType) -> Column:
    """Which fields are of another type: those of which something is `given`, by name, and nothing in the value."""
    wrong = [
        F.when(
            given(f.name).isNotNull() & value.getField(f.name).isNull(),
            F.lit(f"{f.name} is not {type_name(f.dataType)}"),
        )
        for f in schema.fields
    ]
    named = F.array_join(F.array_compact(F.array(*wrong)), ", ")
    return F.when(named == "", F.lit("the value does not fit the schema")).otherwise(named)
