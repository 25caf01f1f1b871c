"""Generations: which checkpoint and which Delta application id a job's table belongs to now, and how one begins.

The number is a transaction mark of the target itself, `txn{appId: "<job>/generation", version: g}`, so that the table
and the checkpoint that feeds it change hands in one commit. A generation that is *renewed* keeps the table's rows and
goes on where the last one ended, as far as that is still there; if it keeps state, it reads first again what that is
made of (see `warm_up`). One that is *rebuilt* begins with an empty table.
"""

from pathlib import Path
from typing import Literal

from headwater_streams.base.errors import DataLossError, IncompatibleStateError, StreamsError
from headwater_streams.base.extra import Extra, ExtraValues
from headwater_streams.base.ledger_entry import LedgerEntry, is_undone, merge_ranges
from headwater_streams.base.target import declared_name
from headwater_streams.delta.delta_table import REBUILT, DeltaTransaction
from headwater_streams.delta.marks import generation_id, last_batch
from headwater_streams.ledger.log import (
    commits,
    commits_backwards,
    last_entry,
    lineage,
    next_commit,
    seen_of,
    since_rebuilt,
)
from headwater_streams.ledger.repairs import half_done
from headwater_streams.operators.dedup.by_key import ByKey
from headwater_streams.operators.dedup.memory import carried
from headwater_streams.operators.dedup.verdicts import own_key
from headwater_streams.plan.job import Job
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.positions import Positions, beyond_end, next_offsets
from headwater_streams.runtime.readers import read_beyond
from headwater_streams.runtime.tables import layout_of_table, prepare_tables, tables_of
from headwater_streams.runtime.warm_up import WarmUp, find_warm_up, why_not
from headwater_streams.sources.reader import Starts
from headwater_streams.sources.topic_metadata import changed_ids
from headwater_streams.spark.checkpoint import is_committed, last_planned, read_offsets
from headwater_streams.spark.checkpoint_damage import checkpoint_damage
from headwater_streams.spark.run_facts import facts_of_last_run
from headwater_streams.storage.delta_files import partition_columns
from headwater_streams.storage.delta_log import has_versions
from headwater_streams.storage.files import remove_tree
from headwater_streams.storage.home import Home

Action = Literal["renew", "rebuild"]
STATELESS = ("row", "scd")
"""The kinds of stage that keep all their state in the table and its ledger; the others have some in their
checkpoint."""
_NOWHERE: tuple[Positions, dict[str, dict[int, list[int]]], set[str]] = ({}, {}, set())


def current_generation(context: StageContext, job: Job) -> int:
    """The generation of a job's table, 1 before the first new one."""
    table = context.home.table(job.target.name)
    if not has_versions(table):
        return 1
    return max(1, last_batch(table, generation_id(job.name)))


def generation_now(context: StageContext, job: Job) -> int:
    """The same of an existing table. Where this process has looked before, Delta's state is not read again."""
    return _generation_of(context, job, context.home.table(job.target.name))


def half_swapped(context: StageContext, job: Job, generation: int) -> list[str]:
    """The job's other tables that belong to a later generation already, as a swap died before it came to the target."""
    names = (job.target.quarantine_table, job.target.late_table, *job.other_tables)
    return [
        name
        for name in names
        if next_commit(context.home.table(name))
        and _generation_of(context, job, context.home.table(name)) > generation
    ]


def _generation_of(context: StageContext, job: Job, table: Path) -> int:
    return max(1, context.marks.last_batch(table, generation_id(job.name), next_commit(table) - 1))


def require_same_code(context: StageContext, job: Job) -> None:
    """Sees to it that a job can go on with the generation that its table was given while it ran.

    Raises:
        IncompatibleStateError: The generation was built with other code than the job that runs here.
    """
    table, generation = context.home.table(job.target.name), current_generation(context, job)
    for commit in commits_backwards(table):
        beginning = commit.entry
        if beginning is None or beginning.kind != "generation" or beginning.generation != generation:
            continue
        if beginning.fingerprint != job.fingerprint:
            raise IncompatibleStateError(
                f"job {job.name!r}: generation {generation} of {job.target.name} was built with other code than this "
                "driver has loaded; start the job again"
            )
        return


def starts_of(entry: LedgerEntry) -> Starts:
    """Where a generation's queries begin, when the entry is the one that began it."""
    starts = Extra.STARTS.get(entry, {}) if entry.kind == "generation" else {}
    return {topic: {int(p): offset for p, offset in offsets.items()} for topic, offsets in starts.items()}


def ids_read(context: StageContext, job: Job, generation: int) -> dict[str, str]:
    """The ids of the topics that a generation's offsets belong to, as far as they are known. They are in the facts of
    its checkpoint, and before the first batch in the entry that began it."""
    facts = facts_of_last_run(context.home.checkpoint(job.name, generation))
    if facts is not None:
        return {topic: topic_id for topic, topic_id in facts.topic_ids.items() if topic_id is not None}
    beginning = last_entry(context.home.table(job.target.name), job.name, generation)
    return (
        dict(Extra.TOPIC_IDS.get(beginning, {})) if beginning is not None and not beginning.is_batch else {}
    )


def begin_generation(context: StageContext, plan: JobPlan, action: Action) -> LedgerEntry:
    """Begins a job's next generation, in one commit; the job must not be running.

    Returns:
        The commit's entry; `Extra.LOST` names the ranges that no generation has read.

    Raises:
        StreamsError: The job has no table yet, it keeps state or keys that cannot be had again, it reads a table row by
            row, or a backfill is half swapped in.
    """
    job = plan.job
    table = context.home.table(job.target.name)
    generation = current_generation(context, job)
    if not has_versions(table):
        ran = context.home.last_generation(job.name)
        if action == "renew" or not ran:
            raise StreamsError(
                f"job {job.name!r} has not run: there is no table {job.target.name} to begin anew"
            )
        prepare_tables(context, plan)
        generation = ran
    if action == "renew":
        why = why_not_renewed(plan)
        if why is not None:
            raise StreamsError(f"job {job.name!r} {why}; use headwater jobs rebuild {job.name}")
    for name in half_swapped(context, job, generation):
        halfway = _why_halfway(context, job, name)
        if halfway is not None:
            raise StreamsError(f"{halfway}, first: headwater backfill list")
    half_repaired = _why_half_repaired(context, job)
    if half_repaired is not None:
        raise StreamsError(f"{half_repaired}, first: headwater backfill list")
    if action == "renew":
        require_unread(context.home, job)
    last = last_entry(table, job.name, generation)
    after = {"generation": generation, "batch": last.batch if last is not None else -1}
    again = None
    starts, lost, anew = _NOWHERE
    ids = {
        topic: topic_id
        for topic in job.topic_names
        if (topic_id := context.source.topic_id(topic)) is not None
    }
    if action == "renew" and plan.kind in STATELESS:
        starts, lost, anew = _starts(context, job, generation, last)
    elif action == "renew":
        again = find_warm_up(context, plan, generation)
        starts = _ends(again)
    void = {own_key(topic, partition) for topic in anew for partition in starts[topic]}
    seen = seen_of(table, job.name, generation) if action == "renew" else None
    memory = carried(last) if last is not None and action == "renew" else {}
    entry = LedgerEntry(
        job=job.name,
        generation=generation + 1,
        batch=-1,
        table=job.target.name,
        kind="generation",
        fingerprint=job.fingerprint,
        max_event_time_us=last.max_event_time_us if last is not None and action == "renew" else None,
        seen=None if seen is None else {key: pairs for key, pairs in seen.items() if key not in void},
        extra={
            Extra.ACTION: action,
            Extra.STARTS: starts,
            Extra.LOST: lost,
            Extra.ANEW: sorted(anew),
            Extra.AFTER: after,
            **({Extra.TOPIC_IDS: ids} if ids and action == "renew" else {}),
            **memory,
            **(again.ledger_extra() if again is not None else {}),
        },
    )
    # What a swap that died left there belongs to no generation.
    remove_tree(context.home.checkpoint(job.name, generation + 1))
    transaction = context.transaction(table)
    removed = transaction.all_files() if action == "rebuild" else []
    marks = {REBUILT: transaction.version + 1} if action == "rebuild" else None
    transaction.last_batch(
        generation_id(job.name)
    )  # two that begin one at once: the second is refused by Delta
    if action == "rebuild":
        for name in job.other_tables:
            _empty(context, job, name, generation + 1)
    context.step(job.name, f"before {action}", -1)
    transaction.commit(generation_id(job.name), generation + 1, entry.to_json(), removed=removed, marks=marks)
    context.step(job.name, f"after {action}", -1)
    clear_sides(context, job, generation + 1)
    if action == "rebuild":
        _take_columns(context, plan)
    return entry


def why_not_renewed(plan: JobPlan) -> str | None:
    """Why a job's next generation cannot keep its table's rows, as the end of a sentence; None where it can."""
    job = plan.job
    if plan.kind not in STATELESS:
        return why_not(plan)
    if isinstance(job.dedup, ByKey):
        return "remembers recent keys, which a new generation would begin without"
    if job.tables:
        return f"reads {job.tables[0].name}, which a new generation would read from its beginning"
    return None


def mends_checkpoint(plan: JobPlan) -> bool:
    """Whether a renewal mends a lost checkpoint: the ledger, too, says what a job has read of its topics."""
    return why_not_renewed(plan) is None


def is_cut_off(context: StageContext, job: Job) -> bool:
    """Whether a row-by-row job cannot go on with its topics: records that it has not read are gone, or one was made
    again."""
    generation = current_generation(context, job)
    last = last_entry(context.home.table(job.target.name), job.name, generation)
    _, lost, anew = _starts(context, job, generation, last)
    return bool(lost or anew)


def _ends(again: WarmUp | None) -> Positions:
    """Where a generation goes on in its topics once it has read again."""
    ranges = merge_ranges([source.ranges for source in again.sources] if again is not None else [])
    return {topic: {p: end for p, (_, end) in partitions.items()} for topic, partitions in ranges.items()}


def require_unread(home: Home, job: Job) -> None:
    """Sees to it that no other job has read what a job's table has lost, which a renewal would write once more.

    Raises:
        DataLossError: One has.
    """
    for target in job.targets:
        readers = read_beyond(home, target.name)
        if readers:
            declared = declared_name(job.name)
            ingest = " --ingest" if declared != job.name else ""
            others = [name for name in dict.fromkeys(map(declared_name, readers)) if name != declared]
            raise DataLossError(
                f"job {job.name!r}: commits of {target.name} are gone that {', '.join(readers)} has read; put the log "
                f"back, or make all of it again: headwater jobs rebuild {' '.join([declared, *others])}{ingest}"
            )


def require_whole(context: StageContext, job: Job) -> None:
    """Sees to it that no repair of a job that writes several tables was interrupted between two of them.

    Raises:
        IncompatibleStateError: One was, or its rollback.
    """
    halfway = _why_half_repaired(context, job)
    if halfway is not None:
        raise IncompatibleStateError(f"{halfway}, then start the job again")


def _why_half_repaired(context: StageContext, job: Job) -> str | None:
    if not job.branches:
        return None
    half = half_done(context.home, job.target.name, (job.target.quarantine_table, *job.other_tables))
    if half is None:
        return None
    remedy = "roll it back again" if half.is_back else "swap it in, or roll it back"
    return f"job {job.name!r}: {half.description}; {remedy}"


def _empty(context: StageContext, job: Job, name: str, generation: int) -> None:
    """Empties one of a job's other tables, before its target begins the generation. It does nothing a second time."""
    path = context.home.table(name)
    if not has_versions(path):
        return
    transaction = context.transaction(path)
    if transaction.last_batch(generation_id(job.name)) >= generation:
        return
    extra: ExtraValues = {Extra.ACTION: "rebuild", Extra.BESIDE: job.target.name}
    entry = LedgerEntry(
        job=job.name, generation=generation, batch=-1, table=name, kind="generation", extra=extra
    )
    transaction.commit(
        generation_id(job.name),
        generation,
        entry.to_json(),
        removed=transaction.all_files(),
        marks={REBUILT: transaction.version + 1},
    )


def require_begun(context: StageContext, job: Job, generation: int) -> None:
    """Sees to it that a job's other tables do not belong to a generation that did not begin.

    Raises:
        IncompatibleStateError: A backfill's swap, or a rebuild, was interrupted.
    """
    for name in half_swapped(context, job, generation):
        halfway = _why_halfway(context, job, name)
        if halfway is not None:
            raise IncompatibleStateError(f"{halfway}, then start the job again")
        raise IncompatibleStateError(
            f"job {job.name!r}: a rebuild was interrupted when {name} had been emptied and {job.target.name} had not; "
            f"do it again: headwater jobs rebuild {job.name}"
        )


def _why_halfway(context: StageContext, job: Job, name: str) -> str | None:
    """Which backfill began the newest generation of one of a job's tables, and not of its target, and what can be done;
    None where none did."""
    entries = (commit.entry for commit in commits_backwards(context.home.table(name)))
    beginning = next(
        (e for e in entries if e is not None and e.job == job.name and e.kind == "generation"), None
    )
    if beginning is None or not Extra.BACKFILL.is_in(beginning):
        return None
    remedy = (
        "roll it back again" if Extra.ACTION.of(beginning) == "restore" else "swap it in, or roll it back"
    )
    return (
        f"job {job.name!r}: the backfill {Extra.BACKFILL.of(beginning)!r} has changed {name} and not {job.target.name} "
        f"yet; {remedy}"
    )


def _take_columns(context: StageContext, plan: JobPlan) -> None:
    """Gives emptied tables the job's columns and partitions, where one has another type or there are others now.

    A driver that dies before it leaves the old ones, which the job's next start refuses.
    """
    for name, schema in tables_of(plan).items():
        path = context.home.table(name)
        if not has_versions(path):
            continue
        existing = {
            f.name: f.dataType for f in context.spark.read.format("delta").load(str(path)).schema.fields
        }
        differs = any(existing.get(f.name, f.dataType) != f.dataType for f in schema.fields)
        partitions = layout_of_table(plan, name).partition_columns
        differs = differs or partition_columns(path) != partitions
        if differs and not context.transaction(path).all_files():
            empty = context.spark.createDataFrame([], schema).write.format("delta").partitionBy(*partitions)
            empty.mode("overwrite").option("overwriteSchema", "true").save(str(path))


def clear_sides(context: StageContext, job: Job, generation: int) -> None:
    """Removes what a generation's beginning makes void in other tables than the target. It does nothing a second time.

    After a rebuild that is what generations before it wrote to the side tables. After a renewal it is the batch that
    stands in a side table or another table of the job and not in the target, whose records are read again. An ingest
    job shares its quarantine table with the job that it feeds, so it goes by the commits of each.
    """
    beginning = last_entry(context.home.table(job.target.name), job.name, generation)
    if beginning is None or beginning.kind != "generation":
        return
    rebuilt = Extra.ACTION.of(beginning) == "rebuild"
    others = () if rebuilt else job.other_tables
    for name in (job.target.quarantine_table, job.target.late_table, *others):
        path = context.home.table(name)
        if not has_versions(path):
            continue
        void = {
            added
            for commit in commits(path)
            if commit.entry is not None and (commit.entry.job == job.name)
            if (commit.entry.generation < generation if rebuilt else is_undone(commit.entry, beginning))
            for added in commit.added_paths
        }
        transaction: DeltaTransaction = context.transaction(path)
        removed = [file for file in transaction.all_files() if file.name in void]
        if removed:
            extra: ExtraValues = {Extra.ACTION: "clear", Extra.AFTER: Extra.AFTER.of(beginning)}
            entry = LedgerEntry(
                job=job.name, generation=generation, batch=-1, table=name, kind="generation", extra=extra
            )
            transaction.commit(generation_id(job.name), generation, entry.to_json(), removed=removed)


def _starts(
    context: StageContext, job: Job, generation: int, last: LedgerEntry | None
) -> tuple[Positions, dict[str, dict[int, list[int]]], set[str]]:
    """The offsets to begin with in each topic, the ranges that are gone, and the topics that were deleted and made
    again."""
    checkpoint = context.home.checkpoint(job.name, generation)
    is_damaged = checkpoint_damage(checkpoint) is not None
    ids = {} if is_damaged else ids_read(context, job, generation)
    others = changed_ids(ids, {topic: context.source.topic_id(topic) for topic in ids})
    done = last.batch if last is not None else -1
    # A checkpoint without a batch, or one that is gone or damaged, says nothing of where the job has come to.
    read = read_by_ledger(context.home.table(job.target.name), job.name)
    for declared in job.topics if not is_damaged and _goes_with(checkpoint, done) else ():
        read |= next_offsets(context.source, declared, checkpoint, done)
    starts, lost, anew = {}, {}, set()
    for topic in job.topic_names:
        bounds, positions = context.source.partitions(topic), read.get(topic, {})
        if topic in others or beyond_end(positions, bounds):
            positions = {}
            anew.add(topic)
        starts[topic] = {p: max(positions.get(p, low), low) for p, (low, _) in bounds.items()}
        gone = {p: [positions[p], low] for p, (low, _) in bounds.items() if positions.get(p, low) < low}
        if gone:
            lost[topic] = gone
    return starts, lost, anew


def _goes_with(checkpoint: Path, done: int) -> bool:
    """Whether a checkpoint knows the last batch of the table, and has finished none after it."""
    last = last_planned(checkpoint)
    if done >= 0 and read_offsets(checkpoint, done) is None:
        return False
    return last is None or last <= done or not is_committed(checkpoint, last)


def read_by_ledger(table: Path, job: str, *, until: int | None = None) -> Positions:
    """The next offset of each partition by the job's commits: all of them, or those of versions before `until`."""
    ends: Positions = {}
    history = since_rebuilt(lineage(table, until=until))
    for entry in (c.entry for c in history if c.entry is not None and c.entry.job == job):
        for topic in Extra.ANEW.get(entry, ()):
            ends.pop(topic, None)
        for topic, starts in Extra.STARTS.get(entry, {}).items():
            ends[topic] = ends.get(topic, {}) | {int(partition): start for partition, start in starts.items()}
        for source in entry.sources if entry.is_batch else ():
            for topic, ranges in source.ranges.items() if source.table is None else ():
                of_topic = ends.setdefault(topic, {})
                of_topic |= {p: max(end, of_topic.get(p, end)) for p, (_, end) in ranges.items()}
    return ends
