"""Guards of Produce and Fetch, which stand in their way only while somebody may be refused something.

The handlers look logs up in what they were given. While rules hold, that is a `GuardedLogs`, which does not have
the logs that the caller may not touch, and says why.
"""

from kio.schema.errors import ErrorCode

from headwater_broker.log import LogManager, PartitionLog
from headwater_broker.security import Operation, ResourceType
from headwater_broker.server.cluster import ClusterView
from headwater_broker.server.connection import Connection
from headwater_broker.server.core import Core, RawHandler
from headwater_broker.server.fetch import FetchHandler
from headwater_broker.server.produce import ProduceHandler
from headwater_broker.server.security import SecurityState
from headwater_broker.wire import RequestHeader
from headwater_broker.wire.apis import FETCH, PRODUCE
from headwater_broker.wire.produce import (
    BATCHES_FROM,
    ProduceResult,
    encode_produce_response,
    parse_produce,
)


class GuardedLogs:
    """Logs by topic and partition, for one caller at a time.

    Attributes:
        caller: The connection whose request is being answered; None while a fetch that was let in goes on.
    """

    def __init__(
        self, manager: LogManager, cluster: ClusterView, state: SecurityState, operation: Operation
    ) -> None:
        self.caller: Connection | None = None
        self.name_of = cluster.name_of
        self._manager = manager
        self._cluster = cluster
        self._state = state
        self._operation = operation

    def _is_allowed(self, topic: str | bytes) -> bool:
        if self.caller is None:
            return True
        name = topic.decode(errors="replace") if isinstance(topic, bytes) else topic
        return self._state.allows(self.caller, self._operation, ResourceType.TOPIC, name)

    def get(self, topic: str | bytes, partition: int) -> PartitionLog | None:
        """See `LogManager.get`."""
        return self._manager.get(topic, partition) if self._is_allowed(topic) else None

    def why_not_here(self, topic: str | bytes, partition: int) -> ErrorCode:
        """See `ClusterView.why_not_here`."""
        if not self._is_allowed(topic):
            return ErrorCode.topic_authorization_failed
        return self._cluster.why_not_here(topic, partition)


class RecordGuards:
    """Puts the guards before Produce and Fetch when rules come, and takes them away when they go."""

    def __init__(
        self,
        core: Core,
        manager: LogManager,
        cluster: ClusterView,
        state: SecurityState,
        produce: ProduceHandler,
        fetch: FetchHandler,
    ) -> None:
        self._core = core
        self._manager = manager
        self._cluster = cluster
        self._state = state
        self._produce = produce
        self._fetch = fetch
        self._written = GuardedLogs(manager, cluster, state, Operation.WRITE)
        self._read = GuardedLogs(manager, cluster, state, Operation.READ)
        state.on_rules(self._set)

    def _set(self, is_active: bool) -> None:
        if is_active:
            self._produce.look_in(self._written, self._written)
            self._fetch.look_in(self._read, self._read)
            self._core.register_raw(PRODUCE, self._guarded_produce)
            self._core.register_alike(self._guarded_alike)
            self._core.register_raw(FETCH, _as_caller(self._read, self._fetch))
        else:
            self._produce.look_in(self._manager, self._cluster)
            self._fetch.look_in(self._manager, self._cluster)
            self._core.register_raw(PRODUCE, self._produce)
            self._core.register_alike(self._produce.take_alike)
            self._core.register_raw(FETCH, self._fetch)

    def _guarded_produce(self, connection: Connection, header: RequestHeader, frame: memoryview) -> None:
        if header.api_version >= BATCHES_FROM:
            request = parse_produce(frame, header.body_position, header.api_version)
            transactional_id = request.transactional_id
            if transactional_id is not None and not self._state.allows(
                connection,
                Operation.WRITE,
                ResourceType.TRANSACTIONAL_ID,
                transactional_id.decode(errors="replace"),
            ):
                code = ErrorCode.transactional_id_authorization_failed
                results = [
                    ProduceResult(topic, partition, code, -1, -1, -1)
                    for topic, partition, _, _ in request.partitions
                ]
                connection.output.append(
                    encode_produce_response(header.correlation_id, header.api_version, results)
                )
                return
        _as_caller(self._written, self._produce)(connection, header, frame)

    def _guarded_alike(
        self, connection: Connection, buffer: bytearray, view: memoryview, start: int, end: int
    ) -> int:
        self._written.caller = connection
        try:
            return self._produce.take_alike(connection, buffer, view, start, end)
        finally:
            self._written.caller = None


def _as_caller(logs: GuardedLogs, handler: RawHandler) -> RawHandler:
    def guarded(connection: Connection, header: RequestHeader, frame: memoryview) -> None:
        logs.caller = connection
        try:
            handler(connection, header, frame)
        finally:
            logs.caller = None

    return guarded
