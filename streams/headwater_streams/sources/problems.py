"""What can be wrong with a row: a condition that is cheap to test, and a reason that is computed for bad rows only."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

PROBLEMS = "_problems"
_TYPE = "array<struct<check: string, reason: string>>"


@dataclass(frozen=True)
class Problem:
    """One thing that makes a row bad.

    Attributes:
        check: Its name in the quarantine.
        condition: True for a bad row; NULL counts as false.
        reason: The message about the row.
    """

    check: str
    condition: Column
    reason: Column | str


def any_of(problems: Iterable[Problem]) -> Column:
    """Whether a row has a problem."""
    conditions = [F.coalesce(problem.condition, F.lit(False)) for problem in problems]
    return reduce(Column.__or__, conditions, F.lit(False))


def problem_array(problems: Iterable[Problem]) -> Column:
    """All problems of a row, as an array of `{check, reason}`."""
    entries = [
        F.when(
            problem.condition, F.struct(F.lit(problem.check).alias("check"), _text(problem).alias("reason"))
        )
        for problem in problems
    ]
    return F.array_compact(F.array(*entries)).cast(_TYPE)


def _text(problem: Problem) -> Column:
    return F.lit(problem.reason) if isinstance(problem.reason, str) else problem.reason
