"""A template for lines of a user's own: the line with `{name}` in the place of each column; see `template`."""

import re
from collections.abc import Callable, Sequence
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.sources.parsers.parser import (
    BLANKS,
    END,
    FIRST_BLANKS,
    QUOTED,
    Parser,
    let,
    match,
    misfit,
    unescaped,
    unless,
)
from headwater_streams.sources.parsers.typed import NUMBER, iso_time, number
from headwater_streams.sources.parsers.year import latest
from headwater_streams.sources.wrong_fields import excerpt

_DAY_AND_CLOCK = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}\S*?"
_OFFSET = r"(?:Z|UTC|GMT|[+-](?:0[0-9]|1[0-4])(?::?[0-9]{2})?)(?![\w.:+/-])"
_WORD, _WORD_BEFORE = r"(\S++)", r"(\S+?)"
"""A run without blanks, and one that ends where the next part of the template begins."""
_KINDS: dict[str, tuple[str, T.DataType]] = {
    "": ("(.*?)", T.StringType()),
    "word": (_WORD, T.StringType()),
    "quoted": (QUOTED, T.StringType()),
    "int": (r"([+-]?[0-9]++|-)", T.LongType()),
    "double": (f"({NUMBER}|-)", T.DoubleType()),
    "time": (rf"({_DAY_AND_CLOCK}(?:{BLANKS}{_OFFSET})?|.*?)", T.TimestampType()),
}
_FREE = ("", "time")
"""The kinds that take any text up to what follows them."""
_READ_BY_SPARK = "GyMLdDHhKkmsSaVzOXxZ"
"""The letters of a pattern by which Spark parses a time; by others it only formats one."""
_PLACEHOLDER = re.compile(r"\{([A-Za-z][A-Za-z0-9_]*)(?::([a-z]+)(?: +([^{} ][^{}]*?) *)?)?\}")
_BLANK_CHARACTERS = " \t\n\v\f\r"
_BLANKS = re.compile(r"[ \t]* [ \t]*")
"""A run of blanks with a space in it; one of tabs alone stands for itself."""


def template(text: str) -> Parser:
    """A parser of lines that look like a template.

    | placeholder | takes | column |
    |---|---|---|
    | `{name}` | the shortest text up to what follows it | STRING |
    | `{name:word}` | a run without spaces; before a text, as in `{name:word}:`, the shortest | STRING |
    | `{name:quoted}` | a text in quotes, with escapes; the quotes are left out | STRING |
    | `{name:int}` | digits with or without a sign, or `-` for nothing | BIGINT |
    | `{name:double}` | a decimal number, as 1.5e3, NaN or Infinity, or `-` | DOUBLE |
    | `{name:time}` | an ISO 8601 date, with its time of day or without, or `-` | TIMESTAMP |
    | `{name:time PATTERN}` | a time by one of Spark's patterns, or `-` | TIMESTAMP |

    `{{` and `}}` are braces; a space stands for one or more blanks, in a time's pattern, too. A line that does not
    match the template, or with something else in the place of a number or time, does not parse.

    A time without a pattern may have a comma before its fraction. It includes its zone, also behind a blank, where that
    is an offset (`+02:00`, `+0200`, `+02`), `Z`, `UTC` or `GMT`; a time without a zone is in UTC.

    A time whose pattern has no year gets the latest year in which it is no more than a day ahead of the record's
    timestamp: a line that was logged on 31 December and shipped on 1 January keeps its year.

    Args:
        text: The line, with placeholders in the place of its columns.

    Example:
        hw.template("[{at:time yyyy-MM-dd HH:mm:ss VV}] {level:word} {took_ms:int} {name}: {message}")

    Raises:
        JobDefinitionError: A placeholder is not of these forms or has no clear end, a time's pattern leaves its date or
            its half of the day open, or a name comes twice.
    """
    parts: list[tuple[str, bool]] = []
    begins: list[int] = []
    names: list[str] = []
    kinds: list[tuple[str, str | None]] = []
    at = 0
    while at < len(text):
        placeholder = _PLACEHOLDER.match(text, at)
        if placeholder is not None:
            name, kind = placeholder[1], placeholder[2] or ""
            argument = None if placeholder[3] is None else re.sub(r"[ \t]+", " ", placeholder[3])
            if kind not in _KINDS or (argument is not None and kind != "time"):
                raise JobDefinitionError(
                    f"template: {placeholder[0]} is of no known kind; there are {', '.join(filter(None, _KINDS))}"
                )
            if name in names:
                raise JobDefinitionError(f"template: {name} comes twice")
            names.append(name)
            kinds.append((kind, argument))
            if argument is not None:
                _require_readable(placeholder[0], argument)
                _require_definite(placeholder[0], name, argument)
            begins.append(len(parts))
            at = placeholder.end()
            if _ends_with_next(placeholder[0], kind, text[at:]):
                parts.append((_WORD_BEFORE, True))
            else:
                parts.append((_group(kind, argument), kind in _FREE))
        elif text[at : at + 2] in ("{{", "}}"):
            parts.append((re.escape(text[at]), False))
            at += 2
        elif text[at] in "{}":
            raise JobDefinitionError(f"template: what begins with {text[at : at + 20]!r} is no placeholder")
        elif (blanks := _BLANKS.match(text, at)) is not None:
            parts.append((FIRST_BLANKS if parts and parts[-1][1] else BLANKS, False))
            at = blanks.end()
        else:
            parts.append((re.escape(text[at]), False))
            at += 1
    if not names:
        raise JobDefinitionError("template: it has no placeholder such as {message}")
    schema = T.StructType(
        [T.StructField(name, _KINDS[kind][1]) for name, (kind, _) in zip(names, kinds, strict=True)]
    )

    def typed(fields: Sequence[Column], timestamp: Column) -> list[tuple[str, Column, Column]]:
        """Each column's name, its value, and whether the line's text there is no value of it."""
        columns = []
        for name, (kind, argument), field in zip(names, kinds, fields, strict=True):
            value = _CASTS[kind](field, argument, timestamp)
            is_text = isinstance(_KINDS[kind][1], T.StringType)
            columns.append((name, value, F.lit(False) if is_text else value.isNull() & (field != "-")))
        return columns

    def parse(line: Column, timestamp: Column) -> Column:
        def build(fields: Sequence[Column]) -> Column:
            columns = typed(fields, timestamp)
            wrong = reduce(Column.__or__, [is_none for _, _, is_none in columns])
            return F.when(~wrong, F.struct(*[value.alias(name) for name, value, _ in columns]))

        return match(line, pattern, len(names), build)

    def wrong_value(fields: Sequence[Column]) -> Column:
        # Whether a text is a time in some year does not depend on the timestamp.
        columns = typed(fields, F.timestamp_seconds(F.lit(0)))
        reasons = [
            F.when(is_none, F.concat(F.lit(f"{name}: "), excerpt(field)))
            for (name, _, is_none), field in zip(columns, fields, strict=True)
        ]
        return F.concat_ws(", ", *reasons)

    def why(line: Column) -> Column:
        beginnings = [_whole(parts[:end]) for end in begins[1:]]
        at = misfit(line, list(zip(names, [*beginnings, rf"{pattern}{END}"], strict=True)))
        none = match(line, pattern, len(names), wrong_value)
        return F.coalesce(
            F.concat(
                F.lit("it departs from the template at {"), at["name"], F.lit("}: "), excerpt(at["rest"])
            ),
            F.concat(F.lit("it has no number or time for "), none),
        )

    pattern = _whole(parts)
    return Parser("template", schema, parse, text, why)


def _whole(parts: Sequence[tuple[str, bool]]) -> str:
    """The pattern of a line.

    A free text and what follows it, up to the next free text, are matched once, at their first place. The next free
    text takes whatever is between, so backtracking would find nothing new, and its time would grow with a power of the
    line's length.
    """
    runs = [""]
    for part, is_free in parts:
        if is_free:
            runs.append("")
        runs[-1] += part
    first, *free = runs
    return first + "".join(f"(?>{run})" for run in free[:-1]) + "".join(free[-1:])


def _ends_with_next(placeholder: str, kind: str, rest: str) -> bool:
    """Whether a placeholder takes the shortest text: a word without a blank behind it does.

    Args:
        placeholder: Its text in the template.
        kind: Its kind.
        rest: The template behind it.

    Raises:
        JobDefinitionError: Its text would go on in the next part.
    """
    following = _PLACEHOLDER.match(rest)
    next_kind = None if following is None else following[2] or ""
    is_number = kind in ("int", "double")
    if (kind == next_kind == "word") or (
        is_number and (next_kind in ("int", "double") or rest[:1].isdigit())
    ):
        behind = rest[:1] if following is None else following[0]
        raise JobDefinitionError(
            f"template: {placeholder}{behind}: nothing tells where {placeholder} ends; write what stands between them, "
            "or take both as one column"
        )
    return kind == "word" and next_kind not in _FREE and rest[:1] not in ("", *_BLANK_CHARACTERS)


def _group(kind: str, argument: str | None) -> str:
    if argument is None:
        return _KINDS[kind][0]
    if "[" in argument:
        return f"({_DAY_AND_CLOCK}|.*?)"
    # As many words as the pattern has.
    words = len(argument.split())
    return r"(-|" + rf"\S++{BLANKS}" * (words - 1) + r"\S+?)" if words > 1 else "(.*?)"


def _require_readable(placeholder: str, pattern: str) -> None:
    """Checks that Spark parses times by a pattern.

    Raises:
        JobDefinitionError: It has a letter by which Spark parses none, or a quote without an end.
    """
    bare = re.sub("'[^']*'", "", pattern)
    if "'" in bare:
        raise JobDefinitionError(f"template: {placeholder}: a quote in the pattern has no end")
    wrong = next((letter for letter in bare if letter.isalpha() and letter not in _READ_BY_SPARK), None)
    if wrong is not None:
        instead = "; take the name of a day as a word before it, {day:word}" if wrong in "Ee" else ""
        raise JobDefinitionError(
            f"template: {placeholder}: Spark reads no time by the letter {wrong!r}{instead}"
        )


def _require_definite(placeholder: str, name: str, pattern: str) -> None:
    """Checks that a time by a pattern is one moment, except for its year, and that Spark need not assume a part of it.

    Raises:
        JobDefinitionError: Its month and day may be missing, or its year where others have one, or the half of the day
            that an hour is in.
    """
    bare = re.sub("'[^']*'", "", pattern)
    always = bare
    for _ in range(bare.count("[")):
        always = re.sub(r"\[[^\[\]]*\]", "", always)
    as_text = f"take it as text, {{{name}}}"
    if "D" not in always and not ("d" in always and ("M" in always or "L" in always)):
        raise JobDefinitionError(
            f"template: {placeholder}: a time needs its month and day; write both into the pattern, outside of [...], "
            f"or {as_text}"
        )
    if "y" in bare and "y" not in always:
        raise JobDefinitionError(
            f"template: {placeholder}: a time without the year in [...] would be of 1970; write yyyy outside of it, or "
            f"{as_text}"
        )
    if ("h" in bare or "K" in bare) and "a" not in always:
        raise JobDefinitionError(
            f"template: {placeholder}: an hour by h or K needs a, its half of the day; write HH where there is none"
        )


def _time(field: Column, pattern: str | None, timestamp: Column) -> Column:
    text = unless(field, "-")
    if pattern is None:
        return iso_time(text)
    one_blank = F.regexp_replace(text, r"[ \t]+", " ") if " " in pattern else text
    if "y" in re.sub("'[^']*'", "", pattern):
        return F.try_to_timestamp(one_blank, F.lit(pattern))

    def of_year(time: Column, year: Column) -> Column:
        return F.try_to_timestamp(F.concat(year.cast("string"), F.lit(" "), time), F.lit(f"yyyy {pattern}"))

    return let(one_blank, lambda time: latest(lambda year: of_year(time, year), timestamp))


_CASTS: dict[str, Callable[[Column, str | None, Column], Column]] = {
    "": lambda field, *_: field,
    "word": lambda field, *_: field,
    "quoted": lambda field, *_: unescaped(field),
    "int": lambda field, *_: field.try_cast("bigint"),
    "double": lambda field, *_: number(field, T.DoubleType()),
    "time": _time,
}
