"""What a parser is, and how one regular expression gives all of its groups in one pass."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

BLANKS = r"[ \t]++"
FIRST_BLANKS = rf"(?<![ \t]){BLANKS}"
"""Behind a text that may have blanks itself: these do not begin at each of many, which would take a square of time."""
LEAP = "(?:59|29|44|14):60"
"""The minute and the leap second at the end of an hour of UTC, in zones of half and quarter hours, too."""
END = r"\r?\n?\z"
"""The end of a line that is taken whole."""
_DECIMAL = r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?"
_NO_DECIMAL = "(?i:NaN|[+-]?Inf(?:inity)?)"
NUMBER = f"{_DECIMAL}|{_NO_DECIMAL}"
"""A number with a fraction, and what IEEE 754 has beside numbers, which Spark takes in JSON, too."""
_BYTE_ORDER_MARK = "\ufeff"
_BETWEEN = "\ufdd0"  # a noncharacter of Unicode: no text that is meant for others has it

QUOTED = r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"'
"""A quoted text with escapes; possessive throughout, since Java's matcher recurses for what it may go back on, and a
line of some 10,000 characters would overflow its stack."""


@dataclass(frozen=True)
class Parser:
    """A format of lines.

    Attributes:
        name: What it is called in messages.
        schema: The columns that it gives, as a type or as Spark DDL.
        parse: From the line (STRING) and its record's timestamp to a struct of the schema; null if it is not one.
        why: From a line that does not parse to what of it does not fit, as STRING; null where that is not told.
        variant: What tells it from others of its name and schema: a template's text, a time zone. A job whose
            declaration is compared with an earlier run's sees a change of it.
    """

    name: str
    schema: T.StructType | str
    parse: Callable[[Column, Column], Column] = field(repr=False, compare=False)
    variant: str = ""
    why: Callable[[Column], Column] | None = field(default=None, repr=False, compare=False)

    def columns(self) -> T.StructType:
        """The columns that it gives; DDL is read by Spark, so that this may need a session.

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
            line: STRING or BINARY; what is not UTF-8 does not parse.
            timestamp: When its record was made; completes a time of day or a date without a year.
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
        pattern: Java's regular expression, without anchors. The end of a line may follow what it takes.
        groups: How many groups it has.
        build: Takes the groups as STRING columns; one that took no part is empty.
    """
    replaced = F.regexp_replace(
        text, rf"(?s)\A{pattern}{END}", "".join(f"{_BETWEEN}${number}" for number in range(1, groups + 1))
    )
    parts = F.when(~F.contains(text, F.lit(_BETWEEN)), F.split(replaced, _BETWEEN))

    def built(found: Column) -> Column:
        fields = [F.get(found, F.lit(number)) for number in range(1, groups + 1)]
        return F.when(F.size(found) == groups + 1, build(fields))

    return let(parts, built)


def let(value: Column, body: Callable[[Column], Column]) -> Column:
    """Evaluates a column once for an expression that uses it several times."""
    return F.get(F.transform(F.array(value), body), F.lit(0))


def misfit(text: Column, beginnings: Sequence[tuple[str, str]]) -> Column:
    """The name of the first of a line's parts that is not as it should be; null if there is none.

    Args:
        text: The line.
        beginnings: The names of its parts in their order, each with Java's regular expression of the line up to its
            end.
    """
    found = F.lit(None).cast("string")
    for name, pattern in reversed(beginnings):
        found = F.when(~text.rlike(rf"(?s)\A{pattern}"), F.lit(name)).otherwise(found)
    return found


def why_of_parts(text: Column, parts: Sequence[tuple[str, str]], otherwise: str) -> Column:
    """What `Parser.why` says of a line that is parts one behind the other.

    Args:
        text: The line.
        parts: Their names and patterns.
        otherwise: What is wrong where each of them is there.
    """
    *patterns, whole = accumulate(pattern for _, pattern in parts)
    part = misfit(text, list(zip([name for name, _ in parts], [*patterns, rf"{whole}{END}"], strict=True)))
    return F.concat(F.lit("its "), F.coalesce(part, F.lit(otherwise)), F.lit(" is not as it should be"))


def unless(text: Column, *absent: str) -> Column:
    """The text, or null where it is what stands for nothing."""
    return F.when(~text.isin(*absent), text)


def number(text: Column, kind: T.DataType) -> Column:
    """A text that is a `NUMBER` as DOUBLE or FLOAT, else null: Spark takes Java's `5d` and `0x1p3`, too, and one that
    is too great for the type for infinity."""
    most = sys.float_info.max

    def checked(value: Column) -> Column:
        decimal = F.when(text.rlike(rf"\A[ \t]*+(?:{_DECIMAL})[ \t]*+\z"), value)
        return F.when(value.between(-most, most), decimal).when(text.rlike(rf"\A{_NO_DECIMAL}\z"), value)

    return let(text.try_cast(kind), checked)


def dated(text: Column) -> Column:
    """A text that begins with a date of four digits for its year, else null: Spark takes a time of day for one of the
    day on which it is read, a longer number for a year, and a year or a month for its first day."""
    is_date = (F.substring(text, 5, 1) == "-") & F.contains(F.substring(text, 7, 2), F.lit("-"))
    return F.when(is_date, text)


def iso_time(text: Column) -> Column:
    """The time of an ISO 8601 date, with its time of day or without; null if it is none.

    A comma may stand before the fraction, and a blank before the zone. Spark takes neither the comma nor a zone behind
    minutes.
    """
    whole = F.replace(dated(text), F.lit(","), F.lit("."))
    minutes = r"\A(\S{8,10}[T ][0-9]{1,2}:[0-9]{1,2})([ \t]*+[A-Z+-])"
    with_seconds = F.regexp_replace(whole, minutes, "$1:00$2")
    return F.coalesce(F.try_to_timestamp(whole), F.try_to_timestamp(with_seconds))


def unescaped(text: Column) -> Column:
    r"""A quoted text's content: `\"` and `\\` (and `\]`) as what they stand for, other backslashes as they are."""
    return F.when(F.contains(text, F.lit("\\")), F.regexp_replace(text, r'\\(["\\\]])', "$1")).otherwise(text)
