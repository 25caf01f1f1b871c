"""What a rebuild's plan and a rewind's say of their job and its tables."""

from dataclasses import dataclass
from typing import Any

from headwater_streams.backfill.history import TableHistory
from headwater_streams.delta.scd_target import IS_CURRENT, VALID_FROM, VALID_TO, ScdTarget
from headwater_streams.operators.windows.spec import WINDOW_END, WINDOW_START
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.generations import current_generation
from headwater_streams.runtime.readers import fed_by
from headwater_streams.runtime.tables import tables_of
from headwater_streams.sources.coordinates import SOURCES

_BOUNDS = ("window_index", WINDOW_START, WINDOW_END)


@dataclass(frozen=True, kw_only=True)
class WholeFacts:
    """What a `WholePlan` follows from, whatever becomes of the table.

    Attributes:
        part: The job, or the part of it that is meant.
        history: The target's commits.
        generation: The job's generation.
        feeds: The jobs that read its tables, see `WholePlan`.
        reference: Where the job was loaded from.
    """

    part: JobPlan
    history: TableHistory
    generation: int
    feeds: tuple[str, ...] = ()
    reference: str = ""

    def of_plan(self) -> dict[str, Any]:
        """What a `WholePlan` says of them."""
        part = self.part
        return {
            "job": part.job.name,
            "reference": self.reference,
            "kind": part.kind,
            "target": part.job.target.name,
            "sides": _sides(part),
            "further": part.job.other_tables,
            "keys": _keys(part),
            "columns": _columns(part),
            "fingerprint": part.job.fingerprint,
            "base_generation": self.generation,
            "base_version": self.history.version,
            "feeds": self.feeds,
        }


def whole_facts(context: StageContext, part: JobPlan, history: TableHistory, reference: str) -> WholeFacts:
    """Looks at a job and its tables."""
    return WholeFacts(
        part=part,
        history=history,
        generation=current_generation(context, part.job),
        feeds=fed_by(context.home, [target.name for target in part.job.targets]),
        reference=reference,
    )


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
        return found.place(target.name)
    if found.kind == "window":
        named = [name for name in (*found.window.by, *_BOUNDS) if name in found.result.fieldNames()]
        if named:
            return tuple(named)
    return (SOURCES,)


def _columns(found: JobPlan) -> tuple[str, ...]:
    """The columns of a job's target that are compared: those that it was not the library that added."""
    own = {*found.result.fieldNames(), VALID_FROM, VALID_TO, IS_CURRENT}
    return tuple(name for name in found.target_schema.fieldNames() if name in own)
