"""The test driver: jobs on real Spark and real Delta tables, fed by hand, crashed where a test wants it."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from headwater_streams.base.ledger_entry import LedgerEntry
from headwater_streams.base.names import require_table_name
from headwater_streams.base.nearest import nearest
from headwater_streams.base.target import LATE_SUFFIX, QUARANTINE_SUFFIX, declared_name
from headwater_streams.ledger.audit import audit_home
from headwater_streams.ledger.log import commits, next_commit
from headwater_streams.plan.job import Job, bind, is_job
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.runner import JobRunner
from headwater_streams.sources.coordinates import OFFSET, PARTITION, TOPIC
from headwater_streams.sources.event_time import epoch_of
from headwater_streams.sources.inputs import TopicInput
from headwater_streams.spark.columns import col
from headwater_streams.storage.home import Home
from headwater_streams.testing.record_log import RecordLog

Value = Mapping[str, Any] | bytes | str | None
"""A record's value: an object to be written as JSON, its times as ISO 8601, or the very bytes; None is a null value."""


STEPS = (
    "start",
    "before quarantine",
    "before late",
    "before table",
    "before commit",
    "after commit",
    "end",
)
"""Where a batch can be made to die, in order: as it begins, before its rejected rows, its late rows and the job's other
tables are committed, around the commit of the job's table, and before Spark knows that the batch is done."""


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
        """Args: a session with Delta; a folder of the test's own; functions that `@hw.job` decorated, or jobs, such as
        those of a SQL file, `load_sql(Path("delays.sql"))`."""
        self.home = Home(home)
        self._jobs: list[Job] = [_job_of(job) for job in jobs]
        self._log = RecordLog(spark, home / "records")
        self._crash: tuple[str, str | None] | None = None
        self._spark = spark
        self._planned: tuple[list[Job], Sequence[JobPlan]] | None = None
        self._next: dict[tuple[str, int], int] = {}
        self._unread: dict[tuple[str, int], tuple[int, int]] = {}
        self._later: list[_Delivery] = []
        self._context = StageContext(spark, self.home, self._log, step=self._step)
        for job in self._jobs:
            for declared in job.topics:
                for topic in declared.names:
                    self._log.declare(topic)

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
        key: bytes | str | None = None,
    ) -> None:
        """Delivers records, in one delivery.

        Args:
            topic: The topic.
            values: One value for each record.
            partition: The partition.
            offset: The first record's offset; an offset already sent is a redelivery. By default the next one, behind
                those that another driver over the same folder had sent before this one sent anything to the partition.
            timestamp: The records' timestamps, ISO 8601; now by default.
            origin: The first record's origin (cluster, topic, partition, offset); the others follow it.
            headers: Headers of every record.
            key: The key of every record; a text as UTF-8.

        Raises:
            ValueError: No job here reads the topic, nor did one of another driver over the same folder.
        """
        read = sorted({name for job in self._jobs for name in job.topic_names})
        if topic not in read and not self._log.has(topic):
            hint = f"they read {', '.join(read)}" if read else "they read none"
            raise ValueError(f"no job here reads the topic {topic!r}; {hint}")
        start = self._end(topic, partition) if offset is None else offset
        moment = (
            datetime.fromisoformat(timestamp)
            if isinstance(timestamp, str)
            else timestamp or datetime.now(UTC)
        )
        records = [
            {
                "key": key.encode() if isinstance(key, str) else key,
                "value": _encode(value),
                "topic": topic,
                "partition": partition,
                "offset": start + i,
                "timestamp": moment,
                "headers": _headers(origin, i, headers),
            }
            for i, value in enumerate(values)
        ]
        self._append(topic, partition, records)

    def resend(self, topic: str, *offsets: int, partition: int = 0, as_new: bool = False) -> None:
        """Delivers records again, as they were, in one delivery; also those that another driver over the home has sent.

        Args:
            topic: The topic.
            offsets: Which records; one of them, or several that follow each other.
            partition: The partition.
            as_new: Under the next offsets, as a producer, a mirror or a shipper sends again what it does not know to
                have arrived; with their headers, so that `by_offset(origin=True)` can tell. Otherwise under their own.

        Raises:
            ValueError: There is no such record, or there are records between them.
        """
        if offsets and not as_new and sorted(offsets) != [*range(min(offsets), max(offsets) + 1)]:
            raise ValueError(
                f"offsets {list(offsets)} do not follow each other; deliver each of them by a call"
            )
        sent = self._log.records(topic, partition)
        for delivery in self._later:
            if delivery.place == (topic, partition):
                sent |= {record["offset"]: record for record in delivery.records}
        for offset in offsets:
            if offset not in sent:
                raise ValueError(f"{topic} {partition} has no offset {offset}; there are {sorted(sent)}")
        records = [sent[offset] for offset in offsets]
        if as_new:
            end = self._end(topic, partition)
            records = [{**record, "offset": end + i} for i, record in enumerate(records)]
        self._append(topic, partition, records)

    def advance(self, topic: str, to: str, *, partition: int = 0, **columns: Any) -> None:
        """Sends a JSON record of a later event time, as if nothing had happened until then: after the next run, what
        is older than it by more than an input's `watermark` is late.

        Args:
            topic: The topic; a job here declares its event time.
            to: The event time, ISO 8601.
            partition: The partition.
            columns: The record's other columns; it is a row of the tables as every other one is. Where the event time
                is computed, those that it is computed of; `timestamp_millis(ts_ms)` and its kin need none, and the
                record's own timestamp is `to`.

        Raises:
            ValueError: No job here reads the topic with an event time.
        """
        declared = [i for job in self._jobs for i in job.topics if topic in i.names and i.event_time]
        if not declared:
            raise ValueError(f"no job here reads the topic {topic!r} with an event_time=")
        self.send(topic, {**_made_of(declared[0], to), **columns}, partition=partition, timestamp=to)

    def _append(self, topic: str, partition: int, records: Sequence[dict[str, Any]]) -> None:
        end = self._end(topic, partition)
        if not records:
            return
        offsets = [record["offset"] for record in records]
        delivery = _Delivery((topic, partition), records, (min(offsets), max(offsets) + 1))
        self._next[topic, partition] = max(delivery.span[1], end)
        if self._later or not self._follows(delivery):
            self._later.append(delivery)
        else:
            self._deliver(delivery)

    def _follows(self, delivery: "_Delivery") -> bool:
        """Whether a batch may have the delivery beside those that wait: it is one stretch of offsets, each once."""
        waiting = self._unread.get(delivery.place)
        return waiting is None or waiting[1] == delivery.span[0] or delivery.span[1] == waiting[0]

    def _deliver(self, delivery: "_Delivery") -> None:
        (topic, partition), span = delivery.place, delivery.span
        waiting = self._unread.get(delivery.place, span)
        self._unread[delivery.place] = min(waiting[0], span[0]), max(waiting[1], span[1])
        self._log.append(topic, delivery.records, {partition: span})

    def _end(self, topic: str, partition: int) -> int:
        """The offset behind the last record, whichever driver over this home has sent it."""
        if (topic, partition) not in self._next:
            self._log.declare(topic)
            self._next[topic, partition] = self._log.partitions(topic).get(partition, (0, 0))[1]
        return self._next[topic, partition]

    def put(self, table: str, schema: str, *rows: Sequence[Any]) -> int:
        """Makes a table that no job writes, a look-up's, or replaces all its rows; returns its new version.

        Args:
            table: The table, `"dim.airports"`.
            schema: Its columns as Spark DDL.
            rows: Its rows.

        Raises:
            JobDefinitionError: No table can be called so.
        """
        require_table_name("table", table)
        frame = self._spark.createDataFrame([tuple(row) for row in rows], schema).coalesce(1)
        path = self.home.table(table)
        frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(str(path))
        return next_commit(path) - 1

    def run(self) -> None:
        """Runs every job over what was sent and not read yet: in one batch, or in several where records were sent
        again, as a batch has each offset once, and all from its first to its last.

        Raises:
            SimulatedCrash: The step of `crash_at` was reached.
        """
        try:
            self._run_batches()
            while self._later:
                while self._later and self._follows(self._later[0]):
                    self._deliver(self._later.pop(0))
                self._run_batches()
        finally:
            self._crash = None

    def _run_batches(self) -> None:
        plans = self._planned[1] if self._planned is not None and self._planned[0] == self._jobs else None
        runner = JobRunner(self._context, self._jobs, progress_every_s=None, plans=plans)
        if not any(job.table_names for job in self._jobs):
            # They depend on the jobs alone, and are a sixth of a small run's time.
            self._planned = (list(self._jobs), runner.plans)
        try:
            runner.run_once()
        except StreamingQueryException as error:
            failures = [query.failure() for query in runner.queries.values()]
            failure = next((failure for failure in failures if failure is not None), error)
            raise failure from None
        self._unread.clear()

    def crash_at(self, step: str, job: str | None = None) -> None:
        """Makes the next run, and no later one, die at one of `STEPS`, or a backfill's, of any job or of the one named.

        Raises:
            ValueError: No job here is of that name.
        """
        names = [each.name for each in self._jobs]
        if job is not None and declared_name(job) not in names:
            raise ValueError(f"no job here is named {job!r}; there are {nearest(job, names) or 'none'}")
        self._crash = (step, job)

    def table(self, name: str) -> DataFrame:
        """A table as it is now.

        Raises:
            ValueError: There is none of that name.
        """
        if name not in self.home.tables():
            raise ValueError(
                f"there is no table {name!r}; there are {nearest(name, self.home.tables()) or 'none'}"
            )
        return self._spark.read.format("delta").load(str(self.home.table(name)))

    def rows(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        """A table's rows, in the order of their `repr` (so 100 is before 7); all columns by default.

        Raises:
            ValueError: There is no such table, or it has no such column.
        """
        plain = self._plain_rows(name, columns)
        if plain is not None:
            return sorted(plain, key=repr)
        frame = self.table(name)
        wrong = [column for column in columns if column.isidentifier() and column not in frame.columns]
        if wrong:
            own = [column for column in frame.columns if not column.startswith("_")]
            raise ValueError(f"{name} has no column {wrong[0]!r}; it has {nearest(wrong[0], own)}")
        picked = [col(name) if name in frame.columns else name for name in columns]
        collected = frame.select(*picked).collect() if columns else frame.collect()
        return sorted((tuple(row) for row in collected), key=repr)

    def _plain_rows(self, name: str, columns: Sequence[str]) -> list[tuple[Any, ...]] | None:
        """Columns whose values are the same with and without Spark, without it: 10 ms in place of 300."""
        if name not in self.home.tables():
            return None
        table = DeltaTable(str(self.home.table(name)))
        kinds = {field.name: field.type for field in pa.schema(table.schema().to_arrow())}
        if not columns or not all(name in kinds and _is_plain(kinds[name]) for name in columns):
            return None
        values = table.to_pyarrow_dataset().to_table(columns=list(columns))
        return list(zip(*[values[name].to_pylist() for name in columns], strict=True))

    def ledger(self, table: str) -> list[LedgerEntry]:
        """The entries of a table's commits, oldest first."""
        return [commit.entry for commit in commits(self.home.table(table)) if commit.entry is not None]

    def accounting(self, table: str) -> dict[str, int]:
        """What became of every row that was read for a table, over all batches: `read` and the terms of its identity
        (see `headwater_streams.base.ledger_entry`), without those that are 0."""
        total: Counter[str] = Counter()
        for entry in self.ledger(table):
            total.update(entry.totals)
        return {term: value for term, value in total.items() if value}

    def quarantined(self, table: str) -> list[tuple[str, bytes | None]]:
        """Why rows were rejected, and their bytes, in the order of topic, partition and offset."""
        rows = self.table(f"{table}{QUARANTINE_SUFFIX}").orderBy(TOPIC, PARTITION, OFFSET).collect()
        return [(row["_reason"], None if row["_raw"] is None else bytes(row["_raw"])) for row in rows]

    def late(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """The rows that came too late for a table, in the order of `rows`; all columns by default."""
        return self.rows(f"{table}{LATE_SUFFIX}", *columns)

    def audit(self) -> list[str]:
        """What the audit finds in all tables, a sentence each: rows that are gone, doubled or of nobody, gaps and
        overlaps of offsets, books that do not balance. Empty when all is well."""
        return [finding for table in audit_home(self.home) for finding in table.findings]

    def _step(self, job: str, step: str, batch: int) -> None:
        if self._crash is None:
            return
        crash_step, of = self._crash
        if crash_step == step and of in (None, job):
            self._crash = None
            raise SimulatedCrash(f"{job}, batch {batch}: {step}")


def _is_plain(kind: pa.DataType) -> bool:
    types = pa.types
    is_text = types.is_string(kind) or types.is_large_string(kind)
    return bool(is_text or types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


@dataclass(frozen=True)
class _Delivery:
    """Records that were sent together, their topic and partition, and the stretch of their offsets."""

    place: tuple[str, int]
    records: Sequence[dict[str, Any]]
    span: tuple[int, int]


def _job_of(job: Any) -> Job:
    if isinstance(job, Job):
        return job
    if not is_job(job):
        raise TypeError(
            f"{getattr(job, '__name__', job)!r} is no job; decorate the function with @hw.job(target=...)"
        )
    return bind(job)


def _encode(value: Value) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else json.dumps(value, default=_as_text).encode()


def _as_text(value: Any) -> str:
    """What JSON has no kind for, as jobs read it."""
    if isinstance(value, date | time):  # a datetime is a date
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"{value!r} is no value of JSON; give a text, a number or the record's bytes")


def _made_of(declared: TopicInput, to: str) -> dict[str, Any]:
    """The column of a value that its event time is, or is made of, for a time; none where that is not known."""
    if declared.computed is None:
        return {str(declared.event_time): to}
    epoch = epoch_of(declared.computed)
    if epoch is None:
        return {}
    column, units = epoch
    moment = datetime.fromisoformat(to)
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime.fromtimestamp(0, UTC)
    return {column: since // timedelta(microseconds=1) * units // 1_000_000}


def _headers(
    origin: tuple[str, str, int, int] | None, place: int, more: Mapping[str, bytes] | None
) -> list[dict[str, Any]] | None:
    headers: list[dict[str, Any]] = [{"key": key, "value": value} for key, value in (more or {}).items()]
    if origin is not None:
        cluster, topic, partition, offset = origin
        values = {"cluster": cluster, "topic": topic, "partition": partition, "offset": offset + place}
        headers += [{"key": f"headwater-origin-{k}", "value": str(v).encode()} for k, v in values.items()]
    return headers or None
