"""The job behind a backfill, held against the plan's fingerprint, and against what the rows that it reads came of."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from headwater_streams.backfill.refusal import Refusal
from headwater_streams.backfill.store import AnyPlan, BackfillError
from headwater_streams.delta.delta_table import read_version
from headwater_streams.ledger.log import next_commit
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.compatibility import Difference, since_last_run
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


@dataclass(frozen=True, kw_only=True)
class PartsBefore:
    """The parts of a job before the one that a backfill is of, and what their tables hold.

    Attributes:
        plans: Those that feed it, as they are now.
        differences: From their last runs, by table, of parts that do some of what the job's function does.
        columns: Those of each table that there is.
        of_other_code: The tables that have rows which other code made.
    """

    plans: Sequence[JobPlan] = ()
    differences: Mapping[str, Sequence[Difference]] = field(default_factory=dict)
    columns: Mapping[str, Collection[str]] = field(default_factory=dict)
    of_other_code: Collection[str] = frozenset()

    def refusal(self, job: str) -> Refusal | None:
        """Why no backfill reads what they made: other code made it, whose rows a backfill would take for those of now,
        or a table was made before a column was declared, so its rows have none.

        Args:
            job: The job's name.
        """
        for table, found in self.differences.items():
            differs = [each for each in found if each.remedy == "rebuild"]
            if differs:
                return Refusal(
                    f"the job {job!r} differs from its last run before its last operator "
                    f"({'; '.join(map(str, differs))}), and a backfill reads the rows that were made then; make these "
                    f"anew first, and what follows behind them: headwater backfill plan {job} --rebuild --table "
                    f"{table}, or build all of its tables from empty: headwater jobs rebuild {job}"
                )
        for part in self.plans:
            name = part.job.target.name
            there = self.columns.get(name, part.result.fieldNames())
            missing = [column for column in part.result.fieldNames() if column not in there]
            if missing:
                return Refusal(
                    f"{name} was made without the column {missing[0]}, which the job {job!r} reads now; make it anew "
                    f"first, and what follows behind it: headwater backfill plan {job} --rebuild --table {name}, or "
                    f"build all of its tables from empty: headwater jobs rebuild {job} --ingest"
                )
        return None

    def notes(self, job: str) -> tuple[str, ...]:
        """Which of their tables have rows that other code made, a sentence each.

        Args:
            job: The job's name.
        """
        return tuple(
            f"{name} has rows of when the job's code, its topics' columns or its checks were others, and what those "
            "let in or left out there stays so; to make it anew first, and this behind it: headwater backfill plan "
            f"{job} --rebuild --table {name}"
            for name in (part.job.target.name for part in self.plans)
            if name in self.of_other_code
        )


def parts_before(context: StageContext, plans: Sequence[JobPlan], working: Sequence[JobPlan]) -> PartsBefore:
    """Looks at the parts of a job before the one that a backfill is of.

    Args:
        context: The home.
        plans: Those that feed it.
        working: Those whose rows must be what their code would make now.
    """
    home, columns = context.home, {}
    for name in (part.job.target.name for part in plans):
        version = next_commit(home.table(name)) - 1
        if version >= 0:
            columns[name] = read_version(context.spark, home.table(name), version).columns
    return PartsBefore(
        plans=plans,
        differences={
            part.job.target.name: since_last_run(context, part) for part in working if part.job.comes_before
        },
        columns=columns,
        of_other_code={part.job.target.name for part in plans if has_rows_of_other_code(context, part)},
    )


def refused_chain(plans: Sequence[JobPlan]) -> Refusal | None:
    """Refuses a job of several operators: behind a second one offsets and times do not tell what was made of what."""
    if not any(plan.job.is_step for plan in plans):
        return None
    name = plans[-1].job.name
    return Refusal(
        f"the job {name!r} is a chain of operators, and no part of its rows can be repaired; make all rows of its "
        "last operator again, headwater backfill plan JOB --rebuild, or build all of its tables from empty: "
        f"headwater jobs rebuild {name}"
    )
