"""What Spark's analyser says before a row is read: whether an expression is a condition, and which aggregates of it
can be shown."""

from collections.abc import Iterable

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.base.check import InvalidCheckError
from headwater_streams.base.type_name import type_name
from headwater_streams.spark.patterns import wrong_pattern


def require_condition(frame: DataFrame, expression: str) -> None:
    """Has a frame analyse an expression by itself: inside a check's own SQL, `'yes'` would be cast to BOOLEAN, and a
    bracket too many would close one of the check's.

    Raises:
        InvalidCheckError: It is a value of another type, or several values, or a regular expression in it is none.
        PySparkException: It is not SQL, or the frame has no such columns.
    """
    selected = frame.selectExpr(expression)
    fields = selected.schema.fields
    if len(fields) != 1:
        raise InvalidCheckError(f"it is {len(fields)} values, and must be a condition: {expression}")
    if fields[0].dataType != T.BooleanType():
        kind = type_name(fields[0].dataType)
        raise InvalidCheckError(f"it is {kind}, and must be BOOLEAN, a condition: {expression}")
    wrong = wrong_pattern(selected)
    if wrong is not None:
        raise InvalidCheckError(wrong)


def values_as_json(calls: Iterable[str]) -> str:
    """SQL for the values of aggregates, in order, as a text of JSON that has NULLs, too."""
    columns = ", ".join(f"{call} AS value_{place}" for place, call in enumerate(calls))
    return f"to_json(struct({columns}), map('ignoreNullFields', 'false'))"


def showable(frame: DataFrame, calls: Iterable[str]) -> tuple[str, ...]:
    """The aggregates of which Spark can make JSON."""
    return tuple(call for call in calls if _is_showable(frame, call))


def _is_showable(frame: DataFrame, call: str) -> bool:
    try:
        frame.agg(F.expr(values_as_json([call])))
    except AnalysisException:
        return False
    return True
