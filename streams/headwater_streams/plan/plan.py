"""A job, understood: its kind, its operator, the columns of its tables; `analysis` learns it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pyspark.sql import types as T

from headwater_streams.base.made_of import MadeOf
from headwater_streams.delta.scd_target import ScdTarget
from headwater_streams.operators.joins.as_of import AsOf
from headwater_streams.operators.joins.interval import IntervalJoin
from headwater_streams.operators.recording import Place
from headwater_streams.operators.windows.spec import WINDOW_END, WindowSpec
from headwater_streams.plan.exploding import Exploding
from headwater_streams.plan.job import Job
from headwater_streams.plan.laid_out import age_column
from headwater_streams.sources.coordinates import (
    COMMIT_FIELDS,
    PLACE,
    ROW,
    ROW_FIELD,
    ROW_FIELDS,
    ROWS,
    SEEN_UNTIL,
    SOURCES,
    SOURCES_TYPE,
)

StageKind = Literal["row", "scd", "window", "join", "as_of"]
Operator = WindowSpec | IntervalJoin | AsOf


@dataclass(frozen=True)
class Link:
    """An operator of a chain.

    Attributes:
        operator: What it is.
        result: The columns of its result.
        reads: The inputs, and the steps before it (`step_1` and on), whose rows come to each of its places.
        times: Of each step that it reads, the column that is its rows' time here: by the name that it has in the step,
            whatever the function calls it since; None where the function computes it.
        lookups: What its rows are looked up in on their way to it.
    """

    operator: Operator
    result: T.StructType
    reads: Mapping[Place, tuple[str, ...]]
    times: Mapping[str, str | None]
    lookups: tuple[str, ...] = ()

    @property
    def sources(self) -> tuple[str, ...]:
        """What it reads, each once."""
        return tuple(dict.fromkeys(name for names in self.reads.values() for name in names))

    @property
    def closing(self) -> bool:
        """Whether it has a time by which rows are late."""
        return not isinstance(self.operator, WindowSpec) or self.operator.closing


@dataclass(frozen=True)
class Chain:
    """The operators of a job's function.

    Attributes:
        links: The operators, in the order of use.
        gives: The inputs and steps whose rows the function gives as its result.
    """

    links: tuple[Link, ...] = ()
    gives: tuple[str, ...] = ()


@dataclass(frozen=True)
class JobPlan:
    """A job, understood.

    Attributes:
        job: The job.
        kind: `"row"` for functions that look at each row alone, `"scd"` where their rows are changes of a dimension's;
            `"window"`, `"join"` and `"as_of"` for others.
        operator: The window or the join, if it is one.
        result: The function's own columns.
        inputs: Each input's own columns, without the library's.
        branches: The function's own columns for each table, by the table's name, where a job writes several.
        state: What keeps state in it, see `spark.analysed_plan`; of a part that unites inputs for a window all that it
            does.
        lookups: Each look-up's own columns.
        sides: Of a join, as-of or not, the inputs on its left and its right side.
        foreign_time: Of a join, a time of it that is no event time of its side, by whatever name: the watermark says
            nothing of that. None where both are.
        unites: Whether a windowed job's function unites several inputs, looks things up or joins on the way to its
            window; it is run in two parts, see `ingest.with_united`.
        chain: The operators of a job that has several; it is run in a part for each, see `chain`.
        joining: The tables for which the function does more with rows than compute and filter: it may make several of
            one record.
        exploding: The tables whose rows are several to a record, as the function explodes it, and how they are made.
        numbered: The tables whose rows have their places in their records, `_row`: those, and those that are made of
            rows of such a table.
        unused: Of each topic's columns those that nothing looks at and that need not be made, see `unused_texts`.
        made_of: What the columns of each table are made of, see `column_lineage`.
    """

    job: Job
    kind: StageKind
    operator: Operator | None
    result: T.StructType
    inputs: Mapping[str, T.StructType]
    branches: Mapping[str, T.StructType] = field(default_factory=dict)
    state: tuple[str, ...] = ()
    lookups: Mapping[str, T.StructType] = field(default_factory=dict)
    sides: tuple[str, ...] = ()
    foreign_time: str | None = None
    unites: bool = False
    chain: tuple[Link, ...] = ()
    joining: frozenset[str] = frozenset()
    exploding: Mapping[str, Exploding] = field(default_factory=dict)
    numbered: frozenset[str] = frozenset()
    unused: Mapping[str, frozenset[str]] = field(default_factory=dict)
    made_of: Mapping[str, MadeOf] = field(default_factory=dict)

    @property
    def target_schema(self) -> T.StructType:
        """The target's columns: the function's, then the library's."""
        return self._with_own(self.job.target.name, self.result)

    @property
    def schemas(self) -> dict[str, T.StructType]:
        """The columns of each table that the job writes, the target's first."""
        results = self.branches or {self.job.target.name: self.result}
        return {table: self._with_own(table, result) for table, result in results.items()}

    @property
    def times(self) -> tuple[str, ...]:
        """The columns that say when a row of the result happened, by their names in the job's inputs: the event times
        of rows, a window's end."""
        if self.kind == "window":
            return (WINDOW_END,)
        if isinstance(self.operator, IntervalJoin | AsOf):
            return (self.operator.left_time, self.operator.right_time)
        return tuple(each.event_time for each in self.job.inputs.values() if each.event_time is not None)

    def age_column(self, table: str) -> str | None:
        """The column that says how old the rows of one of the job's tables are; None where none does."""
        target = next((target for target in self.job.targets if target.name == table), None)
        return None if target is None else age_column(self.times, self.schemas[table], target.layout)

    @property
    def changes_schema(self) -> dict[str, T.StructType]:
        """The columns of the table of a dimension's changes, by its name; empty for other jobs."""
        target = self.job.target
        return (
            {target.changes_table: target.changes_schema(self.result)}
            if isinstance(target, ScdTarget)
            else {}
        )

    def place(self, table: str) -> tuple[str, ...]:
        """The columns that name a row of one of a row job's tables: its record, and its place in that."""
        return (*PLACE, ROW) if table in self.numbered else PLACE

    def _with_own(self, table: str, result: T.StructType) -> T.StructType:
        if isinstance(self.job.target, ScdTarget):
            return self.job.target.table_schema(result)
        fields = list(result.fields)
        if self.kind == "window":
            fields += [T.StructField(SOURCES, SOURCES_TYPE), T.StructField(ROWS, T.LongType())]
        else:
            fields += ROW_FIELDS
            if table in self.numbered:
                fields.append(ROW_FIELD)
            if self.kind in ("join", "as_of"):
                fields.append(T.StructField(SOURCES, SOURCES_TYPE))
        fields += COMMIT_FIELDS
        if self.is_ingest:
            fields.append(T.StructField(SEEN_UNTIL, T.TimestampType()))
        return T.StructType(fields)

    @property
    def window(self) -> WindowSpec:
        """The window of a windowed job."""
        assert self.operator is not None
        assert not isinstance(self.operator, IntervalJoin | AsOf)
        return self.operator

    @property
    def is_overlapping(self) -> bool:
        """Whether a row falls into several windows."""
        return self.kind == "window" and self.window.overlapping

    @property
    def is_ingest(self) -> bool:
        """Whether stateful jobs can read the target: its rows say what had been seen before them."""
        return self.kind == "row" and all(i.event_time is not None for i in self.job.inputs.values())
