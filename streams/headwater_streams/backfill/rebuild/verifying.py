"""Proves a rebuild before it is swapped in: its own books, that it read all that the live job did, and the diff."""

from headwater_streams.backfill.change import changes_of, newest_of
from headwater_streams.backfill.handover import made_by
from headwater_streams.backfill.history import TableHistory, read_history
from headwater_streams.backfill.progress import summed
from headwater_streams.backfill.rebuild.behind import made_aside, require_unswapped, unread
from headwater_streams.backfill.rebuild.parts import planned_part
from headwater_streams.backfill.rebuild.running import require_caught_up, shadow_context, shadow_entries
from headwater_streams.backfill.rebuild.spec import RebuildPlan
from headwater_streams.backfill.recompute import Recompute, recompute_rebuild
from headwater_streams.backfill.store import BackfillFolder, utc_text
from headwater_streams.backfill.topics import require_same_topics
from headwater_streams.backfill.verdict import Finding, Verdict
from headwater_streams.base.ledger_entry import Ranges, count_of, intersection, merge_ranges
from headwater_streams.base.plural import quantity
from headwater_streams.delta.delta_table import read_version
from headwater_streams.ledger.audit import audit_table
from headwater_streams.plan.job import Job
from headwater_streams.quality.check_result import merged_entries
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.generations import generation_now

_NAMED = 3


def verify(
    context: StageContext, folder: BackfillFolder, planned: RebuildPlan, job: Job, recompute: Recompute
) -> Verdict:
    """Verifies a rebuild that has caught up, and stores the verdict.

    Looked at: the shadow's audit, as of any table (identities, no gap or overlap of offsets, rows against commits);
    that it read every offset that the live job had read when the rebuild was planned; that the table is at the
    generation planned on; what was written beside what is recomputed from the raw topic; and what differs from the
    live tables, by key.

    Raises:
        BackfillError: The run has not caught up yet, the job is not the one that was planned, a topic was made again,
            or what the rebuild was made of is swapped in by now.
    """
    stored = folder.known(Verdict)
    if stored and any(made_by(context.home.table(name), planned.id) for name in planned.tables):
        return stored
    require_same_topics(context, planned)
    require_unswapped(context, planned)
    found = planned_part(context, job, planned)
    require_caught_up(folder, planned)
    home = shadow_context(context, folder, planned).home
    table, shadow = context.home.table(planned.target), home.table(planned.target)
    names = [target.name for target in found.job.targets]
    audits = [audit for name in names if (audit := audit_table(home, name)) is not None]
    problems = [finding for audit in audits for finding in audit.findings]
    terms = summed(shadow_entries(folder, planned))
    read_before = read_history(table, planned.target, planned.job, until=planned.base_version)
    wanted, later = _wanted(context, planned, read_before)
    read = read_history(shadow, planned.target, planned.job).read_ranges()
    missing = _missing(wanted, read)
    generation = generation_now(context, found.job)
    findings: tuple[Finding, ...] = (
        Finding(
            name="accounting",
            ok=not problems,
            detail="; ".join(problems[:_NAMED])
            or ", ".join(f"{value:,} {term}" for term, value in terms.items()),
        ),
        Finding(
            name="offsets covered",
            ok=not missing,
            detail="; ".join(missing[:_NAMED])
            or f"all {count_of(wanted):,} offsets that the live job had read when it was planned{later}",
        ),
        Finding(
            name="generation",
            ok=generation == planned.base_generation,
            detail=f"{planned.target} is at generation {generation}, planned on {planned.base_generation}",
        ),
    )
    if planned.behind:
        left = unread(context, planned, home.checkpoint(planned.job, planned.generation))
        findings += (
            Finding(
                name="tables aside",
                ok=not left,
                detail="; ".join(left) or f"all that {', '.join(planned.behind)} made",
            ),
        )
    tables = newest_of(home, names)
    changes = changes_of(context, planned, tables)
    of_target = changes.pop(planned.target)
    made = read_version(context.spark, *tables[planned.target])
    recomputed = recompute_rebuild(context, home, job, found, planned, made, recompute)
    findings += recomputed.findings
    notes = [note for change in (of_target, *changes.values()) for note in change.notes]
    compared = read_history(table, planned.target, planned.job, until=of_target.table_version)
    notes += _not_read_yet(compared.read_ranges(), read)
    verdict = Verdict(
        backfill=planned.id,
        passed=all(finding.ok for finding in findings),
        findings=findings,
        accounting=terms,
        diff=of_target.diff,
        notes=(*planned.notes, *notes, *recomputed.notes),
        shadow_version=tables[planned.target][1],
        verified_at=utc_text(context.now_ms()),
        table_version=of_target.table_version,
        beside=changes,
        ranges=read,
        checks=merged_entries(shadow_entries(folder, planned)),
    )
    require_same_topics(context, planned)
    folder.write(verdict)
    return verdict


def _not_read_yet(live: Ranges, read: Ranges) -> list[str]:
    """What the live job has read behind the end of the rebuild: rows that the diff has and the swap does not remove."""
    since = sum(
        max(0, end - max(start, read.get(topic, {}).get(partition, (0, start))[1]))
        for topic, partitions in live.items()
        for partition, (start, end) in partitions.items()
    )
    if not since:
        return []
    return [
        (
            f"the live job has read {quantity(since, 'offset')} since the rebuild ran: what it made of them counts as "
            "removed or changed in the diff, and the job makes it again as soon as the rebuild is swapped in"
        )
    ]


def _wanted(context: StageContext, planned: RebuildPlan, live: TableHistory) -> tuple[Ranges, str]:
    """The offsets that a rebuild must have read, and of those that it need not yet, what comes of them.

    The live job may have read more by the plan than the rebuilds have whose tables are read here: that comes through
    the live tables once these rebuilds are swapped in.

    Args:
        context: The live tables.
        planned: The plan.
        live: What the live job had read by then.
    """
    read = live.read_ranges()
    aside = made_aside(context.home, planned.behind)
    if not aside:
        return read, ""
    tables = {each.name for each in aside}
    made = merge_ranges([read_history(each.made, each.name).read_ranges() for each in aside])
    direct = live.read_ranges(of=lambda source: source.table not in tables)
    through = live.read_ranges(of=lambda source: source.table in tables)
    wanted = merge_ranges([direct, intersection(through, made)])
    rest = count_of(read) - count_of(wanted)
    if not rest:
        return wanted, ""
    return wanted, f", but {rest:,} that {', '.join(planned.behind)} had not read: they come after the swaps"


def _missing(wanted: Ranges, read: Ranges) -> list[str]:
    found = []
    for topic, partitions in wanted.items():
        for partition, (start, end) in partitions.items():
            low, high = read.get(topic, {}).get(partition, (end, end))
            if start < low:
                found.append(f"{topic} {partition} [{start}, {min(low, end)}) was not read")
            if high < end:
                found.append(f"{topic} {partition} [{max(high, start)}, {end}) was not read")
    return found
