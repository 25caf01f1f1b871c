"""The ingest table that the library puts between a topic and a stateful job.

It holds every good row, in time or not, with `_seen_until`, so that lateness is decided on the row alone. It is an
ordinary row-by-row job of its own, `<job>__ingest_<input>`, with the stateful job's deduplication and quarantine. A job
that only counts its late rows does without.
"""

from dataclasses import replace

from pyspark.sql import DataFrame

from headwater_streams.dedup import ByOffset
from headwater_streams.joins.interval import IntervalJoin
from headwater_streams.runtime.job import Job
from headwater_streams.runtime.plan import JobPlan
from headwater_streams.sinks.target import DeltaTarget
from headwater_streams.sources.inputs import Input, TableInput, TopicInput
from headwater_streams.sources.reader import RecordSource
from headwater_streams.windows.spec import FoldedWindow


def reads_directly(plan: JobPlan, source: RecordSource) -> bool:
    """Whether a stateful job reads its topics itself: its late rows are counted, and no offset comes twice."""
    dedup = plan.job.dedup
    nothing_twice = dedup is None or (
        isinstance(dedup, ByOffset) and not dedup.origin and not source.may_repeat
    )
    folds = isinstance(plan.operator, FoldedWindow | IntervalJoin)
    return plan.job.late == "count" and nothing_twice and folds


def with_ingest(job: Job) -> list[Job]:
    """The jobs that run a stateful job: an ingest job for each topic that it names, then the job over their tables."""
    jobs: list[Job] = []
    inputs: dict[str, Input] = {}
    for name, declared in job.inputs.items():
        if not isinstance(declared, TopicInput):
            inputs[name] = declared
            continue
        target = DeltaTarget(f"{job.target.name}__ingest_{name}", sides_of=job.target.name)
        jobs.append(
            Job(
                f"{job.name}__ingest_{name}",
                _identity,
                {name: declared},
                target,
                job.dedup,
                job.late,
                job.quarantining,
            )
        )
        inputs[name] = TableInput(target.name, declared.event_time, declared.watermark)
    if not jobs:
        return [job]
    kept = tuple(c for c in job.checks if c.action != "quarantine" or job.tables)
    return [*jobs, replace(job, inputs=inputs, dedup=None, checks=kept)]


def _identity(**inputs: DataFrame) -> DataFrame:
    (rows,) = inputs.values()
    return rows
