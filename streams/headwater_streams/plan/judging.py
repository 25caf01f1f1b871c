"""Which checks a kind of job can judge in its own pass."""

from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.base.rule import KeysRule
from headwater_streams.delta.scd_target import ScdTarget
from headwater_streams.plan.plan import JobPlan
from headwater_streams.quality.rules.schema import Columns


def require_judgeable(plan: JobPlan) -> None:
    """Checks that a job's rules can be judged of what it writes.

    Unique keys, references and columns are judged of the files that a batch wrote, and only a job of rows has a batch's
    files to itself: windows and joins replace rows of earlier ones.

    Raises:
        JobDefinitionError: One cannot, or its name is what the quarantine calls events without a key.
    """
    target = plan.job.target
    keys = (*target.keys, target.sequence_by) if isinstance(target, ScdTarget) else ()
    for check in plan.job.quarantining:
        if check.name in keys:
            raise JobDefinitionError(
                f"job {plan.job.name!r}: check {check.name!r}: events without a {check.name} go to quarantine under "
                "this name, and would count as this check's; call it otherwise"
            )
    for check in plan.job.checks:
        if not isinstance(check.rule, KeysRule | Columns):
            continue
        if check.on == "input":
            raise JobDefinitionError(
                f"job {plan.job.name!r}: check {check.name!r} ({check.text}) judges the rows that are written; leave "
                "on= out"
            )
        if plan.kind != "row":
            raise JobDefinitionError(
                f"job {plan.job.name!r}: check {check.name!r} ({check.text}) is of jobs that write row by row; put it "
                "on the job whose table this one reads"
            )
