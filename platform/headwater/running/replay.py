"""Rows of a table or a file as records, in the order of their time, and when each is due."""

import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.errors import UsageError, UserError, reason
from headwater_streams.base.nearest import nearest

if TYPE_CHECKING:
    import pyarrow as pa

ORIGIN_CLUSTER = "replay"
_RAW, _KEY, _HEADERS = "_raw", "_key", "_headers"
_PLACE = ("_timestamp", "_topic", "_partition", "_offset", "_row")
_TIME = "__replayed_at"
_NO_TIME = "--speed and --keep-timestamps go by event times: --time names the column that has them"
_LAST_MS = 2**63 - 1
_COMMITTED = {"_batch", "_generation"}
"""Columns that each table of a job has."""
LINES, PARQUET = (".jsonl", ".ndjson", ".json"), (".parquet",)


@dataclass(frozen=True)
class Replayed:
    """A record to send.

    Attributes:
        number: Its number, from 0 on, the same in each replay of the same version.
        key: Its key.
        value: Its value.
        headers: Its headers, without the origin's.
        at_ms: Its event time; None where it has none.
    """

    number: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    at_ms: int | None


@dataclass(frozen=True)
class Selection:
    """Which rows are sent, and what of them.

    Attributes:
        source: The table, or the file.
        time: The column of the event time; None for rows in the order of their records.
        key: The column that becomes the key; None for the key that the row has kept, if any.
        where: Which rows, as SQL; None for all.
        skip: How many of the first rows are left out, as they were sent before.
        by_time: Whether records are sent at their event times, or with them, so that there must be some.
    """

    source: str
    time: str | None = None
    key: str | None = None
    where: str | None = None
    skip: int = 0
    by_time: bool = False


class Pace:
    """When records are due: at their event times, so many times as fast as they came to be.

    The first record is due at once. A record without a time, or one behind the time of those before it, is due with
    them. Without a speed all are due at once.
    """

    def __init__(self, speed: float | None, monotonic: Callable[[], float]) -> None:
        self._speed, self._monotonic = speed, monotonic
        self._first_ms: int | None = None
        self._started_s = 0.0

    def wait_s(self, at_ms: int | None) -> float:
        """How long to wait for a record's turn, in seconds; 0 where it has come."""
        if self._speed is None or at_ms is None:
            return 0.0
        if self._first_ms is None:
            self._first_ms, self._started_s = at_ms, self._monotonic()
        due_s = self._started_s + (at_ms - self._first_ms) / 1000 / self._speed
        return max(0.0, due_s - self._monotonic())


def parse_speed(text: str) -> float | None:
    """How many times as fast as they came to be records are sent; None for as fast as it goes.

    Raises:
        UsageError: It is no speed.

    Example:
        >>> parse_speed("10x"), parse_speed("0.5"), parse_speed("max")
        (10.0, 0.5, None)
    """
    if text == "max":
        return None
    try:
        speed = float(text.removesuffix("x"))
    except ValueError:
        speed = 0.0
    if not 0 < speed < float("inf"):
        raise UsageError(f"--speed {text}: give 1x, 10x, another number of times, or max")
    return speed


def timestamp_of(record: Replayed) -> int | None:
    """A record's event time as its timestamp; None where it has none.

    Raises:
        UserError: It is none that a record's timestamp can be.
    """
    # To librdkafka 0 is the time of now.
    if record.at_ms is not None and not 0 < record.at_ms <= _LAST_MS:
        what = (
            "is of 1970-01-01T00:00:00Z or before"
            if record.at_ms <= 0
            else "has a time beyond all timestamps"
        )
        raise UserError(
            f"row {record.number} {what}, which a producer cannot give a record: leave --keep-timestamps out, or "
            "choose rows with --where"
        )
    return record.at_ms


def of_table(batches: Iterator["pa.RecordBatch"], selection: Selection) -> Iterator[Replayed]:
    """The rows of a table as records: a rejected row as it was sent, another as JSON of its own columns.

    Args:
        batches: The rows, in their order, with the time in a column of its own; see `statement_of`.
        selection: What of them is sent.
    """
    import pyarrow as pa

    from headwater.sql.output import json_text
    from headwater.sql.result import Result

    number = selection.skip
    for batch in batches:
        times_us = batch.column(batch.num_columns - 1).cast(pa.timestamp("us")).cast(pa.int64()).to_pylist()
        batch = batch.remove_column(batch.num_columns - 1)  # by its place: another one may have its name
        names = batch.schema.names
        is_raw = _RAW in names
        # Of a file or a table that no job wrote, _id is a column as any other.
        own = [n for n in names if not (n.startswith("_") and (is_raw or _COMMITTED.issubset(names)))]
        objects: Iterable[dict[str, Any]] = [
            {}
        ] * batch.num_rows  # of a quarantine table, which has no own columns
        if own:
            objects = Result.from_arrow(pa.Table.from_batches([batch.select(own)])).objects()
        kept = {n: batch[n].to_pylist() for n in (_RAW, _KEY, _HEADERS) if n in names and n not in own}
        keys = kept.get(_KEY)
        if selection.key is not None:
            keys = [*map(_as_key, _plain(batch[selection.key]))]
        for place, (at_us, values) in enumerate(zip(times_us, objects, strict=True)):
            key = None if keys is None else keys[place]
            value = kept[_RAW][place] if is_raw else json_text(values).encode()
            headers = _headers(kept[_HEADERS][place]) if _HEADERS in kept else ()
            yield Replayed(number, key, value, headers, None if at_us is None else at_us // 1000)
            number += 1


def statement_of(selection: Selection, source: str, columns: list[str], times: list[str]) -> str:
    """The query that gives rows in the order in which they are sent, the same whenever it is asked.

    Args:
        selection: What is sent.
        source: The table, as SQL names it, or the function that reads the file.
        columns: Its columns.
        times: Those of them that are times.

    Raises:
        UsageError: It lacks a column, that is no time, or there is none to go by.
    """
    for option, name in (("--time", selection.time), ("--key", selection.key)):
        if name is not None and name not in columns:
            raise UsageError(
                f"{option} {name}: {selection.source} has no such column; it has {nearest(name, columns)}"
            )
    if selection.time is not None and selection.time not in times:
        raise UsageError(
            f"--time {selection.time} is no time; those of {selection.source} are {', '.join(times) or 'none'}"
        )
    time = selection.time or ("_timestamp" if "_timestamp" in times else None)
    if selection.by_time and time is None:
        raise UsageError(_NO_TIME)
    at = "CAST(NULL AS TIMESTAMP)" if time is None else f"CAST({_quoted(time)} AS TIMESTAMP)"
    # Rows of one time would be in another order, and have other numbers, each time: all columns decide.
    places = [name for name in _PLACE if name in columns]
    order = dict.fromkeys([*([] if time is None else [time]), *places, *columns])
    by = ", ".join(f"{_quoted(name)} NULLS FIRST" for name in order)
    where = "" if selection.where is None else f"WHERE (\n{selection.where}\n)"
    return f"SELECT *, {at} AS {_TIME} FROM {source} {where} ORDER BY {by} OFFSET {selection.skip}"


def of_lines(path: Path, selection: Selection) -> Iterator[Replayed]:
    """The lines of a file of JSON as records, each as it stands there, in its order.

    Raises:
        UsageError: There is no time to go by, or the file has no object a line.
        UserError: A line has no such time, or the file cannot be read.
    """
    if selection.by_time and selection.time is None:
        raise UsageError(_NO_TIME)
    lines = islice(enumerate(_lines(path)), selection.skip, None)
    first = [*islice(lines, 1)]
    if any(value.lstrip()[:1] in (b"[", b"{") and not _is_json(value) for _, value in first):
        raise UsageError(
            f"{path} line {selection.skip + 1}: no JSON ends there, and each line is sent by itself: give a file with "
            "an object a line, as jq -c '.[]' makes of an array"
        )
    return (_of_line(path, number, value, selection) for number, value in chain(first, lines) if value)


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as lines:
            for line in lines:
                yield line.rstrip(b"\r\n")
    except OSError as error:
        raise UserError(f"cannot read {path}: {reason(error)}") from error


def _of_line(path: Path, number: int, value: bytes, selection: Selection) -> Replayed:
    if selection.time is None and selection.key is None:
        return Replayed(number, None, value, (), None)
    try:
        fields = json.loads(value)
        at = None if selection.time is None else _moment_ms(fields[selection.time])
        key = None if selection.key is None else _as_key(fields[selection.key])
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} line {number + 1}: it is no JSON object with {selection.time or selection.key} as it is needed "
            f"({type(error).__name__}: {error}); the lines before it were sent, and --skip {number + 1} goes on behind "
            "it"
        ) from error
    return Replayed(number, key, value, (), at)


def _moment_ms(value: Any) -> int:
    """A time of JSON in milliseconds: ISO 8601, UTC where it names no zone, or a number of them."""
    if isinstance(value, bool):
        raise TypeError("true and false are no times")
    if isinstance(value, int | float):
        return round(value)
    moment = datetime.fromisoformat(value)
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _plain(column: "pa.Array") -> list[Any]:
    """The values of a column as JSON has them; bytes as they are."""
    import pyarrow as pa

    from headwater.sql.values import plain_values

    is_bytes = pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)
    values: list[Any] = column.to_pylist() if is_bytes else plain_values(column)
    return values


def _as_key(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode()


def _headers(kept: Any) -> tuple[tuple[str, bytes | None], ...]:
    """The headers of a row: a list of pairs, as a quarantine table has them, or a map."""
    pairs = kept.items() if isinstance(kept, dict) else kept or ()
    parts = ((p["key"], p["value"]) if isinstance(p, dict) else p for p in pairs)
    # The origin is another one now.
    return tuple((k, v) for k, v in parts if k is not None and not k.startswith("headwater-origin-"))


def origin_name(source: str, selection: Selection) -> str:
    """What the rows of a selection are numbers of: another selection of the same source has other numbers.

    Example:
        >>> origin_name("silver.orders@17", Selection("silver.orders"))
        'silver.orders@17'
    """
    chosen = "\t".join(text for text in (selection.where, selection.time) if text)
    return f"{source}#{zlib.crc32(chosen.encode()):08x}" if chosen else source


def origin_of_file(path: Path, selection: Selection) -> str:
    """The same of a file, which is another one when it was written again."""
    state = path.stat()
    identity = f"{path.absolute()}\t{state.st_size}\t{state.st_mtime_ns}"
    return origin_name(f"{path.name}@{zlib.crc32(identity.encode()):08x}", selection)


def origin_headers(source: str, number: int) -> tuple[tuple[str, bytes], ...]:
    """What tells a record of one replay from all others, for `hw.by_offset(origin=True)`: a second attempt doubles
    nothing."""
    parts = {"cluster": ORIGIN_CLUSTER, "topic": source, "partition": "0", "offset": str(number)}
    return tuple((f"headwater-origin-{name}", text.encode()) for name, text in parts.items())


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
