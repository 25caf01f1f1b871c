"""Count windows: each run of `size` rows of one key, in the order of their event time.

    size 2              10:00    10:10    10:20    10:30    10:40
    10:00 a              a
    10:20 b                                b                           window 0 [10:00, 10:20]: a, b
    10:30 d                                         d
    10:10 c, in time               c comes in between:                 window 0 [10:00, 10:10]: a, c
                                                                       window 1 [10:20, 10:30]: b, d
    10:40 e                                                  e         window 2 is not full: it waits

Rows of one time follow each other by topic, partition and offset, and rows of one record by their values, so the
windows are the same whatever the order in which the rows come. `window_start` and `window_end` are the times of a
window's first and last row.

A window is written once, when it is full and the watermark has reached its last row: until then a row may come that
belongs before that one. A window that is not full is not written, however long it waits: its rows stay in the job's
state. A function that is called on a plain DataFrame leaves it out, too.

A row is late when `time <= _seen_until - delay`. It would shift all windows after it, so it is in no window.

The state is a number for each key that was ever seen, and the rows that are in no written window yet. It grows with the
number of keys; `runtime.stages.open_rows` says where it is.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import ClassVar

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.base.target import Mode
from headwater_streams.operators.joins.columns import revealed
from headwater_streams.operators.recording import is_recording, observed, operator_result, record
from headwater_streams.operators.windows.grouping import require_apart, require_columns
from headwater_streams.operators.windows.spec import BOUNDS, WindowSpec
from headwater_streams.sources.coordinates import (
    OFFSET,
    PARTITION,
    PLACE,
    ROW_COLUMNS,
    ROWS,
    SOURCES,
    SOURCES_TYPE,
    TOPIC,
)
from headwater_streams.sources.nested import kinds_within
from headwater_streams.spark.columns import col, cols
from headwater_streams.spark.guarded import arguments_that_may_raise
from headwater_streams.spark.hidden_columns import hide
from headwater_streams.spark.plan_shape import plan_shape

NUMBER = "_number"
"""A row's number among those of its key, from 0."""
_INDEX, _START, _END, _PLACES = "_window_index", "_window_start", "_window_end", "_places"
_TRIED_METRIC = "headwater_taken"
_WITHOUT_ORDER = {T.MapType, T.VariantType}


@dataclass(frozen=True)
class CountWindow(WindowSpec):
    """Runs of `size` rows of each value of `by`, in the order of `time`."""

    name: ClassVar[str] = "a count window"
    modes: ClassVar[tuple[Mode, ...]] = ("append",)
    overlapping: ClassVar[bool] = False

    time: str
    size: int
    by: tuple[str, ...]

    def closes(self) -> Column:
        """See `WindowSpec`: a row behind the watermark would shift windows that are written."""
        return col(self.time)

    def index(self, number: str) -> Column:
        """The window of the row with this number, a column's name."""
        return F.expr(f"{number} div {self.size}L")


Placing = Callable[[DataFrame, CountWindow], DataFrame]
"""Gives the rows whose windows are written now, each with its `_number`, from the rows that come to a count window and
those that wait in its state."""
_placing: ContextVar[Placing | None] = ContextVar("headwater_placing", default=None)


@contextmanager
def placing(place: Placing) -> Iterator[None]:
    """While the block runs, `hw.count_window` aggregates the rows that `place` gives."""
    token = _placing.set(place)
    try:
        yield
    finally:
        _placing.reset(token)


@dataclass(frozen=True)
class CountedRows:
    """Rows of count windows, waiting for their aggregates."""

    df: DataFrame
    spec: CountWindow

    def agg(self, *aggregates: Column) -> DataFrame:
        """One row for each full window: the `by` columns, `window_index`, `window_start`, `window_end`, the aggregates.

        The number of rows in each window travels along as the hidden column `_rows`, and where they have coordinates
        also the ranges of these, `_sources`.
        """
        instead = record(self.spec)
        if instead is not None:
            return instead
        spec, by = self.spec, cols(self.spec.by)
        rows, coordinates = revealed(observed(self.df, "window"))
        together = rows.groupBy().agg(F.count(F.lit(1)), *aggregates) if coordinates else None
        needed = _needed(rows, spec, together)
        rows = rows.select(*needed)
        if together is not None and not is_recording():
            rows = _tried(rows, together)
        if is_recording():
            if not coordinates:
                raise JobDefinitionError(
                    "count_window: the rows lost their coordinates on the way; use select, withColumn and filter on "
                    "the input itself"
                )
            # The columns that the state holds are a part of the state's shape.
            state = [F.collect_list(F.struct(*needed)).alias(_PLACES)]
            placed = rows.withColumn(NUMBER, F.lit(0).cast("long"))
        else:
            place = _placing.get() or _placed
            placed = place(rows, spec)
            state = [F.sort_array(F.collect_list(F.struct(*PLACE))).alias(_PLACES)] if coordinates else []
        time = col(spec.time)
        grouped = placed.groupBy(*by, spec.index(NUMBER).alias(_INDEX)).agg(
            F.min(time).alias(_START),
            F.max(time).alias(_END),
            *aggregates,
            F.count(F.lit(1)).alias(ROWS),
            *state,
        )
        names = tuple(grouped.columns[len(by) + len((_INDEX, _START, _END)) : -len([ROWS, *state])])
        require_apart(spec.by, (*BOUNDS, _INDEX.removeprefix("_")), names)
        bounds = [F.col(name).alias(name.removeprefix("_")) for name in (_INDEX, _START, _END)]
        sources = F.lit(None) if is_recording() else _ranges(F.col(_PLACES)) if state else None
        hidden = [F.col(ROWS), *([] if sources is None else [sources.cast(SOURCES_TYPE).alias(SOURCES)])]
        flat = grouped.select(*by, *bounds, *cols(names), *hidden)
        return operator_result(hide(flat, [ROWS] if sources is None else [ROWS, SOURCES]), window=self.df)


def count_window(df: DataFrame, time: str, size: int, *, by: Sequence[str] = ()) -> CountedRows:
    """Groups rows into count windows.

    Args:
        df: Rows with a timestamp column `time`.
        time: The event-time column, by which the rows are in order.
        size: How many rows a window has.
        by: The columns of the key; each key has a series of windows. By default all rows are in one series, which one
            task sorts.

    Returns:
        A grouping; call `.agg(...)` on it with Spark aggregates. The target's mode is "append". The aggregates are
        about a set of rows: for the first or the last value of a window use `F.min_by("price", "at")`.

    Example:
        hw.count_window(orders, "ordered_at", 100, by=["customer"]).agg(F.sum("amount").alias("spent"))

    Raises:
        JobDefinitionError: A column is missing, or the size is not a whole number of rows.
    """
    require_columns("count_window", df, by, time, gives=(*BOUNDS, _INDEX.removeprefix("_")))
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise JobDefinitionError(f"count_window: size={size!r} is not a whole number of rows, 1 or more")
    return CountedRows(df, CountWindow(time, size, tuple(by)))


def key_of(spec: CountWindow) -> list[Column]:
    """A key's columns; without `by` all rows have the same key."""
    return cols(spec.by) or [F.lit(0)]


def order_of(rows: DataFrame, spec: CountWindow) -> list[Column]:
    """By what the rows of a key follow each other: by their time, their records where they have coordinates, and by all
    other columns. Several rows of one record, as of order lines, are told apart by these, as far as windows can."""
    first = (spec.time, *(PLACE if OFFSET in rows.columns else ()))
    others = [field for field in rows.schema.fields if field.name not in first]
    rest = [each.name for each in others if not {*map(type, kinds_within(each.dataType))} & _WITHOUT_ORDER]
    return cols((*first, *rest))


def _placed(rows: DataFrame, spec: CountWindow) -> DataFrame:
    """The rows of all full windows of a DataFrame."""
    timed = rows.filter(col(spec.time).isNotNull())
    ordered = Window.partitionBy(*key_of(spec)).orderBy(*order_of(rows, spec))
    numbered = timed.withColumn(NUMBER, F.row_number().over(ordered).cast("long") - 1)
    count = F.count(F.lit(1)).over(Window.partitionBy(*key_of(spec)))
    full = numbered.withColumn("_count", count).filter(spec.index(NUMBER) < spec.index("_count"))
    return full.drop("_count")


def _tried(rows: DataFrame, together: DataFrame) -> DataFrame:
    """Rows for which the aggregates' arguments are computed in the batch that reads them.

    A row for which one raises would else raise in a later batch, once its window is full, and could not be found among
    the rows of that batch.
    """
    arguments = arguments_that_may_raise(together)
    if not arguments:
        return rows
    # Spark does not compute the argument of a count where it is never NULL.
    worked_out = [
        F.count(F.when(F.col(OFFSET) >= 0, each)).alias(f"taken_{n}") for n, each in enumerate(arguments)
    ]
    return rows.observe(_TRIED_METRIC, *worked_out)


def _needed(rows: DataFrame, spec: CountWindow, together: DataFrame | None) -> list[Column]:
    """The columns that the windows need: the state keeps no others. Without coordinates all, as the order needs them.

    Args:
        rows: The rows.
        spec: The windows.
        together: The aggregates over all rows; None without coordinates.
    """
    if together is None:
        return cols(tuple(rows.columns))
    node = plan_shape(together).root
    used = {column.name for child in node.children for column in child.columns if column.id in node.named}
    needed = {spec.time, *spec.by, *PLACE, *used}
    if node.kind != "Aggregate":  # the analyser took the aggregates apart
        needed = set(rows.columns) - (set(ROW_COLUMNS) - {*PLACE})
    return cols(tuple(name for name in rows.columns if name in needed))


def _ranges(places: Column) -> Column:
    """Sorted places as ranges of offsets, one for each topic and partition."""

    def same(one: Column, other: Column) -> Column:
        equal = (one[TOPIC] == other[TOPIC]) & (one[PARTITION] == other[PARTITION])
        return F.coalesce(equal, F.lit(False))  # NULL before the first place and after the last

    first = F.filter(places, lambda x, i: ~same(x, F.get(places, i - 1)))
    last = F.filter(places, lambda x, i: ~same(x, F.get(places, i + 1)))
    return F.zip_with(
        first,
        last,
        lambda a, b: F.struct(
            a[TOPIC].alias("topic"),
            a[PARTITION].alias("partition"),
            a[OFFSET].alias("start"),
            (b[OFFSET] + 1).alias("end"),
        ),
    )
