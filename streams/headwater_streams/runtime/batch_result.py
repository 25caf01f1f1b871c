"""What Spark gives for one batch of a query: the rows, and what was observed on their way."""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame

from headwater_streams.delta.delta_table import WrittenFiles
from headwater_streams.spark.row_order import without_foreign_order

Metrics = dict[str, dict[str, Any]]
"""What the stream's plan observed in a batch, by observation and term."""


class BatchResult:
    """The rows of a batch, and what was observed while they were computed.

    Where Spark keeps state for the query, computing the rows updates it, so it is done once: by `kept`, where they are
    needed more than once (or `kept_with_columns`, where some of their columns are needed here), by `written`, where
    they are only written, or by `metrics`, where none are needed.
    """

    def __init__(self, rows: DataFrame, observe: Callable[[], Metrics]) -> None:
        """Args: the rows, and what gives the observations once the rows are computed."""
        self.rows = rows
        self._observe = observe
        self._metrics: Metrics | None = None
        self._is_kept = False

    @property
    def metrics(self) -> Metrics:
        """What was observed; computes the rows if that was not done."""
        self.require_computed()
        assert self._metrics is not None
        return self._metrics

    def kept(self) -> DataFrame:
        """The rows, computed and kept until `release`."""
        self._keep().count()
        self._metrics = self._observe()
        return self.rows

    def kept_with_columns(self, columns: Sequence[Column]) -> tuple[DataFrame, pa.Table]:
        """The rows, computed and kept until `release`, and these columns of all of them."""
        values = self._keep().select(*columns).toArrow()
        self._metrics = self._observe()
        return self.rows, values

    def written(self, write: Callable[[DataFrame], WrittenFiles]) -> WrittenFiles:
        """Computes the rows by writing them.

        Args:
            write: Writes rows, and reads them once.
        """
        self._require_not_computed()
        files = write(self.rows)
        self._metrics = self._observe()
        return files

    def require_computed(self) -> None:
        """Computes the rows if that was not done."""
        if self._metrics is None:
            self.rows.count()
            self._metrics = self._observe()

    def release(self) -> None:
        """Lets go of the rows that are kept."""
        if self._is_kept:
            self.rows.unpersist()

    def _keep(self) -> DataFrame:
        self._require_not_computed()
        self._is_kept = True
        self.rows = without_foreign_order(self.rows)
        return self.rows.persist()

    def _require_not_computed(self) -> None:
        assert self._metrics is None, "the state was updated by these rows, and would be again"
