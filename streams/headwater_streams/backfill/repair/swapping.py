"""Swaps a verified shadow into its table, and takes a swap back: one Delta commit each.

Of a job that writes several tables each has a shadow and a commit of its own, the target's the last.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.backfill.history import read_history, require_none_half_done
from headwater_streams.backfill.offsets import Offsets
from headwater_streams.backfill.repair.kept import kept_aside
from headwater_streams.backfill.repair.quarantine import judged_rows
from headwater_streams.backfill.repair.running import require_done
from headwater_streams.backfill.repair.spans import merged, overlaps
from headwater_streams.backfill.repair.spec import BackfillPlan
from headwater_streams.backfill.repair.unmoved import is_unmoved, proof_of
from headwater_streams.backfill.results import RollbackResult, SwapResult, TableSwap
from headwater_streams.backfill.store import BackfillError, BackfillFolder
from headwater_streams.backfill.topics import require_same_topics
from headwater_streams.backfill.values import micros
from headwater_streams.backfill.verdict import Verdict, passing
from headwater_streams.base.errors import DataLossError
from headwater_streams.base.extra import Extra, ExtraValues
from headwater_streams.base.ledger_entry import LedgerEntry
from headwater_streams.base.moments import iso
from headwater_streams.delta.delta_table import conflicts, read_version
from headwater_streams.delta.file_swap import CopiedRows, FileSwap
from headwater_streams.ledger.check_results import keep_results
from headwater_streams.ledger.log import commits
from headwater_streams.ledger.repairs import ROLLBACK, SWAP
from headwater_streams.ledger.shared import recreated_topics_after
from headwater_streams.quality.check_result import CheckResult, in_entry
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.stages.narrowing import FUNCTION
from headwater_streams.runtime.turn import Turn
from headwater_streams.sources.coordinates import PLACE

_MARKS = {SWAP: 1, ROLLBACK: 2}
_ATTEMPTS = 10
_BESIDE_BATCHES = 3  # of the attempts; in the others the live job waits
_PAUSE_S = 0.2


def swap(
    context: StageContext, folder: BackfillFolder, planned: BackfillPlan, accept_diff: str | None
) -> dict[str, Any]:
    """Replaces the affected rows of the target by the shadow's, in one commit; done already, it says so again.

    The rejected records of the range change hands first, in the quarantine table, and then, where a row job writes
    several tables, the rows of the others.

    Returns:
        `{"backfill", "target", "version", "replaced_version", "accounting", "ranges", "feeds", "proof"}`; of a job that
        writes several tables `"beside"` as well: versions, account and proof of each of the others that had or have
        rows in the range.

    Raises:
        BackfillError: There is no passing verdict, or affected rows of the target changed, or a topic was made again,
            since the plan was made.
        DataLossError: The rows outside of the range are not what they were; roll back.
    """
    made = [actions for table in planned.tables if (actions := _by_action(context, planned, table))]
    back = [ROLLBACK in actions for actions in made]
    if any(back) and not all(back):
        raise BackfillError(f"the backfill {planned.id!r} is half rolled back; roll it back again")
    if any(back):
        raise BackfillError(f"the backfill {planned.id!r} was rolled back; plan again")
    if not made:
        require_same_topics(context, planned)
    if SWAP not in _by_action(context, planned, planned.target):
        require_done(folder, planned)
        *_, last = commits(folder.shadow)
        verdict = passing(folder.read(Verdict), planned.id, last.version, accept_diff)
        known = {name: _known_of(folder.of_table(planned, name)) for name in planned.parts}

        def attempt() -> None:
            require_none_half_done(context.home, planned.target, planned.tables[:-1], but=planned.id)
            rejected = None if planned.kind == "row" else judged_rows(folder)
            if rejected is None or rejected.count:
                for name, part in planned.parts.items():
                    if SWAP not in _by_action(context, planned, name):
                        _require_unmoved(context, part, FileSwap(context.spark, context.home.table(name)))
                _swap_quarantine(context, planned, folder, rejected)
            for name in planned.further:
                _swap_further(context, planned, folder, name, verdict, known[name])
            _commit_swap(
                context, planned, folder, verdict.accounting, known[planned.target], checks=verdict.checks
            )

        _beside_the_job(context, planned, attempt)
        keep_results(context.home, planned.target)
    return _swap_result(context, planned, folder)


def rollback(context: StageContext, folder: BackfillFolder, planned: BackfillPlan) -> dict[str, Any]:
    """Puts the rows before the swap back into the affected range, in one commit; done already, it says so again.

    Returns:
        `{"backfill", "target", "version", "replaced_version", "accounting"}`.

    Raises:
        BackfillError: It was never swapped in, or affected rows changed since.
    """
    if not any(SWAP in _by_action(context, planned, table) for table in planned.tables):
        raise BackfillError(
            f"the backfill {planned.id!r} was not swapped in, so there is nothing to roll back"
        )

    _require_newest(context, planned)

    def attempt() -> None:
        for name in planned.parts if planned.further else ():  # none is put back where another one cannot be
            _require_swapped(context, planned, name)
        for table in planned.tables:
            _roll_back_table(context, planned, table)

    _beside_the_job(context, planned, attempt)
    stored = folder.known(RollbackResult)
    if stored is None:
        made = (_by_action(context, planned, table).get(ROLLBACK) for table in reversed(planned.tables))
        version, entry = next(found for found in made if found is not None)
        stored = RollbackResult(
            backfill=planned.id,
            target=entry.table,
            version=version,
            replaced_version=Extra.REPLACED_VERSION.of(entry),
            accounting=_terms_of(entry),
        )
        folder.write(stored)
    return stored.to_json()


@dataclass(frozen=True)
class _Known:
    """What was looked at, and copied aside, of a table before its swap."""

    counts: dict[str, tuple[int, int]]
    copied: CopiedRows | None


def _known_of(folder: BackfillFolder) -> _Known:
    kept = kept_aside(folder)
    if kept is None:
        return _Known({}, None)
    return _Known(dict(kept.counts), kept.rows if kept.proved else None)


def _commit_swap(
    context: StageContext,
    planned: BackfillPlan,
    folder: BackfillFolder,
    accounting: Mapping[str, int],
    known: _Known,
    of: str = "",
    *,
    checks: Sequence[CheckResult] = (),
) -> None:
    target, affected = context.home.table(planned.target), planned.affected.condition()
    transaction = FileSwap(context.spark, target)
    _require_unmoved(context, planned, transaction)
    entry = _entry(planned, SWAP, planned.target, accounting, transaction.version)
    entry = replace(entry, extra={**entry.extra, **in_entry(checks)})
    context.step(planned.job, f"before swap{of}", 0)
    transaction.replace(
        affected,
        planned.app_id,
        _MARKS[SWAP],
        entry.to_json(),
        shadow=folder.shadow,
        file_counts=known.counts,
        copied=known.copied,
    )
    context.step(planned.job, f"after swap{of}", 0)


def _swap_further(
    context: StageContext,
    planned: BackfillPlan,
    folder: BackfillFolder,
    name: str,
    verdict: Verdict,
    known: _Known,
) -> None:
    """Swaps another table of the job; done already, or where it has no row in the range and gets none, nothing."""
    accounting = verdict.beside[name].accounting
    if SWAP in _by_action(context, planned, name) or not (accounting["written"] or accounting["before"]):
        return
    part, own = planned.parts[name], folder.of_table(planned, name)
    _commit_swap(context, part, own, accounting, known, " of another table")


def _swap_quarantine(
    context: StageContext, planned: BackfillPlan, folder: BackfillFolder, rejected: Offsets | None
) -> None:
    """Swaps the rejected records of a row job's range, or those rows of another job's."""
    table = context.home.table(planned.quarantine)
    affected = planned.affected.condition() if rejected is None else rejected.condition()
    transaction = FileSwap(context.spark, table)
    if transaction.last_batch(planned.app_id) >= _MARKS[SWAP]:
        return
    behind = Offsets(pairs={})
    if rejected is None:
        behind = _failed_behind(context, planned, folder, transaction.frame().filter(affected))
        affected &= ~behind.condition()
    before = transaction.frame().filter(affected).count()
    shadow = context.spark.read.format("delta").load(str(folder.quarantine))
    after = shadow.count()
    if not before and not after:
        return
    terms = {"quarantined": after, "before": before}
    entry = _entry(planned, SWAP, planned.quarantine, terms, transaction.version)
    entry = replace(entry, extra={**entry.extra, **_told_rejected(rejected, behind)})
    context.step(planned.job, "before quarantine swap", 0)
    transaction.replace(
        affected,
        planned.app_id,
        _MARKS[SWAP],
        entry.to_json(),
        shadow=folder.quarantine,
        may_only_add=rejected is not None,  # an ingest job has files there, which go with its own commits
    )
    context.step(planned.job, "after quarantine swap", 0)


def _failed_behind(
    context: StageContext, planned: BackfillPlan, folder: BackfillFolder, rejected: DataFrame
) -> Offsets:
    """Of the rejected records of a row job's range those that it has kept, and keeps: they stand in quarantine since
    the function of the job that reads its table raised for them."""
    found = rejected.filter(F.col("_check") == FUNCTION).select(*PLACE)
    if found.isEmpty():
        return Offsets(pairs={})
    before = read_version(context.spark, context.home.table(planned.target), planned.base_version)
    for kept in (before, context.spark.read.format("delta").load(str(folder.shadow))):
        found = found.join(kept.select(*PLACE), list(PLACE), "left_semi")
    return Offsets.at(tuple(row) for row in found.collect())


def _told_rejected(rejected: Offsets | None, behind: Offsets) -> ExtraValues:
    if rejected is not None:
        return {Extra.REJECTED: rejected.to_json()}
    return {Extra.FAILED_BEHIND: behind.to_json()} if behind.count else {}


def _affected(context: StageContext, planned: BackfillPlan, swapped: LedgerEntry) -> Column:
    """The affected rows of a table that its swap brought, but none of a topic that was made again since: it may have
    the same offsets."""
    if Extra.REJECTED.is_in(swapped):
        return Offsets.from_json(Extra.REJECTED.of(swapped)).condition()
    history = read_history(context.home.table(planned.target), planned.target, planned.job)
    made = (c.entry for c in history.commits if c.entry is not None and c.entry.job == planned.job)
    affected = replace(planned.affected, until=recreated_topics_after(made, planned.generation)).condition()
    return affected & ~Offsets.from_json(Extra.FAILED_BEHIND.get(swapped, ())).condition()


def _roll_back_table(context: StageContext, planned: BackfillPlan, name: str) -> None:
    made = _by_action(context, planned, name)
    if SWAP not in made or ROLLBACK in made:
        return
    swapped_at, swapped = made[SWAP]
    table, affected = context.home.table(name), _affected(context, planned, swapped)
    replaced = read_version(context.spark, table, Extra.REPLACED_VERSION.of(swapped)).filter(affected)
    transaction = FileSwap(context.spark, table)
    _require_as_swapped(context, planned, transaction, name, swapped_at, affected)
    (terms,) = swapped.accounting.values()
    entry = _entry(planned, ROLLBACK, name, _undone(terms), transaction.version)
    of = " of another table" if name in planned.further else ""
    context.step(planned.job, f"before rollback{of}", 0)
    transaction.replace(
        affected,
        planned.app_id,
        _MARKS[ROLLBACK],
        entry.to_json(),
        rows=replaced,
        may_only_add=Extra.REJECTED.is_in(swapped),
    )
    context.step(planned.job, f"after rollback{of}", 0)


def _require_newest(context: StageContext, planned: BackfillPlan) -> None:
    """Checks that no newer repair stands in the windows that will be put back: late rows that it has folded in, too,
    would be taken out with them, and count as folded."""
    made = _by_action(context, planned, planned.target)
    if planned.kind != "window" or SWAP not in made or ROLLBACK in made:
        return
    since, spans = made[SWAP][0], merged(planned.windows)
    standing: dict[str, bool] = {}
    for commit in read_history(context.home.table(planned.target), planned.target).commits:
        entry = commit.entry
        if commit.version > since and entry is not None and Extra.WINDOWS.is_in(entry):
            windows = ((micros(start), micros(end)) for start, end in Extra.WINDOWS.of(entry))
            stands = Extra.ACTION.of(entry) == SWAP and any(overlaps(spans, one) for one in windows)
            standing[Extra.BACKFILL.of(entry)] = stands
    newer = [name for name, stands in standing.items() if stands]
    if newer:
        raise BackfillError(
            f"the backfill {newer[-1]!r} has replaced windows of {planned.id!r} since; roll {newer[-1]!r} back first, "
            "or repair the range again"
        )


def _require_swapped(context: StageContext, planned: BackfillPlan, name: str) -> None:
    """Checks that the affected rows of a table that will be rolled back are those that the swap brought."""
    made = _by_action(context, planned, name)
    if SWAP in made and ROLLBACK not in made:
        transaction = FileSwap(context.spark, context.home.table(name))
        version, swapped = made[SWAP]
        affected = _affected(context, planned, swapped)
        _require_as_swapped(context, planned, transaction, name, version, affected)


def _undone(terms: Mapping[str, int]) -> dict[str, int]:
    """The account of the way back, so that swap and rollback add up to nothing."""
    now = next(name for name in ("placed", "folded", "written", "quarantined") if name in terms)
    undone = {now: terms["before"], "before": terms[now]}
    if "late_folded" in terms:
        undone["late_folded"] = -terms["late_folded"]
    for name in ("quarantined", "matched", "unmatched"):
        if f"{name}_before" in terms:
            undone |= {name: terms[f"{name}_before"], f"{name}_before": terms[name]}
    return undone


def _require_unmoved(context: StageContext, planned: BackfillPlan, transaction: FileSwap) -> None:
    """Checks that commits since the version that was planned on left the affected rows alone."""
    table, version = context.home.table(planned.target), planned.base_version
    if not is_unmoved(context, table, planned.affected.condition(), version, transaction.version):
        raise BackfillError(
            f"{_changed(planned.target, version, transaction)}, so the backfill {planned.id!r} does not fit any more; "
            "plan again"
        )


def _require_as_swapped(
    context: StageContext,
    planned: BackfillPlan,
    transaction: FileSwap,
    name: str,
    version: int,
    affected: Column,
) -> None:
    """Checks that commits since a swap's version left the affected rows of a table alone."""
    if not is_unmoved(context, context.home.table(name), affected, version, transaction.version):
        raise BackfillError(
            f"{_changed(name, version, transaction)}, so those before the backfill {planned.id!r} cannot be put in "
            "their place; repair the range again, or go back to before the swap: headwater backfill plan JOB --rewind "
            f"{version - 1}"
        )


def _changed(name: str, version: int, transaction: FileSwap) -> str:
    return (
        f"rows of {name} in the affected range changed between version {version} and version "
        f"{transaction.version}"
    )


def _entry(
    planned: BackfillPlan,
    action: str,
    table: str,
    accounting: Mapping[str, int],
    version: int,
) -> LedgerEntry:
    pinned = planned.pinned
    extra: ExtraValues = {
        Extra.BACKFILL: planned.id,
        Extra.ACTION: action,
        Extra.REPLACED_VERSION: version,
    }
    if planned.since:
        extra[Extra.SINCE] = dict(planned.since)
    if pinned is not None and planned.kind == "window":
        extra |= {
            Extra.WINDOWS: [[iso(start), iso(end)] for start, end in planned.windows],
            Extra.UNTIL: list(pinned.until),
        }
        if planned.open is not None:
            extra[Extra.OPEN] = {"windows": [iso(at) for at in planned.open], "batch": planned.batch}
    return LedgerEntry(
        job=planned.job,
        generation=planned.generation,
        batch=_MARKS[action],
        table=table,
        kind="backfill",
        sources=planned.sources(planned.ranges),
        accounting={planned.input_name: accounting},
        fingerprint=planned.fingerprint,
        extra=extra,
    )


def _swap_result(context: StageContext, planned: BackfillPlan, folder: BackfillFolder) -> dict[str, Any]:
    stored = folder.known(SwapResult)
    if stored is not None:
        return stored.to_json()
    found = {
        name: _proved(context, part, folder.of_table(planned, name))
        for name, part in planned.parts.items()
        if SWAP in _by_action(context, part, name)
    }
    target = found.pop(planned.target)
    stored = SwapResult(
        backfill=planned.id,
        target=planned.target,
        version=target.version,
        replaced_version=target.replaced_version,
        accounting=target.accounting,
        proof=target.proof,
        ranges=planned.ranges,
        feeds=planned.feeds,
        open=planned.open,
        beside=found if planned.further else None,
    )
    folder.write(stored)
    return stored.to_json()


def _proved(context: StageContext, planned: BackfillPlan, folder: BackfillFolder) -> TableSwap:
    """What a swap did to a table, held against its shadow."""
    version, entry = _by_action(context, planned, planned.target)[SWAP]
    path, affected = context.home.table(planned.target), planned.affected.condition()
    proof = proof_of(context, path, folder.shadow, affected, version, kept_aside(folder))
    if not all((proof["outside_unchanged"], proof["inside_is_the_shadow"])):
        raise DataLossError(
            f"{planned.target}: version {version} is not {version - 1} with the affected rows replaced ({proof}); "
            f"roll the backfill {planned.id!r} back"
        )
    return TableSwap(
        version=version,
        replaced_version=Extra.REPLACED_VERSION.of(entry),
        accounting=_terms_of(entry),
        proof=proof,
    )


def _terms_of(entry: LedgerEntry) -> Mapping[str, int]:
    (terms,) = entry.accounting.values()
    return terms


def _by_action(
    context: StageContext, planned: BackfillPlan, table: str
) -> dict[str, tuple[int, LedgerEntry]]:
    return read_history(context.home.table(table), table).backfill(planned.id)


def _beside_the_job(context: StageContext, planned: BackfillPlan, attempt: Callable[[], None]) -> None:
    """Changes the tables beside the batches of the live job, and never beside the swap of another backfill.

    Where batches come first it is tried again, after some tries with the job held: they may come faster than one
    attempt is made.
    """
    turn = Turn(context.home, planned.job)
    # Two repairs at once would each change hands with some of the tables of the other; and a job that starts waits.
    with turn.of_repair():
        for number in range(_ATTEMPTS):
            try:
                with turn.of_batch() if number < _BESIDE_BATCHES else turn.of_swap():
                    attempt()
                return
            except conflicts():
                time.sleep(_PAUSE_S)
    raise BackfillError(
        f"{planned.target} was changed by others {_ATTEMPTS} times while its commit was prepared; try again when it is "
        "quieter"
    )
