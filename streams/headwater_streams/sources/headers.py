"""What producers say about a record in its headers; Headwater's own come in families, `headwater-<family>-<name>`."""

from pyspark.sql import Column
from pyspark.sql import functions as F

from headwater_streams.sources.problems import Problem


def header_value(headers: Column, key: str) -> Column:
    """The bytes of the first header of this key, NULL where there is none."""
    matching = F.filter(headers, lambda header: header["key"] == key)
    return F.try_element_at(matching, F.lit(1))["value"]


def is_name(text: Column) -> Column:
    """Whether a header's text names something, NULL where there is none: one that is not UTF-8 could not be told in
    Python, nor one with a tab, which stands between the parts of a name, from two of them."""
    return F.is_valid_utf8(text) & ~F.contains(text, F.lit("\t"))


def incomplete(family: str, headers: Column, parsed: Column) -> Problem:
    """A record that has headers of the family, and from which nothing could be made (`parsed` is NULL)."""
    named = F.exists(headers, lambda header: header["key"].startswith(f"headwater-{family}-"))
    reason = f"the headwater-{family} headers are incomplete, not decimal numbers or not text"
    return Problem(family, parsed.isNull() & named, reason)
