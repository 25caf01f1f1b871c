"""Aggregation by key over all time: one result for each key, updated as long as rows come.

    by carrier        10:00        11:00        a year later
    UA 5 min            a
    UA 7 min                         b                            UA: 2 rows, 12 minutes; then 3 rows, 13 minutes
    UA 1 min                                        c
    DL 3 min            d                                         DL: 1 row, 3 minutes

No row is ever late, and nothing is ever dropped from Spark's state: it holds every key that was seen, for as long as
the job lives. The job says so with `state="unbounded"`. Where new keys keep coming (flights, sessions, users by
address), use a window, whose state the watermark clears.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.base.target import Mode
from headwater_streams.operators.windows.grouping import Windowed, require_columns
from headwater_streams.operators.windows.spec import FoldedWindow
from headwater_streams.spark.columns import cols


@dataclass(frozen=True)
class KeyGroups(FoldedWindow):
    """Each value of `by`, over all time: a window that never closes."""

    name: ClassVar[str] = "an aggregation by key"
    modes: ClassVar[tuple[Mode, ...]] = ("update",)
    overlapping: ClassVar[bool] = False
    closing: ClassVar[bool] = False

    by: tuple[str, ...]
    time: str = ""

    def grouping(self, rows: DataFrame) -> tuple[DataFrame, Column | None]:
        """See `FoldedWindow`."""
        return rows, None

    def closes(self) -> Column:
        """See `FoldedWindow`: never."""
        return F.lit(None).cast("timestamp")

    def placed(self, rows: DataFrame, result: DataFrame) -> DataFrame:
        """See `FoldedWindow`."""
        return rows

    def key_parts(self) -> dict[str, Column]:
        """See `FoldedWindow`."""
        return dict(zip(self.by, cols(self.by), strict=True))


def grouped(df: DataFrame, *, by: Sequence[str], state: str) -> Windowed:
    """Groups rows by key, without a window.

    Args:
        df: Rows.
        by: The key's columns.
        state: `"unbounded"`: says that Spark keeps every key for ever.

    Returns:
        A grouping; call `.agg(...)` on it with Spark aggregates. The target's mode is "update", its keys are `by`;
        the table is at all times the result over all rows so far, as in Spark's complete mode.

    Example:
        hw.grouped(orders, by=["customer"], state="unbounded").agg(F.sum("amount").alias("spent"))

    Raises:
        JobDefinitionError: A column is missing, `by` is empty, or `state` is something else.
    """
    require_columns("grouped", df, by)
    if not by:
        raise JobDefinitionError("grouped: name at least one column in by=[...]")
    if state != "unbounded":
        raise JobDefinitionError(
            f"grouped: state={state!r} is not 'unbounded'; to have old keys leave Spark's state, use a window, "
            "or hw.session(...), which ends when a key has been silent for a while"
        )
    return Windowed(df, KeyGroups(tuple(by)))
