"""From a record on to its rows: what each job that read it made of it, or why it is in none of its tables."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import pyarrow as pa

from headwater_streams.ledger.log import Commit
from headwater_streams.ledger.trace.back import window_rows
from headwater_streams.ledger.trace.history import TableHistory, Tables, terms_of, why_without_row
from headwater_streams.ledger.trace.narrowing import END, ROWS, START, period_of
from headwater_streams.ledger.trace.places import Place, place_of, spans_of
from headwater_streams.ledger.trace.values import rows_of

Fate = Literal["row", "maybe", "late", "quarantined", "superseded", "left out", "not read"]
_MOST = 20
_SUPERSEDED = "a newer event of its key has taken its place, or it deletes its key"


@dataclass(frozen=True)
class Step:
    """What a job made of a record, or of a row of the table before.

    Attributes:
        table: The job's table; of late and rejected rows, the side table that has it.
        job: The job.
        fate: Whether it is a row there, or may be in one, or which other thing became of it.
        why: The reason, for all but rows; of one that may be, what keeps the answer from being exact.
        generation: The generation of the job that read it; None where none has.
        batch: The batch.
        version: The table's version that the batch made.
        values: The row's columns; None where there is none.
        further: What the jobs that read the table made of that row.
    """

    table: str
    job: str
    fate: Fate
    why: str = ""
    generation: int | None = None
    batch: int | None = None
    version: int | None = None
    values: Mapping[str, Any] | None = None
    further: "tuple[Step, ...]" = ()


def trace_record(tables: Tables, place: Place, *, most: int = _MOST) -> list[Step]:
    """What became of a record in each job that reads its topic.

    Args:
        tables: The tables.
        place: The record's place.
        most: At most so many rows of one table are followed.
    """
    steps: list[Step] = []
    for name in tables.names():
        history = tables.history(name)
        if history.last is not None and not history.is_side and history.reads_topic(place.topic):
            # The tables of one job share the side tables.
            steps += (step for step in _of_record(tables, history, place, most) if step not in steps)
    return steps


def _of_record(tables: Tables, history: TableHistory, place: Place, most: int) -> Iterator[Step]:
    assert history.last is not None
    commit = history.batch_of(place)
    if commit is None:
        yield Step(history.table, history.last.job, "not read", history.why_not_read(place))
        return
    assert commit.entry is not None
    of_topic = (s.input for s in commit.entry.sources if s.table is None and place.topic in s.ranges)
    yield from _outcome(tables, history, place, None, commit, next(of_topic, None), most, frozenset())


def _onwards(
    tables: Tables, table: str, row: Mapping[str, Any], most: int, above: frozenset[str]
) -> Iterator[Step]:
    """What the jobs that read a table made of one of its rows."""
    place, version = place_of(row), tables.history(table).version_of(row)
    if place is None:
        return
    for name in tables.names():
        history = tables.history(name)
        if name in above or history.last is None or history.is_side or not history.reads_table(table):
            continue
        commit = None if version is None else history.batch_of_version(table, version)
        if commit is None and version is not None:
            why = f"the job has not read version {version} of {table} yet"
            steps = [*_outcome(tables, history, place, row, None, None, most, above)]
            yield from steps or [Step(name, history.last.job, "not read", why)]
            continue
        named = (
            s.input for s in (commit.entry.sources if commit and commit.entry else ()) if s.table == table
        )
        yield from _outcome(tables, history, place, row, commit, next(named, None), most, above)


def _outcome(
    tables: Tables,
    history: TableHistory,
    place: Place,
    row: Mapping[str, Any] | None,
    commit: Commit | None,
    name: str | None,
    most: int,
    above: frozenset[str],
) -> Iterator[Step]:
    """What a job made of a record, or of a row at its place.

    Args:
        tables: The tables.
        history: The table of the job.
        place: The place.
        row: The row; None where the job reads the topic.
        commit: The batch that read it; None where that is not known.
        name: The input that it came by.
        most: At most so many rows are followed.
        above: The tables that the way has led through.
    """
    table, above = history.table, above | {history.table}
    entry = commit.entry if commit is not None else None
    job = entry.job if entry is not None else history.last.job if history.last is not None else ""
    of_batch: tuple[int | None, int | None, int | None] = (None, None, None)
    if entry is not None and commit is not None:
        of_batch = (entry.generation, entry.batch, commit.version)
    found = False
    results = tables.rows_over(table, place)
    for result, why in _meant(tables, history, place, row, results, most):
        found = True
        further = tuple(_onwards(tables, table, result, most, above))
        at = (result.get("_generation"), result.get("_batch"), history.version_of(result))
        yield Step(table, job, "maybe" if why else "row", why, *at, result, further)
    for side, fate in _sides(history, has_row=found):
        if side not in tables.names():
            continue
        for aside in _of_job(tables.rows_at(side, [place.span]), name, most):
            found = True
            reason = aside.get("_reason") or "it came after its window or its state was closed"
            at = (aside.get("_generation"), aside.get("_batch"), None)
            yield Step(side, job, fate, reason, *at, aside)
    if found or entry is None:
        return
    if history.changes is not None and history.changes in tables.names():
        for event in rows_of(tables.rows_at(history.changes, [place.span]).slice(0, most)):
            at = (event.get("_generation"), event.get("_batch"), None)
            yield Step(history.changes, job, "superseded", _SUPERSEDED, *at, event)
            return
    if results.num_rows > most and ROWS in results.column_names:
        why = f"it may be in one of {results.num_rows} windows whose offsets span it"
        yield Step(table, job, "maybe", why, *of_batch)
        return
    why = why_without_row(terms_of(entry, place if row is None else None, name))
    yield Step(table, job, "left out", why, *of_batch)


def _meant(
    tables: Tables,
    history: TableHistory,
    place: Place,
    row: Mapping[str, Any] | None,
    results: pa.Table,
    most: int,
) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Of a table's rows whose ranges hold a place, those that it went into, each with what is not certain about it."""
    if ROWS not in results.column_names:
        for result in rows_of(results.slice(0, most)):
            yield result, ""
        return
    job = history.last.job if history.last is not None else ""
    time = tables.window_time(job)
    windows = [each for each in rows_of(results) if _in_time(each, row, time)]
    if row is None:  # the job reads the topic itself: nothing but the window's ranges is known
        for window in windows[:most]:
            offsets = sum(len(span) for span in spans_of(window) if span is not None)
            sure = offsets == window[ROWS]
            yield (
                window,
                "" if sure else f"the window counts {window[ROWS]} of {offsets} offsets in its ranges",
            )
        return
    sources = sorted({i.table for i in history.inputs if i.table is not None} & {*tables.names()})
    found: set[tuple[Any, Any]] = set()
    # A row is in one window of a time. The likeliest is looked at first: its key has the row's own values.
    windows.sort(key=lambda window: -sum(row[name] == window[name] for name in _own(row) if name in window))
    for window in windows[: most * most]:
        period = window.get(START), window.get(END)
        if START in window and period in found:
            continue
        spans = [span for span in spans_of(window) if span is not None]
        for source in sources:
            counted = window_rows(tables, history, window, source, spans)
            if any(place_of(each) == place for each in _places(counted.rows)):
                found |= {period} if counted.is_exact else set()
                yield window, counted.note


def _own(row: Mapping[str, Any]) -> list[str]:
    return [name for name in row if not name.startswith("_")]


def _places(rows: pa.Table) -> list[dict[str, Any]]:
    own = [name for name in ("_topic", "_partition", "_offset", "_sources") if name in rows.column_names]
    places: list[dict[str, Any]] = rows.select(own).to_pylist()
    return places


def _in_time(window: Mapping[str, Any], row: Mapping[str, Any] | None, time: str | None) -> bool:
    """Whether a row's time is a window's, as far as both are known."""
    at, period = None if row is None or time is None else row.get(time), period_of(window)
    return not isinstance(at, datetime) or period is None or period[0] <= at < period[1]


def _sides(history: TableHistory, *, has_row: bool) -> Iterator[tuple[str, Fate]]:
    """The side tables that may have a record, and what became of it if one has. An ingest job shares them with the job
    that it feeds: of a record that is a row of it, they speak for that one, and late to it is none."""
    rejected, late = history.sides
    if not (history.is_ingest and has_row):
        yield rejected, "quarantined"
    if not history.is_ingest:
        yield late, "late"


def _of_job(rows: pa.Table, name: str | None, most: int) -> list[dict[str, Any]]:
    """The rows of a side table that came by an input."""
    return [
        each for each in rows_of(rows.slice(0, most)) if name is None or each.get("_input") in (None, name)
    ]
