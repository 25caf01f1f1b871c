"""Backfills: rewind offsets, rebuild a range aside, prove it, swap it in.

    planned = plan(context, job, event_time=("2013-01-01", "2013-02-01"))
    preview(context, planned.id, job)       # the keyed diff; nothing is written
    run(context, planned.id, job)           # into a shadow; killed, it goes on where it was
    verify(context, planned.id, job)        # the verdict is stored with the plan
    swap(context, planned.id)               # one commit
    rollback(context, planned.id)           # one commit back

A backfill *repairs* a closed range of what a live job wrote, with the job's code as it is now. The job's checkpoint
stays where it is, and it may run meanwhile. Ranges are half-open everywhere. The jobs that read the table, `feeds` of
the plan, pass over the swap: what they made of the range is repaired behind it, by the same offsets. Repairs are of
row-by-row jobs, of windows of fixed times, of sessions and of joins of two streams (as-of, inner, left, right, full,
semi), whose range is one of left rows, with the right rows near them where these are written alone, too; what came late
is folded in.

`plan_rebuild` makes a whole table anew beside the live one, and `plan_rewind` puts table, checkpoint and offsets back
to an earlier commit, one of `versions`; the other verbs are the same. A table that feeds jobs is rebuilt with those
behind it: `plan_rebuild(context, job, behind=[planned.id])` reads what another rebuild has made, and is swapped in
after it. So are the tables in front of a job's own, where the checks or the columns of its topic were changed, or code
before the last operator: `plan_rebuild(context, job, table="gold.busiest__step_1")`, and what follows behind that.
"""

from headwater_streams.backfill.estimate import estimated_s
from headwater_streams.backfill.progress import Progress
from headwater_streams.backfill.rebuild.planning import plan_rebuild
from headwater_streams.backfill.repair.planning import plan
from headwater_streams.backfill.repair.spec import BackfillPlan
from headwater_streams.backfill.rewind.planning import plan_rewind
from headwater_streams.backfill.rewind.spec import RewindPlan
from headwater_streams.backfill.rewind.versions import BatchVersion, versions
from headwater_streams.backfill.status import abort, list_backfills, pause, resume, status
from headwater_streams.backfill.store import BackfillError, NothingToRepairError
from headwater_streams.backfill.verbs import preview, preview_tables, rollback, run, swap, verify
from headwater_streams.backfill.verdict import Finding, Verdict

__all__ = [
    "BackfillError",
    "BackfillPlan",
    "BatchVersion",
    "Finding",
    "NothingToRepairError",
    "Progress",
    "RewindPlan",
    "Verdict",
    "abort",
    "estimated_s",
    "list_backfills",
    "pause",
    "plan",
    "plan_rebuild",
    "plan_rewind",
    "preview",
    "preview_tables",
    "resume",
    "rollback",
    "run",
    "status",
    "swap",
    "verify",
    "versions",
]
