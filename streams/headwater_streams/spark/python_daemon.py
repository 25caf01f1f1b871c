"""Spark's daemon of Python workers, of which an error of any text arrives: `spark.python.daemon.module`.

PySpark writes a number that announces an exception, and encodes the exception's text as UTF-8 behind that. Of a text
with half of a surrogate pair, as a function's error may quote it from a record, only the number arrives: the JVM waits
for the text, the worker for the JVM to close the connection, and the batch does not end, nor does a retry of it. Here
what UTF-8 cannot have is written as its escape. (Seen with PySpark 4.1: `pyspark.util.handle_worker_exception` and
`pyspark.daemon`.)
"""

import io
import traceback
from contextlib import suppress
from typing import Any

from pyspark import util
from pyspark.serializers import SpecialLengths, write_int, write_with_length

_handle = util.handle_worker_exception
_NUMBER_BYTES = 4


def handle_worker_exception(e: BaseException, outfile: Any, hide_traceback: bool | None = None) -> None:
    """Writes an exception as PySpark does, and its text in escapes where PySpark cannot."""
    told = io.BytesIO()
    _handle(e, told, hide_traceback)
    if len(told.getvalue()) <= _NUMBER_BYTES:
        told = io.BytesIO()
        text = "".join(traceback.format_exception(e)).encode("utf-8", "backslashreplace")
        write_int(SpecialLengths.PYTHON_EXCEPTION_THROWN, told)  # type: ignore[no-untyped-call]
        write_with_length(text, told)  # type: ignore[no-untyped-call]
    with suppress(OSError):  # the JVM has closed the connection
        outfile.write(told.getvalue())


util.handle_worker_exception = handle_worker_exception  # before the workers' own module takes it from there

if __name__ == "__main__":
    from pyspark.daemon import manager

    manager()  # type: ignore[no-untyped-call]
