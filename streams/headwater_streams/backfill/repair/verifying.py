"""Proves a repair before it is swapped in, and stores the verdict with the plan."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame

from headwater_streams.backfill.change import Change
from headwater_streams.backfill.diff import keyed_diff
from headwater_streams.backfill.recompute import Recompute, recompute_repair
from headwater_streams.backfill.repair.account import Account
from headwater_streams.backfill.repair.jobs import same_job
from headwater_streams.backfill.repair.joins.account import join_account
from headwater_streams.backfill.repair.kept import prove_kept
from headwater_streams.backfill.repair.quarantine import judge_rejected
from headwater_streams.backfill.repair.rows.account import row_account
from headwater_streams.backfill.repair.running import require_done, rows_before
from headwater_streams.backfill.repair.spec import BackfillPlan
from headwater_streams.backfill.repair.unmoved import is_unmoved
from headwater_streams.backfill.repair.windows.account import window_account
from headwater_streams.backfill.store import BackfillFolder, utc_text
from headwater_streams.backfill.topics import require_same_topics
from headwater_streams.backfill.verdict import Finding, Verdict
from headwater_streams.base.errors import CheckFailedError
from headwater_streams.base.ledger_entry import LedgerEntry
from headwater_streams.base.plural import quantity
from headwater_streams.base.rule import KeysRule
from headwater_streams.delta.delta_table import read_version
from headwater_streams.ledger.log import commits, next_commit
from headwater_streams.ledger.repairs import repairs_of
from headwater_streams.plan.job import Job
from headwater_streams.plan.plan import JobPlan
from headwater_streams.quality.check_result import CheckResult, merged_entries
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.stages.check_memory import compared_rows
from headwater_streams.runtime.stages.gates import CheckGate
from headwater_streams.runtime.stages.rejected_checks import in_backfill
from headwater_streams.spark.columns import cols


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
        BackfillError: The run is not complete, the job is not the one that was planned, or a topic was made again.
    """
    stored = folder.known(Verdict)
    if stored and any(planned.id in repairs_of(context.home, name) for name in planned.tables):
        return stored
    require_same_topics(context, planned)
    require_done(folder, planned)
    job_plan = same_job(context, job, planned)
    found = {
        name: _verified(context, folder, planned, job, job_plan, name, recompute) for name in planned.parts
    }
    target = found.pop(planned.target)
    findings, notes = [*target.findings], [*target.notes]
    if planned.kind != "row":
        notes += judge_rejected(context, folder, planned, job_plan).notes
    for name, each in found.items():
        findings += [replace(one, detail=f"{name}: {one.detail}") for one in each.findings]
        notes += [f"{name}: {note}" for note in each.notes]
    verdict = Verdict(
        backfill=planned.id,
        passed=all(finding.ok for finding in findings),
        findings=tuple(findings),
        accounting=target.change.accounting,
        diff=target.change.diff,
        notes=tuple(notes),
        shadow_version=target.shadow_version,
        verified_at=utc_text(context.now_ms()),
        beside={name: each.change for name, each in found.items()},
        checks=target.checks,
    )
    require_same_topics(context, planned)
    folder.write(verdict)
    return verdict


@dataclass(frozen=True)
class _Verified:
    """What was found of one table, and what the swap changes in it."""

    findings: list[Finding]
    notes: list[str]
    change: Change
    shadow_version: int
    checks: tuple[CheckResult, ...]


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
        told = f"{quantity(held, 'row')} of {quantity(account.keys, 'key')}, {held - account.rows:,} of them outside "
        findings = [
            _unmoved(context, part),
            *account.findings,
            Finding(
                name="rows inside the range",
                ok=held == account.rows == account.keys,
                detail=f"{told}of the range",
            ),
            prove_kept(context, own, part),
        ]
        checked, results = _checks(context, job_plan.job, part, shadow, notes)
        findings += checked
        if name == planned.target and planned.kind == "row":
            judged = account.terms["read"] - account.terms.get("duplicate", 0)
            rejecting = in_backfill(folder.quarantine, job.quarantining, judged)
            results = (*rejecting, *merged_entries(entries), *results)
        recomputed, diff = recomputing.result(), comparing.result()
    return _Verified(
        [*findings, *recomputed.findings],
        [*notes, *recomputed.notes],
        Change(diff=diff, table_version=part.base_version, accounting=account.terms),
        written.version,
        results,
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
    inside = shadow.filter(part.affected.condition())
    if planned.kind == "join":
        return join_account(context, planned, job_plan, entries, inside, before)
    if planned.kind == "window":
        return window_account(context, planned, job_plan, entries, inside, before)
    return row_account(context, part, entries, inside, before)


def _unmoved(context: StageContext, planned: BackfillPlan) -> Finding:
    target = context.home.table(planned.target)
    newer = [c for c in commits(target, since=planned.base_version + 1) if c.data_changed]
    if not newer:
        return Finding(
            name="target unmoved",
            ok=True,
            detail=f"{planned.target} is at version {planned.base_version} still",
        )
    condition, since = planned.affected.condition(), planned.base_version
    same = is_unmoved(context, target, condition, since, newer[-1].version)
    return Finding(
        name="target unmoved",
        ok=same,
        detail=f"{quantity(len(newer), 'commit')} since version {planned.base_version}, "
        + (
            "none of them in the affected range"
            if same
            else "and rows of the affected range changed; plan again"
        ),
    )


def _checks(
    context: StageContext, job: Job, part: BackfillPlan, shadow: DataFrame, notes: list[str]
) -> tuple[list[Finding], tuple[CheckResult, ...]]:
    """What the job's checks say of the new rows, and what each came to."""
    gate = CheckGate(job, "output")
    gate = gate.over(shadow) if job.branches else gate
    if not gate and not gate.needs_rows:
        return [], ()

    def others(rule: KeysRule, keys: pa.Table) -> pa.Table | None:
        if rule.other != "":
            return compared_rows(context.home, part.target, rule, keys)
        # The rows in the range are those that the shadow replaces.
        path = context.home.table(part.target)
        live = read_version(context.spark, path, next_commit(path) - 1)
        beside = live.filter(~part.affected.condition())
        mine = shadow.select(*cols(rule.columns)).distinct()
        return beside.select(*cols(rule.columns)).join(mine, list(rule.columns), "left_semi").toArrow()

    try:
        gate.judge_rows(shadow, len(notes))
        if gate.needs_rows:
            gate.judge_keys(
                lambda columns: shadow.select(*cols(columns)).toArrow(),
                others,
                dict(shadow.dtypes),
                len(notes),
                of_batch_alone=False,
            )
    except CheckFailedError as error:
        return [Finding(name="checks", ok=False, detail=str(error))], error.results
    notes += gate.warnings
    results = tuple(gate.results.values())
    if not results:
        return [], ()
    told = quantity(len(results), "check of the result holds", "checks of the result hold")
    return [Finding(name="checks", ok=True, detail=told)], results
