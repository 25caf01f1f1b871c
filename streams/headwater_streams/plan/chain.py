"""Chains of stateful operators in one function: how they hang together, and the jobs that run them, one for each.

    def busiest(clicks):                                                      what runs it, and its table
        minutes = hw.tumbling(clicks, "at", "1 minute", by=["page"]).agg(...)      busiest__step_1: gold.busiest__step_1
        busy = minutes.filter("n > 100")                                           busiest__ingest_step_1
        return hw.tumbling(busy, "window_end", "1 hour").agg(...)                  busiest: gold.busiest

Spark runs chains in one query, too, but does not report which rows the first operator's watermark takes from the
second, so no ledger could account for them. Here each operator's result is a table, which the next one reads by way of
an ingest table, as if the user had written a job for each: final rows, in the order in which they became final.

Each step determines how far its rows are apart in time when they become final. That is the watermark of what reads
them, so no row of a step is late unless its records were.

    windows      closed in the order of their ends: by `window_end` nothing is late; by `window_start`, where all are
                 of one length or begin in the order of their ends, nothing either
    inner joins  a pair comes with the later of its rows, which is in time; the other one is at most `within` away
    as-of joins  a row comes when its answer is final, at most `tolerance` behind others (not at all where it looks
                 backward), or at once; it is late where it came late itself
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import wraps

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from headwater_streams.base.check import Check
from headwater_streams.base.durations import parse_duration
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.base.target import DeltaTarget
from headwater_streams.operators.joins.interval import IntervalJoin
from headwater_streams.operators.recording import Place, recording, replaying
from headwater_streams.operators.windows.count import CountWindow
from headwater_streams.operators.windows.session import SessionWindow
from headwater_streams.operators.windows.spec import WINDOW_END, WINDOW_START, WindowSpec
from headwater_streams.plan.job import Job
from headwater_streams.plan.plan import Chain, JobPlan, Link, Operator
from headwater_streams.plan.requirements import require_watermark
from headwater_streams.plan.unions import inputs_under, marked, origin_of
from headwater_streams.quality.columns import speaking_of
from headwater_streams.sources.coordinates import ROW_COLUMNS, ROW_FIELD, ROW_FIELDS
from headwater_streams.sources.inputs import Input, TableInput, TopicInput
from headwater_streams.spark.frames import empty_frame
from headwater_streams.spark.hidden_columns import hide
from headwater_streams.spark.nullable import as_nullable
from headwater_streams.spark.plan_shape import plan_shape

_STEP = "step_"
_NEXT = "1 millisecond"
"""The least delay that there is: the rows come in order."""


def find_chain(job: Job, frames: Mapping[str, DataFrame], statics: Mapping[str, DataFrame]) -> Chain:
    """Calls a job's function on empty frames and sees how its operators hang together.

    Args:
        job: The job.
        frames: Its inputs, with their marks (`unions.marked`).
        statics: What it looks things up in.
    """
    lookups = {name: _marked(frame, name) for name, frame in statics.items()}
    results: list[T.StructType] = []

    def stand_in(result: DataFrame) -> DataFrame:
        results.append(as_nullable(result.schema))
        return empty(result.sparkSession, results[-1], mark=_name(len(results)))

    with recording(stand_in) as recorder:
        result = job.function(**frames, **lookups)
    calls = zip(recorder.operators, results, recorder.uses, strict=True)
    links = tuple(_link(operator, schema, each.handed, lookups) for operator, schema, each in calls)
    return Chain(links, _sources(result))


def require_chain(job: Job, chain: Chain) -> None:
    """Sees to it that each operator's rows come to another one, and the last one's alone are the result.

    Raises:
        JobDefinitionError: They do not.
    """
    used = {name for link in chain.links for name in link.sources}
    last = _name(len(chain.links))
    unused = [name for name in map(_name, range(1, len(chain.links))) if name not in used]
    if unused or chain.gives != (last,):
        operators = ", then ".join(map(_what, chain.links))
        raise JobDefinitionError(
            f"job {job.name!r}: the stateful operators {operators} are no chain: each must come to the next, and the "
            "last one's rows, with nothing else, are the result; write a job for each"
        )
    clashing = [name for name in job.inputs if name.removeprefix(_STEP).isdigit()]
    if clashing:
        raise JobDefinitionError(
            f"job {job.name!r}: {clashing[0]!r} is what the library calls a step of a chain; call the input otherwise"
        )


def empty(
    spark: SparkSession, schema: T.StructType, *, mark: str | None = None, has_row: bool = False
) -> DataFrame:
    """A frame without rows that has hidden coordinates, as an input's; in a plan it is known by the name `mark`.

    With `has_row` its rows have places in their records, as those of a table that are several to one.
    """
    marks = [] if mark is None else [T.StructField(marked(mark), T.BooleanType())]
    places = [ROW_FIELD] if has_row else []
    full = empty_frame(spark, T.StructType([*schema.fields, *ROW_FIELDS, *places, *marks]))
    return hide(full.drop(*[f.name for f in marks]), [*ROW_COLUMNS, *[f.name for f in places]])


def with_steps(plan: JobPlan, spark: SparkSession) -> list[Job]:
    """The jobs that run a chain, in its order; the last has the job's own name and table.

    Args:
        plan: The job.
        spark: A session.

    Raises:
        JobDefinitionError: An operator has no final rows, or the time of the next one is not theirs.
    """
    job, links, schemas = plan.job, plan.chain, plan.inputs
    columns = {**schemas, **{_name(place): link.result for place, link in enumerate(links, 1)}}
    delays = {name: declared.watermark for name, declared in job.inputs.items()}
    parts: list[Job] = []
    for place, link in enumerate(links, 1):
        inputs: dict[str, Input] = {}
        for name in link.sources:
            if name in job.inputs:
                inputs[name] = job.inputs[name]
                continue
            step, time = links[_number(name) - 1], link.times[name]
            delays[name] = _delay(job, step, time, delays) if link.closing else None
            inputs[name] = TableInput(f"{job.target.name}__{name}", time, delays[name])
        own = {name: declared for name, declared in inputs.items() if name in job.inputs}
        if any(len(names) > 1 and set(names) - set(own) for names in link.reads.values()):
            raise JobDefinitionError(
                f"job {job.name!r}: {' and '.join(link.sources)} are united on the way to {_what(link)}; what an "
                "operator gives comes when it is final, which is behind the rows of other inputs; write a job for each "
                "operator, and unite their tables in a row-by-row job"
            )
        require_watermark(replace(job, inputs=own))
        part = replace(
            job,
            inputs=inputs,
            function=_step(plan, place, columns),
            dedup=job.dedup if any(isinstance(declared, TopicInput) for declared in own.values()) else None,
            late=job.late if own else "count",
            checks=_checks_over(
                job, [empty(spark, schemas[name]) for name in own], is_last=place == len(links)
            ),
            steps=tuple(name for name in inputs if name not in own),
            lookups={name: job.lookups[name] for name in link.lookups},
        )
        if place < len(links):
            _require_final(job, link)
            table = f"{job.target.name}__{_name(place)}"
            target = DeltaTarget(table, sides_of=table)
            part = replace(part, name=f"{job.name}__{_name(place)}", target=target, is_step=True)
        parts.append(part)
    return parts


def _checks_over(job: Job, inputs: Sequence[DataFrame], *, is_last: bool) -> tuple[Check, ...]:
    """The checks of a job that speak of what one operator reads of its inputs; the last has those of the result."""
    of_inputs = [check for check in job.checks if check.on != "output"]
    spoken = [check for frame in inputs for check in speaking_of(frame, of_inputs)]
    return tuple(check for check in job.checks if (is_last if check.on == "output" else check in spoken))


def _link(
    operator: Operator, result: T.StructType, handed: Mapping[Place, DataFrame], lookups: Collection[str]
) -> Link:
    sources = {place: _sources(rows) for place, rows in handed.items()}
    reads = {place: tuple(name for name in names if name not in lookups) for place, names in sources.items()}
    if isinstance(operator, WindowSpec):
        columns: dict[Place, str] = {"window": operator.time}
    else:
        columns = {"left": operator.left_time, "right": operator.right_time}
    times = {
        name: origin_of(plan_shape(handed[place]).root, columns[place], name) if columns[place] else None
        for place, names in reads.items()
        for name in names
    }
    looked_up = {name for names in sources.values() for name in names if name in lookups}
    return Link(operator, result, reads, times, tuple(looked_up))


def _marked(lookup: DataFrame, name: str) -> DataFrame:
    """A look-up without rows, with its mark."""
    marked_one = T.StructType([*lookup.schema.fields, T.StructField(marked(name), T.BooleanType())])
    return empty_frame(lookup.sparkSession, marked_one).drop(marked(name))


def _sources(frame: DataFrame) -> tuple[str, ...]:
    """The marks of the frames that a frame is made of."""
    return tuple(inputs_under(plan_shape(frame).root))


def _name(place: int) -> str:
    return f"{_STEP}{place}"


def _number(step: str) -> int:
    return int(step.removeprefix(_STEP))


def _step(plan: JobPlan, place: int, columns: Mapping[str, T.StructType]) -> Callable[..., DataFrame]:
    """What one operator of a chain makes of its inputs; of the last one, what the function makes of that."""
    job, before = plan.job, [_name(i) for i in range(1, place)]

    @wraps(job.function)
    def step(**frames: DataFrame) -> DataFrame:
        spark = next(iter(frames.values())).sparkSession
        available = {
            name: frames[name]
            if name in frames
            else empty(spark, columns[name], has_row=isinstance(job.inputs.get(name), TableInput))
            for name in (*job.inputs, *before)
        }
        inputs = {name: available[name] for name in job.inputs}
        for name, schema in plan.lookups.items():
            inputs[name] = frames[name] if name in frames else empty_frame(spark, schema)
        return replaying(
            job.function, inputs, [available[name] for name in before], stops=place < len(plan.chain)
        )

    return step


def _what(link: Link) -> str:
    return link.operator.name if isinstance(link.operator, WindowSpec) else "a join"


def _require_final(job: Job, link: Link) -> None:
    operator = link.operator
    if isinstance(operator, WindowSpec) and "append" not in operator.modes:
        raise JobDefinitionError(
            f"job {job.name!r}: {operator.name} changes as its rows come, so nothing can be made of its result in the "
            "same function; window the rows, or let a job that is run now and then read its table"
        )
    if isinstance(operator, IntervalJoin) and operator.keeps:
        raise JobDefinitionError(
            f"job {job.name!r}: rows without a partner come out of hw.join(..., how={operator.how!r}) when they "
            "expire, which may be long after newer pairs, and would be late for what follows; write how='inner', or a "
            "job for the join, and a row-by-row job with event_time= that reads its table, watermark= and all"
        )


def _delay(job: Job, step: Link, time: str | None, delays: Mapping[str, str | None]) -> str:
    """How far behind the greatest time of a step's rows another one may come; `time` is the step's column."""
    operator = step.operator
    if isinstance(operator, WindowSpec):
        times = [WINDOW_END]
        if not isinstance(operator, SessionWindow | CountWindow):  # these begin in any order
            times.append(WINDOW_START)
    else:
        times = [operator.left_time]
        if isinstance(operator, IntervalJoin):
            times.append(operator.right_time)
    if time not in times:
        raise JobDefinitionError(
            f"job {job.name!r}: the time of what follows {_what(step)} must be one in whose order its rows come: "
            f"{' or '.join(times)}, as it is, under any name"
        )
    if isinstance(operator, WindowSpec):
        return _NEXT
    if isinstance(operator, IntervalJoin):
        longest = max(parse_duration(delays[name] or _NEXT) for name in step.sources) + operator.within
        return _milliseconds(longest)
    (left,) = step.reads["left"]
    delay = delays[left]
    if delay is None:
        raise JobDefinitionError(
            f"job {job.name!r}: what follows hw.as_of must know when a row is late, so {left!r} needs watermark="
        )
    # A row waits for a better answer as long as one may come, while others have theirs.
    return max(delay, _milliseconds(operator.looks_ahead or parse_duration(_NEXT)), key=parse_duration)


def _milliseconds(duration: timedelta) -> str:
    return f"{round(duration.total_seconds() * 1000)} milliseconds"
