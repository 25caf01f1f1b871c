"""How PySpark's JVM is started: with which environment, and what happens to signals meanwhile."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from headwater.stack.java import Java, launch_home


@contextmanager
def launch_environment(java: Java, *, here: bool) -> Iterator[None]:
    """Sets what PySpark reads from the environment when it starts its JVM, and restores it after the block."""
    import pyspark

    variables = {
        "JAVA_HOME": str(launch_home(java, os.environ)),
        # Another Spark on this machine must not lend its jars to this PySpark.
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
        "PYSPARK_DRIVER_PYTHON": os.environ.get("PYSPARK_DRIVER_PYTHON", sys.executable),
    }
    if here:
        variables["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def interrupted_afterwards() -> Iterator[Callable[[], None]]:
    """Delays a Ctrl-C until the JVM has started; a second one interrupts at once.

    py4j, interrupted in the middle of an answer, would end in the stack traces of three errors. A background process of
    a shell without job control ignores the signal, and still does after the block.

    Yields:
        A function that takes the signal back from a library that has taken it in the block.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is None:
        yield lambda: None
        return
    requests: list[int] = []

    def request(number: int, _frame: FrameType | None) -> None:
        if requests:
            raise KeyboardInterrupt
        requests.append(number)

    def take() -> None:
        signal.signal(signal.SIGINT, request if callable(before) else before)

    take()
    try:
        yield take
    finally:
        signal.signal(signal.SIGINT, before)
    if requests:
        raise KeyboardInterrupt
