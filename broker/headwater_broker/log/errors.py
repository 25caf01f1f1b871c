"""What can go wrong in the log, by what the caller can do about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self


class LogError(Exception):
    """Base of every error that this package raises on purpose."""


class InvalidBatchError(LogError):
    """The sender's fault: this batch can never be stored; nothing was changed.

    Attributes:
        records: Which of its records are at fault, by their number, and why; empty where it is the whole batch.
    """

    def __init__(self, message: str, records: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(message)
        self.records = records


class CorruptBatchError(InvalidBatchError):
    """Not one whole batch, or its checksum does not match; sent again, it may arrive whole."""


class UnsupportedMagicError(InvalidBatchError):
    """The batch is of message format 0 or 1; only format 2 is stored."""


class UnsupportedCodecError(LogError):
    """The client's version does not have the codec of the records."""


class InvalidRecordError(InvalidBatchError):
    """The batch contradicts itself, or holds what a client may not send."""


class RecordTooLargeError(InvalidBatchError):
    """The batch is larger than `max.message.bytes`."""


class BatchTooLargeError(InvalidBatchError):
    """The batch is larger than a whole segment."""


class InvalidTimestampError(InvalidBatchError):
    """A timestamp is further from the broker's clock than the topic allows."""


class ProducerStateError(LogError):
    """The idempotent producer's batch does not follow what this partition holds of it."""


class OutOfOrderSequenceError(ProducerStateError):
    """A batch before this one is missing."""


class InvalidProducerEpochError(ProducerStateError):
    """A newer instance of the same producer has written: this one is fenced."""


class InvalidTransactionStateError(ProducerStateError):
    """The producer's transaction does not allow this batch: it has one open, or has none."""


class CoordinatorFencedError(ProducerStateError):
    """A newer transaction coordinator has written a marker for this producer."""


class SchemasUnavailableError(LogError):
    """It is not known yet whether a subject has the id of a schema; the same batch may be taken a little later."""


class OffsetOutOfRangeError(LogError):
    """The offset is before the log's start or past its end.

    Attributes:
        log_start_offset: The first offset that can be read.
        log_end_offset: The offset that the next record will get.
    """

    def __init__(self, message: str, log_start_offset: int, log_end_offset: int) -> None:
        super().__init__(message)
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset


class MissingOffsetsError(OffsetOutOfRangeError):
    """The offset is one of those that the log has lost, as a file is gone or short.

    Attributes:
        next_offset: The first one after it that there is.
    """

    def __init__(self, message: str, log_start_offset: int, log_end_offset: int, next_offset: int) -> None:
        super().__init__(message, log_start_offset, log_end_offset)
        self.next_offset = next_offset


class PartitionOfflineError(LogError):
    """This partition cannot be read or written until somebody mends its disk and restarts the broker."""

    def again(self) -> Self:
        """The same error, to be raised.

        An error refers to the frames that it went through, and so to all that these hold. One that a partition keeps
        and raises itself would keep requests, flushes and their open files with it.
        """
        return type(self)(*self.args)


class CorruptLogError(PartitionOfflineError):
    """Bytes that were once safe on disk are not what was written."""


class StorageError(PartitionOfflineError):
    """The operating system refused a read or a write."""


class LogDirError(LogError):
    """A log directory cannot be used as it is: a message for the operator at start-up."""


class LogDirLockedError(LogDirError):
    """Another broker is running on this log directory."""


class InconsistentIdentityError(LogDirError):
    """The log directory belongs to another broker id or another cluster."""


class InvalidConfigError(LogError):
    """A topic setting is unknown or its value not allowed; the message says what is near or allowed."""
