"""Spark's own batches without rows, which follow the last rows of a stateful query to move its watermark.

They close windows and let rows without a partner go. Where nothing of that is written they only clear state, which the
next batch with rows does as well: of twelve seconds of an inner join they took two.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

_SETTING = "spark.sql.streaming.noDataMicroBatches.enabled"
_STARTING = threading.Lock()


def has_empty_batches(spark: SparkSession) -> bool:
    """Whether the session's setting allows such batches."""
    with _STARTING:
        return str(spark.conf.get(_SETTING)) == "true"


@contextmanager
def empty_batches(spark: SparkSession, *, wanted: bool) -> Iterator[None]:
    """Has a query that is started in it run such batches only if they are wanted and the session's setting allows them.

    A query takes its settings as it starts, and its session has them back then.
    """
    with _STARTING:  # also where they are wanted: another thread's query may just be starting without
        before = str(spark.conf.get(_SETTING))
        if not wanted:
            spark.conf.set(_SETTING, "false")
        try:
            yield
        finally:
            spark.conf.set(_SETTING, before)
