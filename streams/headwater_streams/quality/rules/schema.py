"""The rule on a table's columns: those that are expected, with their types, and whether there may be more."""

from collections.abc import Mapping
from dataclasses import dataclass

from headwater_streams.base.check import InvalidCheckError
from headwater_streams.base.names import folded, is_reserved
from headwater_streams.base.rule import Judgement, Rule


@dataclass(frozen=True, slots=True)
class Columns(Rule):
    """The columns and their types are those that are expected."""

    expected: tuple[tuple[str, str], ...]
    may_have_more: bool

    @property
    def expression(self) -> str:
        """It speaks of no column in SQL: one that is gone is what it is to find."""
        return "count(1) IS NOT NULL"

    def judge(self, columns: Mapping[str, str]) -> Judgement:
        """Compares columns, each with its type as Spark spells it, with the expected ones."""
        present = {folded(name): (name, kind) for name, kind in columns.items() if not is_reserved(name)}
        known = {folded(name) for name, _ in self.expected}
        faults = []
        for name, kind in self.expected:
            found = present.get(folded(name))
            if found is None:
                faults.append(f"{name} is gone")
            elif _spelled(found[1]) != _spelled(kind):
                faults.append(f"{name} is {found[1].upper()}, not {kind.upper()}")
        if not self.may_have_more:
            faults += [
                f"{name} {kind.upper()} is new" for key, (name, kind) in present.items() if key not in known
            ]
        return Judgement(not faults, "; ".join(faults) or "as expected", len(faults))


def same_columns(columns: str | Mapping[str, str], *, may_have_more: bool = False) -> Columns:
    """The table, or the job's result, has these columns with these types.

    Args:
        columns: `"carrier STRING, delay INT"`, or a mapping of names to types.
        may_have_more: Whether further columns are no fault.

    Raises:
        InvalidCheckError: It is none of the two.

    Example:
        >>> same_columns("carrier STRING, delay INT").judge({"carrier": "string"}).observed
        'delay is gone'
    """
    if isinstance(columns, str):
        parts = [part.split(None, 1) for part in _apart(columns)]
        if not parts or any(len(part) != 2 for part in parts):
            raise InvalidCheckError(
                f"same_columns: {columns!r} is no list of columns with types, as 'carrier STRING'"
            )
        expected = tuple((name.strip("`"), kind.strip()) for name, kind in parts)
    else:
        expected = tuple(columns.items())
    text = "the columns are " + ", ".join(f"{name} {kind.upper()}" for name, kind in expected)
    return Columns(text, (), expected, may_have_more)


def _apart(columns: str) -> list[str]:
    """The parts between the commas that stand in no bracket."""
    parts, depth = [""], 0
    for letter in columns:
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(letter, 0)
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part for part in parts if part.strip()]


def _spelled(kind: str) -> str:
    """A type's name as one of several that SQL has for it."""
    plain = "".join(kind.lower().split())
    return {
        "integer": "int",
        "long": "bigint",
        "short": "smallint",
        "byte": "tinyint",
        "varchar": "string",
    }.get(plain, plain)
