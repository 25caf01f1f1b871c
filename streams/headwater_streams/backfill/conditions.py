"""Conditions over rows, of as many parts as there are."""

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F


def any_of(conditions: Sequence[Column]) -> Column:
    """True where one of the conditions is, else false, never NULL."""
    return F.coalesce(_either(conditions), F.lit(False))


def _either(conditions: Sequence[Column]) -> Column:
    """Joined as a balanced tree: Spark descends into conditions, and a thousand windows would be a thousand deep."""
    if len(conditions) < 2:
        return conditions[0] if conditions else F.lit(False)
    middle = len(conditions) // 2
    return _either(conditions[:middle]) | _either(conditions[middle:])
