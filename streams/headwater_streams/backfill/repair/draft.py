"""What of a repair's plan the job decides, whatever the range: its tables and columns, and whether a part of its rows
can be made again at all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from headwater_streams.backfill.history import TableHistory, no_table
from headwater_streams.backfill.jobs import PartsBefore
from headwater_streams.backfill.refusal import Refusal
from headwater_streams.backfill.repair.jobs import refused_job
from headwater_streams.backfill.repair.selection import Selection
from headwater_streams.backfill.repair.spec import BackfillPlan, FurtherTable
from headwater_streams.backfill.repair.windows.asked import keys_of
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.compatibility import Difference, why_incompatible
from headwater_streams.sources.coordinates import ORIGIN, ROWS, SOURCES, TIMESTAMP

_KINDS: Mapping[str, Literal["window", "join"]] = {"window": "window", "join": "join", "as_of": "join"}
_APART = frozenset({"kind", "operator", "target keys"})
"""Differences of a job from its last run by which its rows would stand beside those that they should replace."""


@dataclass(frozen=True, kw_only=True)
class JobFacts:
    """What the repair of a job follows from, whatever kind it is of.

    Attributes:
        job: The job's name.
        part: The job, or the part of it that is repaired.
        before: The parts before that.
        topic_ids: The topics that these read, each with its id.
        history: The commits of the part's target; None without any.
        columns: The types of the columns of each of its tables that there is.
        differences: From its last run.
        versions: The newest versions of its other tables.
        feeds: The jobs that read its tables, see `BackfillPlan`.
    """

    job: str
    part: JobPlan
    before: PartsBefore = field(default_factory=PartsBefore)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    history: TableHistory | None = None
    columns: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    differences: Sequence[Difference] = ()
    versions: Mapping[str, int] = field(default_factory=dict)
    feeds: tuple[str, ...] = ()


def draft_of(
    facts: JobFacts, selection: Selection, *, newest_lookups: bool = False, reference: str = ""
) -> BackfillPlan | Refusal:
    """The plan without a range.

    Args:
        facts: The job.
        selection: The range.
        newest_lookups: Whether look-ups are to be read as they are now.
        reference: Where the job was loaded from.
    """
    part, job, history = facts.part, facts.part.job, facts.history
    refusal = (
        facts.before.refusal(facts.job)
        or (_looked_up_before(facts) if newest_lookups else None)
        or refused_job(facts.job, part)
    )
    if refusal is not None:
        return refusal
    if history is None:
        return no_table(job.target.name)
    refusal = _nothing_since(selection, history) or _other_columns(facts) or _other_keys(facts)
    if refusal is not None:
        return refusal
    keys = _keys(part)
    if isinstance(keys, Refusal):
        return keys
    if not history.entries():
        return history.never_ran
    if selection.rows == "late" and part.kind == "row":
        return Refusal(f"the job {job.name!r} has no windows, so no row of it is late; give another range")
    halts = why_incompatible(job.name, facts.differences)
    last = history.last_entry()
    return BackfillPlan(
        id="",
        job=job.name,
        reference=reference,
        kind=_KINDS.get(part.kind, "row"),
        target=job.target.name,
        quarantine=job.target.quarantine_table,
        input_name=part.sides[0] if part.sides else next(iter(job.inputs)),
        keys=keys,
        columns=_columns(part),
        fingerprint=job.fingerprint,
        asked=selection.to_json(),
        ranges={},
        windows=(),
        rows=0,
        chunks=(),
        base_version=history.version,
        generation=last.generation,
        batch=last.batch,
        pinned=None,
        notes=(
            *facts.before.notes(facts.job),
            *(() if halts is None else (f"the repair does not change that {halts}",)),
        ),
        created_at="",
        feeds=facts.feeds,
        further=_further(facts),
        topic_ids=facts.topic_ids,
    )


def _looked_up_before(facts: JobFacts) -> Refusal | None:
    """Refuses to look things up as they are now where that was done on the way to a table which a repair reads."""
    looking_up = [part.job.target.name for part in facts.before.plans if part.lookups]
    if not looking_up:
        return None
    return Refusal(
        f"the job {facts.job!r} has looked things up on the way to {looking_up[0]}, which a repair reads as it is; to "
        "look them up as they are now, make that anew first, and this behind it: headwater backfill plan "
        f"{facts.job} --rebuild --table {looking_up[0]}"
    )


def _nothing_since(selection: Selection, history: TableHistory) -> Refusal | None:
    """Refuses a version of the target behind which there is none."""
    if selection.since_version is None or selection.since_version < history.version:
        return None
    return Refusal(
        f"{history.name} is at version {history.version}, so nothing was committed after version "
        f"{selection.since_version}"
    )


def _other_columns(facts: JobFacts) -> Refusal | None:
    """Refuses a function whose columns its tables do not have."""
    for table, schema in facts.part.schemas.items():
        if table not in facts.columns:
            return no_table(table)
        types = facts.columns[table]
        for column in schema.fields:
            kind = column.dataType.simpleString()
            if types.get(column.name) != kind:
                has = f"has it as {types[column.name]}" if column.name in types else "does not have it"
                return Refusal(
                    f"the job {facts.part.job.name!r} gives a column {column.name} {kind}, and {table} {has}; a new "
                    "one is added when the job is started, one of another type needs another name"
                )
    return None


def _other_keys(facts: JobFacts) -> Refusal | None:
    """Refuses a job whose rows would stand beside those that they should replace."""
    differs, job = [each for each in facts.differences if each.what in _APART], facts.part.job
    if not differs:
        return None
    return Refusal(
        f"the job {job.name!r} differs from its last run ({'; '.join(map(str, differs))}), so rows of two kinds would "
        f"stand in {job.target.name}; build all of them again: headwater backfill plan JOB --rebuild"
    )


def _further(facts: JobFacts) -> dict[str, FurtherTable]:
    """The job's other tables, as they are now."""
    own = {name: tuple(result.fieldNames()) for name, result in facts.part.branches.items()}
    return {
        name: FurtherTable(
            columns=(*own[name], TIMESTAMP, ORIGIN),
            base_version=version,
            keys=facts.part.place(name) if facts.part.numbered else (),
        )
        for name, version in facts.versions.items()
    }


def _keys(part: JobPlan) -> tuple[str, ...] | Refusal:
    if part.kind == "window":
        return keys_of(part)
    return (SOURCES,) if part.kind == "join" else part.place(part.job.target.name)


def _columns(part: JobPlan) -> tuple[str, ...]:
    own = tuple(part.result.fieldNames())
    if part.kind == "window":
        return *own, ROWS
    return own if part.sides else (*own, TIMESTAMP, ORIGIN)
