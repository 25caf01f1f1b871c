"""The headers of a record; Headwater's own come in families, `headwater-<family>-<name>`."""

from pyspark.sql import Column
from pyspark.sql import functions as F

from headwater_streams.sources.problems import Problem


def header_value(headers: Column, key: str) -> Column:
    """The bytes of the first header of this key, NULL where there is none."""
    matching = F.filter(headers, lambda header: header["key"] == key)
    return F.try_element_at(matching, F.lit(1))["value"]


def is_name(text: Column) -> Column:
    """Whether a header's text can be a name, NULL where there is none. It must be UTF-8, as Python could not hold it
    else, and without a tab, which separates the parts of a name."""
    return F.is_valid_utf8(text) & ~F.contains(text, F.lit("\t"))


def incomplete(family: str, headers: Column, parsed: Column) -> Problem:
    """The problem of a record whose headers of the family could not be parsed (`parsed` is NULL)."""
    named = F.exists(headers, lambda header: header["key"].startswith(f"headwater-{family}-"))
    reason = f"the headwater-{family} headers are incomplete, not decimal numbers or not text"
    return Problem(family, parsed.isNull() & named, reason)
