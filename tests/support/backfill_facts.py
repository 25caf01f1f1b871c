"""Facts that backfills are planned by, written by hand: jobs, commits, entries, drafts; no session and no file."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from pyspark.sql import types as T

from headwater_streams.backfill.history import TableHistory
from headwater_streams.backfill.refusal import Refusal
from headwater_streams.backfill.repair.draft import JobFacts, draft_of
from headwater_streams.backfill.repair.selection import Selection
from headwater_streams.backfill.repair.spec import BackfillPlan
from headwater_streams.base.ledger_entry import LedgerEntry, Ranges, SourceRange
from headwater_streams.base.target import DeltaTarget
from headwater_streams.ledger.log import Commit
from headwater_streams.plan.job import Job
from headwater_streams.plan.plan import JobPlan, Operator, StageKind
from headwater_streams.sources.inputs import Input

MINUTE = 60_000_000
"""In microseconds."""
HOUR = 60 * MINUTE


def columns(*names: str, **types: T.DataType) -> T.StructType:
    """Columns, STRING unless a type is given."""
    text = {name: T.StringType() for name in names}
    return T.StructType([T.StructField(name, kind) for name, kind in {**text, **types}.items()])


def function(*frames: Any) -> Any:
    """A job's function, which nobody calls here."""


def part(
    inputs: Mapping[str, Input],
    *,
    name: str = "clean",
    kind: StageKind = "row",
    operator: Operator | None = None,
    result: T.StructType | None = None,
    target: DeltaTarget | None = None,
    sides: tuple[str, ...] = (),
    lookups: Mapping[str, Any] | None = None,
    foreign_time: str | None = None,
    branches: Mapping[str, T.StructType] | None = None,
    tables: Mapping[str, DeltaTarget] | None = None,
    **of_job: Any,
) -> JobPlan:
    """A job, understood, or a part of one; of one with several tables their columns and their targets."""
    job = Job(
        name=name,
        function=function,
        inputs=dict(inputs),
        target=target or DeltaTarget("silver.clicks"),
        lookups=lookups or {},
        branches=tables or {},
        **of_job,
    )
    return JobPlan(
        job,
        kind,
        operator,
        result or columns("who"),
        {each: columns("who") for each in inputs},
        lookups={each: columns("who") for each in lookups or {}},
        sides=sides,
        foreign_time=foreign_time,
        branches=branches or {},
    )


def source(ranges: Ranges, *, of: str = "clicks", table: str | None = None, until: int = 0) -> SourceRange:
    """What a batch read of an input: a topic, or a table up to a version."""
    if table is None:
        return SourceRange(input=of, ranges=ranges, topic=of)
    return SourceRange(input=of, ranges=ranges, table=table, versions=(0, until + 1))


def entry(
    batch: int,
    *sources: SourceRange,
    job: str = "clean",
    kind: Any = "row",
    generation: int = 1,
    read: int | None = None,
    **more: Any,
) -> LedgerEntry:
    """A batch's commit; it read as many rows as its offsets, if it is not said how many."""
    offsets = sum(
        end - start for each in sources for of in each.ranges.values() for start, end in of.values()
    )
    terms = {"clicks": {"read": offsets if read is None else read}}
    return LedgerEntry(
        job=job,
        generation=generation,
        batch=batch,
        table="silver.clicks",
        kind=kind,
        sources=sources,
        accounting=terms,
        **more,
    )


def commit(
    version: int,
    of: LedgerEntry | None = None,
    *,
    added: int = 1,
    removed: int = 0,
    data_changed: bool = True,
) -> Commit:
    """A version of a table, with how many files it added and removed."""
    paths = tuple(f"{version}-{place}.parquet" for place in range(added))
    return Commit(version, 0, "WRITE", added, removed, data_changed, of, paths, removed)


def history(*entries: LedgerEntry, name: str = "silver.clicks", job: str | None = "clean") -> TableHistory:
    """A table's commits: one without an entry, which made it, and then one for each entry, from version 1 on."""
    made = [commit(0, added=0), *(commit(version, each) for version, each in enumerate(entries, 1))]
    return TableHistory(made, name, job)


def job_facts(of: JobPlan, known: TableHistory | None, **more: Any) -> JobFacts:
    """The facts of a job whose tables have the columns that it gives."""
    types = {
        table: {field.name: field.dataType.simpleString() for field in schema.fields}
        for table, schema in of.schemas.items()
    }
    return JobFacts(**{"job": of.job.name, "part": of, "history": known, "columns": types, **more})


def draft(of: JobPlan, known: TableHistory, selection: Selection | None = None, **more: Any) -> BackfillPlan:
    """The plan without a range, of a job that differs in nothing from its last run."""
    found = draft_of(job_facts(of, known), selection or Selection())
    assert not isinstance(found, Refusal), found
    return replace(found, **more)


def offsets(**ranges: tuple[int, int]) -> dict[str, dict[int, tuple[int, int]]]:
    """Offsets of partition 0 of each topic."""
    return {topic: {0: pair} for topic, pair in ranges.items()}


def said(found: object, error: type[Exception] | None = None) -> str:
    """The sentence of a refusal, of that error."""
    assert isinstance(found, Refusal), found
    assert error is None or found.error is error
    return found.sentence


Rows = Literal["quarantined", "late"]


def selected(
    *,
    of: Ranges | None = None,
    timestamps: tuple[int, int] | None = None,
    event_time: tuple[int, int] | None = None,
    since: int | None = None,
    rows: Rows | None = None,
) -> Selection:
    """A range."""
    return Selection(of, timestamps, event_time, since, rows)


def plan_of(found: BackfillPlan | Refusal) -> BackfillPlan:
    """A plan that nothing refused."""
    assert isinstance(found, BackfillPlan), found
    return found


def batches_of(plan: BackfillPlan) -> Sequence[Sequence[int]]:
    """The batches of each step."""
    return [[each.batch for each in chunk.batches] for chunk in plan.chunks]
