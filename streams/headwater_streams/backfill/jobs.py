"""The job behind a backfill, held against the plan's fingerprint, and against what the rows that it reads came of."""

from collections.abc import Sequence

from headwater_streams.backfill.store import AnyPlan, BackfillError
from headwater_streams.delta.delta_table import read_version
from headwater_streams.ledger.log import next_commit
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.compatibility import since_last_run
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.renewal import has_rows_of_other_code


def require_planned(found: JobPlan, planned: AnyPlan) -> JobPlan:
    """The job, if it is the one that was planned.

    Raises:
        BackfillError: Its code or its declaration was changed since.
    """
    if (found.job.name, found.job.fingerprint) != (planned.job, planned.fingerprint):
        raise BackfillError(
            f"the backfill {planned.id!r} was planned for the job {planned.job!r}, code {planned.fingerprint}, "
            f"and this is {found.job.name!r}, code {found.job.fingerprint}; plan again"
        )
    return found


def feeding(plans: Sequence[JobPlan], part: JobPlan) -> list[JobPlan]:
    """The parts of a job that a part of it reads, directly or by way of others, in their order."""
    wanted = {table.name for table in part.job.tables}
    found: list[JobPlan] = []
    for each in reversed(plans[: plans.index(part)]):
        if each.job.target.name in wanted:
            wanted |= {table.name for table in each.job.tables}
            found.insert(0, each)
    return found


def require_made_alike(context: StageContext, job: str, parts: Sequence[JobPlan]) -> None:
    """Sees to it that the rows that come to a part of a job, of a union or of steps of a chain, are those that its code
    would make now.

    Args:
        context: The home.
        job: The job's name.
        parts: Its parts before that one, as they are now.

    Raises:
        BackfillError: They were made by other code; the part alone would be made of them again.
    """
    for part in (part for part in parts if part.job.comes_before):
        differs = [each for each in since_last_run(context, part) if each.remedy == "rebuild"]
        if differs:
            raise BackfillError(
                f"the job {job!r} differs from its last run before its last operator ({'; '.join(map(str, differs))}), "
                "and a backfill reads the rows that were made then; make these anew first, and what follows behind "
                f"them: headwater backfill plan {job} --rebuild --table {part.job.target.name}, or build all of its "
                f"tables from empty: headwater jobs rebuild {job}"
            )


def require_their_columns(context: StageContext, job: str, parts: Sequence[JobPlan]) -> None:
    """Sees to it that the tables before a part of a job have the columns that its topics have now.

    Raises:
        BackfillError: One was made before a column was declared, so its rows have none.
    """
    for part in parts:
        name = part.job.target.name
        version = next_commit(context.home.table(name)) - 1
        if version < 0:
            continue
        there = read_version(context.spark, context.home.table(name), version).columns
        missing = [column for column in part.result.fieldNames() if column not in there]
        if missing:
            raise BackfillError(
                f"{name} was made without the column {missing[0]}, which the job {job!r} reads now; make it anew "
                f"first, and what follows behind it: headwater backfill plan {job} --rebuild --table {name}, or build "
                f"all of its tables from empty: headwater jobs rebuild {job} --ingest"
            )


def made_by_others(context: StageContext, job: str, parts: Sequence[JobPlan]) -> tuple[str, ...]:
    """Which of the tables before a part of a job have rows that other code made, a sentence each."""
    return tuple(
        f"{part.job.target.name} has rows of when the job's code, its topics' columns or its checks were others, and "
        "what those let in or left out there stays so; to make it anew first, and this behind it: headwater backfill "
        f"plan {job} --rebuild --table {part.job.target.name}"
        for part in parts
        if has_rows_of_other_code(context, part)
    )


def require_no_chain(plans: Sequence[JobPlan]) -> None:
    """Sees to it that a job has one operator: what was made of what cannot be told by offsets or times behind a second.

    Raises:
        BackfillError: It has several.
    """
    if any(plan.job.is_step for plan in plans):
        name = plans[-1].job.name
        raise BackfillError(
            f"the job {name!r} is a chain of operators, and no part of its rows can be repaired; make all rows of its "
            "last operator again, headwater backfill plan JOB --rebuild, or build all of its tables from empty: "
            f"headwater jobs rebuild {name}"
        )
