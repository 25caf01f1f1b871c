"""The test driver: jobs on real Spark and real Delta tables, fed by hand, crashed where a test wants it."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession

from headwater_streams.ledger.entry import LedgerEntry
from headwater_streams.ledger.log import commits
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.home import Home
from headwater_streams.runtime.job import Job, bind, is_job
from headwater_streams.runtime.runner import JobRunner
from headwater_streams.testing.record_log import RecordLog

Value = Mapping[str, Any] | bytes | str | None
"""A record's value: an object to be written as JSON, or the very bytes; None is a null value."""


class SimulatedCrash(BaseException):
    """The driver died here. Whatever was committed stays; nothing after it happened."""


class JobDriver:
    """Feeds jobs without a broker and shows what they made.

    Example:
        driver = JobDriver(spark, tmp_path, [delay_by_carrier])
        driver.send("departures", {"carrier": "UA", "departed_at": "2013-01-01T10:00:00Z", "delay_minutes": 2})
        driver.run()
        assert driver.rows("gold.delay_by_carrier", "carrier", "departures") == [("UA", 1)]
    """

    def __init__(self, spark: SparkSession, home: Path, jobs: Sequence[Any]) -> None:
        """Args: a session with Delta; a folder of the test's own; jobs, or functions that `@hw.job` decorated."""
        self.home = Home(home)
        self._jobs: list[Job] = [bind(job) if is_job(job) else job for job in jobs]
        self._log = RecordLog(spark, home / "records")
        self._crash: tuple[str, str | None] | None = None
        self._spark = spark
        self._next: dict[tuple[str, int], int] = {}
        self._context = StageContext(spark, self.home, self._log, step=self._step)
        for job in self._jobs:
            for declared in job.topics:
                self._log.declare(declared.name)

    @property
    def context(self) -> StageContext:
        """What backfills and stages are given, for those who call them themselves."""
        return self._context

    def send(
        self,
        topic: str,
        *values: Value,
        partition: int = 0,
        offset: int | None = None,
        timestamp: datetime | str | None = None,
        origin: tuple[str, str, int, int] | None = None,
        headers: Mapping[str, bytes] | None = None,
    ) -> None:
        """Delivers records, in one delivery.

        Args:
            topic: The topic.
            values: One value for each record.
            partition: The partition.
            offset: The first record's offset; an offset already sent is a redelivery. The next one by default.
            timestamp: The records' timestamps, ISO 8601; now by default.
            origin: The first record's origin (cluster, topic, partition, offset); the others follow it.
            headers: Headers of every record.
        """
        start = self._next.get((topic, partition), 0) if offset is None else offset
        moment = (
            datetime.fromisoformat(timestamp)
            if isinstance(timestamp, str)
            else timestamp or datetime.now(UTC)
        )
        records = [
            Row(
                key=None,
                value=_encode(value),
                topic=topic,
                partition=partition,
                offset=start + i,
                timestamp=moment,
                headers=_headers(origin, i, headers),
            )
            for i, value in enumerate(values)
        ]
        end = start + len(values)
        self._next[topic, partition] = max(end, self._next.get((topic, partition), 0))
        self._log.append(topic, records, {partition: (start, end)})

    def run(self) -> None:
        """Runs every job over what was sent and not read yet.

        Raises:
            SimulatedCrash: A crash was asked for and its step was reached.
        """
        runner = JobRunner(self._context, self._jobs)
        try:
            runner.run_once()
        except StreamingQueryException as error:
            failures = [query.failure() for query in runner.queries.values()]
            found = next((failure for failure in failures if failure is not None), error)
            raise found from None

    def crash_at(self, step: str, job: str | None = None) -> None:
        """Makes the next run die at a step: "start", "before quarantine", "before late", "before commit", "after
        commit" or "end", of any job or of the one named."""
        self._crash = (step, job)

    def table(self, name: str) -> DataFrame:
        """A table as it is now."""
        return self._spark.read.format("delta").load(str(self.home.table(name)))

    def rows(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        """A table's rows, sorted; all columns by default."""
        frame = self.table(name)
        collected = frame.select(*columns).collect() if columns else frame.collect()
        return sorted((tuple(row) for row in collected), key=repr)

    def ledger(self, table: str) -> list[LedgerEntry]:
        """The entries of a table's commits, oldest first."""
        return [commit.entry for commit in commits(self.home.table(table)) if commit.entry is not None]

    def _step(self, job: str, step: str, batch: int) -> None:
        if self._crash is None:
            return
        wanted, of = self._crash
        if wanted == step and of in (None, job):
            self._crash = None
            raise SimulatedCrash(f"{job}, batch {batch}: {step}")


def _encode(value: Value) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


def _headers(
    origin: tuple[str, str, int, int] | None, place: int, more: Mapping[str, bytes] | None
) -> list[Row] | None:
    found = [Row(key=key, value=value) for key, value in (more or {}).items()]
    if origin is not None:
        cluster, topic, partition, offset = origin
        values = {"cluster": cluster, "topic": topic, "partition": partition, "offset": offset + place}
        found += [Row(key=f"headwater-origin-{k}", value=str(v).encode()) for k, v in values.items()]
    return found or None
