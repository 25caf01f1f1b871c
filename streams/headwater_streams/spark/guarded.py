"""A check's condition as columns that never raise: where it would raise for a row, it does not hold, and says so.

Under ANSI SQL a division by zero, a cast of what is no number, an index beyond an array's end, an overflow and
`to_timestamp` raise. In a pass over a batch one such row would end the batch, and each retry of it. Catalyst's
`TryEval` gives NULL where its expression raises, at no cost for other rows. (Source: Spark's `try_add` and its kin are
made of it.) An aggregate raises in two places: where it takes a row, and where its result is computed.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater_streams.base.condition import AGGREGATES
from headwater_streams.spark.expressions import column_of, expression_of
from headwater_streams.spark.gateway import jvm_class, scala_object, to_list, to_seq
from headwater_streams.spark.plain_ways import or_plainly

_CATALYST = "org.apache.spark.sql.catalyst.expressions"
_PLAIN = frozenset({"UnresolvedAttribute", "Literal", "UnresolvedStar"})
"""Expressions that cannot raise."""
_SAFE = frozenset({
    "Alias", "And", "ArrayContains", "AttributeReference", "Between", "CaseWhen", "Coalesce",
    "CommonExpressionDef", "CommonExpressionRef", "Contains", "EndsWith", "EqualNullSafe", "EqualTo",
    "GetStructField", "GreaterThan", "GreaterThanOrEqual", "If", "In", "IsNaN", "IsNotNull", "IsNull",
    "Length", "LessThan", "LessThanOrEqual", "Like", "Literal", "Lower", "Not", "Or", "Size", "StartsWith",
    "StringTrim", "StringTrimLeft", "StringTrimRight", "Upper", "With",
})  # fmt: skip
"""Expressions that cannot raise where their children cannot; casts that lose nothing come on top."""
_AGGREGATE, _VALUE = "Aggregate", "value"
TRIED = _VALUE
"""The field of what `tried` gives."""


def violates(condition: str, rows: DataFrame | None = None) -> Column:
    """Whether a condition does not hold for a row: it is false or NULL, or it raises. The column is never NULL.

    Args:
        condition: The condition, in SQL.
        rows: A frame with the condition's columns, where there is one: a condition that cannot raise for these needs
            no guard.
    """
    tries = rows is None or may_raise(rows, condition)
    holds = _tried_condition(_jvm(), condition)[_VALUE] if tries else F.expr(condition)
    return ~F.coalesce(holds, F.lit(False))


def raises(condition: str) -> Column:
    """Whether a condition raises for a row; it is never NULL."""
    return _tried_condition(_jvm(), condition).isNull()


def tried(value: str, over: Column) -> Column:
    """A value as a struct of one field, `TRIED`; the struct is NULL for a row for which the value raises.

    Args:
        value: The value, in SQL.
        over: A column of the rows, of any type.
    """
    return _tried(expression_of(F.expr(value)), _always(over))


def _may_always(_rows: DataFrame, _condition: str) -> bool:
    return True


@or_plainly(_may_always)
def may_raise(rows: DataFrame, condition: str) -> bool:
    """Whether a condition may raise for some row of these columns: one that only compares or tests for NULL cannot."""
    spark, schema = rows.sparkSession, rows._jdf.schema()  # noqa: SLF001 - a Python schema takes a millisecond
    return _may_raise(_Of(spark._jvm, schema.json(), condition, schema))  # noqa: SLF001 - as in `judged`


class _Of(NamedTuple):
    jvm: Any
    json: str
    condition: str
    schema: Any

    def __hash__(self) -> int:
        return hash((self.json, self.condition))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Of) and self[:3] == other[:3]


@lru_cache(1024)
def _may_raise(of: _Of) -> bool:
    spark = SparkSession.active()
    session: Any = spark._jsparkSession  # noqa: SLF001 - as above
    rows = DataFrame(session.createDataFrame(jvm_class(spark, "java.util.ArrayList")(), of.schema), spark)
    plan = rows.select(F.expr(of.condition))._jdf.queryExecution().analyzed()  # noqa: SLF001
    return not all(_is_safe(expression) for expression in to_list(plan.expressions()))


def arguments_that_may_raise(aggregated: DataFrame) -> list[Column]:
    """The arguments of a frame's aggregates that may raise for a row; NULL for a row that an aggregate's FILTER leaves
    out. Empty for aggregates that the analyser has rewritten."""
    aggregate = aggregated._jdf.queryExecution().analyzed()  # noqa: SLF001 - as above
    arguments: list[Column] = []
    open_expressions = to_list(aggregate.expressions()) if str(aggregate.nodeName()) == _AGGREGATE else []
    while open_expressions:
        expression = open_expressions.pop()
        if _kind(expression) != "AggregateExpression":
            open_expressions += to_list(expression.children())
            continue
        risky = [
            column_of(each)
            for each in to_list(expression.aggregateFunction().children())
            if not _is_safe(each)
        ]
        if expression.filter().isDefined():
            which = expression.filter().get()
            risky = [
                F.when(column_of(which), each) for each in risky or ([] if _is_safe(which) else [F.lit(1)])
            ]
        arguments += risky
    return arguments


def judged(condition: str) -> tuple[Column, Column]:
    """A condition over aggregates as two of them: whether it holds, and whether anything on the way to it raises.

    NULL holds: the average of no rows is NULL, and an empty batch breaks nothing.
    """
    return _judged(_jvm(), condition)


def measured(aggregate: str) -> Column:
    """An aggregate's value; a row for which its argument raises counts as one with NULL, and NULL is what comes where
    its result cannot be computed."""
    return _measured(_jvm(), aggregate)


def _jvm() -> Any:
    """The JVM that cached columns belong to."""
    return SparkSession.active()._jvm  # noqa: SLF001 - PySpark's only door to the JVM


@lru_cache(256)
def _tried_condition(_: Any, condition: str) -> Column:
    """A condition on rows, `_tried`; cached, as it takes a dozen calls to the JVM."""
    return _tried(expression_of(F.expr(condition)))


@lru_cache(256)
def _judged(_: Any, condition: str) -> tuple[Column, Column]:
    arguments: list[Any] = []
    guarded = _guarded(SparkSession.active(), expression_of(F.expr(condition)), arguments)
    result = _tried(guarded, F.count(F.lit(1)) >= 0)
    raised = result.isNull()
    for expression in arguments:
        raised |= F.count_if(_tried(expression).isNull()) > 0
    return F.coalesce(result[_VALUE], F.lit(True)), raised


@lru_cache(256)
def _measured(_: Any, aggregate: str) -> Column:
    guarded = _guarded(SparkSession.active(), expression_of(F.expr(aggregate)), [])
    return _tried(guarded, F.count(F.lit(1)) >= 0)[_VALUE]


def _tried(expression: Any, always: Column | None = None) -> Column:
    """The value as a struct of one field; the struct is NULL for a row for which the value raises.

    Spark would compute a part that several values share once, before all of them and outside of `TryEval`, as if each
    were always needed. It does not do so for a part of a branch. So the value stands in a branch, under a condition
    that is always true and that Spark cannot see through.

    Args:
        expression: The value.
        always: That condition; by default one over a column that the value is computed from.
    """
    tried = column_of(_try_eval(expression_of(F.struct(column_of(expression).alias(_VALUE)))))
    if always is None:
        named = _first_attribute(expression)
        if named is None:
            return tried
        always = _always(column_of(named))
    return F.when(always, tried)


def _always(column: Column) -> Column:
    """A condition that holds for each value of a column, which Spark does not see."""
    # Of any type: no hash is made of a MAP or a VARIANT.
    return F.size(F.array_repeat(column, 1)) == 1


def _first_attribute(expression: Any) -> Any | None:
    if _kind(expression) == "UnresolvedAttribute":
        return expression
    if _kind(expression) == "LambdaFunction":
        return None
    attributes = (_first_attribute(child) for child in to_list(expression.children()))
    return next((each for each in attributes if each is not None), None)


def _guarded(spark: SparkSession, expression: Any, arguments: list[Any]) -> Any:
    """An expression whose aggregates' arguments are under `TryEval`; the arguments are added to `arguments`."""
    if _kind(expression) == "UnresolvedFunction" and _is_aggregate(expression):
        return _with_children(spark, expression, lambda child: _argument(spark, child, arguments))
    return _with_children(spark, expression, lambda child: _guarded(spark, child, arguments))


def _argument(spark: SparkSession, expression: Any, arguments: list[Any]) -> Any:
    kind = _kind(expression)
    if kind in _PLAIN:
        return expression
    if kind == "SortOrder":
        return _with_children(spark, expression, lambda child: _argument(spark, child, arguments))
    arguments.append(expression)
    return expression_of(_tried(expression)[_VALUE])


def _is_aggregate(function: Any) -> bool:
    # By name: Spark 4.2's registry wants a catalog and a namespace, and puts some aggregates into another group.
    return str(to_list(function.nameParts())[-1]).lower() in AGGREGATES


def _is_safe(expression: Any) -> bool:
    kind = _kind(expression)
    if kind == "Cast":
        cast = scala_object(SparkSession.active(), f"{_CATALYST}.Cast")
        if not cast.canUpCast(expression.child().dataType(), expression.dataType()):
            return False
    elif kind not in _SAFE:
        return False
    return all(_is_safe(child) for child in to_list(expression.children()))


def _with_children(spark: SparkSession, expression: Any, change: Callable[[Any], Any]) -> Any:
    children = to_list(expression.children())
    changed = [change(child) for child in children]
    if all(old is new for old, new in zip(children, changed, strict=True)):
        return expression
    return expression.withNewChildren(to_seq(spark, changed))


def _kind(expression: Any) -> str:
    return str(expression.getClass().getSimpleName())


def _try_eval(expression: Any) -> Any:
    return jvm_class(SparkSession.active(), f"{_CATALYST}.TryEval")(expression)
