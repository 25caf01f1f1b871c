"""All partitions of one broker: start, upkeep, stop."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import suppress

from headwater_broker.log import checkpoints, paths
from headwater_broker.log.checkpoints import TopicPartition
from headwater_broker.log.cleaner import CleanerConfig, Cleaning
from headwater_broker.log.cleaner.schedule import CleaningSchedule
from headwater_broker.log.clock import Clock, SystemClock
from headwater_broker.log.config import LogConfig
from headwater_broker.log.errors import LogDirError, LogDirLockedError, PartitionOfflineError, StorageError
from headwater_broker.log.flush import Flush
from headwater_broker.log.fs import FileSystem, OsFileSystem
from headwater_broker.log.health import is_passing
from headwater_broker.log.logdir import LogDirectory
from headwater_broker.log.lost_folders import LostFolder, lost_folders
from headwater_broker.log.missing import MissingRange
from headwater_broker.log.move import Move
from headwater_broker.log.partition import PartitionLog
from headwater_broker.log.record_stream import Slices, finished
from headwater_broker.log.recovery import LogLoader
from headwater_broker.log.schema_ids import SchemaIds

_LOGGER = logging.getLogger(__name__)

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_MAX_NAME_CHARACTERS = 255
_LOOK_EVERY_TICKS = 5
_NAMED = 10
_UNKNOWN_TOPIC = (
    "no topic of that name is known: if ZooKeeper's data, or coordinator.json, was lost or is an older copy, "
    "put it back"
)
_CHOSEN = 10_000
"""How many choices for partitions that do not exist are remembered, the newest: most are never created."""


class LogManager:
    """Owns the log directories and every partition in them; belongs to one thread.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from headwater_broker.log import LogConfig, LogManager
        >>> directory = TemporaryDirectory()
        >>> manager = LogManager([directory.name], config_for=lambda topic: LogConfig())
        >>> manager.load()
        >>> log = manager.create("events", 0, topic_id=bytes(16))
        >>> manager.get("events", 0) is log
        True
        >>> manager.close()
        >>> directory.cleanup()
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
        producer_id_check_interval_ms: int = 600_000,
        cleaner: CleanerConfig | None = None,
        schema_ids: SchemaIds | None = None,
    ) -> None:
        """Takes the settings; `load` does the work.

        Args:
            directories: Log directories, made where missing; a new partition goes to the one with the fewest.
            config_for: A topic's settings, asked when a partition is opened.
            clock: Time.
            fs: Files.
            retention_check_interval_ms: Kafka's log.retention.check.interval.ms.
            checkpoint_interval_ms: Kafka's log.flush.offset.checkpoint.interval.ms.
            producer_id_expiration_ms: Kafka's producer.id.expiration.ms.
            producer_id_check_interval_ms: Kafka's producer.id.expiration.check.interval.ms.
            cleaner: How much the compaction of one log may take.
            schema_ids: Who knows the ids of schemas, for topics that ask for them.
        """

        self._paths = directories
        self._schema_ids = schema_ids
        self._config_for = config_for
        self._clock = clock or SystemClock()
        self._fs = fs or OsFileSystem()
        self._retention_check_interval_ms = retention_check_interval_ms
        self._checkpoint_interval_ms = checkpoint_interval_ms
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._producer_id_check_interval_ms = producer_id_check_interval_ms
        self._cleanings = CleaningSchedule(cleaner or CleanerConfig())
        self._directories: list[LogDirectory] = []
        self._failed_at_start: dict[str, str] = {}
        self._by_name: dict[str, dict[int, PartitionLog]] = {}
        self._by_wire_name: dict[bytes, dict[int, PartitionLog]] = {}
        self._removals: dict[str, None] = {}
        self._counts: dict[str, int] | None = None
        self._ticks = 0
        self._checkpointed: set[TopicPartition] = set()
        self._without_directory: dict[TopicPartition, LostFolder] = {}
        self._unknown: set[TopicPartition] = set()
        self._refused_removals: set[str] = set()
        self._probed_for: set[PartitionLog] = set()
        self._chosen: dict[TopicPartition, str] = {}
        self._next_retention_ms = 0
        self._next_producer_check_ms = 0
        self._next_checkpoint_ms = 0

    def load(self) -> None:
        """Locks the directories and opens every partition, recovering after an unclean stop.

        A partition whose data below the recovery point is damaged is loaded offline. A directory whose disk fails is
        left out, as long as there is another.

        Raises:
            LogDirLockedError: Another broker runs here.
            LogDirError: No directory can be used, or two hold the same partition.
        """
        try:
            for path in self._paths:
                self._load_path(path)
            self._finish_moves()
            for key in [key for key in self._without_directory if self.get(*key) is not None]:
                del self._without_directory[key]  # it was moved to another directory
        except BaseException:
            self._release()
            raise
        if not any(directory.failure is None for directory in self._directories):
            failures = dict(self._failed_at_start)
            self._release()
            raise LogDirError("; ".join(failures.values()) or "there is no log directory")
        self._write_missing()
        now_ms = self._clock.now_ms()
        self._next_retention_ms = now_ms + self._retention_check_interval_ms
        self._next_checkpoint_ms = now_ms + self._checkpoint_interval_ms

    def _load_path(self, path: str) -> None:
        try:
            directory = LogDirectory(self._fs, path)
        except LogDirLockedError:
            raise
        except LogDirError as error:
            self._failed_at_start[path] = str(error)
            _LOGGER.error("%s: going on without it", error)
            return
        self._directories.append(directory)
        try:
            directory.identity()  # what is not ours to open is not touched
            self._load_directory(directory)
        except OSError as error:
            message = _cannot_use(path, error)
            self._failed_at_start[path] = message
            self._fail(directory, message)

    def _fail(self, directory: LogDirectory, why: str) -> None:
        """Has nothing written to a directory any more."""
        if directory.failure is None:
            directory.failure = why
            _LOGGER.error(
                "%s: no partition in it takes records until the broker is restarted; those they have can be read "
                "for as long as the disk gives them",
                why,
            )
            for log in self.within(directory):
                log.stop_writing(StorageError(f"{log.topic}-{log.partition}: {why}"))

    def within(self, directory: LogDirectory) -> list[PartitionLog]:
        """The partitions in a directory."""
        return [log for log in self if _parent(log.directory) == directory.path]

    @property
    def directories(self) -> Sequence[LogDirectory]:
        """The log directories that could be opened."""
        return self._directories

    @property
    def failed_directories(self) -> dict[str, str]:
        """Log directories that cannot be used, and why."""
        return self._failed_at_start | {
            directory.path: directory.failure
            for directory in self._directories
            if directory.failure is not None
        }

    def _finish_moves(self) -> None:
        """Gives a complete copy that a crash left its final name, unless the partition exists elsewhere."""
        for directory in self._directories:
            if directory.failure is not None:
                continue
            for name in self._fs.names(directory.path):
                final_name = paths.moved_name(name)
                if final_name is None:
                    continue
                parsed = paths.parse_partition_directory(final_name)
                path = f"{directory.path}/{name}"
                if parsed is None or self.get(*parsed) is not None:
                    self._remove_directory(path)
                else:
                    self._fs.rename(path, f"{directory.path}/{final_name}")
                    self._open(f"{directory.path}/{final_name}", parsed, clean=False)

    def _load_directory(self, directory: LogDirectory) -> None:
        clean = directory.take_clean_marker()
        recovery_points = directory.read_offsets(checkpoints.RECOVERY_POINTS)
        start_offsets = directory.read_offsets(checkpoints.LOG_START_OFFSETS)
        compacted = self._cleanings.load(directory)
        doubts_timestamps = not directory.timestamps_are_checked()
        lost = directory.read_missing()
        for name in self._fs.names(directory.path):
            path = f"{directory.path}/{name}"
            if name.endswith((paths.DELETED_DIRECTORY_SUFFIX, paths.FUTURE_DIRECTORY_SUFFIX)):
                self._remove_directory(path)
                continue
            parsed = paths.parse_partition_directory(name)
            if parsed is None or not self._fs.is_dir(path):
                continue
            if self.get(*parsed) is not None:
                raise LogDirError(f"{name} is in {path} and in another log directory: move one of them away")
            self._open(
                path,
                parsed,
                clean=clean,
                recovery_point=recovery_points.get(parsed, 0),
                log_start_offset=start_offsets.get(parsed, 0),
                was_compacted=parsed in compacted,
                is_start_known=parsed in start_offsets,
                lost_before=next(
                    (each for each in lost.get(parsed, ()) if each.end_offset == start_offsets.get(parsed)),
                    None,
                ),
                doubts_timestamps=doubts_timestamps,
            )
        if doubts_timestamps:
            with suppress(OSError):  # the next start looks again
                directory.note_timestamps_checked()
        self._checkpointed.update(recovery_points)
        self._without_directory |= {
            each.key: each for each in lost_folders(self._fs, directory.path) if self.get(*each.key) is None
        }

    def _open(
        self,
        path: str,
        key: TopicPartition,
        *,
        clean: bool = True,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        was_compacted: bool = False,
        is_start_known: bool = False,
        lost_before: MissingRange | None = None,
        doubts_timestamps: bool = False,
    ) -> PartitionLog:
        config, now_ms = self._config_for(key[0]), self._clock.now_ms()
        loaded = LogLoader(
            self._fs,
            path,
            config,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            was_compacted=was_compacted,
            is_start_known=is_start_known,
            lost_before=lost_before,
            doubts_timestamps=doubts_timestamps,
            now_ms=now_ms,
        ).load()
        topic_id = None
        try:
            topic_id = self._read_topic_id(path)
        except OSError as error:
            # Which topic's records these are is not known: they may be those of an older one.
            loaded.failure = loaded.failure or StorageError(
                f"cannot read {path}/{checkpoints.PARTITION_METADATA}: {error.strerror or error}"
            )
        log = PartitionLog(*key, topic_id, path, config, loaded, fs=self._fs, now_ms=now_ms)
        log.schema_ids = self._schema_ids
        if log.offline is None and config.expose == "flushed":
            with suppress(PartitionOfflineError):  # the log says so
                log.flush()
        return self._add(log)

    def _read_topic_id(self, path: str) -> bytes | None:
        try:
            data = self._fs.read_file(f"{path}/{checkpoints.PARTITION_METADATA}")
            return checkpoints.decode_partition_metadata(data)
        except FileNotFoundError:
            return None
        except checkpoints.DamagedCheckpointError as error:
            _LOGGER.warning("%s: the topic id is not known: %s", path, error)
            return None

    def _add(self, log: PartitionLog) -> PartitionLog:
        partitions = self._by_name.setdefault(log.topic, {})
        self._by_wire_name[log.topic.encode()] = partitions
        partitions[log.partition] = log
        self._count(_parent(log.directory), 1)
        return log

    def claim(self, *, broker_id: int, cluster_id: str) -> None:
        """Checks meta.properties of every directory against this broker's identity, or writes it.

        Raises:
            InconsistentIdentityError: The directory is another broker's or another cluster's.
            LogDirError: No directory can be written.
        """
        for directory in self._directories:
            if directory.failure is None:
                try:
                    directory.claim(broker_id, cluster_id)
                except OSError as error:
                    self._fail(directory, _cannot_use(directory.path, error))
        if all(directory.failure is not None for directory in self._directories):
            raise LogDirError("; ".join(self.failed_directories.values()))

    def stored_cluster_id(self) -> str | None:
        """The cluster id in meta.properties, if any directory has one."""
        for directory in self._directories:
            if directory.failure is not None:
                continue
            cluster_id = directory.identity().get("cluster.id")
            if cluster_id:
                return cluster_id
        return None

    def get(self, topic: str | bytes, partition: int) -> PartitionLog | None:
        """The partition's log; a topic name as it came from the wire needs no decoding."""
        partitions = self._by_wire_name.get(topic) if isinstance(topic, bytes) else self._by_name.get(topic)
        return partitions.get(partition) if partitions is not None else None

    def __iter__(self) -> Iterator[PartitionLog]:
        """Every partition."""
        for partitions in self._by_name.values():
            yield from partitions.values()

    def create(
        self, topic: str, partition: int, topic_id: bytes | None, *, is_new: bool = True
    ) -> PartitionLog:
        """Makes an empty partition, or returns the one that is there.

        Args:
            topic: Its topic.
            partition: Its number.
            topic_id: Its topic's id, if known.
            is_new: It was never here before. If it may have been, nothing is made while a directory cannot be used.

        Raises:
            LogDirError: There is one with another topic id, or the name is none of Kafka's.
            StorageError: The disk refused, or the partition may be on one that cannot be used.
        """
        log = self.get(topic, partition)
        if log is None:
            if not is_new and self.failed_directories:
                raise StorageError(f"{topic}-{partition} may be in {', '.join(self.failed_directories)}")
            if not _TOPIC_NAME.fullmatch(topic) or topic in (".", "..") or partition < 0:
                raise LogDirError(f"{topic!r} with partition {partition} cannot be a partition's name")
            lost = self._without_directory.get((topic, partition))
            if lost is not None and not is_new:
                log = self._begin_behind(lost, topic_id)
                del self._without_directory[lost.key]
            else:
                self._without_directory.pop((topic, partition), None)
                if (topic, partition) in self._checkpointed:
                    self.checkpoint()  # else a start would look in the new log for the records of the older one
                log = self._open(self._make_partition(topic, partition, topic_id), (topic, partition))
            log.topic_id = topic_id
        elif log.topic_id is None and topic_id is not None:
            if log.offline is not None:
                raise log.offline.again()
            try:
                self._write_topic_id(log.directory, topic_id)
            except OSError as error:
                raise StorageError(f"cannot write to {log.directory}: {error.strerror}") from error
            log.topic_id = topic_id
        elif log.topic_id is not None and topic_id is not None and log.topic_id != topic_id:
            if checkpoints.is_slip(log.topic_id, topic_id):
                _LOGGER.warning(
                    "%s/%s is damaged: its id differs in one character from that of its topic, and is written again",
                    log.directory,
                    checkpoints.PARTITION_METADATA,
                )
                log.topic_id = None
                return self.create(topic, partition, topic_id)
            raise LogDirError(
                f"{log.directory} holds an older topic of that name: it has another topic id; delete it first"
            )
        return log

    def _begin_behind(self, lost: LostFolder, topic_id: bytes | None) -> PartitionLog:
        """Makes a partition again whose directory is gone; it goes on behind the last offset that was given out.

        If offsets were given out again, whoever has read up to there would miss the new records.
        """
        path = self._make_partition(*lost.key, topic_id)
        return self._open(
            path,
            lost.key,
            clean=False,
            recovery_point=lost.end_offset,
            log_start_offset=lost.start_offset,
        )

    def note_topics(self, topics: Container[str]) -> None:
        """Takes note of which topics exist: logs of others are reported, their lost directories forgotten."""
        for key in [key for key in self._without_directory if key[0] not in topics]:
            del self._without_directory[key]
        before, self._unknown = (
            self._unknown,
            {(log.topic, log.partition) for log in self if log.topic not in topics},
        )
        if self._unknown - before:
            names = sorted({topic for topic, _ in self._unknown})
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            _LOGGER.error(
                "there are logs of topics that are not known: %s%s. They are left as they are; if ZooKeeper's data, or "
                "coordinator.json, was lost or is an older copy, put it back",
                ", ".join(names[:_NAMED]),
                more,
            )

    def _make_partition(self, topic: str, partition: int, topic_id: bytes | None) -> str:
        """Makes a new partition's directory: in the log directory that was chosen, else in the emptiest that works.

        Raises:
            StorageError: None works.
        """
        chosen = self._chosen.pop((topic, partition), None)
        for directory in [chosen] if chosen else self._emptiest_directories():
            path = paths.partition_directory(directory, topic, partition)
            is_created = False
            try:
                self._fs.make_dir(path)
                is_created = True
                self._write_topic_id(path, topic_id)
            except OSError as error:
                failure = StorageError(f"cannot make {path}: {error.strerror}")
                try:
                    if is_created:
                        self._fs.remove_dir(path)
                except OSError:
                    break  # in two directories a start would not know which one it is
            else:
                return path
        raise failure

    def _emptiest_directories(self) -> list[str]:
        """The directories that can be used, those with the fewest partitions first.

        Raises:
            StorageError: None can be used.
        """
        if self._counts is None:
            self._counts = {directory.path: 0 for directory in self._directories}
            for log in self:
                self._counts[_parent(log.directory)] += 1
        counts = self._counts
        usable = [directory.path for directory in self._directories if directory.failure is None]
        if not usable:
            raise StorageError("no log directory can be used")
        return sorted(usable, key=lambda path: counts[path])

    def _count(self, directory: str, change: int) -> None:
        """Takes note that a partition came to a log directory, or left it."""
        if self._counts is not None:
            self._counts[directory] += change

    def _write_topic_id(self, path: str, topic_id: bytes | None) -> None:
        if topic_id is not None:
            data = checkpoints.encode_partition_metadata(topic_id)
            self._fs.write_file(f"{path}/{checkpoints.PARTITION_METADATA}", data, durable=False)

    def delete(self, topic: str, partition: int) -> bool:
        """Renames the directory to `<topic>-<partition>.<id>-delete`; a later `tick` removes it.

        Reads that are being sent keep their descriptors. Returns whether there was such a partition.

        Raises:
            StorageError: The disk refused.
        """
        log = self.get(topic, partition)
        if log is None:
            return False
        # Who is sending from its files holds them open: there is nothing to wait for.
        self._removals[self._take_out(log, paths.DELETED_DIRECTORY_SUFFIX)] = None
        return True

    def set_aside(self, topic: str, partition: int) -> str:
        """Renames the directory to `<topic>-<partition>.<id>-stray`, where it stays; returns its path.

        Raises:
            StorageError: The disk refused.
        """
        log = self.get(topic, partition)
        assert log is not None
        return self._take_out(log, paths.STRAY_DIRECTORY_SUFFIX)

    def _take_out(self, log: PartitionLog, kind: str) -> str:
        parent, _, name = log.directory.rpartition("/")
        suffix = f".{uuid.uuid4().hex}{kind}"
        target = f"{parent}/{name[: _MAX_NAME_CHARACTERS - len(suffix)]}{suffix}"
        try:
            self._fs.rename(log.directory, target)
        except OSError as error:
            raise StorageError(f"cannot rename {log.directory}: {error.strerror}") from error
        log.retire()
        self._count(parent, -1)
        self._cleanings.forget(log.topic, log.partition)
        partitions = self._by_name[log.topic]
        del partitions[log.partition]
        if not partitions:
            del self._by_name[log.topic]
            del self._by_wire_name[log.topic.encode()]
        return target

    def configure(self, *, producer_id_expiration_ms: int, cleaner: CleanerConfig) -> None:
        """Takes new settings, and asks `config_for` again for every topic."""
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._cleanings.config = cleaner
        for topic in self._by_name:
            self.reconfigure(topic)

    def reconfigure(self, topic: str) -> None:
        """Asks `config_for` again and gives the answer to every partition of the topic."""
        logs = self._by_name.get(topic)
        if logs:
            config = self._config_for(topic)
            for log in logs.values():
                log.configure(config)

    def tick(self, now_ms: int) -> None:
        """All of `upkeep` in one go."""
        finished(self.upkeep(now_ms))

    def upkeep(self, now_ms: int) -> Slices[None]:
        """Upkeep, to be called about once a second; partitions may come and go between its slices.

        Does what is due of: rolling by age, retention, removing what was deleted, checkpoints, idle
        producers.
        """
        self._ticks += 1
        for number, log in enumerate(list(self)):
            yield
            if not self._has(log):
                continue
            with suppress(PartitionOfflineError):  # the log says so
                log.roll_if_old(now_ms)
                if (number + self._ticks) % _LOOK_EVERY_TICKS == 0 and log.look_at_files(now_ms):
                    self._write_missing()
            log.remove_deleted(now_ms)
            log.store_indexes()
        self._probe_directories(now_ms)
        for path in list(self._removals):
            yield
            if self._remove_directory(path):
                self._removals.pop(path, None)
        if now_ms >= self._next_retention_ms:
            self._next_retention_ms = now_ms + self._retention_check_interval_ms
            yield from self._apply_retention(now_ms)
        if now_ms >= self._next_producer_check_ms:
            self._next_producer_check_ms = now_ms + self._producer_id_check_interval_ms
            for log in list(self):
                yield
                log.expire_producers(now_ms - self._producer_id_expiration_ms)
        if now_ms >= self._next_checkpoint_ms:
            self._next_checkpoint_ms = now_ms + self._checkpoint_interval_ms
            yield
            self.checkpoint()

    def _has(self, log: PartitionLog) -> bool:
        return self.get(log.topic, log.partition) is log

    def _probe_directories(self, now_ms: int) -> None:
        """Where a partition's disk failed, finds out whether it is the disk's fault or the file's, and for how long."""
        for directory in self._directories:
            if directory.failure is not None:
                continue
            failed = {log for log in self.within(directory) if isinstance(log.refusal, StorageError)}
            if not failed:
                continue
            is_new = bool(failed - self._probed_for)
            self._probed_for |= failed
            if is_new:
                # Whatever retention may delete makes room.
                self._next_retention_ms = now_ms
            elif not any(log.is_waiting for log in failed):
                continue
            error = directory.probe(durable=is_new)
            if error is None:
                for log in failed:
                    log.try_again()
                self._probed_for.difference_update(log for log in failed if log.refusal is None)
            elif not is_passing(error):
                self._fail(directory, f"the log directory {directory.path} fails: {error.strerror or error}")

    def _write_missing(self) -> None:
        """Writes down for `headwater doctor` which offsets are lost, and which partitions cannot be read."""
        for directory in self._directories:
            if directory.failure is None:
                logs = self.within(directory)
                lines = [
                    f"{log.topic} {log.partition} {each.start_offset} {each.end_offset} {each.path}\n"
                    for log in logs
                    for each in log.missing
                ]
                directory.write_notes(checkpoints.MISSING_OFFSETS, "".join(sorted(lines)))
                lines = [
                    f"{log.topic} {log.partition} {' '.join(str(log.offline or _UNKNOWN_TOPIC).split())}\n"
                    for log in logs
                    if log.offline is not None or (log.topic, log.partition) in self._unknown
                ]
                directory.write_notes(checkpoints.OFFLINE, "".join(sorted(lines)))

    def _apply_retention(self, now_ms: int) -> Slices[None]:
        for log in list(self):
            yield
            if not self._has(log):
                continue
            log.release_idle()
            try:
                log.apply_retention(now_ms)
            except PartitionOfflineError:
                continue  # the log said so
            except OSError as error:
                _LOGGER.warning("%s-%d: retention is tried again: %s", log.topic, log.partition, error)

    def flushes_due(self, now_ms: int) -> list[Flush]:
        """Starts what flush.messages, flush.ms and new segments ask for: run and complete each."""
        due = (log.start_flush() for log in self if log.offline is None and log.flush_due(now_ms))
        return [flush for flush in due if flush is not None]

    def choose(self, topic: str, partition: int, path: str) -> Move | None:
        """Chooses a partition's log directory: an existing partition is moved there, a new one will be made there.

        Returns:
            The move, where there is one to do: run it in any thread, and complete it in this one, until that says it
            is done.

        Raises:
            LogDirError: There is no such log directory.
            StorageError: It cannot be used, or the partition is offline.
        """
        directory = next((each for each in self._directories if each.path == path.rstrip("/")), None)
        if directory is None:
            if path in self._failed_at_start:
                raise StorageError(self._failed_at_start[path])
            raise LogDirError(f"{path} is no log directory of this broker")
        if directory.failure is not None:
            raise StorageError(directory.failure)
        log = self.get(topic, partition)
        if log is None:
            if _TOPIC_NAME.fullmatch(topic):
                self._chosen.pop((topic, partition), None)
                self._chosen[topic, partition] = directory.path
                if len(self._chosen) > _CHOSEN:
                    del self._chosen[next(iter(self._chosen))]
            return None
        if log.offline is not None:
            raise log.offline.again()
        if log.move is not None and log.move.target == directory.path:
            return None
        log.abandon_cleaning()
        if _parent(log.directory) == directory.path:
            return None

        def completed(move: Move, old_path: str) -> None:
            if log.move is move:
                log.move = None
            self._counts = None
            if old_path:
                self._removals[old_path] = None
                self.checkpoint()
                for each in self._directories:
                    self._cleanings.save(each)

        log.move = Move(self._fs, f"{topic}-{partition}", log, directory.path, completed)
        return log.move

    def next_cleaning(self, now_ms: int) -> Cleaning | None:
        """Begins to compact the log that has most to gain, if one is dirty enough.

        Call `Cleaning.run` in any thread, then `Cleaning.complete` in this one, for as long as that says so.
        """
        directories = {directory.path: directory for directory in self._directories}
        return self._cleanings.next(list(self), directories, now_ms)

    def checkpoint(self) -> None:
        """Writes the checkpoint files now, for instance so that a crash does not undo DeleteRecords.

        A disk that refuses costs only a longer recovery: that is logged.
        """
        self._write_missing()
        self._checkpointed = {(log.topic, log.partition) for log in self}
        for directory in self._directories:
            if directory.failure is not None:
                continue
            logs = self.within(directory)
            keys = [(log.topic, log.partition) for log in logs]
            lost = [each for each in self._without_directory.values() if each.directory == directory.path]
            starts = {each.key: each.start_offset for each in lost}
            ends = {each.key: each.end_offset for each in lost}
            files = (
                (checkpoints.RECOVERY_POINTS, ends, [log.recovery_point for log in logs]),
                (checkpoints.LOG_START_OFFSETS, starts, [log.log_start_offset for log in logs]),
                (checkpoints.HIGH_WATERMARKS, ends, [log.high_watermark for log in logs]),
            )
            for name, others, offsets in files:
                try:
                    directory.write_offsets(name, others | dict(zip(keys, offsets, strict=True)))
                except OSError as error:
                    _LOGGER.error("cannot write %s in %s: %s", name, directory.path, error.strerror)
                    probed = directory.probe() if len(self._directories) > 1 else None
                    if probed is not None and not is_passing(probed):
                        self._fail(
                            directory, f"the log directory {directory.path} fails: {error.strerror or error}"
                        )
                        break

    def close(self) -> None:
        """Clean stop: writes, flushes, snapshots, checkpoints, leaves `.kafka_cleanshutdown`, unlocks.

        A directory with a partition that is offline gets no marker: the next start looks closely.
        """
        for log in list(self):
            try:
                log.close()
            except PartitionOfflineError:
                continue  # the log said so
        self.checkpoint()
        for path in self._removals:
            self._remove_directory(path)
        for directory in self._directories:
            if directory.failure is None and all(log.refusal is None for log in self.within(directory)):
                try:
                    directory.leave_clean_marker()
                except OSError as error:
                    _LOGGER.warning(
                        "%s: the next start checks the logs, as %s cannot be written: %s",
                        directory.path,
                        checkpoints.CLEAN_SHUTDOWN,
                        error.strerror,
                    )
        self._release()

    def _release(self) -> None:
        for directory in self._directories:
            directory.release()
        self._directories = []
        self._by_name.clear()
        self._by_wire_name.clear()

    def _remove_directory(self, path: str) -> bool:
        """Whether it is gone now; where the disk refuses, that is logged once."""
        try:
            self._fs.remove_tree(path)
        except OSError as error:
            if path not in self._refused_removals:
                self._refused_removals.add(path)
                _LOGGER.warning("cannot remove %s: %s", path, error.strerror)
            return False
        self._refused_removals.discard(path)
        return True


def _parent(directory: str) -> str:
    return directory.rpartition("/")[0]


def _cannot_use(path: str, error: OSError) -> str:
    file = (
        f" ({error.filename})"
        if error.filename and str(error.filename).rstrip("/") != path.rstrip("/")
        else ""
    )
    return f"cannot use the log directory {path}: {error.strerror or error}{file}"
