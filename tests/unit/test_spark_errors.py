"""What is told of an error of Spark's, by the causes that it has."""

from dataclasses import dataclass

from py4j.protocol import Py4JJavaError

from headwater_streams.spark.spark_errors import row_error_message


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
