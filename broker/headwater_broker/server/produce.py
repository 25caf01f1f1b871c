"""Answers Produce: the path of every message that comes in."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from struct import Struct

from kio.schema.errors import ErrorCode

from headwater_broker.log import (
    Allowance,
    Appended,
    Clock,
    InvalidBatchError,
    LogError,
    LogManager,
    LookedInto,
    PartitionLog,
    Slices,
    TooMuchAtOnceError,
    batch_of_messages,
    without_zstd,
)
from headwater_broker.server.cluster import Absences, ClusterView, Logs
from headwater_broker.server.connection import Connection, Deferred
from headwater_broker.server.core import Core
from headwater_broker.server.errors import ApiError, error_code
from headwater_broker.server.flusher import Flusher
from headwater_broker.server.internal_topics import INTERNAL_TOPICS
from headwater_broker.server.transaction_runner import TransactionRunner
from headwater_broker.transactions import TransactionRefused
from headwater_broker.wire import RequestHeader
from headwater_broker.wire.alike import skip_frames
from headwater_broker.wire.produce import (
    BATCHES_FROM,
    ZSTD_FROM,
    PartitionRecords,
    ProduceResult,
    encode_all_produced,
    encode_produce_response,
    encode_produced,
    parse_produce,
)

_LOG = logging.getLogger(__name__)
_ACKS_ALL = -1
_LOOKED_AT_A_TICK = 2 << 20
"""Decompressed bytes, or what costs as much: one to three milliseconds."""
_LOOKED_AT_ASIDE = 32 << 20
"""The same for a large batch, which is checked in another thread; a still larger one waits only for others like it."""

_WIDE = 256
"""So many partitions of a request are appended to at once: half a millisecond."""

_FRAME_START = Struct(">ii")
_SIZE_BYTES = 4
_ABORTABLE_FROM = 11
_INTERNAL_TOPICS = frozenset(name.encode() for name in INTERNAL_TOPICS)

_Copied = tuple[bytes, int, bytearray]
"""Topic, partition and records."""

_MayBegin = Callable[[PartitionLog, int, int], None]
"""See `PartitionLog.append`."""

_UNVERIFIED = {
    ErrorCode.producer_fenced: ErrorCode.invalid_producer_epoch,
    ErrorCode.concurrent_transactions: ErrorCode.not_enough_replicas,
    ErrorCode.coordinator_not_available: ErrorCode.not_enough_replicas,
    ErrorCode.not_coordinator: ErrorCode.not_enough_replicas,
}
"""What Kafka's broker tells a producer whose transaction cannot be verified now (KIP-890)."""


class _Produced:
    """Answers to Produce that lie in the output of a connection while their batches are not written.

    Attributes:
        base_offsets: What the batches of requests for a single partition got, in their order.
        is_deferred: They are not in the output yet, as they wait for a flush.
    """

    __slots__ = ("_correlation_ids", "_results", "_start", "_version", "base_offsets", "is_deferred")

    def __init__(
        self, version: int, correlation_ids: Sequence[int], results: list[ProduceResult], start: int
    ) -> None:
        """Remembers them.

        Args:
            version: Of the API.
            correlation_ids: Of the requests.
            results: What the answer says, or will say; of requests for a single partition, nothing.
            start: How many parts of the output come before.
        """
        self.base_offsets: Sequence[int] = ()
        self.is_deferred = False
        self._version = version
        self._correlation_ids = correlation_ids
        self._results = results
        self._start = start

    def take_back(self, connection: Connection, log: PartitionLog, error: LogError) -> bool:
        """Says KAFKA_STORAGE_ERROR, after which clients send the same batches again, in their order.

        What was written before the write that failed, as a segment was begun meanwhile, stays acknowledged.
        """
        key = (log.topic.encode(), log.partition)
        refused = ProduceResult(*key, error_code(error), -1, -1, log.log_start_offset, str(error))
        lost_from = log.written_offset
        if self._results:
            # In place: an answer that waits for a flush is made of the same list.
            self._results[:] = [
                refused if (each[0], each[1]) == key and each.base_offset >= lost_from else each
                for each in self._results
            ]
        if self.is_deferred:
            return True
        are_lost = [each >= lost_from for each in self.base_offsets] or [True]
        ids, done, output = self._correlation_ids, 0, connection.output
        for index in range(self._start, len(output)) if any(are_lost) else ():
            part = output[index]
            if not isinstance(part, bytes):
                continue
            frames = _frames(part)
            end = done + len(frames)
            if [each for each, _, _ in frames] != list(ids[done:end]):
                continue
            output[index] = b"".join(
                encode_produce_response(each, self._version, self._results or [refused])
                if is_lost
                else part[start:stop]
                for (each, start, stop), is_lost in zip(frames, are_lost[done:end], strict=True)
            )
            done = end
        return done == len(ids) or not any(are_lost)


def _frames(parts: bytes) -> list[tuple[int, int, int]]:
    """Correlation id, beginning and end of each frame; an empty list where the bytes are not whole frames."""
    frames, position = [], 0
    while position + _FRAME_START.size <= len(parts):
        size, correlation_id = _FRAME_START.unpack_from(parts, position)
        frames.append((correlation_id, position, position + _SIZE_BYTES + size))
        position += _SIZE_BYTES + size
    return frames if position == len(parts) else []


class ProduceHandler:
    """Appends each partition's batch to its log, and answers once the tick's write (and flush) is done."""

    def __init__(
        self,
        core: Core,
        manager: LogManager,
        cluster: ClusterView,
        flusher: Flusher,
        clock: Clock,
        transactions: TransactionRunner,
    ) -> None:
        self._core = core
        self._manager: Logs = manager
        self._logs = manager
        self._cluster = cluster
        self._why: Absences = cluster
        self._flusher = flusher
        self._clock = clock
        self._transactions = transactions
        self._allowed_tick = -1
        self._allowed = Allowance(0)
        self._aside = ThreadPoolExecutor(1, thread_name_prefix="look-into")
        self._aside_for_long = ThreadPoolExecutor(1, thread_name_prefix="look-into-long")

    def look_in(self, logs: Logs, why: Absences) -> None:
        """From now on, looks logs up there, and asks there why one is missing."""
        self._manager = logs
        self._why = why

    def __call__(self, connection: Connection, header: RequestHeader, frame: memoryview) -> None:
        version = header.api_version
        request = parse_produce(frame, header.body_position, version)
        may_begin = None
        if request.transactional_id is not None:
            may_begin = self._transactions.may_begin(request.transactional_id.decode(errors="replace"))
        now_ms = self._clock.now_ms()
        allowance = self._allowance()
        work = _Work(header, request.acks, version, len(connection.output))
        places = request.partitions
        for number, (topic, partition, start, end) in enumerate(places):
            if number == _WIDE:
                self._go_on_later(connection, work, _copied(frame, places[number:]), [], may_begin)
                return
            log = self._find(work, topic, partition)
            if log is None:
                continue
            remaining = allowance.remaining
            try:
                records = work.prepared(frame[start:end], allowance)
                appended = log.append(records, now_ms=now_ms, may_begin=may_begin, allowance=allowance)
            except TooMuchAtOnceError:
                rest = _copied(frame, places[number:])
                large = [rest.pop(0)] if remaining == _LOOKED_AT_A_TICK else []
                self._go_on_later(connection, work, rest, large, may_begin)
                return
            except (LogError, TransactionRefused, ApiError) as error:
                work.results.append(_refused(topic, partition, log, error, version))
                continue
            self._core.dirty(log, connection, work.produced)
            if len(places) == 1 and version >= BATCHES_FROM and not (work.is_all and log.config.acks_fsync):
                if work.produced is not None:
                    work.produced.base_offsets = (appended.base_offset,)
                if connection.forms.wants_more:
                    connection.forms.learn(frame, header, request)
                if request.acks:
                    connection.output.append(_produced(header, topic, partition, appended))
                return
            work.note(log, topic, partition, appended)
        self._finish(connection, work)

    def _find(self, work: "_Work", topic: bytes, partition: int) -> PartitionLog | None:
        """The log to append to; None where the answer is known already, and noted."""
        log = self._manager.get(topic, partition)
        log_start_offset = -1
        if log is None:
            code = self._why.why_not_here(topic, partition)
        elif topic in _INTERNAL_TOPICS:
            code = ErrorCode.invalid_topic_exception
        elif not -1 <= work.acks <= 1:
            code = ErrorCode.invalid_required_acks
        elif work.is_all and self._lacks_replicas(log):
            code, log_start_offset = ErrorCode.not_enough_replicas, log.log_start_offset
        else:
            return log
        work.results.append(ProduceResult(topic, partition, code, -1, -1, log_start_offset))
        return None

    def _allowance(self) -> Allowance:
        """How much may be checked for all requests of this tick together before others get their turn."""
        if self._allowed_tick != self._core.tick:
            self._allowed_tick = self._core.tick
            self._allowed = Allowance(_LOOKED_AT_A_TICK)
        return self._allowed

    def _go_on_later(
        self,
        connection: Connection,
        work: "_Work",
        rest: Sequence[_Copied],
        large: list[_Copied],
        may_begin: _MayBegin | None,
    ) -> None:
        """Goes on with the rest of a request in slices, and then with the batches that are too large for a slice."""
        work.defer(connection)

        def then(_: None, error: Exception | None) -> None:
            if error is None:
                self._core.spawn(self._go_on_aside(connection, work, large, may_begin))
            else:
                self._failed(connection, error)

        self._core.work.run(connection, self._append_slices(connection, work, rest, large, may_begin), then)

    def _append_slices(
        self,
        connection: Connection,
        work: "_Work",
        rest: Sequence[_Copied],
        large: list[_Copied],
        may_begin: _MayBegin | None,
    ) -> Slices[None]:
        """Appends batches that are checked quickly, and adds the others to the large ones."""
        for copied in rest:
            yield
            topic, partition, batch = copied
            log = self._find(work, topic, partition)
            if log is None:
                continue
            allowance = Allowance(_LOOKED_AT_A_TICK)
            try:
                records = work.prepared(memoryview(batch), allowance)
                now_ms = self._clock.now_ms()
                appended = log.append(records, now_ms=now_ms, may_begin=may_begin, allowance=allowance)
            except TooMuchAtOnceError:
                large.append(copied)
                continue
            except (LogError, TransactionRefused, ApiError) as error:
                work.results.append(_refused(topic, partition, log, error, work.version))
                continue
            self._core.dirty(log, connection, work.produced)
            self._core.schedule_tick()
            work.note(log, topic, partition, appended)

    async def _go_on_aside(
        self,
        connection: Connection,
        work: "_Work",
        large: Sequence[_Copied],
        may_begin: _MayBegin | None,
    ) -> None:
        """Appends batches that take long to check; they are checked beside the loop, one after the other."""
        for topic, partition, batch in large:
            log = self._find(work, topic, partition)
            if log is None:
                continue
            now_ms = self._clock.now_ms()
            try:
                looked_into = await self._look_aside(work, log, memoryview(batch), now_ms)
                if connection.is_closed:
                    return
                if self._logs.get(topic, partition) is not log:
                    raise ApiError(ErrorCode.unknown_topic_or_partition)
                appended = log.append(
                    looked_into[0], now_ms=now_ms, may_begin=may_begin, looked_into=looked_into
                )
            except (LogError, TransactionRefused, ApiError) as error:
                work.results.append(_refused(topic, partition, log, error, work.version))
                continue
            except Exception as error:
                self._failed(connection, error)
                return
            self._core.dirty(log, connection, work.produced)
            work.note(log, topic, partition, appended)
        # The answer says what the write at the end of this tick says.
        self._core.schedule_tick()
        await asyncio.sleep(0)
        self._finish(connection, work)

    async def _look_aside(
        self, work: "_Work", log: PartitionLog, batch: memoryview, now_ms: int
    ) -> LookedInto:
        """What `PartitionLog.look_into` makes of a batch, in another thread."""
        loop = asyncio.get_running_loop()
        look = partial(work.look_into, log, batch, now_ms)
        try:
            return await loop.run_in_executor(self._aside, look, Allowance(_LOOKED_AT_ASIDE))
        except TooMuchAtOnceError:
            return await loop.run_in_executor(self._aside_for_long, look, None)

    def _failed(self, connection: Connection, error: Exception) -> None:
        _LOG.error("answering a produce request of %s failed", connection.peer, exc_info=error)
        connection.close_reason = "the broker failed to answer (see above)"
        self._core.touch(connection)

    def _finish(self, connection: Connection, work: "_Work") -> None:
        """Answers, or has it done once all is flushed."""
        header, deferred = work.header, work.deferred
        if work.acks == 0:
            if any(result.error_code for result in work.results):
                # The only way to tell a producer that asked for no answer, as Kafka does.
                connection.close_reason = "a produce request with acks=0 failed: " + _first_error(
                    work.results
                )
            if deferred is not None:
                deferred.resolve([])
        elif work.unflushed:
            if work.produced is not None:
                work.produced.is_deferred = True
            self._answer_flushed(deferred or connection.defer(exclusive=False), work)
        else:
            answer = encode_produce_response(header.correlation_id, work.version, work.results)
            if deferred is None:
                connection.output.append(answer)
            else:
                deferred.resolve([answer])

    def take_alike(
        self, connection: Connection, buffer: bytearray, view: memoryview, start: int, end: int
    ) -> int:
        """Answers requests of a known form in a row; see `Core.handle_alike`.

        All of them came at once, so the checks that may refuse them are made once. The row ends before the first
        request that needs more than an append, or whose append fails: nothing of that one is done then.
        """
        form = connection.forms.find(buffer, start)
        if form is None:
            return start
        topic, partition, acks = form.topic, form.partition, form.acks
        log = self._manager.get(topic, partition)
        if log is None or (acks == _ACKS_ALL and (log.config.acks_fsync or self._lacks_replicas(log))):
            return start
        records, correlation_ids = form.take(buffer, view, start, end, connection.max_frame_bytes)
        now_ms = self._clock.now_ms()
        log_start_offset = log.log_start_offset
        version, count, done = form.api_version, len(records), 0
        parts_before = len(connection.output)
        offsets: list[int] = []
        while done < count:
            base_offsets = log.append_plain(records, done, now_ms=now_ms)
            step = len(base_offsets)
            if step:
                offsets = offsets + base_offsets if offsets else base_offsets
                if acks:
                    ids = correlation_ids[done : done + step] if step < count else correlation_ids
                    connection.output.append(
                        encode_all_produced(ids, base_offsets, version, topic, partition, log_start_offset)
                    )
                done += step
            if done < count:
                try:
                    batch = records[done] if version >= ZSTD_FROM else without_zstd(records[done])
                    appended = log.append(batch, now_ms=now_ms, allowance=self._allowance())
                except LogError:
                    break
                offsets.append(appended.base_offset)
                if acks:
                    connection.output.append(
                        encode_produced(
                            correlation_ids[done],
                            version,
                            topic,
                            partition,
                            appended.base_offset,
                            appended.log_append_time_ms,
                            appended.log_start_offset,
                        )
                    )
                done += 1
        if not done:
            return start
        produced = None
        if acks:
            produced = _Produced(version, correlation_ids[:done], [], parts_before)
            produced.base_offsets = offsets
        self._core.dirty(log, connection, produced)
        return skip_frames(buffer, start, done)

    def _lacks_replicas(self, log: PartitionLog) -> bool:
        """Whether fewer replicas are in sync than acks=all asks for."""
        required = log.config.min_insync_replicas
        return required > 1 and self._cluster.lacks_replicas(log.topic, log.partition, required)

    def _answer_flushed(self, deferred: Deferred, work: "_Work") -> None:
        waiting = len(work.unflushed)
        failed: set[tuple[bytes, int]] = set()

        def flushed(log: PartitionLog, error: Exception | None) -> None:
            nonlocal waiting
            waiting -= 1
            if error is not None:
                failed.add((log.topic.encode(), log.partition))
            if waiting == 0:
                answers = [
                    ProduceResult(each.topic, each.partition, ErrorCode.kafka_storage_error, -1, -1, -1)
                    if (each.topic, each.partition) in failed
                    else each
                    for each in work.results
                ]
                deferred.resolve([encode_produce_response(work.header.correlation_id, work.version, answers)])

        for log, end_offset in work.unflushed:
            self._flusher.when_flushed(log, end_offset, flushed)


class _Work:
    """A request on its way.

    Attributes:
        header: Its header.
        acks: Its acks.
        is_all: They are those of all replicas.
        version: Of Produce.
        results: The answers so far.
        unflushed: Logs that have to be flushed before the answer, and up to which offset.
        deferred: Its place in the connection's output, if it is not answered at once.
        produced: What its answer says of batches that are not written yet; None where there is no answer.
    """

    __slots__ = ("acks", "deferred", "header", "is_all", "produced", "results", "unflushed", "version")

    def __init__(self, header: RequestHeader, acks: int, version: int, parts_before: int) -> None:
        self.header = header
        self.acks = acks
        self.is_all = acks == _ACKS_ALL
        self.version = version
        self.results: list[ProduceResult] = []
        self.unflushed: list[tuple[PartitionLog, int]] = []
        self.deferred: Deferred | None = None
        self.produced: _Produced | None = None
        if acks:
            self.produced = _Produced(version, (header.correlation_id,), self.results, parts_before)

    def defer(self, connection: Connection) -> None:
        """Has the answer come later, and no other request of the connection begun before."""
        self.deferred = connection.defer(exclusive=True)
        if self.produced is not None:
            self.produced.is_deferred = True

    def prepared(self, records: memoryview, allowance: Allowance | None) -> memoryview:
        """The batch that an older version's records are."""
        if self.version >= ZSTD_FROM:
            return records
        if self.version < BATCHES_FROM:
            records = batch_of_messages(records, allowance)
        return without_zstd(records)

    def look_into(
        self, log: PartitionLog, records: memoryview, now_ms: int, allowance: Allowance | None
    ) -> LookedInto:
        """Checks the batch as far as the allowance goes; may run in another thread."""
        return log.look_into(self.prepared(records, allowance), now_ms=now_ms, allowance=allowance)

    def note(self, log: PartitionLog, topic: bytes, partition: int, appended: Appended) -> None:
        """Takes note of what was appended."""
        if self.is_all and log.config.acks_fsync:
            self.unflushed.append((log, appended.last_offset + 1))
        self.results.append(
            ProduceResult(
                topic,
                partition,
                0,
                appended.base_offset,
                appended.log_append_time_ms,
                appended.log_start_offset,
            )
        )


def _copied(frame: memoryview, places: Sequence[PartitionRecords]) -> list[_Copied]:
    """Copies of their records, since the receive buffer is filled again meanwhile."""
    return [(topic, partition, bytearray(frame[start:end])) for topic, partition, start, end in places]


def _produced(header: RequestHeader, topic: bytes, partition: int, appended: Appended) -> bytes:
    return encode_produced(
        header.correlation_id,
        header.api_version,
        topic,
        partition,
        appended.base_offset,
        appended.log_append_time_ms,
        appended.log_start_offset,
    )


def _refused(
    topic: bytes, partition: int, log: PartitionLog, error: Exception, version: int
) -> ProduceResult:
    code = error_code(error)
    if not isinstance(error, LogError):
        code = _UNVERIFIED.get(code, code)
        if code is ErrorCode.transaction_abortable and version < _ABORTABLE_FROM:
            code = ErrorCode.invalid_txn_state
    if code == ErrorCode.unknown_server_error:
        _LOG.error("%s-%d: %s", log.topic, partition, error)
    records = error.records if isinstance(error, InvalidBatchError) else ()
    return ProduceResult(topic, partition, code, -1, -1, log.log_start_offset, str(error), records)


def _first_error(results: list[ProduceResult]) -> str:
    worst = next(result for result in results if result.error_code)
    name = ErrorCode(worst.error_code).name
    return f"{worst.topic.decode(errors='replace')}-{worst.partition}: {worst.error_message or name}"
