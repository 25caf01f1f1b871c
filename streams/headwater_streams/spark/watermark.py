"""Spark's watermark: where a query's begins, and how each input's survives a restart.

The watermark of an input is the greatest event time that was seen in it, minus its delay; a query's is the least of its
inputs'. Spark 4.1 treats it in two ways that would change a table:

- It begins at 1970: an input without any row counts as 1970, and no operator gets an earlier watermark. Older rows
  would be late from the first record on. Here it begins before all history (`NO_WATERMARK_MS`), and so does each
  input's.
- Spark stores only the least of the inputs' watermarks (`WatermarkTracker.setWatermark`). A query that is started again
  takes each input for one without any row: where the two sides of a join bring rows in different runs, the watermark
  does not move, and no row without a partner is ever written. Here the ledger has each input's watermark, in
  `extra.watermarks_ms` of each batch, and a query that is started gets them back.

An input's watermark is only in Spark's memory, in a private map by the id of the plan's `EventTimeWatermark`. The
library writes to the map in the query's first batch, before Spark computes the watermark after it.
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
    # A query starts in a session of its own, in which another setting has the number of pieces of its state.
    session = spark._jsparkSession.cloneSession()  # noqa: SLF001 - Spark's metadata has no public door
    session.conf().set(_PIECES, str(spark.conf.get("spark.sql.shuffle.partitions")))
    metadata = scala_object(spark, _METADATA).apply(watermark_ms, now_ms, session.conf())
    return str(metadata.json())


def begin_before_history(checkpoint: Path, stream: DataFrame, now_ms: int) -> None:
    """Makes a query that has not begun run its first batch with a watermark before all history."""
    if last_planned(checkpoint) is None:
        analyzed = stream._jdf.queryExecution().analyzed()  # noqa: SLF001 - plans have no public door
        sources = sum(bool(leaf.isStreaming()) for leaf in to_list(analyzed.collectLeaves()))
        metadata = batch_metadata(stream.sparkSession, NO_WATERMARK_MS, now_ms)
        plan_before_first_batch(checkpoint, str(uuid.uuid4()), metadata, sources)


def watermark_node(stream: DataFrame) -> str:
    """The id of a frame's `EventTimeWatermark`, by which Spark keeps its watermark."""
    watermark = next(node for node in analysed_nodes(stream) if str(node.nodeName()) == "EventTimeWatermark")
    return str(watermark.nodeId().toString())


def put_back(spark: SparkSession, execution: Any, watermarks_ms: Mapping[str, int]) -> None:
    """Puts back the watermarks that a query's inputs had before its start; to be called inside its first batch.

    Args:
        spark: The session.
        execution: The `MicroBatchExecution` that runs the batch.
        watermarks_ms: The watermark of each input, milliseconds, by the id of its node.
    """
    tracker = execution.watermarkTracker()
    field = tracker.getClass().getDeclaredField("operatorToWatermarkMap")
    field.setAccessible(True)
    of_inputs = field.get(tracker)
    ids, options = jvm_class(spark, "java.util.UUID"), jvm_class(spark, "scala.jdk.javaapi.OptionConverters")
    longs = jvm_class(spark, "java.util.OptionalLong")
    for node, watermark_ms in watermarks_ms.items():
        # An OptionalLong, as py4j makes an Integer of a small number, which Spark's map may not hold.
        of_inputs.put(ids.fromString(node), options.toScala(longs.of(watermark_ms)))
