"""Errors of the streams library, one class for each thing that the caller can do about it."""


class StreamsError(Exception):
    """Base class. The message is one sentence that names the value, where it stood and what was allowed."""


class JobDefinitionError(StreamsError):
    """A job module is wrong: mend the module. Raised while loading or checking, before anything is written."""


class IncompatibleStateError(JobDefinitionError):
    """The job is not what its checkpoint was made with, and going on would corrupt or lose state."""


class SourceReplacedError(IncompatibleStateError):
    """A backfill put other rows in the place of those that the job has read: it can go on once its own table is made
    anew, too, and swapped in."""


class CheckFailedError(StreamsError):
    """A check with `action="fail"` did not hold; the batch was not committed."""


class RowErrorsError(StreamsError):
    """A job's function raises for more records of a batch than may go to quarantine; the batch was not committed."""


class NotComputableError(StreamsError):
    """A job's function raises for what it makes of several rows, so none goes to quarantine; nothing was committed."""


class FailingRowsFoundError(StreamsError):
    """It is known now for which rows of a batch a stateful job's function raises; it is to be run without them."""


class IncompatibleTableError(StreamsError):
    """The target table exists in a shape that the job cannot write."""


class LookupKeyError(StreamsError):
    """A look-up has several rows for one key; the batch was not committed. Mend the table, then start the job again."""


class UnknownNameError(StreamsError):
    """A name by which nothing can be in a home."""


class OwnershipError(StreamsError):
    """Somebody else runs this job, or this driver can no longer prove that it does."""


class LeaseLostError(OwnershipError):
    """The session with the coordinator may be over; claimed anew, the job can go on."""


class SupersededError(StreamsError):
    """The table belongs to another generation of the job now; nothing of the batch was committed."""


class UnavailableError(StreamsError):
    """A broker or the coordinator does not answer now: try again later."""


class DataLossError(StreamsError):
    """Input that the job has not read is gone, or tables and ledger disagree; the message names the range."""
