"""The headers by which a producer numbers its own records; see `operators.dedup.by_sequence`."""

from pyspark.sql import Column
from pyspark.sql import functions as F

from headwater_streams.sources.decode import HEADERS
from headwater_streams.sources.headers import header_value, incomplete, is_name
from headwater_streams.sources.problems import Problem

_DIGITS = "^[0-9]{1,18}$"


def sequence_of(headers: Column) -> Column:
    """The struct `id, epoch, sequence` that the headers name, NULL where they are incomplete, not decimal numbers or
    not text."""
    id_, epoch, sequence = (
        header_value(headers, f"headwater-producer-{name}").cast("string")
        for name in ("id", "epoch", "sequence")
    )
    whole = is_name(id_) & epoch.rlike(_DIGITS) & sequence.rlike(_DIGITS)
    numbers = [epoch.try_cast("long").alias("epoch"), sequence.try_cast("long").alias("sequence")]
    return F.when(whole, F.struct(id_.alias("id"), *numbers))


def sequence_problem() -> Problem:
    """The problem of a record that has only some of the headers, or something else than numbers in them."""
    return incomplete("producer", F.col(HEADERS), sequence_of(F.col(HEADERS)))
