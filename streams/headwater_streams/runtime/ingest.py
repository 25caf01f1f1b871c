"""The ingest table that the library puts between a topic and a stateful job.

It holds every good row, in time or not, with `_seen_until`, so that lateness is decided on the row alone. It is an
ordinary row-by-row job of its own, `<job>__ingest_<input>`, with the stateful job's deduplication and quarantine. A job
that only counts its late rows does without.

A windowed job whose function unites several inputs has one for all of them, `<job>__ingest_union`: what its function
does on the way to its window is done there, once. So is it where the function looks things up or joins a static frame,
and the table is `<job>__ingest_enriched`, and where the rows are those of another operator, see `plan.chain`.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from headwater_streams.base.durations import parse_duration
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.base.target import DeltaTarget
from headwater_streams.operators.dedup import ByOffset
from headwater_streams.operators.joins.enrich import trusting
from headwater_streams.operators.joins.interval import IntervalJoin
from headwater_streams.operators.recording import handed, taking
from headwater_streams.operators.windows.spec import FoldedWindow
from headwater_streams.plan.chain import empty
from headwater_streams.plan.job import Job
from headwater_streams.plan.plan import JobPlan
from headwater_streams.plan.requirements import require_watermark
from headwater_streams.quality.columns import speaking_of
from headwater_streams.sources.inputs import Input, TableInput, TopicInput
from headwater_streams.sources.reader import RecordSource
from headwater_streams.spark.frames import empty_frame

_UNION, _ENRICHED = "union", "enriched"


def reads_directly(plan: JobPlan, source: RecordSource) -> bool:
    """Whether a stateful job reads its topics itself: its late rows are counted, and no offset comes twice."""
    dedup = plan.job.dedup
    nothing_twice = dedup is None or (
        isinstance(dedup, ByOffset) and not dedup.origin and not source.may_repeat
    )
    folds = isinstance(plan.operator, FoldedWindow | IntervalJoin)
    return plan.job.late == "count" and not plan.job.steps and nothing_twice and folds


def with_ingest(plan: JobPlan, spark: SparkSession) -> list[Job]:
    """The jobs that run a stateful job: an ingest job for each topic that it names and each step of a chain, then the
    job over their tables."""
    job, jobs = plan.job, list[Job]()
    inputs: dict[str, Input] = {}
    for name, declared in job.inputs.items():
        if not isinstance(declared, TopicInput) and name not in job.steps:
            inputs[name] = declared
            continue
        if not name.isascii():
            raise JobDefinitionError(
                f"job {job.name!r}: the parameter {name!r} is part of the name of its ingest table; call it by the "
                "letters a to z, digits and '_'"
            )
        target = DeltaTarget(f"{job.target.name}__ingest_{name}", sides_of=job.target.name)
        checks = job.quarantining
        if len(job.inputs) > 1:  # each check is about one side, or about both
            checks = speaking_of(empty(spark, plan.inputs[name]), checks)
        keeps = declared.record if name not in job.steps else ()
        jobs.append(
            Job(
                f"{job.name}__ingest_{name}",
                _keeping(keeps) if keeps else _identity,
                {name: declared},
                target,
                job.dedup if isinstance(declared, TopicInput) else None,
                job.late,
                () if name in job.steps else checks,
                keeps=keeps,
            )
        )
        inputs[name] = TableInput(target.name, declared.event_time, declared.watermark, keeps)
    if not jobs:
        return [job]
    kept = tuple(c for c in job.checks if c.action != "quarantine" or job.tables)
    return [*jobs, replace(job, inputs=inputs, dedup=None, checks=kept, steps=())]


def with_united(plan: JobPlan) -> list[Job]:
    """The jobs that run a windowed job of several inputs, with look-ups or a static frame, or of a step of a chain: one
    that puts what its function hands to its window into a table, and the window over that.

    The table is one stream, whose rows are late behind the greatest time of all that it has by the longest of the
    inputs' delays; the time is the window's, which the function may compute.

    Raises:
        JobDefinitionError: An input does not say when a row is late.
    """
    job, window = plan.job, plan.window
    name = _UNION
    if len(job.inputs) == 1:
        name = job.steps[0] if job.steps else _ENRICHED
    target = DeltaTarget(f"{job.target.name}__ingest_{name}", sides_of=job.target.name)
    into = replace(
        job,
        name=f"{job.name}__ingest_{name}",
        function=_until_window(job.function),
        target=target,
        checks=tuple(check for check in job.checks if check.on == "input"),
        unites_for=window,
        steps=(),
        is_step=False,
    )
    read = TableInput(target.name)
    if window.closing:
        require_watermark(job)
        delays = [declared.watermark or "" for declared in job.inputs.values()]
        read = TableInput(target.name, window.time, max(delays, key=parse_duration))
    out_of = replace(
        job,
        function=_from_window(plan),
        inputs={name: read},
        dedup=None,
        checks=tuple(check for check in job.checks if check.on == "output"),
        lookups={},
        steps=(),
    )
    return [into, out_of]


def _until_window(function: Callable[..., Any]) -> Callable[..., DataFrame]:
    @wraps(function)
    def united(**inputs: DataFrame) -> DataFrame:
        return handed(function, **inputs)

    return united


def _from_window(plan: JobPlan) -> Callable[..., DataFrame]:
    @wraps(plan.job.function)
    def windowed(**united: DataFrame) -> DataFrame:
        (rows,) = united.values()
        spark = rows.sparkSession
        frames = {
            name: empty(spark, own, has_row=isinstance(plan.job.inputs[name], TableInput))
            for name, own in plan.inputs.items()
        }
        frames |= {name: empty_frame(spark, schema) for name, schema in plan.lookups.items()}
        try:
            with taking(rows), trusting(True):
                result: DataFrame = plan.job.function(**frames)
        except AnalysisException as error:
            if not (error.getCondition() or "").startswith("MISSING_ATTRIBUTES"):
                raise
            names = (error.getMessageParameters() or {})["missingAttributes"]
            missing = names.split(", ")[0].strip('`"')
            raise JobDefinitionError(
                f"behind hw.union or hw.enrich a column is named by F.col({missing!r}), not by the frame that it was of"
            ) from error
        return result

    return windowed


def _identity(**inputs: DataFrame) -> DataFrame:
    (rows,) = inputs.values()
    return rows


def _keeping(names: Sequence[str]) -> Callable[..., DataFrame]:
    """The identity that also shows columns of the record's own."""

    def kept(**inputs: DataFrame) -> DataFrame:
        (rows,) = inputs.values()
        return rows.select("*", *names)

    return kept
