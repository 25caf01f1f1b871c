"""Which columns of its topics a job does not look at, so that their values need not be made.

A record can be judged without its texts, and to make three of seven fields that nobody looked at was a fifth of what it
took to parse Nexmark's bids.
"""

from collections.abc import Iterable, Mapping

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from headwater_streams.base.names import may_name
from headwater_streams.operators.dedup import ByKey
from headwater_streams.plan.job import Job
from headwater_streams.plan.unions import input_of
from headwater_streams.sources.decode import needless
from headwater_streams.sources.inputs import TopicInput
from headwater_streams.spark.plan_shape import PlanNode, pruned_plan

# Nodes that need, of the rows below them, the columns that their expressions name and those that others need of them.
_NAMING = {
    "Project", "Filter", "Aggregate", "Join", "Generate", "Expand", "Window", "Sort", "SubqueryAlias", "CollectMetrics",
    "EventTimeWatermark", "ResolvedHint",
}  # fmt: skip


def unused_texts(
    job: Job, schemas: Mapping[str, T.StructType], results: Iterable[DataFrame]
) -> dict[str, frozenset[str]]:
    """The unused text columns of each topic that has some, by input.

    Args:
        job: The job.
        schemas: Its inputs' columns.
        results: What its function made of empty frames, each marked as its input.
    """
    texts: dict[str, set[str]] = {}
    for name, declared in job.inputs.items():
        if isinstance(declared, TopicInput):
            texts[name] = set(needless(declared, schemas[name]))
    if job.branches or not any(texts.values()):  # rows that several tables are made of are kept whole
        return {}
    for result in results:
        plan = pruned_plan(result)
        named = _named(plan)
        for leaf in plan.leaves:
            unread = texts.get(input_of(leaf) or "", set())
            unread -= {column.name for column in leaf.columns if column.id in named}
    expressions = " ".join(check.expression for check in job.checks)
    keys = job.dedup.columns if isinstance(job.dedup, ByKey) else ()
    return {
        name: frozenset(
            column for column in unread if column not in keys and not may_name(expressions, column)
        )
        for name, unread in texts.items()
    }


def _named(plan: PlanNode) -> set[int]:
    """The columns that a plan's nodes name, and those that it gives."""
    ids = {column.id for column in plan.columns}
    for node in plan.walk():
        ids |= node.named
        if node.kind not in _NAMING:
            ids |= {column.id for child in node.children for column in child.columns}
    return ids
