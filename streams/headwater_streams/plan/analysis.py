"""What a job is, learnt by calling its function once on empty input: its kind, its operators, its result's columns."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from traceback import walk_tb
from types import MappingProxyType
from typing import NoReturn

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.base.check import InvalidCheckError
from headwater_streams.base.errors import JobDefinitionError, StreamsError
from headwater_streams.base.names import RECORD_COLUMNS, is_reserved, named_twice
from headwater_streams.base.nearest import nearest
from headwater_streams.base.type_name import type_name
from headwater_streams.delta.scd_target import ScdTarget
from headwater_streams.operators.dedup import ByKey, BySequence
from headwater_streams.operators.joins.as_of import AsOf
from headwater_streams.operators.joins.interval import IntervalJoin
from headwater_streams.operators.recording import Place, recording
from headwater_streams.operators.windows.count import CountWindow
from headwater_streams.operators.windows.spec import WindowSpec
from headwater_streams.plan.chain import empty, find_chain, require_chain
from headwater_streams.plan.column_lineage import column_sources, through_sides
from headwater_streams.plan.exploding import Exploding, exploding_of, require_places_unnamed
from headwater_streams.plan.job import Job
from headwater_streams.plan.judging import require_judgeable
from headwater_streams.plan.laid_out import keep_problems, layout_problems
from headwater_streams.plan.plan import Chain, JobPlan
from headwater_streams.plan.record_columns import (
    attribute_hint,
    named_record_columns,
    unresolved_record_column,
    where_record_columns_are,
    with_record,
)
from headwater_streams.plan.requirements import (
    check_changes,
    check_key,
    check_window,
    may_multiply,
    require_answerable,
    require_nothing_behind,
    require_one_input,
    require_readable,
    require_row_by_row,
    require_rows_of_records,
    require_watermark,
)
from headwater_streams.plan.streamable import check_streamable, check_without_actions
from headwater_streams.plan.unions import check_inputs, check_union, foreign_time, joined_inputs
from headwater_streams.plan.unused import unused_texts
from headwater_streams.plan.written import WrittenAs
from headwater_streams.quality.sql_analysis import require_condition
from headwater_streams.sources.computed_time import require_computable
from headwater_streams.sources.coordinates import (
    OFFSET,
    RECORD_FIELDS,
    ROW,
    ROW_COLUMNS,
    SOURCES,
)
from headwater_streams.sources.decode import parsed_schema, value_schema
from headwater_streams.sources.inputs import Input, TableInput, TopicInput
from headwater_streams.spark.analysed_plan import state_shape, whole_shape
from headwater_streams.spark.frames import empty_frame
from headwater_streams.spark.nullable import as_nullable
from headwater_streams.spark.plan_shape import plan_shape
from headwater_streams.spark.spark_errors import first_sentence


def analyse(
    job: Job,
    spark: SparkSession,
    tables: Mapping[str, T.StructType],
    written: Mapping[str, WrittenAs] = MappingProxyType({}),
) -> JobPlan:
    """Calls the job's function on empty input and looks at what it made of it.

    A function that names `_key` or `_headers` is called once more, with these columns of its topics' records; the
    inputs of the plan's job give them.

    Args:
        job: The job.
        spark: A session.
        tables: The schemas of the tables that the job reads, library columns included.
        written: How their rows are written.

    Raises:
        JobDefinitionError: The function fails, names a column that is not there, or does what cannot be streamed; or a
            table cannot be laid out as the job declares it.
    """
    plan = _with_record_columns(job, spark, tables, written)
    if plan.chain:  # its last part is analysed by itself
        return plan
    with _located_errors(job, "layout" if "layout" in job.places else "target"):
        for target in job.targets:
            schema = plan.schemas[target.name]
            delays = [each.watermark for each in job.inputs.values() if each.watermark is not None]
            problems = [
                *layout_problems(target.name, target.layout, schema, times=plan.times),
                *keep_problems(target.name, target.layout, plan.kind, delays),
            ]
            if problems:
                raise JobDefinitionError(f"job {job.name!r}: {'; '.join(problems)}")
    return plan


def _with_record_columns(
    job: Job, spark: SparkSession, tables: Mapping[str, T.StructType], written: Mapping[str, WrittenAs]
) -> JobPlan:
    """The plan of a job with the records' own columns that it names, see `analyse`."""
    job = with_record(job, named_record_columns(job))
    while True:
        try:
            return _analyse(job, spark, tables, written)
        except JobDefinitionError as error:
            name = unresolved_record_column(error)
            if name is None:
                raise
            wider = with_record(job, [name])
            if wider == job:
                raise JobDefinitionError(f"{error}; {where_record_columns_are(job, name)}") from error
            job = wider


def _analyse(
    job: Job, spark: SparkSession, tables: Mapping[str, T.StructType], written: Mapping[str, WrittenAs]
) -> JobPlan:
    schemas = own_schemas(job, tables)
    placed = {name for name, declared in job.inputs.items() if _has_row(declared, tables)}
    frames = {
        name: empty(spark, schema, mark=name, has_row=name in placed) for name, schema in schemas.items()
    }
    lookups = {name: _table_schema(job, declared.name, tables) for name, declared in job.lookups.items()}
    statics = {name: empty_frame(spark, schema) for name, schema in lookups.items()}
    with recording() as recorder:
        try:
            results = job.results(**frames, **statics)
        except Exception as error:
            # Behind an operator rows have no coordinates, but those of a chain's steps have.
            chain = _chain(job, frames, statics, error) if recorder.operators else Chain()
            if len(chain.links) <= 1:
                raise _function_error(job, error) from error
        else:
            if job.branches and recorder.operators:
                _refuse_branches(job)
            chain = _chain(job, frames, statics) if len(recorder.operators) > 1 else Chain()
    if len(chain.links) > 1:
        require_chain(job, chain)
        of_inputs = replace(job, checks=tuple(check for check in job.checks if check.on == "input"))
        _check_expressions(of_inputs, frames, [])  # the last part checks those of the result
        check_without_actions(job, schemas, lookups, spark)
        last = chain.links[-1]
        return JobPlan(job, "window", last.operator, last.result, schemas, lookups=lookups, chain=chain.links)
    for operator in recorder.uses:
        require_rows_of_records(job, [plan_shape(rows).root for rows in operator.handed.values()])
        for rows in operator.handed.values():
            _require_own_names(job, frames, rows, "rows on their way to a window or a join")
    with _located_errors(job, "target"):
        for result in results.values():
            _require_own_names(job, frames, result, "the result")
        plan = _understand(job, recorder.operators, results[job.target.name], schemas)
    if job.branches:
        plan = _with_branches(plan, results)
    static, through = {name: plan_shape(frame) for name, frame in statics.items()}, dict[int, int]()
    for passed, of_sides in recorder.passed_on:
        through |= through_sides(plan_shape(passed), *map(plan_shape, of_sides))
    made_of = {table: column_sources(plan_shape(each), static, through) for table, each in results.items()}
    if isinstance(job.target, ScdTarget):
        made_of[job.target.name] = job.target.of_columns(made_of[job.target.name])
    plan = replace(plan, lookups=lookups, made_of=made_of)
    require_judgeable(plan)
    if plan.unites:
        if not job.steps:  # a chain was checked as a whole
            check_without_actions(job, schemas, lookups, spark)
        return plan  # its parts are checked when they are made
    if plan.kind not in ("row", "scd"):
        hidden = {name: plan_shape(frames[name]).hidden for name in placed}
        places = {name: each.id for name, columns in hidden.items() for each in columns if each.name == ROW}
        entering = [rows for operator in recorder.uses for rows in operator.handed.values()]
        shapes = map(plan_shape, (*entering, results[job.target.name]))
        require_places_unnamed(job, places, [shape.root for shape in shapes])
    joins = any(
        "Join" in plan_shape(rows).root.kinds
        for operator in recorder.uses
        for rows in operator.handed.values()
    )
    if plan.kind in ("join", "as_of") and (lookups or joins):
        where = f", here in {', '.join(lookups)}" if lookups else ""
        raise JobDefinitionError(
            f"job {job.name!r}: rows on the way to a join of streams look nothing up{where}; enrich them in a "
            "row-by-row job, and let this one read its table"
        )
    if isinstance(plan.operator, IntervalJoin | AsOf) and recorder.uses:
        times: dict[Place, str] = {"left": plan.operator.left_time, "right": plan.operator.right_time}
        sides = dict(zip(times, plan.sides, strict=True))
        handed = {place: plan_shape(rows).root for place, rows in recorder.uses[0].handed.items()}
        plan = replace(plan, foreign_time=foreign_time(job, sides, times, handed))
    if (
        isinstance(plan.operator, IntervalJoin)
        and plan.operator.keeps
        and plan.foreign_time
        and not job.steps
    ):
        raise JobDefinitionError(
            f"job {job.name!r}: hw.join(..., how={plan.operator.how!r}) is by {plan.foreign_time}, which is no "
            "event_time of an input: Spark lets go of rows by that, and would give some without the partners that come "
            "for them; compute it in a row-by-row job, and let this one read its table with event_time="
        )
    if plan.kind in ("row", "scd"):
        with _located_errors(job, "target"):
            plan = _with_exploding(plan, results, has_row=bool(placed))
    for name, declared in job.inputs.items():
        if isinstance(declared, TableInput) and name not in job.steps:  # an ingest part stands between
            with _located_errors(job, f"input {name}"):
                require_readable(
                    plan, declared, tables[declared.name], written.get(declared.name, WrittenAs())
                )
    if plan.kind == "window" and not isinstance(plan.operator, CountWindow):
        with _located_errors(job, "target"):
            check_streamable(job, schemas, job.target.mode, spark)
    _check_expressions(job, frames, list(results.values()))
    if (
        plan.kind in ("row", "scd") or job.late == "count"
    ):  # else an ingest table takes all of its topics' columns
        plan = replace(plan, unused=unused_texts(job, schemas, results.values()))
    if plan.kind in ("row", "scd"):
        joining = {table for table, result in results.items() if may_multiply(plan_shape(result).root)}
        plan = replace(plan, joining=frozenset(joining))
    if job.unites_for is not None:
        return replace(plan, state=whole_shape(results[job.target.name]))
    if plan.kind in ("row", "scd"):
        return plan
    return replace(plan, state=state_shape(results[job.target.name]))


def _has_row(declared: Input, tables: Mapping[str, T.StructType]) -> bool:
    """Whether rows of an input are several to a record."""
    return isinstance(declared, TableInput) and ROW in tables.get(declared.name, T.StructType()).names


def _with_exploding(plan: JobPlan, results: Mapping[str, DataFrame], *, has_row: bool) -> JobPlan:
    """The plan with the tables whose rows are several to a record."""
    job, exploding, numbered = plan.job, dict[str, Exploding](), set[str]()
    for table, result in results.items():
        shape = plan_shape(result)
        if shape.can_reveal(ROW):
            numbered.add(table)
        if "Generate" not in shape.root.kinds:
            continue
        how = exploding_of(job, shape.root, has_row=has_row)
        if how is not None:
            exploding[table] = how
            numbered.add(table)
    if exploding and plan.kind == "scd":
        raise JobDefinitionError(
            f"job {job.name!r}: change events are applied one by one, and explode makes several of a record, which "
            "nothing puts in order; explode in a row-by-row job, and let this one read its table"
        )
    return replace(plan, exploding=exploding, numbered=frozenset(numbered))


def own_schemas(job: Job, tables: Mapping[str, T.StructType]) -> dict[str, T.StructType]:
    """The columns of each of a job's inputs, without the library's; see `analyse`."""
    schemas: dict[str, T.StructType] = {}
    for name, declared in job.inputs.items():
        with _located_errors(job, f"input {name}"):
            schemas[name] = _own_schema(job, declared, tables)
    return schemas


def _chain(
    job: Job,
    frames: Mapping[str, DataFrame],
    statics: Mapping[str, DataFrame],
    failure: Exception | None = None,
) -> Chain:
    """The chain of a function; `failure` is what it failed with where rows behind an operator have no coordinates."""
    try:
        return find_chain(job, frames, statics)
    except Exception as error:
        raise _function_error(job, failure or error) from error


def _function_error(job: Job, error: Exception) -> JobDefinitionError:
    """The error of a job's function as a sentence with its line; SQL has a place of its own instead."""
    if isinstance(error, PySparkException):
        reason = first_sentence(error) + attribute_hint(error)
    elif isinstance(error, StreamsError):
        reason = str(error)
    else:
        reason = f"{type(error).__name__}: {error}"
    line = 0 if job.text else _line_of(job, error)
    place = f"{job.code.co_filename}, line {line}: " if line else ""
    return JobDefinitionError(f"job {job.name!r}: {place}{reason}")


@contextmanager
def _located_errors(job: Job, part: str) -> Iterator[None]:
    """Adds to an error about a part of a job in SQL where that part stands."""
    try:
        yield
    except JobDefinitionError as error:
        if part not in job.places or any(place in str(error) for place in job.places.values()):
            raise
        about = f"job {job.name!r}: "
        message = str(error).removeprefix(about)
        raise JobDefinitionError(f"{about}{job.places[part]}: {message}") from error


def _require_own_names(job: Job, frames: Mapping[str, DataFrame], result: DataFrame, what: str) -> None:
    """Checks that no column of a result, or of rows on their way to an operator, has a name of the library's.
    Coordinates that are unchanged keep theirs."""
    reserved = list(filter(is_reserved, result.columns))
    shape = plan_shape(result)
    if reserved and "Union" in shape.root.kinds:  # whose columns are others than those of its parts
        reserved = [name for name in reserved if name not in ROW_COLUMNS]
    elif reserved:
        hidden = {
            column.id
            for frame in frames.values()
            for column in plan_shape(frame).hidden
            if column.name not in RECORD_COLUMNS or column.name in job.keeps
        }
        reserved = [
            column.name
            for column in shape.root.columns
            if column.name in reserved and column.id not in hidden
        ]
    if reserved:
        raise JobDefinitionError(
            f"job {job.name!r}: the column {reserved[0]!r} of {what} begins with '_', which is reserved; rename it"
        )


def _with_branches(plan: JobPlan, results: Mapping[str, DataFrame]) -> JobPlan:
    job, branches = plan.job, {plan.job.target.name: plan.result}
    dimension = next((target.name for target in job.targets if isinstance(target, ScdTarget)), None)
    if dimension is not None:
        raise JobDefinitionError(
            f"job {job.name!r}: {dimension} is a slowly changing dimension, and the only table of its job; write one "
            "job for each table"
        )
    if plan.kind != "row":
        _refuse_branches(job)
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


def _refuse_branches(job: Job) -> NoReturn:
    raise JobDefinitionError(
        f"job {job.name!r}: only a row-by-row function has targets={{...}}; write one job for each table"
    )


def _line_of(job: Job, error: BaseException) -> int:
    """The innermost line of the function's file that an error passed through; 0 if it came from elsewhere."""
    file = job.code.co_filename
    lines = [line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == file]
    return lines[-1] if lines else 0


def _understand(
    job: Job,
    operators: list[object],
    result: DataFrame,
    schemas: Mapping[str, T.StructType],
    *,
    is_target: bool = True,
) -> JobPlan:
    operator = operators[0] if operators else None
    shape = plan_shape(result)
    nodes = set(shape.root.kinds)
    is_united = len(job.inputs) > 1 or bool(job.steps or job.lookups) or "Union" in nodes
    if operator is not None and not isinstance(operator, WindowSpec) and "Union" in nodes:
        raise JobDefinitionError(
            f"job {job.name!r}: a union on the way to {type(operator).__name__}; unite the inputs in a row-by-row job, "
            "hw.union(...), and let this one read its table"
        )
    own_fields = [f for f in result.schema.fields if not is_reserved(f.name) or f.name in job.keeps]
    own = as_nullable(T.StructType(own_fields))
    twice = named_twice(own.fieldNames())
    if twice is not None:
        raise JobDefinitionError(f"job {job.name!r}: the result has two columns named {twice!r}; rename one")
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
    if isinstance(operator, WindowSpec) and (is_united or "Join" in nodes):
        require_nothing_behind(job, shape)
        return JobPlan(job, "window", operator, own, schemas, unites=True)
    if isinstance(operator, WindowSpec):
        check_window(job, operator, result.schema, shape)
        return JobPlan(job, "window", operator, own, schemas)
    if isinstance(operator, IntervalJoin):
        require_watermark(job)
        if len(job.inputs) != 2:
            raise JobDefinitionError(
                f"job {job.name!r}: hw.join takes two inputs, and the job has {', '.join(job.inputs)}; a side that is "
                "the other one once more is declared, and named as a parameter, a second time"
            )
        if job.target.mode != "append":
            raise JobDefinitionError(
                f"job {job.name!r}: a join only adds rows: its target's mode is 'append'"
            )
        if not shape.can_reveal(SOURCES) or shape.root.above("Join") & {"Filter"}:
            raise JobDefinitionError(f"job {job.name!r}: only select and withColumn may follow hw.join(...)")
        return JobPlan(job, "join", operator, own, schemas, sides=joined_inputs(job, shape.root))
    if isinstance(operator, AsOf):
        sides = require_answerable(job, operator, shape.root)
        if not shape.can_reveal(SOURCES) or shape.root.above("Join") & {"Filter"}:
            raise JobDefinitionError(f"job {job.name!r}: only select and withColumn may follow hw.as_of(...)")
        return JobPlan(job, "as_of", operator, own, schemas, sides=sides)
    check_inputs(job)
    if isinstance(job.dedup, BySequence) and not job.topics:
        raise JobDefinitionError(
            f"job {job.name!r}: by_sequence reads the headers of records, and a table's rows have none; put it on the "
            "job that reads the topic"
        )
    if isinstance(job.dedup, ByKey):
        check_key(job, job.dedup, next(iter(schemas.values())))
    require_row_by_row(job, shape.root)
    if not shape.can_reveal(OFFSET):
        if "Union" in nodes:
            raise JobDefinitionError(
                f"job {job.name!r}: Spark's union loses the records' coordinates; use hw.union(a, b), or name several "
                "topics of one shape in one input, hw.topic('a', 'b')"
            )
        raise JobDefinitionError(
            f"job {job.name!r}: the result lost the records' coordinates; use select, withColumn, filter, hw.enrich "
            "and hw.union on the inputs themselves, and hw.join or hw.as_of to join two streams"
        )
    check_union(job, shape.root, is_target=is_target)
    if isinstance(job.target, ScdTarget):
        require_one_input(job, "a slowly changing dimension")
        check_changes(job, job.target, own, result)
        return JobPlan(job, "scd", None, own, schemas)
    if job.target.mode != "append":
        raise JobDefinitionError(
            f"job {job.name!r}: a row-by-row function adds rows, and its target's mode is 'append'; for the newest row "
            "of each key let it return hw.latest(...), or write target=hw.scd1(...)"
        )
    return JobPlan(job, "row", None, own, schemas)


def _own_schema(job: Job, declared: Input, tables: Mapping[str, T.StructType]) -> T.StructType:
    if isinstance(declared, TopicInput):
        schema = value_schema(declared)
        require_computable(declared, parsed_schema(declared), SparkSession.active())
        return schema
    schema, time = _table_schema(job, declared.name, tables), declared.event_time
    schema = T.StructType(
        [*schema.fields, *[field for field in RECORD_FIELDS if field.name in declared.record]]
    )
    if time is None:
        return schema
    if time not in schema.fieldNames():
        raise JobDefinitionError(
            f"job {job.name!r}: {declared.name} has no column {time!r} (its event_time); "
            f"it has {', '.join(schema.fieldNames())}{_OF_TABLES if not time.isidentifier() else ''}"
        )
    if schema[time].dataType != T.TimestampType():
        kind = type_name(schema[time].dataType)
        raise JobDefinitionError(
            f"job {job.name!r}: the event_time {time!r} of {declared.name} is {kind}, and must be TIMESTAMP; have the "
            "job that writes the table make it one"
        )
    return schema


_OF_TABLES = "; the event time of a table is a column, which the job that writes it computes"


def _table_schema(job: Job, name: str, tables: Mapping[str, T.StructType]) -> T.StructType:
    """A table's columns without the library's."""
    if name not in tables:
        suggestion = f"; the jobs here read and write {nearest(name, sorted(tables))}" if tables else ""
        raise JobDefinitionError(f"job {job.name!r}: there is no table {name!r}, which it reads{suggestion}")
    return T.StructType([f for f in tables[name].fields if not is_reserved(f.name)])


def _check_expressions(job: Job, frames: Mapping[str, DataFrame], results: Sequence[DataFrame]) -> None:
    for check in job.checks:
        where = list(frames.values()) if check.on == "input" else results
        errors = []
        for frame in where:
            try:
                require_condition(frame, check.expression)
                if check.level == "row":
                    frame.filter(F.expr(check.expression))
                else:
                    frame.agg(F.expr(check.expression))
            except InvalidCheckError as error:
                errors.append(str(error))
            except PySparkException as error:
                errors.append(first_sentence(error))
        if len(errors) == len(where):
            with _located_errors(job, f"check {check.name}"):
                raise JobDefinitionError(f"job {job.name!r}: check {check.name!r}: {errors[0]}")
