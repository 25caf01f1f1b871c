"""The partition log: Kafka's files on disk, and what may be read from them.

Start with `LogManager`, which opens every partition of a broker, and `PartitionLog`.
"""

from headwater_broker.log.clock import Clock, SystemClock
from headwater_broker.log.config import (
    BROKER_DEFAULTS,
    CONFIG_KEYS,
    ConfigKey,
    LogConfig,
    format_value,
    parse_value,
)
from headwater_broker.log.errors import (
    CorruptBatchError,
    CorruptLogError,
    InconsistentIdentityError,
    InvalidBatchError,
    InvalidConfigError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTimestampError,
    LogDirError,
    LogDirLockedError,
    LogError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    PartitionOfflineError,
    ProducerStateError,
    RecordTooLargeError,
    StorageError,
    UnsupportedMagicError,
)
from headwater_broker.log.flush import Flush
from headwater_broker.log.fs import FileSystem, OsFileSystem
from headwater_broker.log.manager import LogManager
from headwater_broker.log.partition import PartitionLog
from headwater_broker.log.results import Appended, EpochEnd, FileRange, Isolation, TimestampAndOffset

__all__ = [
    "BROKER_DEFAULTS",
    "CONFIG_KEYS",
    "Appended",
    "Clock",
    "ConfigKey",
    "CorruptBatchError",
    "CorruptLogError",
    "EpochEnd",
    "FileRange",
    "FileSystem",
    "Flush",
    "InconsistentIdentityError",
    "InvalidBatchError",
    "InvalidConfigError",
    "InvalidProducerEpochError",
    "InvalidRecordError",
    "InvalidTimestampError",
    "Isolation",
    "LogConfig",
    "LogDirError",
    "LogDirLockedError",
    "LogError",
    "LogManager",
    "OffsetOutOfRangeError",
    "OsFileSystem",
    "OutOfOrderSequenceError",
    "PartitionLog",
    "PartitionOfflineError",
    "ProducerStateError",
    "RecordTooLargeError",
    "StorageError",
    "SystemClock",
    "TimestampAndOffset",
    "UnsupportedMagicError",
    "format_value",
    "parse_value",
]
