"""A check's condition as columns that no row can stop: what raises for a row holds for none, and is told.

Under ANSI SQL a division by zero, a cast of what is no number, an index beyond an array's end, an overflow and
`to_timestamp` raise. In a pass over a batch that would end the batch, for one row, and each time that it is tried
again. Catalyst's `TryEval` makes NULL of whatever raises below it, at no cost for rows that do not. (Source: Spark's
`try_add` and its kin are made of it.) An aggregate raises in two places: where it takes a row, and where its result is
worked out.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

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
"""Expressions that cannot raise, nor those that they are made of then; casts besides that lose nothing."""
_AGGREGATE, _VALUE = "Aggregate", "value"
_GREATEST_HASH = 2**31 - 1


def violates(condition: str, rows: DataFrame | None = None) -> Column:
    """Whether a condition does not hold for a row: false, NULL, or not to be worked out. It is never NULL.

    Args:
        condition: The condition, in SQL.
        rows: A frame with the columns that it speaks of, where there is one: a condition that cannot raise for these
            needs nothing that catches it.
    """
    tries = rows is None or may_raise(rows, condition)
    holds = _tried_condition(_jvm(), condition)[_VALUE] if tries else F.expr(condition)
    return ~F.coalesce(holds, F.lit(False))


def raises(condition: str) -> Column:
    """Whether a condition cannot be worked out for a row; it is never NULL."""
    return _tried_condition(_jvm(), condition).isNull()


def _may_always(_rows: DataFrame, _condition: str) -> bool:
    return True


@or_plainly(_may_always)
def may_raise(rows: DataFrame, condition: str) -> bool:
    """Whether a condition may raise for some row of such columns: unless it only compares, or looks for NULL."""
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
    """What the aggregates of a frame take of each row, where it may raise; NULL for a row that an aggregate's FILTER
    leaves out. Nothing is known of aggregates that the analyser took apart."""
    aggregate = aggregated._jdf.queryExecution().analyzed()  # noqa: SLF001 - as above
    found: list[Column] = []
    open_expressions = to_list(aggregate.expressions()) if str(aggregate.nodeName()) == _AGGREGATE else []
    while open_expressions:
        expression = open_expressions.pop()
        if _kind(expression) != "AggregateExpression":
            open_expressions += to_list(expression.children())
            continue
        taken = [
            column_of(each)
            for each in to_list(expression.aggregateFunction().children())
            if not _is_safe(each)
        ]
        if expression.filter().isDefined():
            which = expression.filter().get()
            taken = [
                F.when(column_of(which), each) for each in taken or ([] if _is_safe(which) else [F.lit(1)])
            ]
        found += taken
    return found


def judged(condition: str) -> tuple[Column, Column]:
    """A condition over aggregates as two of them: whether it holds, and whether anything on the way to it raises.

    NULL holds: the average of no rows is NULL, and an empty batch breaks nothing.
    """
    return _judged(_jvm(), condition)


def _jvm() -> Any:
    """What columns that are kept belong to."""
    return SparkSession.active()._jvm  # noqa: SLF001 - PySpark's only door to the JVM


@lru_cache(256)
def _tried_condition(_: Any, condition: str) -> Column:
    """A condition on rows, `_tried`; made once, for it takes a dozen calls to the JVM."""
    return _tried(expression_of(F.expr(condition)))


@lru_cache(256)
def _judged(_: Any, condition: str) -> tuple[Column, Column]:
    taken: list[Any] = []
    guarded = _guarded(SparkSession.active(), expression_of(F.expr(condition)), taken)
    result = _tried(guarded, F.count(F.lit(1)) >= 0)
    raised = result.isNull()
    for expression in taken:
        raised |= F.count_if(_tried(expression).isNull()) > 0
    return F.coalesce(result[_VALUE], F.lit(True)), raised


def _tried(expression: Any, always: Column | None = None) -> Column:
    """The value as a struct of one field, NULL for each row for which it raises.

    What stands in several of them Spark would work out once, before all and outside: it does not see that one is not
    always wanted. In a branch it sees that, or takes it for granted; so there is a condition that is always true and
    that it knows nothing of.

    Args:
        expression: The value.
        always: That condition; by default one over a column that the value is made of.
    """
    found = column_of(_try_eval(expression_of(F.struct(column_of(expression).alias(_VALUE)))))
    if always is None:
        named = _first_attribute(expression)
        if named is None:
            return found
        always = F.hash(column_of(named)) <= _GREATEST_HASH
    return F.when(always, found)


def _first_attribute(expression: Any) -> Any | None:
    if _kind(expression) == "UnresolvedAttribute":
        return expression
    if _kind(expression) == "LambdaFunction":
        return None
    found = (_first_attribute(child) for child in to_list(expression.children()))
    return next((each for each in found if each is not None), None)


def _guarded(spark: SparkSession, expression: Any, taken: list[Any]) -> Any:
    """An expression with what its aggregates take of each row under `TryEval`; these are added to `taken`."""
    if _kind(expression) == "UnresolvedFunction" and _is_aggregate(spark, expression):
        return _with_children(spark, expression, lambda child: _taken(spark, child, taken))
    return _with_children(spark, expression, lambda child: _guarded(spark, child, taken))


def _taken(spark: SparkSession, expression: Any, taken: list[Any]) -> Any:
    kind = _kind(expression)
    if kind in _PLAIN:
        return expression
    if kind == "SortOrder":
        return _with_children(spark, expression, lambda child: _taken(spark, child, taken))
    taken.append(expression)
    return expression_of(_tried(expression)[_VALUE])


def _is_aggregate(spark: SparkSession, function: Any) -> bool:
    registry = spark._jsparkSession.sessionState().functionRegistry()  # noqa: SLF001 - PySpark shows no registry
    name = to_list(function.nameParts())[-1]
    identifier = jvm_class(spark, "org.apache.spark.sql.catalyst.FunctionIdentifier")(name)
    found = registry.lookupFunction(identifier)
    return bool(found.isDefined()) and str(found.get().getGroup()) == "agg_funcs"


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
