"""Which checks speak of the columns that a frame has."""

from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.base.check import Check


def speaking_of(rows: DataFrame, checks: Sequence[Check]) -> tuple[Check, ...]:
    """The row checks that speak of the rows' columns."""

    def speaks(check: Check) -> bool:
        try:
            rows.filter(F.expr(check.expression))
        except AnalysisException:
            return False
        return True

    return tuple(filter(speaks, checks))


def speaks_of(frame: DataFrame, check: Check) -> bool:
    """Whether a check, of rows or of a batch, speaks of a frame's columns."""
    try:
        frame.select(_aggregate(check))
    except AnalysisException:
        return False
    return True


def _aggregate(check: Check) -> Column:
    return F.expr(check.expression) if check.level == "batch" else F.count_if(F.expr(check.expression))
