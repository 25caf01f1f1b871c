"""Sessions, recomputed: which of them a batch over all rows gives in the same way as the stream does.

    gap 30 minutes       10:00     10:30     11:00
    10:00 a               a---------+                the watermark passes 10:30: [10:00, 10:30) is written
    10:20 b, behind it           b---------+         in time by itself, so it begins one of its own: [10:20, 10:50)
    a batch gives         [10:00, 10:50): a, b

Such sessions touch each other, which those of one key do not otherwise; together they are one of the batch's, with as
many rows. One that is written may touch one that is still open likewise. Neither is compared with anything but that.
"""

from collections.abc import Sequence
from functools import cached_property, reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.backfill.touching import CHAIN, numbered
from headwater_streams.operators.windows.spec import WINDOW_END, WINDOW_START
from headwater_streams.sources.coordinates import ROWS
from headwater_streams.spark.columns import col, cols

_PARTS = "_parts"
_OF_START, _OF_END, _OF_ROWS = "_of_start", "_of_end", "_of_rows"


class Sessions:
    """What bounds tell of sessions."""

    def __init__(self, who: Sequence[str], written: DataFrame, closed_until_us: int) -> None:
        """Args: the columns that name whose session it is, of rows recomputed as of those written; all sessions that
        were written; the watermark, where those that end there or before are written."""
        self._who, self._written, self._closed_until_us = tuple(who), written, closed_until_us

    def near(self, made: DataFrame, picked: DataFrame) -> DataFrame:
        """The recomputed sessions that touch some written ones: of the others not all rows may have been read."""
        return made.join(self._bounds(picked), self._touches(), "left_semi")

    def closed(self, made: DataFrame) -> DataFrame:
        """The recomputed sessions that should be written."""
        return made.filter(F.unix_micros(WINDOW_END) <= self._closed_until_us)

    def unsplit(self, made: DataFrame, *, sample: bool) -> DataFrame:
        """The recomputed sessions that should be written as one.

        Args:
            made: The sessions, closed or not.
            sample: Whether only some rows were read: then those that touch written parts are not looked at; else they
                must be what the parts are together.
        """
        split = self._split
        whole = (
            self._same() & (F.col(WINDOW_START) == F.col(_OF_START)) & (F.col(WINDOW_END) == F.col(_OF_END))
        )
        whole &= F.col(ROWS) == F.col(_OF_ROWS)
        return self.closed(made).join(split, self._touches() if sample else whole, "left_anti")

    def comparable(self, made: DataFrame, picked: DataFrame) -> DataFrame:
        """Of some written sessions those that touch neither another nor one that is open.

        Args:
            made: The sessions recomputed, closed or not.
            picked: The written ones.
        """
        alone = picked.join(self._split, self._touches(), "left_anti")
        still_open = made.filter(F.unix_micros(WINDOW_END) > self._closed_until_us)
        return alone.join(self._bounds(still_open), self._touches(), "left_anti")

    @cached_property
    def _split(self) -> DataFrame:
        """Written sessions that touch each other, together: their bounds and their rows; few, and looked at often."""
        who = cols(self._who)
        chained = numbered(self._written, who, WINDOW_START, WINDOW_END)
        bounds = (
            F.min(WINDOW_START).alias(WINDOW_START),
            F.max(WINDOW_END).alias(WINDOW_END),
            F.sum(ROWS).alias(ROWS),
        )
        chains = chained.groupBy(*who, CHAIN).agg(*bounds, F.count(F.lit(1)).alias(_PARTS))
        return self._bounds(chains.filter(F.col(_PARTS) > 1)).localCheckpoint()

    def _bounds(self, sessions: DataFrame) -> DataFrame:
        """Whose sessions they are, their bounds and rows, by names that no other rows have."""
        who = [col(name).alias(f"_of_{n}") for n, name in enumerate(self._who)]
        own = {WINDOW_START: _OF_START, WINDOW_END: _OF_END, ROWS: _OF_ROWS}
        return sessions.select(*who, *[F.col(name).alias(of) for name, of in own.items()])

    def _same(self) -> Column:
        pairs = [col(name).eqNullSafe(F.col(f"_of_{n}")) for n, name in enumerate(self._who)]
        return reduce(Column.__and__, pairs)

    def _touches(self) -> Column:
        return (
            self._same() & (F.col(WINDOW_START) <= F.col(_OF_END)) & (F.col(WINDOW_END) >= F.col(_OF_START))
        )
