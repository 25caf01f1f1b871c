"""Spark expressions that a parser of values and a sink both need."""

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F


def let(value: Column, body: Callable[[Column], Column]) -> Column:
    """Binds a column to a lambda's variable: Spark neither evaluates it again for each use nor folds it away."""
    return F.get(F.transform(F.array(value), body), F.lit(0))
