"""Prints results: JSON and CSV for scripts, a table for people."""

import json
import math
from collections.abc import Callable, Iterable
from typing import IO, TYPE_CHECKING, Any

from headwater.piped import widen_for
from headwater.sql.result import Result
from headwater_broker.shown import escaped_json, escaped_text
from headwater_streams.base.plural import quantity

if TYPE_CHECKING:
    from rich.console import Console

CSV_MARKS = ',"\r\n'
"""The characters for which a value in CSV needs quotes."""


def write_json(result: Result, out: IO[str]) -> None:
    """One JSON array with an object for each row, a line each; `[]` if there are none."""
    separator = "["
    for row in result.objects():
        out.write(f"{separator}\n{json_text(row)}" if separator == "," else f"{separator}{json_text(row)}")
        separator = ","
    out.write("[]\n" if separator == "[" else "]\n")


def json_text(value: Any) -> str:
    """JSON on one line; NaN and infinities, which JSON does not have, become null at any depth."""
    try:
        document = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        document = json.dumps(_finite(value), ensure_ascii=False, allow_nan=False)
    return escaped_json(document)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return value


def write_csv(result: Result, out: IO[str], *, raw: bool = True, null: str = "") -> None:
    """A header and the rows; structs and arrays are JSON.

    NULL is `null` without quotes, and a text that reads the same has them. If `null` is empty, as by default, a NULL in
    a single column is a pair of quotes: readers of CSV skip a blank line.

    Args:
        result: What to write.
        out: Where.
        raw: Whether control characters of the data are written as they are; no terminal should get them.
        null: What stands for NULL; it must not need quotes.
    """
    if not result.columns:
        return
    escape = _escape_unless(raw)
    missing = '""' if not null and len(result.columns) == 1 else null

    def cell(value: Any) -> str:
        return missing if value is None else _csv_text(escape(_cell_text(value, null="")), null)

    # Python's own writer, before 3.13, leaves a carriage return without quotes, at which readers end the line.
    out.write(",".join(_csv_text(escape(name), null) for name in result.columns) + "\n")
    out.writelines(",".join(map(cell, row)) + "\n" for row in result.rows())


def _csv_text(text: str, null: str) -> str:
    if text and text != null and not any(mark in text for mark in CSV_MARKS):
        return text
    return '"' + text.replace('"', '""') + '"'


def _cell_text(value: Any, *, null: str) -> str:
    if value is None:
        return null
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return json_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return no_number(value)
    return str(value)


def no_number(value: float) -> str:
    """What a float is called that is no finite number, as SQL has it."""
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


def _escape_unless(raw: bool) -> Callable[[str], str]:
    return str if raw else escaped_text


def print_table(
    result: Result, console: "Console", *, max_rows: int, raw: bool = False, null: str = ""
) -> None:
    """A table, or one line for each value if the terminal is too narrow for the columns.

    Args:
        result: What to show.
        console: Where; its width decides between the two forms if it is a terminal.
        max_rows: Shows no more than these; 0 shows all.
        raw: Whether control characters of the data, which a terminal obeys, are printed as they are.
        null: What stands for NULL.
    """
    from itertools import islice

    if not result.columns:
        console.print("done", style="dim")
        return
    texts = [
        [_escape_unless(raw)(_cell_text(value, null=null)) for value in row]
        for row in islice(result.rows(readable_bytes=True), max_rows or None)
    ]
    columns = tuple(map(_escape_unless(raw), result.columns))
    widths = [max(len(name), *(len(row[index]) for row in texts), 0) for index, name in enumerate(columns)]
    if console.is_terminal and sum(widths) + 3 * len(widths) + 1 > console.width and len(widths) > 1:
        _print_records(columns, texts, console)
    else:
        _print_grid(columns, result.numeric, texts, console)
    count = len(result)
    more = f", the first {len(texts):,} shown (--max-rows 0 shows all)" if len(texts) < count else ""
    console.print(f"{quantity(count, 'row')}{more}", style="dim", highlight=False)


def _print_grid(
    columns: tuple[str, ...], numeric: Iterable[bool], texts: list[list[str]], console: "Console"
) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, kind in zip(columns, numeric, strict=True):
        table.add_column(Text(name), justify="right" if kind else "left", no_wrap=not console.is_terminal)
    # rich measures a tab as one column, then makes several blanks of it, and cuts off the end of the cell.
    texts = [[cell.expandtabs() for cell in row] for row in texts]
    for row in texts:
        table.add_row(*map(Text, row))
    if not console.is_terminal:
        widen_for(console, table, (*columns, *(cell for row in texts for cell in row)))
    console.print(table)


def _print_records(columns: tuple[str, ...], texts: list[list[str]], console: "Console") -> None:
    from rich.text import Text

    name_width = max(len(name) for name in columns)
    for number, row in enumerate(texts, start=1):
        console.rule(f"row {number}", style="dim", align="left")
        for name, cell in zip(columns, row, strict=True):
            console.print(Text(f"{name:<{name_width}}  "), style="bold", end="")
            console.print(Text(cell), soft_wrap=True)
