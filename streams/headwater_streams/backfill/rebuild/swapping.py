"""Swaps a rebuild in, table and checkpoint in one commit; readers see the old rows or the new."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import types as T

from headwater_streams.backfill.handover import (
    REBUILD,
    exchange,
    in_turn,
    made_by,
    rehearse,
    require_foreseen,
    require_generation,
    require_swappable,
    stage_checkpoint,
    swap_result,
    take_checkpoint,
    written_by,
)
from headwater_streams.backfill.rebuild.behind import move_offsets, swapped_versions
from headwater_streams.backfill.rebuild.running import shadow_context
from headwater_streams.backfill.rebuild.spec import RebuildPlan
from headwater_streams.backfill.results import SwapResult
from headwater_streams.backfill.store import BackfillFolder
from headwater_streams.backfill.verdict import Verdict, passing
from headwater_streams.base.errors import DataLossError
from headwater_streams.base.extra import Extra, ExtraValues
from headwater_streams.base.layout import partitioned_by
from headwater_streams.base.ledger_entry import LedgerEntry
from headwater_streams.delta.declared_table import ensure_table
from headwater_streams.delta.delta_table import REBUILT
from headwater_streams.delta.file_swap import FileSwap
from headwater_streams.delta.live_files import all_files
from headwater_streams.ledger.check_results import keep_results
from headwater_streams.ledger.log import next_commit
from headwater_streams.operators.dedup.memory import SEEN_TABLE, take_over
from headwater_streams.quality.check_result import CheckResult, in_entry
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.turn import Turn
from headwater_streams.spark.delta_log import Snapshot, snapshot_of
from headwater_streams.storage.files import files_below, remove, remove_tree


def swap(
    context: StageContext, folder: BackfillFolder, planned: RebuildPlan, accept_diff: str | None
) -> dict[str, Any]:
    """Puts the shadow's rows in the place of the table's; done already, it says so again.

    The live job is held at the end of its batch meanwhile, and goes on with the shadow's checkpoint from where that
    is: what it wrote since the shadow caught up is written once more.

    Returns:
        `{"backfill", "target", "version", "replaced_version", "generation", "feeds", "proof", "held_s"}`; the last is
        for how many seconds the live job was held, None where the process that swapped died before it could tell.

    Raises:
        BackfillError: There is no passing verdict on the shadow as it is, the job has begun another generation, or
            somebody else has changed the table since the verdict.
        DataLossError: The table does not hold the shadow's files afterwards; roll back.
    """
    require_swappable(context, planned)
    shadow = shadow_context(context, folder, planned)
    held_s = None
    if REBUILD not in made_by(context.home.table(planned.target), planned.id):
        version = next_commit(shadow.home.table(planned.target)) - 1
        verdict = passing(folder.read(Verdict), planned.id, version, accept_diff)
        rebuilt = shadow.home.checkpoint(planned.job, planned.generation)
        read = swapped_versions(context, planned, rebuilt)
        staged = stage_checkpoint(context, planned, rebuilt, inputs=read)
        move_offsets(context, planned, staged, read)
        seen, made_seen = context.home.table(SEEN_TABLE), shadow.home.table(SEEN_TABLE)
        take_over(seen, made_seen, planned.job, planned.generation)
        made_anew = {
            name: snapshot_of(context.spark, path, next_commit(path) - 1)
            for name in planned.tables
            for path in [shadow.home.table(name)]
        }
        for name, made_table in made_anew.items():  # one that the job did not have before
            if not next_commit(context.home.table(name)):
                schema = T.StructType.fromJson(json.loads(made_table.schema))
                layout = partitioned_by(made_table.partition_columns)
                ensure_table(context.spark, context.home.table(name), name, schema, layout)
        rehearse(context, folder, planned)
        with Turn(context.home, planned.job).of_swap() as turn:
            require_generation(context, planned, planned.base_generation)
            require_foreseen(context, planned, verdict)
            take_checkpoint(context, planned.job, staged, planned.generation)
            in_turn(
                planned,
                planned.tables,
                lambda name: _swap_table(context, planned, name, made_anew[name], read, verdict.checks),
            )
        keep_results(context.home, planned.target)
        held_s = turn.held_s
    stored = folder.known(SwapResult)
    if stored is None:
        stored = _proved(context, shadow, planned, held_s)
        folder.write(stored)
    _let_go(folder)
    return stored.to_json()


def _swap_table(
    context: StageContext,
    planned: RebuildPlan,
    name: str,
    added: Snapshot,
    behind: Mapping[str, int],
    checks: Sequence[CheckResult],
) -> None:
    table = context.home.table(name)
    if REBUILD in made_by(table, planned.id):
        return
    transaction = FileSwap(context.spark, table)
    extra: ExtraValues = {
        Extra.ACTION: REBUILD,
        Extra.BACKFILL: planned.id,
        Extra.SHADOW: str(added.table.relative_to(context.home.root)),
        Extra.STARTS: {},
        Extra.LOST: {},
        Extra.AFTER: {"generation": planned.base_generation, "batch": -1},
        **({Extra.BEHIND: dict(behind)} if behind else {}),
        **(in_entry(checks) if name == planned.target else {}),
    }
    entry = LedgerEntry(
        job=planned.job,
        generation=planned.generation,
        batch=-1,
        table=name,
        kind="generation",
        fingerprint=planned.fingerprint,
        extra=extra,
    )
    marks = dict(added.marks)
    removed = transaction.all_files()
    if name in planned.sides:
        removed = written_by(planned.job, table, removed)
    else:
        marks[REBUILT] = transaction.version + 1
    exchange(context, planned, transaction, entry, removed, added, marks)


def _proved(
    context: StageContext, shadow: StageContext, planned: RebuildPlan, held_s: float | None
) -> SwapResult:
    proof = {"rows": 0, "files": 0}
    for name in (*planned.further, planned.target):
        table, origin = context.home.table(name), shadow.home.table(name)
        version, entry = made_by(table, planned.id)[REBUILD]
        there = {(file.name, file.rows) for file in all_files(table, version)}
        expected = {(file.name, file.rows) for file in all_files(origin, next_commit(origin) - 1)}
        if there != expected:
            raise DataLossError(
                f"{name}: version {version} does not hold the files that the backfill {planned.id!r} made; roll it back"
            )
        proof["rows"] += sum(rows for _, rows in there)
        proof["files"] += len(there)
    return swap_result(planned, version, entry, held_s=held_s, proof={**proof, "inside_is_the_shadow": True})


def _let_go(folder: BackfillFolder) -> None:
    """Removes what the table has now, too; the shadow's logs stay: they are the ledger of what was swapped in."""
    for file in files_below(
        folder.rebuilt / "tables", "*.parquet"
    ):  # those of a partition are in a folder of its own
        if file.parent.name != "_delta_log":
            remove(file)
    remove_tree(folder.rebuilt / "checkpoints")
