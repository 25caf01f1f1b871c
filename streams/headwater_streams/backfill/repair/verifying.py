"""Proves a repair before it is swapped in, and stores the verdict with the plan."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater_streams.backfill.change import Change
from headwater_streams.backfill.diff import distinct_offsets, keyed_diff
from headwater_streams.backfill.history import count_of
from headwater_streams.backfill.progress import summed
from headwater_streams.backfill.recompute import Recompute, recompute_repair
from headwater_streams.backfill.repair.account import Account
from headwater_streams.backfill.repair.jobs import same_job
from headwater_streams.backfill.repair.join_account import joined_account
from headwater_streams.backfill.repair.kept import prove_kept
from headwater_streams.backfill.repair.pinning import pinned_table
from headwater_streams.backfill.repair.running import require_done, rows_before
from headwater_streams.backfill.repair.spec import BackfillPlan
from headwater_streams.backfill.repair.unmoved import is_unmoved
from headwater_streams.backfill.repair.window_replay import WindowReplay
from headwater_streams.backfill.store import BackfillFolder, utc_text
from headwater_streams.backfill.values import iso
from headwater_streams.backfill.verdict import Finding, Verdict
from headwater_streams.errors import CheckFailedError
from headwater_streams.ledger.entry import LedgerEntry, counted_in_windows
from headwater_streams.ledger.log import commits
from headwater_streams.ledger.repairs import repairs_of
from headwater_streams.ledger.shared import shares_coordinates
from headwater_streams.plural import counted
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.job import Job
from headwater_streams.runtime.plan import JobPlan
from headwater_streams.runtime.stages.gates import CheckGate
from headwater_streams.sources.coordinates import ROWS


def verify(
    context: StageContext, folder: BackfillFolder, planned: BackfillPlan, job: Job, recompute: Recompute
) -> Verdict:
    """Verifies a finished run against its plan, its input and the live table, and stores the verdict.

    Looked at: the accounting identity; that every offset or window is in one chunk; that the shadow lies inside the
    affected range and names no row twice; that the rows beside it, of files that the swap takes away, are copied aside
    as they are; the job's checks on the result; that the affected rows of the live table are those that were planned
    on; what was written beside what is recomputed from the raw topic; and what differs from the live table, by key; of
    a job that writes several tables, that of each. Of a repair that was swapped in, in part or whole, the verdict is
    the one that it was swapped in with.

    Raises:
        BackfillError: The run is not complete, or the job is not the one that was planned.
    """
    stored = folder.read("verdict")
    if stored and any(planned.id in repairs_of(context.home, name) for name in planned.tables):
        return Verdict.from_json(stored)
    require_done(folder, planned)
    job_plan = same_job(context, job, planned)
    found = {
        name: _verified(context, folder, planned, job, job_plan, name, recompute) for name in planned.parts
    }
    target = found.pop(planned.target)
    findings, notes = [*target.findings], [*target.notes]
    for name, each in found.items():
        findings += [replace(one, detail=f"{name}: {one.detail}") for one in each.findings]
        notes += [f"{name}: {note}" for note in each.notes]
    verdict = Verdict(
        planned.id,
        all(finding.ok for finding in findings),
        tuple(findings),
        target.change.accounting,
        target.change.diff,
        tuple(notes),
        target.shadow_version,
        utc_text(context.now_ms()),
        beside={name: each.change for name, each in found.items()},
    )
    folder.write("verdict", verdict.to_json())
    return verdict


@dataclass(frozen=True)
class _Verified:
    """What was found of one table, and what the swap changes in it."""

    findings: list[Finding]
    notes: list[str]
    change: Change
    shadow_version: int


def _verified(
    context: StageContext,
    folder: BackfillFolder,
    planned: BackfillPlan,
    job: Job,
    job_plan: JobPlan,
    name: str,
    recompute: Recompute,
) -> _Verified:
    part, own = planned.parts[name], folder.of_table(planned, name)
    entries, written = require_done(own, part), context.transaction(own.shadow)
    files = written.all_files()
    # All of it is read, time and again: by its files, of which Delta would choose some with Spark jobs each time.
    shadow, before = written.read(files), rows_before(context, part)
    # What a verdict takes of small tables is mostly Spark's planning, which has one core busy.
    with ThreadPoolExecutor(2) as aside:
        recomputing = aside.submit(recompute_repair, context, job, job_plan, planned, shadow, recompute, name)
        comparing = aside.submit(keyed_diff, before, shadow, part.keys, part.columns)
        account = _accounted(context, planned, part, job_plan, entries, shadow, before)
        notes = [*(planned.notes if name == planned.target else ()), *account.notes]
        held = sum(file.rows for file in files)
        told = f"{counted(held, 'row')} of {counted(account.keys, 'key')}, {held - account.rows:,} of them outside of "
        findings = [
            _unmoved(context, part),
            *account.findings,
            Finding("rows inside the range", held == account.rows == account.keys, f"{told}the range"),
            prove_kept(context, own, part),
            *_checks(job_plan.job, shadow, notes),
        ]
        recomputed, diff = recomputing.result(), comparing.result()
    return _Verified(
        [*findings, *recomputed.findings],
        [*notes, *recomputed.notes],
        Change(diff, part.base_version, accounting=account.terms),
        written.version,
    )


def _accounted(
    context: StageContext,
    planned: BackfillPlan,
    part: BackfillPlan,
    job_plan: JobPlan,
    entries: list[LedgerEntry],
    shadow: DataFrame,
    before: DataFrame,
) -> Account:
    terms, inside = summed(entries), shadow.filter(part.affected.condition())
    if planned.kind == "join":
        return joined_account(context, planned, job_plan, entries, inside, before)
    if planned.kind != "window":
        rows, keys = distinct_offsets(inside)
        accounting = _row_accounting(context, part, terms, before)
        return Account(_row_findings(context, part, entries, accounting, terms), [], accounting, rows, keys)
    assert planned.pinned is not None
    replay = WindowReplay(context, job_plan, planned.pinned)
    rows, keys, folded = _distinct_windows(inside, part.keys)
    accounting = _window_accounting(terms, folded, before, part.keys)
    shared = shares_coordinates(context.home, planned.pinned.table)
    findings = _window_findings(planned, entries, accounting, terms, replay, shared=shared)
    now, notes = counted_in_windows(accounting), []
    if now != accounting["before"] + accounting["late_folded"]:
        because = " (its input was rewritten since)" if planned.pinned.was_rewritten else ""
        notes.append(
            f"the windows counted {accounting['before']} rows and {accounting['late_folded']} were late, "
            f"now they count {now}{because}"
        )
    return Account(findings, notes, accounting, rows, keys)


def _unmoved(context: StageContext, planned: BackfillPlan) -> Finding:
    target = context.home.table(planned.target)
    newer = [c for c in commits(target, since=planned.base_version + 1) if c.data_changed]
    if not newer:
        return Finding("target unmoved", True, f"{planned.target} is at version {planned.base_version} still")
    condition, since = planned.affected.condition(), planned.base_version
    same = is_unmoved(context, target, condition, since, newer[-1].version)
    return Finding(
        "target unmoved",
        same,
        f"{counted(len(newer), 'commit')} since version {planned.base_version}, "
        + (
            "none of them in the affected range"
            if same
            else "and rows of the affected range changed; plan again"
        ),
    )


def _window_accounting(
    terms: dict[str, int], now: int, before: DataFrame, keys: Sequence[str]
) -> dict[str, int]:
    # One that was slipped in beside the job's own was never accounted for.
    once = before.groupBy(*[F.col(f"`{key}`") for key in keys]).agg(F.max(ROWS).alias(ROWS))
    replaced = once.agg(F.coalesce(F.sum(ROWS), F.lit(0)).alias("rows")).first()
    assert replaced is not None
    # Where windows overlap, a row is counted in several.
    counted_now = {"folded": terms["folded"], "placed": now} if "placed" in terms else {"folded": now}
    return {
        "read": terms["read"],
        **counted_now,
        "filtered": terms.get("filtered", 0),
        "quarantined": terms["quarantined"],
        "late_folded": terms["late_folded"],
        "before": int(replaced["rows"]),
    }


def _window_findings(
    planned: BackfillPlan,
    entries: list[LedgerEntry],
    accounting: dict[str, int],
    terms: dict[str, int],
    replay: WindowReplay,
    *,
    shared: bool,
) -> list[Finding]:
    parts = {name: accounting[name] for name in ("folded", "filtered", "quarantined")}
    balanced = accounting["read"] == sum(parts.values())
    identity = f"read {accounting['read']} = " + " + ".join(f"{name} {n}" for name, n in parts.items())
    if "placed" in terms:
        balanced &= accounting["placed"] == terms["placed"]
        identity += f"; placed {terms['placed']} = counted in the windows {accounting['placed']}"
    spans = [chunk.span for chunk in planned.chunks if chunk.span is not None]
    tiled = all(one[1] == other[0] for one, other in pairwise(spans))
    covered = (spans[0][0], spans[-1][1]) == (planned.windows[0][0], planned.windows[-1][1])
    rows, offsets = distinct_offsets(replay.rows(planned.affected))
    return [
        Finding("accounting", balanced, identity if balanced else identity.replace(" = ", " is not ")),
        Finding(
            "windows once",
            tiled and covered and len(entries) == len(spans),
            f"{counted(len(spans), 'chunk tiles', 'chunks tile')} [{iso(spans[0][0])}, {iso(spans[-1][1])})",
        ),
        Finding(
            "offsets once",
            rows == accounting["read"] and (shared or rows == offsets),
            f"{counted(rows, 'row')} of {counted(offsets, 'offset')} in the windows, {accounting['read']:,} read",
        ),
    ]


def _row_accounting(
    context: StageContext, planned: BackfillPlan, terms: dict[str, int], before: DataFrame
) -> dict[str, int]:
    quarantine = context.home.table(planned.quarantine)
    rejected = context.spark.read.format("delta").load(str(quarantine))
    return {
        **{name: terms[name] for name in ("read", "written", "filtered", "duplicate", "quarantined")},
        "before": before.count(),
        "quarantined_before": rejected.filter(planned.affected.of_offsets()).count(),
    }


def _row_findings(
    context: StageContext,
    planned: BackfillPlan,
    entries: list[LedgerEntry],
    accounting: dict[str, int],
    terms: dict[str, int],
) -> list[Finding]:
    parts = {name: accounting[name] for name in ("written", "filtered", "duplicate", "quarantined")}
    balanced = accounting["read"] == sum(parts.values())
    spelled = " + ".join(f"{value} {name}" for name, value in parts.items())
    offsets = sum(count_of(source.ranges) for entry in entries for source in entry.sources)
    planned_offsets = count_of(planned.ranges)
    missing = planned_offsets - accounting["read"]
    if planned.pinned is None:
        complete = 0 <= missing <= terms["live_shortfall"]
    else:
        there = distinct_offsets(pinned_table(context, planned.pinned).filter(planned.affected.condition()))
        complete = there == (accounting["read"], accounting["read"])
    return [
        Finding(
            "accounting", balanced, f"read {accounting['read']} {'is' if balanced else 'is not'} {spelled}"
        ),
        Finding(
            "offsets once",
            offsets == planned_offsets and complete,
            f"{counted(planned_offsets, 'offset')} in the range, {offsets:,} in the chunks, "
            f"{counted(accounting['read'], 'record')} read"
            + (f"; no record at {counted(missing, 'offset')}" if missing else ""),
        ),
    ]


def _distinct_windows(rows: DataFrame, keys: Sequence[str]) -> tuple[int, int, int]:
    """How many rows there are, of how many keys, and how many rows they count."""
    by_key = rows.groupBy(*[f"`{key}`" for key in keys]).agg(
        F.count(F.lit(1)).alias("_rows_of_key"), F.sum(ROWS).alias("_counted_of_key")
    )
    found = by_key.agg(
        F.coalesce(F.sum("_rows_of_key"), F.lit(0)).alias("rows"),
        F.count(F.lit(1)).alias("keys"),
        F.coalesce(F.sum("_counted_of_key"), F.lit(0)).alias("counted"),
    ).first()
    assert found is not None
    return found["rows"], found["keys"], found["counted"]


def _checks(job: Job, shadow: DataFrame, notes: list[str]) -> list[Finding]:
    gate = CheckGate(job, "output")
    gate = gate.over(shadow) if job.branches else gate
    if not gate.aggregates():
        return []
    outcome = shadow.agg(F.lit(True), *gate.aggregates()).first()
    assert outcome is not None
    try:
        gate.judge(outcome.asDict(), len(notes))
    except CheckFailedError as error:
        return [Finding("checks", False, str(error))]
    notes += gate.warnings
    checks = len(gate.aggregates())
    told = counted(checks, "check of the result holds", "checks of the result hold")
    return [Finding("checks", True, told)]
