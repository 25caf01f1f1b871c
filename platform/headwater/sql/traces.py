"""`TRACE`: what rows were made of, and what became of a record, as rows of a result.

TRACE gold.delays WHERE carrier = 'UA'      a range of records a row, of the rows that the condition chooses
TRACE 'flights:0:17'                        what each job made of that record, a step a row
"""

import re
from pathlib import Path

from headwater.errors import UsageError
from headwater.sql.errors import SqlError
from headwater.sql.result import Result

_TRACE = re.compile(
    r"trace\s+(?:'(?P<record>[^']*)'|(?P<table>[\w.\"`]+)(?:\s+where\s+(?P<where>.+))?)",
    re.IGNORECASE | re.DOTALL,
)
_BEGINS = re.compile(r"trace\b", re.IGNORECASE)
_OF_ROWS = ("row", "table", "topic", "partition", "first_offset", "end_offset", "note")
_OF_RECORD = ("depth", "table", "job", "fate", "why", "batch", "version", "place")
_MOST_ROWS, _MOST_FOLLOWED = 1_000, 10_000


def is_trace(statement: str) -> bool:
    """Whether a statement is to be one of these; no other statement of SQL begins so."""
    return _BEGINS.match(statement) is not None


def traced(home: Path, statement: str) -> Result:
    """The answer to a statement of which `is_trace` holds.

    Raises:
        SqlError: It is not written as it is to be, names no table and no record, or its condition is wrong.
    """
    named = _TRACE.fullmatch(statement.strip())
    if named is None:
        raise SqlError("write TRACE TABLE, TRACE TABLE WHERE CONDITION, or TRACE 'TOPIC:PARTITION:OFFSET'")
    try:
        if named["record"] is not None:
            return _of_record(home, named["record"])
        return _of_rows(home, re.sub(r'["`]', "", named["table"]), named["where"])
    except UsageError as error:
        raise SqlError(str(error)) from error


def _of_rows(home: Path, table: str, where: str | None) -> Result:
    from headwater import trace
    from headwater_streams.ledger.trace.places import joined

    found = trace.rows(table, where=where, limit=_MOST_ROWS + 1, most=_MOST_FOLLOWED, home=home)
    if len(found) > _MOST_ROWS:
        raise SqlError(f"trace: more than {_MOST_ROWS:,} rows of {table} are so: choose fewer with WHERE")
    lines = []
    for number, row in enumerate(found, 1):
        note = "; ".join(dict.fromkeys(trace.notes_of(row)))
        for span in joined(trace.records_of(row)):
            lines.append((number, table, span.topic, span.partition, span.start, span.end, note or None))
    return Result.from_rows(_OF_ROWS, lines)


def _of_record(home: Path, record: str) -> Result:
    from headwater import trace
    from headwater.trace import Step
    from headwater_streams.ledger.trace.places import place_of

    lines = []

    def add(steps: "tuple[Step, ...]", depth: int) -> None:
        for step in steps:
            place = None if step.values is None else place_of(step.values)
            at = None if place is None else str(place)
            lines.append(
                (depth, step.table, step.job, step.fate, step.why or None, step.batch, step.version, at)
            )
            add(step.further, depth + 1)

    add(tuple(trace.record(record, home=home)), 1)
    return Result.from_rows(_OF_RECORD, lines)
