"""A topic's settings under Kafka's names, and the one table of what each may hold."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headwater_broker.log.errors import InvalidConfigError
from headwater_broker.numbers import parse_decimal, parse_integer, trimmed

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
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_type: str = "producer"
    compression_zstd_level: int = 3
    delete_retention_ms: int = 24 * _HOUR_MS
    file_delete_delay_ms: int = 60_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    index_interval_bytes: int = 4096
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    local_retention_bytes: int = -2
    local_retention_ms: int = -2
    max_compaction_lag_ms: int = LONG_MAX
    max_message_bytes: int = 1_048_588
    message_downconversion_enable: bool = True
    message_format_version: str = "3.0-IV1"
    message_timestamp_after_max_ms: int = LONG_MAX
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_difference_max_ms: int = LONG_MAX
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    remote_storage_enable: bool = False
    retention_bytes: int = -1
    retention_ms: int = 168 * _HOUR_MS
    segment_bytes: int = 1_073_741_824
    segment_index_bytes: int = 10_485_760
    segment_jitter_ms: int = 0
    segment_ms: int = 168 * _HOUR_MS
    unclean_leader_election_enable: bool = False
    confluent_key_schema_validation: bool = False
    confluent_value_schema_validation: bool = False
    acks_fsync: bool = False
    counts_bucket_ms: int = 0
    expose: str = "written"

    @property
    def timestamp_after_max_ms(self) -> int:
        """How far a timestamp may be after the broker's clock, by the setting for that or the older one for both."""
        own_ms = self.message_timestamp_after_max_ms
        return own_ms if own_ms != LONG_MAX else self.message_timestamp_difference_max_ms

    @property
    def timestamp_before_max_ms(self) -> int:
        """How far a timestamp may be before the broker's clock, by the setting for that or the older one for both."""
        own_ms = self.message_timestamp_before_max_ms
        return own_ms if own_ms != LONG_MAX else self.message_timestamp_difference_max_ms

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
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
            raise InvalidConfigError(
                f"conflict topic config setting min.compaction.lag.ms ({config.min_compaction_lag_ms}) > "
                f"max.compaction.lag.ms ({config.max_compaction_lag_ms})"
            )
        return config


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One topic-level setting.

    Attributes:
        name: The topic-level name.
        broker_name: The broker-level name that sets its default, Kafka's where Kafka has one; None: there is none.
        kind: Kafka's word for the type: INT, LONG, DOUBLE, BOOLEAN, STRING or LIST.
        problem: What is wrong with a value of the right type, in Kafka's words; None: nothing.
        doc: One sentence.
    """

    name: str
    broker_name: str | None
    kind: str
    problem: Callable[[Value], str | None]
    doc: str

    @property
    def default(self) -> Value:
        """The default of a topic on a broker that sets nothing."""
        value: Value = getattr(LogConfig(), self.name.replace(".", "_"))
        return value


def _range(low: float, high: float) -> Callable[[Value], str | None]:
    def problem(value: Value) -> str | None:
        assert isinstance(value, int | float)
        if not value >= low:
            return f"Value must be at least {low}"
        return None if value <= high else f"Value must be no more than {high}"

    return problem


def _one_of(*names: str) -> Callable[[Value], str | None]:
    def problem(value: Value) -> str | None:
        values = value if isinstance(value, tuple) else (value,)
        return None if set(values) <= set(names) else "String must be one of: " + ", ".join(names)

    return problem


def _anything(_: Value) -> str | None:
    return None


def _gzip_level(value: Value) -> str | None:
    return None if value == -1 else _range(1, 9)(value)


def _replicas(value: Value) -> str | None:
    """`partition:broker` pairs, or a single asterisk for all."""
    assert isinstance(value, tuple)
    if value == ("*",) or all(re.fullmatch(r"[0-9]+:[0-9]+", each) for each in value):
        return None
    return "must be the literal '*' or a list of partitionId:brokerId pairs"


def _local_only(value: Value) -> str | None:
    return "Tiered Storage functionality is disabled in the broker" if value else None


def _format_version(value: Value) -> str | None:
    is_version = isinstance(value, str) and re.fullmatch(r"[0-9]+\.[0-9]+(\.[0-9]+){0,2}(-IV[0-9]+)?", value)
    return None if is_version else "not a version of Kafka, such as 3.0"


def _int(name: str, broker_name: str, low: int, doc: str) -> ConfigKey:
    return ConfigKey(name, broker_name, "INT", _range(low, INT_MAX), doc)


def _long(name: str, broker_name: str | None, low: int, doc: str) -> ConfigKey:
    return ConfigKey(name, broker_name, "LONG", _range(low, LONG_MAX), doc)


def _boolean(name: str, broker_name: str, doc: str) -> ConfigKey:
    return ConfigKey(name, broker_name, "BOOLEAN", _anything, doc)


_LEVEL_DOC = "Level for batches that the broker compresses with {codec}; it stores them as they were sent."

_KEYS = (
    ConfigKey(
        "cleanup.policy",
        "log.cleanup.policy",
        "LIST",
        _one_of("compact", "delete"),
        "Whether old segments are deleted, or compacted to the last record of each key, or both, or (empty) neither.",
    ),
    ConfigKey(
        "compression.gzip.level",
        "compression.gzip.level",
        "INT",
        _gzip_level,
        _LEVEL_DOC.format(codec="gzip"),
    ),
    ConfigKey(
        "compression.lz4.level", "compression.lz4.level", "INT", _range(1, 17), _LEVEL_DOC.format(codec="LZ4")
    ),
    ConfigKey(
        "compression.zstd.level",
        "compression.zstd.level",
        "INT",
        _range(-131072, 22),
        _LEVEL_DOC.format(codec="zstd"),
    ),
    ConfigKey(
        "compression.type",
        "compression.type",
        "STRING",
        _one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        "Codec that batches are stored by; producer: each as it was sent, which is the fastest by far.",
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
    ConfigKey(
        "follower.replication.throttled.replicas",
        None,
        "LIST",
        _replicas,
        "Replicas whose following is throttled, as partition:broker, or * for all.",
    ),
    ConfigKey(
        "leader.replication.throttled.replicas",
        None,
        "LIST",
        _replicas,
        "Replicas whose serving of followers is throttled, as partition:broker, or * for all.",
    ),
    _long(
        "local.retention.bytes",
        "log.local.retention.bytes",
        -2,
        "For tiered storage, which is not here: shown to tools.",
    ),
    _long(
        "local.retention.ms",
        "log.local.retention.ms",
        -2,
        "For tiered storage, which is not here: shown to tools.",
    ),
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
    _boolean(
        "message.downconversion.enable",
        "log.message.downconversion.enable",
        "Whether old clients get batches in old formats; formats before 2 are not served here.",
    ),
    ConfigKey(
        "message.format.version",
        "log.message.format.version",
        "STRING",
        _format_version,
        "Older choice of the stored format; it is always 2.",
    ),
    _long(
        "message.timestamp.difference.max.ms",
        "log.message.timestamp.difference.max.ms",
        0,
        "Older setting for both bounds of timestamps; each of them wins over it.",
    ),
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
        _one_of("CreateTime", "LogAppendTime"),
        "Whose clock stamps the records: the producer's or the broker's.",
    ),
    ConfigKey(
        "min.cleanable.dirty.ratio",
        "log.cleaner.min.cleanable.ratio",
        "DOUBLE",
        _range(0, 1),
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
        "How many replicas, of those that a topic has, must have a batch before acks=all is answered.",
    ),
    _boolean("preallocate", "log.preallocate", "Shown to tools; segments grow as they are written."),
    *(
        ConfigKey(name, None, "BOOLEAN", _local_only, "For tiered storage, which is not here: false.")
        for name in ("remote.log.copy.disable", "remote.log.delete.on.disable", "remote.storage.enable")
    ),
    _long(
        "retention.bytes",
        "log.retention.bytes",
        -LONG_MAX - 1,
        "The size beyond which old segments are deleted; below 0: never.",
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
    *(
        ConfigKey(
            f"confluent.{part}.schema.validation",
            None,
            "BOOLEAN",
            _anything,
            f"Whether a record's {part} must begin with the id of a schema of the subject TOPIC-{part}, or the header "
            f"__{part}_schema_id name one, as confluent.schema.registry.url knows it; the meaning is that of Confluent "
            "Server.",
        )
        for part in ("key", "value")
    ),
    _boolean("acks.fsync", "acks.fsync", "Whether acks=all is answered only after an fsync."),
    _long(
        "counts.bucket.ms",
        "log.counts.bucket.ms",
        0,
        "How wide the buckets of time are in which the broker counts records, into __headwater_counts; 0: it does not.",
    ),
    ConfigKey(
        "expose",
        "expose",
        "STRING",
        _one_of("written", "flushed"),
        "Whether consumers see messages once written, or only once flushed to the disk.",
    ),
)

CONFIG_KEYS: dict[str, ConfigKey] = {key.name: key for key in _KEYS}
"""Every topic-level setting by its name."""

BROKER_DEFAULTS: dict[str, str] = {key.broker_name: key.name for key in _KEYS if key.broker_name is not None}
"""Broker-level names to the topic-level names whose defaults they set."""


def parse_value(name: str, text: str, display_name: str | None = None) -> Value:
    """Reads one setting.

    Args:
        name: Its topic-level name.
        text: Its value.
        display_name: What messages call it, where that is not its name.

    Raises:
        InvalidConfigError: An unknown name or a value that is not allowed.
    """
    key = CONFIG_KEYS.get(name)
    if key is None:
        near = difflib.get_close_matches(name, CONFIG_KEYS, n=1)
        hint = f"; the nearest known one is {near[0]}" if near else ""
        raise InvalidConfigError(f"Unknown topic config name: {name}{hint}")
    problem: str | None
    try:
        value = _READERS[key.kind](trimmed(text))
        problem = key.problem(value)
    except ValueError:
        is_boolean = key.kind == "BOOLEAN"
        problem = (
            "Expected value to be either true or false" if is_boolean else f"Not a number of type {key.kind}"
        )
    if problem is not None:
        raise InvalidConfigError(f"Invalid value {text} for configuration {display_name or name}: {problem}")
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
    "INT": parse_integer,
    "LONG": parse_integer,
    "DOUBLE": parse_decimal,
    "BOOLEAN": _read_boolean,
    "STRING": str,
    "LIST": _read_list,
}
