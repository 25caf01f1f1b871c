"""Values that are one line of CSV each (RFC 4180): parses them, and checks them.

Spark's parser is forgiving where a stream must not be: after a quote that is not closed it takes the rest of the value
into the column, and a line break outside quotes becomes a part of a text. This module finds both. Numbers with a
fraction and times are read as texts and cast here, as Spark's parser strips commas, rounds, and takes `5d` for a number
and "2024" for a day.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.base.names import named_twice, quoted
from headwater_streams.base.type_name import type_name
from headwater_streams.sources.json_value import CORRUPT
from headwater_streams.sources.parsers.typed import typed
from headwater_streams.sources.problems import Problem
from headwater_streams.sources.read_types import Detour, read_fields
from headwater_streams.sources.wrong_fields import wrong_fields

_MOST_COLUMNS = 20_480
"""Spark's own limit; its parser does not reject a value that has more, it fails (univocity's `maxColumns`)."""
_NOTHING = "\ufdd0 nothing \ufdd1"
"""A text for NULL that no value has: an empty column is NULL, and empty quotes are an empty text. Spark's own default
makes them the same."""


@dataclass(frozen=True)
class Csv:
    """Values of comma-separated columns.

    Attributes:
        sep: The separator between columns.
        quote: The character around texts with a separator, a quote or a line break; empty for none.
        escape: The character before a quote inside quotes; by default quotes are doubled.
        null: The text that stands for NULL; an empty column is NULL, too.
        header: The values' columns in their order, where the schema does not name all of them, or in another order;
            columns that are not in the schema are left out. A value that equals this line goes to quarantine.
    """

    sep: str = ","
    quote: str = '"'
    escape: str | None = None
    null: str = ""
    header: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.sep or len(self.quote) > 1 or (self.escape is not None and len(self.escape) != 1):
            raise JobDefinitionError(
                f"hw.csv: sep={self.sep!r} must not be empty, quote={self.quote!r} and escape={self.escape!r} are one "
                "character each (quote='' for none)"
            )
        twice = named_twice(self.header)
        if twice is not None:
            raise JobDefinitionError(
                f"hw.csv: header= names {twice!r} twice, as Spark takes names in any case"
            )

    @property
    def options(self) -> dict[str, str]:
        """The options of Spark's parser."""
        escape = self.escape or self.quote or "\\"
        return {
            "sep": self.sep,
            "quote": self.quote,
            "escape": escape,
            "nullValue": self.null or _NOTHING,
            "mode": "PERMISSIVE",
            "columnNameOfCorruptRecord": CORRUPT,
        }

    def check(self, schema: T.StructType) -> None:
        """Checks that values of this format can have these columns.

        Raises:
            JobDefinitionError: One is a list, a map or a struct, or the header does not name it.
        """
        for field in schema.fields:
            if isinstance(
                field.dataType, T.ArrayType | T.MapType | T.StructType | T.BinaryType | T.VariantType
            ):
                kind = type_name(field.dataType)
                raise JobDefinitionError(
                    f"a column of CSV cannot be {kind}, as {field.name!r} is; declare it as STRING and parse it"
                )
            if self.header and field.name not in self.header:
                raise JobDefinitionError(
                    f"the column {field.name!r} is not in header=, which has {', '.join(self.header)}"
                )

    def columns_in(self, schema: T.StructType) -> list[T.StructField]:
        """The columns of a value, in its order."""
        if not self.header:
            return list(schema.fields)
        declared = {field.name: field for field in schema.fields}
        return [declared.get(name, T.StructField(name, T.StringType())) for name in self.header]


def csv(
    *,
    sep: str = ",",
    quote: str = '"',
    escape: str | None = None,
    null: str = "",
    header: str | Sequence[str] = (),
) -> Csv:
    """Declares CSV as a topic's format; `header` may be the header line itself; see `Csv` for the arguments."""
    names = header.split(sep) if isinstance(header, str) else header
    return Csv(sep, quote, escape, null, tuple(names))


def csv_detour(kind: T.DataType, _within: bool) -> Detour | None:
    """How Spark's parser of CSV is to read a type whose values it would change."""
    if isinstance(kind, T.FractionalType | T.DateType | T.TimestampType | T.TimestampNTZType):
        return Detour(T.StringType(), lambda text: typed(text, kind))
    return None


def parse_csv(text: Column, schema: T.StructType, form: Csv) -> Column:
    """The columns of a value as `csv_detour` reads them, and the text in `_corrupt_record` where it does not fit."""
    fields = read_fields(form.columns_in(schema), csv_detour)
    return _from_csv(text, [*fields, T.StructField(CORRUPT, T.StringType())], form)


def csv_problem(
    text: Column,
    value: Column,
    columns: Mapping[str, Column],
    schema: T.StructType,
    form: Csv,
    unread: Column,
) -> Problem:
    """What is wrong with a value: it is null, empty, not UTF-8 or several lines, has another number of columns, or a
    column of another type.

    Args:
        text: The value.
        value: The parsed value.
        columns: Its columns, of the declared types.
        schema: The declared columns.
        form: The format.
        unread: Whether a field was misread.
    """
    names = [field.name for field in form.columns_in(schema)]
    corrupt = value.getField(CORRUPT).isNotNull()
    line = F.rtrim(text, F.lit("\r\n"))
    empty = F.btrim(text, F.lit(" \t\r\n")) == ""
    is_header = F.lit(False) if not form.header else line == form.sep.join(form.header)
    breaks = line.contains("\n") | line.contains("\r")
    plain = _without_quoted(line, form)
    several = F.when(breaks, plain.contains("\n") | plain.contains("\r")).otherwise(F.lit(False))
    unclosed = _has_odd_quotes(line, form)
    condition = value.isNull() | empty | ~F.is_valid_utf8(text) | several | unclosed | is_header | corrupt
    condition |= unread
    count = F.size(F.split(plain, re.escape(form.sep)))
    texts = _from_csv(text, [T.StructField(name, T.StringType()) for name in names], form)
    reason = (
        F.when(text.isNull(), F.lit("the value is null"))
        .when(empty, F.lit("the value is empty"))
        .when(~F.is_valid_utf8(text), F.lit("the value is not UTF-8"))
        .when(is_header, F.lit("the value is the header line"))
        .when(unclosed, F.lit("a quote is not closed"))
        .when(several, F.lit("the value is more than one line"))
        .when(
            count != len(names),
            F.concat(F.lit("the value has "), count.cast("string"), F.lit(f" columns, not {len(names)}")),
        )
        .otherwise(
            wrong_fields(
                [
                    (
                        f,
                        texts.getField(f.name).isNotNull() & columns[f.name].isNull(),
                        texts.getField(f.name),
                    )
                    for f in schema.fields
                ]
            )
        )
    )
    return Problem("value", condition, reason)


def _from_csv(text: Column, fields: Sequence[T.StructField], form: Csv) -> Column:
    line = F.rtrim(text, F.lit("\r\n"))
    # A text this short cannot have too many columns, and its octets need no counting.
    few = F.octet_length(line) < _MOST_COLUMNS
    separators = F.char_length(line) - F.char_length(F.replace(line, F.lit(form.sep), F.lit("")))
    few |= separators < _MOST_COLUMNS * len(form.sep)
    ddl = ", ".join(f"{quoted(f.name)} {f.dataType.simpleString()}" for f in fields)
    return F.when(few, F.from_csv(line, ddl, form.options))


def _without_quoted(line: Column, form: Csv) -> Column:
    """The line without its quoted parts."""
    if not form.quote:
        return line
    quote = re.escape(form.quote)
    return F.when(
        line.contains(form.quote),
        F.regexp_replace(_without_escaped(line, form), f"{quote}[^{quote}]*+{quote}", ""),
    ).otherwise(line)


def _has_odd_quotes(line: Column, form: Csv) -> Column:
    if not form.quote:
        return F.lit(False)
    plain = _without_escaped(line, form)
    quotes = F.char_length(plain) - F.char_length(F.replace(plain, F.lit(form.quote), F.lit("")))
    return F.when(line.contains(form.quote), quotes % 2 == 1).otherwise(F.lit(False))


def _without_escaped(line: Column, form: Csv) -> Column:
    if form.escape in (None, form.quote):
        return line  # a doubled quote closes and opens
    assert form.escape is not None
    return F.regexp_replace(line, rf"(?s){re.escape(form.escape)}.", "")
