"""A table and its checkpoint change hands together: what a rebuild's and a rewind's swap share, and their way back."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import types as T

from headwater_streams.backfill.results import RollbackResult, SwapResult
from headwater_streams.backfill.store import BackfillError, BackfillFolder
from headwater_streams.backfill.topics import changed_topics, read_beyond, require_same_topics
from headwater_streams.backfill.verdict import Verdict
from headwater_streams.backfill.whole import WholePlan
from headwater_streams.base.errors import DataLossError
from headwater_streams.base.extra import Extra, ExtraValues
from headwater_streams.base.ledger_entry import LedgerEntry, spelled
from headwater_streams.base.target import declared_name
from headwater_streams.delta.declared_table import ensure_table
from headwater_streams.delta.delta_table import conflicts
from headwater_streams.delta.file_swap import FileSwap
from headwater_streams.delta.live_files import LiveFile
from headwater_streams.delta.marks import generation_id, last_batch
from headwater_streams.ledger.log import commits, lineage, seen_of
from headwater_streams.plan.job import app_id
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.facts import move_facts
from headwater_streams.runtime.generations import read_by_ledger
from headwater_streams.runtime.stages.failing_rows import FOLDER as FAILING
from headwater_streams.runtime.turn import Turn
from headwater_streams.spark.delta_log import Snapshot, snapshot_of
from headwater_streams.storage.files import (
    exists,
    files_below,
    is_folder,
    link_tree,
    matching,
    move,
    remove,
    remove_tree,
    scratch_folder,
)
from headwater_streams.storage.home import Home

REBUILD, REWIND, RESTORE = "rebuild", "rewind", "restore"
_ATTEMPTS = 10


class _OvertakenError(BackfillError):
    """A table was changed by others while a commit to it was prepared."""


def rehearse(context: StageContext, folder: BackfillFolder, planned: WholePlan) -> None:
    """Does once, on a table of its own, what the live job is then held for.

    In the fresh JVM of a command the classes of a commit take seconds to load, and so do the tables' logs.
    """
    for left in matching(folder.path, "rehearsal-*"):  # by a process that was killed
        remove_tree(left)
    with scratch_folder(folder.path, "rehearsal-") as scratch:
        ensure_table(context.spark, scratch, "rehearsal", T.StructType([T.StructField("n", T.LongType())]))
        nothing = Snapshot(scratch, [], "", {})
        FileSwap(context.spark, scratch).exchange(
            "rehearsal", 0, "{}", removed=[], added=nothing, marks={"rehearsal/1": 0}, keeps_columns=True
        )
    for name in planned.tables:
        swap = FileSwap(context.spark, context.home.table(name))
        snapshot_of(context.spark, context.home.table(name), swap.version, with_files=False)
        swap.all_files()


def made_by(table: Path, backfill: str) -> dict[str, tuple[int, LedgerEntry]]:
    """The commits that a rebuild or a rewind made to a table, by what they did, each with its version."""
    found = ((c.version, c.entry) for c in commits(table))
    return {
        Extra.ACTION.of(entry): (version, entry)
        for version, entry in found
        if entry is not None and entry.kind == "generation" and Extra.BACKFILL.get(entry) == backfill
    }


def rollback(context: StageContext, folder: BackfillFolder, planned: WholePlan) -> dict[str, Any]:
    """Puts the rows and the checkpoint before the swap back, as the job's next generation; done already, it says so.

    What the job wrote since the swap is given up; it reads those records once more.

    Raises:
        BackfillError: It was not swapped in, or the job has begun another generation since.
        DataLossError: Files of the old rows, the old checkpoint, or the records that the job would read once more are
            gone; nothing is changed.
    """
    table = context.home.table(planned.target)
    if not any(made_by(context.home.table(name), planned.id) for name in planned.tables):
        raise BackfillError(
            f"the backfill {planned.id!r} was not swapped in, so there is nothing to roll back"
        )
    if RESTORE not in made_by(table, planned.id):
        rehearse(context, folder, planned)
        with Turn(context.home, planned.job).of_swap():
            swapped = bool(made_by(table, planned.id))
            if swapped:
                require_generation(context, planned, planned.generation)
                _require_nothing_lost(context, planned)
                old = context.home.checkpoint(planned.job, planned.base_generation)
                staged = stage_checkpoint(context, planned, old)
                take_checkpoint(context, planned.job, staged, planned.generation + 1)
            last = _last_batch(context, planned) if swapped else None
            in_turn(planned, planned.tables, lambda name: _restore_table(context, planned, name, last))
    stored = folder.known(RollbackResult)
    if stored is None:
        made = (
            made_by(context.home.table(name), planned.id).get(RESTORE) for name in reversed(planned.tables)
        )
        version, entry = next(done for done in made if done is not None)
        stored = RollbackResult(
            backfill=planned.id,
            target=planned.target,
            version=version,
            replaced_version=Extra.REPLACED_VERSION.of(entry),
            generation=entry.generation,
            feeds=planned.feeds,
        )
        folder.write(stored)
    return stored.to_json()


def require_swappable(context: StageContext, planned: WholePlan) -> None:
    """Sees to it that a backfill was not rolled back, in whole or half, as its tables are not what it was planned on
    then; and that its topics are those that it was planned on, unless its swap has begun, which is to end.

    Raises:
        BackfillError: It was, or one of them was made again.
    """
    made = [actions for name in planned.tables if (actions := made_by(context.home.table(name), planned.id))]
    back = [RESTORE in actions for actions in made]
    if any(back) and not all(back):
        raise BackfillError(f"the backfill {planned.id!r} is half rolled back; roll it back again")
    if any(back):
        raise BackfillError(f"the backfill {planned.id!r} was rolled back; plan again")
    if not made:
        require_same_topics(context, planned)


def require_generation(context: StageContext, planned: WholePlan, expected: int) -> None:
    """Sees to it that a table is at the generation that a step goes from, and no other backfill is half swapped in.

    Raises:
        BackfillError: It is not, or one is.
    """
    marks = {
        name: max(1, last_batch(context.home.table(name), generation_id(planned.job)))
        for name in planned.tables
    }
    now = marks[planned.target]
    if now != expected:
        raise BackfillError(
            f"{planned.target} is at generation {now} and the backfill {planned.id!r} expects {expected}; plan again"
        )
    for name, mark in marks.items():
        if mark > expected and not made_by(context.home.table(name), planned.id):
            raise BackfillError(
                f"another backfill of {planned.target} has changed {name} and not {planned.target} yet; swap that one "
                "in, or roll it back, first: headwater backfill list"
            )


def require_foreseen(context: StageContext, planned: WholePlan, verdict: Verdict) -> None:
    """Sees to it that since the verdict the live job alone has changed the tables: a swap undoes what others did.

    Raises:
        BackfillError: A repair, a DELETE, or whatever else came between.
    """
    if any(made_by(context.home.table(name), planned.id) for name in planned.tables):
        return
    known = {name: found.table_version for name, found in verdict.beside.items()}
    for name, version in {**known, planned.target: verdict.table_version}.items():
        if version is None:
            continue
        for commit in commits(context.home.table(name), since=version + 1):
            entry = commit.entry
            is_batch = entry is not None and entry.job == planned.job and entry.kind != "backfill"
            if commit.data_changed and not is_batch:
                by = Extra.BACKFILL.get(entry, entry.job) if entry is not None else commit.operation
                raise BackfillError(
                    f"{name} was changed by {by} (version {commit.version}) since the backfill {planned.id!r} was "
                    "verified, and the swap would undo that; verify it again and read what differs"
                )


def stage_checkpoint(
    context: StageContext,
    planned: WholePlan,
    origin: Path,
    *,
    last: int | None = None,
    inputs: Collection[str] = (),
) -> Path:
    """Makes a checkpoint of another one, whose files are linked: Spark replaces files, it changes none.

    Args:
        context: The home.
        planned: The backfill; the checkpoint is staged for it alone.
        origin: The other checkpoint.
        last: The batch that it shall end with; its last one by default.
        inputs: The tables that it has read in another home.

    Raises:
        DataLossError: The other checkpoint is not there.
    """
    if not exists(origin):
        raise DataLossError(
            f"job {planned.job!r}: there is no checkpoint {origin.name} any more; nothing was changed"
        )
    staged = staged_checkpoint(context.home, planned)
    remove_tree(staged)  # of a swap that died before its commit
    link_tree(origin, staged)
    if last is not None:
        _cut(staged, last)
    move_facts(staged, context, inputs)
    return staged


def staged_checkpoint(home: Home, planned: WholePlan) -> Path:
    """Where a backfill's checkpoint is staged; nothing is there before its swap or after it."""
    return home.checkpoint(planned.job, 0).with_name(f".{planned.id}.staged")


def take_checkpoint(context: StageContext, job: str, staged: Path, generation: int) -> None:
    """Makes a staged checkpoint that of a generation which has not begun; the job's turn must be held."""
    target = context.home.checkpoint(job, generation)
    remove_tree(target)
    move(staged, target)


def _cut(checkpoint: Path, last: int) -> None:
    """Takes away what came after a batch: its offsets, its commit, and the state that it made, ours and Spark's.

    Spark's state of version N + 1 is what batch N left. (Source: Spark's HDFSBackedStateStoreProvider.)
    """
    for folder in ("offsets", "commits", "keys", "open_rows", FAILING):
        for path in matching(checkpoint / folder):
            number = path.name.lstrip(".").split(".")[0]
            if number.isdigit() and int(number) > last:
                remove_tree(path, wholly=True) if is_folder(path) else remove(path)
    for file in files_below(checkpoint / "state"):
        number = file.name.lstrip(".").split(".")[0].split("_")[0]
        if number.isdigit() and int(number) > last + 1:
            remove(file)


def restored_entry(
    planned: WholePlan, name: str, version: int, table: Path, generation: int, *, origin: int
) -> LedgerEntry:
    """What the last commit of the generation `origin` up to a version said, as the beginning of one that goes on from
    there."""
    mine = (c.entry for c in reversed(lineage(table, until=version + 1)))
    known = (planned.job, origin)
    last = next((e for e in mine if e is not None and (e.job, e.generation) == known), None)
    batch = last.batch if last is not None else -1
    extra: ExtraValues = dict(last.extra) if last is not None else {}
    extra.pop(Extra.CHECKS, None)  # no batch is judged by the way back
    extra |= {
        Extra.BACKFILL: planned.id,
        Extra.RESTORED_VERSION: version,
        Extra.STARTS: {},
        Extra.LOST: {},
        Extra.AFTER: {"generation": origin, "batch": batch},
    }
    return LedgerEntry(
        job=planned.job,
        generation=generation,
        batch=batch,
        table=name,
        kind="generation",
        fingerprint=last.fingerprint if last is not None else "",
        max_event_time_us=last.max_event_time_us if last is not None else None,
        seen=seen_of(table, *known, until=version + 1),
        extra=extra,
    )


def marks_as(planned: WholePlan, before: Snapshot, generation: int, *, origin: int) -> dict[str, int]:
    """The marks that the generation `origin` has in a version, under the new one's application ids."""
    old, new = app_id(planned.job, origin), app_id(planned.job, generation)
    return {
        new + name.removeprefix(old): batch
        for name, batch in before.marks.items()
        if name == old or name.startswith(f"{old}/")
    }


def exchange(
    context: StageContext,
    planned: WholePlan,
    transaction: FileSwap,
    entry: LedgerEntry,
    removed: list[LiveFile],
    added: Snapshot,
    marks: Mapping[str, int],
) -> None:
    """Commits one table's part: files for files, the generation's mark, and what the entry says."""
    mark = generation_id(planned.job)
    is_target, action = entry.table == planned.target, Extra.ACTION.of(entry)
    what = f"{action} of {'the table' if is_target else 'another table'}"
    told_entry = replace(entry, extra={Extra.REPLACED_VERSION: transaction.version, **entry.extra})
    context.step(planned.job, f"before {what}", 0)
    try:
        transaction.exchange(
            mark,
            entry.generation,
            told_entry.to_json(),
            removed=removed,
            added=added,
            marks={name: batch for name, batch in marks.items() if name != mark},
            keeps_columns=entry.table in planned.sides,
        )
    except conflicts() as error:
        raise _OvertakenError(
            f"{entry.table} was changed by others while the commit of {planned.id!r} was prepared; do the same again"
        ) from error
    context.step(planned.job, f"after {what}", 0)


def in_turn(planned: WholePlan, names: Iterable[str], put: Callable[[str], None]) -> None:
    """Changes tables one after the other.

    A side table is that of the ingest job, too, which does not wait for this job's swap: where it wrote while a commit
    was prepared, that is prepared again.

    Raises:
        BackfillError: Others changed one of the job's own tables meanwhile, or a side table again and again.
    """
    for name in names:
        left = _ATTEMPTS if name in planned.sides else 1
        while left:
            left -= 1
            try:
                put(name)
                break
            except _OvertakenError:
                if not left:
                    raise


def written_by(job: str, table: Path, files: list[LiveFile], *, after: int = -1) -> list[LiveFile]:
    """The files that a job's commits added, those after a version; a side table may have rows of another job, too."""
    mine = {
        path
        for commit in commits(table, since=after + 1)
        if commit.entry is not None and commit.entry.job == job
        for path in commit.added_paths
    }
    return [file for file in files if file.name in mine]


def swap_result(
    planned: WholePlan,
    version: int,
    entry: LedgerEntry,
    *,
    held_s: float | None,
    proof: Mapping[str, Any] | None = None,
) -> SwapResult:
    """What a swap did, by its commit to the target."""
    return SwapResult(
        backfill=planned.id,
        target=planned.target,
        version=version,
        replaced_version=Extra.REPLACED_VERSION.of(entry),
        generation=entry.generation,
        proof=proof,
        feeds=planned.feeds,
        held_s=held_s,
    )


def _require_nothing_lost(context: StageContext, planned: WholePlan) -> None:
    """Sees to it that what a job has read since the swap is still there, for it will read that again.

    Raises:
        DataLossError: It is of a topic that was made again since.
    """
    others = changed_topics(context, planned)
    if not others:
        return
    table = context.home.table(planned.target)
    now = read_by_ledger(table, planned.job)
    before = read_by_ledger(table, planned.job, until=_replaced_version(context, planned) + 1)
    lost = {topic: read_beyond(now.get(topic, {}), before.get(topic, {})) for topic in others}
    if any(lost.values()):
        raise DataLossError(
            f"the job {planned.job!r} has read {', '.join(spelled(lost))} since {planned.id!r} was swapped in, and "
            "would read that again, but the topic was deleted and made again, and these records are gone; nothing was "
            f"changed; to go on with the rows that are there: headwater jobs renew {declared_name(planned.job)}"
        )


def _replaced_version(context: StageContext, planned: WholePlan) -> int:
    """The target's last version before the swap."""
    made = made_by(context.home.table(planned.target), planned.id)
    swapped = next(entry for action, (_, entry) in made.items() if action != RESTORE)
    return Extra.REPLACED_VERSION.of(swapped)


def _last_batch(context: StageContext, planned: WholePlan) -> int:
    """The last batch that the target had before the swap; another table may have one more, which is written anew."""
    table, version = context.home.table(planned.target), _replaced_version(context, planned)
    base, following = planned.base_generation, planned.generation + 1
    return restored_entry(planned, planned.target, version, table, following, origin=base).batch


def _restore_table(context: StageContext, planned: WholePlan, name: str, last: int | None) -> None:
    """Puts a table back to before the swap, for the generation after it, or, where the target was not reached (`last`
    is None), for the one before it, which goes on."""
    table = context.home.table(name)
    made = made_by(table, planned.id)
    if not made or RESTORE in made:
        return
    ((_, swapped),) = made.values()
    generation = planned.base_generation if last is None else planned.generation + 1
    version = Extra.REPLACED_VERSION.of(swapped)
    transaction = FileSwap(context.spark, table)
    before = snapshot_of(context.spark, table, version)
    removed = transaction.all_files()
    if name in planned.sides:
        there = removed
        removed = written_by(planned.job, table, there, after=version)
        kept = {file.name for file in there} - {file.name for file in removed}
        before = replace(before, files=[add for add in before.files if add["path"] not in kept])
    marks = marks_as(planned, before, generation, origin=planned.base_generation)
    if last is None:
        # The generation that was to begin may still begin in another way, with batches of the same numbers.
        now = snapshot_of(context.spark, table, transaction.version, with_files=False)
        given_up = app_id(planned.job, planned.generation)
        marks |= {name: -1 for name in now.marks if name == given_up or name.startswith(f"{given_up}/")}
    else:
        marks = {name: min(batch, last) for name, batch in marks.items()}
    entry = restored_entry(planned, name, version, table, generation, origin=planned.base_generation)
    entry = replace(entry, extra={**entry.extra, Extra.ACTION: RESTORE})
    exchange(context, planned, transaction, entry, removed, before, marks)
