"""Settings of a query that its session does not have: a query takes its settings as it starts.

Batches without rows follow the last rows of a stateful query to move its watermark: they close windows and let rows
without a partner go. Where nothing of that is written they only clear state, which the next batch with rows does as
well: of twelve seconds of an inner join they took two.

Several stateful operators in one query are what chains have jobs for. Where Spark allows for them, it gives each a
watermark of its own, and never one before 1970; where it does not, each has the query's, whatever that is, and drops
what is behind that of the batch itself in place of the batch before. (Source: Spark's WatermarkPropagator.)
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

_EMPTY_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"
_SEVERAL_OPERATORS = "spark.sql.streaming.statefulOperator.allowMultiple"
_STARTING = threading.Lock()


def has_empty_batches(spark: SparkSession) -> bool:
    """Whether the session's setting allows batches without rows."""
    with _STARTING:
        return str(spark.conf.get(_EMPTY_BATCHES)) == "true"


@contextmanager
def query_settings(spark: SparkSession, *, empty_batches: bool, before_1970: bool) -> Iterator[None]:
    """Has a query that is started in it run by its own settings; the session has its own back then.

    Args:
        spark: The session.
        empty_batches: Whether batches without rows are wanted; they are run if the session's setting allows them.
        before_1970: Whether the query's watermark may be before 1970.
    """
    settings = {} if empty_batches else {_EMPTY_BATCHES: "false"}
    if before_1970:
        settings[_SEVERAL_OPERATORS] = "false"
    with _STARTING:  # else a query that another thread is starting might take them
        before = {name: str(spark.conf.get(name)) for name in settings}
        for name, value in settings.items():
            spark.conf.set(name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                spark.conf.set(name, value)
