"""What a check is: a SQL condition, where it looks, and what happens where it does not hold.

One definition serves a job's own pass over a batch, the brokerless test driver and the great-expectations
suite over a table. Nothing here needs Spark: the condition stays text until something evaluates it.
"""

import re
from dataclasses import dataclass
from typing import Literal, get_args

from headwater_streams.base.condition import enclosed

On = Literal["input", "output"]
Level = Literal["row", "batch"]
Action = Literal["quarantine", "fail", "warn"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}")


class InvalidCheckError(ValueError):
    """A check that cannot be meant; the message says what is wrong with it and what is allowed."""


@dataclass(frozen=True, slots=True, init=False)
class Check:
    """A named condition on rows or on a whole batch.

    Attributes:
        name: Stands in quarantine rows, in results and in Data Docs.
        expression: A Spark SQL condition, that is a BOOLEAN; with `level="batch"` one over aggregates, as
            `avg(delay) < 600`. It may have comments.
        on: `"input"` for the rows that a job reads, `"output"` for those that it writes.
        level: `"row"` judges each row, `"batch"` all rows of a batch (or of a table) together.
        action: `"quarantine"` takes the row aside, `"fail"` stops the job before it commits, `"warn"` reports.

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

    def __init__(
        self,
        name: str,
        expression: str,
        *,
        on: On | None = None,
        level: Level = "row",
        action: Action = "quarantine",
    ) -> None:
        """Validates the parts; `on` is by default the input for quarantine, the output otherwise.

        Raises:
            InvalidCheckError: A part is not one of its allowed values, or two of them contradict each other.
        """
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidCheckError(
                f"check name {name!r}: use letters, digits, '_', '-' and '.', starting with a letter or '_'"
            )
        if not isinstance(expression, str) or not expression.strip():
            raise InvalidCheckError(f"check {name!r}: the expression is empty; give a SQL condition")
        _require_one_of(name, "level", level, get_args(Level))
        _require_one_of(name, "action", action, get_args(Action))
        if on is not None:
            _require_one_of(name, "on", on, get_args(On))
        if level == "batch" and action == "quarantine":
            raise InvalidCheckError(
                f"check {name!r}: a batch check has no row to quarantine; its action is 'fail' or 'warn'"
            )
        resolved_on = on or ("input" if action == "quarantine" else "output")
        parts = {
            "name": name,
            "expression": expression.strip(),
            "on": resolved_on,
            "level": level,
            "action": action,
        }
        for field_name, value in parts.items():
            object.__setattr__(self, field_name, value)

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


def _require_one_of(check: str, part: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        options = ", ".join(repr(option) for option in allowed)
        raise InvalidCheckError(f"check {check!r}: {part}={value!r} is not one of {options}")
