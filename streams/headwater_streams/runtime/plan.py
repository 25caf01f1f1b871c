"""What a job is, learnt by calling its function once on empty input: its kind, its operators, its result's columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from traceback import walk_tb
from typing import Literal

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from headwater_streams.dedup import ByKey, ByOffset, BySequence
from headwater_streams.errors import JobDefinitionError, StreamsError
from headwater_streams.joins.as_of import AsOf
from headwater_streams.joins.interval import IntervalJoin
from headwater_streams.nullable import as_nullable
from headwater_streams.runtime.job import Job
from headwater_streams.runtime.operators import recording
from headwater_streams.runtime.state_shape import analysed_nodes, state_shape
from headwater_streams.runtime.streamable import check_streamable
from headwater_streams.runtime.unions import check_inputs, check_union, joined_inputs, marked
from headwater_streams.sinks.scd_target import CHANGES, ScdTarget
from headwater_streams.sources.coordinates import (
    BATCH,
    COMMIT_FIELDS,
    OFFSET,
    ROW_COLUMNS,
    ROW_FIELDS,
    ROWS,
    SEEN_UNTIL,
    SOURCES,
    SOURCES_TYPE,
    has_hidden,
    hide,
)
from headwater_streams.sources.decode import value_schema
from headwater_streams.sources.inputs import Input, TableInput, TopicInput
from headwater_streams.spark_errors import first_sentence
from headwater_streams.windows.counted import CountWindow
from headwater_streams.windows.spec import WindowSpec

StageKind = Literal["row", "scd", "window", "join", "as_of"]

# What a row-by-row function may be made of; anything else needs an operator of the library.
_REFUSED = {
    "Aggregate": "a grouping; use a window, as hw.tumbling(...), or hw.grouped(...)",
    "Deduplicate": "dropDuplicates; use dedup=hw.by_offset() or dedup=hw.by_key(...)",
    "Distinct": "distinct; use dedup=hw.by_offset() or dedup=hw.by_key(...)",
    "Generate": "explode, which makes several rows of one record",
    "GlobalLimit": "limit",
    "Sort": "sort",
    "Window": "a window function",
}


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
        state: What keeps state in it, see `state_shape`.
        lookups: Each look-up's own columns.
        sides: Of a join, as-of or not, the inputs on its left and its right side.
    """

    job: Job
    kind: StageKind
    operator: WindowSpec | IntervalJoin | AsOf | None
    result: T.StructType
    inputs: Mapping[str, T.StructType]
    branches: Mapping[str, T.StructType] = field(default_factory=dict)
    state: tuple[str, ...] = ()
    lookups: Mapping[str, T.StructType] = field(default_factory=dict)
    sides: tuple[str, ...] = ()

    @property
    def target_schema(self) -> T.StructType:
        """The target's columns: the function's, then the library's."""
        return self._with_own(self.result)

    @property
    def schemas(self) -> dict[str, T.StructType]:
        """The columns of each table that the job writes, the target's first."""
        results = self.branches or {self.job.target.name: self.result}
        return {table: self._with_own(result) for table, result in results.items()}

    @property
    def changes_schema(self) -> dict[str, T.StructType]:
        """The columns of the table of a dimension's changes, by its name; empty for other jobs."""
        target = self.job.target
        return (
            {target.changes_table: target.changes_schema(self.result)}
            if isinstance(target, ScdTarget)
            else {}
        )

    def _with_own(self, result: T.StructType) -> T.StructType:
        if isinstance(self.job.target, ScdTarget):
            return self.job.target.table_schema(result)
        fields = list(result.fields)
        if self.kind == "window":
            fields += [T.StructField(SOURCES, SOURCES_TYPE), T.StructField(ROWS, T.LongType())]
        else:
            fields += ROW_FIELDS
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


def analyse(job: Job, spark: SparkSession, tables: Mapping[str, T.StructType]) -> JobPlan:
    """Calls the job's function on empty input and looks at what it made of it.

    Args:
        job: The job.
        spark: A session.
        tables: The schemas of the tables that the job reads, library columns included.

    Raises:
        JobDefinitionError: The function fails, names a column that is not there, or does what cannot be streamed.
    """
    schemas = {name: _own_schema(job, declared, tables) for name, declared in job.inputs.items()}
    frames = {name: _empty(spark, name, schema) for name, schema in schemas.items()}
    found = {name: _table_schema(job, declared.name, tables) for name, declared in job.lookups.items()}
    statics = {name: spark.createDataFrame([], schema) for name, schema in found.items()}
    with recording() as recorder:
        try:
            results = job.results(**frames, **statics)
        except PySparkException as error:
            raise JobDefinitionError(f"job {job.name!r}: {first_sentence(error)}") from error
        except StreamsError as error:
            raise JobDefinitionError(f"job {job.name!r}: {error}") from error
        except Exception as error:
            place = f"{job.function.__code__.co_filename}, line {_line_of(job, error)}"
            raise JobDefinitionError(f"job {job.name!r}: {place}: {type(error).__name__}: {error}") from error
    plan = _understand(job, recorder.operators, results[job.target.name], schemas)
    if job.branches:
        plan = _with_branches(plan, results)
    plan = replace(plan, lookups=found)
    if found and plan.kind not in ("row", "scd"):
        raise JobDefinitionError(
            f"job {job.name!r}: only a row-by-row job can look things up in {', '.join(found)}; enrich the rows in a "
            f"job of its own, and let this {plan.kind} job read that job's table"
        )
    for declared in job.tables:
        _require_readable(plan, declared, tables[declared.name])
    if plan.kind == "window" and not isinstance(plan.operator, CountWindow):
        check_streamable(job, schemas, job.target.mode, spark)
    _check_expressions(job, frames, list(results.values()))
    if plan.kind in ("row", "scd"):
        return plan
    return replace(plan, state=state_shape(results[job.target.name]))


def _with_branches(plan: JobPlan, results: Mapping[str, DataFrame]) -> JobPlan:
    job, branches = plan.job, {plan.job.target.name: plan.result}
    dimension = next((target.name for target in job.targets if isinstance(target, ScdTarget)), None)
    if dimension is not None:
        raise JobDefinitionError(
            f"job {job.name!r}: {dimension} is a slowly changing dimension, and the only table of its job; write one "
            "job for each table"
        )
    if plan.kind != "row":
        raise JobDefinitionError(
            f"job {job.name!r}: only a row-by-row function has targets={{...}}; write one job for each table"
        )
    for target in job.targets[1:]:
        part = replace(job, target=target, branches={})
        branches[target.name] = _understand(
            part, [], results[target.name], plan.inputs, is_target=False
        ).result
    for target in job.targets:
        if target.mode != "append":
            raise JobDefinitionError(
                f"job {job.name!r}: {target.name}: the mode of targets={{...}} is 'append'"
            )
    return replace(plan, branches=branches)


def _line_of(job: Job, error: BaseException) -> int:
    """The line of the job's function that an error passed through."""
    frames = walk_tb(error.__traceback__)
    return next((line for frame, line in frames if frame.f_code is job.function.__code__), 0)


def _understand(
    job: Job,
    operators: list[object],
    result: DataFrame,
    schemas: Mapping[str, T.StructType],
    *,
    is_target: bool = True,
) -> JobPlan:
    if len(operators) > 1:
        chain = ", then ".join(type(operator).__name__ for operator in operators)
        raise JobDefinitionError(
            f"job {job.name!r}: a chain of stateful operators, {chain}; Spark tells nobody which rows the first one's "
            "watermark takes from the second, so no ledger could account for them. Write a job for each, and between "
            "them a row-by-row job with event_time= that reads the first one's table"
        )
    operator = operators[0] if operators else None
    if operator is not None and "Union" in _nodes(result):
        raise JobDefinitionError(
            f"job {job.name!r}: a union on the way to {type(operator).__name__}; unite the inputs in a row-by-row job, "
            "hw.union(...), and let this one read its table"
        )
    own = as_nullable(T.StructType([f for f in result.schema.fields if not f.name.startswith("_")]))
    twice = sorted({n for n in own.fieldNames() if own.fieldNames().count(n) > 1})
    if twice:
        raise JobDefinitionError(
            f"job {job.name!r}: the result has two columns named {twice[0]!r}; rename one"
        )
    for key in job.target.keys:
        if key not in own.fieldNames():
            raise JobDefinitionError(
                f"job {job.name!r}: the key {key!r} is not in the result; it has {', '.join(own.fieldNames())}"
            )
    if operator is not None and isinstance(job.target, ScdTarget):
        raise JobDefinitionError(
            f"job {job.name!r}: change events are applied row by row, and {type(operator).__name__} is none; write its "
            "result to a table of its own"
        )
    if isinstance(operator, WindowSpec):
        _check_window(job, operator, result)
        return JobPlan(job, "window", operator, own, schemas)
    if isinstance(operator, IntervalJoin):
        _require_watermark(job)
        if job.target.mode != "append" or len(job.inputs) != 2:
            raise JobDefinitionError(
                f"job {job.name!r}: a join reads two inputs and its target's mode is 'append'"
            )
        if not has_hidden(result, SOURCES) or _nodes_above(result, "Join") & {"Filter"}:
            raise JobDefinitionError(f"job {job.name!r}: only select and withColumn may follow hw.join(...)")
        return JobPlan(job, "join", operator, own, schemas, sides=joined_inputs(job, result))
    if isinstance(operator, AsOf):
        sides = _require_answerable(job, operator)
        if not has_hidden(result, SOURCES) or _nodes_above(result, "Join") & {"Filter"}:
            raise JobDefinitionError(f"job {job.name!r}: only select and withColumn may follow hw.as_of(...)")
        return JobPlan(job, "as_of", operator, own, schemas, sides=sides)
    check_inputs(job)
    if isinstance(job.dedup, BySequence) and not job.topics:
        raise JobDefinitionError(
            f"job {job.name!r}: by_sequence reads the headers of records, and a table's rows have none; put it on the "
            "job that reads the topic"
        )
    if isinstance(job.dedup, ByKey):
        _check_key(job, job.dedup, next(iter(schemas.values())))
    for node in _nodes(result):
        if node in _REFUSED:
            raise JobDefinitionError(f"job {job.name!r}: a row-by-row function cannot use {_REFUSED[node]}")
    if not has_hidden(result, OFFSET):
        if "Union" in _nodes(result):
            raise JobDefinitionError(
                f"job {job.name!r}: Spark's union loses the records' coordinates; use hw.union(a, b), or name several "
                "topics of one shape in one input, hw.topic('a', 'b')"
            )
        raise JobDefinitionError(
            f"job {job.name!r}: the result lost the records' coordinates; use select, withColumn, filter, hw.enrich "
            "and hw.union on the inputs themselves"
        )
    check_union(job, result, is_target=is_target)
    if isinstance(job.target, ScdTarget):
        _require_one_input(job, "a slowly changing dimension")
        _check_changes(job, job.target, own, result)
        return JobPlan(job, "scd", None, own, schemas)
    return JobPlan(job, "row", None, own, schemas)


def _check_changes(job: Job, target: ScdTarget, own: T.StructType, result: DataFrame) -> None:
    for problem in target.problems(own):
        raise JobDefinitionError(f"job {job.name!r}: {target.name}: {problem}")
    if target.apply_as_deletes is not None:
        try:
            result.filter(target.apply_as_deletes)
        except PySparkException as error:
            what = f"job {job.name!r}: {target.name}: apply_as_deletes {target.apply_as_deletes!r}"
            raise JobDefinitionError(f"{what}: {first_sentence(error)}") from error


def _check_window(job: Job, window: WindowSpec, result: DataFrame) -> None:
    _require_one_input(job, window.name)
    (declared,) = job.inputs.values()
    if window.closing:
        _require_watermark(job)
    if window.closing and window.time != declared.event_time:
        raise JobDefinitionError(
            f"job {job.name!r}: {window.name} over {window.time!r}, and the input's event_time, by which lateness is "
            f"told, is {declared.event_time!r}; make them one"
        )
    if isinstance(window, CountWindow) and job.target.mode == "update":
        raise JobDefinitionError(
            f"job {job.name!r}: a count window has no updating result, as it is written once, when it is full and the "
            "watermark has reached its last row; write mode='append'"
        )
    if job.target.mode not in window.modes:
        because = (
            "has no updating result, as Spark gives it once, when it is closed; write mode='append'"
            if window.closing
            else "has no final result; write mode='update' and keys=[...], the columns of by="
        )
        raise JobDefinitionError(f"job {job.name!r}: {window.name} {because}")
    if isinstance(window, CountWindow):
        _check_counted(job, result)
    own = result.columns
    unnamed = [name for name in window.by if name in own and name not in job.target.keys]
    if job.target.mode == "update" and unnamed:
        raise JobDefinitionError(
            f"job {job.name!r}: the keys {', '.join(job.target.keys)} do not name a row: there is one for each "
            f"{unnamed[0]}, too; add it to keys=[...]"
        )
    if not has_hidden(result, ROWS) or _nodes_above(result, "Aggregate") & {"Filter"}:
        raise JobDefinitionError(f"job {job.name!r}: only select and withColumn may follow .agg(...)")


def _check_counted(job: Job, result: DataFrame) -> None:
    nodes = _nodes(result)
    windows = nodes.index("Aggregate")
    if set(nodes[:windows]) - {"Project"}:
        raise JobDefinitionError(f"job {job.name!r}: only select and withColumn may follow .agg(...)")
    for node in nodes[windows + 1 :]:
        if node in _REFUSED or node == "Join":
            what = _REFUSED.get(node, "a join")
            raise JobDefinitionError(
                f"job {job.name!r}: rows on their way to hw.count_window cannot use {what}"
            )


def _own_schema(job: Job, declared: Input, tables: Mapping[str, T.StructType]) -> T.StructType:
    if isinstance(declared, TopicInput):
        return value_schema(declared)
    schema = _table_schema(job, declared.name, tables)
    if declared.event_time is not None and declared.event_time not in schema.fieldNames():
        raise JobDefinitionError(
            f"job {job.name!r}: {declared.name} has no column {declared.event_time!r} (its event_time); "
            f"it has {', '.join(schema.fieldNames())}"
        )
    return schema


def _table_schema(job: Job, name: str, tables: Mapping[str, T.StructType]) -> T.StructType:
    """A table's columns without the library's."""
    if name not in tables:
        there = ", ".join(sorted(tables)) or "none"
        raise JobDefinitionError(
            f"job {job.name!r}: there is no table {name!r}; tables and jobs' targets are {there}"
        )
    return T.StructType([f for f in tables[name].fields if not f.name.startswith("_")])


def _empty(spark: SparkSession, name: str, schema: T.StructType) -> DataFrame:
    full = T.StructType([*schema.fields, *ROW_FIELDS, T.StructField(marked(name), T.BooleanType())])
    return hide(spark.createDataFrame([], full).drop(marked(name)), ROW_COLUMNS)


def _check_key(job: Job, dedup: ByKey, schema: T.StructType) -> None:
    _require_watermark(job)
    for name in dedup.columns:
        if name not in schema.fieldNames():
            raise JobDefinitionError(
                f"job {job.name!r}: by_key: no column {name!r} in the input; there are {', '.join(schema.fieldNames())}"
            )
        if isinstance(schema[name].dataType, T.MapType):
            raise JobDefinitionError(
                f"job {job.name!r}: by_key: {name!r} is a map, and maps cannot be compared"
            )


def _require_one_input(job: Job, what: str) -> None:
    if len(job.inputs) != 1:
        raise JobDefinitionError(
            f"job {job.name!r}: {what} reads one input, this one names {', '.join(job.inputs)}; unite them in a "
            "row-by-row job, hw.union(...), and let this one read its table"
        )


def _require_watermark(job: Job) -> None:
    for name, declared in job.inputs.items():
        if declared.event_time is None or declared.watermark is None:
            raise JobDefinitionError(
                f"job {job.name!r}: the input {name!r} feeds state, so it needs event_time= and watermark="
            )


def _require_answerable(job: Job, spec: AsOf) -> tuple[str, str]:
    """Checks an as-of join of two streams, and gives the names of its left and its right input."""
    if job.target.mode != "append" or len(job.inputs) != 2:
        raise JobDefinitionError(
            f"job {job.name!r}: hw.as_of over two streams reads two inputs and its target's mode is 'append'; "
            "answers are final"
        )
    times = {declared.event_time: name for name, declared in job.inputs.items()}
    for side, time in (("left", spec.left_time), ("right", spec.right_time)):
        if time not in times:
            raise JobDefinitionError(
                f"job {job.name!r}: {side}_time={time!r} is not the event_time of an input; they are "
                + ", ".join(f"{name}: {declared.event_time}" for name, declared in job.inputs.items())
            )
    if spec.left_time == spec.right_time:
        raise JobDefinitionError(
            f"job {job.name!r}: both inputs call their event time {spec.left_time!r}; the result would have it twice"
        )
    right = times[spec.right_time]
    if job.inputs[right].watermark is None:
        raise JobDefinitionError(
            f"job {job.name!r}: the input {right!r} needs watermark=, which says when an answer is final"
        )
    if spec.direction != "backward" and spec.tolerance is None:
        raise JobDefinitionError(
            f"job {job.name!r}: direction={spec.direction!r} between two streams needs tolerance=, "
            "for a row would wait until its answer comes, however long that takes"
        )
    return times[spec.left_time], right


def _require_readable(plan: JobPlan, declared: TableInput, schema: T.StructType) -> None:
    """Checks that a table can be read commit by commit, and that lateness can be told of a stateful job's."""
    job, names = plan.job, schema.fieldNames()
    if CHANGES in names:
        raise JobDefinitionError(
            f"job {job.name!r}: {declared.name} is a slowly changing dimension, whose rows are replaced, and a stream "
            f"reads what is added; read what feeds it, or look things up in it with hw.lookup"
        )
    if OFFSET not in names:
        what = (
            "a table of windows, whose rows are made of many records and have no coordinates to be accounted for by"
            if ROWS in names
            else "not written by a job that keeps its records' coordinates"
        )
        raise JobDefinitionError(
            f"job {job.name!r}: {declared.name} is {what}; read what feeds it, or look things up in it with hw.lookup"
        )
    if SOURCES in names and isinstance(job.dedup, ByOffset):
        raise JobDefinitionError(
            f"job {job.name!r}: {declared.name} is the table of a join, where the pairs of one row share its "
            "coordinates, so by_offset would take them for one; leave dedup= out, a table brings each row once"
        )
    if _tells_lateness(plan, declared):
        require_ingest(job, declared, schema)


def _tells_lateness(plan: JobPlan, declared: TableInput) -> bool:
    """Whether rows of the table may be late for the job."""
    if plan.kind == "window":
        return plan.window.closing
    if isinstance(plan.operator, AsOf):
        return declared.event_time == plan.operator.right_time
    return plan.kind == "join"


def require_ingest(job: Job, declared: TableInput, schema: T.StructType) -> None:
    """Checks that a stateful job's table says what had been seen before each row.

    Raises:
        JobDefinitionError: It does not.
    """
    if SEEN_UNTIL in schema.fieldNames() and BATCH in schema.fieldNames():
        return
    if SOURCES in schema.fieldNames():
        raise JobDefinitionError(
            f"job {job.name!r}: {declared.name} is the table of a join, whose rows come when their partners do, so "
            "lateness cannot be told of them; read it with a row-by-row job that has an event_time, and that job's "
            "table here"
        )
    raise JobDefinitionError(
        f"job {job.name!r}: {declared.name} is not written by a row-by-row job whose input has an event_time, "
        "so lateness cannot be told; add event_time= to that job's input"
    )


def _check_expressions(job: Job, frames: Mapping[str, DataFrame], results: Sequence[DataFrame]) -> None:
    for check in job.checks:
        where = list(frames.values()) if check.on == "input" else results
        errors = []
        for frame in where:
            try:
                if check.level == "row":
                    frame.filter(check.passes_sql)
                else:
                    frame.selectExpr(check.passes_sql)
            except PySparkException as error:
                errors.append(first_sentence(error))
        if len(errors) == len(where):
            raise JobDefinitionError(f"job {job.name!r}, check {check.name!r}: {errors[0]}")


def _nodes(result: DataFrame) -> list[str]:
    return [str(plan.nodeName()) for plan in analysed_nodes(result)]


def _nodes_above(result: DataFrame, operator: str) -> set[str]:
    nodes = _nodes(result)
    return set(nodes[: nodes.index(operator)])
