"""Errors of Spark as messages for people."""

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import PurePath
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException, PythonException

JvmError = Py4JJavaError
"""What PySpark raises for an exception of the JVM that it has no class for."""
AnyJvmError = Py4JError
"""The same, or the error where the JVM has ended."""

_OF_VALUES = re.compile(
    r"(?:org\.apache\.spark\.Spark(?:Arithmetic|ArrayIndexOutOfBounds|DateTime|IllegalArgument|NoSuchElement"
    r"|NumberFormat|Runtime)|org\.apache\.spark\.api\.python\.Python)Exception"
)
_OF_A_STOP = re.compile(r"java\.lang\.InterruptedException|java\.nio\.channels\.ClosedByInterruptException")
_CANCELLED = re.compile(r"\[SPARK_JOB_CANCELLED\]|cancelled because SparkContext was shut down")
_GONE = re.compile(r"FAILED_READ_FILE\.FILE_NOT_EXIST\].*? reading file (?:file:/*(?=/))?(\S+?)\.? ")
_MOST_CAUSES = 10
_END_OF_STREAM = "java.io.EOFException"
_OF_PYTHON = re.compile(r"org\.apache\.spark\.api\.python\.PythonException\b")
_TRACEBACK = "Traceback (most recent call last):"
"""The first line of an exception of a user's Python in Spark 4.1. In 4.2 a sentence precedes it, and a code follows."""
_CODE = re.compile(r"\s*SQLSTATE: \w+\Z")
_PLACE = re.compile(r'File "([^"]+)", line (\d+)')


def first_sentence(error: PySparkException) -> str:
    """The error's first line, without its code."""
    message = (error.getMessage() or str(error)).strip().splitlines()[0]
    return message.split(" SQLSTATE")[0]


def reason_of(error: BaseException) -> str | None:
    """Why rows could not be computed, in a line, where the error itself only says where in Spark that was.

    For an exception in a user's Python it is that exception, with the line that raised it.
    """
    if isinstance(error, PythonException):
        return _of_python(str(error))
    if not isinstance(error, Py4JJavaError):
        return None
    *outer, innermost = _causes(error)
    text = _said_by(innermost)
    if outer and text == _END_OF_STREAM:  # a Python worker has ended: the outer error says so
        text = str(outer[-1].getMessage() or text).strip()
    if text.startswith(_TRACEBACK) or (_OF_PYTHON.match(str(innermost.toString())) and _TRACEBACK in text):
        return _of_python(text)
    return text.splitlines()[0].split(" SQLSTATE")[0]


def row_error_message(error: BaseException) -> str:
    """What the computation of a row raised: the error's class and message, in a line."""
    if isinstance(error, PySparkException) and not isinstance(error, PythonException):
        return first_sentence(error)
    return reason_of(error) or f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"


def raised_for_values(error: BaseException) -> str | None:
    """What an expression or a function raised for its arguments, in a line; None for any other error."""
    return row_error_message(error) if is_of_values(error) else None


def is_of_a_stop(error: BaseException) -> bool:
    """Whether a job of Spark's was cancelled, or its thread interrupted, because a query or the session stops."""
    if is_of_values(error):
        return False
    return any(map(_OF_A_STOP.fullmatch, _classes(error))) or bool(_CANCELLED.search(full_text(error)))


def is_of_values(error: BaseException) -> bool:
    """Whether an expression or a function raised for its arguments.

    The classes of the exceptions decide, not their messages: a message may quote a value, and a value may be a line of
    a log that names any exception.
    """
    return isinstance(error, PythonException) or any(map(_OF_VALUES.fullmatch, _classes(error)))


def missing_file(error: BaseException) -> str | None:
    """The data file whose absence an error is about; None where it is about something else."""
    texts = [str(error)]
    if isinstance(error, Py4JJavaError):
        texts += [str(cause.toString()) for cause in _causes(error)]
    return next((match[1] for text in texts if (match := _GONE.search(text))), None)


def full_text(error: BaseException) -> str:
    """An error's whole text, with those of the JVM's exceptions that caused it."""
    parts = [str(error), *_first_causes(error)]
    if error.__cause__ is not None:
        parts.append(full_text(error.__cause__))
    return "\n".join(parts)


def last_cause(error: BaseException) -> str | None:
    """What the innermost of the JVM's exceptions says, in a line; None for an error of Python."""
    causes = [*_causes(error)]
    return _said_by(causes[-1]).splitlines()[0] if causes else None


def _classes(error: BaseException) -> list[str]:
    """The names of the JVM's classes of an error and its causes, outermost first; none of an error of Python."""
    return [text.partition(":")[0].strip() for text in _first_causes(error)]


def _first_causes(error: BaseException) -> list[str]:
    """What the JVM's outermost exceptions are, and say."""
    return [str(java.toString()) for java in islice(_causes(error), _MOST_CAUSES)]


def _said_by(exception: Any) -> str:
    return str(exception.getMessage() or exception.toString()).strip()


def _causes(error: BaseException) -> Iterator[Any]:
    """The JVM's exceptions that an error came from, outermost first; none for an error of Python."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while java is not None and hasattr(java, "getCause"):
        yield java
        java = java.getCause()


def _of_python(text: str) -> str:
    """The exception at the end of a traceback, and the last place in it that is not Spark's."""
    lines = _CODE.sub("", text.split("JVM stacktrace:", maxsplit=1)[0].rstrip()).splitlines()
    ends = [
        n
        for n, line in enumerate(lines)
        if re.match(r"\w[\w.]*(Error|Exception|Warning|Exit|Interrupt)\b", line)
    ]
    message = lines[ends[-1]].strip() if ends else lines[-1].strip()
    places = [match for line in lines if (match := _PLACE.search(line)) and "pyspark" not in match[1]]
    return f"{PurePath(places[-1][1]).name}, line {places[-1][2]}: {message}" if places else message
