"""What is told of an error of Spark's, by the causes that it has."""

from dataclasses import dataclass

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PythonException

from headwater_streams.runtime.faults import away, passes, speaks_of_loss
from headwater_streams.spark.spark_errors import is_of_a_stop, raised_for_values, row_error_message


@dataclass
class _Thrown:
    """An exception of Java's as py4j gives it."""

    kind: str
    message: str | None
    cause: "_Thrown | None" = None
    _target_id: str = "o1"

    def getMessage(self) -> str | None:
        return self.message

    def getCause(self) -> "_Thrown | None":
        return self.cause

    def toString(self) -> str:
        return self.kind if self.message is None else f"{self.kind}: {self.message}"


def _told(thrown: _Thrown) -> str:
    return row_error_message(Py4JJavaError("An error occurred while calling o1.save", thrown))


def test_innermost_cause_is_told() -> None:
    inner = _Thrown(
        "java.lang.ArithmeticException", "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\nmore"
    )
    assert _told(_Thrown("SparkException", "Job aborted", inner)) == "[DIVIDE_BY_ZERO] Division by zero."
    assert _told(_Thrown("SparkException", "Job", _Thrown("java.lang.NullPointerException", None))) == (
        "java.lang.NullPointerException"
    )


def test_python_worker_that_ended_is_told_as_that() -> None:
    ended = _Thrown("java.io.EOFException", None)
    crashed = _Thrown("SparkException", "Python worker exited unexpectedly (crashed)", ended)
    assert _told(_Thrown("SparkException", "Job aborted", crashed)) == crashed.message
    assert _told(ended) == "java.io.EOFException"


def _of(*thrown: tuple[str, str]) -> Py4JJavaError:
    """An error with these classes and messages, outermost first."""
    cause: _Thrown | None = None
    for kind, message in reversed(thrown):
        cause = _Thrown(kind, message, cause)
    return _OfTheJvmError("An error occurred while calling o1.save", cause)


class _OfTheJvmError(Py4JJavaError):
    """Whose text is asked of the JVM: the stack traces of all causes."""

    def __str__(self) -> str:
        texts, java = [], self.java_exception
        while java is not None:
            texts.append(java.toString())
            java = java.getCause()
        return "\nCaused by: ".join(texts)


ABORTED = ("org.apache.spark.SparkException", "Job aborted due to stage failure: Task 0 in stage 1.0 failed")
LINES = (
    "ERROR java.net.ConnectException: Connection refused",
    "org.apache.kafka.common.errors.TimeoutException: Timeout of 60000ms expired",
    "java.lang.IllegalStateException: Cannot fetch offset 3 (GAP_IN), some data may have been lost",
    "Job 7 cancelled because SparkContext was shut down",
    "[SPARK_JOB_CANCELLED] Job 7 cancelled as part of cancellation of all jobs",
    "Traceback (most recent call last):",
)


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize(
    "kind", ["SparkNumberFormatException", "SparkDateTimeException", "SparkRuntimeException"]
)
def test_what_a_value_says_is_no_fault_of_the_broker_and_no_stop(kind: str, line: str) -> None:
    value = f'[CAST_INVALID_INPUT] The value \'{line}\' of the type "STRING" cannot be cast to "INT"'
    error = _of(ABORTED, (f"org.apache.spark.{kind}", value))
    assert raised_for_values(error) == value
    assert (away(error), passes(error), speaks_of_loss(error), is_of_a_stop(error)) == (
        None,
        False,
        False,
        False,
    )


@pytest.mark.parametrize("line", LINES)
def test_what_a_python_function_says_of_a_record_is_no_fault_of_the_broker(line: str) -> None:
    error = PythonException(f'  File "jobs.py", line 3, in parse\nValueError: no number: {line}', "trace")
    assert raised_for_values(error) == f"jobs.py, line 3: ValueError: no number: {line}"
    assert (away(error), passes(error), speaks_of_loss(error), is_of_a_stop(error)) == (
        None,
        False,
        False,
        False,
    )


def test_what_the_broker_s_client_raises_passes() -> None:
    error = _of(ABORTED, ("java.net.ConnectException", "Connection refused"))
    assert (away(error), passes(error), raised_for_values(error)) == (
        "java.net.ConnectException: Connection refused",
        True,
        None,
    )
    lost = _of(ABORTED, ("java.lang.IllegalStateException", "Cannot fetch: some data may have been lost"))
    assert speaks_of_loss(lost)


@pytest.mark.parametrize(
    "thrown",
    [
        (("java.lang.InterruptedException", "sleep interrupted"),),
        (ABORTED, ("java.nio.channels.ClosedByInterruptException", "closed")),
        (
            (
                "org.apache.spark.SparkException",
                "[SPARK_JOB_CANCELLED] Job 3 cancelled part of cancelled job group x",
            ),
        ),
        (("org.apache.spark.SparkException", "Job 3 cancelled because SparkContext was shut down"),),
    ],
)
def test_job_that_a_stop_cancelled_is_told_from_rows_that_raise(thrown: tuple[tuple[str, str], ...]) -> None:
    error = _of(*thrown)
    assert is_of_a_stop(error)
    assert raised_for_values(error) is None
    assert not passes(error)


_TRACEBACK = """Traceback (most recent call last):
  File "/venv/pyspark/worker.py", line 9, in main
    process()
  File "/app/jobs/delays.py", line 7, in minutes
    return int(text)
ValueError: invalid literal: 'ten'
"""


@pytest.mark.parametrize(
    "message",
    [
        _TRACEBACK,
        f"[PYTHON_EXCEPTION] An exception was thrown from the Python worker: {_TRACEBACK} SQLSTATE: 38000",
        f"[PYTHON_EXCEPTION] An exception was thrown: {_TRACEBACK.rstrip()} SQLSTATE: 38000",
    ],
    ids=["Spark 4.1", "Spark 4.2", "Spark 4.2, without an end of line"],
)
def test_exception_in_a_users_python_is_told_with_its_line(message: str) -> None:
    inner = _Thrown("org.apache.spark.api.python.PythonException", message)
    line = _told(_Thrown("SparkException", "Job aborted", inner))
    assert line == "delays.py, line 7: ValueError: invalid literal: 'ten'"
