"""Columns as Catalyst's expressions and back: PySpark has no functions for some of Spark's expressions."""

from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql.classic.column import Column as ClassicColumn

from headwater_streams.spark.gateway import jvm_class, scala_object


def expression_of(column: Column) -> Any:
    """A column as an expression."""
    converter = scala_object(
        SparkSession.active(), "org.apache.spark.sql.classic.ColumnNodeToExpressionConverter"
    )
    jcolumn: Any = column._jc  # noqa: SLF001 - PySpark's only door to a column's expression
    return converter.apply(jcolumn.node())


def column_of(expression: Any) -> Column:
    """An expression as a column."""
    utils = jvm_class(SparkSession.active(), "org.apache.spark.sql.classic.ExpressionUtils")
    return ClassicColumn(utils.column(expression))
