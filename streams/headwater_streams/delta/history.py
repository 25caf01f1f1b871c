"""From change events to rows: the rows of a slowly changing dimension for some keys, given all of their events.

Both functions depend on the set of events alone. Events of one key are ordered by their sequence, then by where they
first stood (origin or coordinates); of those with the same sequence only the last counts.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from headwater_streams.delta.scd_target import CHANGES, DELETED, IS_CURRENT, VALID_FROM, VALID_TO
from headwater_streams.sources.coordinates import (
    BATCH,
    GENERATION,
    OFFSET,
    ORIGIN,
    PARTITION,
    ROW_COLUMNS,
    TOPIC,
)
from headwater_streams.spark.columns import col, cols

_OWN = (*ROW_COLUMNS, BATCH, GENERATION)
_PLACE, _NEXT, _BEFORE, _BEGINS, _BEGAN, _LAST = "_place", "_next", "_before", "_begins", "_began", "_last"


def newest(events: DataFrame, keys: Sequence[str], sequence: str) -> DataFrame:
    """The newest event of each key, unless it is a delete: type 1.

    Args:
        events: All events of the keys: their columns, `_deleted`, the coordinates and the commit's columns.
        keys: The key columns.
        sequence: The column that orders the events of a key.
    """
    backwards = Window.partitionBy(*cols(keys)).orderBy(*[c.desc() for c in _order(sequence)])
    last = events.withColumn(_PLACE, F.row_number().over(backwards)).filter(F.col(_PLACE) == 1)
    return last.filter(~F.col(DELETED)).drop(_PLACE, DELETED).withColumn(CHANGES, F.lit(1).cast("long"))


def history(events: DataFrame, keys: Sequence[str], sequence: str, tracked: Sequence[str]) -> DataFrame:
    """The versions of each key, each with the interval in which it holds: type 2.

    Args:
        events: All events of the keys, as for `newest`.
        keys: The key columns.
        sequence: The column that orders the events of a key.
        tracked: The columns whose change begins a version.
    """
    of_key = Window.partitionBy(*cols(keys)).orderBy(*_order(sequence))
    at = col(sequence)
    last_of_sequence = events.withColumn(_NEXT, F.lead(at).over(of_key)).filter(
        F.col(_NEXT).isNull() | (F.col(_NEXT) != at)
    )
    before = F.lag(F.struct(DELETED, F.struct(*cols(tracked)).alias("values"))).over(of_key)
    same = F.col(f"{_BEFORE}.values").eqNullSafe(F.struct(*cols(tracked)))
    begins = F.col(_BEFORE).isNull() | F.col(f"{_BEFORE}.{DELETED}") | F.col(DELETED) | ~same
    marked = last_of_sequence.select(
        "*",
        before.alias(_BEFORE),
        F.row_number().over(of_key).alias(_PLACE),
        F.lead(at).over(of_key).alias(VALID_TO),
    ).withColumn(_BEGINS, begins)
    first = F.struct(at.alias(VALID_FROM), _PLACE, *_OWN)
    so_far = of_key.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    versions = marked.select(
        "*",
        F.last(F.when(F.col(_BEGINS), first), ignorenulls=True).over(so_far).alias(_BEGAN),
        F.coalesce(F.lead(_BEGINS).over(of_key), F.lit(True)).alias(_LAST),
    ).filter(F.col(_LAST) & ~F.col(DELETED))
    gone = {_NEXT, _BEFORE, _BEGINS, _BEGAN, _LAST, _PLACE, DELETED, VALID_TO, sequence, *_OWN}
    return versions.select(
        *cols([name for name in versions.columns if name not in gone]),
        F.col(f"{_BEGAN}.{VALID_FROM}").alias(VALID_FROM),
        VALID_TO,
        F.col(VALID_TO).isNull().alias(IS_CURRENT),
        *[F.col(f"{_BEGAN}.{name}").alias(name) for name in _OWN],
        (F.col(_PLACE) - F.col(f"{_BEGAN}.{_PLACE}") + 1).cast("long").alias(CHANGES),
    )


def _order(sequence: str) -> list[Column]:
    """The order of the events of a key; the last parts make it total, so that no two events are equal in it."""
    return [
        col(sequence),
        F.coalesce(F.col(f"{ORIGIN}.cluster"), F.lit("")),
        F.coalesce(F.col(f"{ORIGIN}.topic"), F.col(TOPIC)),
        F.coalesce(F.col(f"{ORIGIN}.partition"), F.col(PARTITION)),
        F.coalesce(F.col(f"{ORIGIN}.offset"), F.col(OFFSET)),
        F.col(DELETED),
        F.col(TOPIC),
        F.col(PARTITION),
        F.col(OFFSET),
    ]
