"""What a suite expects of a table: its job's checks, its keys, its coordinates. Specs only; nothing is evaluated."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from headwater_streams.base.at_most import AtMost
from headwater_streams.base.check import REMOVING, Check
from headwater_streams.base.condition import aggregates_in
from headwater_streams.base.record import Part
from headwater_streams.base.rule import BatchRule, RowRule, Rule, Values
from headwater_streams.quality.rules.keys import Unique

Severity = Literal["critical", "warning"]
Kind = Literal["rows", "aggregate", "no_nulls", "unique"]

# Where a row came from: a row without these cannot be audited or rebuilt. Its place in its record, `_row`, is NULL in
# rows of before the function made several of one.
COORDINATES = ("_topic", "_partition", "_offset")


@dataclass(frozen=True, slots=True)
class SqlExpectation:
    """One expectation over a table.

    Attributes:
        name: Unique in its suite.
        kind: `"rows"`: `condition` holds for each row; `"aggregate"`: it holds for all rows together;
            `"no_nulls"`, `"unique"`: of `columns`.
        severity: A `"warning"` is reported and does not fail the suite.
        condition: Spark SQL that is never NULL; empty where `columns` say it all.
        text: The condition as its author wrote it.
        words: What a rule expects, as it says it; empty for a condition that a person wrote.
        columns: For `"no_nulls"` and `"unique"`.
        calls: The aggregates of an `"aggregate"`, to be shown with their values.
        verdict: The verdict that is known already; None where the expectation is to be evaluated.
        at_most: Of `"rows"`: how many may fail; None for none. Rows that a check takes out should not be there at all.
        rule: The rule that is to give the verdict; None for a condition.
    """

    name: str
    kind: Kind
    severity: Severity = "critical"
    condition: str = ""
    text: str = ""
    words: str = ""
    columns: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    verdict: "Verdict | None" = None
    at_most: AtMost | None = None
    rule: Rule | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict of an expectation that cannot be evaluated.

    Attributes:
        passed: Whether it counts as held: only a condition over aggregates of no rows does.
        reason: Why, in a sentence.
        values: What a rule measured.
    """

    passed: bool
    reason: str
    values: Values = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Skipped(Part):
    """A check that a suite over the table cannot judge, and why."""

    WHAT = "a skipped check"

    name: str
    reason: str

    def to_json(self) -> dict[str, Any]:
        """The check as it is stored."""
        return {"name": self.name, "reason": self.reason}

    @classmethod
    def from_json(cls, value: Any) -> "Skipped":
        """The check as it was stored."""
        return cls(**cls.checked(value))


def severity_of(check: Check) -> Severity:
    """What a check that does not hold is to a suite."""
    return "warning" if check.action == "warn" else "critical"


def expectations_for(
    checks: Sequence[Check], keys: Sequence[str], columns: Sequence[str]
) -> tuple[tuple[SqlExpectation, ...], tuple[Skipped, ...]]:
    """What to expect of a table with these columns.

    A batch check of a job's input is left out, and a rule that speaks of single batches: the table holds another set of
    rows than one batch.
    Row checks of the input are kept, as no row that violates them should be in the table. Where the table no longer
    has their columns, the runner leaves them out as well.

    Args:
        checks: The checks of the job that writes the table.
        keys: The columns that name a row; empty if none do.
        columns: The table's columns.
    """
    expected: list[SqlExpectation] = []
    skipped: list[Skipped] = []
    for check in checks:
        if check.level == "batch" and check.on == "input":
            skipped.append(
                Skipped(name=check.name, reason="it judges each batch of the job's input, not the table")
            )
            continue
        if check.rule is not None and check.rule.is_of_batches:
            skipped.append(
                Skipped(name=check.name, reason="it judges each batch as it is written, not the table")
            )
            continue
        if isinstance(check.rule, Unique) and check.rule.at_most is None:
            expected.append(
                SqlExpectation(check.name, "unique", severity_of(check), columns=check.rule.columns)
            )
            continue
        is_row, is_sql = (
            check.level == "row",
            check.rule is None or isinstance(check.rule, RowRule | BatchRule),
        )
        expected.append(
            SqlExpectation(
                check.name,
                "rows" if is_row else "aggregate",
                severity_of(check),
                check.passes_sql,
                check.expression,
                "" if check.rule is None else check.rule.text,
                calls=() if is_row or not is_sql else tuple(aggregates_in(check.expression)),
                at_most=check.at_most if check.action not in REMOVING else None,
                rule=None if is_sql else check.rule,
            )
        )
    coordinates = tuple(name for name in COORDINATES if name in columns)
    if coordinates:
        expected.append(SqlExpectation("coordinates_present", "no_nulls", columns=coordinates))
    if keys:
        expected.append(SqlExpectation("keys_present", "no_nulls", columns=tuple(keys)))
        expected.append(SqlExpectation("keys_unique", "unique", columns=tuple(keys)))
    return tuple(expected), tuple(skipped)


def describe(expectation: SqlExpectation) -> str:
    """What is expected, in a line."""
    if expectation.kind == "no_nulls":
        return f"{expectation.name}: no null in {', '.join(expectation.columns)}"
    if expectation.kind == "unique":
        return f"{expectation.name}: no two rows have the same {', '.join(expectation.columns)}"
    scope = "every row" if expectation.kind == "rows" else "all rows together"
    warns = " (warns only)" if expectation.severity == "warning" else ""
    return f"{expectation.name}{warns}: {scope}: {expectation.words or expectation.text}"
