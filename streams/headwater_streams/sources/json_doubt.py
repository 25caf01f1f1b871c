"""Finds values that Spark's parser of JSON may have misread: where a value looks suspicious, its text is checked.

Spark gives a TIMESTAMP without a date the day on which it is read, reads "2024" or "2024-05" as the first day of that
year or month, and makes a time of any year of a number whose microseconds have more than 64 bits. A number that is too
great for a FLOAT or DOUBLE becomes infinity. A DECIMAL is read with some more places than its own, which show whether
it would be rounded; whether the text has even more digits is checked in the text.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.sources.nested import somewhere
from headwater_streams.sources.parsers.parser import let
from headwater_streams.sources.wrong_fields import TIME_OF_DAY
from headwater_streams.spark.java_text import JavaText

MOST_DIGITS = 38
"""Of a DECIMAL."""
_DIGITS_OF_A_LONG = 18
_PLACES_MORE, _FEWEST_MORE = 10, 8
"""With how many more places a DECIMAL is read: most numbers then still have 64 bits. Rounding longer ones takes ten
times as long, and a type that can have more bits is copied as bytes; eight more places are enough for one that
cannot."""
_MOST_COMPILED = 3
"""With more columns Java would not compile the code, which would be too long."""
_DAY_US = 86_400_000_000
_NEAR_US = 12 * _DAY_US
_TOO_MANY_SECONDS = r"-?(?:\d{14}|92[3-9]\d{10}|9[3-9]\d{11})"
_YEAR_OR_MONTH = r"\s*+[+-]?\d{4,6}(?:-\d{1,2})?\s*+"
_NO_TIME = rf'(?:"(?:{TIME_OF_DAY}|{_YEAR_OR_MONTH}")|{_TOO_MANY_SECONDS})'
_WORD_OF_INFINITY = r'[:\[,]\s*+"?[+-]?Inf|[:\[,]\s*+"[+-]INF"'
_GREAT = r"\d[eE]\+?\d{2}|\d{39}"

Parse = Callable[[Column, T.StructType], Column]


def token(text: Column, name: str) -> Column:
    """The token behind a name in a text of JSON, as it is written there; NULL if the name is missing."""
    written = F.regexp_extract(
        text, rf'(?s){_key(name)}\s*+:\s*+("(?:[^"\\]++|\\.)*+"|[^\s,{{}}\[\]"]++|[\[{{].*)', 1
    )
    return F.when(written != "", written)


def _key(name: str) -> str:
    """A regular expression of a name in JSON: any character may be escaped; Python's `json` escapes all but ASCII."""
    return f'"{"".join(map(_escaped_or_not, name))}"'


def has_far_exponent(text: Column, names: Sequence[str]) -> Column:
    """Whether a text has a number with an exponent of five characters or more behind one of the names.

    Spark's parser writes out all digits of such a number before it sees that it is no DECIMAL: that takes half a minute
    for 1e20000000, and does not end for 1e2000000000. Any character of a name and of a number in quotes may be escaped.
    """
    keys = "|".join("".join(map(_in_any_form, name)) for name in names)
    number = r"-?+[0-9.]++[eE][^\s,}\]]{5}"
    quoted = r'"(?:[^"\\eE]|\\(?!u00[46]5).)*+(?:[eE]|\\u00[46]5)(?:[^"\\]|\\.){5}'
    return text.rlike(rf'(?s)"(?:{keys})"\s*+:\s*+(?:{number}|{quoted})')


def _escaped_or_not(character: str) -> str:
    if character == "_" or (character.isascii() and character.isalnum()):
        return character
    return _in_any_form(character)


def _in_any_form(character: str) -> str:
    units = character.encode("utf-16-be").hex()
    escape = "".join(rf"\\u(?i:{units[place : place + 4]})" for place in range(0, len(units), 4))
    written = {json.dumps(character, ensure_ascii=False)[1:-1], character.replace("/", r"\/")}
    if character in '"\\' or ord(character) < 32:
        written.discard(character)
    return f"(?:{'|'.join([*map(re.escape, sorted(written)), escape])})"


def doubtful(
    text: Column,
    columns: Mapping[str, Column],
    fields: Sequence[T.StructField],
    parse: Parse,
) -> Column:
    """Whether one of the fields differs from what the text says.

    Args:
        text: The value as it was sent.
        columns: Its parsed columns, by name.
        fields: The fields to check.
        parse: Parses a text by a schema, with the types that are read.
    """
    parts = [
        _times(text, columns, [f for f in fields if isinstance(f.dataType, T.TimestampType)]),
        _times_within(
            text, columns, [f for f in fields if not isinstance(f.dataType, T.TimestampType)], parse
        ),
        _infinities(text, columns, fields),
        _nothings(text, columns, fields),
    ]
    return _any(part for part in parts if part is not None)


def _any(conditions: Iterable[Column]) -> Column:
    return reduce(Column.__or__, [F.coalesce(each, F.lit(False)) for each in conditions], F.lit(False))


def _times(text: Column, columns: Mapping[str, Column], fields: Sequence[T.StructField]) -> Column | None:
    if not fields:
        return None
    keys = "|".join(_key(field.name) for field in fields)
    times = [columns[field.name] for field in fields]
    looks = _any([_looks_made_up(time) for time in times])
    if len(times) > _MOST_COMPILED:
        looks = F.exists(F.array(*times), _looks_made_up)
    # Spark works out both sides of an AND for every row, but not the other branch of a WHEN.
    return F.when(looks, text.rlike(rf"(?:{keys})\s*+:\s*+{_NO_TIME}"))


def _looks_made_up(time: Column) -> Column:
    micros = F.unix_micros(time)
    # A query's date is that of its batch, which may be tried again days later.
    is_today = time >= F.current_date().cast("timestamp")
    # 2 to the power of 64 and a million are multiples of 64. An overflow gives whole seconds only for numbers near a
    # multiple of 2 to the power of 58 (as near as the time is to 1970), such as the greatest and the least of 64 bits.
    overflowed = ((micros % 64 == 0) & (micros % 1_000_000 != 0)) | micros.between(-_NEAR_US, _NEAR_US)
    is_first = F.when(micros % _DAY_US == 0, F.dayofmonth(time) == 1)
    return is_today | overflowed | F.coalesce(is_first, F.lit(False))


def _times_within(
    text: Column, columns: Mapping[str, Column], fields: Sequence[T.StructField], parse: Parse
) -> Column | None:
    def looks_made_up(kind: T.DataType, each: Column) -> Column | None:
        return _looks_made_up(each) if isinstance(kind, T.TimestampType) else None

    def is_no_time(kind: T.DataType, each: Column) -> Column | None:
        if not isinstance(kind, T.TimestampType):
            return None
        return each.rlike(rf"\A(?:{TIME_OF_DAY}|{_YEAR_OR_MONTH}\z|{_TOO_MANY_SECONDS})")

    suspects = [
        (field, looks)
        for field in fields
        if (looks := somewhere(field.dataType, columns[field.name], looks_made_up)) is not None
    ]
    if not suspects:
        return None
    schema = T.StructType([T.StructField(field.name, _with_texts(field.dataType)) for field, _ in suspects])
    texts = parse(text, schema)
    wrong = _any(
        [
            is_wrong
            for field, _ in suspects
            if (is_wrong := somewhere(field.dataType, texts.getField(field.name), is_no_time)) is not None
        ]
    )
    return F.when(_any([looks for _, looks in suspects]) & text.rlike(rf"[:\[,]\s*+{_NO_TIME}"), wrong)


def _with_texts(kind: T.DataType) -> T.DataType:
    """A type with texts in place of times."""
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(f.name, _with_texts(f.dataType)) for f in kind.fields])
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_with_texts(kind.elementType))
    if isinstance(kind, T.MapType):
        return T.MapType(kind.keyType, _with_texts(kind.valueType))
    return T.StringType() if isinstance(kind, T.TimestampType) else kind


def _infinities(
    text: Column, columns: Mapping[str, Column], fields: Sequence[T.StructField]
) -> Column | None:
    conditions = [_has_infinity(f.dataType, columns[f.name]) for f in fields]
    some = [each for each in conditions if each is not None]
    return F.when(_any(some), ~text.rlike(_WORD_OF_INFINITY) | text.rlike(_GREAT)) if some else None


def _has_infinity(kind: T.DataType, value: Column) -> Column | None:
    if isinstance(kind, T.ArrayType) and _is_float(kind.elementType):
        # Compiled, as a lambda is not.
        infinities = [F.lit(sign * math.inf).cast(kind.elementType) for sign in (1, -1)]
        return _any([F.array_contains(value, each) for each in infinities])
    return somewhere(kind, value, lambda leaf, each: F.abs(each) == math.inf if _is_float(leaf) else None)


def _is_float(kind: T.DataType) -> bool:
    return isinstance(kind, T.FloatType | T.DoubleType)


def wider_decimal(kind: T.DecimalType) -> T.DecimalType | None:
    """The type with some more places, which shows what a DECIMAL would have to round; None if there is none."""
    more = _DIGITS_OF_A_LONG - kind.precision
    if more >= _FEWEST_MORE:
        return T.DecimalType(_DIGITS_OF_A_LONG, kind.scale + more)
    if kind.precision + _PLACES_MORE <= MOST_DIGITS:
        return T.DecimalType(MOST_DIGITS, kind.scale + _PLACES_MORE)
    return None


def has_further_digits(text: Column, fields: Sequence[T.StructField], parse_as: Parse) -> Column:
    """Whether a text has a number that is no DECIMAL of its field, but looks like one in the places that are read.

    In the additional places it then has only zeros, or only nines; these stand in one row in the text, or in two where
    a negative exponent moves the point between them. It is computed outside the parser's struct: Spark does not compile
    expressions that parse together with others.

    Args:
        text: The value as it was sent.
        fields: The fields to check.
        parse_as: Parses a text by a schema, with its own types.
    """
    decimals = _wider_decimals(fields)
    if not decimals:
        return F.lit(False)
    keys = "|".join(key for key, _, _, _ in decimals)
    run = min(wider.scale - kind.scale for _, _, kind, wider in decimals)
    places = min(wider.scale for _, _, _, wider in decimals)

    def has_one_of(*parts: str) -> Column:
        return reduce(Column.__or__, [java.has(part) for part in parts])

    java, half = JavaText(text), (run + 1) // 2
    # Where a text has a backslash, it may be in a name.
    further = rf'[^".,}}\s]*+\.\d{{{places}}}\d|[^",}}\s]*?[eE]-'
    has_further = text.rlike(rf'(?:{keys})\s*+:\s*+"?(?:{further})|\\')

    def is_rounded(read: Column) -> Column:
        each = [(read.getField(name), kind) for _, name, kind, _ in decimals]
        return _any([value.isNotNull() & ~value.eqNullSafe(value.try_cast(kind)) for value, kind in each])

    wholes = [(name, MOST_DIGITS - kind.precision + kind.scale) for _, name, kind, _ in decimals]
    schema = T.StructType(
        [T.StructField(name, T.DecimalType(MOST_DIGITS, digits)) for name, digits in wholes]
    )
    # Spark works out both sides of an AND for every row, but not the other branch of a WHEN.
    is_inexact = F.when(has_further, let(parse_as(text, schema), is_rounded))
    is_inexact = F.when(has_one_of("0" * run, "9" * run, "e-", "E-"), is_inexact)
    return F.coalesce(F.when(has_one_of("0" * half, "9" * half), is_inexact), F.lit(False))


def _nothings(text: Column, columns: Mapping[str, Column], fields: Sequence[T.StructField]) -> Column | None:
    """Whether a DECIMAL that is 0 was a number whose exponent makes it too small for the places that are read."""
    small = r'\s*+:\s*+"?-?[0-9.]*[1-9][0-9.]*+[eE]-'
    conditions = [
        F.when(columns[name] == 0, text.rlike(f"{key}{small}")) for key, name, _, _ in _wider_decimals(fields)
    ]
    return _any(conditions) if conditions else None


def _wider_decimals(fields: Sequence[T.StructField]) -> list[tuple[str, str, T.DecimalType, T.DecimalType]]:
    """The DECIMALs that are read with more places: each one's name in a regular expression, its name, its type, and the
    type that it is read as."""
    decimals = [(f.name, f.dataType) for f in fields if isinstance(f.dataType, T.DecimalType)]
    widened = [(name, kind, wider_decimal(kind)) for name, kind in decimals]
    return [(_key(name), name, kind, wider) for name, kind, wider in widened if wider is not None]
