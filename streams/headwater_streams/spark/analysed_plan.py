"""The nodes of a job's plan that keep state, a line for each, so that two versions of a job can be compared."""

import re
from collections.abc import Iterator
from typing import Any, Literal

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame

from headwater_streams.spark.gateway import jvm_class, scala_object, to_list
from headwater_streams.spark.plain_ways import or_plainly

_ALIASED = re.compile(r"(?P<expression>.+) AS (?P<name>`(?:[^`]|``)+`|\w+) (?P<kind>.+)", re.DOTALL)
_OPENING, _CLOSING, _QUOTES = "(<[", ")>]", "'`\""
_STATELESS = {
    "Project", "Filter", "LocalRelation", "LogicalRDD", "SubqueryAlias", "View", "CollectMetrics", "EventTimeWatermark",
    "Relation", "LogicalRelation", "ResolvedHint", "UpdateEventTimeWatermarkColumn", "ExternalRDD",
}  # fmt: skip
_NUMBER = re.compile(r"#\d+L?")


def analysed_nodes(result: DataFrame) -> Iterator[Any]:
    """The nodes of a frame's analysed plan as the JVM has them, outermost first."""
    open_plans = [result._jdf.queryExecution().analyzed()]  # noqa: SLF001 - plans have no public door
    while open_plans:
        plan = open_plans.pop()
        yield plan
        open_plans += to_list(plan.children())


def state_shape(result: DataFrame) -> tuple[str, ...]:
    """The nodes of an analysed plan that keep state in a stream, outermost first.

    Each is its name, and its expressions with their types; expressions are Catalyst's SQL, in which columns have
    names and no numbers, so that the same function gives the same lines in every session.
    """
    return tuple(_line(plan) for plan in analysed_nodes(result) if str(plan.nodeName()) not in _STATELESS)


def whole_shape(result: DataFrame) -> tuple[str, ...]:
    """All nodes of an analysed plan but its leaves, outermost first, each as in `state_shape`."""
    return tuple(_line(plan) for plan in analysed_nodes(result) if not plan.children().isEmpty())


def aliased_columns(expressions: str) -> tuple[dict[str, tuple[str, str]], list[str]]:
    """The columns that a node computes under a name, each with its expression and type, and its other expressions; all
    from the node's line in `state_shape`.

    Example:
        >>> aliased_columns("who string, max(least(n, 5)) AS most int")
        ({'most': ('max(least(n, 5))', 'int')}, ['who string'])
    """
    aliased, others = {}, []
    for each in _parts(expressions):
        match = _ALIASED.fullmatch(each)
        if match is None:
            others.append(each)
        else:
            aliased[match["name"].strip("`")] = (match["expression"], match["kind"])
    return aliased, others


def _parts(listed: str) -> list[str]:
    """The parts between commas, except commas within brackets and quotes."""
    parts, depth, quote = [""], 0, ""
    for at, one in enumerate(listed):
        if quote:
            quote = "" if one == quote else quote
        elif one in _QUOTES:
            quote = one
        elif one in _OPENING and (one != "<" or listed[at - 1].isalpha()):  # in a type, not a comparison
            depth += 1
        elif one in _CLOSING and (one != ">" or listed[at - 1] not in "-= "):
            depth -= 1
        if one == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += one
    return [part.strip() for part in parts]


def _leave_to_start(_result: DataFrame, _mode: Literal["append", "update"]) -> None:
    """Spark looks at the plan when the query is started."""


@or_plainly(_leave_to_start)
def check_for_streaming(result: DataFrame, mode: Literal["append", "update"]) -> None:
    """Has Spark's own checker check a stream's plan before a query is started.

    Raises:
        PySparkException: Spark would refuse the query.
    """
    spark = result.sparkSession
    modes = jvm_class(spark, "org.apache.spark.sql.streaming.OutputMode")
    output_mode = modes.Append() if mode == "append" else modes.Update()
    checker = scala_object(spark, "org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker")
    checker.checkForStreaming(result._jdf.queryExecution().analyzed(), output_mode)  # noqa: SLF001 - as above


def _line(plan: Any) -> str:
    expressions = ", ".join(_describe_expression(each) for each in to_list(plan.expressions()))
    return f"{plan.nodeName()}({expressions})"


def _describe_expression(expression: Any) -> str:
    try:
        return f"{expression.sql()} {expression.dataType().simpleString()}"
    except Py4JJavaError:  # an expression without SQL or type of its own, such as an order
        return _NUMBER.sub("", str(expression.toString()))
