"""Values that are one line of text each: checks them. A parser takes them apart."""

from pyspark.sql import Column
from pyspark.sql import functions as F

from headwater_streams.sources.parsers import Parser
from headwater_streams.sources.parsers.parser import text_of
from headwater_streams.sources.problems import Problem


def line_problem(raw: Column, value: Column, parser: Parser) -> Problem:
    """What is wrong with a line: it is null, empty, not UTF-8, or not of the parser's format."""
    text = text_of(raw)
    reason = (
        F.when(raw.isNull(), F.lit("the value is null"))
        .when(F.btrim(text) == "", F.lit("the line is empty"))
        .when(~F.is_valid_utf8(text), F.lit("the line is not UTF-8"))
        .otherwise(F.concat(F.lit(f"the line is not of the format {parser.name!r}"), _more(text, parser)))
    )
    return Problem("value", value.isNull(), reason)


def _more(text: Column, parser: Parser) -> Column:
    if parser.why is None:
        return F.lit("")
    return F.coalesce(F.concat(F.lit(": "), parser.why(text)), F.lit(""))
