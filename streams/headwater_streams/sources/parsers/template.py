r"""A template for one's own lines: the line as it looks, with `{name}` where a column is.

    [{at:time yyyy-MM-dd HH:mm:ss VV}] {level:word} {took_ms:int} {name}: {message}

| placeholder | takes | column |
|---|---|---|
| `{name}` | the shortest text up to what follows it | STRING |
| `{name:word}` | a run without spaces | STRING |
| `{name:quoted}` | a text in quotes, with escapes; the quotes are left out | STRING |
| `{name:int}` | digits with or without a sign, or `-` for nothing | BIGINT |
| `{name:double}` | a decimal number with or without an exponent, or `-` | DOUBLE |
| `{name:time}` | an ISO 8601 time, or `-` | TIMESTAMP |
| `{name:time PATTERN}` | a time by one of Spark's patterns, or `-` | TIMESTAMP |

`{{` and `}}` are braces; a space stands for one or more blanks.
"""

import re
from collections.abc import Callable, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.errors import JobDefinitionError
from headwater_streams.sources.parsers.parser import QUOTED, Parser, match, unescaped, unless

_KINDS: dict[str, tuple[str, T.DataType]] = {
    "": ("(.*?)", T.StringType()),
    "word": (r"(\S++)", T.StringType()),
    "quoted": (QUOTED, T.StringType()),
    "int": (r"([+-]?[0-9]++|-)", T.LongType()),
    "double": (r"([+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?|-)", T.DoubleType()),
    "time": ("(.*?)", T.TimestampType()),
}
_PLACEHOLDER = re.compile(r"\{([A-Za-z][A-Za-z0-9_]*)(?::([a-z]+)(?: ([^{}]+))?)?\}")


def template(text: str) -> Parser:
    """A parser of lines that look like a template; see the module for its placeholders.

    A line that looks otherwise, or whose number or time is none, does not parse.

    Raises:
        JobDefinitionError: A placeholder is not of these forms, or a name comes twice.
    """
    pattern, names, kinds = "", [], []
    at = 0
    while at < len(text):
        found = _PLACEHOLDER.match(text, at)
        if found is not None:
            name, kind, argument = found[1], found[2] or "", found[3]
            if kind not in _KINDS or (argument is not None and kind != "time"):
                raise JobDefinitionError(
                    f"template: {found[0]} is of no known kind; there are {', '.join(filter(None, _KINDS))}"
                )
            if name in names:
                raise JobDefinitionError(f"template: {name} comes twice")
            names.append(name)
            kinds.append((kind, argument))
            pattern += _KINDS[kind][0]
            at = found.end()
        elif text[at : at + 2] in ("{{", "}}"):
            pattern += re.escape(text[at])
            at += 2
        elif text[at] in "{}":
            raise JobDefinitionError(f"template: what begins with {text[at : at + 20]!r} is no placeholder")
        else:
            pattern += r"[ \t]++" if text[at] == " " else re.escape(text[at])
            at += 1
    if not names:
        raise JobDefinitionError("template: it has no placeholder such as {message}")
    schema = T.StructType(
        [T.StructField(name, _KINDS[kind][1]) for name, (kind, _) in zip(names, kinds, strict=True)]
    )

    def build(fields: Sequence[Column]) -> Column:
        columns, good = [], F.lit(True)
        for name, (kind, argument), field in zip(names, kinds, fields, strict=True):
            typed = _CASTS[kind](field, argument)
            columns.append(typed.alias(name))
            if kind in ("int", "double", "time"):
                good &= typed.isNotNull() | (field == "-")
        return F.when(good, F.struct(*columns))

    return Parser("template", schema, lambda line, _: match(line, pattern, len(names), build), text)


def _time(field: Column, pattern: str | None) -> Column:
    return F.try_to_timestamp(unless(field, "-"), *([F.lit(pattern)] if pattern else []))


_CASTS: dict[str, Callable[[Column, str | None], Column]] = {
    "": lambda field, _: field,
    "word": lambda field, _: field,
    "quoted": lambda field, _: unescaped(field),
    "int": lambda field, _: field.try_cast("bigint"),
    "double": lambda field, _: field.try_cast("double"),
    "time": _time,
}
