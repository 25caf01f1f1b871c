"""Whether a function's result has a row for each input row.

Each observation ends a piece of compiled code and copies every row. Where the function only computes columns, its
result needs no observation of its own: it has as many rows as its input.
"""

from pyspark.sql import DataFrame

from headwater_streams.spark.plain_ways import or_plainly

# An expression that is more than a projection (a generator, a window, an aggregate) has a node of its own.
_KEEPING = frozenset({"Project", "SubqueryAlias", "CollectMetrics", "EventTimeWatermark"})


def _never(_result: DataFrame, _observation: str) -> bool:
    return False


@or_plainly(_never)
def only_projects(result: DataFrame, observation: str) -> bool:
    """Whether only projections stand between a result and the filter after an observation.

    Args:
        result: The function's result.
        observation: The observation's name; the filter upon it leaves the function's input rows.
    """
    node = result._jdf.queryExecution().analyzed()  # noqa: SLF001 - no public door to a plan's nodes
    while (kind := str(node.nodeName())) in _KEEPING:
        node = node.child()
    if kind != "Filter":
        return False
    below = node.child()
    return str(below.nodeName()) == "CollectMetrics" and str(below.name()) == observation
