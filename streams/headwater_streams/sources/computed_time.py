"""An event time that is computed of each record, as Spark computes it; `sources.event_time` says how it is written."""

from collections.abc import Mapping

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.base.type_name import type_name
from headwater_streams.sources.coordinates import OFFSET, RECORD_FIELDS, ROW_FIELDS
from headwater_streams.sources.event_time import made_a_time, mismatch_hint
from headwater_streams.sources.inputs import TopicInput
from headwater_streams.spark.columns import cols
from headwater_streams.spark.frames import empty_frame
from headwater_streams.spark.guarded import TRIED, tried
from headwater_streams.spark.plan_shape import plan_shape
from headwater_streams.spark.spark_errors import first_sentence

COMPUTED = "_computed_time"
"""The column that `ComputedTime.of` adds: a struct, NULL where the time cannot be computed."""


class ComputedTime:
    """Computes the event time of records.

    A record for which that raises has none, and its batch goes on: see `spark.guarded`.
    """

    def __init__(self, expression: str, columns: Mapping[str, Column]) -> None:
        """Args: the expression; what it may name beside the coordinates, over records that were read."""
        self._columns = [column.alias(name) for name, column in columns.items()]
        self._tried = tried(expression, F.col(OFFSET)).alias(COMPUTED)

    @property
    def value(self) -> Column:
        """The time, over what `of` gives; NULL where it cannot be computed, too."""
        return F.col(COMPUTED)[TRIED]

    @property
    def raised(self) -> Column:
        """Whether it cannot be computed."""
        return F.col(COMPUTED).isNull()

    def of(self, records: DataFrame) -> DataFrame:
        """The records with it, in a column of its own: it is then computed once, however often it is used."""
        wide = records.select("*", *self._columns)
        return wide.select(*cols(records.columns), self._tried)


def require_computable(declared: TopicInput, value: T.StructType, spark: SparkSession) -> None:
    """Has Spark analyse an event time that is computed.

    Args:
        declared: The topic.
        value: The columns of its values.
        spark: A session.

    Raises:
        JobDefinitionError: It is no SQL, names what is not there, looks at more than one record, or is no TIMESTAMP.
    """
    if declared.computed is None:
        return
    where = f"topic {declared.name!r}: event_time {declared.computed!r}"
    fields = [*value.fields, *ROW_FIELDS, *RECORD_FIELDS]
    records = empty_frame(spark, T.StructType(fields))
    try:
        times = records.select(F.expr(declared.computed))
    except PySparkException as error:
        raise JobDefinitionError(
            f"{where}: {first_sentence(error)}{_hint(declared.computed, error)}"
        ) from error
    kinds = plan_shape(times).root.kinds
    if kinds[0] != "Project" or len(kinds) > 2:  # it, over the records
        raise JobDefinitionError(f"{where} looks at more than one record, and each has its own event time")
    if len(times.columns) != 1:
        raise JobDefinitionError(f"{where} is {len(times.columns)} values, and must be one")
    kind = times.schema.fields[0].dataType
    if kind != T.TimestampType():
        named = type_name(kind)
        raise JobDefinitionError(
            f"{where} is {named}, and must be TIMESTAMP{made_a_time(declared.computed, named)}"
        )


def _hint(expression: str, error: PySparkException) -> str:
    """What a person may not know of the argument where types do not fit."""
    if not (error.getCondition() or "").startswith("DATATYPE_MISMATCH"):
        return ""
    return mismatch_hint(expression, (error.getMessageParameters() or {}).get("inputType", "").strip('"'))
