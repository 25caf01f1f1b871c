"""Which checks can be evaluated over a frame's columns."""

from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.base.check import Check
from headwater_streams.base.names import RECORD_COLUMNS
from headwater_streams.sources.coordinates import ROW, ROW_COLUMNS
from headwater_streams.spark.frames import empty_frame
from headwater_streams.spark.hidden_columns import has_hidden, reveal


def speaking_of(frame: DataFrame, checks: Sequence[Check]) -> tuple[Check, ...]:
    """The checks, of rows or of a batch, whose columns a frame has."""
    if not checks:
        return ()
    empty = _without_rows(frame)
    return tuple(check for check in checks if _speaks(empty, check))


def _without_rows(frame: DataFrame) -> DataFrame:
    """An empty frame with the same columns, hidden ones included.

    A select that cannot be analysed fails the observations of its frame (Spark 4.2), and a batch counts by these.
    """
    names = (*ROW_COLUMNS, ROW, *RECORD_COLUMNS)
    hidden = [name for name in names if name not in frame.columns and has_hidden(frame, name)]
    return empty_frame(frame.sparkSession, reveal(frame, hidden).schema)


def _speaks(frame: DataFrame, check: Check) -> bool:
    try:
        frame.select(_aggregate(check))
    except AnalysisException:
        return False
    return True


def _aggregate(check: Check) -> Column:
    return F.expr(check.expression) if check.level == "batch" else F.count_if(F.expr(check.expression))
