"""Plans a rebuild: what it will replace, and whether all that the live job read can be read again."""

from headwater_streams.backfill.history import TableHistory
from headwater_streams.backfill.rebuild.spec import RebuildPlan
from headwater_streams.backfill.store import BackfillError, stored
from headwater_streams.errors import DataLossError
from headwater_streams.ledger.entry import Ranges
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.inputs import InputReader
from headwater_streams.runtime.job import Job
from headwater_streams.runtime.plan import JobPlan
from headwater_streams.runtime.renewal import readers_of
from headwater_streams.runtime.runner import plan_jobs
from headwater_streams.sinks.scd_target import IS_CURRENT, VALID_FROM, VALID_TO, ScdTarget
from headwater_streams.sources.coordinates import OFFSET, PARTITION, SOURCES, TOPIC

_BOUNDS = ("window_start", "window_end")


def plan_rebuild(context: StageContext, job: Job, *, reference: str = "") -> RebuildPlan:
    """Plans to make a job's tables anew and stores the plan; the same code and tables give the same plan.

    Of a stateful job that names topics, the part behind its ingest tables is rebuilt.

    Args:
        context: The session, the home, the record source.
        job: The job, as its code is now.
        reference: Where the job was loaded from; the command line loads it from there again.

    Raises:
        BackfillError: The job has not run yet, or others read its tables.
        DataLossError: Records that the live job read are gone, or the log of a table that it reads was cut.
    """
    found = plan_jobs(context, [job])[-1]
    target = found.job.target
    history = TableHistory(context.home.table(target.name), target.name, found.job.name)
    require_no_readers(context, found.job)
    _require_inputs(context, found.job, history.read_ranges())
    last = history.last_entry()
    entries = [entry for entry in history.entries() if entry.generation == last.generation]
    made = RebuildPlan(
        id="",
        job=found.job.name,
        reference=reference,
        kind=found.kind,
        target=target.name,
        sides=sides_there(context, found.job),
        further=found.job.other_tables,
        keys=keys_of(found),
        columns=columns_of(found),
        fingerprint=found.job.fingerprint,
        base_generation=last.generation,
        base_version=history.version,
        rows=sum(terms.get("read", 0) for entry in entries for terms in entry.accounting.values()),
    )
    return stored(context.home, made, context.now_ms())


def sides_there(context: StageContext, job: Job) -> tuple[str, ...]:
    """The side tables that a job has."""
    sides = (job.target.quarantine_table, job.target.late_table)
    return tuple(name for name in sides if (context.home.table(name) / "_delta_log").exists())


def keys_of(found: JobPlan) -> tuple[str, ...]:
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


def columns_of(found: JobPlan) -> tuple[str, ...]:
    """The columns of a job's target that are compared: those that it was not the library that added."""
    own = {*found.result.fieldNames(), VALID_FROM, VALID_TO, IS_CURRENT}
    return tuple(name for name in found.target_schema.fieldNames() if name in own)


def require_no_readers(context: StageContext, job: Job) -> None:
    """Sees to it that no other job has read a job's tables.

    Raises:
        BackfillError: One has.
    """
    for target in job.targets:
        readers = sorted({reader for reader, _ in readers_of(context, target.name)})
        if readers:
            raise BackfillError(
                f"{target.name} feeds the jobs {', '.join(readers)}, whose tables would keep what they made of its old "
                "rows, and tables cannot change hands in a row so far; headwater jobs rebuild empties all of them"
            )


def _require_inputs(context: StageContext, job: Job, read: Ranges) -> None:
    for name, declared in job.inputs.items():
        InputReader(context, name, declared, job.name).require_whole_log()
    for topic in job.topic_names:
        there = context.source.partitions(topic)
        for partition, (start, _) in sorted(read.get(topic, {}).items()):
            earliest = there[partition][0] if partition in there else None
            if earliest is None or earliest > start:
                what = "the partition is gone" if earliest is None else f"[{start}, {earliest}) is gone"
                raise DataLossError(
                    f"the job {job.name!r} read {topic} {partition} from offset {start} on, and {what}; what is still "
                    "there can be repaired: headwater backfill plan with --offsets"
                )
