"""A SELECT over streams: its parts, and its result over frames."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.base.errors import StreamsError
from headwater_streams.base.names import folded
from headwater_streams.operators.aggregates import grouped
from headwater_streams.operators.joins.interval import How, join
from headwater_streams.operators.joins.union import union
from headwater_streams.operators.windows import (
    CountedRows,
    count_window,
    cumulative,
    hopping,
    session,
    tumbling,
)
from headwater_streams.operators.windows.grouping import Windowed
from headwater_streams.operators.windows.spec import BOUNDS
from headwater_streams.sources.inputs import Input
from headwater_streams.spark.columns import col
from headwater_streams.streaming_sql.script import Piece, Place


@dataclass(frozen=True)
class Source:
    """What stands behind FROM or JOIN: an input and the name by which columns may be qualified."""

    name: str
    declared: Input
    place: Place


@dataclass(frozen=True)
class Join:
    """The parts of an ON that are an interval join."""

    on: tuple[str, ...]
    left_time: str
    right_time: str
    within: str
    kind: How
    place: Place


@dataclass(frozen=True)
class LateralView:
    """A LATERAL VIEW: the name by which its columns may be qualified, the generator, and the columns' names."""

    name: str
    generator: str
    columns: tuple[str, ...]
    place: Place

    def over(self, rows: DataFrame) -> DataFrame:
        """The rows, each beside each element of its array.

        Raises:
            JobDefinitionError: Spark refuses it; the message has its file and line.
        """
        return self.place.of(lambda: rows.select("*", self._columns()))

    def _columns(self) -> Column:
        made = F.expr(self.generator)
        return made.alias(*self.columns) if self.columns else made


@dataclass(frozen=True)
class Output:
    """A column of a grouped SELECT: one of the grouping's (`column`), or an aggregate.

    Where GROUP BY has its name, and it is neither, it is `named`: it is computed before the grouping, unless the rows
    have a column of that name.
    """

    name: str
    column: str | None
    piece: Piece
    named: bool = False


@dataclass(frozen=True)
class Group:
    """A GROUP BY: the columns, and the window's function with its arguments, `("window", "time", "1 hour")`."""

    by: tuple[str, ...]
    window: tuple[str, ...]
    outputs: tuple[Output, ...]
    place: Place

    @property
    def keys(self) -> tuple[str, ...]:
        """The outputs that name a row. A window's end follows from its start, except where several begin at the same
        time."""
        bounds = BOUNDS[: 2 if self.window[:1] == ("cumulate",) else 1] if self.window else ()
        key_columns = set(map(folded, (*self.by, *bounds)))
        return tuple(
            output.name
            for output in self.outputs
            if output.named or (output.column and folded(output.column) in key_columns)
        )


@dataclass(frozen=True)
class Query:
    """A SELECT.

    Attributes:
        items: What is selected, where nothing is grouped.
        sources: One input, or the two of a join.
        join: How two inputs are joined.
        where: The condition of WHERE.
        group: The grouping.
        more: The SELECTs that UNION ALL adds, each with the place where it begins.
        laterals: What explodes the rows, before WHERE.
    """

    items: tuple[Piece, ...]
    sources: tuple[Source, ...]
    join: Join | None = None
    where: Piece | None = None
    group: Group | None = None
    more: tuple[tuple["Query", Place], ...] = ()
    laterals: tuple[LateralView, ...] = ()

    @property
    def inputs(self) -> tuple[Source, ...]:
        """The sources of all its SELECTs."""
        return (*self.sources, *[source for query, _ in self.more for source in query.sources])

    def result(self, frames: Mapping[str, DataFrame]) -> DataFrame:
        """The query's result over frames by their sources' names.

        Raises:
            JobDefinitionError: Spark or an operator refuses a part; the message has its file and line.
        """
        united = self._selected(frames)
        for query, place in self.more:
            rows = query.result(frames)
            if len(rows.columns) != len(united.columns):
                place.fail(f"UNION ALL of {len(united.columns)} columns and {len(rows.columns)}")
            names = zip(rows.columns, united.columns, strict=True)
            renamed = rows.select(*[col(name).alias(alias) for name, alias in names])
            united = place.of(partial(union, united, renamed))
        return united

    def _selected(self, frames: Mapping[str, DataFrame]) -> DataFrame:
        rows = self._joined(frames)
        for view in self.laterals:
            rows = view.over(rows)
        if self.where is not None:
            condition = self.where
            rows = condition.place.of(lambda: rows.filter(condition.text))
        if self.group is not None:
            return self._grouped(rows, self.group)
        return _judged(rows.selectExpr, [(item.place, item.text) for item in self.items])

    def _joined(self, frames: Mapping[str, DataFrame]) -> DataFrame:
        first, *others = (frames[source.name] for source in self.sources)
        if self.join is None:
            return first
        how, right = self.join, others[0]
        on = [_spelled(first, name) for name in how.on]
        for name in on:
            if name not in right.columns:  # the frame may spell it in another case
                right = right.withColumnRenamed(name, name)
        joined = how.place.of(
            lambda: join(
                first,
                right,
                on=on,
                left_time=_spelled(first, how.left_time),
                right_time=_spelled(right, how.right_time),
                within=how.within,
                how=how.kind,
            )
        )
        return joined.toDF(*joined.columns)  # without the aliases that `join` gave its sides

    def _grouped(self, rows: DataFrame, group: Group) -> DataFrame:
        there = set(map(folded, rows.columns))
        computed = [o for o in group.outputs if o.named and folded(o.name) not in there]
        if computed:
            columns = [(o.piece.place, F.expr(o.piece.text).alias(o.name)) for o in computed]
            rows = _judged(partial(rows.select, "*"), columns)
        aggregates = [output for output in group.outputs if output.column is None and output not in computed]
        _require_other_names(aggregates, rows, group.by)
        windowed = group.place.of(lambda: _windowed(rows, group))
        columns = [(o.piece.place, F.expr(o.piece.text).alias(o.name)) for o in aggregates]
        aggregated = _judged(windowed.agg, columns)
        order = [col(output.column or output.name).alias(output.name) for output in group.outputs]
        return group.place.of(lambda: aggregated.select(*order))


def _windowed(rows: DataFrame, group: Group) -> Windowed | CountedRows:
    by = [_spelled(rows, name) for name in group.by]
    if not group.window:
        return grouped(rows, by=by, state="unbounded")
    kind, time, *spans = group.window
    time = _spelled(rows, time)
    if kind == "count_window":
        size: Any = int(spans[0]) if spans[0].isdigit() else spans[0]
        return count_window(rows, time, size, by=by)
    window: Callable[..., Windowed]
    if kind == "session_window":
        window, arguments = session, spans
    elif kind == "cumulate":
        window, arguments = cumulative, spans[::-1]
    else:
        window, arguments = (tumbling if len(spans) == 1 else hopping), spans
    return window(rows, time, *arguments, by=by)


def _require_other_names(outputs: Sequence[Output], rows: DataFrame, by: Sequence[str]) -> None:
    """Checks that what is computed behind a grouping has no name of a column that it is by.

    Spark allows it, and groups by the column: several rows of the table would then have one key.
    """
    taken = set(map(folded, rows.columns)) & set(map(folded, by))
    for output in outputs:
        if folded(output.name) in taken:
            name, text = output.name, output.piece.text
            instead = ", and write GROUP BY name to group by it" if output.named else ""
            output.piece.place.fail(
                f"GROUP BY {name} is by the column {name} of the rows, and {text} would be a second {name}: give it "
                f"another name, {text} AS name{instead}"
            )


def _spelled(rows: DataFrame, name: str) -> str:
    """A column as the rows spell it: SQL takes names in any case, the library does not."""
    return next((column for column in rows.columns if folded(column) == folded(name)), name)


def _judged(make: Callable[..., DataFrame], columns: Sequence[tuple[Place, Any]]) -> DataFrame:
    """Makes a frame of columns. Where Spark refuses them, it tries each alone, to name the place."""
    try:
        return make(*[column for _, column in columns])
    except (PySparkException, StreamsError):
        for place, column in columns:
            place.of(partial(make, column))
        raise
