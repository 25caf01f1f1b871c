r"""key=value lines, as logfmt and many firewalls write them.

    level=info msg="he said \"hi\"" took_ms=12 cached

A value is a run without spaces, or a quoted text with the escapes `\"`, `\\`, `\n`, `\r` and `\t`; other backslashes
stay as they are. Quotes may be single ones, `msg='op=login res=failed'`: the next `'` before a blank or a line's end
closes them, if no `='` is before it. Elsewhere a `'` is a character, as in `name=O'Brien`. Pairs in a quoted text are
not the line's. A word without `=` is allowed and ignored. A comma may follow a value, and syslog's priority may precede
the line (`<189>date=2026-11-21, level=...`). Outside of quotes, the byte 1D is a blank: auditd writes it before the
fields in which it resolves numbers to names, `uid=0\x1dUID="root"`.
"""

import re
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.base.type_name import type_name
from headwater_streams.sources.parsers.parser import QUOTED, Parser, let
from headwater_streams.sources.parsers.typed import typed
from headwater_streams.sources.wrong_fields import is_not

_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
_PRIORITY = "<[0-9]{1,3}>"
# Java's matcher looks listed characters up in a table, and tests a class among them, such as \s, separately.
_BLANKS = r" \t\n\x0b\f\r\x1d"
_BLANK, _NO_BLANK = f"[{_BLANKS}]", f"[^{_BLANKS}]"
_KEY = rf'(?:(?<!{_NO_BLANK})(?!{_PRIORITY})|(?<=\A{_PRIORITY}))([^{_BLANKS}="]++)'
_END = f"(?=,?(?!{_NO_BLANK}))"
_RUN = rf'(?!,(?!{_NO_BLANK}))[^{_BLANKS}"](?:[^{_BLANKS},]++|,(?={_NO_BLANK}))*+'
# The search ends at the next value that begins with a quote, so that the time grows with the line, not with its square.
_SINGLE = rf"'(?:[^'=\\]++|\\.|=(?!')|'(?!{_END}))*+'"
_PAIR = rf"(?s:{_KEY}=({QUOTED.replace('(', '(?:', 1)}{_END}|{_SINGLE}{_END}|{_RUN}|{_END}))"
_WORD = rf'[^{_BLANKS}="]++(?!{_NO_BLANK})'
_LINE = rf"(?s)\A(?:{_PRIORITY})?+{_BLANK}*+(?:(?:{_PAIR}|{_WORD}),?+{_BLANK}*+)++\z"
_QUOTED_IN_DDL = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_NESTED_IN_DDL = re.compile(r"(\w+|`[^`]+`)\s*:?\s*\b(ARRAY|MAP|STRUCT)\s*<", re.IGNORECASE)


def key_value(schema: str | T.StructType) -> Parser:
    """key=value lines; a schema names the keys that become columns.

    A line does not parse if it has none of these keys, is no sequence of pairs and words, or has a value that does not
    fit its column's type. Nothing behind the `=` is null; `""` is an empty text, which fits no type but STRING. Of a
    repeated key the first counts.

    Args:
        schema: The columns, named as the keys, as Spark DDL or a type: `"level STRING, took_ms DOUBLE"`. A TIMESTAMP is
            an ISO 8601 date, with its time of day or without, a DATE has its month and day, a DOUBLE or FLOAT is a
            decimal number with or without an exponent, NaN or Infinity.

    Raises:
        JobDefinitionError: It names no key, or one is a list, a map or a struct.
    """
    _require_flat(schema)

    def parse(text: Column, _timestamp: Column) -> Column:
        columns = parser.columns()
        return let(_pairs(text), lambda pairs: _columns(columns, pairs))

    def why(text: Column) -> Column:
        columns = parser.columns()
        return let(_pairs(text), lambda pairs: _why(columns, pairs))

    parser = Parser("key_value", schema, parse, why=why)
    return parser


def _require_flat(schema: str | T.StructType) -> None:
    """Checks that a schema has columns, each of a type that one value can have. Only Spark parses DDL, and a job may be
    declared without Spark; other errors in DDL show once there is a session.

    Raises:
        JobDefinitionError: It has none, or one is a list, a map or a struct.
    """
    if isinstance(schema, str):
        is_empty = not schema.strip()
        named = _NESTED_IN_DDL.findall(_QUOTED_IN_DDL.sub("", schema))
        nested = [(name.strip("`"), kind.upper()) for name, kind in named]
    else:
        is_empty = not schema.fields
        kinds = T.ArrayType | T.MapType | T.StructType
        nested = [(f.name, type_name(f.dataType)) for f in schema.fields if isinstance(f.dataType, kinds)]
    if is_empty:
        raise JobDefinitionError(
            "key_value: its schema names no keys; write them as 'level STRING, took_ms DOUBLE'"
        )
    for name, kind in nested:
        raise JobDefinitionError(
            f"key_value: a value cannot be {kind}, as {name!r} is; declare it as STRING and parse it in the job"
        )


def _pairs(text: Column) -> Column:
    """A line's keys and values, as arrays; null if it is no sequence of pairs and words."""
    keys = F.regexp_extract_all(text, F.lit(_PAIR), F.lit(1))
    values = F.regexp_extract_all(text, F.lit(_PAIR), F.lit(2))
    return F.when(text.rlike(_LINE), F.struct(keys.alias("keys"), values.alias("values")))


def _columns(columns: T.StructType, pairs: Column) -> Column:
    def built(judgements: Column) -> Column:
        each = [judgements[str(place)] for place in range(len(columns.fields))]
        wrong = reduce(Column.__or__, [one["wrong"] for one in each])
        named = [one["value"].alias(field.name) for one, field in zip(each, columns.fields, strict=True)]
        return F.when(~wrong, F.struct(*named))

    judged = [_judged(field, pairs).alias(str(place)) for place, field in enumerate(columns.fields)]
    return F.when(_has_some(columns, pairs), let(F.struct(*judged), built))


def _why(columns: T.StructType, pairs: Column) -> Column:
    reason = F.when(pairs.isNull(), F.lit("it is no sequence of key=value pairs and words"))
    reason = reason.when(
        ~_has_some(columns, pairs), F.lit(f"it has none of the keys {', '.join(columns.fieldNames())}")
    )
    for field in columns.fields:
        reason = reason.when(_judged(field, pairs)["wrong"], is_not(field, _text(field, pairs)))
    return reason


def _judged(field: T.StructField, pairs: Column) -> Column:
    """A key's `value`, null where there is none, and whether it is `wrong`: present, and not of its column's type.

    A lambda is not compiled, and evaluates a part again at each mention: binding the parts halves the time of a line.
    """

    def judged(value: Column, wrong: Column) -> Column:
        return F.struct(value.alias("value"), wrong.alias("wrong"))

    def of_text(text: Column) -> Column:
        parsed = typed(text, field.dataType)
        return let(parsed, lambda value: judged(value, text.isNotNull() & value.isNull()))

    text = _text(field, pairs)
    return judged(text, F.lit(False)) if isinstance(field.dataType, T.StringType) else let(text, of_text)


def _text(field: T.StructField, pairs: Column) -> Column:
    """The text behind a key, without quotes; null where there is none."""
    place = F.array_position(pairs["keys"], F.lit(field.name)).cast("int")
    return _content(F.get(pairs["values"], place - 1))


def _has_some(columns: T.StructType, pairs: Column) -> Column:
    return F.arrays_overlap(pairs["keys"], F.array(*[F.lit(name) for name in columns.fieldNames()]))


def _content(value: Column) -> Column:
    inner = _unescaped(F.substring(value, F.lit(2), F.char_length(value) - 2), F.substring(value, 1, 1))
    is_single = F.when(value.startswith("'"), value.rlike(rf"(?s)\A{_SINGLE}\z")).otherwise(F.lit(False))
    return F.when(value.startswith('"') | is_single, inner).when(value != "", value)


def _unescaped(text: Column, quote: Column) -> Column:
    """Resolves the escapes of Go's loggers; RFC 5424 (`parser.unescaped`) has no escapes of line breaks."""

    def between(part: Column) -> Column:
        for letter, meant in _ESCAPES.items():
            part = F.replace(part, F.lit(f"\\{letter}"), F.lit(meant))
        return F.replace(part, F.concat(F.lit("\\"), quote), quote)

    # Between escaped backslashes, every other backslash begins an escape.
    parts = F.split(text, r"\\\\")
    return F.when(text.contains("\\"), F.array_join(F.transform(parts, between), "\\")).otherwise(text)
