"""Proves that a job can be put back, and puts it back: rows, checkpoint and offsets in one commit."""

from dataclasses import replace
from typing import Any

from headwater_streams.backfill.diff import keyed_diff
from headwater_streams.backfill.handover import (
    RESTORE,
    REWIND,
    exchange,
    made_by,
    marks_as,
    rehearse,
    require_foreseen,
    require_generation,
    restored_entry,
    stage_checkpoint,
    take_checkpoint,
    told,
)
from headwater_streams.backfill.history import repairs_of, require_none_half_done
from headwater_streams.backfill.rewind.remembered import require_remembered
from headwater_streams.backfill.rewind.spec import RewindPlan
from headwater_streams.backfill.store import BackfillError, BackfillFolder, utc_text
from headwater_streams.backfill.verdict import Finding, Verdict, passing
from headwater_streams.backfill.whole_planning import require_no_readers
from headwater_streams.ledger.entry import LedgerEntry, is_undone
from headwater_streams.ledger.log import commits, next_commit
from headwater_streams.runtime.checkpoint import is_committed
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.turn import Turn
from headwater_streams.sinks.delta_table import read_version
from headwater_streams.sinks.file_swap import FileSwap, snapshot_of


def verify(context: StageContext, folder: BackfillFolder, planned: RewindPlan) -> Verdict:
    """Verifies that all of the earlier version is there, and stores the verdict with what the table would lose."""
    table = context.home.table(planned.target)
    stored = folder.read("verdict")
    if stored and made_by(table, planned.id):
        return Verdict.from_json(stored)
    snapshot = snapshot_of(context.spark, table, planned.version)
    gone = [add["path"] for add in snapshot.files if not (table / add["path"]).exists()]
    checkpoint = context.home.checkpoint(planned.job, planned.base_generation)
    there = is_committed(checkpoint, planned.batch)
    findings = (
        Finding(
            "files",
            not gone,
            f"{len(gone)} of {len(snapshot.files)} files are gone, {gone[0]} among them"
            if gone
            else f"{len(snapshot.files)} files of version {planned.version}",
        ),
        Finding(
            "checkpoint", there, f"batch {planned.batch} {'is' if there else 'is not'} in the checkpoint"
        ),
    )
    version = next_commit(table) - 1
    now = read_version(context.spark, table, version)
    diff = keyed_diff(now, read_version(context.spark, table, planned.version), planned.keys, planned.columns)
    passed = all(finding.ok for finding in findings)
    accounting = {"read": planned.rows}
    verdict = Verdict(
        planned.id,
        passed,
        findings,
        accounting,
        diff,
        planned.notes,
        planned.version,
        utc_text(context.now_ms()),
        version,
    )
    folder.write("verdict", verdict.to_json())
    return verdict


def swap(
    context: StageContext, folder: BackfillFolder, planned: RewindPlan, accept_diff: str | None
) -> dict[str, Any]:
    """Puts the tables and the checkpoint back; a job that runs goes on from there. Done already, it says so again.

    Returns:
        `{"backfill", "target", "version", "replaced_version", "generation", "held_s"}`, the last as of a rebuild.

    Raises:
        BackfillError: There is no passing verdict, the job has begun another generation, or a repair came between.
        DataLossError: A file of that version is gone; nothing is changed.
    """
    table = context.home.table(planned.target)
    made = made_by(table, planned.id)
    if RESTORE in made:
        raise BackfillError(f"the backfill {planned.id!r} was rolled back; plan again")
    held_s = None
    if REWIND not in made:
        verdict = passing(folder.read("verdict"), planned.id, planned.version, accept_diff)
        require_no_readers(context, (planned.target,))
        before = snapshot_of(context.spark, table, planned.version)
        rehearse(context, folder, planned)
        with Turn(context.home, planned.job).of_swap() as turn:
            require_generation(context, planned, planned.base_generation)
            _require_unrepaired(context, planned)
            require_foreseen(context, planned, verdict)
            old = context.home.checkpoint(planned.job, planned.base_generation)
            entry = restored_entry(planned, planned.target, planned.version, table, planned.generation)
            require_remembered(context, planned.job, old, entry)
            staged = stage_checkpoint(context, planned, old, last=planned.batch)
            take_checkpoint(context, planned.job, staged, planned.generation)
            entry = replace(entry, extra={**entry.extra, "action": REWIND})
            for name in planned.tables[:-1]:
                _put_back_beside(context, planned, name, entry)
            marks, transaction = marks_as(planned, before, planned.generation), FileSwap(context.spark, table)
            exchange(context, planned, transaction, entry, transaction.all_files(), before, marks)
        held_s = turn.held_s
    stored = folder.read("swap")
    if stored is None:
        stored = told(planned, *made_by(table, planned.id)[REWIND]) | {"held_s": held_s}
        folder.write("swap", stored)
    return stored


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
    require_none_half_done(context.home, planned.target, planned.sides)


def _put_back_beside(context: StageContext, planned: RewindPlan, name: str, of_target: LedgerEntry) -> None:
    """Takes the rows of the later batches out of another table of the job."""
    table = context.home.table(name)
    if REWIND in made_by(table, planned.id):
        return
    transaction = FileSwap(context.spark, table)
    void = {
        path
        for commit in commits(table)
        if commit.entry is not None
        and commit.entry.job == planned.job
        and is_undone(commit.entry, of_target.extra["after"])
        for path in commit.added_paths
    }
    extra = {
        "action": REWIND,
        "backfill": planned.id,
        "starts": {},
        "lost": {},
        "after": of_target.extra["after"],
    }
    beside = replace(of_target, table=name, seen=None, extra=extra)
    now = snapshot_of(context.spark, table, transaction.version, with_files=False)
    removed = [file for file in transaction.all_files() if file.name in void]
    # The table's own marks are of later batches, too, which will come again.
    marks = {
        name: min(batch, planned.batch) for name, batch in marks_as(planned, now, planned.generation).items()
    }
    exchange(context, planned, transaction, beside, removed, now, marks)
