"""Inner joins of two streams within a bound of time.

    left  (departed_at)   ----L1--------------------L2------------------->
    right (landed_at)     ----------R1--------------------------R2------->
                              |<-- within -->|      |<-- within -->|

R joins L when the keys are equal and `left_time <= right_time <= left_time + within`. A row waits in state until
the watermark says that no partner can come any more, and is then *expired*.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.durations import interval_sql, parse_duration
from headwater_streams.errors import JobDefinitionError
from headwater_streams.runtime.operators import counted, record
from headwater_streams.sources.coordinates import (
    OFFSET,
    PARTITION,
    ROW_COLUMNS,
    SOURCES,
    SOURCES_TYPE,
    TOPIC,
    has_hidden,
    hide,
    reveal,
)

EXPIRED_METRIC = "headwater_join"
"""The observation of a streaming join: `pairs`, `expired_left`, `expired_right` of the batch."""


@dataclass(frozen=True)
class IntervalJoin:
    """Equal keys and `left_time <= right_time <= left_time + within`."""

    on: tuple[str, ...]
    left_time: str
    right_time: str
    within: timedelta

    def condition(self) -> Column:
        """The join condition over the aliases `l` and `r`."""
        left_time, right_time = F.col(f"l.`{self.left_time}`"), F.col(f"r.`{self.right_time}`")
        condition = (right_time >= left_time) & (right_time <= left_time + F.expr(interval_sql(self.within)))
        for name in self.on:
            condition &= F.col(f"l.`{name}`") == F.col(f"r.`{name}`")
        return condition


def join(
    left: DataFrame, right: DataFrame, *, on: Sequence[str], left_time: str, right_time: str, within: str
) -> DataFrame:
    """Joins each left row with the right rows of its key that happened at most `within` after it.

    Args:
        left: Rows with the columns `on` and `left_time`; both inputs need a watermark when they are streams.
        right: Rows with the columns `on` and `right_time`.
        on: The columns that must be equal; they stand once in the result.
        left_time: The left rows' event time.
        right_time: The right rows' event time.
        within: The most that the right row may come after the left one, "24 hours"; the bound itself counts.

    Returns:
        The left row's columns, then the right row's without `on`.

    Raises:
        JobDefinitionError: A column is missing, stands on both sides, or only one side is a stream.
    """
    spec = IntervalJoin(tuple(on), left_time, right_time, parse_duration(within))
    _check_columns(left, right, spec)
    record(spec)
    if left.isStreaming != right.isStreaming:
        raise JobDefinitionError(
            "join: one side is a stream and the other is not; use DataFrame.join for a static side"
        )
    traced = has_hidden(left, OFFSET) and has_hidden(right, OFFSET)
    visible = [F.col(f"l.`{name}`") for name in left.columns]
    visible += [F.col(f"r.`{name}`") for name in right.columns if name not in spec.on]
    hidden: list[Column] = []
    if traced:
        left, right = reveal(left, ROW_COLUMNS), reveal(right, ROW_COLUMNS)
        hidden = [F.col(f"l.`{name}`") for name in ROW_COLUMNS]
        hidden.append(F.array(_range("l"), _range("r")).cast(SOURCES_TYPE).alias(SOURCES))
    joined = (
        counted(left, "left")
        .alias("l")
        .join(
            counted(right, "right").alias("r"),
            spec.condition(),
            "full_outer" if left.isStreaming else "inner",
        )
    )
    if left.isStreaming:
        joined = _keep_pairs(joined, spec)
    result = joined.select(*visible, *hidden)
    return hide(result, [*ROW_COLUMNS, SOURCES]) if traced else result


def _keep_pairs(joined: DataFrame, spec: IntervalJoin) -> DataFrame:
    # Spark's outer join emits what leaves the state without a partner: that is how expired rows are counted.
    no_left, no_right = F.col(f"l.`{spec.left_time}`").isNull(), F.col(f"r.`{spec.right_time}`").isNull()
    observed = joined.observe(
        EXPIRED_METRIC,
        F.count_if(~no_left & ~no_right).alias("pairs"),
        F.count_if(no_right).alias("expired_left"),
        F.count_if(no_left).alias("expired_right"),
    )
    return observed.filter(~no_left & ~no_right)


def _range(side: str) -> Column:
    offset = F.col(f"{side}.{OFFSET}")
    return F.struct(
        F.col(f"{side}.{TOPIC}").alias("topic"),
        F.col(f"{side}.{PARTITION}").alias("partition"),
        offset.alias("start"),
        (offset + 1).alias("end"),
    )


def _check_columns(left: DataFrame, right: DataFrame, spec: IntervalJoin) -> None:
    for side, df, needed in (
        ("left", left, (*spec.on, spec.left_time)),
        ("right", right, (*spec.on, spec.right_time)),
    ):
        for name in needed:
            if name not in df.columns:
                raise JobDefinitionError(
                    f"join: the {side} side has no column {name!r}; it has {', '.join(df.columns)}"
                )
    both = sorted(set(left.columns) & set(right.columns) - set(spec.on))
    if both:
        raise JobDefinitionError(f"join: {', '.join(both)} stand on both sides; rename or drop them on one")
