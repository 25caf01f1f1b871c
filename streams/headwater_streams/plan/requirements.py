"""What a job of each kind must be. A job that is not is refused before its first run, with a sentence."""

from collections.abc import Iterable, Mapping

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.base.type_name import type_name
from headwater_streams.delta.scd_target import CHANGES, ScdTarget
from headwater_streams.operators.dedup import ByKey, ByOffset
from headwater_streams.operators.joins.as_of import AsOf
from headwater_streams.operators.joins.interval import IntervalJoin
from headwater_streams.operators.windows.count import CountWindow
from headwater_streams.operators.windows.spec import WindowSpec
from headwater_streams.plan.exploding import require_apart
from headwater_streams.plan.job import Job
from headwater_streams.plan.keys import check_keys
from headwater_streams.plan.plan import JobPlan
from headwater_streams.plan.unions import joined_inputs
from headwater_streams.plan.written import WrittenAs
from headwater_streams.sources.coordinates import (
    BATCH,
    OFFSET,
    ROWS,
    SEEN_UNTIL,
    SOURCES,
)
from headwater_streams.sources.inputs import TableInput
from headwater_streams.sources.nested import kinds_within
from headwater_streams.spark.plan_shape import PlanNode, PlanShape
from headwater_streams.spark.spark_errors import first_sentence

_BEFORE_OPERATORS = {
    "Deduplicate": "dropDuplicates; use dedup=hw.by_offset() or dedup=hw.by_key(...)",
    "Distinct": "distinct; use dedup=hw.by_offset() or dedup=hw.by_key(...)",
    "FlatMapCoGroupsInArrow": "applyInArrow; use a window, as hw.tumbling(...), hw.grouped(...) or hw.join(...)",
    "FlatMapCoGroupsInPandas": "applyInPandas; use a window, as hw.tumbling(...), hw.grouped(...) or hw.join(...)",
    "FlatMapGroupsInArrow": "applyInArrow; use a window, as hw.tumbling(...), or hw.grouped(...)",
    "FlatMapGroupsInPandas": "applyInPandas; use a window, as hw.tumbling(...), or hw.grouped(...)",
    "GlobalLimit": "limit",
    "MapInArrow": "mapInArrow, whose rows are of no record; compute columns with F.arrow_udf or F.pandas_udf",
    "MapInPandas": "mapInPandas, whose rows are of no record; compute columns with F.pandas_udf",
    "Offset": "offset",
    "Sample": "sample, which takes other rows when they are read again; filter by F.hash of a column",
    "Sort": "sort",
    "Window": "a window function",
}
_IN_ROWS = _BEFORE_OPERATORS | {
    "Aggregate": "a grouping; use a window, as hw.tumbling(...), or hw.grouped(...)",
    "Expand": "unpivot, whose rows have no place in their record; write inline(array(struct(...), ...))",
}
"""What a row-by-row function cannot be made of: nodes of Spark's plans that keep state, look at a batch as a whole or
lose the records' coordinates, with what to do instead. Rows may be exploded, see `exploding`."""
_IN_COUNT_WINDOWS = _IN_ROWS | {
    "Generate": "explode, which makes several rows of one record; explode in a row-by-row job, and read its table",
    "Join": "a join",
}


_ONE_OF_ONE = {"CollectMetrics", "EventTimeWatermark", "Filter", "Project", "SubqueryAlias", "Union"}
"""Nodes that make at most one row of each row. `unions` checks that the sides of a union are of different inputs."""


def check_changes(job: Job, target: ScdTarget, own: T.StructType, result: DataFrame) -> None:
    """Checks a dimension against the columns of its change events.

    Raises:
        JobDefinitionError: It does not hold.
    """
    for problem in target.problems(own):
        raise JobDefinitionError(f"job {job.name!r}: {target.name}: {problem}")
    if target.apply_as_deletes is not None:
        try:
            result.filter(target.apply_as_deletes)
        except PySparkException as error:
            what = f"job {job.name!r}: {target.name}: apply_as_deletes {target.apply_as_deletes!r}"
            raise JobDefinitionError(f"{what}: {first_sentence(error)}") from error


def check_window(job: Job, window: WindowSpec, schema: T.StructType, result: PlanShape) -> None:
    """Checks a job with a window over one input: its time, its target's mode and keys.

    Raises:
        JobDefinitionError: It does not hold.
    """
    (declared,) = job.inputs.values()
    if window.closing:
        require_watermark(job)
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
        _check_count_window(job, result.root)
    require_nothing_behind(job, result)
    if job.target.mode == "update":
        check_keys(job, window, schema, result.root)


def require_rows_of_records(job: Job, handed: Iterable[PlanNode]) -> None:
    """Checks that the rows that a function hands to its operator are those of the records, each by itself.

    Raises:
        JobDefinitionError: They are not.
    """
    for rows in handed:
        _refuse(job, "rows on their way to a window or a join", rows.kinds, _BEFORE_OPERATORS)


def require_row_by_row(job: Job, result: PlanNode) -> None:
    """Checks that a function without an operator looks at each row by itself.

    Raises:
        JobDefinitionError: It does not.
    """
    _refuse(job, "a row-by-row function", result.kinds, _IN_ROWS)


def may_multiply(result: PlanNode) -> bool:
    """Whether a row-by-row function may make several rows of one: it does more than compute and filter."""
    return any(node.kind not in _ONE_OF_ONE for node in result.walk() if node.children)


def _refuse(job: Job, what: str, nodes: Iterable[str], refused: Mapping[str, str]) -> None:
    for node in nodes:
        if node in refused:
            raise JobDefinitionError(f"job {job.name!r}: {what} cannot use {refused[node]}")


def require_nothing_behind(job: Job, result: PlanShape) -> None:
    """Checks that a function gives the windows that it made, and all of them.

    Raises:
        JobDefinitionError: It does not.
    """
    if not result.can_reveal(ROWS) or result.root.above("Aggregate") & {"Filter", "Join", "Union"}:
        raise JobDefinitionError(f"job {job.name!r}: only select and withColumn may follow .agg(...)")


def _check_count_window(job: Job, result: PlanNode) -> None:
    nodes = result.kinds
    windows = nodes.index("Aggregate")
    if set(nodes[:windows]) - {"Project"}:
        raise JobDefinitionError(f"job {job.name!r}: only select and withColumn may follow .agg(...)")
    _refuse(job, "rows on their way to hw.count_window", nodes[windows + 1 :], _IN_COUNT_WINDOWS)


def check_key(job: Job, dedup: ByKey, schema: T.StructType) -> None:
    """Checks the columns of `by_key`.

    Raises:
        JobDefinitionError: It does not hold.
    """
    require_watermark(job)
    for name in dedup.columns:
        if name not in schema.fieldNames():
            raise JobDefinitionError(
                f"job {job.name!r}: by_key: no column {name!r} in the input; there are {', '.join(schema.fieldNames())}"
            )
        kind = schema[name].dataType
        if any(isinstance(each, T.MapType | T.VariantType) for each in kinds_within(kind)):
            raise JobDefinitionError(
                f"job {job.name!r}: by_key: {name!r} is {type_name(kind)}, and neither a MAP nor a VARIANT can be "
                "compared; take another key"
            )


def require_one_input(job: Job, what: str) -> None:
    """Checks that a job reads one input.

    Raises:
        JobDefinitionError: It does not hold.
    """
    if len(job.inputs) != 1:
        raise JobDefinitionError(
            f"job {job.name!r}: {what} reads one input, this one names {', '.join(job.inputs)}; unite them in a "
            "row-by-row job, hw.union(...), and let this one read its table"
        )


def require_watermark(job: Job) -> None:
    """Checks that each input of a job that keeps state says when a row is late.

    Raises:
        JobDefinitionError: It does not hold.
    """
    for name, declared in job.inputs.items():
        if declared.event_time is None or declared.watermark is None:
            place = f"{job.places[f'input {name}']}: " if f"input {name}" in job.places else ""
            raise JobDefinitionError(
                f"job {job.name!r}: {place}the input {name!r} feeds state, so it needs event_time= and watermark="
            )


def require_answerable(job: Job, spec: AsOf, result: PlanNode) -> tuple[str, str]:
    """Checks an as-of join of two streams, and gives the names of its left and its right input.

    Args:
        job: The job.
        spec: The join.
        result: The plan of what the job's function made of empty frames.

    Raises:
        JobDefinitionError: It does not hold.
    """
    if job.target.mode != "append" or len(job.inputs) != 2:
        raise JobDefinitionError(
            f"job {job.name!r}: hw.as_of over two streams reads two inputs and its target's mode is 'append'; "
            "answers are final"
        )
    left, right = joined_inputs(job, result)
    for side, name, time in (("left", left, spec.left_time), ("right", right, spec.right_time)):
        declared = job.inputs[name].event_time
        if time != declared:
            raise JobDefinitionError(
                f"job {job.name!r}: {side}_time={time!r} is not the event_time of the input {name!r}, which is "
                f"{declared!r}; hw.as_of takes it by its own name, also where both sides call it alike"
            )
    if job.inputs[right].watermark is None:
        raise JobDefinitionError(
            f"job {job.name!r}: the input {right!r} needs watermark=, which says when an answer is final"
        )
    if spec.direction != "backward" and spec.tolerance is None:
        raise JobDefinitionError(
            f"job {job.name!r}: direction={spec.direction!r} between two streams needs tolerance=, "
            "for a row would wait until its answer comes, however long that takes"
        )
    return left, right


def require_readable(plan: JobPlan, declared: TableInput, schema: T.StructType, written: WrittenAs) -> None:
    """Checks that a table can be read commit by commit, and that a stateful job can know which of its rows are late.

    Args:
        plan: The job.
        declared: The table.
        schema: Its columns, those of the library among them.
        written: How its rows are written.

    Raises:
        JobDefinitionError: It does not hold.
    """
    job, names = plan.job, schema.fieldNames()
    if CHANGES in names:
        raise JobDefinitionError(
            f"job {job.name!r}: {declared.name} is a slowly changing dimension, whose rows are replaced, and a stream "
            f"reads what is added; read what feeds it, or look things up in it with hw.lookup"
        )
    if ROWS in names:
        _require_windows(plan, declared, is_final=written.final)
    elif OFFSET not in names:
        raise JobDefinitionError(
            f"job {job.name!r}: {declared.name} is not written by a job that keeps its records' coordinates; read what "
            "feeds it, or look things up in it with hw.lookup"
        )
    are = "made of several records and share their" if written.shared else "several to a record and share its"
    is_shared = written.shared or written.several
    shared = f"job {job.name!r}: rows of {declared.name} are {are} coordinates, so "
    if is_shared and isinstance(job.dedup, ByOffset):
        raise JobDefinitionError(
            f"{shared}by_offset would take them for one; leave dedup= out, a table brings each row once"
        )
    if written.several and plan.kind == "scd":
        raise JobDefinitionError(
            f"{shared}change events of one time would have no order; apply them in a job that reads the records, or "
            "keep the newest row of each key by hw.latest(...)"
        )
    require_apart(job, plan.exploding, declared.name if written.shared else None)
    operator = plan.operator
    is_semi = isinstance(operator, IntervalJoin) and operator.how == "semi"
    if is_shared and is_semi and declared == job.inputs[plan.sides[0]]:
        raise JobDefinitionError(
            f"{shared}a semi join cannot tell which of them it gave before; write how='inner' and take each once with "
            "hw.by_key(...) in a row-by-row job that reads its table"
        )
    if _tells_lateness(plan, declared):
        require_ingest(job, declared, schema)


def _require_windows(plan: JobPlan, declared: TableInput, *, is_final: bool) -> None:
    """Checks that a table of windows can be read: each of them is written once, and a row-by-row job reads it."""
    job = plan.job
    if not is_final:
        raise JobDefinitionError(
            f"job {job.name!r}: the windows of {declared.name} are replaced as their rows come, and a stream reads "
            "what is added; have their job write each once, with mode='append', or use hw.lookup"
        )
    if plan.kind != "row":
        raise JobDefinitionError(
            f"job {job.name!r}: {declared.name} is a table of windows, which come when they are closed; read it with a "
            "row-by-row job that has an event_time, and that job's table here"
        )


def _tells_lateness(plan: JobPlan, declared: TableInput) -> bool:
    """Whether rows of the table may be late for the job."""
    if plan.kind == "window":
        return plan.window.closing
    if isinstance(plan.operator, AsOf):
        return declared == plan.job.inputs[plan.sides[1]]
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
