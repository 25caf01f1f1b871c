"""Proves that a job can be put back, and puts it back: a commit to each table, the last with checkpoint and offsets."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from headwater_streams.backfill.change import changes_of
from headwater_streams.backfill.handover import (
    REWIND,
    exchange,
    in_turn,
    made_by,
    marks_as,
    rehearse,
    require_foreseen,
    require_generation,
    require_swappable,
    restored_entry,
    stage_checkpoint,
    swap_result,
    take_checkpoint,
)
from headwater_streams.backfill.history import require_none_half_done
from headwater_streams.backfill.results import SwapResult
from headwater_streams.backfill.rewind.remembered import require_remembered
from headwater_streams.backfill.rewind.sides import undone_of
from headwater_streams.backfill.rewind.spec import RewindPlan
from headwater_streams.backfill.store import BackfillError, BackfillFolder, utc_text
from headwater_streams.backfill.topics import require_same_topics
from headwater_streams.backfill.verdict import Finding, Verdict, passing
from headwater_streams.base.extra import Extra, ExtraValues
from headwater_streams.base.ledger_entry import LedgerEntry
from headwater_streams.base.plural import quantity
from headwater_streams.delta.file_swap import FileSwap
from headwater_streams.ledger.repairs import repairs_of
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.turn import Turn
from headwater_streams.spark.checkpoint import is_committed
from headwater_streams.spark.delta_log import Snapshot, snapshot_of
from headwater_streams.storage.delta_files import data_file
from headwater_streams.storage.files import exists


def verify(context: StageContext, folder: BackfillFolder, planned: RewindPlan) -> Verdict:
    """Verifies that all of the earlier version is there, and stores the verdict with what the tables would lose.

    Raises:
        BackfillError: A topic, whose records would be read again, was made again.
    """
    stored = folder.known(Verdict)
    if stored and any(made_by(context.home.table(name), planned.id) for name in planned.tables):
        return stored
    require_same_topics(context, planned)
    snapshots = _snapshots(context, planned)
    files = [
        (name, file)
        for name, snapshot in snapshots.items()
        for file in (add["path"] for add in snapshot.files)
    ]
    gone = [f"{name}/{file}" for name, file in files if not exists(data_file(context.home.table(name), file))]
    checkpoint = context.home.checkpoint(planned.job, planned.origin)
    there = is_committed(checkpoint, planned.batch)
    versions = ", ".join(
        f"version {version}" + (f" of {name}" if planned.further else "")
        for name, version in planned.back_to.items()
    )
    findings = (
        Finding(
            name="files",
            ok=not gone,
            detail=f"{len(gone)} of {len(files)} files are gone, {gone[0]} among them"
            if gone
            else f"{quantity(len(files), 'file')} of {versions}",
        ),
        Finding(
            name="checkpoint",
            ok=there,
            detail=f"batch {planned.batch} {'is' if there else 'is not'} in the checkpoint",
        ),
    )
    lost = changes_of(context, planned, versions_back_to(context, planned))
    of_target = lost.pop(planned.target)
    verdict = Verdict(
        backfill=planned.id,
        passed=all(finding.ok for finding in findings),
        findings=findings,
        accounting={"read": planned.rows},
        diff=of_target.diff,
        notes=(*planned.notes, *of_target.notes),
        shadow_version=planned.version,
        verified_at=utc_text(context.now_ms()),
        table_version=of_target.table_version,
        beside=lost,
    )
    folder.write(verdict)
    return verdict


def swap(
    context: StageContext, folder: BackfillFolder, planned: RewindPlan, accept_diff: str | None
) -> dict[str, Any]:
    """Puts the tables and the checkpoint back; a job that runs goes on from there. Done already, it says so again.

    Returns:
        `{"backfill", "target", "version", "replaced_version", "generation", "feeds", "held_s"}`, as of a rebuild.

    Raises:
        BackfillError: There is no passing verdict, the job has begun another generation, or a repair came between.
        DataLossError: A file of that version is gone; nothing is changed.
    """
    table = context.home.table(planned.target)
    require_swappable(context, planned)
    held_s = None
    if REWIND not in made_by(table, planned.id):
        verdict = passing(folder.read(Verdict), planned.id, planned.version, accept_diff)
        before = _snapshots(context, planned)
        rehearse(context, folder, planned)
        with Turn(context.home, planned.job).of_swap() as turn:
            require_generation(context, planned, planned.base_generation)
            _require_unrepaired(context, planned)
            require_foreseen(context, planned, verdict)
            old = context.home.checkpoint(planned.job, planned.origin)
            entry = _entry_of(planned, planned.target, table)
            require_remembered(context, planned.job, old, entry)
            staged = stage_checkpoint(context, planned, old, last=planned.batch)
            take_checkpoint(context, planned.job, staged, planned.generation)
            in_turn(planned, planned.sides, lambda name: _put_back_beside(context, planned, name, entry))
            for name, snapshot in before.items():
                _put_back(context, planned, name, snapshot)
        held_s = turn.held_s
    stored = folder.known(SwapResult)
    if stored is None:
        stored = swap_result(planned, *made_by(table, planned.id)[REWIND], held_s=held_s)
        folder.write(stored)
    return stored.to_json()


def _require_unrepaired(context: StageContext, planned: RewindPlan) -> None:
    """Sees to it that no repair is undone unawares; the job's turn must be held, which a repair's swap takes, too.

    Raises:
        BackfillError: The table was repaired since the rewind was planned, or a repair is half swapped in.
    """
    for repair, versions in repairs_of(context.home, planned.target).items():
        if max(versions.values()) > planned.base_version:
            raise BackfillError(
                f"{planned.target} was repaired by {repair} since the backfill {planned.id!r} was planned; plan again"
            )
    require_none_half_done(context.home, planned.target, (*planned.sides, *planned.further))


def versions_back_to(context: StageContext, planned: RewindPlan) -> dict[str, tuple[Path, int]]:
    """The folder of each of the job's tables, and the version that it is put back to."""
    return {name: (context.home.table(name), version) for name, version in planned.back_to.items()}


def _snapshots(context: StageContext, planned: RewindPlan) -> dict[str, Snapshot]:
    """Each of the job's tables as of the version that it is put back to, the target the last."""
    made = versions_back_to(context, planned)
    return {name: snapshot_of(context.spark, *place) for name, place in made.items()}


def _put_back(context: StageContext, planned: RewindPlan, name: str, before: Snapshot) -> None:
    """Puts one of the job's tables back to an earlier version."""
    table = context.home.table(name)
    if REWIND in made_by(table, planned.id):
        return
    transaction = FileSwap(context.spark, table)
    entry = _entry_of(planned, name, table)
    entry = replace(entry, extra={**entry.extra, Extra.ACTION: REWIND})
    marks = marks_as(planned, before, planned.generation, origin=planned.origin)
    exchange(context, planned, transaction, entry, transaction.all_files(), before, marks)


def _entry_of(planned: RewindPlan, name: str, table: Path) -> LedgerEntry:
    version, generation = planned.back_to[name], planned.generation
    return restored_entry(planned, name, version, table, generation, origin=planned.origin)


def _put_back_beside(context: StageContext, planned: RewindPlan, name: str, of_target: LedgerEntry) -> None:
    """Takes the rows of the later batches out of a side table, which may have rows of another job, too."""
    table = context.home.table(name)
    if REWIND in made_by(table, planned.id):
        return
    transaction = FileSwap(context.spark, table)
    later = repairs_of(context.home, planned.target)
    undone = undone_of(table, planned.job, of_target, later, planned.version)
    extra: ExtraValues = {
        Extra.ACTION: REWIND,
        Extra.BACKFILL: planned.id,
        Extra.STARTS: {},
        Extra.LOST: {},
        Extra.AFTER: Extra.AFTER.of(of_target),
    }
    now = snapshot_of(context.spark, table, transaction.version, with_files=False)
    added, removed = now, [file for file in transaction.all_files() if file.name in undone.files]
    if undone.before is not None:
        added, removed = snapshot_of(context.spark, table, undone.before), transaction.all_files()
        extra[Extra.RESTORED_VERSION] = undone.before
    beside = replace(of_target, table=name, seen=None, extra=extra)
    # The table's own marks are of later batches, too, which will come again.
    marks = marks_as(planned, now, planned.generation, origin=planned.origin)
    marks = {name: min(batch, planned.batch) for name, batch in marks.items()}
    exchange(context, planned, transaction, beside, removed, added, marks)
