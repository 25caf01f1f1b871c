"""What a rebuild's plan and a rewind's say of their job and its tables."""

from typing import Any

from headwater_streams.backfill.history import TableHistory
from headwater_streams.delta.scd_target import IS_CURRENT, VALID_FROM, VALID_TO, ScdTarget
from headwater_streams.operators.windows.spec import WINDOW_END, WINDOW_START
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.generations import current_generation
from headwater_streams.runtime.readers import fed_by
from headwater_streams.runtime.tables import tables_of
from headwater_streams.sources.coordinates import OFFSET, PARTITION, SOURCES, TOPIC

_BOUNDS = ("window_index", WINDOW_START, WINDOW_END)


def facts_of_plan(
    context: StageContext, found: JobPlan, history: TableHistory, reference: str
) -> dict[str, Any]:
    """What a `WholePlan` says of a job, all but how many rows it will read."""
    return {
        "job": found.job.name,
        "reference": reference,
        "kind": found.kind,
        "target": found.job.target.name,
        "sides": _sides(found),
        "further": found.job.other_tables,
        "keys": _keys(found),
        "columns": _columns(found),
        "fingerprint": found.job.fingerprint,
        "base_generation": current_generation(context, found.job),
        "base_version": history.version,
        "feeds": fed_by(context.home, [target.name for target in found.job.targets]),
    }


def _sides(found: JobPlan) -> tuple[str, ...]:
    """The side tables that a job has."""
    target = found.job.target
    return tuple(name for name in (target.quarantine_table, target.late_table) if name in tables_of(found))


def _keys(found: JobPlan) -> tuple[str, ...]:
    """The columns that name a row of a job's target, in a diff."""
    target = found.job.target
    if target.keys:
        has_versions = isinstance(target, ScdTarget) and target.stored_as_scd_type == 2
        return (*target.keys, VALID_FROM) if has_versions else target.keys
    if found.kind in ("row", "as_of"):
        return TOPIC, PARTITION, OFFSET
    if found.kind == "window":
        named = [name for name in (*found.window.by, *_BOUNDS) if name in found.result.fieldNames()]
        if named:
            return tuple(named)
    return (SOURCES,)


def _columns(found: JobPlan) -> tuple[str, ...]:
    """The columns of a job's target that are compared: those that it was not the library that added."""
    own = {*found.result.fieldNames(), VALID_FROM, VALID_TO, IS_CURRENT}
    return tuple(name for name in found.target_schema.fieldNames() if name in own)
