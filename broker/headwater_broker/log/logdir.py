"""One log directory: its lock, its identity, its checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress

from headwater_broker.log import checkpoints, paths
from headwater_broker.log.checkpoints import DamagedCheckpointError, TopicPartition
from headwater_broker.log.dirlock import DirectoryLock
from headwater_broker.log.errors import InconsistentIdentityError, LogDirError
from headwater_broker.log.fs import FileSystem
from headwater_broker.log.missing import MissingRange

_LOGGER = logging.getLogger(__name__)

_PROBE_BYTES = bytes(64 * 1024)
"""More than fits into an inode: a full disk still takes an empty file."""


class LogDirectory:
    """The files that stand beside the partitions.

    Attributes:
        path: Of the directory.
        failure: Why its disk cannot be used; None: it can.
    """

    def __init__(self, fs: FileSystem, path: str) -> None:
        """Makes the directory where it is missing, and locks it.

        Raises:
            LogDirLockedError: A broker runs on it.
            LogDirError: It cannot be made or written.
        """
        self._fs = fs
        self.path = path.rstrip("/") or "/"
        try:
            fs.make_dir(self.path)
        except OSError as error:
            raise LogDirError(f"cannot make the log directory {path}: {error.strerror}") from error
        self._lock = DirectoryLock(self.path)
        self._written: dict[str, bytes] = {}
        self.failure: str | None = None

    def probe(self, *, durable: bool = True) -> OSError | None:
        """Tries a write (`durable`: and a sync) after one has failed; returns the error, None where it works."""
        path = f"{self.path}/{checkpoints.PROBE}"
        try:
            self._fs.write_file(path, _PROBE_BYTES, durable=durable)
            self._fs.remove(path)
        except OSError as error:
            return error
        return None

    def disk_bytes(self) -> tuple[int, int]:
        """How much the disk holds in all and how much more may be written to it; -1 each where it does not say."""
        try:
            return self._fs.disk_bytes(self.path)
        except OSError:
            return -1, -1

    def take_clean_marker(self) -> bool:
        """Whether the last broker stopped cleanly; the marker is gone after this."""
        path = f"{self.path}/{checkpoints.CLEAN_SHUTDOWN}"
        clean = self._fs.exists(path)
        if clean:
            self._fs.remove(path)
            self._fs.sync_dir(self.path)
        return clean

    def leave_clean_marker(self) -> None:
        """Tells the next broker that nothing needs recovery."""
        path = f"{self.path}/{checkpoints.CLEAN_SHUTDOWN}"
        self._fs.write_file(path, checkpoints.encode_clean_shutdown(), durable=True)

    def holds(self, topic: str, partition: int) -> bool:
        """Whether the partition's directory is in this one."""
        return self._fs.is_dir(paths.partition_directory(self.path, topic, partition))

    def read_offsets(self, name: str) -> dict[TopicPartition, int]:
        """A checkpoint's offsets; none where it is missing or damaged, which costs a longer scan."""
        try:
            return checkpoints.decode_offsets(self._fs.read_file(f"{self.path}/{name}"))
        except FileNotFoundError:
            return {}
        except DamagedCheckpointError as error:
            _LOGGER.warning("%s/%s: starting without it: %s", self.path, name, error)
            return {}

    def write_offsets(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Writes a checkpoint, if it is not what was written last."""
        data = checkpoints.encode_offsets(offsets)
        if self._written.get(name) != data:
            self._fs.write_file(f"{self.path}/{name}", data, durable=True)
            self._written[name] = data

    def read_missing(self) -> dict[TopicPartition, list[MissingRange]]:
        """Which offsets were lost when the last broker ran, as far as that can be read."""
        ranges: dict[TopicPartition, list[MissingRange]] = {}
        with suppress(OSError):
            text = self._fs.read_file(f"{self.path}/{checkpoints.MISSING_OFFSETS}").decode(errors="replace")
            for line in text.splitlines():
                with suppress(ValueError):
                    topic, partition, start, end, file = line.split(" ", 4)
                    lost = MissingRange(int(start), int(end), file)
                    ranges.setdefault((topic, int(partition)), []).append(lost)
        return ranges

    def write_notes(self, name: str, text: str) -> None:
        """Writes a file of notes for `headwater doctor`, if they have changed; where there are none, no file."""
        path, data = f"{self.path}/{name}", text.encode()
        if self._written.get(name) == data:
            return
        try:
            if data:
                self._fs.write_file(path, data, durable=False)
            else:
                self._fs.remove(path)
        except OSError as error:
            _LOGGER.warning("cannot write %s: %s", path, error.strerror)
        self._written[name] = data

    def timestamps_are_checked(self) -> bool:
        """Whether all that is here was appended, or opened once, by a version that does not believe clients' claims."""
        return self._fs.exists(f"{self.path}/{checkpoints.CHECKED_TIMESTAMPS}")

    def note_timestamps_checked(self) -> None:
        """Remembers that."""
        self._fs.write_file(f"{self.path}/{checkpoints.CHECKED_TIMESTAMPS}", b"", durable=False)

    def identity(self) -> dict[str, str]:
        """The fields of meta.properties; none where it is missing.

        Raises:
            LogDirError: It is not ours to read.
        """
        try:
            return checkpoints.decode_meta_properties(
                self._fs.read_file(f"{self.path}/{checkpoints.META_PROPERTIES}")
            )
        except FileNotFoundError:
            return {}
        except DamagedCheckpointError as error:
            raise LogDirError(
                f"{self.path}/{checkpoints.META_PROPERTIES}: {error}; remove it if the directory is this broker's, "
                "which then writes it again"
            ) from error
        except LogDirError as error:
            raise LogDirError(f"{self.path}/{checkpoints.META_PROPERTIES}: {error}") from error

    def claim(self, broker_id: int, cluster_id: str) -> None:
        """Checks the identity, or writes it where there is none.

        Raises:
            InconsistentIdentityError: It is another broker's or another cluster's directory.
        """
        stored = self.identity()
        expected = {"broker.id": str(broker_id), "cluster.id": cluster_id}
        for name, value in expected.items():
            if stored.get(name, value) != value:
                raise InconsistentIdentityError(
                    f"{self.path} belongs to {name} {stored[name]}, but this broker has {name} {value}: use the "
                    f"directory that goes with it{self._other_causes(name, stored[name], value)}"
                )
        fields = {"version": "0"} | stored | expected
        if fields != stored:
            path = f"{self.path}/{checkpoints.META_PROPERTIES}"
            self._fs.write_file(path, checkpoints.encode_meta_properties(fields), durable=True)

    def _other_causes(self, name: str, stored: str, value: str) -> str:
        """Other causes of a different identity, to end the message with."""
        file = f"{self.path}/{checkpoints.META_PROPERTIES}"
        is_alike = len(stored) == len(value) and sum(map(str.__ne__, stored, value)) == 1
        is_part = value.startswith(stored) or stored.startswith(value)
        if is_alike or is_part or not stored.replace("-", "").replace("_", "").isalnum():
            return f"; if {file} is damaged, as it seems, remove it, and the broker writes it again"
        if name == "cluster.id":
            return "; if the cluster's state is lost (ZooKeeper's data, or coordinator.json), put it back from a copy"
        return ""

    def release(self) -> None:
        """Unlocks it."""
        self._lock.release()
