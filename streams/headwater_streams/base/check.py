"""What a check is: a SQL condition or a ready-made rule, where it looks, and what happens where it does not hold.

One definition serves a job's own pass over a batch, the brokerless test driver, a backfill's verdict and a suite over a
table. Nothing here needs Spark: the condition stays text until something evaluates it.
"""

import re
from dataclasses import dataclass
from typing import Literal, get_args

from headwater_streams.base.at_most import AtMost
from headwater_streams.base.condition import enclosed
from headwater_streams.base.rule import MeasuredRule, Rule

On = Literal["input", "output"]
Level = Literal["row", "batch"]
Action = Literal["quarantine", "drop", "fail", "warn"]

REMOVING: tuple[Action, ...] = ("quarantine", "drop")
"""The actions that take a row out, where it comes in."""

OF_RECORDS = ("event_time", "function", "origin", "producer", "sequence", "unreadable", "value")
"""What the quarantine calls the faults of records themselves, beside the names of checks."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}")


class InvalidCheckError(ValueError):
    """A check that cannot be meant; the message says what is wrong with it and what is allowed."""


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Check:
    """A named condition on rows or on a whole batch.

    Attributes:
        name: Stands in quarantine rows, in results and in Data Docs.
        expression: A Spark SQL condition, that is a BOOLEAN; with `level="batch"` one over aggregates, as
            `avg(delay) < 600`. It may have comments. Of a rule it is what Spark can analyse of it.
        on: `"input"` for the rows that a job reads, `"output"` for those that it writes.
        level: `"row"` judges each row, `"batch"` all rows of a batch (or of a table) together.
        action: `"quarantine"` takes the row aside, `"drop"` leaves it out, `"fail"` stops the job before it commits,
            `"warn"` reports.
        at_most: How many rows of a batch may fail. Of more, the job is stopped before it commits, or warned of where
            the action is `"warn"`. None means none for `"fail"` and `"warn"`, and any number for the other two.
        warn_over: Of more rows that are taken out of a batch than this, it is warned, and the job goes on.
        rule: The ready-made rule that it is made of; None for a condition in SQL.

    Example:
        >>> Check("has_carrier", "carrier IS NOT NULL").on
        'input'
        >>> Check("delay_sane", "avg(delay) < 600", level="batch", action="fail").on
        'output'
    """

    name: str
    expression: str
    on: On
    level: Level
    action: Action
    at_most: AtMost | None
    warn_over: AtMost | None
    rule: Rule | None

    def __init__(
        self,
        name: str,
        expression: str | Rule,
        *,
        on: On | None = None,
        level: Level | None = None,
        action: Action | None = None,
        at_most: str | float | AtMost | None = None,
        warn_over: str | float | AtMost | None = None,
        rule: Rule | None = None,
    ) -> None:
        """Validates the parts.

        `on` is by default the input where rows are taken out, the output otherwise. The level and the action of a
        condition are by default `"row"` and `"quarantine"`. The level of a rule is what it judges. Where that is the
        batch, the action is `"fail"`, but `"warn"` where the clock or earlier batches decide: such a batch fails again
        when it is tried again, and the job would never go on.

        Raises:
            InvalidCheckError: A part is not one of its allowed values, or two of them contradict each other.
        """
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidCheckError(
                f"check name {name!r}: use letters, digits, '_', '-' and '.', starting with a letter or '_'"
            )
        rule = expression if isinstance(expression, Rule) else rule
        text = rule.expression if rule is not None else expression
        if not isinstance(text, str) or not text.strip():
            raise InvalidCheckError(f"check {name!r}: the expression is empty; give a SQL condition")
        if rule is not None and level not in (None, rule.level):
            raise InvalidCheckError(
                f"check {name!r}: level={level!r}, and the rule judges a {rule.level}; leave level= out"
            )
        level = level or ("row" if rule is None else rule.level)
        action = action or default_action(rule)
        _require_one_of(name, "level", level, get_args(Level))
        _require_one_of(name, "action", action, get_args(Action))
        if on is not None:
            _require_one_of(name, "on", on, get_args(On))
        if action == "quarantine" and name in OF_RECORDS:
            raise InvalidCheckError(
                f"check {name!r}: records with a fault of their own go to quarantine under this name, and would count "
                f"as this check's; call it otherwise, such as {f'{name}_is_right'!r}"
            )
        if level == "batch" and action in REMOVING:
            raise InvalidCheckError(
                f"check {name!r}: a batch check has no row to {action}; its action is 'fail' or 'warn'"
            )
        if level == "batch" and at_most is not None:
            raise InvalidCheckError(
                f"check {name!r}: at_most= is of checks of rows, and this one judges the batch; the rules unique and "
                "null_share have an at_most= of their own"
            )
        if warn_over is not None and action not in REMOVING:
            raise InvalidCheckError(
                f"check {name!r}: warn_over= is of checks that take rows out, 'quarantine' or 'drop'; this one "
                f"is {action!r}, whose bound is at_most="
            )
        parts = {
            "name": name,
            "expression": text.strip(),
            "on": on or ("input" if action in REMOVING else "output"),
            "level": level,
            "action": action,
            "at_most": _bound(name, "at_most", at_most),
            "warn_over": _bound(name, "warn_over", warn_over),
            "rule": rule,
        }
        for field_name, value in parts.items():
            object.__setattr__(self, field_name, value)

    def __repr__(self) -> str:
        """The parts; those that a check may lack only where it has them, for a job's fingerprint is made of this.
        `warn_over` is left out, as it changes no row."""
        names = ["name", "expression", "on", "level", "action"]
        parts = [f"{name}={getattr(self, name)!r}" for name in names]
        parts += [f"at_most={str(self.at_most)!r}"] if self.at_most is not None else []
        parts += [f"rule={self.rule.text!r}"] if self.rule is not None else []
        return f"Check({', '.join(parts)})"

    @property
    def goes_by_clock(self) -> bool:
        """Whether rows that pass it may break it later."""
        return isinstance(self.rule, MeasuredRule) and self.rule.goes_by_clock

    @property
    def text(self) -> str:
        """What it expects, as its author wrote it, or the rule says it."""
        return self.expression if self.rule is None else self.rule.text

    @property
    def passes_sql(self) -> str:
        """A condition that is never NULL: true where the check holds.

        A row passes only if its condition is true; NULL does not pass (Delta's CHECK constraints judge NULL
        likewise). A batch fails only if its condition is false: the average of no rows is NULL, and an empty
        batch breaks nothing.
        """
        unknown = "TRUE" if self.level == "batch" else "FALSE"
        return f"coalesce({enclosed(self.expression)}, {unknown})"

    @property
    def violation_sql(self) -> str:
        """The opposite of `passes_sql`: true where the check does not hold, never NULL."""
        return f"NOT {self.passes_sql}"


def default_action(rule: Rule | None) -> Action:
    """What a check does where nothing is said, by its rule; None for a condition on rows."""
    if rule is None or rule.level == "row":
        return "quarantine"
    return "warn" if isinstance(rule, MeasuredRule) else "fail"


def _bound(check: str, part: str, value: str | float | AtMost | None) -> AtMost | None:
    try:
        return None if value is None else AtMost.of(value)
    except ValueError as error:
        raise InvalidCheckError(f"check {check!r}: {str(error).replace('at_most', part, 1)}") from error


def _require_one_of(check: str, part: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        options = ", ".join(repr(option) for option in allowed)
        raise InvalidCheckError(f"check {check!r}: {part}={value!r} is not one of {options}")
