"""Whether a join is by the event times of its inputs: by those Spark's watermark lets rows go."""

from pyspark.sql import SparkSession
from pyspark.sql import types as T

from headwater_streams.gateway import empty_frame
from headwater_streams.joins.as_of import AsOf
from headwater_streams.joins.interval import IntervalJoin
from headwater_streams.runtime.operators import recording
from headwater_streams.runtime.plan import JobPlan
from headwater_streams.sources.coordinates import ROW_COLUMNS, ROW_FIELDS, hide

_OWN = "headwater_event_time"
"""A mark in a column's metadata, which goes with it through any renaming and through nothing that computes."""


def foreign_time(spark: SparkSession, plan: JobPlan) -> str | None:
    """The time of a join that is not the event time of an input, by whatever name; None where both are."""
    operator, empty = plan.operator, {}
    assert isinstance(operator, IntervalJoin | AsOf)
    for name, own in plan.inputs.items():
        event_time = plan.job.inputs[name].event_time
        fields = [
            T.StructField(
                field.name, field.dataType, metadata={_OWN: True} if field.name == event_time else None
            )
            for field in own.fields
        ]
        empty[name] = hide(empty_frame(spark, T.StructType([*fields, *ROW_FIELDS])), ROW_COLUMNS)
    with recording(standing_in=lambda result: result) as recorder:
        plan.job.function(**empty)
    (made, *_) = recorder.made
    times = ((made.handed["left"], operator.left_time), (made.handed["right"], operator.right_time))
    return next((time for rows, time in times if not rows.schema[time].metadata.get(_OWN)), None)
