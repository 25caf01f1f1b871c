"""The type of parsers, and all groups of a regular expression in one pass."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.sources.wrong_fields import excerpt

BLANKS = r"[ \t]++"
FIRST_BLANKS = rf"(?<![ \t]){BLANKS}"
"""Blanks behind a text that may have blanks itself: a match begins only at the first of several; else the time would
grow with the square of their number."""
LEAP = "(?:59|29|44|14):60"
"""The minute and the leap second at the end of an hour of UTC, in zones of half and quarter hours, too."""
END = r"\r?\n?\z"
"""The end of a line."""
_BYTE_ORDER_MARK = "\ufeff"
_BETWEEN = "\ufdd0"  # a noncharacter of Unicode: no text for interchange has it

QUOTED = r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"'
"""A quoted text with escapes. All quantifiers are possessive, as Java's matcher recurses where it may backtrack: a line
of some 10,000 characters would overflow its stack."""


@dataclass(frozen=True)
class Parser:
    """A format of lines.

    Attributes:
        name: Its name in messages.
        schema: Its columns, as a type or as Spark DDL.
        parse: From the line (STRING) and its record's timestamp to a struct of the schema; null if it does not parse.
        why: From a line that does not parse to the reason, as STRING; null where there is none.
        variant: What distinguishes it from others of its name and schema: a template's text, a time zone. It is a part
            of the job's declaration, which is compared with an earlier run's.
    """

    name: str
    schema: T.StructType | str
    parse: Callable[[Column, Column], Column] = field(repr=False, compare=False)
    variant: str = ""
    why: Callable[[Column], Column] | None = field(default=None, repr=False, compare=False)

    def columns(self) -> T.StructType:
        """Its columns. Spark parses DDL, so this may need a session.

        Raises:
            ParseException: The schema is not DDL.
        """
        if isinstance(self.schema, T.StructType):
            return self.schema
        columns = T.StructType.fromDDL(self.schema)
        assert isinstance(columns, T.StructType)
        return columns

    def __call__(self, line: Column, timestamp: Column) -> Column:
        """Parses a line.

        Args:
            line: STRING or BINARY; a line that is not UTF-8 does not parse.
            timestamp: The record's timestamp; completes a time of day or a date without a year.
        """
        text = text_of(line)
        return F.when(F.is_valid_utf8(text), self.parse(text, timestamp)).cast(self.columns())


def text_of(line: Column) -> Column:
    """A line as text, without the byte order mark that editors write at the beginning of a file."""
    text = line.cast("string")
    return F.when(text.startswith(_BYTE_ORDER_MARK), F.substr(text, F.lit(2))).otherwise(text)


def match(text: Column, pattern: str, groups: int, build: Callable[[Sequence[Column]], Column]) -> Column:
    """Builds a column from the groups of a regular expression that covers the whole text; null if it does not.

    `regexp_extract` would match once for each group. This replaces the text by its groups and splits that, once: an
    array's element is bound to a lambda's variable, which Spark does not evaluate again.

    Args:
        text: The text.
        pattern: Java's regular expression, without anchors. A line's end may follow the match.
        groups: The number of its groups.
        build: Takes the groups as STRING columns; a group that did not match is empty.
    """
    replaced = F.regexp_replace(
        text, rf"(?s)\A{pattern}{END}", "".join(f"{_BETWEEN}${number}" for number in range(1, groups + 1))
    )
    parts = F.when(~F.contains(text, F.lit(_BETWEEN)), F.split(replaced, _BETWEEN))

    def built(split: Column) -> Column:
        fields = [F.get(split, F.lit(number)) for number in range(1, groups + 1)]
        return F.when(F.size(split) == groups + 1, build(fields))

    return let(parts, built)


def let(value: Column, body: Callable[[Column], Column]) -> Column:
    """Evaluates a column once for an expression that uses it several times."""
    return F.get(F.transform(F.array(value), body), F.lit(0))


def misfit(text: Column, beginnings: Sequence[tuple[str, str]]) -> Column:
    """The first part of a line that does not fit: a struct of its `name` and of the line from there on; null if all
    fit.

    Args:
        text: The line.
        beginnings: The names of its parts in their order, each with Java's regular expression of the line up to the
            part's end.
    """
    first = F.lit(None).cast("struct<name: string, rest: string>")
    befores = ["", *[pattern for _, pattern in beginnings[:-1]]]
    for (name, pattern), before in reversed(list(zip(beginnings, befores, strict=True))):
        matched = F.char_length(F.regexp_extract(text, rf"(?s)\A{before}", 0))
        here = F.struct(
            F.lit(name).alias("name"), F.substring(text, matched + 1, F.char_length(text)).alias("rest")
        )
        first = F.when(~text.rlike(rf"(?s)\A{pattern}"), here).otherwise(first)
    return first


def why_of_parts(text: Column, parts: Sequence[tuple[str, str]], otherwise: str) -> Column:
    """The reason of `Parser.why` for a line that is a sequence of parts.

    Args:
        text: The line.
        parts: Their names and patterns.
        otherwise: The name of what is wrong where every part fits.
    """
    *patterns, whole = accumulate(pattern for _, pattern in parts)
    part = misfit(text, list(zip([name for name, _ in parts], [*patterns, rf"{whole}{END}"], strict=True)))
    name, rest = F.coalesce(part["name"], F.lit(otherwise)), F.coalesce(part["rest"], text)
    sentence = F.concat(F.lit("its "), name, F.lit(" is not as it should be: "), excerpt(rest))
    return F.when(F.contains(text, F.lit(_BETWEEN)), F.lit("it has U+FDD0, which is no character")).otherwise(
        sentence
    )


def unless(text: Column, *absent: str) -> Column:
    """The text, or null where it is one of the texts that stand for nothing."""
    return F.when(~text.isin(*absent), text)


def unescaped(text: Column) -> Column:
    r"""A quoted text's content: `\"` and `\\` (and `\]`) without their backslash, other backslashes as they are."""
    return F.when(F.contains(text, F.lit("\\")), F.regexp_replace(text, r'\\(["\\\]])', "$1")).otherwise(text)
