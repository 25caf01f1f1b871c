"""Asks Spark whether it can stream what a stateful job's function made, before a query is started."""

from collections.abc import Mapping
from typing import Literal

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.operators.joins.enrich import trusting
from headwater_streams.operators.recording import recording
from headwater_streams.plan.job import Job
from headwater_streams.sources.coordinates import ROW_FIELD, ROW_FIELDS
from headwater_streams.sources.inputs import Input, TableInput
from headwater_streams.spark.analysed_plan import check_for_streaming
from headwater_streams.spark.columns import with_watermark
from headwater_streams.spark.frames import empty_frame
from headwater_streams.spark.hidden_columns import hide
from headwater_streams.spark.spark_errors import first_sentence


def check_streamable(
    job: Job, schemas: Mapping[str, T.StructType], mode: Literal["append", "update"], spark: SparkSession
) -> None:
    """Calls the function on streams that never start, and has Spark's own checker look at the plan.

    Args:
        job: The job.
        schemas: Each input's columns.
        mode: The query's output mode.
        spark: A session.

    Raises:
        JobDefinitionError: Spark would refuse the query; the message is its reason.
    """
    streams = {name: _stream(spark, job.inputs[name], schema) for name, schema in schemas.items()}
    try:
        check_for_streaming(job.function(**streams), mode)
    except PySparkException as error:
        raise JobDefinitionError(
            f"job {job.name!r}: Spark cannot stream this: {first_sentence(error)}"
        ) from error


def check_without_actions(
    job: Job,
    schemas: Mapping[str, T.StructType],
    lookups: Mapping[str, T.StructType],
    spark: SparkSession,
) -> None:
    """Calls a function on streams that never start, which give no rows: what it makes of a count or a first row would
    be fixed when it is called.

    Args:
        job: The job.
        schemas: Each input's columns.
        lookups: Each look-up's columns.
        spark: A session.

    Raises:
        JobDefinitionError: It asks for rows.
    """
    streams = {name: _stream(spark, job.inputs[name], schema) for name, schema in schemas.items()}
    statics = {name: empty_frame(spark, schema) for name, schema in lookups.items()}

    def stand_in(result: DataFrame) -> DataFrame:
        return _stream(spark, TableInput("step.of"), result.schema)

    with recording(stand_in), trusting(True):
        try:
            job.function(**streams, **statics)
        except PySparkException as error:
            raise JobDefinitionError(
                f"job {job.name!r}: its function makes columns of streams, and asks for no rows, as count, collect and "
                f"first do: {first_sentence(error)}"
            ) from error


def _stream(spark: SparkSession, declared: Input, schema: T.StructType) -> DataFrame:
    ticks = spark.readStream.format("rate").load()  # columns `timestamp` and `value`; it is never started
    # A function that names the places of a table without any was refused before.
    traced = (*ROW_FIELDS, ROW_FIELD) if isinstance(declared, TableInput) else ROW_FIELDS
    columns = [
        (F.col("timestamp") if f.name == declared.event_time else F.lit(None)).cast(f.dataType).alias(f.name)
        for f in (*schema.fields, *traced)
    ]
    rows = ticks.select(*columns)
    if declared.event_time is not None and declared.watermark is not None:
        rows = with_watermark(rows, declared.event_time, declared.watermark)
    return hide(rows, [field.name for field in traced])
