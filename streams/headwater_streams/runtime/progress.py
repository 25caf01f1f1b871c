"""`headwater.progress`: what running jobs did, batch by batch, as a Delta table that SQL can query.

One row for each batch, and for each start, stop, failure, refusal and pause, and for each job that another's failure
blocks. Rows are gathered and appended every few seconds as one commit; what a killed driver had not appended yet is
missing here, and nowhere else: the ledger is what accounts for rows.
"""

import json
import logging
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from deltalake import write_deltalake
from deltalake.exceptions import DeltaError

from headwater_streams.storage.damage import DamagedFileError
from headwater_streams.storage.delta_files import reading
from headwater_streams.storage.home import Home

_log = logging.getLogger(__name__)
PROGRESS_TABLE = "headwater.progress"
_MOST_KEPT = 10_000
"""Rows that are kept for later while the table cannot be written."""

Event = Literal["started", "batch", "stopped", "waiting", "failed", "refused", "blocked"]

_TIME = pa.timestamp("us", "UTC")
_SOURCE = pa.struct(
    [
        ("input", pa.string()),
        ("rows", pa.int64()),
        ("behind", pa.int64()),
        ("end", pa.string()),
        ("latest", pa.string()),
    ]
)
_OPERATOR = pa.struct(
    [
        ("name", pa.string()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("updated", pa.int64()),
        ("dropped", pa.int64()),
        ("update_ms", pa.int64()),
        ("remove_ms", pa.int64()),
        ("commit_ms", pa.int64()),
    ]
)
SCHEMA = pa.schema(
    [
        ("happened_at", _TIME),
        ("job", pa.string()),
        ("table", pa.string()),
        ("generation", pa.int32()),
        ("event", pa.string()),
        ("batch", pa.int64()),
        ("rows", pa.int64()),
        ("duration_ms", pa.int64()),
        ("watermark", _TIME),
        ("behind", pa.int64()),
        ("sources", pa.list_(_SOURCE)),
        ("operators", pa.list_(_OPERATOR)),
        ("durations_ms", pa.map_(pa.string(), pa.int64())),
        ("message", pa.string()),
    ]
)
"""`behind` counts records that a topic has and the batch did not read; it is NULL for a job that reads tables only.
`durations_ms` are Spark's names of a batch's steps; `message` says why a job failed, was refused, waits or is blocked,
or what it reads again before it goes on."""


class ProgressLog:
    """Gathers events of jobs and appends them to the table."""

    def __init__(
        self, home: Home, every_s: float, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        """Args: the home; how long events are gathered; the clock."""
        self._path = str(home.table(PROGRESS_TABLE))
        self._every_s = every_s
        self._now = now
        self._rows: list[dict[str, Any]] = []
        self._due_s = 0.0
        self._appended = 0

    def event(self, job: str, table: str, generation: int, event: Event, message: str | None = None) -> None:
        """Notes that a job started or stopped, failed or was refused, waits or is blocked."""
        self._rows.append(
            {
                "happened_at": self._now(),
                "job": job,
                "table": table,
                "generation": generation,
                "event": event,
                "message": message,
            }
        )

    def batch(
        self, job: str, table: str, generation: int, progress: Mapping[str, Any], inputs: Mapping[str, str]
    ) -> None:
        """Notes a batch.

        Args:
            job: The job.
            table: Its target.
            generation: Its generation.
            progress: Spark's account of the batch.
            inputs: For each input what its source's description ends in: a topic in brackets, or a table's path.
        """
        sources = [_source(each, inputs) for each in progress.get("sources", ())]
        behind = [each["behind"] for each in sources if each["behind"] is not None]
        durations = dict(progress.get("durationMs", {}))
        self._rows.append(
            {
                "happened_at": _moment(progress["timestamp"]),
                "job": job,
                "table": table,
                "generation": generation,
                "event": "batch",
                "batch": int(progress["batchId"]),
                "rows": sum(each["rows"] for each in sources),
                "duration_ms": durations.pop("triggerExecution", None),
                "watermark": _watermark(progress),
                "behind": sum(behind) if behind else None,
                "sources": sources,
                "operators": [_operator(each) for each in progress.get("stateOperators", ())],
                "durations_ms": list(durations.items()),
            }
        )

    def flush(self, *, now: bool = False) -> int:
        """Appends what was gathered, once it is time or if asked to; returns how often this log has appended."""
        if not self._rows or not (now or time.monotonic() >= self._due_s):
            return self._appended
        rows, self._rows = self._rows, []
        self._due_s = time.monotonic() + self._every_s
        try:
            with reading(Path(self._path)):
                write_deltalake(self._path, pa.Table.from_pylist(rows, schema=SCHEMA), mode="append")
        except DamagedFileError as error:  # it is for people: jobs go on without it
            _log.warning("%s", error)
        except (DeltaError, OSError) as error:  # a full disk has room again some day
            _log.warning("%s is appended later: %s", PROGRESS_TABLE, error)
            self._rows = rows[-_MOST_KEPT:]
        self._appended += 1
        return self._appended


def _source(progress: Mapping[str, Any], inputs: Mapping[str, str]) -> dict[str, Any]:
    description = str(progress.get("description", ""))
    end, latest = progress.get("endOffset"), progress.get("latestOffset")
    rows, of_topic = int(progress.get("numInputRows", 0)), "Kafka" in description
    # Spark counts a record as often as it was read; a batch that rejects many is read a second time.
    read = _between(progress.get("startOffset"), end) if of_topic else None
    return {
        "input": next((name for name, ending in inputs.items() if ending in description), description),
        "rows": rows if read is None else min(rows, read),
        "behind": _between(end, latest) if of_topic else None,
        "end": _text(end),
        "latest": _text(latest),
    }


def _between(start: Any, end: Any) -> int | None:
    """How many offsets of topics are between: as the Kafka source writes them, parsed or as text; None is the very
    beginning."""
    starts, ends = (json.loads(each) if isinstance(each, str) else each for each in (start or {}, end))
    if not isinstance(starts, dict) or not isinstance(ends, dict):
        return None
    return sum(
        max(0, int(offset) - int(starts.get(topic, {}).get(partition, 0)))
        for topic, partitions in ends.items()
        for partition, offset in partitions.items()
    )


def _operator(progress: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": progress.get("operatorName"),
        "rows": progress.get("numRowsTotal"),
        "bytes": progress.get("memoryUsedBytes"),
        "updated": progress.get("numRowsUpdated"),
        "dropped": progress.get("numRowsDroppedByWatermark"),
        "update_ms": progress.get("allUpdatesTimeMs"),
        "remove_ms": progress.get("allRemovalsTimeMs"),
        "commit_ms": progress.get("commitTimeMs"),
    }


def _watermark(progress: Mapping[str, Any]) -> datetime | None:
    text = dict(progress.get("eventTime", {})).get("watermark")
    # Before any event it is of the year -9999, which Spark writes as that before Christ; a query without it has 1970.
    if text is None or text.index("-") > len("9999"):
        return None
    return _moment(text) if _moment(text).timestamp() else None


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)
