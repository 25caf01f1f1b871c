"""Sessions that have to be replaced together: those that touch each other, and those between which rows may have moved.

Sessions of one key that touch make a *chain*, those of all rows and the written ones alike. Where the code of now gives
rows other keys, one chain has fewer rows than were written and another one more; such chains, where they lie over each
other in time, are one as well:

    written       'UA' 10:00 |-----------| 10:30   'UA ' 10:20 |---------------| 10:55     1 row, 2 rows
    of all rows   'UA' 10:00 |-------------------------------------------------| 10:55     3 rows, none of 'UA '
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.backfill.touching import CHAIN, numbered
from headwater_streams.backfill.values import Span
from headwater_streams.sources.coordinates import ROWS

START_US, END_US, MADE, OPEN = "_start_us", "_end_us", "_made", "_open"
"""A session's bounds in microseconds, whether it is of all rows or a written one, and whether it is not closed yet."""
_LAST, _MADE, _WRITTEN = "_last", "_made_sessions", "_written_sessions"
_MADE_ROWS, _WRITTEN_ROWS = "_made_rows", "_written_rows"


@dataclass(frozen=True)
class Chain:
    """Sessions that are replaced together or not at all.

    Attributes:
        begins: From the first start to past the last.
        end: The last end.
        more: How many rows more they have now than were written.
        is_open: Whether one of them is not closed yet.
        is_written: Whether one of them is written.
        is_apart: Whether several are written of which all rows make one, as where rows in time came behind one of them.
    """

    begins: Span
    end: int
    more: int
    is_open: bool
    is_written: bool
    is_apart: bool = False

    @property
    def is_half_written(self) -> bool:
        """Whether one of them is not closed, and one is written."""
        return self.is_open and self.is_written


def chained(sessions: DataFrame, whose: Sequence[Column]) -> DataFrame:
    """The chains of sessions of one key, a row each.

    Args:
        sessions: With their key, bounds and `_rows`, of all rows and written ones.
        whose: The columns of the key.
    """
    return (
        numbered(sessions, whose, START_US, END_US)
        .groupBy(*whose, CHAIN)
        .agg(
            F.min(START_US).alias(START_US),
            F.max(START_US).alias(_LAST),
            F.max(END_US).alias(END_US),
            F.sum(F.when(F.col(MADE), F.col(ROWS)).otherwise(0)).alias(_MADE_ROWS),
            F.sum(F.when(F.col(MADE), 0).otherwise(F.col(ROWS))).alias(_WRITTEN_ROWS),
            F.bool_or(OPEN).alias(OPEN),
            F.count_if(MADE).alias(_MADE),
            F.count_if(~F.col(MADE)).alias(_WRITTEN),
        )
    )


def chains_of(chained: DataFrame) -> list[Chain]:
    """Those that are more than one session, are half written, or do not have as many rows as were written."""
    of_note = (F.col(START_US) < F.col(_LAST)) | (F.col(_MADE_ROWS) != F.col(_WRITTEN_ROWS))
    found = [
        Chain(
            (row[START_US], row[_LAST] + 1),
            row[END_US],
            row[_MADE_ROWS] - row[_WRITTEN_ROWS],
            row[OPEN],
            row[_WRITTEN_ROWS] > 0,
            row[_WRITTEN] > row[_MADE] > 0,
        )
        for row in chained.filter(of_note | F.col(OPEN)).collect()
    ]
    return [*found, *exchanging([chain for chain in found if chain.more])]


def unknown(chained: DataFrame) -> DataFrame:
    """When those begin of whose rows none is there any more, as `_start_us`."""
    return chained.filter(F.col(_MADE_ROWS) == 0).select(START_US)


def exchanging(chains: Sequence[Chain]) -> Iterator[Chain]:
    """Of chains that lie over each other in time, all in one where some have more rows and some have fewer."""
    together: list[Chain] = []
    for chain in [*sorted(chains, key=lambda each: each.begins), None]:
        if together and (chain is None or chain.begins[0] > max(each.end for each in together)):
            if min(each.more for each in together) < 0 < max(each.more for each in together):
                yield _in_one(together)
            together = []
        if chain is not None:
            together.append(chain)


def _in_one(chains: Sequence[Chain]) -> Chain:
    starts, ends = zip(*[each.begins for each in chains], strict=True)
    return Chain(
        (min(starts), max(ends)),
        max(each.end for each in chains),
        sum(each.more for each in chains),
        any(each.is_open for each in chains),
        any(each.is_written for each in chains),
    )
