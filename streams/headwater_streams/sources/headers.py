"""The headers of a record; Headwater's own come in families, `headwater-<family>-<name>`."""

from pyspark.sql import Column
from pyspark.sql import functions as F

from headwater_streams.sources.problems import Problem


def header_value(headers: Column, key: str) -> Column:
    """The bytes of the first header of this key, NULL where there is none."""
    matching = F.filter(headers, lambda header: header["key"] == key)
    return F.try_element_at(matching, F.lit(1))["value"]


def header_map(headers: Column) -> Column:
    """The headers as a map of their names; of several of one name the last, as Kafka's `lastHeader` gives it."""
    count = F.size(headers)

    def is_last(header: Column, place: Column) -> Column:
        later = F.slice(headers, place + 2, count)
        return header["key"].isNotNull() & ~F.exists(
            later, lambda other: other["key"].eqNullSafe(header["key"])
        )

    return F.map_from_entries(F.filter(headers, is_last))


def is_name(text: Column) -> Column:
    """Whether a header's text can be a name, NULL where there is none. It must be UTF-8, as Python could not hold it
    else, and without a tab, which separates the parts of a name."""
    return F.is_valid_utf8(text) & ~F.contains(text, F.lit("\t"))


def incomplete(family: str, headers: Column, parsed: Column) -> Problem:
    """The problem of a record whose headers of the family could not be parsed (`parsed` is NULL)."""
    named = F.exists(headers, lambda header: header["key"].startswith(f"headwater-{family}-"))
    reason = f"the headwater-{family} headers are incomplete, not decimal numbers or not text"
    return Problem(family, parsed.isNull() & named, reason)
