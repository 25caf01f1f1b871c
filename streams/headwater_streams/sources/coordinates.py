"""The coordinates of a record, and how they travel, hidden, through a user's function.

A row's topic, partition, offset and the rest are attached to the DataFrame as *hidden* columns, by Spark's own
mechanism for metadata columns (the `_metadata` of file sources). `select`, `withColumn` and `filter` neither show nor
lose them. So a job stays a plain function on its columns, and the library reads the coordinates from the function's
result. Spark resolves them through any chain of projections, filters and joins by condition; an aggregation drops them.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.base.names import RECORD_COLUMNS

TOPIC, PARTITION, OFFSET, TIMESTAMP, ORIGIN = "_topic", "_partition", "_offset", "_timestamp", "_origin"
PLACE = (TOPIC, PARTITION, OFFSET)
"""The columns that identify a record, and order records of one time."""
SEEN_UNTIL, BATCH, GENERATION = "_seen_until", "_batch", "_generation"
SOURCES, ROWS = "_sources", "_rows"
INPUT = "_input"
"""The input of a row, where a job has several."""
ROW = "_row"
"""The place of a row in its record, from 0 on, where a record may become several rows; see `operators.exploding`."""
ROW_FIELD = T.StructField(ROW, T.LongType())

ORIGIN_TYPE = T.StructType(
    [
        T.StructField("cluster", T.StringType()),
        T.StructField("topic", T.StringType()),
        T.StructField("partition", T.IntegerType()),
        T.StructField("offset", T.LongType()),
    ]
)
ROW_FIELDS = (
    T.StructField(TOPIC, T.StringType()),
    T.StructField(PARTITION, T.IntegerType()),
    T.StructField(OFFSET, T.LongType()),
    T.StructField(TIMESTAMP, T.TimestampType()),
    T.StructField(ORIGIN, ORIGIN_TYPE),
)
ROW_COLUMNS = tuple(field.name for field in ROW_FIELDS)
COMMIT_FIELDS = (T.StructField(BATCH, T.LongType()), T.StructField(GENERATION, T.IntegerType()))
SOURCES_TYPE = T.ArrayType(
    T.StructType(
        [
            T.StructField("topic", T.StringType()),
            T.StructField("partition", T.IntegerType()),
            T.StructField("start", T.LongType()),
            T.StructField("end", T.LongType()),
        ]
    )
)
RECORD_FIELDS = tuple(
    T.StructField(name, kind)
    for name, kind in zip(
        RECORD_COLUMNS, (T.BinaryType(), T.MapType(T.StringType(), T.BinaryType())), strict=True
    )
)
"""A record's key and headers as a job's function has them; of headers of one name the last."""
RAW_SCHEMA = T.StructType(
    [
        T.StructField("key", T.BinaryType()),
        T.StructField("value", T.BinaryType()),
        T.StructField("topic", T.StringType()),
        T.StructField("partition", T.IntegerType()),
        T.StructField("offset", T.LongType()),
        T.StructField("timestamp", T.TimestampType()),
        T.StructField(
            "headers",
            T.ArrayType(
                T.StructType([T.StructField("key", T.StringType()), T.StructField("value", T.BinaryType())])
            ),
        ),
    ]
)
"""The columns of a source of records: those of Spark's Kafka source with `includeHeaders`."""


def commit_columns(batch: int, generation: int) -> dict[str, Column]:
    """`_batch` and `_generation` of a commit's rows."""
    return {BATCH: changing(F.lit(batch).cast("long")), GENERATION: F.lit(generation)}


def changing(value: Column) -> Column:
    """A literal that changes from batch to batch.

    Spark writes a literal into the Java code of a plan, and would compile it anew for each batch. It passes an array
    beside the code, if it cannot fold the access to it.
    """
    return F.get(F.array(value), F.spark_partition_id() * 0)
