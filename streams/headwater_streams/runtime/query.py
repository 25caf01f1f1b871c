"""One running job: Spark's query, its batches, its lease, its stop at a batch boundary."""

import logging
import threading
import time
from typing import Any, Protocol

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from headwater_streams.errors import DataLossError, OwnershipError, StreamsError
from headwater_streams.gateway import to_list
from headwater_streams.ledger.log import last_entry
from headwater_streams.runtime.checkpoint import read_offsets
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.inputs import BatchInput, InputReader
from headwater_streams.runtime.job import Job
from headwater_streams.runtime.ownership import Lease
from headwater_streams.sources.inputs import TopicInput

_log = logging.getLogger(__name__)


class Stage(Protocol):
    """What runs a job's batches: a row, window or join stage."""

    readers: list[InputReader]
    is_stateful: bool

    @property
    def output_mode(self) -> str:
        """Spark's output mode of the query."""

    def prepare(self) -> None:
        """Makes the tables and takes up the state of the last commit."""

    def stream(self) -> DataFrame:
        """The query's plan."""

    def run_batch(
        self, df: DataFrame, batch: int, inputs: dict[str, BatchInput], metrics: dict[str, Any]
    ) -> None:
        """Commits one batch, once."""


class _StopRequestedError(Exception):
    """Ends a query at a batch boundary; it never leaves this module."""


class JobQuery:
    """A job's query, from start to stop."""

    def __init__(self, context: StageContext, job: Job, stage: Stage, generation: int, lease: Lease) -> None:
        self.job = job
        self._context, self._stage, self._generation, self._lease = context, stage, generation, lease
        self._checkpoint = context.home.checkpoint(job.name, generation)
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._query: StreamingQuery | None = None
        self._claimed: set[tuple[str, int]] = set()
        self.batches = 0

    def start(self, *, once: bool, interval_s: float) -> None:
        """Prepares the tables, claims the inputs and starts the query.

        Raises:
            StreamsError: The tables, the topics or the checkpoint do not allow it.
        """
        self._claimed.update(self._partitions())
        self._lease.claim(sorted(self._claimed))
        self._stage.prepare()
        self._check_checkpoint()
        writer = self._stage.stream().writeStream.queryName(self.job.name).outputMode(self._stage.output_mode)
        writer = writer.option("checkpointLocation", str(self._checkpoint)).foreachBatch(self._run_batch)
        trigger = (
            writer.trigger(availableNow=True)
            if once
            else writer.trigger(processingTime=f"{interval_s} seconds")
        )
        self._query = trigger.start()

    def stop(self, timeout_s: float = 60.0) -> None:
        """Stops after the batch that is running, if one is."""
        self._stopping.set()
        query = self._query
        try:
            if query is not None and query.isActive:
                # Stopping Spark's thread in the middle of a batch function is what is to be avoided.
                until = time.monotonic() + timeout_s
                while query.isActive and query.status["isTriggerActive"] and time.monotonic() < until:
                    self.wait(1)
                query.stop()
        finally:
            self._lease.release()

    def wait(self, timeout_s: float) -> bool:
        """Waits until the query has ended; says whether it has."""
        assert self._query is not None
        try:
            self._query.awaitTermination(max(1, int(timeout_s)))
        except StreamingQueryException:
            return True
        return not self._query.isActive

    @property
    def is_active(self) -> bool:
        """Whether the query runs."""
        return self._query is not None and self._query.isActive

    def failure(self) -> BaseException | None:
        """Why the query ended, None if it runs, was stopped or is done."""
        if self._failure is not None and not isinstance(self._failure, _StopRequestedError):
            return self._failure
        error = self._query.exception() if self._query is not None else None
        return None if isinstance(self._failure, _StopRequestedError) else error

    def progress(self) -> dict[str, Any] | None:
        """Spark's account of the last batch."""
        last = self._query.lastProgress if self._query is not None else None
        return None if last is None else dict(last)

    def _run_batch(self, df: DataFrame, batch: int) -> None:
        try:
            self._one_batch(df, batch)
        except Exception as error:
            self._failure = error
            raise
        except BaseException as error:
            self._failure = error
            # py4j's callback thread answers the JVM only for exceptions; the JVM would wait for ever.
            raise RuntimeError(f"{type(error).__name__} in a batch") from error

    def _one_batch(self, df: DataFrame, batch: int) -> None:
        if self._stopping.is_set():
            raise _StopRequestedError
        self._context.step(self.job.name, "start", batch)
        end = read_offsets(self._checkpoint, batch)
        if end is None:
            raise DataLossError(
                f"{self._checkpoint}: no offsets of batch {batch}; the checkpoint was changed from outside"
            )
        before = read_offsets(self._checkpoint, batch - 1) if batch else None
        inputs = {}
        for reader in self._stage.readers:
            found = reader.batch(self._checkpoint, before, end)
            if found is not None:
                inputs[reader.name] = found
        if not self._lease.is_held():
            raise OwnershipError(
                f"job {self.job.name!r}: its session with the coordinator may be over, so another driver may have "
                "taken its place; nothing of this batch was committed, start the job again"
            )
        if self._stage.is_stateful:
            # The state must be updated once, and what was observed on the way must be known before the commit.
            df.persist()
            try:
                df.count()
                self._stage.run_batch(df, batch, inputs, self._observed())
            finally:
                df.unpersist()
        else:
            self._stage.run_batch(df, batch, inputs, {})
        self.batches += 1
        self._publish(inputs)
        self._context.step(self.job.name, "end", batch)

    def _observed(self) -> dict[str, Any]:
        """What the stream's plan observed in this batch, by observation and term, before Spark publishes it."""
        spark = self._context.spark
        query_id = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
        wrapper = spark._jsparkSession.streams().get(query_id)  # noqa: SLF001 - PySpark shows it only after the batch
        metrics = wrapper.streamingQuery().lastExecution().observedMetrics()
        found = {}
        for pair in to_list(metrics.toSeq()):
            name, row = pair._1(), pair._2()  # noqa: SLF001 - the names of a Scala tuple
            names = row.schema().fieldNames()
            found[name] = {names[i]: row.get(i) for i in range(len(names))}
        return found

    def _publish(self, inputs: dict[str, BatchInput]) -> None:
        offsets: dict[tuple[str, int], int] = {}
        for found in inputs.values():
            for topic, partitions in found.source.ranges.items():
                for partition, (_, end) in partitions.items():
                    offsets[topic, partition] = max(end, offsets.get((topic, partition), 0))
        claimed = [place for place in offsets if place not in self._claimed]
        if claimed:
            self._lease.claim(claimed)
            self._claimed.update(claimed)
        self._lease.publish(offsets)

    def _partitions(self) -> list[tuple[str, int]]:
        found = []
        for declared in self.job.inputs.values():
            if isinstance(declared, TopicInput):
                for topic in declared.names:
                    found += [(topic, partition) for partition in self._context.source.partitions(topic)]
            else:
                found.append((declared.name, 0))
        return found

    def _check_checkpoint(self) -> None:
        table = self._context.home.table(self.job.target.name)
        entry = last_entry(table, self.job.name, self._generation)
        if entry is not None and read_offsets(self._checkpoint, entry.batch) is None:
            raise DataLossError(
                f"job {self.job.name!r}: {self.job.target.name} has its batch {entry.batch}, but the checkpoint "
                f"{self._checkpoint} does not; put the checkpoint back, or rebuild the table by a backfill"
            )


def explain(error: BaseException) -> str:
    """What ended a query, as one sentence for a person."""
    if isinstance(error, StreamsError):
        return str(error)
    text = str(error)
    if isinstance(error, StreamingQueryException):
        text = text.split("=== Streaming Query ===", maxsplit=1)[0]
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    return first.split(" SQLSTATE")[0]
