"""An exception in a Python worker reaches the JVM whatever its text is."""

import io
import subprocess
import sys

import pytest
from pyspark.serializers import SpecialLengths, read_int

from headwater_streams.spark.python_daemon import handle_worker_exception


class _SilentError(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("no é"), "ValueError: no é"),
        (ValueError("no \ud800x"), "ValueError: no \\ud800x"),
        (KeyError(None), "KeyError: None"),
        (_SilentError(), "_SilentError: <exception str() failed>"),
    ],
)
def test_exception_is_written_whole(error: Exception, told: str) -> None:
    written = io.BytesIO()
    try:
        raise error
    except Exception as caught:
        handle_worker_exception(caught, written)
    written.seek(0)
    assert read_int(written) == SpecialLengths.PYTHON_EXCEPTION_THROWN
    text = written.read(read_int(written)).decode()
    assert text.startswith("Traceback")
    assert text.rstrip().endswith(told)
    assert written.read() == b""


def test_workers_write_their_exceptions_so() -> None:
    told = (
        "import headwater_streams.spark.python_daemon as ours, pyspark.daemon, pyspark.worker as worker\n"
        "print(worker.handle_worker_exception is ours.handle_worker_exception)"
    )
    found = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert found.stdout == "True\n"
