"""The records in quarantine, and the part of a job that put them there: what is read again after a mend."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater_streams.backfill.offsets import Offsets
from headwater_streams.backfill.repair.spec import of_newest
from headwater_streams.backfill.store import BackfillError, NothingToRepairError
from headwater_streams.base.ledger_entry import Ranges
from headwater_streams.base.plural import quantity
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.stages.narrowing import FUNCTION, Place
from headwater_streams.sources.coordinates import OFFSET, PARTITION, PLACE, TOPIC

_NO_END = 2**63 - 1


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


def rejecting_part(context: StageContext, plans: Sequence[JobPlan]) -> JobPlan:
    """The part of a job whose records are in quarantine: of a stateful job that names topics, one that fills an ingest
    table, or, where none of these has any, the last, whose function raised for them.

    Raises:
        BackfillError: Several parts have some, or one that unites several inputs.
    """
    reading = [plan for plan in plans if plan.job.topics or plan.job.unites_for is not None]
    if reading == [plans[-1]]:
        return plans[-1]
    found = [plan for plan in reading if _has_rejected(context, plan)]
    if len(found) > 1 or any(plan.job.unites_for is not None for plan in found):
        inputs = [each.name for plan in found for each in plan.job.inputs.values()]
        tables, job = [plan.job.target.name for plan in found], plans[-1].job.name
        why = (
            "only one input's are read again at a time"
            if len(inputs) > 1
            else f"what {tables[0]} holds was made of them with what is looked up, of which no part is made again"
        )
        raise BackfillError(
            f"records of {', '.join(inputs)} are in quarantine, and {why}; make {' and '.join(tables)} anew, and what "
            f"follows behind: headwater backfill plan {job} --rebuild --table {tables[0]}, or all of the job's tables "
            f"from empty: headwater jobs rebuild {job} --ingest"
        )
    return found[0] if found else plans[-1]


def rejected_records(
    context: StageContext, plan: JobPlan, read: Ranges, made_again: Mapping[str, int]
) -> Rejected:
    """The records in quarantine of a job's topics, or of the table that it reads.

    Args:
        context: The home, the record source.
        plan: The job.
        read: The offsets that it has read.
        made_again: The topics that were made again, each with the generation that began to read the newest one.

    Raises:
        NothingToRepairError: There are none.
        BackfillError: There are none that could be read again.
    """
    held = {topic: _held(context, topic) for topic in plan.job.topic_names} or read
    kept = Offsets.of([held]).condition() & of_newest(made_again)
    rejected = _not_behind(context, plan, _quarantined(context, plan, list(held)))
    found = rejected.groupBy(TOPIC, PARTITION)
    offset = F.when(kept, F.col(OFFSET))
    rows = found.agg(
        F.min(offset).alias("first"),
        F.max(offset).alias("last"),
        F.count(offset).alias("there"),
        F.count(F.lit(1)).alias("rejected"),
    ).collect()
    ranges: dict[str, dict[int, tuple[int, int]]] = {}
    for row in rows:
        if row["there"]:
            ranges.setdefault(row[TOPIC], {})[row[PARTITION]] = (row["first"], row["last"] + 1)
    there, gone = sum(row["there"] for row in rows), sum(row["rejected"] - row["there"] for row in rows)
    where = f"in {plan.job.target.quarantine_table}"
    if not there and gone:
        raise BackfillError(
            f"no record of {', '.join(held)} {where} can be read again ({quantity(gone, 'is', 'are')} there that the "
            "topic does not hold any more), so there is nothing to mend"
        )
    if not there:
        raise NothingToRepairError(f"no record of {', '.join(held)} is {where}, so there is nothing to do")
    return Rejected(ranges, there, gone)


def _held(context: StageContext, topic: str) -> dict[int, tuple[int, int]]:
    """What a topic still holds of each partition; up to any offset, as the range is cut to what was read."""
    return {partition: (first, _NO_END) for partition, (first, _) in context.source.partitions(topic).items()}


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
