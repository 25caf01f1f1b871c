"""What `headwater trace` prints: traces as indented lines, and as JSON."""

import base64
import json
import math
from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta
from datetime import time as clock
from decimal import Decimal
from typing import Any

from headwater.cli._records import RawRecord
from headwater.sql.output import no_number
from headwater_broker.shown import escaped
from headwater_streams.base.plural import quantity
from headwater_streams.ledger.trace import Place, Span, Step, TracedInput, TracedRow
from headwater_streams.ledger.trace.places import place_of

Found = Mapping[Place, RawRecord | str]
_MOST_COLUMNS, _MOST_CHARACTERS, _MOST_SPANS, _MOST_RECORDS = 8, 200, 8, 10
_FATES = {
    "row": "a row",
    "maybe": "perhaps",
    "late": "late",
    "quarantined": "rejected",
    "superseded": "superseded",
    "left out": "left out",
    "not read": "not read",
}


def lines_of_row(row: TracedRow, found: Found, depth: int = 0) -> Iterator[str]:
    """A row and all that it was made of, a line for each."""
    indent = "  " * depth
    yield f"{indent}{row.table}  {_columns(row.values)}{_written(row)}"
    for each in row.inputs:
        yield from _lines_of_input(each, found, depth + 1)


def _lines_of_input(each: TracedInput, found: Found, depth: int) -> Iterator[str]:
    indent = "  " * depth
    of = f"input {each.input}: " if each.input else ""
    if each.table is None:
        if not each.note and all(len(span) == 1 for span in each.spans):
            for span in each.spans:
                yield from (indent + record_line(place, found) for place in span.places(1))
            return
        yield f"{indent}{of}{_spans(each.spans)}: {each.note or quantity(each.count, 'record')}"
        places = [place for span in each.spans for place in span.places(_MOST_RECORDS)]
        for place in places[:_MOST_RECORDS]:
            yield f"{indent}  {record_line(place, found)}"
        if each.count > _MOST_RECORDS:
            yield f"{indent}  and {each.count - _MOST_RECORDS} more"
        return
    note = f"; {each.note}" if each.note else ""
    if each.count != 1 or note:
        yield f"{indent}{of}{quantity(each.count, 'row')} of {each.table} in {_spans(each.spans)}{note}"
    for row in each.rows:
        yield from lines_of_row(row, found, depth + (each.count != 1 or bool(note)))
    if each.count > len(each.rows):
        yield f"{indent}  and {each.count - len(each.rows)} more: --most {each.count} follows all"


def lines_of_step(step: Step, depth: int) -> Iterator[str]:
    """What became of a record in a job, and in those behind it, a line for each."""
    indent, why = "  " * depth, f": {step.why}" if step.why else ""
    batch = "" if step.batch is None else f"  (job {step.job}, batch {step.batch})"
    if step.fate in ("left out", "not read"):
        yield f"{indent}{_FATES[step.fate]} by job {step.job}, for {step.table}{why}{batch}"
    else:
        columns = f"  {_columns(step.values)}" if step.values and step.fate != "quarantined" else ""
        yield f"{indent}{_FATES[step.fate]} in {step.table}{why}{columns}{batch}"
    for each in step.further:
        yield from lines_of_step(each, depth + 1)


def record_line(place: Place, found: Found) -> str:
    """A record's place, and its value as far as it was read."""
    record = found.get(place)
    if record is None:
        return str(place)
    if isinstance(record, str):
        return f"{place}  {record}"
    if record.value is None:
        return f"{place}  no value" + (f", key {_text(record.key)}" if record.key is not None else "")
    return f"{place}  {_text(record.value)}"


def _text(data: bytes) -> str:
    text = escaped(data.decode("utf-8", "backslashreplace"))
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}... ({len(data)} bytes)"


def _written(row: TracedRow) -> str:
    if not row.job:
        return "  (no commit that the ledger knows wrote it)"
    by = f"repaired by {row.job}" if row.kind == "backfill" else f"job {row.job}, batch {row.batch}"
    return f"  ({by}, version {row.version})"


def _columns(values: Mapping[str, Any]) -> str:
    """A row's own columns; of many the first."""
    own = [(name, value) for name, value in values.items() if not name.startswith("_")]
    parts = [f"{name}={_shown(value)}" for name, value in own[:_MOST_COLUMNS]]
    return ", ".join(parts) + (", ..." if len(own) > _MOST_COLUMNS else "")


def _shown(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return no_number(value)
    plain = plain_value(value)
    if plain is None:
        return "NULL"
    text = plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
    return escaped(text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + "...")


def _spans(spans: tuple[Span, ...]) -> str:
    shown = ", ".join(map(str, spans[:_MOST_SPANS]))
    return shown + (f" and {len(spans) - _MOST_SPANS} more ranges" if len(spans) > _MOST_SPANS else "")


def plain_value(value: Any) -> Any:
    """A value as JSON has it, by the rules of `headwater sql`."""
    if isinstance(value, datetime):
        # Arrow gives times of a zone and without one.
        text = value.replace(tzinfo=None).isoformat(
            timespec="microseconds" if value.microsecond else "seconds"
        )
        return text + "Z"
    if isinstance(value, date | clock):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, timedelta):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {str(name): plain_value(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(each) for each in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), -float("inf"))):
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def row_json(row: TracedRow, found: Found) -> dict[str, Any]:
    """A row and all that it was made of, for machines."""
    return {
        "table": row.table,
        "job": row.job or None,
        "kind": row.kind or None,
        "generation": row.generation,
        "batch": row.batch,
        "version": row.version,
        "row": plain_value(row.values),
        "inputs": [_input_json(each, found) for each in row.inputs],
    }


def _input_json(each: TracedInput, found: Found) -> dict[str, Any]:
    value: dict[str, Any] = {
        "input": each.input or None,
        "table": each.table,
        "offsets": [
            {"topic": s.topic, "partition": s.partition, "start": s.start, "end": s.end} for s in each.spans
        ],
        "count": each.count,
        "note": each.note or None,
    }
    if each.table is None:
        places = (place for span in each.spans for place in span.places(_MOST_RECORDS))
        value["records"] = [record_json(place, found) for place in places if place in found]
    else:
        value["rows"] = [row_json(row, found) for row in each.rows]
    return value


def record_json(place: Place, found: Found) -> dict[str, Any]:
    """A record, for machines: its bytes as base64 where they are no text, as `headwater consume --json` has them."""
    value: dict[str, Any] = {"topic": place.topic, "partition": place.partition, "offset": place.offset}
    record = found.get(place)
    if isinstance(record, str):
        value["problem"] = record
    elif record is not None:
        value |= {
            "timestamp_ms": record.timestamp_ms,
            "key": _field(record.key),
            "value": _field(record.value),
            "headers": [[name, _field(each)] for name, each in record.headers],
        }
    return value


def _field(data: bytes | str | None) -> Any:
    if data is None or isinstance(data, str):
        return data
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def step_json(step: Step) -> dict[str, Any]:
    """What became of a record in a job, for machines."""
    place = None if step.values is None else place_of(step.values)
    return {
        "table": step.table,
        "job": step.job,
        "fate": step.fate,
        "why": step.why or None,
        "generation": step.generation,
        "batch": step.batch,
        "version": step.version,
        "place": None if place is None else str(place),
        "row": None if step.values is None else plain_value(step.values),
        "further": [step_json(each) for each in step.further],
    }
