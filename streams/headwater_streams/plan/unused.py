"""Which columns of its topics a job does not look at, so that their values need not be made.

A record can be judged without its texts, and to make three of seven fields that nobody looked at was a fifth of what it
took to parse Nexmark's bids.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from headwater_streams.base.names import quoted
from headwater_streams.operators.dedup import ByKey
from headwater_streams.plan.job import Job
from headwater_streams.plan.unions import input_of
from headwater_streams.sources.decode import needless
from headwater_streams.sources.inputs import TopicInput
from headwater_streams.spark.analysed_plan import nodes_of
from headwater_streams.spark.gateway import scala_object, to_list

_NUMBER = re.compile(r"#(\d+)")
# What takes of the rows below it those columns that its expressions name, and those that are taken of itself.
_NAMING = {
    "Project", "Filter", "Aggregate", "Join", "Generate", "Expand", "Window", "Sort", "SubqueryAlias", "CollectMetrics",
    "EventTimeWatermark", "ResolvedHint",
}  # fmt: skip
_MOST_PASSES = 20


def unused_texts(
    job: Job, schemas: Mapping[str, T.StructType], results: Iterable[DataFrame]
) -> dict[str, frozenset[str]]:
    """The columns by input, of the topics that have some.

    Args:
        job: The job.
        schemas: Its inputs' columns.
        results: What its function made of empty frames, each marked as its input.
    """
    found: dict[str, set[str]] = {}
    for name, declared in job.inputs.items():
        if isinstance(declared, TopicInput):
            found[name] = set(needless(declared, schemas[name]))
    if job.branches or not any(found.values()):  # rows that several tables are made of are kept whole
        return {}
    for result in results:
        plan = _pruned(result)
        named = _named(plan)
        for leaf in to_list(plan.collectLeaves()):
            left = found.get(input_of(leaf) or "", set())
            if left:
                left -= {str(c.name()) for c in to_list(leaf.output()) if str(c.exprId().id()) in named}
    told = " ".join(check.expression for check in job.checks)
    keys = job.dedup.columns if isinstance(job.dedup, ByKey) else ()
    return {
        name: frozenset(column for column in left if column not in keys and not _is_in(column, told))
        for name, left in found.items()
    }


def _pruned(result: DataFrame) -> Any:
    """A frame's plan, in which each node takes what those above it need."""
    pruning = scala_object(result.sparkSession, "org.apache.spark.sql.catalyst.optimizer.ColumnPruning")
    plan = result._jdf.queryExecution().analyzed()  # noqa: SLF001 - plans have no public door
    for _ in range(_MOST_PASSES):
        before, plan = plan, pruning.apply(plan)
        if plan.fastEquals(before):
            break
    return plan


def _named(plan: Any) -> set[str]:
    """The numbers of the columns that a plan's nodes name, and of those that it gives."""
    taken = [plan.output()]
    for node in nodes_of(plan):
        taken.append(node.references())
        if str(node.nodeName()) not in _NAMING:
            taken += [child.output() for child in to_list(node.children())]
    return {number for each in taken for number in _NUMBER.findall(str(each))}


def _is_in(column: str, text: str) -> bool:
    """Whether SQL may name a column: it does, or a word of it, or of a text in it, is the same."""
    return any(
        re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE) is not None
        for name in (column, quoted(column))
    )
