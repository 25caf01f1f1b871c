"""Rows that Spark takes to be ordered by columns that they do not have."""

from typing import Any

from pyspark.sql import DataFrame

from headwater_streams.spark.gateway import to_list


def without_foreign_order(rows: DataFrame) -> DataFrame:
    """The rows without Spark's statement of their order, where it names columns that they do not have.

    It does so after sorted aggregation (`max_by`, `max` of a string) where the key was computed below: a batch has the
    order of the executed plan and the columns of the analysed one. Spark's cache then raises "key not found".
    """
    jrows: Any = rows._jdf  # noqa: SLF001 - PySpark's only door to the plan
    plan = jrows.logicalPlan()
    columns = plan.outputSet()
    if all(order.references().subsetOf(columns) for order in to_list(plan.outputOrdering())):
        return rows
    session: Any = rows.sparkSession
    rdd = jrows.queryExecution().toRdd()
    return DataFrame(session._jsparkSession.internalCreateDataFrame(rdd, jrows.schema(), False), session)  # noqa: SLF001
