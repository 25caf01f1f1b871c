"""The coordinates of a record and how they travel, unseen, through a user's function.

A row's topic, partition, offset and the rest are attached to the DataFrame as *hidden* columns: Spark's own
mechanism for metadata columns (the `_metadata` of file sources). `select`, `withColumn` and `filter` neither show
nor lose them, so a job stays a plain function on the columns it is about, and the library takes the coordinates
back out of the function's result. Spark resolves them through any chain of projections, filters and joins by
condition; an aggregation ends them.
"""

from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.spark.columns import col
from headwater_streams.spark.gateway import scala_object, to_list

TOPIC, PARTITION, OFFSET, TIMESTAMP, ORIGIN = "_topic", "_partition", "_offset", "_timestamp", "_origin"
PLACE = (TOPIC, PARTITION, OFFSET)
"""What names a record, and orders those of one time."""
SEEN_UNTIL, BATCH, GENERATION = "_seen_until", "_batch", "_generation"
SOURCES, ROWS = "_sources", "_rows"
INPUT = "_input"
"""The input that a row came by, where a job has several."""

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
"""What a source of records gives: the columns of Spark's Kafka source with `includeHeaders`."""


def commit_columns(batch: int, generation: int) -> dict[str, Column]:
    """`_batch` and `_generation` of a commit's rows."""
    return {BATCH: changing(F.lit(batch).cast("long")), GENERATION: F.lit(generation)}


def changing(value: Column) -> Column:
    """A literal that is another one in each batch.

    Spark writes a number into the Java that it makes of a plan, and would compile each batch's anew; an array it hands
    over beside the code, if it cannot fold away the look into it.
    """
    return F.get(F.array(value), F.spark_partition_id() * 0)


_METADATA_COLUMN = {"__metadata_col": True}  # catalyst's METADATA_COL_ATTR_KEY


def hide(df: DataFrame, names: Sequence[str]) -> DataFrame:
    """Makes columns invisible to `select("*")` and friends while they stay reachable by name."""
    visible = [col(name) for name in df.columns if name not in names]
    marked = df.select(*visible, *[F.col(name).alias(name, metadata=_METADATA_COLUMN) for name in names])
    hidden = marked.select(*visible)
    project = scala_object(df.sparkSession, "org.apache.spark.sql.catalyst.plans.logical.Project")
    tagged = marked._jdf.logicalPlan().output().takeRight(len(names))  # noqa: SLF001 - no public door to a plan's tags
    hidden._jdf.logicalPlan().setTagValue(project.hiddenOutputTag(), tagged)  # noqa: SLF001
    return hidden


def reveal(df: DataFrame, names: Sequence[str]) -> DataFrame:
    """Puts the hidden columns `names` behind the visible ones.

    Raises:
        JobDefinitionError: One of them is neither visible nor hidden.
    """
    missing = [name for name in names if name not in df.columns]
    try:
        return df.select("*", *[_plain(name) for name in missing])
    except AnalysisException as error:
        raise JobDefinitionError(
            f"the rows have lost {missing[0]!r} and all that tells what records they are of: a grouping, a union of "
            "Spark's, mapInPandas, mapInArrow and the like make rows of their own; use select, withColumn, filter, "
            "hw.enrich and hw.union on the inputs themselves"
        ) from error


def has_hidden(df: DataFrame, name: str) -> bool:
    """Whether `name` can be revealed; a plan is asked, for an exception of Spark's takes 0.1 s to come to Python."""
    if name in df.columns:
        return True
    attributes = to_list(df._jdf.queryExecution().analyzed().metadataOutput())  # noqa: SLF001
    return [str(attribute.name()) for attribute in attributes].count(name) == 1


def _plain(name: str) -> Column:
    # The copy is an ordinary column again: a metadata column would vanish at the next `select("*")`.
    return F.col(name).alias(name, metadata={"__metadata_col": False})
