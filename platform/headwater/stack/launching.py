"""How PySpark's JVM is started: with what environment, and what becomes of the signals that come."""

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
    """What PySpark reads from the environment when it starts its JVM; afterwards all is as it was."""
    import pyspark

    wanted = {
        "JAVA_HOME": str(launch_home(java, os.environ)),
        # Another Spark on this machine must not lend its jars to this PySpark.
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
        "PYSPARK_DRIVER_PYTHON": os.environ.get("PYSPARK_DRIVER_PYTHON", sys.executable),
    }
    if here:
        wanted["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
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
    """A Ctrl-C while the JVM starts is obeyed once it has, or at the second one.

    py4j, in the middle of an answer, would end in the stack traces of three errors. A process in the background, of a
    shell without job control, ignores the signal, and does so still after the block.

    Yields:
        What takes the signal back from a library that has taken it in the block.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is None:
        yield lambda: None
        return
    asked: list[int] = []

    def ask(number: int, _frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    def take() -> None:
        signal.signal(signal.SIGINT, ask if callable(before) else before)

    take()
    try:
        yield take
    finally:
        signal.signal(signal.SIGINT, before)
    if asked:
        raise KeyboardInterrupt
