"""Answers Produce: the path of every message that comes in."""

import logging

from kio.schema.errors import ErrorCode

from headwater_broker.log import (
    Appended,
    Clock,
    InvalidBatchError,
    LogError,
    LogManager,
    PartitionLog,
    batch_of_messages,
    without_zstd,
)
from headwater_broker.server.cluster import Absences, ClusterView, Logs
from headwater_broker.server.connection import Connection
from headwater_broker.server.core import Core
from headwater_broker.server.errors import ApiError, error_code
from headwater_broker.server.flusher import Flusher
from headwater_broker.server.transaction_log import TRANSACTION_TOPIC
from headwater_broker.server.transaction_runner import TransactionRunner
from headwater_broker.transactions import TransactionRefused
from headwater_broker.wire import RequestHeader
from headwater_broker.wire.alike import skip_frames
from headwater_broker.wire.produce import (
    BATCHES_FROM,
    ZSTD_FROM,
    ProduceResult,
    encode_all_produced,
    encode_produce_response,
    encode_produced,
    parse_produce,
)

_LOG = logging.getLogger(__name__)
_ACKS_ALL = -1
_ABORTABLE_FROM = 11
_INTERNAL_TOPIC = TRANSACTION_TOPIC.encode()

_UNVERIFIED = {
    ErrorCode.producer_fenced: ErrorCode.invalid_producer_epoch,
    ErrorCode.concurrent_transactions: ErrorCode.not_enough_replicas,
    ErrorCode.coordinator_not_available: ErrorCode.not_enough_replicas,
    ErrorCode.not_coordinator: ErrorCode.not_enough_replicas,
}
"""What Kafka's broker tells a producer whose transaction cannot be verified now (KIP-890)."""


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
        self._cluster = cluster
        self._why: Absences = cluster
        self._flusher = flusher
        self._clock = clock
        self._transactions = transactions

    def look_in(self, logs: Logs, why: Absences) -> None:
        """Has logs looked up there from now on, and asked there why one is not to be had."""
        self._manager = logs
        self._why = why

    def __call__(self, connection: Connection, header: RequestHeader, frame: memoryview) -> None:
        version = header.api_version
        prepare = None if version >= ZSTD_FROM else _PREPARE[version >= BATCHES_FROM]
        request = parse_produce(frame, header.body_position, version)
        acks = request.acks
        now_ms = self._clock.now_ms()
        is_ordinary = len(request.partitions) == 1 and version >= BATCHES_FROM
        may_begin = None
        if request.transactional_id is not None:
            may_begin = self._transactions.may_begin(request.transactional_id.decode(errors="replace"))
        get = self._manager.get
        results = []
        unflushed: list[tuple[PartitionLog, int]] = []
        for topic, partition, start, end in request.partitions:
            log = get(topic, partition)
            if log is None or topic == _INTERNAL_TOPIC:
                code = ErrorCode.invalid_topic_exception
                if log is None:
                    code = self._why.why_not_here(topic, partition)
                results.append(ProduceResult(topic, partition, code, -1, -1, -1))
                continue
            if not -1 <= acks <= 1:
                results.append(ProduceResult(topic, partition, ErrorCode.invalid_required_acks, -1, -1, -1))
                continue
            if acks == _ACKS_ALL and self._lacks_replicas(log):
                code = ErrorCode.not_enough_replicas
                results.append(ProduceResult(topic, partition, code, -1, -1, log.log_start_offset))
                continue
            try:
                records = frame[start:end] if prepare is None else prepare(frame[start:end])
                appended = log.append(records, now_ms=now_ms, may_begin=may_begin)
            except (LogError, TransactionRefused, ApiError) as error:
                results.append(_refused(topic, partition, log, error, version))
                continue
            self._core.dirty(log, connection)
            if acks == _ACKS_ALL and log.config.acks_fsync:
                unflushed.append((log, appended.last_offset + 1))
            elif is_ordinary:
                if connection.forms.wants_more:
                    connection.forms.learn(frame, header, request)
                if acks:
                    connection.output.append(_produced(header, topic, partition, appended))
                return
            results.append(
                ProduceResult(
                    topic,
                    partition,
                    0,
                    appended.base_offset,
                    appended.log_append_time_ms,
                    appended.log_start_offset,
                )
            )
        if acks == 0:
            if any(result.error_code for result in results):
                # The only way to tell a producer that asked for no answer, as Kafka does.
                connection.close_reason = "a produce request with acks=0 failed: " + _first_error(results)
            return
        if unflushed:
            self._answer_flushed(connection, header, results, unflushed)
        else:
            connection.output.append(encode_produce_response(header.correlation_id, version, results))

    def take_alike(
        self, connection: Connection, buffer: bytearray, view: memoryview, start: int, end: int
    ) -> int:
        """Answers requests of a known form in a row; see `Core.handle_alike`.

        All of them came at once, so that what may be refused is asked once. The first one that needs more than to be
        appended ends the row, as the first one does whose append fails: nothing of it is done then.
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
        while done < count:
            base_offsets = log.append_plain(records, done, now_ms=now_ms)
            taken = len(base_offsets)
            if taken:
                if acks:
                    ids = correlation_ids[done : done + taken] if taken < count else correlation_ids
                    connection.output.append(
                        encode_all_produced(ids, base_offsets, version, topic, partition, log_start_offset)
                    )
                done += taken
            if done < count:
                try:
                    batch = records[done] if version >= ZSTD_FROM else without_zstd(records[done])
                    appended = log.append(batch, now_ms=now_ms)
                except LogError:
                    break
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
        self._core.dirty(log, connection)
        return skip_frames(buffer, start, done)

    def _lacks_replicas(self, log: PartitionLog) -> bool:
        """Whether fewer replicas are in sync than acks=all asks for."""
        wanted = log.config.min_insync_replicas
        return wanted > 1 and wanted > self._cluster.in_sync(log.topic, log.partition)

    def _answer_flushed(
        self,
        connection: Connection,
        header: RequestHeader,
        results: list[ProduceResult],
        unflushed: list[tuple[PartitionLog, int]],
    ) -> None:
        deferred = connection.defer(exclusive=False)
        waiting = len(unflushed)
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
                    for each in results
                ]
                deferred.resolve(
                    [encode_produce_response(header.correlation_id, header.api_version, answers)]
                )

        for log, end_offset in unflushed:
            self._flusher.when_flushed(log, end_offset, flushed)


def _batch_or_messages(records: memoryview) -> memoryview:
    return without_zstd(batch_of_messages(records))


_PREPARE = (_batch_or_messages, without_zstd)
"""What is done to the records of requests below version 3, and of those below version 7."""


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
