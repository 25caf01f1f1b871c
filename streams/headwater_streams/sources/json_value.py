"""Values that are one JSON object: parses them, and checks them."""

from collections.abc import Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.base.type_name import type_name
from headwater_streams.sources.json_doubt import (
    doubtful,
    has_far_exponent,
    has_further_digits,
    token,
    wider_decimal,
)
from headwater_streams.sources.nested import kinds_within
from headwater_streams.sources.parsers.parser import let
from headwater_streams.sources.parsers.typed import decimal, typed
from headwater_streams.sources.problems import Problem
from headwater_streams.sources.read_types import Detour, misread, read_fields
from headwater_streams.sources.wrong_fields import wrong_fields
from headwater_streams.spark.java_text import JavaText

CORRUPT = "_corrupt_record"
_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": CORRUPT,
    # Else "20240101" would be a date of the year 57385: that many days after 1970, an old form of Spark's.
    "enableDateTimeParsingFallback": "false",
    # Most locales skip a comma in a text that is a DECIMAL: "1,5" is 15. The Swiss write 1\u2019000.5.
    "locale": "de-CH",
}
_WHOLE_CHARACTERS = (
    r"(?:[^\\]++|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\(?!u[dD][89a-fA-F]).)*+"
)
"""A text without an escape that is half of a surrogate pair: it is no character, and would become a question mark."""

_NO_JSON = "-"
_SURE_CHARACTERS = 16
"""A DOUBLE with no more characters has all digits that were sent: it loses none of up to 15."""
_OBJECTS = T.ArrayType(T.StructType([]))


def json_detour(kind: T.DataType, within: bool) -> Detour | None:
    """How Spark's parser of JSON is to read a type whose values it would change."""
    if isinstance(kind, T.ByteType):
        return Detour(T.ShortType(), lambda value: value.try_cast(kind))
    if isinstance(kind, T.DecimalType):
        return _decimal_detour(kind, within)
    if isinstance(kind, T.DateType | T.TimestampNTZType):
        return Detour(T.StringType(), lambda text: typed(text, kind))
    return None


def _decimal_detour(kind: T.DecimalType, within: bool) -> Detour:
    wider = None if within else wider_decimal(kind)
    if wider is not None:
        return Detour(wider, lambda value: value.try_cast(kind), lambda read, value: ~read.eqNullSafe(value))

    # A VARIANT has all digits, except of a number with an exponent, which is a DOUBLE; it costs much more.
    def of_variant(value: Column) -> Column:
        text = F.try_variant_get(value, "$", "string")
        is_double = F.schema_of_variant(value) == "DOUBLE"
        is_sure = F.contains(text, F.lit("E")) & (F.char_length(text) <= _SURE_CHARACTERS)
        return F.when(~is_double | is_sure, decimal(text, kind))

    return Detour(T.VariantType(), of_variant)


def no_json(kind: T.DataType) -> str | None:
    """Why values of a type cannot stand in JSON, as the end of a sentence about a column; None if they can."""
    for each in kinds_within(kind):
        if isinstance(each, T.MapType) and not isinstance(each.keyType, T.StringType):
            of_texts = type_name(T.MapType(T.StringType(), each.valueType))
            return (
                f"is {type_name(each)}, and the names in an object of JSON are texts; write {of_texts}, and cast its "
                "keys in the job"
            )
    return None


def parse_json(text: Column, schema: T.StructType) -> Column:
    """The columns of a value as `json_detour` reads them, and the text in `_corrupt_record` where it does not fit."""
    fields = read_fields(schema.fields, json_detour)
    return _parsed_as(text, T.StructType([*fields, T.StructField(CORRUPT, T.StringType())]))


def _parsed_as(text: Column, schema: T.StructType) -> Column:
    decimals = [field.name for field in schema.fields if isinstance(field.dataType, T.DecimalType)]
    if decimals:
        text = F.when(has_far_exponent(text, decimals), F.lit(_NO_JSON)).otherwise(text)
    return F.from_json(text, schema, _OPTIONS)


def not_json(text: Column, schema: T.StructType) -> Column:
    """Whether a value's text alone says that it is no JSON object of these columns: it is null, not UTF-8, no object or
    several, has half of a character, or a DECIMAL whose further digits the parser would hide."""
    # Spark works out both sides of an AND for every row where they share a part, but not the other branch of a WHEN.
    no_object = F.when(_is_flat(text), F.lit(False)).otherwise(
        text.isNull() | ~F.is_valid_utf8(text) | ~_is_one(text, _bare(text))
    )
    return no_object | _has_half(text) | has_further_digits(text, schema.fields, _parsed_as)


def json_problem(
    text: Column, value: Column, columns: Mapping[str, Column], schema: T.StructType, unread: Column
) -> Problem:
    """What is wrong with a value: it is null, empty, not UTF-8, not one JSON object or not JSON, or a field does not
    fit its type.

    Args:
        text: The value.
        value: The parsed value.
        columns: Its columns, of the declared types.
        schema: The declared columns.
        unread: The result of `not_json`, or that a field was misread.
    """
    corrupt = value.getField(CORRUPT).isNotNull()
    doubt = doubtful(text, columns, schema.fields, parse_json)
    bare = _bare(text)
    not_one = ~F.coalesce(_is_flat(text), F.lit(False)) & ~_is_one(text, bare)
    syntax = parse_json(text, T.StructType([]))
    halves = F.regexp_extract(text, rf"(?s)\A{_WHOLE_CHARACTERS}", 0)
    half = F.substring(text, F.char_length(halves) - 60, F.lit(67))
    reason = (
        F.when(text.isNull(), F.lit("the value is null"))
        .when(bare == "", F.lit("the value is empty"))
        .when(~F.is_valid_utf8(text), F.lit("the value is not UTF-8"))
        .when(not_one & (~_is_object(bare) | ~corrupt), F.lit("the value is not one JSON object"))
        .when(syntax.getField(CORRUPT).isNotNull(), F.lit("the value is not valid JSON"))
        .when(_has_half(text), F.concat(F.lit("half of a surrogate pair is no character: "), half))
        .otherwise(wrong_fields([(f, _is_wrong(text, f), token(text, f.name)) for f in schema.fields]))
    )
    return Problem("value", unread | corrupt | doubt, reason)


def _is_wrong(text: Column, field: T.StructField) -> Column:
    """Whether a field's value does not fit its type, or is in doubt."""
    alone = T.StructType([field])

    def is_doubtful(value: Column) -> Column:
        return doubtful(text, {field.name: value}, alone.fields, parse_json)

    def judged(read: Column) -> Column:
        value, is_none = misread(field, read.getField(field.name), json_detour)
        doubt = let(value, is_doubtful)
        further = has_further_digits(text, alone.fields, _parsed_as)
        return read.getField(CORRUPT).isNotNull() | is_none | doubt | further

    return let(parse_json(text, alone), judged)


def _has_half(text: Column) -> Column:
    # Most texts have no escape; Spark does not compute the other branch of a WHEN for them.
    suspected = F.when(JavaText(text).has("\\u"), text.rlike(r"\\u[dD][89a-fA-F]")).otherwise(F.lit(False))
    return F.when(suspected, ~text.rlike(rf"(?s)\A{_WHOLE_CHARACTERS}\z")).otherwise(F.lit(False))


def _is_flat(text: Column) -> Column:
    """Whether a text is UTF-8 and its last character is the first closing brace: it is one object at most.

    That is decided without parsing, and without Spark's own functions on text, which go from byte to byte. `split`
    makes a String of Java's, in which bytes that are not UTF-8 are replaced; Java decodes, searches and encodes with
    vectorised code. A text of ASCII need not be encoded again.
    """
    java, before = JavaText(text), F.get(F.split(text, "}", 2), F.lit(0))
    ends = text.startswith("{") & (java.place("}") + 1 == java.length)
    return F.when(ends & java.is_ascii, F.lit(True)).otherwise(
        (F.concat(before, F.lit("}")) == text) & text.startswith("{")
    )


def _bare(text: Column) -> Column:
    return F.btrim(text, F.lit(" \t\r\n"))


def _is_object(bare: Column) -> Column:
    return bare.startswith("{") & bare.endswith("}")


def _is_one(text: Column, bare: Column) -> Column:
    # Spark's parser stops after the first object; anything after it would be lost silently.
    listed = F.concat(F.lit("["), text, F.lit("]"))
    # `json_array_length` stops at a NaN, which `from_json` accepts.
    count = F.coalesce(F.json_array_length(listed), F.size(F.from_json(listed, _OBJECTS, _OPTIONS)))
    return _is_object(bare) & F.coalesce(count == 1, F.lit(False))
