"""Errors of the streams library, one class for each thing that the caller can do about it."""

from typing import Any


class StreamsError(Exception):
    """Base class. The message is one sentence that names the value, where it stood and what was allowed."""


class JobDefinitionError(StreamsError):
    """A job module is wrong: mend the module. Raised while loading or checking, before anything is written."""


class IncompatibleStateError(JobDefinitionError):
    """The job is not what its checkpoint was made with, and going on would corrupt or lose state."""


class SourceReplacedError(IncompatibleStateError):
    """A backfill replaced rows that the job has read: the job can go on once its own table is rebuilt, too, and swapped
    in."""


class CheckFailedError(StreamsError):
    """A check did not hold that stops the job; the batch was not committed.

    Attributes:
        results: What the checks of the batch came to, `quality.check_result.CheckResult`; empty where nothing keeps it.
    """

    results: tuple[Any, ...] = ()


class RowErrorsError(StreamsError):
    """A job's function raises for more records of a batch than may go to quarantine; the batch was not committed."""


class NotComputableError(StreamsError):
    """A job's function raises for a group, or for rows of earlier batches, so none goes to quarantine; nothing was
    committed."""


class FailingRowsFoundError(StreamsError):
    """The rows of a batch for which a stateful job's function raises are known; the batch is to run without them."""


class IncompatibleTableError(StreamsError):
    """The target table exists in a shape that the job cannot write."""


class LookupKeyError(StreamsError):
    """A look-up has several rows for one key; the batch was not committed. Mend the table, then start the job again."""


class UnknownNameError(StreamsError):
    """A name that nothing in a home can have."""


class OwnershipError(StreamsError):
    """Somebody else runs this job, or this driver can no longer prove that it does."""


class LeaseLostError(OwnershipError):
    """The session with the coordinator may be over; once the lease is claimed again, the job can go on."""


class SupersededError(StreamsError):
    """The table belongs to another generation of the job now; nothing of the batch was committed."""


class UnavailableError(StreamsError):
    """A broker or the coordinator does not answer now: try again later."""


class SparkEndedError(StreamsError):
    """Spark's process has ended, so no job of it can go on: start them again."""


class RefusedError(StreamsError):
    """A broker and this client do not come together: mend the client's settings, or the broker's.

    Attributes:
        topic: The topic that the client may not read; empty where it may ask nothing at all.
    """

    def __init__(self, message: str, topic: str = "") -> None:
        super().__init__(message)
        self.topic = topic


class DataLossError(StreamsError):
    """Input that the job has not read is gone, or tables and ledger disagree; the message names the range."""
