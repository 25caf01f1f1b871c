"""Joins of two streams within a bound of time: inner, left, right, full and semi.

    left  (departed_at)   ----L1--------------------L2------------------->
    right (landed_at)     ----------R1-----R3------------------------R2-->
                              |<-- within -->|      |<-- within -->|

R joins L when the keys are equal and `left_time <= right_time <= left_time + within`. A row waits in state until
the watermark says that no partner can come any more, and then *expires*. A row with NULL in its key, which equals
nothing, expires at once.

    inner   L1-R1  L1-R3
    left    L1-R1  L1-R3  L2-NULL        L2 when it expires: not before the watermark has passed its bound
    right   L1-R1  L1-R3  NULL-R2        R2 likewise
    full    L1-R1  L1-R3  L2-NULL  NULL-R2
    semi    L1                           as soon as its first partner is there, and once
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, get_args

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.base.arguments import require_list
from headwater_streams.base.durations import interval_sql, parse_duration
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.operators.joins.columns import (
    READ_BEFORE,
    require_apart,
    require_columns,
    require_equatable,
    source_range,
)
from headwater_streams.operators.recording import observed, operator_result, record
from headwater_streams.sources.coordinates import OFFSET, PLACE, ROW_COLUMNS, SOURCES, SOURCES_TYPE
from headwater_streams.spark.columns import col
from headwater_streams.spark.hidden_columns import has_hidden, hide, reveal

EXPIRED_METRIC = "headwater_join"
"""The observation of a streaming join: `pairs`, `expired_left`, `expired_right` of the batch."""
PAIR = "_pair"
"""The column of `pairs_of` with the coordinates of both rows."""


How = Literal["inner", "left", "right", "full", "semi"]


@dataclass(frozen=True)
class IntervalJoin:
    """Equal keys and `left_time <= right_time <= left_time + within`.

    Attributes:
        on: The columns that are equal.
        left_time: The left rows' event time.
        right_time: The right rows' event time.
        within: How long after the left row the right one may be, at most.
        how: Which rows without a partner are in the result; for `semi`, only left rows with one.
    """

    on: tuple[str, ...]
    left_time: str
    right_time: str
    within: timedelta
    how: How = "inner"

    @property
    def keeps(self) -> frozenset[str]:
        """The sides whose rows are kept without a partner."""
        return frozenset({"left": ["left"], "right": ["right"], "full": ["left", "right"]}.get(self.how, []))

    def condition(self) -> Column:
        """The join condition over the aliases `l` and `r`."""
        left_time, right_time = col("l", self.left_time), col("r", self.right_time)
        condition = (right_time >= left_time) & (right_time <= left_time + F.expr(interval_sql(self.within)))
        for name in self.on:
            left, right = col("l", name), col("r", name)
            # Spark's outer join of streams looks NULL up in its state like any key; of batches it does not join NULL.
            condition &= (left == right) & left.isNotNull() & right.isNotNull()
        return condition


def join(
    left: DataFrame,
    right: DataFrame,
    *,
    on: Sequence[str],
    left_time: str,
    right_time: str,
    within: str,
    how: How = "inner",
) -> DataFrame:
    """Joins each left row with the right rows of its key that happened at most `within` after it.

    Args:
        left: Rows with the columns `on` and `left_time`; both inputs need a watermark when they are streams.
        right: Rows with the columns `on` and `right_time`.
        on: The columns that must be equal; they stand once in the result. NULL equals nothing, so that such a row has
            no partner.
        left_time: The left rows' event time.
        right_time: The right rows' event time.
        within: The most that the right row may come after the left one, "24 hours"; the bound itself counts.
        how: `"inner"` gives the pairs; `"left"`, `"right"` and `"full"` also the rows of that side, or of both, that
            have no partner, once none can come any more; `"semi"` gives the left rows that have a partner, each once.

    Returns:
        The left row's columns, then the right row's without `on`; of `"semi"` only the left row's.

    Example:
        hw.join(
            orders, payments, on=["order_id"], left_time="ordered_at", right_time="paid_at", within="1 hour", how="left"
        )

    Raises:
        JobDefinitionError: A column is missing, stands on both sides, or only one side is a stream.
    """
    if how not in get_args(How):
        raise JobDefinitionError(f"join: how={how!r} is not one of {', '.join(get_args(How))}")
    require_list("join", "on", on)
    spec = IntervalJoin(tuple(on), left_time, right_time, parse_duration(within), how)
    _check_columns(left, right, spec)
    instead = record(spec)
    if instead is not None:
        return instead
    if left.isStreaming != right.isStreaming:
        raise JobDefinitionError(
            "join: one side is a stream and the other is not; use hw.enrich or hw.as_of for a static side"
        )
    traced, sides = has_hidden(left, OFFSET) and has_hidden(right, OFFSET), {"left": left, "right": right}
    visible, hidden = _visible(left, right, spec), list[Column]()
    if traced:
        left, right = reveal(left, ROW_COLUMNS), reveal(right, ROW_COLUMNS)
        hidden = _hidden(spec)
    # Spark's outer join emits rows that leave the state without a partner: so expired rows are counted. A semi join of
    # batches is Spark's own; of streams the stage picks each left row's first pair.
    streaming = left.isStreaming
    kind = "full_outer" if streaming else {"full": "full_outer", "semi": "left_semi"}.get(how, how)
    lefts, rights = observed(left, "left").alias("l"), observed(right, "right").alias("r")
    joined = lefts.join(rights, spec.condition(), kind)
    if streaming:
        joined = _in_result(joined, spec)
    result = joined.select(*visible, *hidden)
    return operator_result(hide(result, [*ROW_COLUMNS, SOURCES]) if traced else result, **sides)


def pairs_of(left: DataFrame, right: DataFrame, spec: IntervalJoin) -> DataFrame:
    """The pairs that a batch of a stream finds, without the rows that have no partner.

    Args:
        left: Its left rows and those of batches before, with the hidden column `READ_BEFORE`.
        right: The right rows likewise.
        spec: The join.

    Returns:
        Each pair of which a row is of the batch: the columns of the join's result, its coordinates and sources, and
        as `_pair` the fields `left` and `right`, each with the row's coordinates and `READ_BEFORE`.
    """
    visible, names = _visible(left, right, spec), [*ROW_COLUMNS, READ_BEFORE]
    lefts, rights = reveal(left, names).alias("l"), reveal(right, names).alias("r")
    is_new = ~(F.col(f"l.{READ_BEFORE}") & F.col(f"r.{READ_BEFORE}"))
    joined = lefts.join(rights, spec.condition() & is_new, "inner")
    left_row, right_row = (
        F.struct(*[F.col(f"{side}.{name}") for name in (*PLACE, READ_BEFORE)]) for side in ("l", "r")
    )
    pair = F.struct(left_row.alias("left"), right_row.alias("right")).alias(PAIR)
    return joined.select(*visible, *_hidden(spec), pair)


def _visible(left: DataFrame, right: DataFrame, spec: IntervalJoin) -> list[Column]:
    visible = [_either(name, spec) if name in spec.on else col("l", name) for name in left.columns]
    if spec.how != "semi":
        visible += [col("r", name) for name in right.columns if name not in spec.on]
    return visible


def _hidden(spec: IntervalJoin) -> list[Column]:
    coordinates = [_either(name, spec) for name in ROW_COLUMNS]
    return [*coordinates, _sources(spec).cast(SOURCES_TYPE).alias(SOURCES)]


def _in_result(joined: DataFrame, spec: IntervalJoin) -> DataFrame:
    no_left, no_right = col("l", spec.left_time).isNull(), col("r", spec.right_time).isNull()
    judged = joined.observe(
        EXPIRED_METRIC,
        F.count_if(~no_left & ~no_right).alias("pairs"),
        F.count_if(no_right).alias("expired_left"),
        F.count_if(no_left).alias("expired_right"),
    )
    is_in_result = ~no_left & ~no_right
    if "left" in spec.keeps:
        is_in_result |= no_right
    if "right" in spec.keeps:
        is_in_result |= no_left
    return judged.filter(is_in_result)


def _either(name: str, spec: IntervalJoin) -> Column:
    """A column that both sides have: the left row's, or the right row's where there is no left one."""
    left = col("l", name)
    return F.coalesce(left, col("r", name)).alias(name) if "right" in spec.keeps else left


def _sources(spec: IntervalJoin) -> Column:
    """The places of the left and the right row, NULL for a missing one."""
    left, right = (F.when(F.col(f"{side}.{OFFSET}").isNotNull(), source_range(side)) for side in ("l", "r"))
    return F.array(left, F.lit(None) if spec.how == "semi" else right)


def _check_columns(left: DataFrame, right: DataFrame, spec: IntervalJoin) -> None:
    require_columns("join", "left", left, (*spec.on, spec.left_time))
    require_columns("join", "right", right, (*spec.on, spec.right_time))
    require_equatable("join", left, right, dict(zip(spec.on, spec.on, strict=True)))
    if spec.how != "semi":
        require_apart("join", left, right, spec.on)
