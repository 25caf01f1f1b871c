"""What a backfill would change in each table of its job, looked at before it is swapped in; nothing is written."""

from headwater_streams.backfill.change import Change, changes_of, newest_of
from headwater_streams.backfill.handover import made_by
from headwater_streams.backfill.rebuild.parts import planned_part
from headwater_streams.backfill.rebuild.running import require_caught_up, shadow_context
from headwater_streams.backfill.repair import running as repair_running
from headwater_streams.backfill.repair.spec import BackfillPlan
from headwater_streams.backfill.rewind.spec import RewindPlan
from headwater_streams.backfill.rewind.swapping import versions_back_to
from headwater_streams.backfill.store import AnyPlan, BackfillError, BackfillFolder
from headwater_streams.plan.job import Job
from headwater_streams.runtime.context import StageContext


def preview(
    context: StageContext, folder: BackfillFolder, planned: AnyPlan, job: Job, limit: int
) -> dict[str, Change]:
    """The change of each table, the target's first; see `backfill.preview`."""
    if isinstance(planned, BackfillPlan):
        diffs = repair_running.preview(context, planned, job, limit)
        return {
            name: Change(diff=diffs[name], table_version=part.base_version)
            for name, part in planned.parts.items()
        }
    folder.require_open()
    if any(made_by(context.home.table(name), planned.id) for name in planned.tables):
        raise BackfillError(
            f"the backfill {planned.id!r} was swapped in, so its tables are not what it would change any more; the "
            "verdict has what it changed: headwater backfill verify"
        )
    if isinstance(planned, RewindPlan):
        made = versions_back_to(context, planned)
    else:
        found = planned_part(context, job, planned)
        require_caught_up(folder, planned)
        shadow = shadow_context(context, folder, planned).home
        made = newest_of(shadow, [target.name for target in found.job.targets])
    return changes_of(context, planned, made, limit)
