"""The rule on a table's columns: those that are expected, with their types, and whether there may be more."""

import re
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
        parts = [_COLUMN.fullmatch(part.strip()) for part in _apart(columns)]
        if not parts or None in parts:
            raise InvalidCheckError(
                f"same_columns: {columns!r} is no list of columns with types, as 'carrier STRING'"
            )
        named = [part.groups() for part in parts if part is not None]
        expected = tuple((plain or in_marks.replace("``", "`"), kind) for in_marks, plain, kind in named)
    else:
        expected = tuple(columns.items())
    text = "the columns are " + ", ".join(f"{name} {kind.upper()}" for name, kind in expected)
    return Columns(text, (), expected, may_have_more)


def _apart(columns: str) -> list[str]:
    """The parts between the commas that stand in no bracket and in no name."""
    parts, depth, in_name = [""], 0, False
    for letter in columns:
        in_name ^= letter == "`"
        depth += 0 if in_name else {"<": 1, "(": 1, ">": -1, ")": -1}.get(letter, 0)
        if letter == "," and not depth and not in_name:
            parts.append("")
        else:
            parts[-1] += letter
    return [part for part in parts if part.strip()]


def _spelled(kind: str) -> str:
    """A type's name as one of several that SQL has for it and for what is in it."""
    plain = _FIELD.sub(r"\1:", _NOT_NULL.sub("", kind.lower()))
    return _NAME.sub(_one_name, "".join(plain.split()))


def _one_name(name: re.Match[str]) -> str:
    one = _SAME.get(name[0].partition("(")[0], name[0])
    return "decimal(10,0)" if one == "decimal" and name.string[name.end() : name.end() + 1] != "(" else one


_COLUMN = re.compile(r"(?:`((?:[^`]|``)+)`|([^`\s]+))\s+(.+)", re.DOTALL)
_NOT_NULL = re.compile(r"\s+not\s+null\b")
_FIELD = re.compile(r"(?<=[<,])\s*(`[^`]+`|\w+)\s+(?=\w)")
"""A field of a STRUCT that has no colon behind its name."""
_NAME = re.compile(r"(?:var)?char\([0-9]+\)|\w+")
_SAME = {
    "integer": "int",
    "long": "bigint",
    "short": "smallint",
    "byte": "tinyint",
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
    "char": "string",
    "varchar": "string",
    "timestamp_ltz": "timestamp",
}
