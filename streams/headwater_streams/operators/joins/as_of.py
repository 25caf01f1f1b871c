"""Each row with the row of the other side that held at its time: the nearest of its key, before, after, or either.

    weather (observed_at)   --w1 10:00--------w2 11:00--------w3 12:00----->
    departures              -------a 10:40---------------b 11:50----------->
    backward                       w1                    w2
    forward                        w2                    w3
    nearest                        w2 (20 min, not 40)   w3 (10 min, not 50)

Bounds are inclusive: a right row at exactly the same time is the answer in each direction, and one exactly `tolerance`
away is near enough. Of two that are equally near the earlier is taken, of two at one time the greater one (compared
column by column), so that the answer follows from the rows alone and not from the order in which they came.

Where the right side is a look-up (`hw.lookup`), a row is answered at once, by what the table holds then. Where both
sides are streams, a row waits until its answer is *final*: until the right side's watermark says that no better row can
come any more.

    right side's watermark        10:30 |                    11:10 |
    a (10:40), backward           waits                      w1: nothing at or before 10:40 can come any more
    a (10:40), forward            waits                      w2 (11:00): nothing before it can come any more
    b (11:50), backward           waits                      waits

A right row behind that watermark is late. A left row is never late: its answer can always be looked up.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, get_args

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from headwater_streams.base.arguments import require_list
from headwater_streams.base.durations import interval_sql, parse_duration
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.operators.joins.columns import (
    READ_BEFORE,
    require_apart,
    require_columns,
    require_comparable,
    require_equatable,
    revealed,
    source_range,
)
from headwater_streams.operators.recording import is_recording, operator_result, passing_on, record
from headwater_streams.sources.coordinates import OFFSET, ROW_COLUMNS, SOURCES, SOURCES_TYPE, changing
from headwater_streams.spark.columns import col, cols
from headwater_streams.spark.hidden_columns import has_hidden, hide, reveal
from headwater_streams.spark.observations import Observed

Direction = Literal["backward", "forward", "nearest"]
How = Literal["left", "inner"]

_LEFT, _RIGHT, _BACK, _AHEAD, _FOUND = "_l", "_r", "_back", "_ahead", "_found"
_KEYS, _TIME, _SIDE = "_keys", "_time", "_side"


@dataclass(frozen=True)
class AsOf:
    """The right row nearest to `left_time` in a direction, of those with equal keys and within the tolerance.

    Attributes:
        by: The columns that must be equal, by their names left and right.
        left_time: The left rows' event time.
        right_time: The right rows' event time.
        direction: In which direction from `left_time` the right row is.
        tolerance: How far away it may be; None for any distance.
        how: Whether a left row without an answer is kept.
    """

    by: tuple[tuple[str, str], ...]
    left_time: str
    right_time: str
    direction: Direction
    tolerance: timedelta | None
    how: How

    @property
    def looks_ahead(self) -> timedelta:
        """How long after a left row's time a better answer may come."""
        return timedelta() if self.direction == "backward" else self.tolerance or timedelta.max


@dataclass(frozen=True)
class Answering:
    """Which left rows of two streams get their answers now: those that are final at `now_us` and were not before.

    Attributes:
        before_us: The right side's watermark in the batch before, microseconds; None before the first.
        now_us: The right side's watermark now.
        left: Observes `fresh`, the new left rows that reached the operator.
        right: Observes `fresh`, the new right rows.
        answers: Observes `matched`, `unmatched`, `waiting` (new rows that wait) and `released` (rows that waited).
    """

    before_us: int | None
    now_us: int | None
    left: Observed = field(default_factory=Observed)
    right: Observed = field(default_factory=Observed)
    answers: Observed = field(default_factory=Observed)


_answering: ContextVar[Answering | None] = ContextVar("headwater_answering", default=None)


@contextmanager
def answering(request: Answering) -> Iterator[None]:
    """While the block runs, `hw.as_of` over two streams gives the answers that have become final."""
    token = _answering.set(request)
    try:
        yield
    finally:
        _answering.reset(token)


def as_of(
    left: DataFrame,
    right: DataFrame,
    *,
    left_time: str,
    right_time: str,
    by: Sequence[str] | Mapping[str, str],
    direction: Direction = "backward",
    tolerance: str | None = None,
    how: How = "left",
) -> DataFrame:
    """Joins each left row with the right row of its key that held at its time.

    Args:
        left: Rows with the columns `by` and `left_time`.
        right: Rows with the columns `by` and `right_time`: a look-up, or a second stream with a watermark. Of a table
            that `scd2` writes, with `right_time="valid_from"`, the answer is the last version that began; where keys
            may be deleted it holds only if `valid_to` is NULL or after `left_time`.
        left_time: The left rows' event time.
        right_time: The right rows' event time.
        by: The columns that must be equal, by one name, `["origin"]`, or by two, `{"origin": "airport"}`.
        direction: `"backward"` looks for the last right row at or before `left_time`, `"forward"` for the first at or
            after it, `"nearest"` for the nearer of the two.
        tolerance: How far away the right row may be, "2 hours"; any distance by default, and then each batch looks
            through all of the right table. Between two streams `"forward"` and `"nearest"` need one, for it bounds how
            long a row waits.
        how: `"left"` keeps a row without an answer, with NULLs; `"inner"` leaves it out.

    Returns:
        The left row's columns, then the right row's without `by`, and without `right_time` where both sides call their
        time alike; `rates.withColumn("rated_at", F.col("at"))` keeps it.

    Example:
        hw.as_of(orders, rates, left_time="ordered_at", right_time="since", by=["currency"], tolerance="1 day")

    Raises:
        JobDefinitionError: A column is missing or stands on both sides, a column of the right side is a map, or an
            argument is not one of its values.
    """
    if direction not in get_args(Direction) or how not in get_args(How):
        raise JobDefinitionError(
            f"as_of: direction={direction!r}, how={how!r}: the directions are 'backward', 'forward', 'nearest', and "
            "how is 'left' or 'inner'"
        )
    require_list("as_of", "by", by)
    keys = dict(by) if isinstance(by, Mapping) else {name: name for name in by}
    bound = None if tolerance is None else parse_duration(tolerance)
    spec = AsOf(tuple(keys.items()), left_time, right_time, direction, bound, how)
    require_columns("as_of", "left", left, (*keys, left_time))
    require_columns("as_of", "right", right, (*keys.values(), right_time))
    require_equatable("as_of", left, right, keys)
    once = {*keys.values(), *([right_time] if right_time == left_time else [])}
    added = [name for name in right.columns if name not in once]
    require_apart("as_of", left, right.select(*cols(added)), ())
    require_comparable("as_of", right)
    both = has_hidden(right, OFFSET)
    rows, coordinates = revealed(left, of_records=not both)
    if both and not coordinates:
        raise JobDefinitionError(
            "as_of: the left side is a look-up and the right one a stream; change the sides"
        )
    instead = record(spec) if both else None
    if instead is not None:
        return instead
    request = _answering.get() if both else None
    if is_recording():
        answered = _outline(rows, right, spec, both=both)
    elif request is not None:
        answered = _final(left, right, spec, request)
    else:
        answered = _with_answers(rows, reveal(right, ROW_COLUMNS) if both else right, spec)
    if how == "inner" and not is_recording():
        answered = answered.filter(F.col(_FOUND).isNotNull())
    visible = [col(_LEFT, name).alias(name) for name in left.columns]
    visible += [col(_FOUND, name).alias(name) for name in added]
    hidden = [col(_LEFT, name).alias(name) for name in coordinates]
    if both:
        partner = F.when(F.col(_FOUND).isNotNull(), source_range(_FOUND))
        hidden.append(F.array(source_range(_LEFT), partner).cast(SOURCES_TYPE).alias(SOURCES))
    result = passing_on(answered.select(*visible, *hidden), left, right)
    if not both:
        return hide(result, coordinates) if coordinates else result
    return operator_result(hide(result, [*coordinates, SOURCES]), left=left, right=right)


def _outline(left: DataFrame, right: DataFrame, spec: AsOf, *, both: bool) -> DataFrame:
    """The same columns by a plain join, for the analysis of what else a function's plan does."""
    right = reveal(right, ROW_COLUMNS) if both else right
    one = left.select(F.struct("*").alias(_LEFT))
    other = right.select(F.struct("*").alias(_FOUND))
    same = F.lit(True)
    for left_name, right_name in spec.by:
        same &= col(_LEFT, left_name) == col(_FOUND, right_name)
    return one.join(other, same, spec.how)


def _with_answers(left: DataFrame, right: DataFrame, spec: AsOf) -> DataFrame:
    """Every left row as `_l`, and its answer as `_found`, a struct of the right row or NULL."""
    ahead = spec.direction != "backward"
    one = left.select(
        _key_struct([left_name for left_name, _ in spec.by]).alias(_KEYS),
        col(spec.left_time).alias(_TIME),
        F.lit(1).alias(_SIDE),
        F.struct("*").alias(_LEFT),
        F.lit(None).cast(right.select(F.struct("*")).schema[0].dataType).alias(_RIGHT),
    )
    complete = col(spec.right_time).isNotNull()
    for _, right_name in spec.by:
        complete &= col(right_name).isNotNull()
    other = right.filter(complete).select(
        _key_struct([right_name for _, right_name in spec.by]).alias(_KEYS),
        col(spec.right_time).alias(_TIME),
        F.lit(0).alias(_SIDE),
        F.lit(None).cast(left.select(F.struct("*")).schema[0].dataType).alias(_LEFT),
        F.struct("*").alias(_RIGHT),
    )
    rows = one.unionByName(other)
    # A running "last" is one pass over the sorted rows; right rows come before left ones of the same time.
    if spec.direction != "forward":
        order = Window.partitionBy(_KEYS).orderBy(F.col(_TIME).asc(), _SIDE, _RIGHT)
        rows = rows.withColumn(_BACK, F.last(_RIGHT, ignorenulls=True).over(order))
    if ahead:
        order = Window.partitionBy(_KEYS).orderBy(F.col(_TIME).desc(), _SIDE, _RIGHT)
        rows = rows.withColumn(_AHEAD, F.last(_RIGHT, ignorenulls=True).over(order))
    lefts = rows.filter(F.col(_SIDE) == 1)
    back, forward = col(_BACK, spec.right_time), col(_AHEAD, spec.right_time)
    within = F.expr(interval_sql(spec.tolerance)) if spec.tolerance is not None else None
    if spec.direction != "forward":
        near = (
            back <= F.col(_TIME)
            if within is None
            else (back <= F.col(_TIME)) & (back >= F.col(_TIME) - within)
        )
        lefts = lefts.withColumn(_BACK, F.when(near, F.col(_BACK)))
    if ahead:
        near = (
            forward >= F.col(_TIME)
            if within is None
            else (forward >= F.col(_TIME)) & (forward <= F.col(_TIME) + within)
        )
        lefts = lefts.withColumn(_AHEAD, F.when(near, F.col(_AHEAD)))
    if spec.direction == "backward":
        chosen = F.col(_BACK)
    elif spec.direction == "forward":
        chosen = F.col(_AHEAD)
    else:
        nearer = _us(forward) - _us(F.col(_TIME)) < _us(F.col(_TIME)) - _us(back)
        chosen = F.when(F.col(_BACK).isNull() | nearer, F.col(_AHEAD)).otherwise(F.col(_BACK))
    return lefts.withColumn(_FOUND, chosen)


def _final(left: DataFrame, right: DataFrame, spec: AsOf, request: Answering) -> DataFrame:
    """As `_with_answers`, for the left rows whose answers have become final."""
    names = [*ROW_COLUMNS, READ_BEFORE]
    fresh = F.count_if(~F.col(READ_BEFORE)).alias("fresh")
    lefts = request.left.over(reveal(left, names), fresh)
    rights = request.right.over(reveal(right, names), fresh)
    now, before = _moment(request.now_us), _moment(request.before_us)
    time = F.col(_TIME)
    # Of the time behind the watermark all rows have come; beyond it a better row may come.
    certain = rights.filter(col(spec.right_time) <= now)
    with_answers = _with_answers(lefts, certain, spec)
    final_at = time
    if spec.direction != "backward":
        assert spec.tolerance is not None
        bound = F.expr(interval_sql(spec.tolerance))
        latest = time + bound
        if spec.direction == "nearest":
            # Once there is a row behind, only a row ahead that is nearer than it would be a better answer.
            latest = F.least(latest, F.timestamp_micros(2 * _us(time) - _us(col(_BACK, spec.right_time))))
        final_at = F.greatest(time, F.least(latest, col(_AHEAD, spec.right_time)))
    read_before = F.col(f"{_LEFT}.{READ_BEFORE}")
    is_final = F.coalesce(final_at <= now, F.lit(False))
    was_final = read_before & F.coalesce(final_at <= before, F.lit(False))
    matched = F.col(_FOUND).isNotNull()
    judged = with_answers.withColumn("_answered", is_final & ~was_final)
    answered = F.col("_answered")
    observed = request.answers.over(
        judged,
        F.count_if(answered & matched).alias("matched"),
        F.count_if(answered & ~matched).alias("unmatched"),
        F.count_if(~read_before & ~answered).alias("waiting"),
        F.count_if(read_before & answered).alias("released"),
    )
    return observed.filter(answered)


def _key_struct(names: Sequence[str]) -> Column:
    # The names are the same on both sides, so that the structs have one type.
    return F.struct(*[col(name).alias(f"k{i}") for i, name in enumerate(names)], F.lit(0).alias("_"))


def _moment(time_us: int | None) -> Column:
    return F.timestamp_micros(changing(F.lit(time_us).cast("long")))


def _us(time: Column) -> Column:
    return F.unix_micros(time)
