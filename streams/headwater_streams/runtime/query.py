"""One running job: Spark's query, its batches, its lease, its stop at a batch boundary."""

import logging
import re
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from urllib.parse import unquote

from deltalake.exceptions import DeltaError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from headwater_streams.base.errors import (
    CheckFailedError,
    DataLossError,
    FailingRowsFoundError,
    LeaseLostError,
    NotComputableError,
    StreamsError,
    SupersededError,
)
from headwater_streams.base.extra import Extra
from headwater_streams.base.ledger_entry import merge_ranges, spelled
from headwater_streams.ledger.check_results import keep_results, record_stopped
from headwater_streams.ledger.log import last_entry
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.batch_result import BatchResult
from headwater_streams.runtime.compatibility import differences, require_compatible
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.expiry import Expiry
from headwater_streams.runtime.facts import facts_of, keep_facts
from headwater_streams.runtime.faults import away, refused, speaks_of_loss
from headwater_streams.runtime.generations import (
    clear_sides,
    generation_now,
    mends_checkpoint,
    require_begun,
    require_unread,
    require_whole,
)
from headwater_streams.runtime.inputs import BatchInput, InputReader
from headwater_streams.runtime.ownership import Lease
from headwater_streams.runtime.positions import check_next, recreated_topic_message
from headwater_streams.runtime.query_settings import has_empty_batches, query_settings
from headwater_streams.runtime.stages.failing_pairs import find_in_batch
from headwater_streams.runtime.stages.failing_rows import (
    blamed_before,
    carry_blamed,
    carry_failing,
    keep_failing,
    names_earlier,
)
from headwater_streams.runtime.stages.input_watermarks import InputWatermarks
from headwater_streams.runtime.stages.narrowing import may_be_of_rows
from headwater_streams.runtime.stages.stateful import BATCH_METRIC, StatefulInput
from headwater_streams.runtime.tables import require_tables
from headwater_streams.runtime.turn import Turn
from headwater_streams.runtime.upkeep import TableUpkeep, Upkeep
from headwater_streams.runtime.warm_up import WarmUp, plan_warm_up
from headwater_streams.sources.topic_metadata import changed_ids
from headwater_streams.spark.batch_values import BatchValues
from headwater_streams.spark.checkpoint import (
    first_lost,
    is_committed,
    lost_batch_message,
    next_batch,
    plan_closing_batch,
    put_back_id,
    read_offsets,
    remove_half_written,
)
from headwater_streams.spark.damage_behind import damage_behind
from headwater_streams.spark.execution import execution_of_batch, observed_metrics, recent_progress
from headwater_streams.spark.spark_errors import last_cause, missing_file, raised_for_values, reason_of
from headwater_streams.spark.watermark import begin_before_history
from headwater_streams.spark.workers import has_worker
from headwater_streams.storage.damage import DamagedFileError, place_of
from headwater_streams.storage.delta_files import added_by

_log = logging.getLogger(__name__)
_SHOWN = 3
_ASKING_S = 5.0
_OF_A_CLIENT = re.compile(r"Failed to (create new|construct) kafka", re.IGNORECASE)
"""What Kafka's client in Spark says of itself where it does not start; its cause says why."""


class Stage(Protocol):
    """What runs a job's batches: a row, window or join stage."""

    readers: list[InputReader]
    is_stateful: bool
    values: BatchValues | None
    watermarks: InputWatermarks | None

    @property
    def stateful_inputs(self) -> Mapping[str, StatefulInput]:
        """The inputs whose rows go through the query's own plan, by name."""

    @property
    def output_mode(self) -> str:
        """Spark's output mode of the query."""

    @property
    def writes_without_rows(self) -> bool:
        """Whether a batch without rows may write something, as it moves the watermark."""

    def prepare(self) -> None:
        """Makes the tables and takes up the state of the last commit."""

    def stream(self) -> DataFrame:
        """The query's plan."""

    def run_batch(self, result: BatchResult, batch: int, inputs: dict[str, BatchInput]) -> None:
        """Commits one batch, once."""


@runtime_checkable
class WarmStage(Stage, Protocol):
    """A stage whose state can be made again by reading what it is made of."""

    def warm_up(self, result: BatchResult, again: WarmUp) -> None:
        """Takes a batch for its state; nothing of it is committed."""


def _held_weakly(run_batch: Callable[[DataFrame, int], None]) -> Callable[[DataFrame, int], None]:
    """Calls the method without keeping its object alive, which holds Spark's query. Else each of the two VMs would keep
    the other's end of the query, with its session and its plans, for as long as they live."""
    method = weakref.WeakMethod(run_batch)

    def error_of(df: DataFrame, batch: int) -> RuntimeError | None:
        bound = method()
        assert bound is not None, "the runner holds its queries"
        try:
            bound(df, batch)
        except BaseException as error:  # py4j answers an Exception only; the JVM would wait for ever
            return RuntimeError(f"{type(error).__name__}: {error}")
        return None

    def run(df: DataFrame, batch: int) -> None:
        # PySpark keeps the error that it is given, and a traceback keeps the variables of all calls on its way.
        error = error_of(df, batch)
        if error is not None:
            raise error

    return run


class _StopRequestedError(Exception):
    """Ends a query at a batch boundary; it never leaves this module."""


class JobQuery:
    """A job's query, from start to stop."""

    def __init__(
        self,
        context: StageContext,
        plan: JobPlan,
        stage: Stage,
        generation: int,
        lease: Lease,
        upkeep: Upkeep | None = None,
        *,
        expires: bool = True,
    ) -> None:
        """Args: what the query runs on and runs; when its tables are looked after; whether their old rows go."""
        self.job = plan.job
        self._upkeep = TableUpkeep(context, plan.job, upkeep) if upkeep is not None else None
        self._expiry = Expiry(context, plan, generation) if expires else None
        self._plan = plan
        self._context, self._stage, self._generation, self._lease = context, stage, generation, lease
        self._checkpoint = context.home.checkpoint(self.job.name, generation)
        self._turn = Turn(context.home, self.job.name)
        self._stopping, self._stop_requested_at, self._is_interrupted = threading.Event(), 0.0, False
        self._in_batch = threading.Event()
        self._failure: BaseException | None = None
        self._explained: BaseException | None = None
        self._query: StreamingQuery | None = None
        self._claimed: set[tuple[str, int]] = set()
        self._ids: dict[str, str] = {}
        self._again: WarmUp | None = None
        self._names_earlier = False
        self._reading = ""
        self.batches = 0
        self.last_batch = -1

    def start(self, *, once: bool, interval_s: float) -> None:
        """Prepares the tables, claims the inputs and starts the query.

        Raises:
            StreamsError: The tables, the topics or the checkpoint do not allow it.
        """
        bounds, table = self._bounds(), self._context.home.table(self.job.target.name)
        self._claimed.update(
            (topic, partition) for topic, partitions in bounds.items() for partition in partitions
        )
        self._claimed.update((table.name, 0) for table in self.job.tables)
        self._lease.claim(sorted(self._claimed))
        self._context.step(self.job.name, "starting", -1)
        require_tables(self._context, self._plan)
        require_compatible(self.job.name, differences(self._context, self._plan, self._generation))
        last = last_entry(table, self.job.name, self._generation)
        if last is not None and last.kind == "generation":
            carry = {"renew": carry_failing, "rebuild": carry_blamed}.get(Extra.ACTION.of(last))
            if carry is not None:
                before = self._context.home.checkpoint(self.job.name, Extra.AFTER.of(last)["generation"])
                carry(before, self._checkpoint)
        self._again = WarmUp.of(last)
        if self._again is not None and not is_committed(self._checkpoint, 0):
            plan_warm_up(self._context, self._plan, self._checkpoint, self._again)
        elif self._stage.writes_without_rows and has_empty_batches(self._context.spark):
            plan_closing_batch(self._checkpoint)
        self._check_positions(bounds)
        if self.job.branches:
            with self._turn.of_repair():  # one that is going on is waited for; one that died is named
                require_whole(self._context, self.job)
        with self._turn.of_batch():  # likewise the swap of a whole table
            require_begun(self._context, self.job, self._generation)
            clear_sides(self._context, self.job, self._generation)
        self._stage.prepare()
        self._copy_results()  # of the last batch, where the driver died behind its commit
        for reader in self._stage.readers:
            reader.begin(self._checkpoint, table)
        facts = keep_facts(self._checkpoint, facts_of(self._context, self._plan))
        if self._stage.values is not None:
            self._stage.values.resume(self._checkpoint)
        self._ids = {topic: topic_id for topic, topic_id in facts.topic_ids.items() if topic_id is not None}
        name = self.job.app_id(self._generation)  # a rebuild runs beside the job, in its next generation
        self._names_earlier = self._stage.is_stateful and names_earlier(self._checkpoint)
        stream = self._stage.stream()
        if self._stage.is_stateful:
            begin_before_history(self._checkpoint, stream, self._context.now_ms())
        writer = stream.writeStream.queryName(name).outputMode(self._stage.output_mode)
        writer = writer.option("checkpointLocation", str(self._checkpoint)).foreachBatch(
            _held_weakly(self._run_batch)
        )
        trigger = (
            writer.trigger(availableNow=True)
            if once
            else writer.trigger(processingTime=f"{interval_s} seconds")
        )
        settings = query_settings(
            self._context.spark,
            empty_batches=self._stage.writes_without_rows,
            before_1970=self._stage.is_stateful and next_batch(self._checkpoint)[1] < 0,
        )
        put_back_id(self._checkpoint)
        remove_half_written(self._checkpoint)
        with settings:
            self._query = trigger.start()
        self._context.step(self.job.name, "started", -1)

    def request_stop(self) -> None:
        """Makes it begin no further batch."""
        if not self._stopping.is_set():
            self._stop_requested_at = time.monotonic()
            self._stopping.set()

    def stop(self, timeout_s: float = 60.0) -> None:
        """Stops after the batch that is running, if one is; one that waits for a worker is not waited for."""
        self.request_stop()
        query = self._query
        try:
            if query is not None and query.isActive:
                until = time.monotonic() + timeout_s
                while not self.is_at_boundary and time.monotonic() < until:
                    self.wait(1)
                self._is_interrupted = self._in_batch.is_set()
                query.stop()
        finally:
            self._lease.release()

    @property
    def is_at_boundary(self) -> bool:
        """Whether one that is asked to stop can be stopped without waiting for its batch."""
        query = self._query
        if query is None or not query.isActive or not query.status["isTriggerActive"]:
            return True
        # Spark's thread must not be stopped in the middle of a batch function. Before it, Spark asks for the topic's
        # offsets, which takes as long as its client waits where the broker is away.
        moves = self._in_batch.is_set() and has_worker(self._context.spark)
        return not moves and time.monotonic() >= self._stop_requested_at + _ASKING_S

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
        failure = self._failure
        if failure is None and self._query is not None:
            ended = self._query.exception()
            failure = self._failure or ended  # a batch may have failed meanwhile, and its own error says more
        if failure is None or isinstance(failure, _StopRequestedError) or self._is_interrupted:
            return None
        if failure is not self._explained:  # brokers may be asked, and files read
            self._failure = self._explained = failure = self._explain(failure)
        return failure

    def _explain(self, failure: BaseException) -> BaseException:
        """What ended the query, said as exactly as files and brokers can tell."""
        if not isinstance(failure, StreamsError):
            failure = self.damage_behind(failure) or failure
        if speaks_of_loss(failure) or refused(failure) is not None:
            failure = self._named(failure)
        if not isinstance(failure, StreamsError) and not _whose(failure):
            failure.add_note(f"job {self.job.name!r}{self._reading}")
        return failure

    def damage_behind(self, error: BaseException) -> DamagedFileError | None:
        """The damaged file that caused an error of the query; None where there is none."""
        job, read = self.job, [table.name for table in self.job.tables]
        written = (job.target.name, *job.other_tables, job.target.quarantine_table, job.target.late_table)
        looked_up = [declared.name for declared in job.lookups.values()]
        damage = damage_behind(
            error, self._context.home, checkpoint=self._checkpoint, tables=(*written, *read, *looked_up)
        )
        if damage is not None and damage.place.kind == "checkpoint":
            return damage.with_remedy(f"{self._without_checkpoint()} {job.name}")
        return damage or self._vacuumed(error)

    def _vacuumed(self, error: BaseException) -> DamagedFileError | None:
        """A data file of a commit that the query was to read, which another tool's vacuum has removed."""
        path = Path(unquote(missing_file(error) or ""))
        if not path.is_relative_to(self._context.home.root / "tables"):
            return None
        return DamagedFileError(
            path,
            f"is gone{added_by(self._context.home.table(place_of(path).name), path.name)}",
            f"put it back from a copy, or make the job's table again: headwater jobs rebuild {self.job.name}",
        )

    def _named(self, error: BaseException) -> BaseException:
        """The range that is gone, or the setting that is wrong, where Spark only says that something is."""
        try:
            self._check_identities()
            self._check_positions(self._bounds())
        except StreamsError as found:
            return found
        return error

    def _bounds(self) -> dict[str, dict[int, tuple[int, int]]]:
        """The partitions of each topic, with their earliest and their next offset."""
        return {topic: self._context.source.partitions(topic) for topic in self.job.topic_names}

    def _check_positions(self, bounds: Mapping[str, Mapping[int, tuple[int, int]]]) -> None:
        """Sees to it that the topics still hold what the query reads next."""
        check_next(self._context.source, self.job, self._checkpoint, self._check_checkpoint(), bounds.get)

    def progress(self, after: int) -> list[dict[str, Any]]:
        """Spark's accounts of the batches after one, oldest first, as far back as Spark keeps them (100 triggers)."""
        if self._query is None:
            return []
        return recent_progress(self._query, after)

    @property
    def generation(self) -> int:
        """The generation that it runs."""
        return self._generation

    @property
    def warming_up(self) -> str | None:
        """A description of what it reads again before it goes on; None where it reads nothing again."""
        if self._again is None or is_committed(self._checkpoint, 0):
            return None
        return f"warms up: reads {self._again} again and writes nothing of it"

    def _run_batch(self, df: DataFrame, batch: int) -> None:
        self._in_batch.set()
        try:
            with self._turn.of_batch():
                self._one_batch(df, batch)
        except BaseException as error:
            self._failure = error
            raise
        finally:
            self._in_batch.clear()

    def _one_batch(self, df: DataFrame, batch: int) -> None:
        if self._stopping.is_set():
            raise _StopRequestedError
        self._context.step(self.job.name, "start", batch)
        self._check_generation()
        self._check_identities()
        end = read_offsets(self._checkpoint, batch)
        if end is None:
            raise DataLossError(
                f"{self._checkpoint}: no offsets of batch {batch}; the checkpoint was changed from outside"
            )
        before = read_offsets(self._checkpoint, batch - 1) if batch else None
        inputs = {}
        for reader in self._stage.readers if batch or self._again is None else ():
            batch_input = reader.batch(self._checkpoint, before, end)
            if batch_input is not None:
                inputs[reader.name] = batch_input
        self._reading = f", batch {batch}{_read_by(inputs)}"
        if not self._lease.is_held():
            raise LeaseLostError(
                f"job {self.job.name!r}: its session with the coordinator may be over, so another driver may have "
                "taken its place; nothing of this batch was committed, start the job again"
            )
        if self._names_earlier and batch:
            raise FailingRowsFoundError(
                f"job {self.job.name!r}, batch {batch}: run without the names of rows that were found before it"
            )
        execution = execution_of_batch(self._context.spark)
        if self._stage.watermarks is not None:
            self._stage.watermarks.put_back(execution)
        if self._stage.values is not None:
            self._stage.values.require(batch, end.watermark_ms)
        again = self._again if batch == 0 else None
        result = BatchResult(
            df, lambda: {**observed_metrics(execution), BATCH_METRIC: {Extra.WATERMARK_MS: end.watermark_ms}}
        )
        try:
            if again is not None:
                assert isinstance(self._stage, WarmStage)
                self._stage.warm_up(result, again)
                self._context.step(self.job.name, "warm", batch)
            else:
                self._stage.run_batch(result, batch, inputs)
            if self._stage.is_stateful:
                result.require_computed()  # also where the batch was committed before: the state must be updated
            if self._stage.values is not None:
                self._stage.values.advance(batch, execution)
        except CheckFailedError as error:
            self._record_stopped(batch, inputs, error)
            raise
        except Exception as error:
            self._find_failing(batch, inputs, end.watermark_ms, error)
            raise
        finally:
            result.release()
        self._copy_results()
        self.batches += 1
        self.last_batch, self._reading = batch, ""
        if again is None:
            self._publish(inputs)
        self._context.step(self.job.name, "end", batch)
        if self._expiry is not None and not self._stopping.is_set():
            self._expiry.after_batch(batch)
        if self._upkeep is not None and not self._stopping.is_set():
            self._upkeep.after_batch(batch)

    def _copy_results(self) -> None:
        """Copies what the checks came to into `quality.results`."""
        if self.job.checks and self._context.is_live:
            keep_results(self._context.home, self.job.target.name)

    def _record_stopped(self, batch: int, inputs: Mapping[str, BatchInput], error: CheckFailedError) -> None:
        if not self._context.is_live:
            return
        try:
            record_stopped(
                self._context.home,
                self.job.target.name,
                job=self.job.name,
                generation=self._generation,
                batch=batch,
                at_ms=self._context.now_ms(),
                ranges=merge_ranges([each.source.ranges for each in inputs.values()]),
                error=error,
            )
        except (DeltaError, OSError, DamagedFileError) as fault:
            _log.warning("job %r: %s: the results are not kept: %s", self.job.name, error, fault)

    def _find_failing(
        self, batch: int, inputs: Mapping[str, BatchInput], watermark_ms: int, error: Exception
    ) -> None:
        """Looks for the rows of a stateful job's batch for which its function raises; there may be none.

        Raises:
            FailingRowsFoundError: There are some; the query has to be started again.
            RowErrorsError: There are more of them than the job allows.
            NotComputableError: It raises for no row alone, nor for a pair with a row of the batch.
        """
        stateful = {name: each for name, each in self._stage.stateful_inputs.items() if name in inputs}
        if not self._stage.stateful_inputs or not may_be_of_rows(self.job, error):
            return
        who = f"job {self.job.name!r}, batch {batch}"
        failing = find_in_batch(
            self._plan, stateful, inputs, watermark_ms, who, error, blamed_before(self._checkpoint)
        )
        if failing:
            keep_failing(self._checkpoint, batch, failing)
            raise FailingRowsFoundError(
                f"{who}: the function raises for some rows; it is run without them"
            ) from error
        raised = raised_for_values(error)
        if raised is not None:
            raise NotComputableError(
                f"{who}: the function raises for a group, or for rows of earlier batches ({raised}), so no record of "
                "this one can go to quarantine; nothing of the batch was committed. Have it give NULL there, by "
                "try_divide, try_cast or a CASE, and run the job again"
            ) from error

    def _publish(self, inputs: dict[str, BatchInput]) -> None:
        offsets: dict[tuple[str, int], int] = {}
        for batch_input in inputs.values():
            for topic, partitions in batch_input.source.ranges.items():
                for partition, (_, end) in partitions.items():
                    offsets[topic, partition] = max(end, offsets.get((topic, partition), 0))
        claimed = [place for place in offsets if place not in self._claimed]
        if claimed:
            self._lease.claim(claimed)
            self._claimed.update(claimed)
        self._lease.publish(offsets)

    def _check_generation(self) -> None:
        now = generation_now(self._context, self.job)
        if now != self._generation:
            raise SupersededError(
                f"job {self.job.name!r}: {self.job.target.name} belongs to generation {now} now, and this is "
                f"{self._generation}; start the job again"
            )
        require_begun(self._context, self.job, self._generation)

    def _check_identities(self) -> None:
        """Sees to it that the topics are those that the query began with, and not others of the same name."""
        now = {topic: self._context.source.topic_id(topic) for topic in self._ids}
        for topic, (old, new) in changed_ids(self._ids, now).items():
            raise DataLossError(
                recreated_topic_message(self.job.name, topic, f"its id was {old} and is {new}")
            )

    def _check_checkpoint(self) -> int:
        """The last batch that the table has, -1 for none; the checkpoint must know it."""
        table = self._context.home.table(self.job.target.name)
        entry = last_entry(table, self.job.name, self._generation)
        done = -1 if entry is None else entry.batch
        lost = first_lost(self._checkpoint, done)
        if lost is not None:
            require_unread(self._context.home, self.job)
            message = lost_batch_message(self.job.name, self.job.target.name, lost, done)
            raise DataLossError(f"{message}; {self._without_checkpoint('the log')} {self.job.name}")
        if entry is None:
            return -1
        if entry.batch >= 0 and read_offsets(self._checkpoint, entry.batch) is None:
            raise DataLossError(
                f"job {self.job.name!r}: {self.job.target.name} has its batch {entry.batch}, but the checkpoint "
                f"{self._checkpoint} does not; {self._without_checkpoint()} {self.job.name}"
            )
        return entry.batch

    def _without_checkpoint(self, what: str = "the checkpoint") -> str:
        """What can be done."""
        if mends_checkpoint(self._plan):
            return f"put {what} back, or begin a generation that keeps the table's rows: headwater jobs renew"
        return f"put {what} back, or begin a new generation with an empty table: headwater jobs rebuild"


def explain(error: BaseException) -> str:
    """What ended a query, as one sentence for a person."""
    if isinstance(error, StreamsError):
        return str(error)
    if (reason := refused(error)) is not None:
        return f"a broker refuses the client that reads records in Spark ({reason})"
    if (reason := away(error)) is not None:
        return f"a broker does not answer ({reason})"
    if (why := reason_of(error)) is not None:
        return ": ".join([*_whose(error), why])
    text = str(error)
    if isinstance(error, StreamingQueryException):
        text = text.split("=== Streaming Query ===", maxsplit=1)[0]
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    if _OF_A_CLIENT.search(first) and (cause := last_cause(error)) is not None:
        first = f"{first} ({cause})"
    return ": ".join([*_whose(error), first.split(" SQLSTATE")[0]])


def _whose(error: BaseException) -> list[str]:
    """Which job an error of Spark's ended, and in which batch of it; see `JobQuery.failure`."""
    notes: list[str] = getattr(error, "__notes__", [])
    return [note for note in notes if note.startswith("job ")]


def _read_by(inputs: Mapping[str, BatchInput]) -> str:
    """What a batch reads, for a sentence."""
    ranges = merge_ranges([batch_input.source.ranges for batch_input in inputs.values()])
    spelled_ranges = spelled(
        {topic: dict(sorted(partitions.items())) for topic, partitions in ranges.items()}
    )
    if not spelled_ranges:
        return ""
    more = f" and {len(spelled_ranges) - _SHOWN} more" if len(spelled_ranges) > _SHOWN else ""
    return f" of {', '.join(spelled_ranges[:_SHOWN])}{more}"
