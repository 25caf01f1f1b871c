"""A streaming query's own execution in the JVM, which PySpark shows only when a batch is over."""

import json
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headwater_streams.spark.gateway import to_list
from headwater_streams.spark.plain_ways import or_plainly


def execution_of_batch(spark: SparkSession) -> Any:
    """The `MicroBatchExecution` that runs the batch of this thread; call it inside a batch."""
    query_id = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
    return spark._jsparkSession.streams().get(query_id).streamingQuery()  # noqa: SLF001 - PySpark has no such door


def observed_metrics(execution: Any) -> dict[str, dict[str, Any]]:
    """What a stream's plan observed in the batch that is run, by observation and term, before Spark publishes it."""
    found: dict[str, dict[str, Any]] = {}
    for pair in to_list(execution.lastExecution().observedMetrics().toSeq()):
        name, row = pair._1(), pair._2()  # noqa: SLF001 - the names of a Scala tuple
        names = row.schema().fieldNames()
        found[name] = {names[i]: row.get(i) for i in range(len(names))}
    return found


def _taken_apart(query: StreamingQuery, after: int) -> list[dict[str, Any]]:
    accounts = [json.loads(each.json) for each in query.recentProgress]
    return [each for each in accounts if each["batchId"] > after and "addBatch" in each.get("durationMs", {})]


@or_plainly(_taken_apart)
def recent_progress(query: StreamingQuery, after: int) -> list[dict[str, Any]]:
    """Spark's accounts of the batches after one, oldest first, as far back as Spark keeps them (100 triggers)."""
    recent = query._jsq.recentProgress()  # noqa: SLF001 - PySpark's own takes all of them apart each time
    found: list[dict[str, Any]] = []
    for place in reversed(range(len(recent))):
        told = recent[place]
        if told.batchId() <= after:
            break
        account = json.loads(told.json())
        if "addBatch" in account.get("durationMs", {}):  # otherwise it is about a trigger without a batch
            found.append(account)
    return found[::-1]
