"""Rows that are read once, and released at the end of a block."""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame

from headwater_streams.spark.plain_ways import or_plainly


@contextmanager
def read_once(df: DataFrame) -> Iterator[DataFrame]:
    """The rows, which Spark keeps when they are read for the first time (in memory, or on disk where that is full)."""
    checkpointed = df.localCheckpoint(eager=False)
    try:
        yield checkpointed
    finally:
        _let_go(checkpointed)


def _leave(_: DataFrame) -> None:
    """Spark releases rows once the garbage collector has collected their frame."""


@or_plainly(_leave)
def _let_go(rows: DataFrame) -> None:
    rows._jdf.logicalPlan().rdd().unpersist(False)  # noqa: SLF001 - PySpark leaves it to the garbage collector
