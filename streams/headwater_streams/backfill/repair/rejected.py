"""The records in quarantine, and the part of a job that put them there: what is read again after a mend."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater_streams.backfill.offsets import Offsets
from headwater_streams.backfill.refusal import Refusal
from headwater_streams.backfill.repair.spec import of_newest
from headwater_streams.backfill.store import NothingToRepairError
from headwater_streams.base.ledger_entry import Ranges
from headwater_streams.base.plural import quantity
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.stages.narrowing import FUNCTION, Place
from headwater_streams.sources.coordinates import OFFSET, PARTITION, PLACE, TOPIC


@dataclass(frozen=True)
class Rejected:
    """Records in quarantine.

    Attributes:
        ranges: From the first to the last of each partition, of those that the topic still holds.
        there: How many these are.
        gone: How many more the topic does not hold any more.
    """

    ranges: Ranges
    there: int
    gone: int

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know, each a sentence."""
        there, gone = (
            quantity(self.there, "record is", "records are"),
            quantity(self.gone, "more is", "more are"),
        )
        told = f"{there} in quarantine; what lies between the first and the last of a partition is read again, too"
        lost = f"{gone} gone from the topic, and stay in quarantine with their bytes"
        return (told, lost) if self.gone else (told,)


@dataclass(frozen=True, kw_only=True)
class RejectedOf:
    """The records of a partition that are in quarantine.

    Attributes:
        topic, partition: The partition.
        span: From the first of those that the topic still holds to past the last; None where it holds none.
        held: How many these are.
        rejected: How many there are in all.
    """

    topic: str
    partition: int
    span: tuple[int, int] | None
    held: int
    rejected: int


def rejecting_part(plans: Sequence[JobPlan], rejecting: Collection[str]) -> JobPlan | Refusal:
    """The part of a job whose records are in quarantine: of a stateful job that names topics, one that fills an ingest
    table, or, where none of these has any, the last, whose function raised for them. Several parts that have some are
    refused, and one that unites several inputs.

    Args:
        plans: The parts.
        rejecting: The tables of those that have some, of `reading_parts`.
    """
    reading = reading_parts(plans)
    if reading == [plans[-1]]:
        return plans[-1]
    found = [plan for plan in reading if plan.job.target.name in rejecting]
    if len(found) > 1 or any(plan.job.unites_for is not None for plan in found):
        inputs = [each.name for plan in found for each in plan.job.inputs.values()]
        tables, job = [plan.job.target.name for plan in found], plans[-1].job.name
        why = (
            "only one input's are read again at a time"
            if len(inputs) > 1
            else f"what {tables[0]} holds was made of them with what is looked up, of which no part is made again"
        )
        return Refusal(
            f"records of {', '.join(inputs)} are in quarantine, and {why}; make {' and '.join(tables)} anew, and what "
            f"follows behind: headwater backfill plan {job} --rebuild --table {tables[0]}, or all of the job's tables "
            f"from empty: headwater jobs rebuild {job} --ingest"
        )
    return found[0] if found else plans[-1]


def reading_parts(plans: Sequence[JobPlan]) -> list[JobPlan]:
    """The parts of a job that read its topics, or unite them."""
    return [plan for plan in plans if plan.job.topics or plan.job.unites_for is not None]


def rejecting_tables(context: StageContext, plans: Sequence[JobPlan]) -> set[str]:
    """The tables of the parts, of those that read topics or unite them, that have records in quarantine."""
    reading = reading_parts(plans)
    if reading == [plans[-1]]:
        return set()  # whose they are anyway
    return {plan.job.target.name for plan in reading if _has_rejected(context, plan)}


def rejected_to_mend(
    found: Sequence[RejectedOf], topics: Iterable[str], quarantine: str
) -> Rejected | Refusal:
    """The records in quarantine that can be read again.

    Args:
        found: Those of each partition.
        topics: The topics that were looked at.
        quarantine: The quarantine table.
    """
    ranges: dict[str, dict[int, tuple[int, int]]] = {}
    for each in found:
        if each.span is not None:
            ranges.setdefault(each.topic, {})[each.partition] = each.span
    there, gone = sum(each.held for each in found), sum(each.rejected - each.held for each in found)
    if not there and gone:
        return Refusal(
            f"no record of {', '.join(topics)} in {quarantine} can be read again ({quantity(gone, 'is', 'are')} there "
            "that the topic does not hold any more), so there is nothing to mend"
        )
    if not there:
        return Refusal(
            f"no record of {', '.join(topics)} is in {quarantine}, so there is nothing to do",
            NothingToRepairError,
        )
    return Rejected(ranges, there, gone)


def rejected_records(
    context: StageContext, plan: JobPlan, held: Ranges, made_again: Mapping[str, int]
) -> list[RejectedOf]:
    """The records in quarantine of a job's topics, or of the table that it reads.

    Args:
        context: The home.
        plan: The job.
        held: The offsets that can be read again, of each topic.
        made_again: The topics that were made again, each with the generation that began to read the newest one.
    """
    kept = Offsets.of([held]).condition() & of_newest(made_again)
    rejected = _not_behind(context, plan, _quarantined(context, plan, list(held)))
    offset = F.when(kept, F.col(OFFSET))
    rows = rejected.groupBy(TOPIC, PARTITION).agg(
        F.min(offset).alias("first"),
        F.max(offset).alias("last"),
        F.count(offset).alias("held"),
        F.count(F.lit(1)).alias("rejected"),
    )
    return [
        RejectedOf(
            topic=row[TOPIC],
            partition=row[PARTITION],
            span=(row["first"], row["last"] + 1) if row["held"] else None,
            held=row["held"],
            rejected=row["rejected"],
        )
        for row in rows.collect()
    ]


def _has_rejected(context: StageContext, plan: JobPlan) -> bool:
    # All parts of a job have one quarantine table; rows that one part unites may come by tables, of any topic.
    topics = None if plan.job.unites_for is not None else plan.job.topic_names
    return not _not_behind(context, plan, _quarantined(context, plan, topics)).isEmpty()


def _not_behind(context: StageContext, plan: JobPlan, rejected: DataFrame) -> DataFrame:
    """The records in quarantine, but those that a job's table has: the function of the part that reads it raised."""
    if not plan.job.comes_before:
        return rejected
    table = context.spark.read.format("delta").load(str(context.home.table(plan.job.target.name)))
    of_function = F.col("_check") == FUNCTION
    own = rejected.filter(of_function).join(table.select(*PLACE), list(PLACE), "left_anti")
    return rejected.filter(~of_function).unionByName(own)


def rejected_among(context: StageContext, quarantine: str, rows: DataFrame) -> frozenset[Place]:
    """The coordinates of those of some rows that stand in a quarantine table."""
    there = context.spark.read.format("delta").load(str(context.home.table(quarantine))).select(*PLACE)
    found = rows.select(*PLACE).join(there, list(PLACE), "left_semi").toArrow()
    return frozenset(zip(*(found[name].to_pylist() for name in PLACE), strict=True))


def _quarantined(context: StageContext, plan: JobPlan, topics: Sequence[str] | None) -> DataFrame:
    """The records in the quarantine table of a job's parts, of these topics, or all."""
    rows = context.spark.read.format("delta").load(str(context.home.table(plan.job.target.quarantine_table)))
    return rows if topics is None else rows.filter(F.col(TOPIC).isin(*topics))
