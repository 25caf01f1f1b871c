"""A consumer of the decentralised kind: its group lives in ZooKeeper, and no broker takes part."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, Self
from uuid import uuid4

from headwater_broker.consumer.assignment import STRATEGIES, StrategyName, TopicPartition
from headwater_broker.consumer.fetcher import Fetcher, FetchError, KafkaFetcher
from headwater_broker.consumer.ownership import Ownership
from headwater_broker.consumer.progress import Progress
from headwater_broker.consumer.record import Record
from headwater_broker.coordination import CoordinationError, Coordinator, ZooKeeperCoordinator
from headwater_broker.shown import MESSAGE_CHARS, shown

_log = logging.getLogger(__name__)

_SLICE_S = 0.1  # how long a fetch may keep a rebalance waiting
_FIRST_RETRY_S = 0.05
_LAST_RETRY_S = 1.0
_ITERATOR_POLL_S = 1.0

Listener = Callable[[frozenset[TopicPartition]], None]


class NotAssignedError(ValueError):
    """A partition that this member does not read; the message names those that it does."""


class ZooKeeperConsumer:
    """Reads topics as one member of a group, as a never-ending iterator.

    Each record is handed out at least once: what was not committed is handed out again, to whoever owns the
    partition then. It stops handing out records before its session with ZooKeeper can have ended.

    Example:
        ```python
        with ZooKeeperConsumer("127.0.0.1:2181", "audit", ["clicks"]) as consumer:
            for record in consumer:
                store(record)
                consumer.commit()
        ```
    """

    def __init__(
        self,
        zookeeper: str,
        group: str,
        topics: Collection[str],
        *,
        strategy: StrategyName = "cooperative-sticky",
        auto_offset_reset: Literal["earliest", "latest"] = "earliest",
        auto_commit_interval_ms: int | None = None,
        session_timeout_ms: int = 6000,
        client_settings: Mapping[str, Any] | None = None,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        coordinator: Coordinator | None = None,
        fetcher: Callable[[str], Fetcher] | None = None,
    ) -> None:
        """Joins the group.

        Args:
            zookeeper: `host:port[,host:port...][/chroot]`.
            group: the group's name.
            topics: what to read; a topic may appear later.
            strategy: how the members share the partitions, see `assignment.STRATEGIES`; where members wish
                different ones, the one that most of them wish.
            auto_offset_reset: where to begin in a partition without a committed offset.
            auto_commit_interval_ms: commits what was handed out this often, from `poll`, and before a
                partition is given up; 0: at each `poll`. None: only `commit` does.
            session_timeout_ms: how soon the others take over after a crash.
            client_settings: more settings of librdkafka, such as those of security.
            on_assigned: called, from the iterating thread, with partitions that are new.
            on_revoked: called with partitions before they are given up: the time to commit. (Not called for
                those that were lost with the session: they may be somebody else's already.)
            coordinator: for tests, in place of ZooKeeper; it is started and stopped by the consumer.
            fetcher: for tests, makes the Kafka client, given the brokers' addresses.

        Raises:
            CoordinatorUnavailable: ZooKeeper does not answer.
            ValueError: no topic, or an unknown strategy.
        """
        if isinstance(topics, str) or not topics:
            raise ValueError(f"a consumer needs at least one topic to read, in a list; it got {topics!r}")
        if strategy not in STRATEGIES:
            raise ValueError(f"unknown strategy {strategy!r}: give one of {', '.join(STRATEGIES)}")
        settings = client_settings or {}
        self._group = group
        self.member = f"{group}_{socket.gethostname()}-{time.time_ns() // 1_000_000}-{uuid4().hex[:8]}"
        self._coordinator = coordinator or ZooKeeperCoordinator(
            zookeeper, session_timeout_ms=session_timeout_ms
        )
        self._make_fetcher = fetcher or (
            lambda brokers: KafkaFetcher(brokers, group, auto_offset_reset, settings)
        )
        self._fetcher: Fetcher | None = None
        self._begins_at_end = auto_offset_reset == "latest"
        self._auto_commit_s = None if auto_commit_interval_ms is None else auto_commit_interval_ms / 1000
        self._next_commit_at = float("-inf")
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._progress = Progress(self._coordinator, group)
        self._pending: Record | None = None
        self._addresses: frozenset[str] = frozenset()
        self._retry_at = float("-inf")
        self._retry_s = _FIRST_RETRY_S
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._has_left = False
        self._coordinator.start()
        self._ownership = Ownership(self._coordinator, group, self.member, topics, strategy, time.monotonic)
        try:
            self._ownership.join()
        except BaseException:
            self._coordinator.stop()
            raise

    # -- reading -----------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Record]:
        return self

    def __next__(self) -> Record:
        while not self._closed.is_set():
            record = self.poll(_ITERATOR_POLL_S)
            if record is not None:
                return record
        raise StopIteration

    def poll(self, timeout_s: float) -> Record | None:
        """The next record, None if there is none in time.

        Raises:
            FetchError: the Kafka client cannot go on.
        """
        deadline = time.monotonic() + timeout_s
        with self._lock:
            while not self._closed.is_set():
                remaining_s = deadline - time.monotonic()
                self._commit_if_due()
                self._settle()
                record = self._next(max(0.0, min(remaining_s, _SLICE_S)))
                if record is not None or remaining_s <= 0:
                    return record
        return None

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read now."""
        return self._ownership.owned

    # -- offsets -----------------------------------------------------------------------------------

    def commit(self, next_offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commits to ZooKeeper how far the group has read.

        Args:
            next_offsets: the next offset to read by partition; by default everything that was handed out.
                What this member does not own any more is left out.

        Raises:
            CoordinatorUnavailable: ZooKeeper does not answer; commit again, with the next record.
        """
        with self._lock:
            self._progress.commit(next_offsets)

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """What the group has committed of partitions, those without a commit left out.

        Raises:
            CoordinatorUnavailable: ZooKeeper does not answer.
        """
        offsets = self._coordinator.fetch_offsets(self._group, partitions)
        return {tp: each.offset for tp, each in offsets.items()}

    def position(self, partition: TopicPartition) -> int | None:
        """The next offset of a partition; None before its first record where nothing was committed.

        Raises:
            NotAssignedError: this member does not read it.
        """
        with self._lock:
            self._require([partition])
            return self._progress[partition]

    def seek(self, next_offsets: Mapping[TopicPartition, int]) -> None:
        """Goes on from other offsets, which nobody else learns of until they are committed.

        Raises:
            NotAssignedError: this member does not read one of the partitions; nothing was moved.
            ValueError: an offset is negative; nothing was moved.
        """
        with self._lock:
            self._require(next_offsets)
            for tp, offset in next_offsets.items():
                if offset < 0:
                    raise ValueError(f"{tp[0]}-{tp[1]} has no offset {offset}; the first one is 0 or later")
            for tp, offset in next_offsets.items():
                self._progress.move(tp, offset)
            if self._pending is not None and _tp(self._pending) in next_offsets:
                self._pending = None
            self._fetch_from_positions()

    def rewind(
        self, partitions: Collection[TopicPartition] | None = None, *, to_timestamp_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Reads partitions again from their beginning, or from a time.

        Args:
            partitions: which; by default all that this member reads.
            to_timestamp_ms: begins with the first record of that time or later, at the end if there is none.

        Returns:
            Where it goes on.

        Raises:
            NotAssignedError: this member does not read one of the partitions; nothing was moved.
            FetchError: no broker tells the offsets; nothing was moved.
        """
        with self._lock:
            chosen = list(self._ownership.owned if partitions is None else partitions)
            self._require(chosen)
            fetcher = self._fetcher
            if chosen and fetcher is None:
                raise FetchError("no broker is known yet; poll first, and rewind once one is up")
            targets: dict[TopicPartition, int] = {}
            if fetcher is not None and to_timestamp_ms is None:
                targets = {tp: fetcher.bounds(tp)[0] for tp in chosen}
            elif fetcher is not None and to_timestamp_ms is not None:
                offsets = fetcher.offsets_at(dict.fromkeys(chosen, to_timestamp_ms))
                for tp, offset in offsets.items():
                    targets[tp] = fetcher.bounds(tp)[1] if offset is None else offset
            self.seek(targets)
            return targets

    def _require(self, partitions: Collection[TopicPartition]) -> None:
        if foreign := sorted(set(partitions) - self._ownership.owned):
            mine = ", ".join(f"{topic}-{number}" for topic, number in sorted(self._ownership.owned))
            raise NotAssignedError(
                f"{self.member} does not read {foreign[0][0]}-{foreign[0][1]}; it reads {mine or 'nothing'} now"
            )

    # -- life --------------------------------------------------------------------------------------

    def close(self) -> None:
        """Leaves the group; iteration ends. May be called from another thread. Idempotent."""
        self._closed.set()
        with self._lock:
            if self._has_left:
                return
            self._has_left = True
            try:
                if self._ownership.owned:
                    self._revoked(self._ownership.owned, lost=not self._ownership.is_safe())
            except CoordinationError as error:
                _log.warning(
                    "%s leaves without a last commit: %s", shown(self.member), shown(error, MESSAGE_CHARS)
                )
            finally:
                if self._fetcher is not None:
                    self._fetcher.close()
                with suppress(CoordinationError):  # the session's end takes the registration back as well
                    self._ownership.leave()
                self._coordinator.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- the group ---------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Rebalances if something has changed, and again every so often until the member has its share."""
        if not self._ownership.needs_settling() or time.monotonic() < self._retry_at:
            return
        try:
            self._ownership.settle(self._revoked, self._assigned)
            self._follow_brokers()
        except CoordinationError as error:
            _log.warning("%s does not rebalance yet: %s", shown(self.member), shown(error, MESSAGE_CHARS))
        if self._ownership.needs_settling():
            self._retry_at = time.monotonic() + self._retry_s
            self._retry_s = min(2 * self._retry_s, _LAST_RETRY_S)
        else:
            self._retry_s = _FIRST_RETRY_S

    def _commit_if_due(self) -> None:
        if self._auto_commit_s is None or time.monotonic() < self._next_commit_at:
            return
        self._next_commit_at = time.monotonic() + self._auto_commit_s
        try:
            self._progress.commit()
        except CoordinationError as error:
            _log.warning("%s does not commit yet: %s", shown(self.member), shown(error, MESSAGE_CHARS))

    def _revoked(self, partitions: frozenset[TopicPartition], lost: bool) -> None:
        if not lost:
            if self._on_revoked is not None:
                self._on_revoked(partitions)
            if self._auto_commit_s is not None:
                self._progress.commit({tp: self._progress[tp] for tp in partitions})
        self._progress.end(partitions)
        self._fetch_from_positions()

    def _assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self._progress.begin(partitions)
        self._fetch_from_positions()
        if self._on_assigned is not None:
            self._on_assigned(partitions)

    # -- records -----------------------------------------------------------------------------------

    def _next(self, timeout_s: float) -> Record | None:
        record, self._pending = self._pending, None
        if record is None:
            if self._fetcher is None or not self._progress:
                self._closed.wait(timeout_s)
                return None
            record = self._fetcher.poll(timeout_s)
        if record is None:
            return None
        tp = _tp(record)
        if tp not in self._ownership.owned or record.offset < (self._progress[tp] or 0):
            return None  # fetched before the partition was given up
        if not self._ownership.is_safe():
            self._pending = record
            self._closed.wait(min(timeout_s, _SLICE_S))
            return None
        self._progress.move(tp, record.offset + 1)
        return record

    def _fetch_from_positions(self) -> None:
        if self._fetcher is None:
            return
        if self._begins_at_end:
            # Said once: every later change of the assignment would move "the end" on, past unread records.
            for tp in [tp for tp, offset in self._progress.items() if offset is None]:
                with suppress(FetchError):
                    self._progress.move(tp, self._fetcher.bounds(tp)[1])
        self._fetcher.assign(self._progress)

    def _follow_brokers(self) -> None:
        """Connects to the brokers, and again when one has an address that the client does not know."""
        addresses = frozenset(
            f"{endpoint.host}:{endpoint.port}"
            for broker in self._coordinator.brokers().values()
            for endpoint in broker.endpoints[:1]
        )
        if not self._progress or addresses <= self._addresses:
            return  # (a report of a new broker leads here again)
        if self._fetcher is not None:
            self._fetcher.close()
        self._fetcher = self._make_fetcher(",".join(sorted(addresses)))
        self._addresses = addresses
        self._fetch_from_positions()


def _tp(record: Record) -> TopicPartition:
    return record.topic, record.partition
