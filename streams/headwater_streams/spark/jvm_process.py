"""The process of PySpark's JVM: how it starts, and how it ends."""

import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def java_ends_with_python() -> Iterator[None]:
    """Starts the JVM so that it ignores SIGTERM, which a whole process group or service gets at once: it would else end
    before the batch that a job finishes. It ends when its standard input does: with Python, however that ends."""
    java_gateway: Any = import_module("pyspark.java_gateway")  # which has no types
    popen = java_gateway.Popen

    def launch(
        command: list[str], *, preexec_fn: Callable[[], None], **options: Any
    ) -> "subprocess.Popen[bytes]":
        def before_exec() -> None:
            preexec_fn()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

        process: subprocess.Popen[bytes] = popen(command, preexec_fn=before_exec, **options)
        return process

    java_gateway.Popen = launch
    try:
        yield
    finally:
        java_gateway.Popen = popen


def end_in_good_order(spark: "SparkSession") -> None:
    """Stops a session and closes its JVM's input, at which it ends; only so does it write its archive of classes."""
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - PySpark's only door to the process
    spark.stop()
    gateway.proc.stdin.close()
    gateway.proc.wait()
