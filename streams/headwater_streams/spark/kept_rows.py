"""Rows that are read once, and let go of when they are done with."""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame

from headwater_streams.spark.plain_ways import or_plainly


@contextmanager
def read_once(df: DataFrame) -> Iterator[DataFrame]:
    """The rows, kept as they are read for the first time (in memory, on disk what does not fit)."""
    kept = df.localCheckpoint(eager=False)
    try:
        yield kept
    finally:
        _let_go(kept)


def _leave(_: DataFrame) -> None:
    """Spark lets go of rows when the garbage collector has been at their frame."""


@or_plainly(_leave)
def _let_go(kept: DataFrame) -> None:
    kept._jdf.logicalPlan().rdd().unpersist(False)  # noqa: SLF001 - PySpark leaves it to the garbage collector
