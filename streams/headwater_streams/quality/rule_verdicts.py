"""Verdicts of ready-made rules over a table at rest: those that are no condition in SQL."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater_streams.base.names import quoted
from headwater_streams.base.rule import Judgement, KeysRule, MeasuredRule, Past, Values
from headwater_streams.quality.rules.keys import judged_keys
from headwater_streams.quality.rules.schema import Columns
from headwater_streams.quality.suite import SqlExpectation, Verdict
from headwater_streams.storage.delta_log import has_versions
from headwater_streams.storage.delta_rows import columns_called, dataset_of
from headwater_streams.storage.home import Home

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def judged_by_rules(
    frame: "DataFrame",
    expected: Sequence[SqlExpectation],
    home: Home,
    *,
    table: str,
    version: int,
    now_ms: int,
) -> tuple[SqlExpectation, ...]:
    """Expectations with the verdicts of their rules; those without one as they are.

    Args:
        frame: The version of the table that is judged.
        expected: The expectations.
        home: The home.
        table: The table.
        version: The version.
        now_ms: The time.
    """
    values = _measured(frame, {each.name: each.rule for each in expected})

    def before(check: str, count: int) -> Sequence[Past]:
        from headwater_streams.quality.results import past_of_suites

        return past_of_suites(home, table, check, count, version) if count else ()

    return tuple(_judged(frame, each, home, before, now_ms, values.get(each.name, {})) for each in expected)


def _measured(frame: "DataFrame", rules: Mapping[str, Any]) -> dict[str, Values]:
    """What the rules measure, by the names of their checks, in one pass over the table."""
    from headwater_streams.spark.guarded import measured

    measuring = {name: rule.measures for name, rule in rules.items() if isinstance(rule, MeasuredRule)}
    if not measuring:
        return {}
    columns = [measured(sql).cast("double") for measures in measuring.values() for sql in measures.values()]
    (row,) = frame.agg(*[column.alias(f"m{n}") for n, column in enumerate(columns)]).collect()
    found = iter(row)
    return {name: {measure: next(found) for measure in measures} for name, measures in measuring.items()}


def _judged(
    frame: "DataFrame",
    expected: SqlExpectation,
    home: Home,
    before: Callable[[str, int], Sequence[Past]],
    now_ms: int,
    values: Values,
) -> SqlExpectation:
    rule = expected.rule

    def others(rule: KeysRule, _: "pa.Table") -> "pa.Table | None":
        # A key that is unique in the table is compared with its other rows already, as these are the ones judged.
        path = home.table(rule.other) if rule.other else None
        if path is None or not has_versions(path):
            return None
        return other_keys(path, rule)

    if isinstance(rule, MeasuredRule):
        judgement = rule.judge_table(values, before(expected.name, rule.remembers), now_ms)
    elif isinstance(rule, KeysRule):
        judgement = judged_keys(rule, frame.select(*map(quoted, rule.columns)).toArrow(), others)
    elif isinstance(rule, Columns):
        judgement = rule.judge(dict(frame.dtypes))
    else:
        return expected
    return replace(expected, verdict=Verdict(judgement.holds, _reason(judgement), values))


def other_keys(table: Path, rule: KeysRule) -> "pa.Table":
    """The keys of the other table that a rule compares with."""
    names, rows = list(rule.other_columns), dataset_of(table)
    return rows.to_table(columns=columns_called(names, rows.schema)).rename_columns(names)


def _reason(judgement: Judgement) -> str:
    sample = f" ({'; '.join(judgement.sample)})" if judgement.sample else ""
    return f"{judgement.observed}{sample}"
