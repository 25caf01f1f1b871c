"""The small text files beside the segments, in Kafka's formats (see the package's documentation)."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Mapping

from crc32c import crc32c

from headwater_broker.log.errors import LogDirError

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANED_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
_KRAFT_VERSION = "1"
META_PROPERTIES = "meta.properties"
PROBE = ".headwater-probe"
MISSING_OFFSETS = ".headwater-missing-offsets"
OFFLINE = ".headwater-offline"
CHECKED_TIMESTAMPS = ".headwater-checked-timestamps"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"

_VERSION = "0"
_CHECKSUM_BITS = 32
_BLANKS = re.compile(rb"[ \t]+(?=\n\Z)")
_AS_BLANKS = str.maketrans("01", " \t")

TopicPartition = tuple[str, int]


class DamagedCheckpointError(Exception):
    """The file is not what it should be; the reader decides what it can do without."""


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """An offset checkpoint: one line for each partition."""
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
    return _encode_lines(lines)


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    """Reads an offset checkpoint.

    Raises:
        DamagedCheckpointError: It is not one.
    """
    offsets: dict[TopicPartition, int] = {}
    for fields in _decode_lines(data, fields_per_line=3):
        offsets[fields[0], int(fields[1])] = int(fields[2])
    return offsets


def encode_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    """A leader epoch checkpoint: one line for each epoch."""
    return _encode_lines([f"{epoch} {start_offset}" for epoch, start_offset in entries])


def decode_epochs(data: bytes) -> list[tuple[int, int]]:
    """Reads a leader epoch checkpoint.

    Raises:
        DamagedCheckpointError: It is not one.
    """
    return [(int(epoch), int(start)) for epoch, start in _decode_lines(data, fields_per_line=2)]


def encode_partition_metadata(topic_id: bytes) -> bytes:
    """The file that ties a directory to a topic's id."""
    return f"version: 0\ntopic_id: {format_uuid(topic_id)}".encode()


def decode_partition_metadata(data: bytes) -> bytes:
    """The topic's id.

    Raises:
        DamagedCheckpointError: It is not such a file.
    """
    fields = _decode_properties(data, ": ")
    if fields.get("version") != _VERSION or "topic_id" not in fields:
        raise DamagedCheckpointError(f"not a {PARTITION_METADATA} of version 0: {data[:80]!r}")
    return parse_uuid(fields["topic_id"])


def encode_meta_properties(fields: Mapping[str, str]) -> bytes:
    """The file that ties a log directory to a broker."""
    return "".join(f"{name}={value}\n" for name, value in fields.items()).encode()


def decode_meta_properties(data: bytes) -> dict[str, str]:
    """Every field of it.

    Raises:
        DamagedCheckpointError: Its version is unknown.
        LogDirError: It is of a broker in KRaft mode.
    """
    fields = _decode_properties(data, "=")
    version = fields.get("version")
    if version is None:
        raise DamagedCheckpointError("it says no version")
    if version == _KRAFT_VERSION and "node.id" in fields:
        raise LogDirError(
            f"version {version} is that of a broker in KRaft mode (node.id {fields.get('node.id')}), and only "
            "directories of brokers that keep their state in ZooKeeper, version 0, can be opened"
        )
    if version != _VERSION:
        raise DamagedCheckpointError(f"version {version} is unknown, 0 is what can be read")
    return fields


def encode_clean_shutdown() -> bytes:
    """The marker's content; the broker's epoch is for KRaft only."""
    return json.dumps({"version": 0, "brokerEpoch": -1}, separators=(",", ":")).encode()


def format_uuid(uuid: bytes) -> str:
    """A 16-byte id as Kafka prints it: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(uuid).decode().rstrip("=")


def parse_uuid(text: str) -> bytes:
    """Reads what `format_uuid` wrote.

    Raises:
        DamagedCheckpointError: It is no such id.
    """
    try:
        uuid = base64.urlsafe_b64decode(text + "==")
    except (binascii.Error, ValueError):
        uuid = b""
    if len(uuid) != 16:
        raise DamagedCheckpointError(f"{text!r} is not a topic id")
    return uuid


def is_slip(one: bytes, other: bytes) -> bool:
    """Whether two ids differ in one character only. That is damage: ids that were drawn at random differ in most."""
    pairs = zip(format_uuid(one), format_uuid(other), strict=True)
    return sum(first != second for first, second in pairs) == 1


def _encode_lines(lines: list[str]) -> bytes:
    data = "".join(f"{line}\n" for line in (_VERSION, str(len(lines)), *lines)).encode()
    return data[:-1] + _checksum(data) + b"\n" if lines else data


def _checksum(data: bytes) -> bytes:
    """A checksum that Kafka's tools pass over: blanks, a tab for each bit that is set."""
    return format(crc32c(data), f"0{_CHECKSUM_BITS}b").translate(_AS_BLANKS).encode()


def _decode_lines(data: bytes, *, fields_per_line: int) -> list[list[str]]:
    if not data:
        return []  # Kafka makes its checkpoints empty, and fills them later
    if not data.endswith(b"\n"):
        raise DamagedCheckpointError(f"it is cut: {data[:80]!r}")
    blanks = _BLANKS.search(data)
    if blanks is not None:  # Kafka writes none
        data = data[: blanks.start()] + b"\n"
        if blanks[0] != _checksum(data):
            raise DamagedCheckpointError(f"its checksum does not match: {data[:80]!r}")
    try:
        lines = data.decode().splitlines()
        rows = [line.split() for line in lines[2:] if line]
        good = lines[0] == _VERSION and int(lines[1]) == len(rows)
        for row in rows:
            good = good and len(row) == fields_per_line
            for field in row[-min(2, fields_per_line) :]:
                int(field)
    except (ValueError, IndexError):
        good = False
    if not good:
        raise DamagedCheckpointError(f"not a checkpoint of version 0: {data[:80]!r}")
    return rows


def _decode_properties(data: bytes, separator: str) -> dict[str, str]:
    try:
        lines = data.decode().splitlines()
    except ValueError:
        raise DamagedCheckpointError(f"not text: {data[:80]!r}") from None
    fields = {}
    for line in lines:
        name, sep, value = line.partition(separator)
        if sep and not line.startswith("#"):
            fields[name.strip()] = value.strip()
    return fields
