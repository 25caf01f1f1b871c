"""Whether a function's result has a row for each row that it was given.

Each observation ends a piece of compiled code and copies every row. Where the function only computes columns, what
comes out of it needs none of its own: it is what passed.
"""

from pyspark.sql import DataFrame

from headwater_streams.spark.plain_ways import or_plainly

# An expression that is more than a projection (a generator, a window, an aggregate) has a node of its own.
_KEEPING = frozenset({"Project", "SubqueryAlias", "CollectMetrics", "EventTimeWatermark"})


def _not_known(_result: DataFrame, _observation: str) -> bool:
    return False


@or_plainly(_not_known)
def only_projects(result: DataFrame, observation: str) -> bool:
    """Whether nothing but projections stands between a result and the filter behind an observation.

    Args:
        result: What the function gave.
        observation: Its name; a filter upon it leaves the rows that the function is given.
    """
    node = result._jdf.queryExecution().analyzed()  # noqa: SLF001 - no public door to a plan's nodes
    while (kind := str(node.nodeName())) in _KEEPING:
        node = node.child()
    if kind != "Filter":
        return False
    below = node.child()
    return str(below.nodeName()) == "CollectMetrics" and str(below.name()) == observation
