"""The in-memory twin of `JobLease`, for tests and for runs without ZooKeeper."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import TracebackType
from typing import Self

from headwater_broker.coordination.errors import AlreadyOwned, LeaseLost
from headwater_broker.coordination.memory import MemoryCoordinator
from headwater_broker.coordination.memory_cluster import MemoryCluster
from headwater_broker.coordination.model import Committed, TopicPartition


class MemoryJobLease:
    """A `Lease` in a `MemoryCluster`; `lose` does what an expired session does."""

    def __init__(self, cluster: MemoryCluster, job: str, member: str) -> None:
        self._coordinator = MemoryCoordinator(cluster=cluster)
        self._job = job
        self._member = member
        self._claimed = False
        self._lost = False

    def claim(self, partitions: Collection[TopicPartition]) -> None:
        """See `JobLease.claim`."""
        if self._lost:
            raise LeaseLost(f"job {self._job!r} lost its lease; claim anew with another one")
        if not self._claimed:
            streams: dict[str, int] = {}
            for topic, _ in partitions:
                streams[topic] = streams.get(topic, 0) + 1
            self._coordinator.register_member(self._job, self._member, streams)
        try:
            self._coordinator.claim_partitions(self._job, self._member, partitions)
        except AlreadyOwned:
            if not self._claimed:
                self._coordinator.deregister_member(self._job, self._member)
            raise
        self._claimed = True

    def publish(self, next_offsets: Mapping[TopicPartition, int]) -> None:
        """See `JobLease.publish`."""
        if not self._claimed:
            raise LeaseLost(
                f"job {self._job!r} does not hold its lease: stop it, another driver may have begun"
            )
        self._coordinator.commit_offsets(
            self._job, {tp: Committed(offset) for tp, offset in next_offsets.items()}
        )

    def is_held(self) -> bool:
        """See `JobLease.is_held`."""
        return self._claimed

    def lose(self) -> None:
        """Ends the session from outside: the partitions are free, and this lease is held no more."""
        self._lost = True
        self.release()

    def release(self) -> None:
        """See `JobLease.release`."""
        self._claimed = False
        self._coordinator.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
