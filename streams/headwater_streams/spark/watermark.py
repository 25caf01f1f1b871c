"""Spark's watermark: where a query's begins, and what is known of each of its inputs.

The watermark of a query is the least of its inputs': an input's is the greatest event time that was seen of it, less
its delay. Spark 4.1 has two ways with it that would change a table:

- It begins at 1970, an input of which nothing was seen counts as 1970, and no operator is given an earlier one: what is
  older is late from the first record on. Here it begins before all history (`NO_WATERMARK_MS`), and so does each input.
- Of what it has seen it writes down the least alone (`WatermarkTracker.setWatermark`). A query that is started again
  takes each input for one of which nothing was seen: where the two sides of a join bring rows in different runs, the
  watermark stands still, and no row without a partner ever comes. Here the ledger has each input's, in
  `extra.watermarks_ms` of each batch, and a query that is started gets them back.

An input's watermark is in Spark's memory only, in a private map by the id of the plan's `EventTimeWatermark`. It is
written to in the query's first batch, before Spark works out the watermark behind it.
"""

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headwater_streams.base.ledger_entry import NO_WATERMARK_MS
from headwater_streams.spark.analysed_plan import analysed_nodes
from headwater_streams.spark.checkpoint import last_planned, plan_before_first_batch
from headwater_streams.spark.gateway import jvm_class, scala_object, to_list

_METADATA = "org.apache.spark.sql.execution.streaming.checkpointing.OffsetSeqMetadata"
_PIECES = "spark.sql.streaming.internal.stateStore.partitions"


def batch_metadata(spark: SparkSession, watermark_ms: int, now_ms: int) -> str:
    """A batch's metadata as Spark writes it into the offset log, with the settings that a query begins with."""
    # As a query begins: in a session of its own, which says by another name how many pieces its state is in.
    session = spark._jsparkSession.cloneSession()  # noqa: SLF001 - what Spark holds on to has no public door
    session.conf().set(_PIECES, str(spark.conf.get("spark.sql.shuffle.partitions")))
    metadata = scala_object(spark, _METADATA).apply(watermark_ms, now_ms, session.conf())
    return str(metadata.json())


def begin_before_history(checkpoint: Path, stream: DataFrame, now_ms: int) -> None:
    """Has a query that has not begun take its first batch with a watermark before all history."""
    if last_planned(checkpoint) is None:
        analyzed = stream._jdf.queryExecution().analyzed()  # noqa: SLF001 - plans have no public door
        sources = sum(bool(leaf.isStreaming()) for leaf in to_list(analyzed.collectLeaves()))
        metadata = batch_metadata(stream.sparkSession, NO_WATERMARK_MS, now_ms)
        plan_before_first_batch(checkpoint, str(uuid.uuid4()), metadata, sources)


def watermark_node(stream: DataFrame) -> str:
    """The id of the `EventTimeWatermark` that a frame has just been given, which Spark knows its watermark by."""
    made = next(node for node in analysed_nodes(stream) if str(node.nodeName()) == "EventTimeWatermark")
    return str(made.nodeId().toString())


def put_back(spark: SparkSession, execution: Any, known_ms: Mapping[str, int]) -> None:
    """Tells a query what was seen of its inputs before it was started; call it inside its first batch.

    Args:
        spark: The session.
        execution: The `MicroBatchExecution` that runs the batch.
        known_ms: The watermark of each input, milliseconds, by the id of its node.
    """
    tracker = execution.watermarkTracker()
    field = tracker.getClass().getDeclaredField("operatorToWatermarkMap")
    field.setAccessible(True)
    of_inputs = field.get(tracker)
    ids, options = jvm_class(spark, "java.util.UUID"), jvm_class(spark, "scala.jdk.javaapi.OptionConverters")
    longs = jvm_class(spark, "java.util.OptionalLong")
    for node, watermark_ms in known_ms.items():
        # By way of an OptionalLong: of a number that is small py4j makes an Integer, which Spark's map may not hold.
        of_inputs.put(ids.fromString(node), options.toScala(longs.of(watermark_ms)))
