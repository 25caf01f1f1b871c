"""Answers Fetch: the path of every message that goes out."""

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from kio.schema.errors import ErrorCode

from headwater_broker.log import (
    FileRange,
    Isolation,
    LogError,
    LogManager,
    MissingOffsetsError,
    PartitionLog,
    Slices,
    messages_of_batches,
)
from headwater_broker.server.cluster import Absences, ClusterView, Logs
from headwater_broker.server.connection import Connection, Deferred, Part
from headwater_broker.server.core import Core
from headwater_broker.server.errors import error_code
from headwater_broker.server.fetch_sessions import FetchSession, FetchSessions
from headwater_broker.wire import RequestHeader
from headwater_broker.wire.fetch import (
    BATCHES_FROM,
    FetchPartition,
    FetchRequest,
    FetchResult,
    encode_fetch_response,
    parse_fetch,
)

_LOG = logging.getLogger(__name__)
_IDS_FROM = 13
_ZSTD_FROM = 10
_WIDE = 64
"""A fetch of more partitions is worked off in slices of so many: a look at them takes half a millisecond."""

_CONVERTED_BYTES = 1 << 20
"""How many bytes are converted at most for one request of an old client."""


class Timers(Protocol):
    """What is needed of the loop's clock."""

    def call_later(self, delay: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Calls back after `delay` seconds."""


class _Parked:
    """A fetch that waits for more bytes or for its time to run out.

    Attributes:
        is_looking: A wide one's logs are being looked at.
        is_news: Something was written meanwhile.
        is_over: Its time has run out meanwhile.
    """

    __slots__ = (
        "connection",
        "deferred",
        "header",
        "is_looking",
        "is_news",
        "is_over",
        "logs",
        "look_again",
        "request",
        "session",
        "timer",
    )

    def __init__(
        self,
        connection: Connection,
        header: RequestHeader,
        request: FetchRequest,
        deferred: Deferred,
        logs: list[PartitionLog],
        session: FetchSession | None,
    ) -> None:
        self.session = session
        self.connection = connection
        self.header = header
        self.request = request
        self.deferred = deferred
        self.logs = logs
        self.timer: asyncio.TimerHandle | None = None
        self.is_looking = self.is_news = self.is_over = False
        self.look_again: Callable[[], None] = _nothing

    @property
    def is_wide(self) -> bool:
        """Whether a look takes so long that it is done in slices."""
        return len(self.request.partitions) > _WIDE


def _nothing() -> None:
    """Does nothing."""


class _Findings:
    """The results of one look at the logs, which may not be complete yet."""

    __slots__ = ("has_error", "logs", "ranges", "results", "room", "size_bytes", "unlooked")

    def __init__(self, room: int) -> None:
        self.room = room
        self.results: list[FetchResult] = []
        self.ranges: list[Part | None] = []
        self.logs: list[PartitionLog] = []
        self.unlooked: list[tuple[int, PartitionLog]] = []
        """Indexes of ranges whose records were not checked yet, with their logs."""
        self.size_bytes = 0
        self.has_error = False


class FetchHandler:
    """Reads, or parks the fetch until what it asks for is there."""

    def __init__(
        self,
        core: Core,
        manager: LogManager,
        cluster: ClusterView,
        timers: Timers,
        sessions: FetchSessions,
        now_ms: Callable[[], int],
    ) -> None:
        self._manager: Logs = manager
        self._cluster: Absences = cluster
        self._timers = timers
        self._sessions = sessions
        self._now_ms = now_ms
        self._core = core
        self._work = core.work
        self._touch = core.touch
        self._resets = core.resets
        self._parked: dict[PartitionLog, dict[_Parked, None]] = {}
        self._parked_of: dict[Connection, _Parked] = {}
        core.on_written(self.wake)
        core.on_detached(self._forget)

    def look_in(self, logs: Logs, why: Absences) -> None:
        """From now on, looks logs up there, and asks there why one is missing."""
        self._manager = logs
        self._cluster = why

    def __call__(self, connection: Connection, header: RequestHeader, frame: memoryview) -> None:
        version = header.api_version
        request = parse_fetch(frame, header.body_position, version)
        if version < BATCHES_FROM:
            request = _bounded(request)
        session: FetchSession | None = None
        if request.session_epoch >= 0 or request.session_id != 0:
            outcome = self._sessions.begin(request, version, self._now_ms())
            if isinstance(outcome, FetchSession):
                session = outcome
                request = session.whole(request)
            elif outcome is not ErrorCode.none:
                connection.output.extend(
                    encode_fetch_response(header.correlation_id, version, [], error_code=outcome)
                )
                return
        if len(request.partitions) > _WIDE:
            parked = _Parked(connection, header, request, connection.defer(exclusive=True), [], session)
            parked.look_again = partial(self._look_in_slices, parked)
            self._look_in_slices(parked, is_first=True)
            return
        findings = self._look(request, header, connection)
        if request.max_wait_ms <= 0 or not request.partitions or _is_enough(request, findings):
            work = _slow_answer(header, request, findings, session)
            if work is not None:
                self._answer_later(connection, work, connection.defer(exclusive=True))
            else:
                connection.output.extend(_answer(header, findings, session))
            return
        deferred = connection.defer(exclusive=True)
        self._park(_Parked(connection, header, request, deferred, findings.logs, session))

    def _park(self, parked: _Parked) -> None:
        """Has it looked at again once something is written to its logs, and answered once its time is up."""
        delay_s = parked.request.max_wait_ms / 1000
        parked.timer = self._timers.call_later(delay_s, partial(self._time_is_up, parked))
        self._parked_of[parked.connection] = parked
        for log in parked.logs:
            self._parked.setdefault(log, {})[parked] = None

    def wake(self, log: PartitionLog) -> None:
        """Looks again for the fetches that wait for this log."""
        waiting = self._parked.get(log)
        if waiting:
            for parked in list(waiting):
                if parked.deferred.is_done:
                    continue
                if parked.is_wide:
                    self._look_in_turn(parked)
                    continue
                findings = self._look(parked.request, parked.header, parked.connection)
                if _is_enough(parked.request, findings):
                    self._answer_parked(parked, findings)

    def _time_is_up(self, parked: _Parked) -> None:
        if parked.deferred.is_done:
            return
        parked.is_over = True
        if parked.is_wide:
            self._look_in_turn(parked)
        else:
            self._answer_parked(parked, self._look(parked.request, parked.header, parked.connection))

    def _look_in_turn(self, parked: _Parked) -> None:
        if parked.is_looking or not self._core.turns.must_wait(parked.connection, parked.look_again):
            self._look_in_slices(parked)

    def _look_in_slices(self, parked: _Parked, *, is_first: bool = False) -> None:
        """Looks at the logs of a wide fetch, and answers or goes on waiting."""
        if parked.deferred.is_done:
            return
        if parked.is_looking:
            parked.is_news = True
            return
        parked.is_looking, parked.is_news = True, False
        began_tick = self._core.tick

        def then(result: tuple[_Findings, bool] | None, error: Exception | None) -> None:
            parked.is_looking = False
            if result is None:
                self._failed(parked.connection, error)
                return
            findings, is_enough = result
            if is_enough or parked.is_over or parked.request.max_wait_ms <= 0:
                self._answer_parked(parked, findings)
                return
            if is_first:
                parked.logs = findings.logs
                self._park(parked)
                # Writes that came meanwhile have not woken it.
                parked.is_news = self._core.tick != began_tick
            if parked.is_news:
                self._look_in_turn(parked)

        self._work.run(parked.connection, self._look_slices(parked), then)

    def _look_slices(self, parked: _Parked) -> Slices[tuple[_Findings, bool]]:
        """The findings of a look, and whether they are enough."""
        request = parked.request
        findings = _Findings(request.max_bytes)
        isolation = _isolation_of(request)
        for number, partition in enumerate(request.partitions):
            if number % _WIDE == _WIDE - 1:
                yield
            self._look_at(partition, findings, isolation, parked.header, parked.connection)
        return findings, _is_enough(request, findings)

    def _answer_parked(self, parked: _Parked, findings: _Findings) -> None:
        self._forget(parked.connection)
        work = _slow_answer(parked.header, parked.request, findings, parked.session)
        if work is not None:
            self._answer_later(parked.connection, work, parked.deferred)
        else:
            parked.deferred.resolve(_answer(parked.header, findings, parked.session))

    def _answer_later(self, connection: Connection, answer: Slices[list[Part]], deferred: Deferred) -> None:
        """Answers once the answer is made, which may take long: every record is checked."""

        def then(parts: list[Part] | None, error: Exception | None) -> None:
            if parts is not None:
                deferred.resolve(parts)
            else:
                self._failed(connection, error)

        self._work.run(connection, answer, then)

    def _failed(self, connection: Connection, error: Exception | None) -> None:
        _LOG.error("answering Fetch of %s failed", connection.peer, exc_info=error)
        connection.close_reason = "the broker failed to answer (see above)"
        self._touch(connection)

    def _forget(self, connection: Connection) -> None:
        parked = self._parked_of.pop(connection, None)
        if parked is None:
            return
        if parked.timer is not None:
            parked.timer.cancel()
        for log in parked.logs:
            waiting = self._parked.get(log)
            if waiting is not None:
                waiting.pop(parked, None)
                if not waiting:
                    del self._parked[log]

    def _look(self, request: FetchRequest, header: RequestHeader, connection: Connection) -> _Findings:
        findings = _Findings(request.max_bytes)
        isolation = _isolation_of(request)
        for partition in request.partitions:
            self._look_at(partition, findings, isolation, header, connection)
        return findings

    def _look_at(
        self,
        partition: FetchPartition,
        findings: _Findings,
        isolation: Isolation,
        header: RequestHeader,
        connection: Connection,
    ) -> None:
        """Adds the result of one partition to the findings."""
        version = header.api_version
        log = self._log(partition, version, findings)
        if log is None:
            return
        findings.logs.append(log)
        try:
            file_range = log.read(
                partition.fetch_offset,
                min(partition.max_bytes, max(findings.room, 0)),
                isolation=isolation,
                at_least_one=findings.size_bytes == 0 or version < BATCHES_FROM,
            )
        except LogError as error:
            start = log.log_start_offset
            if isinstance(error, MissingOffsetsError):
                # Some clients take the earliest offset from here; the others ask for it.
                start = error.next_offset
                self._resets.tell(connection, header.client_id, log.topic, log.partition, start)
            _add_error(findings, partition, error_code(error), start)
            return
        if connection.resets:
            self._resets.forget(connection, log.topic, log.partition)
        findings.results.append(
            FetchResult(
                partition.topic,
                partition.partition,
                0,
                file_range.high_watermark,
                file_range.last_stable_offset,
                file_range.log_start_offset,
                file_range.count,
                file_range.aborted if isolation else None,
            )
        )
        if file_range.looked_at is not None:
            findings.unlooked.append((len(findings.ranges), log))
        findings.ranges.append(file_range if file_range.count else None)
        findings.size_bytes += file_range.count
        findings.room -= file_range.count

    def _log(self, partition: FetchPartition, version: int, findings: _Findings) -> PartitionLog | None:
        """The log that is meant; where it cannot be read here, adds the error and returns None."""
        name: bytes | None = partition.topic
        if version >= _IDS_FROM:
            name = self._cluster.name_of(partition.topic)
            if name is None:
                _add_error(findings, partition, ErrorCode.unknown_topic_id)
                return None
        assert name is not None
        log = self._manager.get(name, partition.partition)
        if log is None:
            _add_error(findings, partition, self._cluster.why_not_here(name, partition.partition))
            return None
        epoch = partition.current_leader_epoch
        if epoch >= 0 and epoch != log.leader_epoch:
            is_old = epoch < log.leader_epoch
            code = ErrorCode.fenced_leader_epoch if is_old else ErrorCode.unknown_leader_epoch
            _add_error(findings, partition, code, log.log_start_offset)
            return None
        if version < _ZSTD_FROM:
            code = _why_not_for(version, log)
            if code is not ErrorCode.none:
                _add_error(findings, partition, code)
                return None
        return log


def _isolation_of(request: FetchRequest) -> Isolation:
    return Isolation.READ_COMMITTED if request.isolation_level == 1 else Isolation.READ_UNCOMMITTED


def _is_enough(request: FetchRequest, findings: _Findings) -> bool:
    """Whether the findings are to be answered at once.

    Batches are sent whole, so that a limit leaves some bytes out: they count nevertheless, as does all that lies in
    another segment, as in Kafka's DelayedFetch.
    """
    if findings.size_bytes >= request.min_bytes or findings.has_error:
        return True
    if not findings.size_bytes:
        return False
    isolation = Isolation(request.isolation_level == 1)
    readable_bytes = 0
    for partition, log in zip(request.partitions, findings.logs, strict=True):
        try:
            readable = log.readable_bytes(partition.fetch_offset, isolation)
        except LogError:
            return True
        if readable is None:
            return True
        readable_bytes += min(readable, partition.max_bytes)
    return readable_bytes >= request.min_bytes


def _add_error(findings: _Findings, partition: FetchPartition, code: ErrorCode, start: int = -1) -> None:
    findings.results.append(FetchResult(partition.topic, partition.partition, code, -1, -1, start, 0))
    findings.ranges.append(None)
    findings.has_error = True


def _why_not_for(version: int, log: PartitionLog) -> ErrorCode:
    """Why a client of that version may not have the log's records, as KafkaApis.maybeConvertFetchedData has it."""
    if log.config.compression_type == "zstd":
        return ErrorCode.unsupported_compression_type
    if version < BATCHES_FROM and not log.config.message_downconversion_enable:
        return ErrorCode.unsupported_version
    return ErrorCode.none


def _bounded(request: FetchRequest) -> FetchRequest:
    """The request with each partition's share of what is converted."""
    share = _CONVERTED_BYTES // max(len(request.partitions), 1)
    return request._replace(
        partitions=[each._replace(max_bytes=min(each.max_bytes, share)) for each in request.partitions]
    )


def _slow_answer(
    header: RequestHeader, request: FetchRequest, findings: _Findings, session: FetchSession | None
) -> Slices[list[Part]] | None:
    """What makes the answer where that may take long; None where the findings only have to be sent."""
    if header.api_version < BATCHES_FROM:
        return _converted(header, request, findings)
    return _looked_at(header, request, findings, session) if findings.unlooked else None


def _converted(header: RequestHeader, request: FetchRequest, findings: _Findings) -> Slices[list[Part]]:
    """The answer with the findings as messages of the format that a version below 4 has."""
    version = header.api_version
    results: list[FetchResult] = []
    messages: list[Part | None] = []
    for partition, result, file_range in zip(
        request.partitions, findings.results, findings.ranges, strict=True
    ):
        converted = b""
        if isinstance(file_range, FileRange):
            try:
                batches = os.pread(file_range.fd, file_range.count, file_range.position)
                converted = yield from messages_of_batches(
                    batches, 0 if version < 2 else 1, partition.fetch_offset, partition.max_bytes
                )
            except LogError as error:
                result = FetchResult(result.topic, result.partition, error_code(error), -1, -1, -1, 0)
        results.append(result._replace(records_size=len(converted)))
        messages.append(converted or None)
    return _parts(encode_fetch_response(header.correlation_id, version, results), messages)


def _looked_at(
    header: RequestHeader, request: FetchRequest, findings: _Findings, session: FetchSession | None
) -> Slices[list[Part]]:
    """The answer, once all records in it were checked."""
    for place, log in findings.unlooked:
        file_range, result = findings.ranges[place], findings.results[place]
        assert isinstance(file_range, FileRange)
        try:
            part = yield from log.look_at(file_range, past_unreadable=request.past_unreadable)
        except (LogError, OSError) as error:
            code = error_code(error) if isinstance(error, LogError) else ErrorCode.kafka_storage_error
            findings.ranges[place] = None
            findings.results[place] = FetchResult(
                *(result.topic, result.partition, code, -1, -1, log.log_start_offset, 0)
            )
            continue
        size = part.count if isinstance(part, FileRange) else len(part)
        findings.ranges[place], findings.results[place] = part, result._replace(records_size=size)
    return _answer(header, findings, session)


def _answer(header: RequestHeader, findings: _Findings, session: FetchSession | None) -> list[Part]:
    results, session_id = findings.results, 0
    ranges = findings.ranges
    if session is not None:
        session_id = session.session_id
        chosen = session.select(results)
        results = [results[index] for index in chosen]
        ranges = [ranges[index] for index in chosen]
    pieces = encode_fetch_response(header.correlation_id, header.api_version, results, session_id=session_id)
    return _parts(pieces, ranges)


def _parts(pieces: Sequence[bytes], ranges: Sequence[Part | None]) -> list[Part]:
    parts: list[Part] = [pieces[0]]
    for file_range, piece in zip(ranges, pieces[1:], strict=True):
        if file_range is not None:
            parts.append(file_range)
        parts.append(piece)
    return parts
