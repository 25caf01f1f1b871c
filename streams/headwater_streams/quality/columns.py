"""Which checks can be evaluated over a frame's columns."""

from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.base.check import Check


def speaking_of(rows: DataFrame, checks: Sequence[Check]) -> tuple[Check, ...]:
    """The row checks whose columns the rows have."""

    def speaks(check: Check) -> bool:
        try:
            rows.filter(F.expr(check.expression))
        except AnalysisException:
            return False
        return True

    return tuple(filter(speaks, checks))


def speaks_of(frame: DataFrame, check: Check) -> bool:
    """Whether a frame has the columns of a check, of rows or of a batch."""
    try:
        frame.select(_aggregate(check))
    except AnalysisException:
        return False
    return True


def _aggregate(check: Check) -> Column:
    return F.expr(check.expression) if check.level == "batch" else F.count_if(F.expr(check.expression))
