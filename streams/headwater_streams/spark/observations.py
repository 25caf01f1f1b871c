"""Counts of rows that are taken on the rows' way to somewhere else."""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Observation

from headwater_streams.spark.spark_errors import JvmError


class Observed:
    """Aggregates of rows, taken while what is made of `rows` is computed.

    Attributes:
        name: By which a plan knows the place.
        rows: The rows behind it.
    """

    def __init__(self, rows: DataFrame, aggregates: Sequence[Column]) -> None:
        self._before, self._aggregates = rows, [*aggregates]
        self.name = str(uuid4())
        self._observation = Observation(self.name)
        self._alone: dict[str, Any] | None = None
        self.rows = rows.observe(self._observation, *self._aggregates)

    def get(self) -> dict[str, Any]:
        """The aggregates, once the rows are computed.

        They are computed by themselves where Spark has none: it leaves out the place where it sees that no row would
        come out behind it, and since Spark 4.2 a select in a function that could not be analysed, and was caught there,
        fails the observations of its frame.
        """
        try:
            return dict(self._observation.get)
        except AnalysisException:
            pass
        except JvmError as error:
            if "java.lang.AssertionError" not in str(error):
                raise
        if self._alone is None:
            (row,) = self._before.agg(*self._aggregates).collect()
            self._alone = row.asDict()
        return self._alone
