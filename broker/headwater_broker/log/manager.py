"""All partitions of one broker: start, upkeep, stop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from headwater_broker.log.clock import Clock
from headwater_broker.log.config import LogConfig
from headwater_broker.log.flush import Flush
from headwater_broker.log.fs import FileSystem
from headwater_broker.log.partition import PartitionLog


class LogManager:
    """Owns the log directories and every partition in them; belongs to one thread.

    Example:
        >>> manager = LogManager([directory], config_for=lambda topic: LogConfig())
        >>> manager.load()
        >>> log = manager.create("events", 0, topic_id=bytes(16))
        >>> manager.get("events", 0) is log
        True
        >>> manager.close()
    """

    def __init__(
        self,
        directories: Sequence[str],
        *,
        config_for: Callable[[str], LogConfig],
        clock: Clock | None = None,
        fs: FileSystem | None = None,
        retention_check_interval_ms: int = 300_000,
        checkpoint_interval_ms: int = 60_000,
        producer_id_expiration_ms: int = 86_400_000,
    ) -> None:
        """Remembers how; `load` does the work.

        Args:
            directories: Log directories, made where missing; a new partition goes to the one with the fewest.
            config_for: A topic's settings, asked when a partition is opened.
            clock: Time.
            fs: Files.
            retention_check_interval_ms: Kafka's log.retention.check.interval.ms.
            checkpoint_interval_ms: Kafka's log.flush.offset.checkpoint.interval.ms.
            producer_id_expiration_ms: Kafka's producer.id.expiration.ms.
        """

    def load(self) -> None:
        """Locks the directories and opens every partition, recovering after an unclean stop.

        A partition whose data below the recovery point is damaged is loaded offline.

        Raises:
            LogDirLockedError: Another broker runs here.
            LogDirError: A directory cannot be used.
        """
        raise NotImplementedError

    def claim(self, *, broker_id: int, cluster_id: str) -> None:
        """Checks meta.properties of every directory against this broker's identity, or writes it.

        Raises:
            InconsistentIdentityError: The directory is another broker's or another cluster's.
        """
        raise NotImplementedError

    def stored_cluster_id(self) -> str | None:
        """The cluster id in meta.properties, if any directory has one."""
        raise NotImplementedError

    def get(self, topic: str | bytes, partition: int) -> PartitionLog | None:
        """The partition's log; a topic name as it came from the wire needs no decoding."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[PartitionLog]:
        raise NotImplementedError

    def create(self, topic: str, partition: int, topic_id: bytes | None) -> PartitionLog:
        """Makes an empty partition, or returns the one that is there.

        Raises:
            LogDirError: There is one with another topic id.
            StorageError: The disk refused.
        """
        raise NotImplementedError

    def delete(self, topic: str, partition: int) -> bool:
        """Renames the directory to `<topic>-<partition>.<id>-delete`; a later `tick` removes it.

        Reads that are being sent keep their descriptors. Returns whether there was such a partition.
        """
        raise NotImplementedError

    def reconfigure(self, topic: str) -> None:
        """Asks `config_for` again and gives the answer to every partition of the topic."""
        raise NotImplementedError

    def tick(self, now_ms: int) -> None:
        """Upkeep, to be called about once a second.

        Does what is due of: rolling by age, retention, removing what was deleted, checkpoints, idle
        producers.
        """
        raise NotImplementedError

    def flushes_due(self, now_ms: int) -> list[Flush]:
        """Starts what flush.messages, flush.ms and new segments ask for: run and complete each."""
        raise NotImplementedError

    def checkpoint(self) -> None:
        """Writes the checkpoint files now, so that a crash neither brings back what DeleteRecords removed."""
        raise NotImplementedError

    def close(self) -> None:
        """Clean stop: writes, flushes, snapshots, checkpoints, leaves `.kafka_cleanshutdown`, unlocks."""
        raise NotImplementedError
