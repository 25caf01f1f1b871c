"""Which log is compacted next, and up to where each was: the `cleaner-offset-checkpoint` files."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from headwater_broker.log.checkpoints import CLEANED_OFFSETS, TopicPartition
from headwater_broker.log.cleaner.cleaning import CleanerConfig, Cleaning
from headwater_broker.log.cleaner.plan import Dirt
from headwater_broker.log.errors import PartitionOfflineError
from headwater_broker.log.health import is_passing
from headwater_broker.log.index import DamagedIndexError
from headwater_broker.log.logdir import LogDirectory
from headwater_broker.log.partition import PartitionLog

_LOGGER = logging.getLogger(__name__)

_REST_MS = 60_000
"""How long a log is left alone after the disk had no room for its compaction."""


class CleaningSchedule:
    """What was compacted so far; belongs to the logs' thread.

    Attributes:
        config: How much one compaction may take.
    """

    def __init__(self, config: CleanerConfig) -> None:
        self.config = config
        self._offsets: dict[TopicPartition, int] = {}
        self._failed: set[PartitionLog] = set()
        self._rests: dict[PartitionLog, int] = {}

    def load(self, directory: LogDirectory) -> Mapping[TopicPartition, int]:
        """Reads a directory's checkpoint, and returns it."""
        offsets = directory.read_offsets(CLEANED_OFFSETS)
        self._offsets.update(offsets)
        return offsets

    def forget(self, topic: str, partition: int) -> None:
        """The partition was deleted."""
        self._offsets.pop((topic, partition), None)
        self._failed = {log for log in self._failed if (log.topic, log.partition) != (topic, partition)}
        self._rests = {
            log: until_ms
            for log, until_ms in self._rests.items()
            if (log.topic, log.partition) != (topic, partition)
        }

    def next(
        self, logs: Iterable[PartitionLog], directories: Mapping[str, LogDirectory], now_ms: int
    ) -> Cleaning | None:
        """Begins to compact the log that has most to gain, if one is dirty enough.

        Args:
            logs: All partitions.
            directories: Log directories by path.
            now_ms: The wall clock.
        """
        best: tuple[PartitionLog, Dirt] | None = None
        for log in logs:
            if not log.config.compacts or log in self._failed or self._rests.get(log, 0) > now_ms:
                continue
            dirt = log.dirt(now_ms, self._offsets.get((log.topic, log.partition)))
            if (
                dirt is not None
                and dirt.is_worth_while(log.config)
                and (best is None or dirt.ratio > best[1].ratio)
            ):
                best = log, dirt
        if best is None:
            return None
        log, dirt = best
        directory = directories[log.directory.rpartition("/")[0]]
        if (log.topic, log.partition) not in self._offsets:
            # A start must know that offsets may be missing, before the first are.
            self._note(directory, log, dirt.first_dirty_offset)

        def completed(cleaning: Cleaning) -> None:
            if cleaning.is_done:
                self._note(directory, log, cleaning.end_offset)
            elif isinstance(cleaning.error, OSError) and is_passing(cleaning.error):
                self._rests[log] = now_ms + _REST_MS
            elif cleaning.error is not None:
                self._failed.add(log)  # until the broker is restarted; Kafka calls it uncleanable

        try:
            return log.start_cleaning(dirt, self.config, now_ms, completed)
        except DamagedIndexError as error:
            _LOGGER.error("%s-%d cannot be compacted: %s", log.topic, log.partition, error)
            self._failed.add(log)
            return None
        except PartitionOfflineError as error:
            if log.offline is None:
                _LOGGER.warning("%s", error)
                self._rests[log] = now_ms + _REST_MS
            return None  # otherwise the log said so

    def _note(self, directory: LogDirectory, log: PartitionLog, offset: int) -> None:
        self._offsets[log.topic, log.partition] = offset
        self.save(directory)

    def save(self, directory: LogDirectory) -> None:
        """Writes a directory's checkpoint."""
        mine = {key: offset for key, offset in self._offsets.items() if directory.holds(*key)}
        try:
            directory.write_offsets(CLEANED_OFFSETS, mine)
        except OSError as error:
            _LOGGER.error("cannot write %s in %s: %s", CLEANED_OFFSETS, directory.path, error.strerror)
