"""Swaps a rebuild in, table and checkpoint in one commit, and takes it back; readers see the old rows or the new."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from headwater_streams.backfill.rebuild.running import rebuild_of, shadow_context
from headwater_streams.backfill.rebuild.spec import RebuildPlan
from headwater_streams.backfill.store import BackfillError, BackfillFolder
from headwater_streams.backfill.verdict import passing
from headwater_streams.errors import DataLossError
from headwater_streams.ledger.entry import LedgerEntry
from headwater_streams.ledger.log import commits, lineage, next_commit, seen_of
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.facts import move_facts
from headwater_streams.runtime.generations import generation_id
from headwater_streams.runtime.job import app_id
from headwater_streams.runtime.turn import Turn
from headwater_streams.sinks.delta_table import REBUILT, last_batch
from headwater_streams.sinks.file_swap import FileSwap, Snapshot, snapshot_of
from headwater_streams.sinks.live_files import LiveFile, all_files

REBUILD, RESTORE = "rebuild", "restore"


def swap(context: StageContext, folder: BackfillFolder, accept_diff: str | None = None) -> dict[str, Any]:
    """Puts the shadow's rows in the place of the table's; done already, it says so again.

    The live job is held at the end of its batch meanwhile, and goes on with the shadow's checkpoint from where that
    is: what it wrote since the shadow caught up is written once more.

    Returns:
        `{"backfill", "target", "version", "replaced_version", "generation", "proof"}`.

    Raises:
        BackfillError: There is no passing verdict on the shadow as it is, or the job has begun another generation.
        DataLossError: The table does not hold the shadow's files afterwards; roll back.
    """
    planned = rebuild_of(folder)
    made = made_by(context.home.table(planned.target), planned.id)
    if RESTORE in made:
        raise BackfillError(f"the backfill {planned.id!r} was rolled back; plan again")
    shadow = shadow_context(context, folder, planned)
    if REBUILD not in made:
        version = next_commit(shadow.home.table(planned.target)) - 1
        passing(folder.read("verdict"), planned.id, version, accept_diff)
        with Turn(context.home, planned.job).of_swap():
            _require_generation(context, planned, planned.base_generation)
            rebuilt = shadow.home.checkpoint(planned.job, planned.generation)
            _take_checkpoint(context, planned.job, rebuilt, planned.generation)
            for name in planned.tables:
                _swap_table(context, shadow, planned, name)
    stored = folder.read("swap")
    if stored is None:
        stored = _proved(context, shadow, planned)
        folder.write("swap", stored)
    _let_go(folder)
    return stored


def rollback(context: StageContext, folder: BackfillFolder) -> dict[str, Any]:
    """Puts the rows and the checkpoint before the swap back, as the job's next generation; done already, it says so.

    What the job wrote since the swap is given up; it reads those records once more.

    Raises:
        BackfillError: It was not swapped in, or the job has begun another generation since.
        DataLossError: Files of the old rows, or the old checkpoint, are gone; nothing is changed.
    """
    planned = rebuild_of(folder)
    table = context.home.table(planned.target)
    if not any(REBUILD in made_by(context.home.table(name), planned.id) for name in planned.tables):
        raise BackfillError(
            f"the backfill {planned.id!r} was not swapped in, so there is nothing to roll back"
        )
    if RESTORE not in made_by(table, planned.id):
        with Turn(context.home, planned.job).of_swap():
            if REBUILD in made_by(table, planned.id):
                _require_generation(context, planned, planned.generation)
                old = context.home.checkpoint(planned.job, planned.base_generation)
                _take_checkpoint(context, planned.job, old, planned.generation + 1)
            for name in planned.tables:
                _restore_table(context, planned, name)
    stored = folder.read("rollback")
    if stored is None:
        made = (
            made_by(context.home.table(name), planned.id).get(RESTORE) for name in reversed(planned.tables)
        )
        stored = _told(planned, *next(done for done in made if done is not None))
        folder.write("rollback", stored)
    return stored


def made_by(table: Path, backfill: str) -> dict[str, tuple[int, LedgerEntry]]:
    """The commits that a rebuild made to a table, by what they did, each with its version."""
    found = ((c.version, c.entry) for c in commits(table))
    return {
        entry.extra["action"]: (version, entry)
        for version, entry in found
        if entry is not None and entry.kind == "generation" and entry.extra.get("backfill") == backfill
    }


def _require_generation(context: StageContext, planned: RebuildPlan, expected: int) -> None:
    table = context.home.table(planned.target)
    now = max(1, last_batch(context.spark, table, generation_id(planned.job)))
    if now != expected:
        raise BackfillError(
            f"{planned.target} is at generation {now} and the backfill {planned.id!r} expects {expected}; plan again"
        )


def _take_checkpoint(context: StageContext, job: str, origin: Path, generation: int) -> None:
    """Makes a generation's checkpoint of another one, whose files are linked: Spark replaces files, it changes none."""
    if not origin.exists():
        raise DataLossError(
            f"job {job!r}: there is no checkpoint {origin.name} any more; nothing was changed"
        )
    target = context.home.checkpoint(job, generation)
    scratch = target.with_name(f".{target.name}.taking")
    for stale in (scratch, target):  # of a swap that died before its commit
        shutil.rmtree(stale, ignore_errors=True)
    shutil.copytree(origin, scratch, copy_function=_link)
    move_facts(scratch, context)
    scratch.rename(target)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without links
        shutil.copyfile(source, target)


def _swap_table(context: StageContext, shadow: StageContext, planned: RebuildPlan, name: str) -> None:
    table, origin = context.home.table(name), shadow.home.table(name)
    transaction = FileSwap(context.spark, table)
    if transaction.last_batch(generation_id(planned.job)) >= planned.generation:
        return
    added = snapshot_of(context.spark, origin, next_commit(origin) - 1)
    extra = {
        "action": REBUILD,
        "backfill": planned.id,
        "shadow": str(origin.relative_to(context.home.root)),
        "replaced_version": transaction.version,
        "starts": {},
        "lost": {},
        "after": {"generation": planned.base_generation, "batch": -1},
    }
    entry = LedgerEntry(
        planned.job, planned.generation, -1, name, "generation", fingerprint=planned.fingerprint, extra=extra
    )
    marks = dict(added.marks)
    removed = transaction.all_files()
    if name in planned.sides:
        removed = _written_by(planned.job, table, removed)
    else:
        marks[REBUILT] = transaction.version + 1
    _exchange(context, planned, transaction, entry, removed, added, marks)


def _restore_table(context: StageContext, planned: RebuildPlan, name: str) -> None:
    table = context.home.table(name)
    made = made_by(table, planned.id)
    if REBUILD not in made or RESTORE in made:
        return
    version = int(made[REBUILD][1].extra["replaced_version"])
    transaction = FileSwap(context.spark, table)
    before = snapshot_of(context.spark, table, version)
    removed = transaction.all_files()
    if name in planned.sides:
        removed = _written_by(planned.job, table, removed, after=version)
        kept = {file.name for file in all_files(table, transaction.version)} - {file.name for file in removed}
        before = replace(before, files=[add for add in before.files if add["path"] not in kept])
    generation = planned.generation + 1
    old, new = app_id(planned.job, planned.base_generation), app_id(planned.job, generation)
    marks = {
        new + name.removeprefix(old): batch
        for name, batch in before.marks.items()
        if name == old or name.startswith(f"{old}/")
    }
    entry = _restored_entry(planned, name, table, version)
    _exchange(context, planned, transaction, entry, removed, before, marks)


def _restored_entry(planned: RebuildPlan, name: str, table: Path, version: int) -> LedgerEntry:
    """What the old generation's last commit said, as the beginning of the one that goes on from there."""
    mine = (c.entry for c in reversed(lineage(table, until=version + 1)))
    known = (planned.job, planned.base_generation)
    last = next((e for e in mine if e is not None and (e.job, e.generation) == known), None)
    batch = last.batch if last is not None else -1
    extra: dict[str, Any] = dict(last.extra) if last is not None else {}
    extra |= {
        "action": RESTORE,
        "backfill": planned.id,
        "replaced_version": version,
        "starts": {},
        "lost": {},
        "after": {"generation": planned.base_generation, "batch": batch},
    }
    return LedgerEntry(
        planned.job,
        planned.generation + 1,
        batch,
        name,
        "generation",
        fingerprint=last.fingerprint if last is not None else "",
        max_event_time_us=last.max_event_time_us if last is not None else None,
        seen=seen_of(table, *known),
        extra=extra,
    )


def _exchange(
    context: StageContext,
    planned: RebuildPlan,
    transaction: FileSwap,
    entry: LedgerEntry,
    removed: list[LiveFile],
    added: Snapshot,
    marks: Mapping[str, int],
) -> None:
    mark = generation_id(planned.job)
    is_target, action = entry.table == planned.target, entry.extra["action"]
    what = f"{action} of {'the table' if is_target else 'another table'}"
    context.step(planned.job, f"before {what}", 0)
    transaction.exchange(
        mark,
        entry.generation,
        entry.to_json(),
        removed=removed,
        added=added,
        marks={name: batch for name, batch in marks.items() if name != mark},
        keeps_columns=entry.table in planned.sides,
    )
    context.step(planned.job, f"after {what}", 0)


def _written_by(job: str, table: Path, files: list[LiveFile], *, after: int = -1) -> list[LiveFile]:
    """The files that a job's commits added, those after a version; a side table may have rows of another job, too."""
    mine = {
        path
        for commit in commits(table, since=after + 1)
        if commit.entry is not None and commit.entry.job == job
        for path in commit.added_paths
    }
    return [file for file in files if file.name in mine]


def _proved(context: StageContext, shadow: StageContext, planned: RebuildPlan) -> dict[str, Any]:
    table, origin = context.home.table(planned.target), shadow.home.table(planned.target)
    version, entry = made_by(table, planned.id)[REBUILD]
    there = {(file.name, file.rows) for file in all_files(table, version)}
    expected = {(file.name, file.rows) for file in all_files(origin, next_commit(origin) - 1)}
    if there != expected:
        raise DataLossError(
            f"{planned.target}: version {version} does not hold the files that the backfill {planned.id!r} made; roll "
            "it back"
        )
    proof = {"rows": sum(rows for _, rows in there), "files": len(there), "inside_is_the_shadow": True}
    return _told(planned, version, entry) | {"proof": proof}


def _let_go(folder: BackfillFolder) -> None:
    """Removes what the table has now, too; the shadow's logs stay: they are the ledger of what was swapped in."""
    for file in (folder.rebuilt / "tables").glob("*/*/*.parquet"):
        file.unlink(missing_ok=True)
    shutil.rmtree(folder.rebuilt / "checkpoints", ignore_errors=True)


def _told(planned: RebuildPlan, version: int, entry: LedgerEntry) -> dict[str, Any]:
    return {
        "backfill": planned.id,
        "target": planned.target,
        "version": version,
        "replaced_version": entry.extra["replaced_version"],
        "generation": entry.generation,
    }
