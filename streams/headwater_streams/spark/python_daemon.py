"""Spark's daemon of Python workers (`spark.python.daemon.module`), with errors of any text.

PySpark writes a number that announces an exception, then the exception's text as UTF-8. A function's error may quote
half of a surrogate pair from a record; then only the number arrives. The JVM waits for the text, the worker waits for
the JVM to close the connection, and the batch does not end, nor does a retry of it. Here characters that UTF-8 cannot
encode are written as escapes. (Seen with PySpark 4.1 and 4.2: `pyspark.util.handle_worker_exception` and
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
    buffer = io.BytesIO()
    _handle(e, buffer, hide_traceback)
    if len(buffer.getvalue()) <= _NUMBER_BYTES:
        buffer = io.BytesIO()
        text = "".join(traceback.format_exception(e)).encode("utf-8", "backslashreplace")
        write_int(SpecialLengths.PYTHON_EXCEPTION_THROWN, buffer)  # type: ignore[no-untyped-call]
        write_with_length(text, buffer)  # type: ignore[no-untyped-call]
    with suppress(OSError):  # the JVM has closed the connection
        outfile.write(buffer.getvalue())


util.handle_worker_exception = handle_worker_exception  # before the workers' own module takes it from there

if __name__ == "__main__":
    from pyspark.daemon import manager

    manager()  # type: ignore[no-untyped-call, unused-ignore]  # typed since Spark 4.2
