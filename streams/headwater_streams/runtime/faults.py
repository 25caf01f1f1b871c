"""Which faults pass by themselves, and which stay until somebody changes something."""

import errno
import re

from pyspark.errors import AnalysisException

from headwater_streams.base.errors import (
    FailingRowsFoundError,
    JobDefinitionError,
    LeaseLostError,
    RefusedError,
    SourceReplacedError,
    StreamsError,
    SupersededError,
    UnavailableError,
)
from headwater_streams.delta.delta_table import conflicts
from headwater_streams.runtime.restarts import Fault
from headwater_streams.spark.spark_errors import full_text, is_of_values

# Classes of Kafka's Java client and of the JVM, as they stand in Spark's messages and stack traces.
_AWAY = re.compile(
    r"org\.apache\.kafka\.common\.errors\.(Timeout|Disconnect|Network|NotLeaderOrFollower|LeaderNotAvailable|"
    r"BrokerNotAvailable|CoordinatorNotAvailable|KafkaStorage|UnknownServer)Exception"
    r"|Timeout of [\d.]+ ?ms expired|Timed out waiting for a node assignment|timed out at \d+ after \d+ attempt"
    r"|Call\(callName=\w+[^)]*\) timed out|Cannot fetch record for offset \d+ in \d+ milliseconds"
    r"|No resolvable bootstrap urls|java\.net\.(Connect|Socket|NoRouteToHost|UnknownHost)Exception"
)
# What a machine lacks for a while, in the words of the system, of the JVM and of Spark.
_SHORT = re.compile(
    r"No space left on device|Disk quota exceeded|Too many open files|ExecutorLostFailure|Lost executor \d+"
)
_SHORT_OF = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)
_REFUSED = re.compile(
    r"org\.apache\.kafka\.common\.errors\.((?:SaslAuthentication|SslAuthentication|UnsupportedSaslMechanism"
    r"|IllegalSaslState|(?:Topic|Group|Cluster)Authorization)Exception: [^\n]*)"
    r"|org\.apache\.kafka\.common\.config\.(ConfigException: (?!No resolvable bootstrap urls)[^\n]*)"
)
_LOST = re.compile(
    r"DATA_LOSS|data may have been (lost|missed)|OffsetOutOfRangeException|UnknownTopicOrPartitionException"
    r"|Some of partitions .* do not exist|GAP_IN|INCORRECT_START_OFFSET|INITIAL_OFFSET_NOT_FOUND"
)


def passes(error: BaseException) -> bool:
    """Whether the fault goes away without the job, so that it may be tried again: nothing of it was committed."""
    if isinstance(error, UnavailableError | LeaseLostError | SourceReplacedError):
        return True
    if isinstance(error, StreamsError):
        return False
    if refused(error) is not None:
        return False
    return isinstance(error, conflicts()) or away(error) is not None or _is_short(error)


def fault_of(error: BaseException, *, has_run: bool) -> Fault:
    """What an error means for another start of a job.

    Args:
        error: What ended its query, or kept it from starting.
        has_run: Whether the job was started before by the same command. One that a person starts behind a rebuild of
            its source is refused; one that ran when the rebuild was swapped in waits for its own.
    """
    if isinstance(error, SupersededError | FailingRowsFoundError):
        return Fault.AGAIN
    if isinstance(error, SourceReplacedError):
        return Fault.PASSES if has_run else Fault.REFUSED
    if isinstance(error, JobDefinitionError):
        return Fault.REFUSED
    if isinstance(error, RefusedError) and has_run:  # a broker that starts may know no users and no ACLs yet
        return Fault.UNKNOWN
    if passes(error):
        return Fault.PASSES
    is_typed = isinstance(error, StreamsError | AnalysisException)
    stays = is_typed or is_of_values(error) or speaks_of_loss(error)
    return Fault.STAYS if stays else Fault.UNKNOWN


def _is_short(error: BaseException) -> bool:
    """Whether the machine lacks something that it may have again: room on a disk, files, an executor."""
    if isinstance(error, OSError) and error.errno in _SHORT_OF:
        return True
    return bool(_SHORT.search(full_text(error))) and not is_of_values(
        error
    )  # which may quote a line of a log


def away(error: BaseException) -> str | None:
    """What an error says of a broker that does not answer, without the classes around it; None if it says nothing."""
    text = full_text(error)
    match = _AWAY.search(text)
    if match is None or is_of_values(error):  # whose message may quote a line of a log
        return None
    line = text[match.start() :].splitlines()[0]
    return line.removeprefix("org.apache.kafka.common.errors.").strip()


def refused(error: BaseException) -> str | None:
    """What Kafka's client in Spark says of a broker that refuses it, or of its own settings; None if it says nothing of
    the kind. No row caused it."""
    if isinstance(error, StreamsError):
        return None
    match = _REFUSED.search(full_text(error))
    if match is None or is_of_values(error):  # whose message may quote a line of a log
        return None
    return (match[1] or match[2]).strip()


def speaks_of_loss(error: BaseException) -> bool:
    """Whether Spark says that input is gone; it does not say which range."""
    if isinstance(error, StreamsError) or not _LOST.search(full_text(error)):
        return False
    return not is_of_values(error)  # whose message may quote a line of a log
