"""From a row back to its records: what each table between says that it was made of."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater_streams.ledger.trace.history import During, InputOf, TableHistory, Tables
from headwater_streams.ledger.trace.narrowing import END, ROWS, START, Counted, counted_by, period_of
from headwater_streams.ledger.trace.places import OFFSET, PARTITION, TOPIC, Place, Span, place_of, spans_of
from headwater_streams.ledger.trace.values import rows_of

_MISSED = "_missed"
_MOST = 20


@dataclass(frozen=True)
class TracedInput:
    """What a row was made of by one input of its job.

    Attributes:
        input: The parameter of the job's function; empty where the ledger does not know it any more.
        table: The table that it reads; None for topics.
        spans: The offsets that the row names.
        count: How many rows of that table it was made of; of a topic, the offsets.
        rows: The first of these rows; none of a topic, whose records are the `spans`.
        note: What keeps the answer from being exact; empty where it is.
    """

    input: str
    table: str | None
    spans: tuple[Span, ...]
    count: int
    rows: "tuple[TracedRow, ...]" = ()
    note: str = ""


@dataclass(frozen=True)
class TracedRow:
    """A row, and what it was made of.

    Attributes:
        table: Its table.
        job: The job that wrote it; empty where no commit is known to have.
        kind: The kind of commit: a batch's, or `"backfill"`.
        generation: The job's generation.
        batch: The batch.
        version: The table's version that brought it.
        values: Its columns.
        inputs: What it was made of.
    """

    table: str
    job: str
    kind: str
    generation: int | None
    batch: int | None
    version: int | None
    values: Mapping[str, Any]
    inputs: tuple[TracedInput, ...]

    @property
    def place(self) -> Place | None:
        """By which the rows of other tables name it."""
        return place_of(self.values)


def trace_rows(
    tables: Tables, table: str, rows: Sequence[Mapping[str, Any]], *, most: int = _MOST
) -> list[TracedRow]:
    """What rows were made of, down to the records of topics.

    Args:
        tables: The tables.
        table: The table of the rows.
        rows: The rows, with all their columns.
        most: At most so many rows are followed of each row that was made of more; all are counted.
    """
    return [_traced(tables, table, row, most, frozenset()) for row in rows]


def records_of(row: TracedRow) -> Iterator[Span]:
    """The records that a row was made of, of each input as far as its rows were followed; some may come twice."""
    for each in row.inputs:
        if each.table is None:
            yield from each.spans
        for behind in each.rows:
            yield from records_of(behind)


def notes_of(row: TracedRow) -> Iterator[str]:
    """What keeps a trace from being exact, wherever on the way; nothing where it is."""
    for each in row.inputs:
        if each.note:
            yield each.note
        if each.table is not None and each.count > len(each.rows):
            yield f"of {each.count} rows of {each.table} the first {len(each.rows)} were followed"
        for behind in each.rows:
            yield from notes_of(behind)


def _traced(
    tables: Tables, table: str, row: Mapping[str, Any], most: int, above: frozenset[str]
) -> TracedRow:
    history, spans = tables.history(table), spans_of(row)
    named = [each for each in spans if each is not None]
    commit = history.written_by(row, named)
    entry = commit.entry if commit is not None else None
    return TracedRow(
        table,
        entry.job if entry is not None else "",
        entry.kind if entry is not None else "",
        row.get("_generation"),
        row.get("_batch"),
        commit.version if commit is not None else None,
        row,
        tuple(_inputs(tables, history, row, spans, most, above | {table})),
    )


def _inputs(
    tables: Tables,
    history: TableHistory,
    row: Mapping[str, Any],
    spans: Sequence[Span | None],
    most: int,
    above: frozenset[str],
) -> Iterator[TracedInput]:
    of_inputs: dict[InputOf | None, list[Span]] = {}
    for side, span in enumerate(spans):
        if span is not None:
            of_inputs.setdefault(history.input_of(span, side), []).append(span)
    for source, its in of_inputs.items():
        count = sum(len(each) for each in its)
        if source is None:
            note = f"the ledger of {history.table} does not say by which input they came"
            yield TracedInput("", None, tuple(its), count, note=note)
        elif source.table is None:
            note = ""
            if ROWS in row and row[ROWS] != count:
                note = f"the window counts {row[ROWS]} of these {count} offsets"
            yield TracedInput(source.input, None, tuple(its), count, note=note)
        else:
            yield _of_table(tables, history, row, source.input, source.table, its, most, above)


def _of_table(
    tables: Tables,
    history: TableHistory,
    row: Mapping[str, Any],
    name: str,
    table: str,
    spans: Sequence[Span],
    most: int,
    above: frozenset[str],
) -> TracedInput:
    if table in above or table not in tables.names():
        why = "is made of itself" if table in above else "is not there any more"
        return TracedInput(name, table, tuple(spans), 0, note=f"{table} {why}")
    if ROWS in row:
        counted = window_rows(tables, history, row, table, spans)
    else:
        counted = Counted(read_by(tables, history, row, table, spans), None)
    first = _in_order(counted.rows).slice(0, most)
    followed = [_traced(tables, table, each, most, above) for each in rows_of(first)]
    note = counted.note
    if not counted.rows.num_rows:
        note = f"no row of {table} is at these places any more"
    return TracedInput(name, table, tuple(spans), counted.rows.num_rows, tuple(followed), note)


def read_by(
    tables: Tables, history: TableHistory, row: Mapping[str, Any], table: str, spans: Sequence[Span]
) -> pa.Table:
    """The rows of a table at some places, of which another table's row was made. Where rows share a place, those that
    the row's batch read are meant, as far as they are still there."""
    rows = tables.rows_at(table, spans)
    commit = history.written_by(row, spans)
    if commit is None or commit.entry is None or rows.num_rows <= 1:
        return rows
    versions = [s for s in commit.entry.sources if s.table == table and s.versions is not None]
    read = tables.history(table)
    chosen = [
        at is not None
        and any(s.versions[0] <= at < s.versions[1] and at not in s.left_out for s in versions if s.versions)
        for at in map(read.version_of, rows.select(["_generation", "_batch"]).to_pylist())
    ]
    return rows.filter(pa.array(chosen)) if any(chosen) else rows


def window_rows(
    tables: Tables, history: TableHistory, window: Mapping[str, Any], table: str, spans: Sequence[Span]
) -> Counted:
    """Of a table's rows at the places of a window, those that it counts."""
    job = history.last.job if history.last is not None else ""
    time, period, counted = tables.window_time(job), period_of(window), None
    if time is not None and period is not None:
        # Of a busy topic's rows in the ranges, few are of the window's time.
        rows = tables.rows_at(table, spans, During(time, *period))
        counted = counted_by(window, _without_late(tables, history, window, rows), time)
    if counted is None or not counted.is_exact:  # the time may be one that the function computes
        rows = tables.rows_at(table, spans)
        counted = counted_by(window, _without_late(tables, history, window, rows), time)
    return counted


def _without_late(
    tables: Tables, history: TableHistory, window: Mapping[str, Any], rows: pa.Table
) -> pa.Table:
    """Rows, without those that came too late for a window; all where they are no more than it counts."""
    late = history.sides[1]
    if late not in tables.names() or rows.num_rows <= (window[ROWS] or 0):
        return rows
    return _without(rows, _missing(tables.rows_at(late, _places_of(rows)), window))


def _in_order(rows: pa.Table) -> pa.Table:
    """Rows by their records' places, where they have them."""
    order = [(name, "ascending") for name in (TOPIC, PARTITION, OFFSET) if name in rows.column_names]
    return rows.sort_by(order) if order else rows


def _places_of(rows: pa.Table) -> list[Span]:
    if OFFSET not in rows.column_names:
        return []
    by = rows.group_by([TOPIC, PARTITION]).aggregate([(OFFSET, "min"), (OFFSET, "max")])
    return [
        Span(each[TOPIC], each[PARTITION], each[f"{OFFSET}_min"], each[f"{OFFSET}_max"] + 1)
        for each in by.to_pylist()
    ]


def _missing(late: pa.Table, window: Mapping[str, Any]) -> set[Place]:
    """The places of the late rows that a window lacks; where windows overlap, `_missed` says which ones do."""
    here = {"start": window.get(START), "end": window.get(END)}
    return {
        place
        for row in rows_of(late)
        if (place := place_of(row)) is not None and (_MISSED not in row or here in (row[_MISSED] or ()))
    }


def _without(rows: pa.Table, places: set[Place]) -> pa.Table:
    if not places or OFFSET not in rows.column_names:
        return rows
    columns = (rows[name].to_pylist() for name in (TOPIC, PARTITION, OFFSET))
    is_there = [Place(*each) not in places for each in zip(*columns, strict=True)]
    return rows.filter(pc.equal(pa.array(is_there), True))
