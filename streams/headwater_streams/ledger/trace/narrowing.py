"""Which rows a window counts, of those in its ranges of offsets: those of its time and of its key.

A window says how many rows it counts (`_rows`). The time's column and the columns of the key are looked for by that
number: each of them leaves at least so many rows, and all together just these. Where a job computes its key, or filters
before its window, no choice of columns gives the number, and the answer says so.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

START, END, INDEX, ROWS = "window_start", "window_end", "window_index", "_rows"


@dataclass(frozen=True)
class Counted:
    """The rows of a window.

    Attributes:
        rows: The rows.
        expected: How many the window counts; None where it does not say.
        by: The columns that chose them.
    """

    rows: pa.Table
    expected: int | None
    by: tuple[str, ...] = ()

    @property
    def is_exact(self) -> bool:
        """Whether they are as many as the window counts."""
        return self.expected is not None and self.rows.num_rows == self.expected

    @property
    def note(self) -> str:
        """What a person must know of an answer that is not exact; nothing for one that is."""
        found = self.rows.num_rows
        if self.expected is None or found == self.expected:
            return ""
        if found > self.expected:
            return f"the window counts {self.expected} of these {found} rows: which of them, its columns do not say"
        return f"the window counts {self.expected} rows, of which {found} are still there"


def period_of(window: Mapping[str, Any]) -> tuple[datetime, datetime] | None:
    """From when to when a window's rows are, half-open; None where it does not say. The end of a count window is the
    time of its last row."""
    start, end = window.get(START), window.get(END)
    if not (isinstance(start, datetime) and isinstance(end, datetime)):
        return None
    return start, end + timedelta(microseconds=1) if INDEX in window else end


def counted_by(window: Mapping[str, Any], rows: pa.Table, time: str | None = None) -> Counted:
    """The rows that a window counts.

    Args:
        window: The window's row.
        rows: The rows in its ranges.
        time: The column that its time is of, where that is known; else each column with times is tried.
    """
    expected = window.get(ROWS)
    if expected is None or rows.num_rows <= expected:
        return Counted(rows, expected)
    best: Counted | None = None
    for name, in_time in _by_time(window, rows, time):
        chosen, by = in_time, () if name is None else (name,)
        for column in _shared(window, rows):
            if chosen.num_rows == expected:
                break
            fewer = chosen.filter(_equal(chosen[column], window[column]))
            if expected <= fewer.num_rows < chosen.num_rows:
                chosen, by = fewer, (*by, column)
        counted = Counted(chosen, expected, by)
        if best is None or chosen.num_rows < best.rows.num_rows:
            best = counted
        if counted.is_exact:
            break
    return best or Counted(rows, expected)


def _by_time(
    window: Mapping[str, Any], rows: pa.Table, time: str | None
) -> Iterator[tuple[str | None, pa.Table]]:
    """The rows in the window's time, by each column that may be the one."""
    expected, period = window[ROWS], period_of(window)
    if period is not None:
        start, end = period
        names = [time] if time in rows.column_names else [n for n in rows.column_names if n[0] != "_"]
        for name in names:
            assert name is not None
            if not pa.types.is_timestamp(rows.schema.field(name).type):
                continue
            at, kind = rows[name], rows.schema.field(name).type
            after = pc.greater_equal(at, pa.scalar(start, kind))
            inside = rows.filter(pc.and_(after, pc.less(at, pa.scalar(end, kind))))
            if inside.num_rows >= expected:
                yield name, inside
    yield None, rows


def _shared(window: Mapping[str, Any], rows: pa.Table) -> list[str]:
    """The columns that the window has of its rows: parts of its key, or values that only have their names."""
    return [name for name in rows.column_names if name[0] != "_" and name in window]


def _equal(column: pa.ChunkedArray, value: Any) -> pa.ChunkedArray:
    if value is None:
        return pc.is_null(column)
    try:
        return pc.fill_null(pc.equal(column, pa.scalar(value, column.type)), False)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return pa.chunked_array([pa.repeat(False, len(column))])  # of another type: no part of the key
