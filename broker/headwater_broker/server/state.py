"""Keeps the view of the cluster current, and this broker's logs in step with it."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping

from headwater_broker.coordination import (
    NO_LEADER,
    Change,
    ChangeKind,
    CoordinationError,
    Coordinator,
    PartitionState,
    TopicState,
)
from headwater_broker.log import (
    InvalidConfigError,
    LogConfig,
    LogDirError,
    LogError,
    LogManager,
    PartitionLog,
    Slices,
)
from headwater_broker.server.cluster import ClusterView, StaleParts
from headwater_broker.server.internal_topics import INTERNAL_TOPICS
from headwater_broker.server.live import LiveSettings
from headwater_broker.server.slices import Pieces
from headwater_broker.server.watcher import RETRY_S, Ask, Watcher
from headwater_broker.shown import MESSAGE_CHARS, shown

_LOG = logging.getLogger(__name__)
_AGAIN_S = 2.0
"""After so long another attempt is made at a log that the disk did not let be made or removed."""
ALL_BROKERS = "<default>"
"""The entity in shared state whose settings hold for every broker."""


class StateKeeper(Watcher):
    """Reads shared state when a watch reports a change, and acts on what it finds.

    Acting means: opening logs of partitions that this broker has a replica of, giving changed settings to
    them, removing those of deleted topics, standing for controller when there is none.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        view: ClusterView,
        manager: LogManager,
        ask: Ask,
        on_log_gone: Callable[[PartitionLog], None],
        live: LiveSettings,
    ) -> None:
        super().__init__(coordinator, ask)
        self._view = view
        self._manager = manager
        self._live = live
        self._seen: set[tuple[str, int, bytes]] = set()
        self._has_opened = False
        self._on_log_gone = on_log_gone
        self._stale = StaleParts()
        self._waiters: list[asyncio.Future[None]] = []
        self._configured: dict[str, dict[str, str]] = {}
        self._again: asyncio.TimerHandle | None = None
        self._reported: dict[tuple[str, int], str] = {}
        self._undeleted: set[str] = set()

    def note(self, change: Change) -> None:
        """Takes a report of a watch."""
        if change.kind in (ChangeKind.DISCONNECTED, ChangeKind.SESSION_LOST):
            _LOG.warning("shared state: %s", change.kind.value)
        elif change.kind in (ChangeKind.CONNECTED, ChangeKind.SESSION_RESTORED):
            _LOG.info("shared state: %s", change.kind.value)
        self._stale.add(change)
        self._wake.set()

    async def load(self) -> None:
        """Reads everything once.

        Raises:
            CoordinationError: Shared state cannot be reached.
        """
        stale = StaleParts()
        stale.add_everything()
        await self._refresh(stale)

    async def settle(self, *changes: Change) -> None:
        """Returns once what these changes say has been read and acted on."""
        for change in changes:
            self._stale.add(change)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(future)
        self._wake.set()
        await future

    async def _act(self) -> None:
        stale, self._stale = self._stale, StaleParts()
        waiters, self._waiters = self._waiters, []
        while True:
            try:
                await self._refresh(stale)
                break
            except CoordinationError as error:
                _LOG.warning("shared state cannot be read, trying again: %s", shown(error, MESSAGE_CHARS))
                await asyncio.sleep(RETRY_S)
            except Exception:
                # A fault in acting on one change must not end the upkeep of all that come after.
                _LOG.exception("acting on a change of shared state failed")
                break
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _refresh(self, stale: StaleParts) -> None:
        async with self._reading:
            snapshot = await self._ask(stale.read, self._coordinator)
            self._view.apply(snapshot)
            configs = self._view.broker_configs
            self._live.take(configs.get(ALL_BROKERS, {}), configs.get(str(self._view.broker_id), {}))
            # What has changed meanwhile is read once all of this is done: nothing else changes the view.
            changed = None if snapshot.topics is not None else snapshot.changed_topics.keys()
            await Pieces().run(self._open_logs(changed))
            self._configure_logs()
            await self._delete_topics()
            if self._view.missing or self._undeleted:
                self._look_again_later()
            if self._view.controller_id == NO_LEADER:
                controller = await self._ask(self._coordinator.elect_controller, self._view.broker_id)
                self._view.controller_id = controller.broker_id

    async def stop(self) -> None:
        """Ends the upkeep."""
        if self._again is not None:
            self._again.cancel()
        await super().stop()

    def _look_again_later(self) -> None:
        if self._again is None:
            self._again = asyncio.get_running_loop().call_later(_AGAIN_S, self._look_again)

    def _look_again(self) -> None:
        self._again = None
        self.note(Change(ChangeKind.DELETIONS))

    def _report(self, name: str, partition: int, what: str, error: LogError) -> None:
        """Logs once what the disk refuses: it is tried again and again."""
        message = f"{what}: {error}"
        if self._reported.get((name, partition)) != message:
            self._reported[name, partition] = message
            _LOG.error("%s-%d %s", shown(name), partition, shown(message, MESSAGE_CHARS))

    # -- acting ----------------------------------------------------------------------------------------

    def _open_logs(self, changed: Collection[str] | None) -> Slices[None]:
        """Opens the logs of some topics, by default of all, and of those that could not be opened before.

        Until a partition's turn has come, clients are told that it is not here.
        """
        topics = self._view.topics
        names = topics.keys() if changed is None else {*changed, *(name for name, _ in self._view.missing)}
        for name in sorted(names & topics.keys(), key=_is_of_clients):
            topic = topics[name]
            for partition, state in topic.partitions.items():
                if self._view.broker_id in state.replicas:
                    self._open_log(name, partition, topic.topic_id.bytes, state.leader_epoch)
                    yield
        if changed is None:
            self._manager.note_topics({*topics, *self._view.deleting})
        self._has_opened = True

    def _open_log(self, name: str, partition: int, topic_id: bytes, leader_epoch: int) -> None:
        try:
            log = self._manager.get(name, partition)
            if log is None or log.topic_id != topic_id:
                log = self._create_log(name, partition, topic_id, log)
            log.become_leader(leader_epoch)
            self._view.missing.discard((name, partition))
            self._reported.pop((name, partition), None)
        except LogError as error:
            self._report(name, partition, "cannot be led", error)
            if self._manager.get(name, partition) is None:
                self._view.missing.add((name, partition))
        self._seen.add((name, partition, topic_id))

    def _create_log(
        self, name: str, partition: int, topic_id: bytes, present: PartitionLog | None
    ) -> PartitionLog:
        # What was there at the start may lie on a disk that fails: it is not to be made anew on another.
        is_new = self._has_opened and (name, partition, topic_id) not in self._seen
        try:
            return self._manager.create(name, partition, topic_id, is_new=is_new)
        except LogDirError:
            if present is None:
                raise
            # A topic that is deleted is so once every broker has removed its logs: the state of topics was lost, or is
            # that of an older copy.
            path = self._manager.set_aside(name, partition)
            self._on_log_gone(present)
            _LOG.error(
                "%s-%d has records of another topic of that name: they are set aside as %s, and it begins anew",
                shown(name),
                partition,
                path,
            )
            return self._manager.create(name, partition, topic_id)

    def _configure_logs(self) -> None:
        configs = {name: dict(values) for name, values in self._view.topic_configs.items()}
        for name in configs.keys() | self._configured.keys():
            if configs.get(name) != self._configured.get(name):
                try:
                    self._manager.reconfigure(name)
                except LogError as error:
                    _LOG.error(
                        "the settings of %s cannot be used: %s", shown(name), shown(error, MESSAGE_CHARS)
                    )
        self._configured = configs

    async def _delete_topics(self) -> None:
        """Removes this broker's logs of topics that are being deleted and says so in their state.

        A replica whose log is gone leaves its partition without leader and ISR; once all of a topic's
        partitions are like that, the controller takes the topic itself away.
        """
        deleting = dict(self._view.deleting)
        gone, undeleted = await Pieces().run(self._remove_logs(deleting))
        self._undeleted = undeleted
        if gone:
            await self._ask(self._coordinator.set_leader_states, gone)
        if self._view.controller_id != self._view.broker_id:
            return
        complete = [
            name
            for name, topic in deleting.items()
            if name not in undeleted
            and all(
                state.leader == NO_LEADER or (name, partition) in gone
                for partition, state in topic.partitions.items()
            )
        ]
        for each in await asyncio.gather(*map(self._complete_deletion, complete), return_exceptions=True):
            if isinstance(each, BaseException):
                raise each

    def _remove_logs(
        self, deleting: Mapping[str, TopicState]
    ) -> Slices[tuple[dict[tuple[str, int], PartitionState], set[str]]]:
        """Returns the states of the partitions that this broker leads no longer, and topics that keep some."""
        gone: dict[tuple[str, int], PartitionState] = {}
        undeleted: set[str] = set()
        for name, topic in deleting.items():
            for partition, state in topic.partitions.items():
                yield
                if self._view.broker_id in state.replicas:
                    try:
                        self._remove_log(name, partition)
                    except LogError as error:
                        self._report(name, partition, "cannot be removed", error)
                        undeleted.add(name)
                        continue
                    self._reported.pop((name, partition), None)
                if state.leader == self._view.broker_id:
                    epoch = state.leader_epoch + 1
                    gone[name, partition] = PartitionState(
                        state.replicas, NO_LEADER, epoch, (), state.controller_epoch, state.version
                    )
        return gone, undeleted

    async def _complete_deletion(self, name: str) -> None:
        await self._ask(self._coordinator.complete_topic_deletion, name)
        self._view.deleting.pop(name, None)
        _LOG.info("topic %s is deleted", shown(name))

    def _remove_log(self, name: str, partition: int) -> None:
        log = self._manager.get(name, partition)
        if log is not None:
            self._manager.delete(name, partition)
            self._on_log_gone(log)


def _is_of_clients(topic: str) -> bool:
    return topic not in INTERNAL_TOPICS


def topic_config(view: ClusterView, base: LogConfig, name: str) -> LogConfig:
    """A topic's settings: its own over the broker's.

    What another program stored and this broker does not know or allow is passed over with a warning, since the
    topic must be served all the same.
    """
    own = view.topic_configs.get(name, {})
    try:
        return LogConfig.parse(own, base)
    except InvalidConfigError:
        config = base
    for key, value in own.items():
        try:
            config = LogConfig.parse({key: value}, config)
        except InvalidConfigError as error:
            _LOG.warning(
                "a stored setting of topic %s is passed over: %s", shown(name), shown(error, MESSAGE_CHARS)
            )
    return config
