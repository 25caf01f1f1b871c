"""What a ready-made check expects, as a value; the makers of such values are in `quality.expect`.

There are four kinds, by what it takes to judge one:

- `RowRule`: a SQL condition on each row. It is the same as a condition that a person writes, and its check may have any
  action and a bound on the rows that fail.
- `BatchRule`: a SQL condition over the aggregates of all rows.
- `MeasuredRule`: it measures aggregates, and judges them in Python, by the clock and by what was measured of
  earlier batches. What it measures is kept with the result, so that a later batch can be compared with it.
- `KeysRule`: it needs the values of some columns of the rows that were written, as unique keys and references do.

Each has `expression`, which Spark can analyse over the columns that it speaks of: so a check with a rule is told from
one that does not fit a table as any other check is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from headwater_streams.base.names import quoted

if TYPE_CHECKING:
    import pyarrow as pa

Values = Mapping[str, float | None]
"""What a rule measured, by its own names; None where there was nothing to measure."""


@dataclass(frozen=True, slots=True)
class Past:
    """What a check measured earlier.

    Attributes:
        at_ms: When, by the clock of the job.
        values: What it measured.
    """

    at_ms: int
    values: Values


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a rule says of a batch or a table.

    Attributes:
        holds: Whether it holds.
        observed: What was seen, in a few words.
        failed: How many rows are at fault, where it can say so.
        sample: Some of these, each as text.
    """

    holds: bool
    observed: str
    failed: int = 0
    sample: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """Base class.

    Attributes:
        text: What it expects, in words.
        columns: The columns that it speaks of.
    """

    text: str
    columns: tuple[str, ...]

    @property
    def level(self) -> Literal["row", "batch"]:
        """Whether it judges each row, or all together."""
        return "batch"

    @property
    def is_of_batches(self) -> bool:
        """Whether it speaks of single batches as they are written: not of a table at rest, nor of a backfill's rows,
        which are those of many batches."""
        return False

    @property
    def expression(self) -> str:
        """A condition in SQL that Spark can analyse over its columns, and that stands for it in a job's fingerprint."""
        return (
            " AND ".join(f"count({quoted(name)}) IS NOT NULL" for name in self.columns)
            or "count(1) IS NOT NULL"
        )


@dataclass(frozen=True, slots=True)
class RowRule(Rule):
    """A condition on each row.

    Attributes:
        condition: In SQL.
    """

    condition: str

    @property
    def level(self) -> Literal["row", "batch"]:
        """It judges each row."""
        return "row"

    @property
    def expression(self) -> str:
        """The condition."""
        return self.condition


@dataclass(frozen=True, slots=True)
class BatchRule(Rule):
    """A condition over aggregates of all rows.

    Attributes:
        condition: In SQL.
    """

    condition: str

    @property
    def expression(self) -> str:
        """The condition."""
        return self.condition


@dataclass(frozen=True, slots=True)
class MeasuredRule(Rule):
    """Aggregates that are measured, and judged in Python; a subclass says which and how."""

    @property
    def measures(self) -> Mapping[str, str]:
        """The aggregates in SQL, by the names that `judge` and the results have for them. Each is a number or NULL."""
        raise NotImplementedError

    @property
    def remembers(self) -> int:
        """How many earlier results `judge` looks at; 0 where it needs none."""
        return 0

    @property
    def apart_ms(self) -> int:
        """Results within so many milliseconds are remembered as one, the sum of them; 0 for each by itself."""
        return 0

    @property
    def goes_by_clock(self) -> bool:
        """Whether the same rows may break it later."""
        return False

    @property
    def expression(self) -> str:
        """That each aggregate can be measured."""
        return " AND ".join(f"({sql} IS NULL OR {sql} IS NOT NULL)" for sql in self.measures.values())

    def judge(self, values: Values, before: Sequence[Past], now_ms: int) -> Judgement:
        """Judges what was measured.

        Args:
            values: What was measured, by the names of `measures`.
            before: What was measured of earlier batches, oldest first.
            now_ms: The time.
        """
        raise NotImplementedError

    def judge_table(self, values: Values, before: Sequence[Past], now_ms: int) -> Judgement:
        """The same of a table at rest, of which `before` has earlier versions."""
        return self.judge(values, before, now_ms)


@dataclass(frozen=True, slots=True)
class KeysRule(Rule):
    """Rows that are judged by their values of some columns; a subclass says how.

    Attributes:
        other: The table whose rows they are compared with, `schema.name`; `""` for the one that they are written to,
            and None where they are compared with each other alone.
        other_columns: The columns of that table.
    """

    other: str | None = None
    other_columns: tuple[str, ...] = ()

    def judge(self, rows: "pa.Table", others: "pa.Table | None") -> Judgement:
        """Judges rows.

        Args:
            rows: Their values of `columns`.
            others: The values of `other_columns` of the other table; None where there is none.
        """
        raise NotImplementedError
