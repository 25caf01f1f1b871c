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

from headwater_broker.consumer.assignment import TopicPartition
from headwater_broker.consumer.fetcher import Fetcher, KafkaFetcher
from headwater_broker.consumer.ownership import Ownership
from headwater_broker.consumer.record import Record
from headwater_broker.coordination import Committed, CoordinationError, Coordinator, ZooKeeperCoordinator

_log = logging.getLogger(__name__)

_SLICE_S = 0.1  # how long a fetch may keep a rebalance waiting
_FIRST_RETRY_S = 0.1
_LAST_RETRY_S = 2.0
_ITERATOR_POLL_S = 1.0

Listener = Callable[[frozenset[TopicPartition]], None]


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
        auto_offset_reset: Literal["earliest", "latest"] = "earliest",
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
            auto_offset_reset: where to begin in a partition without a committed offset.
            session_timeout_ms: how soon the others take over after a crash.
            client_settings: more settings of librdkafka, such as those of security.
            on_assigned: called, from the iterating thread, with partitions that are new.
            on_revoked: called with partitions before they are given up: the time to commit. (Not called for
                those that were lost with the session: they may be somebody else's already.)
            coordinator: for tests, in place of ZooKeeper; it is started and stopped by the consumer.
            fetcher: for tests, makes the Kafka client, given the brokers' addresses.

        Raises:
            CoordinatorUnavailable: ZooKeeper does not answer.
        """
        if not topics:
            raise ValueError("a consumer needs at least one topic to read")
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
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._positions: dict[TopicPartition, int | None] = {}
        self._held_back: Record | None = None
        self._brokers = ""
        self._retry_at = float("-inf")
        self._retry_s = _FIRST_RETRY_S
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._left = False
        self._coordinator.start()
        self._ownership = Ownership(self._coordinator, group, self.member, topics, time.monotonic)
        try:
            self._ownership.join()
        except BaseException:
            self._coordinator.stop()
            raise

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
                self._settle()
                record = self._next(max(0.0, min(remaining_s, _SLICE_S)))
                if record is not None or remaining_s <= 0:
                    return record
        return None

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read now."""
        return self._ownership.owned

    def commit(self, next_offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commits to ZooKeeper how far the group has read.

        Args:
            next_offsets: the next offset to read by partition; by default everything that was handed out.
                What this member does not own any more is left out.

        Raises:
            CoordinatorUnavailable: ZooKeeper does not answer; commit again, with the next record.
        """
        with self._lock:
            chosen = self._positions if next_offsets is None else next_offsets
            now_ms = time.time_ns() // 1_000_000
            self._coordinator.commit_offsets(
                self._group,
                {
                    tp: Committed(offset, timestamp_ms=now_ms)
                    for tp, offset in chosen.items()
                    if offset is not None and tp in self._ownership.owned
                },
            )

    def close(self) -> None:
        """Leaves the group; iteration ends. May be called from another thread. Idempotent."""
        self._closed.set()
        with self._lock:
            if self._left:
                return
            self._left = True
            try:
                if self._ownership.owned:
                    self._revoked(self._ownership.owned, lost=False)
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

    def _settle(self) -> None:
        """Rebalances if something has changed, now and then until it comes out."""
        if not self._ownership.needs_settling() or time.monotonic() < self._retry_at:
            return
        try:
            self._ownership.settle(self._revoked, self._assigned)
            self._follow_brokers()
        except CoordinationError as error:
            _log.warning("%s does not rebalance yet: %s", self.member, error)
        if self._ownership.needs_settling():
            self._retry_at = time.monotonic() + self._retry_s
            self._retry_s = min(2 * self._retry_s, _LAST_RETRY_S)
        else:
            self._retry_s = _FIRST_RETRY_S

    def _next(self, timeout_s: float) -> Record | None:
        record, self._held_back = self._held_back, None
        if record is None:
            if self._fetcher is None or not self._positions:
                self._closed.wait(timeout_s)
                return None
            record = self._fetcher.poll(timeout_s)
        if record is None:
            return None
        tp = (record.topic, record.partition)
        if tp not in self._ownership.owned or record.offset < (self._positions[tp] or 0):
            return None  # fetched before the partition was given up
        if not self._ownership.is_safe():
            self._held_back = record
            self._closed.wait(min(timeout_s, _SLICE_S))
            return None
        self._positions[tp] = record.offset + 1
        return record

    def _revoked(self, partitions: frozenset[TopicPartition], lost: bool) -> None:
        if self._on_revoked is not None and not lost:
            self._on_revoked(partitions)
        for tp in partitions:
            self._positions.pop(tp, None)
        if self._fetcher is not None:
            self._fetcher.assign(self._positions)

    def _assigned(self, partitions: frozenset[TopicPartition]) -> None:
        committed = self._coordinator.fetch_offsets(self._group, partitions)
        for tp in partitions:
            self._positions[tp] = committed[tp].offset if tp in committed else None
        if self._fetcher is not None:
            self._fetcher.assign(self._positions)
        if self._on_assigned is not None:
            self._on_assigned(partitions)

    def _follow_brokers(self) -> None:
        """Connects to the brokers, again if their addresses are other ones."""
        brokers = ",".join(
            f"{endpoint.host}:{endpoint.port}"
            for broker in self._coordinator.brokers().values()
            for endpoint in broker.endpoints[:1]
        )
        if not self._positions or not brokers or brokers == self._brokers:
            return  # (a report of a new broker leads here again)
        if self._fetcher is not None:
            self._fetcher.close()
        self._fetcher = self._make_fetcher(brokers)
        self._fetcher.assign(self._positions)
        self._brokers = brokers
