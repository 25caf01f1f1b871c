"""A streaming query's own execution in the JVM, which PySpark shows only when a batch is over."""

import json
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headwater_streams.spark.gateway import to_list
from headwater_streams.spark.plain_ways import or_plainly


def execution_of_batch(spark: SparkSession) -> Any:
    """The `MicroBatchExecution` that runs the batch of this thread; to be called inside a batch."""
    query_id = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
    return spark._jsparkSession.streams().get(query_id).streamingQuery()  # noqa: SLF001 - PySpark has no such door


def observed_metrics(execution: Any) -> dict[str, dict[str, Any]]:
    """What a stream's plan has observed in the running batch, by observation and term, before Spark publishes it."""
    metrics: dict[str, dict[str, Any]] = {}
    for pair in to_list(execution.lastExecution().observedMetrics().toSeq()):
        name, row = pair._1(), pair._2()  # noqa: SLF001 - the names of a Scala tuple
        names = row.schema().fieldNames()
        metrics[name] = {names[i]: row.get(i) for i in range(len(names))}
    return metrics


def _parsed_progress(query: StreamingQuery, after: int) -> list[dict[str, Any]]:
    accounts = [json.loads(each.json) for each in query.recentProgress]
    return [each for each in accounts if each["batchId"] > after and "addBatch" in each.get("durationMs", {})]


@or_plainly(_parsed_progress)
def recent_progress(query: StreamingQuery, after: int) -> list[dict[str, Any]]:
    """Spark's accounts of the batches after one, oldest first, as far back as Spark keeps them (100 triggers)."""
    recent = query._jsq.recentProgress()  # noqa: SLF001 - PySpark's own parses all of them each time
    accounts: list[dict[str, Any]] = []
    for place in reversed(range(len(recent))):
        progress = recent[place]
        if progress.batchId() <= after:
            break
        account = json.loads(progress.json())
        if "addBatch" in account.get("durationMs", {}):  # otherwise it is about a trigger without a batch
            accounts.append(account)
    return accounts[::-1]
