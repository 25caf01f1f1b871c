"""Our expectations as great-expectations classes. Importing this imports great-expectations, which takes seconds.

The library's own SQL expectation runs two queries over the table for each condition. Ours are made of metrics that are
aggregates, which the library computes in one pass for the whole suite. Rows are looked up only where a condition does
not hold.
"""

import html
import json
from collections.abc import Mapping
from typing import Any, ClassVar

from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.core.metric_function_types import MetricPartialFunctionTypes
from great_expectations.execution_engine import SparkDFExecutionEngine
from great_expectations.expectations.expectation import BatchExpectation
from great_expectations.expectations.metrics.metric_provider import metric_partial, metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider
from great_expectations.validator.metric_configuration import MetricConfiguration
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.base.at_most import AtMost
from headwater_streams.base.json_values import exact_number
from headwater_streams.base.names import quoted
from headwater_streams.base.plural import quantity
from headwater_streams.quality.reasons import NOT_WORKED_OUT, sentence_of
from headwater_streams.quality.sql_analysis import values_as_json
from headwater_streams.quality.suite import Kind, SqlExpectation, Verdict, describe
from headwater_streams.spark.columns import cols
from headwater_streams.spark.guarded import may_raise, raises, violates

_SAMPLE_ROWS = 10
_AGGREGATE, _FAILING_ROWS, _SOME_FAILING_ROWS, _REPEATED_KEYS = (
    "headwater.aggregate",
    "headwater.failing_rows",
    "headwater.some_failing_rows",
    "headwater.repeated_keys",
)
_TABLE_ROWS = "table.row_count"


class SqlAggregate(TableMetricProvider):  # type: ignore[misc]
    """The value of one SQL aggregate; all those of a suite are computed together."""

    metric_name = _AGGREGATE
    value_keys = ("aggregate",)

    @metric_partial(  # type: ignore[untyped-decorator]
        engine=SparkDFExecutionEngine,
        partial_fn_type=MetricPartialFunctionTypes.AGGREGATE_FN,
        domain_type=MetricDomainTypes.TABLE,
    )
    def _spark(
        cls,  # noqa: N805 - the decorator makes it a class method
        execution_engine: SparkDFExecutionEngine,
        metric_domain_kwargs: dict[str, Any],
        metric_value_kwargs: dict[str, Any],
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any],
    ) -> tuple[Column, dict[str, Any], dict[str, Any]]:
        return F.expr(metric_value_kwargs["aggregate"]), metric_domain_kwargs, {}


class FailingRows(TableMetricProvider):  # type: ignore[misc]
    """The number of rows that a condition does not hold for, and of those for which it raises, as JSON; the numbers of
    all conditions of a suite are computed together."""

    metric_name = _FAILING_ROWS
    value_keys = ("condition",)

    @metric_partial(  # type: ignore[untyped-decorator]
        engine=SparkDFExecutionEngine,
        partial_fn_type=MetricPartialFunctionTypes.AGGREGATE_FN,
        domain_type=MetricDomainTypes.TABLE,
    )
    def _spark(
        cls,  # noqa: N805 - the decorator makes it a class method
        execution_engine: SparkDFExecutionEngine,
        metric_domain_kwargs: dict[str, Any],
        metric_value_kwargs: dict[str, Any],
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any],
    ) -> tuple[Column, dict[str, Any], dict[str, Any]]:
        frame = _table(execution_engine, metric_domain_kwargs)
        return failing_rows(frame, metric_value_kwargs["condition"]), metric_domain_kwargs, {}


class SomeFailingRows(TableMetricProvider):  # type: ignore[misc]
    """Some rows that a condition does not hold for, as JSON, and why it raises for one; no query runs where there are
    none."""

    metric_name = _SOME_FAILING_ROWS
    value_keys = ("condition",)

    @metric_value(engine=SparkDFExecutionEngine)  # type: ignore[untyped-decorator]
    def _spark(
        cls,  # noqa: N805 - the decorator makes it a class method
        execution_engine: SparkDFExecutionEngine,
        metric_domain_kwargs: dict[str, Any],
        metric_value_kwargs: dict[str, Any],
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any],
    ) -> tuple[list[str], str]:
        counts, condition = json.loads(metrics[_FAILING_ROWS]), metric_value_kwargs["condition"]
        if not counts["failing"]:
            return [], ""
        frame = _table(execution_engine, metric_domain_kwargs)
        sample = _as_json(frame.where(violates(condition, frame)).limit(_SAMPLE_ROWS))
        return sample, _why_one_raises(frame, condition) if counts["raising"] else ""

    @classmethod
    def _get_evaluation_dependencies(
        cls,
        metric: MetricConfiguration,
        configuration: Any = None,
        execution_engine: Any = None,
        runtime_configuration: Any = None,
    ) -> dict[str, MetricConfiguration]:
        counts = MetricConfiguration(
            metric_name=_FAILING_ROWS,
            metric_domain_kwargs=metric.metric_domain_kwargs,
            metric_value_kwargs=dict(metric.metric_value_kwargs),
        )
        inherited = super()._get_evaluation_dependencies(
            metric, configuration, execution_engine, runtime_configuration
        )
        return {**inherited, _FAILING_ROWS: counts}


class RepeatedKeys(TableMetricProvider):  # type: ignore[misc]
    """The number of keys that name more than one row, and some of them; only the keys are shuffled.

    A key with a NULL is none, as in a job's pass.
    """

    metric_name = _REPEATED_KEYS
    value_keys = ("columns",)

    @metric_value(engine=SparkDFExecutionEngine)  # type: ignore[untyped-decorator]
    def _spark(
        cls,  # noqa: N805 - the decorator makes it a class method
        execution_engine: SparkDFExecutionEngine,
        metric_domain_kwargs: dict[str, Any],
        metric_value_kwargs: dict[str, Any],
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any],
    ) -> tuple[int, list[str]]:
        keys = cols(metric_value_kwargs["columns"])
        frame = _table(execution_engine, metric_domain_kwargs)
        for key in keys:
            frame = frame.where(key.isNotNull())
        repeated = frame.groupBy(*keys).agg(F.count(F.lit(1)).alias("rows")).where("rows > 1")
        count = repeated.count()
        return count, _as_json(repeated.limit(_SAMPLE_ROWS)) if count else []


class ExpectRowsToSatisfyCondition(BatchExpectation):  # type: ignore[misc]
    """A SQL condition holds for each row; shows some rows for which it does not hold, or raises."""

    condition: str
    at_most: int | str = 0
    metric_dependencies: ClassVar[tuple[str, ...]] = (_TABLE_ROWS, _FAILING_ROWS, _SOME_FAILING_ROWS)
    success_keys: ClassVar[tuple[str, ...]] = ("condition", "at_most")

    def _validate(
        self, metrics: dict[str, Any], runtime_configuration: Any = None, execution_engine: Any = None
    ) -> dict[str, Any]:
        # An aggregate over no rows is still a count: 0.
        counts, total = json.loads(metrics[_FAILING_ROWS]), metrics[_TABLE_ROWS]
        unexpected, raising = counts["failing"], counts["raising"]
        sample, why = metrics[_SOME_FAILING_ROWS]
        result = {
            "element_count": total,
            "unexpected_count": unexpected,
            "unexpected_percent": 100 * unexpected / total if total else 0.0,
            "partial_unexpected_list": sample,
        }
        if raising:
            result["details"] = {NOT_WORKED_OUT: why}
            result["observed_value"] = f"{observed_text(result)}, {raising:,} of them {why}"
        return {"success": AtMost.of(self.at_most).allows(unexpected, total), "result": result}


class ExpectAggregateToSatisfyCondition(BatchExpectation):  # type: ignore[misc]
    """A SQL condition over aggregates of the table holds; shows the values of the aggregates."""

    aggregate: str
    calls: list[str]
    metric_dependencies: ClassVar[tuple[str, ...]] = (_AGGREGATE,)
    success_keys: ClassVar[tuple[str, ...]] = ("aggregate",)

    def _validate(
        self, metrics: dict[str, Any], runtime_configuration: Any = None, execution_engine: Any = None
    ) -> dict[str, Any]:
        judged = json.loads(metrics[_AGGREGATE])
        values = json.loads(judged["observed"], parse_float=exact_number).values()
        observed = ", ".join(
            f"{' '.join(call.split())} = {_short(value)}"
            for call, value in zip(self.calls, values, strict=True)
        )
        return {
            "success": judged["passed"],
            "result": {"observed_value": observed or str(judged["passed"]).lower()},
        }


class ExpectWhatIsKnown(BatchExpectation):  # type: ignore[misc]
    """An expectation that cannot be evaluated and has its verdict already; shows the reason."""

    aggregate: str
    passed: bool
    reason: str
    metric_dependencies: ClassVar[tuple[str, ...]] = (_AGGREGATE,)
    success_keys: ClassVar[tuple[str, ...]] = ("aggregate", "passed", "reason")

    def _validate(
        self, metrics: dict[str, Any], runtime_configuration: Any = None, execution_engine: Any = None
    ) -> dict[str, Any]:
        return {"success": self.passed, "result": {"observed_value": self.reason}}


class ExpectKeysToNameOneRow(BatchExpectation):  # type: ignore[misc]
    """No two rows have the same keys; shows keys that repeat."""

    columns: list[str]
    metric_dependencies: ClassVar[tuple[str, ...]] = (_REPEATED_KEYS,)
    success_keys: ClassVar[tuple[str, ...]] = ("columns",)

    def _validate(
        self, metrics: dict[str, Any], runtime_configuration: Any = None, execution_engine: Any = None
    ) -> dict[str, Any]:
        count, sample = metrics[_REPEATED_KEYS]
        observed = f"{quantity(count, 'key')} more than once"
        return {
            "success": count == 0,
            "result": {"observed_value": observed, "details": {"repeated_keys": sample}},
        }


def to_great_expectations(expectation: SqlExpectation) -> BatchExpectation:
    """The great-expectations form of one of our expectations."""
    text = describe(expectation)
    # Data Docs put a description into the page as it is, and take $word for a parameter.
    description = html.escape(text).replace("$", "&#36;")
    expectation_class, arguments = _CLASSES[expectation.kind], _arguments(expectation)
    if expectation.verdict is not None:
        expectation_class, arguments = ExpectWhatIsKnown, _verdict_arguments(expectation.verdict)
    return expectation_class(
        **arguments,
        description=description,
        severity=expectation.severity,
        meta={"check": expectation.name, "text": text},
    )


_CLASSES: Mapping[Kind, type[BatchExpectation]] = {
    "rows": ExpectRowsToSatisfyCondition,
    "no_nulls": ExpectRowsToSatisfyCondition,
    "unique": ExpectKeysToNameOneRow,
    "aggregate": ExpectAggregateToSatisfyCondition,
}


def _arguments(expectation: SqlExpectation) -> dict[str, Any]:
    if expectation.kind == "unique":
        return {"columns": list(expectation.columns)}
    if expectation.kind == "aggregate":
        observed = values_as_json(expectation.calls) if expectation.calls else "'{}'"
        judged = f"to_json(struct({expectation.condition} AS passed, {observed} AS observed))"
        return {"aggregate": judged, "calls": list(expectation.calls)}
    if expectation.kind == "no_nulls":
        return {"condition": " AND ".join(f"{quoted(name)} IS NOT NULL" for name in expectation.columns)}
    bound = expectation.at_most
    allowed: int | str = 0 if bound is None else str(bound) if bound.rows is None else bound.rows
    return {"condition": expectation.text, "at_most": allowed}


def _verdict_arguments(verdict: Verdict) -> dict[str, Any]:
    # The library's expectations have a metric; a constant one costs no pass of its own.
    return {"aggregate": "TRUE", "passed": verdict.passed, "reason": verdict.reason}


def aggregate_of(expectation: SqlExpectation, frame: DataFrame) -> Column | None:
    """The aggregate that says whether an expectation holds; None for an expectation that groups the rows."""
    arguments = _arguments(expectation)
    if "condition" in arguments:
        return failing_rows(frame, arguments["condition"])
    return F.expr(arguments["aggregate"]) if "aggregate" in arguments else None


def failing_rows(frame: DataFrame, condition: str) -> Column:
    """Counts the rows that a condition does not hold for, as in a job, and those of them for which it raises."""
    failing = F.count_if(violates(condition, frame))
    raising = F.count_if(raises(condition)) if may_raise(frame, condition) else F.lit(0)
    return F.to_json(F.struct(failing.alias("failing"), raising.alias("raising")))


def _why_one_raises(frame: DataFrame, condition: str) -> str:
    """Why a condition raises, for the first row for which it does."""
    try:
        frame.where(raises(condition)).limit(1).select(F.expr(condition)).collect()
    except PySparkException as error:
        return f"cannot be worked out: {sentence_of(error)}"
    return "cannot be worked out"


def observed_text(result: Mapping[str, Any]) -> str:
    """What a great-expectations result observed, in a few words; for results of any type."""
    if "observed_value" in result:
        observed = result["observed_value"]
        return "" if observed is None else _short(observed)
    count, total = result.get("unexpected_count"), result.get("element_count")
    if count is None:
        return ""
    of = "" if total is None else f"{count:,} of "
    return f"{of}{quantity(count if total is None else total, 'row')} unexpected"


def _table(engine: SparkDFExecutionEngine, domain: dict[str, Any]) -> DataFrame:
    frame: DataFrame
    frame, _, _ = engine.get_compute_domain(domain, domain_type=MetricDomainTypes.TABLE)
    return frame


def _as_json(frame: DataFrame) -> list[str]:
    return [row["row"] for row in frame.select(F.to_json(F.struct("*")).alias("row")).collect()]


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if value is None:
        return "NULL"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)
