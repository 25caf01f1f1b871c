"""Counts of rows that are taken on the rows' way to somewhere else."""

from typing import Any
from uuid import uuid4

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Observation

from headwater_streams.spark.spark_errors import JvmError


class Observed:
    """Aggregates of rows at a place, taken while what is made of the rows behind it is computed.

    Attributes:
        name: By which a plan knows the place.
    """

    def __init__(self) -> None:
        self.name = str(uuid4())
        self._observation = Observation(self.name)
        self._of: tuple[DataFrame, tuple[Column, ...]] | None = None
        self._found: dict[str, Any] | None = None

    def over(self, rows: DataFrame, *aggregates: Column) -> DataFrame:
        """The rows behind the place; called once."""
        self._of = rows, aggregates
        return rows.observe(self._observation, *aggregates)

    def get(self) -> dict[str, Any]:
        """The aggregates, once the rows are computed.

        They are computed by themselves where Spark has none: it leaves out the place where it sees that no row would
        come out behind it, and since Spark 4.2 a select in a function that could not be analysed, and was caught there,
        fails the observations of its frame.
        """
        if self._found is None:
            self._found = self._observed()
        return self._found

    def _observed(self) -> dict[str, Any]:
        try:
            return dict(self._observation.get)
        except AnalysisException:
            pass
        except JvmError as error:
            if "java.lang.AssertionError" not in str(error):
                raise
        assert self._of is not None, "observed over some rows"
        rows, aggregates = self._of
        (row,) = rows.agg(*aggregates).collect()
        return row.asDict()
