"""Verdicts of ready-made rules over a table at rest: those that are no condition in SQL."""

from dataclasses import replace
from typing import TYPE_CHECKING

from headwater_streams.base.rule import Judgement, KeysRule, MeasuredRule, Past
from headwater_streams.quality.rules.schema import Columns
from headwater_streams.quality.suite import SqlExpectation, Verdict
from headwater_streams.storage.delta_log import has_versions
from headwater_streams.storage.delta_rows import dataset_of
from headwater_streams.storage.home import Home

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def judged_by_rule(
    frame: "DataFrame", expected: SqlExpectation, home: Home, table: str, now_ms: int
) -> SqlExpectation:
    """An expectation with the verdict of its rule; as it is where it has none.

    Args:
        frame: The version of the table that is judged.
        expected: The expectation.
        home: The home.
        table: The table.
        now_ms: The time.
    """
    rule, values = expected.rule, dict[str, float | None]()
    if isinstance(rule, MeasuredRule):
        from headwater_streams.spark.guarded import measured

        columns = [
            measured(sql).cast("double").alias(f"m{n}") for n, sql in enumerate(rule.measures.values())
        ]
        (row,) = frame.agg(*columns).collect()
        values = dict(zip(rule.measures, row, strict=True))
        judgement = rule.judge(values, _of_suites(home, table, expected.name, rule.remembers), now_ms)
    elif isinstance(rule, KeysRule):
        # A unique key is compared with the table's other rows already where these are the ones that are judged.
        path = home.table(rule.other) if rule.other else None
        others = None
        if path is not None and has_versions(path):
            others = dataset_of(path).to_table(columns=list(rule.other_columns))
        judgement = rule.judge(frame.select(*map(_column, rule.columns)).toArrow(), others)
    elif isinstance(rule, Columns):
        judgement = rule.judge(dict(frame.dtypes))
    else:
        return expected
    return replace(expected, verdict=Verdict(judgement.holds, _reason(judgement), values))


def _of_suites(home: Home, table: str, check: str, count: int) -> list[Past]:
    from headwater_streams.quality.results import past_of_suites

    return past_of_suites(home, table, check, count) if count else []


def _column(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _reason(judgement: Judgement) -> str:
    sample = f" ({'; '.join(judgement.sample)})" if judgement.sample else ""
    return f"{judgement.observed}{sample}"
