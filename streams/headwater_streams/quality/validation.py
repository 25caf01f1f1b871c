"""Has great-expectations evaluate a suite, in one pass where it can, and one by one where something raises."""

import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headwater_streams.quality.reasons import sentence_of
from headwater_streams.quality.suite import SqlExpectation, Verdict

if TYPE_CHECKING:
    from great_expectations.core import ExpectationSuiteValidationResult
    from great_expectations.expectations import Expectation
    from pyspark.sql import DataFrame


def validate(
    frame: "DataFrame",
    table: str,
    version: int,
    expected: Sequence[SqlExpectation],
    own: Sequence["Expectation"],
) -> tuple["ExpectationSuiteValidationResult", dict[str, Verdict]]:
    """The library's result, and the verdicts of our expectations that cannot be evaluated, by name.

    The library evaluates all aggregates of a suite together, and one that raises ends them all. In that case our
    expectations are tried one by one, and each of a user's own is evaluated by itself.
    """
    together = _validate(frame, table, version, expected, own)
    if not any(error_of(each) for each in together.results):
        return together, {}
    judged = _with_verdicts(frame, expected)
    apart = [_validate(frame, table, version, judged, [])] if judged else []
    apart += [_validate(frame, table, version, [], [each]) for each in own]
    together.results = [result for each in apart for result in each.results]
    evaluated, successful = len(together.results), sum(bool(each.success) for each in together.results)
    together.statistics = {
        "evaluated_expectations": evaluated,
        "successful_expectations": successful,
        "unsuccessful_expectations": evaluated - successful,
        "success_percent": 100 * successful / evaluated,
    }
    return together, {each.name: each.verdict for each in judged if each.verdict is not None}


def import_great_expectations() -> Any:
    """The library, without its analytics: it sends them unless the setting is made before the import."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    with warnings.catch_warnings(), _main_with_a_file():
        warnings.simplefilter("ignore")
        import great_expectations
    return great_expectations


@contextmanager
def _main_with_a_file() -> Iterator[None]:
    """Gives the main module a file where it has none, as in `python -c`.

    The library tries to import Spark Connect. Without grpc PySpark 4.2 ends a process with such a main module, and with
    status 0, as it takes it for a doctest.
    """
    main = sys.modules["__main__"]
    if hasattr(main, "__file__"):
        yield
        return
    main.__file__ = "<string>"
    try:
        yield
    finally:
        del main.__file__


def _with_verdicts(frame: "DataFrame", expected: Sequence[SqlExpectation]) -> tuple[SqlExpectation, ...]:
    """Evaluates the expectations one by one, and gives those that raise their verdict.

    Aggregates that raise for an empty table (a share of nothing) violate nothing, as in a job's empty batch.
    """
    from pyspark.errors import PySparkException

    from headwater_streams.quality.gx_expectations import aggregate_of

    judged = []
    for each in expected:
        aggregate = aggregate_of(each, frame)
        try:
            if aggregate is not None:
                frame.agg(aggregate).collect()
        except PySparkException as error:
            passes = each.kind == "aggregate" and frame.isEmpty()
            reason = f"cannot be worked out{' of no rows' * passes}: {sentence_of(error)}"
            each = replace(each, verdict=Verdict(passes, reason))
        judged.append(each)
    return tuple(judged)


def _validate(
    frame: "DataFrame",
    table: str,
    version: int,
    expected: Sequence[SqlExpectation],
    own: Sequence["Expectation"],
) -> "ExpectationSuiteValidationResult":
    gx = import_great_expectations()
    from great_expectations.data_context.types.base import (
        DataContextConfig,
        InMemoryStoreBackendDefaults,
        ProgressBarsConfig,
    )

    from headwater_streams.quality.gx_expectations import to_great_expectations

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        context = gx.get_context(
            mode="ephemeral",
            project_config=DataContextConfig(
                store_backend_defaults=InMemoryStoreBackendDefaults(init_temp_docs_sites=False),
                analytics_enabled=False,
                progress_bars=ProgressBarsConfig(globally=False),
            ),
        )
        asset = context.data_sources.add_spark("delta").add_dataframe_asset(table)
        batch = asset.add_batch_definition_whole_dataframe(f"version {version}")
        suite = gx.ExpectationSuite(name=table)
        for expectation in [*map(to_great_expectations, expected), *own]:
            suite.add_expectation(expectation)
        # Not by a validation definition: that serializes the result for a store, and fails on what the library's
        # own quantile expectation returns.
        validation: ExpectationSuiteValidationResult = batch.get_batch({"dataframe": frame}).validate(
            suite, result_format="SUMMARY"
        )
    return validation


def error_of(validated: Any) -> str | None:
    """The message of an expectation that could not be evaluated; keyed by metric where a metric failed."""
    exception_info = validated.exception_info or {}
    parts = [exception_info] if "raised_exception" in exception_info else list(exception_info.values())
    messages = [str(part["exception_message"]) for part in parts if part.get("raised_exception")]
    return messages[0].strip().splitlines()[0] if messages else None
