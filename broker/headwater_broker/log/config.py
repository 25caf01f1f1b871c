"""A topic's settings under Kafka's names, and the one table of what each may hold."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headwater_broker.log.errors import InvalidConfigError

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1
_HOUR_MS = 3_600_000

Value = int | float | bool | str | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LogConfig:
    """What a partition's log needs to know of its topic's settings; defaults are Apache Kafka 3.9's.

    A field is the setting's name with underscores for dots. Sizes are in bytes, times in milliseconds. Each setting
    is described in `CONFIG_KEYS`.
    """

    cleanup_policy: tuple[str, ...] = ("delete",)
    compression_type: str = "producer"
    delete_retention_ms: int = 24 * _HOUR_MS
    file_delete_delay_ms: int = 60_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    index_interval_bytes: int = 4096
    max_compaction_lag_ms: int = LONG_MAX
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = LONG_MAX
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    retention_bytes: int = -1
    retention_ms: int = 168 * _HOUR_MS
    segment_bytes: int = 1_073_741_824
    segment_index_bytes: int = 10_485_760
    segment_jitter_ms: int = 0
    segment_ms: int = 168 * _HOUR_MS
    unclean_leader_election_enable: bool = False
    acks_fsync: bool = False
    expose: str = "written"

    @property
    def deletes(self) -> bool:
        """Whether retention removes old segments."""
        return "delete" in self.cleanup_policy

    @property
    def compacts(self) -> bool:
        """Whether only the last record of each key is kept."""
        return "compact" in self.cleanup_policy

    @classmethod
    def parse(cls, settings: Mapping[str, str], base: LogConfig | None = None) -> LogConfig:
        """Reads settings as they come from a client or a file.

        Args:
            settings: Values as text by Kafka's topic-level names.
            base: Where the rest comes from; Kafka's defaults where it is not given.

        Raises:
            InvalidConfigError: An unknown name or a value that is not allowed.
        """
        fields = {name.replace(".", "_"): parse_value(name, text) for name, text in settings.items()}
        config = dataclasses.replace(base or cls(), **fields)  # type: ignore[arg-type]
        if config.expose == "flushed" and config.flush_messages == LONG_MAX and config.flush_ms == LONG_MAX:
            raise InvalidConfigError(
                "expose=flushed shows only what was flushed: set flush.messages or flush.ms as well, or nothing "
                "would ever be shown"
            )
        return config


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One topic-level setting.

    Attributes:
        name: The topic-level name.
        broker_name: The broker-level name that sets its default, Kafka's where Kafka has one.
        kind: Kafka's word for the type: INT, LONG, DOUBLE, BOOLEAN, STRING or LIST.
        allowed: What may be given, for people.
        accepts: Whether a value of the right type is allowed.
        doc: One sentence.
    """

    name: str
    broker_name: str
    kind: str
    allowed: str
    accepts: Callable[[Value], bool]
    doc: str

    @property
    def default(self) -> Value:
        """The default of a topic on a broker that sets nothing."""
        value: Value = getattr(LogConfig(), self.name.replace(".", "_"))
        return value


def _at_least(low: int, high: int) -> tuple[str, Callable[[Value], bool]]:
    return f"{low} to {high}", lambda value: isinstance(value, int) and low <= value <= high


def _one_of(*names: str) -> tuple[str, Callable[[Value], bool]]:
    return "one of " + ", ".join(names), lambda value: value in names


def _int(name: str, broker_name: str, low: int, doc: str) -> ConfigKey:
    return ConfigKey(name, broker_name, "INT", *_at_least(low, INT_MAX), doc)


def _long(name: str, broker_name: str, low: int, doc: str) -> ConfigKey:
    return ConfigKey(name, broker_name, "LONG", *_at_least(low, LONG_MAX), doc)


def _boolean(name: str, broker_name: str, doc: str) -> ConfigKey:
    return ConfigKey(
        name, broker_name, "BOOLEAN", "true or false", lambda value: isinstance(value, bool), doc
    )


def _policies(value: Value) -> bool:
    return isinstance(value, tuple) and bool(value) and set(value) <= {"compact", "delete"}


_KEYS = (
    ConfigKey(
        "cleanup.policy",
        "log.cleanup.policy",
        "LIST",
        "compact, delete or both",
        _policies,
        "Whether old segments are deleted, or compacted to the last record of each key.",
    ),
    ConfigKey(
        "compression.type",
        "compression.type",
        "STRING",
        *_one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        "Shown to tools; batches are always stored as their producer compressed them.",
    ),
    _long(
        "delete.retention.ms", "log.cleaner.delete.retention.ms", 0, "How long compaction keeps tombstones."
    ),
    _long(
        "file.delete.delay.ms",
        "log.segment.delete.delay.ms",
        0,
        "How long a deleted segment's files stay on the disk under another name.",
    ),
    _long(
        "flush.messages",
        "log.flush.interval.messages",
        1,
        "How many messages may be appended without an fsync.",
    ),
    _long("flush.ms", "log.flush.interval.ms", 0, "How long a message may stay without an fsync."),
    _int(
        "index.interval.bytes",
        "log.index.interval.bytes",
        0,
        "How many bytes of batches lie between two entries of the indexes.",
    ),
    _long(
        "max.compaction.lag.ms",
        "log.cleaner.max.compaction.lag.ms",
        1,
        "How long a record may at most escape compaction.",
    ),
    _int("max.message.bytes", "message.max.bytes", 0, "The largest batch that is accepted."),
    _long(
        "message.timestamp.after.max.ms",
        "log.message.timestamp.after.max.ms",
        0,
        "How far a timestamp may be after the broker's clock.",
    ),
    _long(
        "message.timestamp.before.max.ms",
        "log.message.timestamp.before.max.ms",
        0,
        "How far a timestamp may be before the broker's clock.",
    ),
    ConfigKey(
        "message.timestamp.type",
        "log.message.timestamp.type",
        "STRING",
        *_one_of("CreateTime", "LogAppendTime"),
        "Whose clock stamps the records: the producer's or the broker's.",
    ),
    ConfigKey(
        "min.cleanable.dirty.ratio",
        "log.cleaner.min.cleanable.ratio",
        "DOUBLE",
        "0 to 1",
        lambda value: isinstance(value, int | float) and 0 <= value <= 1,
        "How much of a log must be uncompacted before it is compacted.",
    ),
    _long(
        "min.compaction.lag.ms",
        "log.cleaner.min.compaction.lag.ms",
        0,
        "How long a record at least escapes compaction.",
    ),
    _int(
        "min.insync.replicas",
        "min.insync.replicas",
        1,
        "How many replicas must have a batch before acks=all is answered.",
    ),
    _boolean("preallocate", "log.preallocate", "Shown to tools; segments grow as they are written."),
    _long(
        "retention.bytes",
        "log.retention.bytes",
        -1,
        "The size beyond which old segments are deleted; -1: never.",
    ),
    _long(
        "retention.ms", "log.retention.ms", -1, "The age beyond which old segments are deleted; -1: never."
    ),
    _int("segment.bytes", "log.segment.bytes", 14, "The size at which a new segment is begun."),
    _int(
        "segment.index.bytes",
        "log.index.size.max.bytes",
        4,
        "The size of an index at which a new segment is begun.",
    ),
    _long(
        "segment.jitter.ms",
        "log.roll.jitter.ms",
        0,
        "Up to how much earlier a new segment is begun, so that partitions do not all roll at once.",
    ),
    _long("segment.ms", "log.roll.ms", 1, "The age at which a new segment is begun."),
    _boolean(
        "unclean.leader.election.enable",
        "unclean.leader.election.enable",
        "Whether a replica that is behind may become leader when no other is left.",
    ),
    _boolean("acks.fsync", "acks.fsync", "Whether acks=all is answered only after an fsync."),
    ConfigKey(
        "expose",
        "expose",
        "STRING",
        *_one_of("written", "flushed"),
        "Whether consumers see messages once written, or only once flushed to the disk.",
    ),
)

CONFIG_KEYS: dict[str, ConfigKey] = {key.name: key for key in _KEYS}
"""Every topic-level setting by its name."""

BROKER_DEFAULTS: dict[str, str] = {key.broker_name: key.name for key in _KEYS}
"""Broker-level names to the topic-level names whose defaults they set."""


def parse_value(name: str, text: str) -> Value:
    """Reads one setting.

    Raises:
        InvalidConfigError: An unknown name or a value that is not allowed.
    """
    key = CONFIG_KEYS.get(name)
    if key is None:
        near = difflib.get_close_matches(name, CONFIG_KEYS, n=1)
        hint = f"; the nearest known one is {near[0]}" if near else ""
        raise InvalidConfigError(f"unknown topic setting {name}{hint}")
    try:
        value = _READERS[key.kind](text.strip())
    except ValueError:
        value = None
    if value is None or not key.accepts(value):
        raise InvalidConfigError(f"{name}={text} is not allowed: give {key.allowed}")
    return value


def format_value(value: Value) -> str:
    """The text that `parse_value` reads back."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def _read_boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _read_list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


_READERS: dict[str, Callable[[str], Value]] = {
    "INT": int,
    "LONG": int,
    "DOUBLE": float,
    "BOOLEAN": _read_boolean,
    "STRING": str,
    "LIST": _read_list,
}
