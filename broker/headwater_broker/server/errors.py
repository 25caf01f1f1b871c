"""The server's errors, and the one place where errors of the layers below become Kafka's codes."""

from kio.schema.errors import ErrorCode

from headwater_broker import coordination, log
from headwater_broker.transactions import TransactionRefused


class ServerError(Exception):
    """Base of every error that this package raises; a message for whoever starts the broker."""

    exit_status = 1


class UsageError(ServerError):
    """The command line or a property is wrong."""

    exit_status = 2


class PortInUseError(ServerError):
    """Another process listens on the port."""

    exit_status = 3


class CoordinatorError(ServerError):
    """ZooKeeper cannot be reached, or refuses this broker."""

    exit_status = 4


class ApiError(Exception):
    """An answer that is an error code.

    Attributes:
        code: Kafka's code.
    """

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message)
        self.code = code


_CODES: tuple[tuple[type[Exception], ErrorCode], ...] = (
    (log.CorruptBatchError, ErrorCode.corrupt_message),
    (log.UnsupportedCodecError, ErrorCode.unsupported_compression_type),
    (log.UnsupportedMagicError, ErrorCode.unsupported_for_message_format),
    (log.RecordTooLargeError, ErrorCode.message_too_large),
    (log.BatchTooLargeError, ErrorCode.record_list_too_large),
    (log.InvalidTimestampError, ErrorCode.invalid_timestamp),
    (log.InvalidBatchError, ErrorCode.invalid_record),
    (log.OutOfOrderSequenceError, ErrorCode.out_of_order_sequence_number),
    (log.InvalidProducerEpochError, ErrorCode.invalid_producer_epoch),
    (log.InvalidTransactionStateError, ErrorCode.invalid_txn_state),
    (log.CoordinatorFencedError, ErrorCode.transaction_coordinator_fenced),
    (log.OffsetOutOfRangeError, ErrorCode.offset_out_of_range),
    # A code that every producer sends again for; Kafka has none for this.
    (log.SchemasUnavailableError, ErrorCode.not_enough_replicas),
    (log.PartitionOfflineError, ErrorCode.kafka_storage_error),
    (log.InvalidConfigError, ErrorCode.invalid_config),
    (log.LogError, ErrorCode.unknown_server_error),
    (coordination.AlreadyExists, ErrorCode.topic_already_exists),
    (coordination.DoesNotExist, ErrorCode.unknown_topic_or_partition),
)


def error_code(error: Exception) -> ErrorCode:
    """Kafka's code for an error of the log, of the shared state, of transactions or of an API."""
    if isinstance(error, ApiError):
        return error.code
    if isinstance(error, TransactionRefused):
        return ErrorCode[error.error.name.lower()]
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    if isinstance(error, coordination.CoordinationError) and error.retriable:
        return ErrorCode.request_timed_out
    return ErrorCode.unknown_server_error
