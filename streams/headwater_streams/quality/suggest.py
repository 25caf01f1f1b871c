"""A suite that a table's own rows suggest: what holds for all of them now, as checks to edit.

A profile counts; `suggested` decides by the counts alone, and `as_module` writes the module. A suggestion is a guess of
what was meant by what there is: so each only warns, and says in a comment what it saw.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from headwater_streams.base.names import is_reserved

MOST_ROWS = 1_000_000
"""Of a larger table so many rows are looked at, from its newest files."""
_FEW_VALUES, _MANY_ROWS = 20, 200
_FEW_NULLS = 0.05
_LONGEST_NAME, _LONGEST_SET = 128, 2000  # characters


@dataclass(frozen=True, kw_only=True)
class ColumnProfile:
    """What a column holds.

    Attributes:
        name: The column.
        kind: `"text"`, `"number"`, `"time"`, or `"other"`.
        rows: How many rows were looked at.
        nulls: In how many of them it is NULL.
        distinct: How many different values it has; None where they were not counted.
        least: The least value, or the least length of a text.
        most: The greatest.
        values: All of its values, where they are few.
    """

    name: str
    kind: str
    rows: int
    nulls: int
    distinct: int | None = None
    least: Any = None
    most: Any = None
    values: Sequence[Any] = ()


@dataclass(frozen=True)
class Suggestion:
    """A check that the rows suggest.

    Attributes:
        name: The check's name.
        rule: The rule, as Python.
        seen: What was seen, for a comment.
    """

    name: str
    rule: str
    seen: str


def suggested(profiles: Sequence[ColumnProfile], keys: Sequence[str] = ()) -> list[Suggestion]:
    """The checks that the profiles of a table's columns suggest.

    Args:
        profiles: The columns, without the library's own.
        keys: The columns that name a row, where they are known.
    """
    result = list[Suggestion]()
    for column in profiles:
        if column.rows and not is_reserved(column.name):
            result += _of_column(column)
    if keys:
        names = ", ".join(map(repr, keys))
        result.append(
            Suggestion(
                _name("_".join(keys), "unique"),
                f'hw.expect.unique({names}, within="table")',
                "the table's keys",
            )
        )
    return _named_apart(result)


def _named_apart(found: Sequence[Suggestion]) -> list[Suggestion]:
    """Suggestions with a number behind the names that others have, too: those of two columns in other alphabets."""
    taken: set[str] = set()
    result = []
    for each in found:
        tries = (each.name, *(f"{each.name[: _LONGEST_NAME - 5]}_{n}" for n in range(2, len(found) + 2)))
        name = next(name for name in tries if name not in taken)
        taken.add(name)
        result.append(replace(each, name=name))
    return result


def _of_column(column: ColumnProfile) -> list[Suggestion]:
    found, name, filled = list[Suggestion](), column.name, column.rows - column.nulls
    share = column.nulls / column.rows
    if not column.nulls:
        found.append(Suggestion(_name(name, "present"), f"hw.expect.not_null({name!r})", "never NULL"))
    elif share <= _FEW_NULLS and column.rows >= _MANY_ROWS:
        bound = f"{max(0.1, round(share * 200, 1)):g} %"
        rule = f"hw.expect.null_share({name!r}, {bound!r})"
        found.append(Suggestion(_name(name, "mostly_present"), rule, f"NULL in {share:.2%} of the rows"))
    if not filled:
        return found
    is_short = len(repr(column.values)) <= _LONGEST_SET
    if column.values and is_short and filled >= _MANY_ROWS and column.kind in ("text", "number"):
        shown = f"{len(column.values)} values in {filled:,} rows"
        rule = f"hw.expect.in_set({name!r}, {list(column.values)!r})"
        found.append(Suggestion(_name(name, "known"), rule, shown))
    elif column.kind == "number" and column.least is not None:
        rule = f"hw.expect.between({name!r}, {column.least!r}, {column.most!r})"
        found.append(Suggestion(_name(name, "in_range"), rule, f"{column.least} to {column.most}"))
    elif column.kind == "text" and column.least is not None and column.least == column.most:
        rule = f"hw.expect.length({name!r}, {column.least}, {column.most})"
        found.append(Suggestion(_name(name, "length"), rule, f"{column.most} characters in each row"))
    if (
        column.distinct is not None
        and column.distinct == filled
        and filled >= _MANY_ROWS
        and not column.nulls
    ):
        rule = f'hw.expect.unique({name!r}, within="table")'
        if column.kind in ("text", "number"):
            found.append(Suggestion(_name(name, "unique"), rule, "no value twice"))
    return found


def as_module(table: str, version: int, rows: int, found: Sequence[Suggestion]) -> str:
    """The suite as a module of Python, for `headwater quality run TABLE --suite FILE`, or to be copied into a job."""
    lines = [
        f'"""Checks of {table}, suggested by {rows:,} rows of version {version}. Read each, and keep what you mean.',
        "",
        f"    headwater quality run {table} --suite THIS_FILE",
        "",
        'Each only warns until its action is "fail". In a job the same line is a decorator: @hw.check("name", ...).',
        '"""',
        "",
        "import headwater as hw",
        "",
        "CHECKS = [",
    ]
    for each in found:
        lines += [
            f"    # {each.seen}",
            f'    hw.Check({each.name!r}, {each.rule}, on="output", action="warn"),',
        ]
    return "\n".join([*lines, "]", ""])


def _name(column: str, what: str) -> str:
    plain = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in column)
    return f"{plain if plain[:1].isalpha() or plain[:1] == '_' else '_' + plain}_{what}"[:_LONGEST_NAME]
