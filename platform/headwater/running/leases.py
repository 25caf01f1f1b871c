"""The leases of running jobs: ZooKeeper's where a stack has it, and always a lock in the home."""

import fcntl
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from headwater.running.group_offsets import GroupOffsetsOfClusters
from headwater_broker.coordination import AlreadyOwned, CoordinationError, CoordinatorUnavailable, JobLease
from headwater_streams.base.errors import LeaseLostError, OwnershipError, UnavailableError
from headwater_streams.base.topics import cluster_of
from headwater_streams.runtime.ownership import Lease, LeaseFactory
from headwater_streams.sources.kafka_cluster import KafkaCluster
from headwater_streams.storage.home import Home

_log = logging.getLogger(__name__)
ClusterNamed = Callable[[str], KafkaCluster]
"""Gives a cluster by its name; the one that is meant where none is named, by an empty one."""


class HomeLease:
    """One driver for a job in a home, by a lock on a file that the kernel releases when the process ends."""

    def __init__(self, home: Path, job: str, clusters: ClusterNamed | None = None) -> None:
        """Args: the home, the job's name, and the clusters that show its progress as a group's; None: none does."""
        self._path = _owner(home, job)
        self._job = job
        self._file: IO[str] | None = None
        self._group_offsets = None if clusters is None else GroupOffsetsOfClusters(clusters, job)

    def claim(self, partitions: Sequence[tuple[str, int]]) -> None:
        """Takes the lock; the partitions do not matter.

        Raises:
            OwnershipError: Another process has it.
        """
        if self._file is not None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = self._path.open("a+", encoding="utf-8", errors="replace")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            file.close()
            raise OwnershipError(
                f"job {self._job!r} already runs in this home, as process {holder}; stop that one first"
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        self._file = file

    def publish(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Shows the job's progress as a group's offsets."""
        if self._group_offsets is not None:
            self._group_offsets.commit(offsets)

    def is_held(self) -> bool:
        """Whether the lock is ours."""
        return self._file is not None

    def release(self) -> None:
        """Gives the lock back."""
        if self._file is not None:
            self._file.close()
            self._file = None


class ZooKeeperLease:
    """Ephemeral owners and published offsets in ZooKeeper, beside the home's own lock."""

    def __init__(self, zookeeper: str, home: Path, job: str, clusters: ClusterNamed | None = None) -> None:
        """Args: ZooKeeper's hosts, the home, the job's name, the clusters; ZooKeeper shows progress in the default."""
        self._home = HomeLease(home, job, clusters)
        self._lease = JobLease(zookeeper, job, str(home.resolve()))

    def claim(self, partitions: Sequence[tuple[str, int]]) -> None:
        """Claims the partitions.

        Raises:
            OwnershipError: Another driver holds them, or the session was lost.
            UnavailableError: ZooKeeper does not answer.
        """
        self._home.claim(partitions)
        try:
            self._lease.claim(partitions)
        except AlreadyOwned as error:
            self._home.release()
            raise OwnershipError(f"{error}; stop that driver first") from error
        except CoordinatorUnavailable as error:
            raise UnavailableError(str(error)) from error
        except CoordinationError as error:
            raise LeaseLostError(str(error)) from error

    def publish(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Shows the job's progress; while ZooKeeper is away it is shown with a later batch."""
        here = {place: offset for place, offset in offsets.items() if not cluster_of(place[0])}
        self._home.publish({place: offset for place, offset in offsets.items() if place not in here})
        try:
            self._lease.publish(here)
        except CoordinatorUnavailable as error:
            _log.warning("progress not published: %s", error)
        except CoordinationError as error:
            raise LeaseLostError(str(error)) from error

    def is_held(self) -> bool:
        """Whether no other driver can have begun."""
        return self._home.is_held() and self._lease.is_held()

    def release(self) -> None:
        """Gives everything back."""
        self._lease.release()
        self._home.release()


def lease_factory(home: Path, zookeeper: str, clusters: ClusterNamed | None = None) -> LeaseFactory:
    """The leases of a home's jobs; without ZooKeeper the home's lock, and the brokers' own groups to show progress."""

    def make(job: str) -> Lease:
        if zookeeper:
            return ZooKeeperLease(zookeeper, home, job, clusters)
        return HomeLease(home, job, clusters)

    return make


def is_running(home: Path, job: str) -> bool:
    """Whether a process holds the job's lock."""
    try:
        with _owner(home, job).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (FileNotFoundError, NotADirectoryError):
        return False
    return False


def _owner(home: Path, job: str) -> Path:
    return Home(home).job(job) / "owner"
