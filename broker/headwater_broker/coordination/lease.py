"""What a running job holds: the ownership of its input partitions, and its progress for every lag tool to
see.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from types import TracebackType
from typing import Protocol, Self

from headwater_broker.coordination.errors import AlreadyOwned, LeaseLost
from headwater_broker.coordination.model import Committed, TopicPartition
from headwater_broker.coordination.zookeeper.brokers import wall_clock_ms
from headwater_broker.coordination.zookeeper.members import MemberStore
from headwater_broker.coordination.zookeeper.offsets import OffsetStore
from headwater_broker.coordination.zookeeper.session import DEFAULT_SESSION_TIMEOUT_MS, ZooKeeperSession

_CONNECT_TIMEOUT_S = 15.0


class Lease(Protocol):
    """The interface that `JobLease` and its in-memory twin share."""

    def claim(self, partitions: Collection[TopicPartition]) -> None:
        """Owns the partitions, all of them or none; raises `AlreadyOwned`, which names the holder."""

    def publish(self, next_offsets: Mapping[TopicPartition, int]) -> None:
        """Publishes how far the job has read; raises `LeaseLost` once it is not held any more."""

    def is_held(self) -> bool:
        """Whether nobody else can have begun; False as soon as the session may be over."""

    def release(self) -> None:
        """Gives everything back. Idempotent."""


class JobLease:
    """Ephemeral owners under `/consumers/<job>/owners`, offsets under `/consumers/<job>/offsets`.

    A lease that was lost stays lost: stop, and claim anew with another lease. A job that crashed takes its
    own partitions over at once on the same machine, and elsewhere when its session has expired.

    Example:
        ```python
        with JobLease("127.0.0.1:2181", "silver.departures", member="/srv/headwater") as lease:
            lease.claim([("departures", 0), ("departures", 1)])
            while lease.is_held():
                ...  # one batch
                lease.publish({("departures", 0): 1000, ("departures", 1): 980})
        ```
    """

    def __init__(
        self, hosts: str, job: str, member: str, *, session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS
    ) -> None:
        """Prepares a lease; `claim` connects.

        Args:
            hosts: ZooKeeper's `host:port[,host:port...][/chroot]`.
            job: the job's name, which is also the name of the group that lag tools see.
            member: who holds the lease, the same after a restart (such as the job's home directory), and what
                a second driver is told.
            session_timeout_ms: how soon after a crash another member may take over.
        """
        self._job = job
        self._member = member
        # CLOCK_BOOTTIME goes on while the machine sleeps, as the server's clock does.
        self._session = ZooKeeperSession(
            hosts,
            session_timeout_ms=session_timeout_ms,
            clock=lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
        )
        self._members = MemberStore(self._session, wall_clock_ms)
        self._offsets = OffsetStore(self._session)
        self._started = False
        self._claimed_session_id: int | None = None

    def claim(self, partitions: Collection[TopicPartition]) -> None:
        """Owns the partitions, all of them or none. May be called again for more.

        Raises:
            AlreadyOwned: another driver runs the job; the message and `holder` name it.
            CoordinatorUnavailable: ZooKeeper does not answer.
            LeaseLost: the session ended since the first claim.
        """
        if not self._started:
            self._session.start(_CONNECT_TIMEOUT_S)
            self._started = True
        session_id = self._session.session_id
        if self._claimed_session_id is None:
            streams: dict[str, int] = {}
            for topic, _ in partitions:
                streams[topic] = streams.get(topic, 0) + 1
            self._members.register_member(self._job, self._member, streams)
        try:
            self._members.claim_partitions(self._job, self._member, partitions)
        except AlreadyOwned:
            if self._claimed_session_id is None:  # nothing is ours: do not stand in the way of who holds it
                self._members.deregister_member(self._job, self._member)
            raise
        if self._claimed_session_id not in {None, session_id} or self._session.session_id != session_id:
            raise LeaseLost(f"job {self._job!r} lost its session while it claimed its partitions")
        self._claimed_session_id = session_id

    def publish(self, next_offsets: Mapping[TopicPartition, int]) -> None:
        """Publishes the next offset to read of each partition, as the offsets of the group named as the job.

        Raises:
            LeaseLost: the lease is not held any more; nothing was published.
            CoordinatorUnavailable: ZooKeeper did not answer; publish again with the next batch.
        """
        if not self.is_held():
            raise LeaseLost(
                f"job {self._job!r} lost its session with ZooKeeper: stop it, another driver may have begun"
            )
        now_ms = wall_clock_ms()
        self._offsets.commit_offsets(
            self._job, {tp: Committed(offset, timestamp_ms=now_ms) for tp, offset in next_offsets.items()}
        )

    def is_held(self) -> bool:
        """Whether nobody else can have begun.

        It turns False, by the clock alone, when two thirds of the session timeout have passed since the last
        answer: before the server can have expired the session.
        """
        return self._claimed_session_id is not None and self._session.is_alive(self._claimed_session_id)

    def release(self) -> None:
        """Gives everything back by ending the session. Idempotent."""
        self._claimed_session_id = None
        self._session.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
