"""One broker: its parts put together, started in the right order and stopped in the reverse."""

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from headwater_broker.coordination import (
    BrokerIdInUse,
    BrokerInfo,
    CoordinationError,
    Coordinator,
    Endpoint,
)
from headwater_broker.log import (
    CleanerConfig,
    Clock,
    LogConfig,
    LogError,
    LogManager,
    Slices,
    SystemClock,
)
from headwater_broker.server.apis import register_apis
from headwater_broker.server.cluster import ClusterView
from headwater_broker.server.compactor import Compactor
from headwater_broker.server.connection_limits import ConnectionLimits
from headwater_broker.server.core import Core
from headwater_broker.server.counts import BrokerCounts
from headwater_broker.server.durable import DurableWrites
from headwater_broker.server.errors import CoordinatorError, ServerError
from headwater_broker.server.fetch import FetchHandler
from headwater_broker.server.fetch_sessions import FetchSessions
from headwater_broker.server.flusher import Flusher
from headwater_broker.server.guards.records import RecordGuards
from headwater_broker.server.listener import Door, Listener, bind
from headwater_broker.server.listeners import ALL_ADDRESSES, ListenerSpec
from headwater_broker.server.live import LiveSettings
from headwater_broker.server.node import Node
from headwater_broker.server.produce import ProduceHandler
from headwater_broker.server.quotas import Meter
from headwater_broker.server.sasl import SaslSettings
from headwater_broker.server.schema_ids import RegistryIds
from headwater_broker.server.security import ClientConfigs, SecurityState
from headwater_broker.server.settings import BrokerSettings
from headwater_broker.server.slices import Pieces
from headwater_broker.server.state import StateKeeper, topic_config
from headwater_broker.server.tls import TlsSettings
from headwater_broker.shown import MESSAGE_CHARS, shown
from headwater_client import COUNTS_TOPIC

_LOG = logging.getLogger(__name__)
_UPKEEP_S = 1.0
_BUSY_PIECE_S = 0.2


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """Where a broker listens and keeps its data.

    Attributes:
        broker_id: Its number in the cluster.
        data_dir: Its log directory, or the first of several.
        settings: Its properties.
        listeners: Where it listens, those that clients are told first.
        more_dirs: Its other log directories.
    """

    broker_id: int
    data_dir: Path
    settings: BrokerSettings = field(default_factory=BrokerSettings)
    listeners: tuple[ListenerSpec, ...] = (ListenerSpec(),)
    more_dirs: tuple[Path, ...] = ()

    @property
    def log_dirs(self) -> list[str]:
        """All of its log directories."""
        return [str(path.absolute()) for path in (self.data_dir, *self.more_dirs)]


class _LoopAdapter:
    """The event loop as the core and the fetches need it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.call_soon = loop.call_soon
        self.call_later = loop.call_later
        self._loop = loop
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        # The loop keeps weak references only: without ours a waiting task may vanish.
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def cancel_all(self) -> None:
        for task in self._tasks:
            task.cancel()


class Broker:
    """A running broker; make one with `start`, within a running loop.

    Attributes:
        address: Host and port that clients are told.
        addresses: The same of each listener, by its name.
    """

    def __init__(
        self,
        node: Node,
        listener: Listener,
        upkeep: asyncio.Task[None],
        compactor: Compactor,
        stop_parts: Callable[[], None],
    ) -> None:
        self.addresses = {each.listener: (each.host, each.port) for each in node.me.endpoints}
        self.address = next(iter(self.addresses.values()))
        self._node = node
        self._listener = listener
        self._upkeep = upkeep
        self._compactor = compactor
        self._stop_parts = stop_parts

    @classmethod
    async def start(
        cls, options: BrokerOptions, coordinator: Coordinator, clock: Clock | None = None
    ) -> "Broker":
        """Binds the port, recovers the logs, registers, and begins to answer.

        The port is bound first, so that a port in use is told before anything was touched; connections wait
        in its backlog until the broker is ready.

        Args:
            options: Where and how.
            coordinator: Shared state, not started yet; it is stopped with the broker.
            clock: Time; the machine's if not given.

        Raises:
            ServerError: The port is in use, shared state cannot be reached or refuses.
            LogDirError: The log directory cannot be used.
        """
        clock = clock or SystemClock()
        doors = _bind_all(options)
        helpers = ThreadPoolExecutor(max_workers=4, thread_name_prefix="helper")
        starting = _Starting(options, coordinator, clock, helpers)
        try:
            node = await starting.node(tuple(_endpoint(door) for door in doors if door.spec.is_advertised))
            doors = [starting.with_sasl(node, door) for door in doors]
            limits = ConnectionLimits(options.settings, clock)
            listener = Listener(doors, node.core, options.settings, node.security.quotas, limits)
            return await starting.serve(node, listener)
        except BaseException:
            for door in doors:
                door.sock.close()
            await starting.undo()
            raise

    async def stop(self) -> None:
        """Takes no more requests, flushes and closes the logs, and signs off."""
        node = self._node
        self._upkeep.cancel()
        await asyncio.gather(self._upkeep, return_exceptions=True)
        await self._compactor.stop()
        self._listener.stop_accepting()
        node.core.end_of_tick()
        self._listener.close()
        await asyncio.sleep(
            0
        )  # handlers of what was read in this turn begin; they could not be cancelled before
        self._stop_parts()
        await node.state.stop()
        await node.security.stop()
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(node.helpers, node.coordinator.deregister_broker)
        except CoordinationError as error:
            _LOG.warning("this broker could not take its registration back: %s", shown(error, MESSAGE_CHARS))
        # Logs belong to this thread, and nothing else is left to be done here.
        node.logs.close()
        await loop.run_in_executor(node.helpers, node.coordinator.stop)
        node.helpers.shutdown()


class _Starting:
    """The steps of a start, and how to take them back."""

    def __init__(
        self, options: BrokerOptions, coordinator: Coordinator, clock: Clock, helpers: ThreadPoolExecutor
    ) -> None:
        self._options = options
        self._coordinator = coordinator
        self._clock = clock
        self._helpers = helpers
        self._loop = asyncio.get_running_loop()
        self._adapter = _LoopAdapter(self._loop)
        self._manager: LogManager | None = None
        self._state: StateKeeper | None = None
        self._live = LiveSettings(options.settings)
        self._security: SecurityState | None = None
        self._view: ClusterView | None = None
        self._fetches: FetchHandler | None = None

    async def node(self, endpoints: tuple[Endpoint, ...]) -> Node:
        """Everything but the listener."""
        options, settings = self._options, self._options.settings
        connected = self._loop.run_in_executor(
            self._helpers, self._coordinator.start, settings.zookeeper_connection_timeout_ms / 1000
        )
        # Recovery needs no shared state: both are waited for at once.
        try:
            manager = await self._recover()
        except BaseException:
            await asyncio.wait(
                {connected}
            )  # a client that is stopped while it connects ends in an error of its own
            raise
        try:
            await connected
            cluster_id = await self._ask(self._coordinator.cluster_id)
        except CoordinationError as error:
            raise CoordinatorError(str(error)) from error
        manager.claim(broker_id=options.broker_id, cluster_id=cluster_id)
        view = self._view = ClusterView(options.broker_id, cluster_id)
        me = BrokerInfo(
            broker_id=options.broker_id,
            endpoints=endpoints,
            rack=settings.broker_rack,
            identity=str(options.data_dir.resolve()),
        )
        core = Core(self._adapter)
        self._fetches = FetchHandler(
            core,
            manager,
            view,
            self._adapter,
            FetchSessions(settings.max_incremental_fetch_session_cache_slots),
            self._clock.now_ms,
        )
        state = self._state = StateKeeper(
            self._coordinator, view, manager, self._ask, on_log_gone=self._fetches.wake, live=self._live
        )
        security = self._security = SecurityState(self._coordinator, settings, self._clock, self._ask)
        try:
            security.start()
            await security.load()
            await self._ask(self._coordinator.register_broker, me)
            await self._ask(self._coordinator.elect_controller, options.broker_id)
            state.start()
            await state.load()
        except CoordinationError as error:
            raise _refused(error) from error
        places = {
            "broker.id": str(options.broker_id),
            "listeners": ",".join(
                str(Endpoint(spec.host, spec.port, spec.name, spec.protocol)) for spec in options.listeners
            ),
            "log.dirs": ",".join(options.log_dirs),
        }
        if any(spec.advertised is not None for spec in options.listeners):
            places["advertised.listeners"] = ",".join(map(str, me.endpoints))
        return Node(
            self._live,
            me,
            self._clock,
            core,
            manager,
            view,
            state,
            self._coordinator,
            self._helpers,
            security,
            {name: value for name, value in places.items() if name not in settings.properties},
        )

    def with_sasl(self, node: Node, door: Door) -> Door:
        """A door with what SASL needs, where its listener has it."""
        if not door.spec.has_sasl:
            return door
        sasl = SaslSettings(node.settings, door.spec.name, node.security, node.clock)
        return Door(door.spec, door.sock, door.tls, sasl)

    async def _recover(self) -> LogManager:
        options = self._options
        settings = options.settings

        def config_for(topic: str) -> LogConfig:
            # Before shared state has been read, every topic has the broker's settings.
            base = self._live.current.log
            return base if self._view is None else topic_config(self._view, base, topic)

        manager = LogManager(
            options.log_dirs,
            config_for=config_for,
            clock=self._clock,
            retention_check_interval_ms=settings.log_retention_check_interval_ms,
            checkpoint_interval_ms=settings.log_flush_offset_checkpoint_interval_ms,
            producer_id_expiration_ms=settings.producer_id_expiration_ms,
            producer_id_check_interval_ms=settings.producer_id_expiration_check_interval_ms,
            cleaner=_cleaner_config(settings),
            schema_ids=_schema_ids(settings),
        )
        started = time.monotonic()
        manager.load()
        self._manager = manager
        _LOG.info("opened %d partitions in %.2f s", sum(1 for _ in manager), time.monotonic() - started)
        return manager

    async def serve(self, node: Node, listener: Listener) -> Broker:
        """Begins to answer."""
        assert self._fetches is not None
        flusher = Flusher(self._loop, self._helpers, on_exposed=self._fetches.wake)
        core = node.core
        core.on_written(lambda log: flusher.written(log, node.clock.now_ms()))
        writes = DurableWrites(core, flusher)
        groups, transactions, topics = register_apis(node, writes)
        try:
            await groups.load()
        except CoordinationError as error:
            groups.stop()
            raise _refused(error) from error
        transactions.start()
        produce = ProduceHandler(core, node.logs, node.cluster, flusher, node.clock, transactions)
        RecordGuards(core, node.logs, node.cluster, node.security, produce, self._fetches)
        meter = Meter(node.security.quotas, self._loop)

        def limit(configs: ClientConfigs) -> None:
            node.security.quotas.replace(configs)
            core.meter = None if node.security.quotas.table.is_empty else meter

        node.security.on_client_configs(limit)
        counts = BrokerCounts(node, writes, partial(topics.create_internal, COUNTS_TOPIC))
        counting = self._loop.create_task(counts.run())
        upkeep = self._loop.create_task(_upkeep(node, flusher, listener))
        compactor = Compactor(node.logs, node.clock)

        def configure(settings: BrokerSettings) -> None:
            node.logs.configure(
                producer_id_expiration_ms=settings.producer_id_expiration_ms,
                cleaner=_cleaner_config(settings),
            )
            compactor.configure(
                threads=settings.log_cleaner_threads if settings.log_cleaner_enable else 0,
                backoff_ms=settings.log_cleaner_backoff_ms,
            )
            listener.configure(settings)

        configure(node.settings)
        node.live.on_change(configure)

        def stop_parts() -> None:
            counting.cancel()
            groups.stop()
            transactions.stop()
            self._adapter.cancel_all()

        listener.start_accepting()
        return Broker(node, listener, upkeep, compactor, stop_parts)

    async def undo(self) -> None:
        """Takes back what was done of a start that failed."""
        if self._state is not None:
            await self._state.stop()
        if self._security is not None:
            await self._security.stop()
        await self._loop.run_in_executor(self._helpers, self._coordinator.stop)
        if self._manager is not None:
            self._manager.close()
        self._helpers.shutdown()

    async def _ask(self, function: Callable[..., Any], *args: Any) -> Any:
        return await self._loop.run_in_executor(self._helpers, function, *args)


async def _upkeep(node: Node, flusher: Flusher, listener: Listener) -> None:
    """Once a second: what is due by time."""
    flush_every_s = node.settings.log_flush_scheduler_interval_ms / 1000
    next_flush_s = 0.0
    while True:
        await asyncio.sleep(min(_UPKEEP_S, flush_every_s))
        started = node.clock.monotonic()
        now_ms = node.clock.now_ms()
        pieces = Pieces()
        try:
            if started >= next_flush_s:
                next_flush_s = started + flush_every_s
                await pieces.run(_start_flushes(node.logs, flusher, now_ms))
            await pieces.run(node.logs.upkeep(now_ms))
        except LogError as error:
            _LOG.error("upkeep of the logs: %s", error)
        except Exception:
            # Retention and flushes must go on, whatever error one turn of them met.
            _LOG.exception("upkeep of the logs failed")
        listener.tick()
        if pieces.longest_s > _BUSY_PIECE_S:
            _LOG.info("upkeep kept the clients waiting for %.2f s", pieces.longest_s)


def _schema_ids(settings: BrokerSettings) -> RegistryIds | None:
    if not settings.confluent_schema_registry_url:
        return None
    return RegistryIds(
        settings.confluent_schema_registry_url,
        user_info=settings.confluent_basic_auth_user_info or "",
        ca_location=settings.confluent_ssl_truststore_location or "",
    )


def _cleaner_config(settings: BrokerSettings) -> CleanerConfig:
    return CleanerConfig(
        int(settings.log_cleaner_dedupe_buffer_size * settings.log_cleaner_io_buffer_load_factor),
        settings.log_cleaner_io_max_bytes_per_second,
    )


def _bind_all(options: BrokerOptions) -> list[Door]:
    """Binds the port of each listener, or of none."""
    doors: list[Door] = []
    settings = options.settings
    try:
        for spec in options.listeners:
            tls = TlsSettings(settings, spec.name) if spec.has_tls else None
            for sock in bind(spec.host, spec.port, settings.socket_listen_backlog_size):
                doors.append(Door(spec, sock, tls))
    except BaseException:
        for door in doors:
            door.sock.close()
        raise
    return doors


def _endpoint(door: Door) -> Endpoint:
    """What clients are told of a listener."""
    spec = door.spec
    port: int = door.sock.getsockname()[1]
    host, port = spec.advertised or (_reachable(spec.host), port)
    return Endpoint(host, port, spec.name, spec.protocol)


def _reachable(host: str) -> str:
    """A name for clients, where the broker listens on all addresses."""
    return socket.gethostname() if host in (ALL_ADDRESSES, "::") else host


def _start_flushes(logs: LogManager, flusher: Flusher, now_ms: int) -> Slices[None]:
    for log in list(logs):
        yield
        if log.offline is None:
            flusher.written(log, now_ms)


def _refused(error: CoordinationError) -> ServerError:
    if isinstance(error, BrokerIdInUse):
        return CoordinatorError(f"{error}: give this broker another --id, or stop that one")
    return CoordinatorError(str(error))
