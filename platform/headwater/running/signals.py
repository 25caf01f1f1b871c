"""SIGINT and SIGTERM as a request to stop at the next batch boundary."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stop_requested() -> Iterator[threading.Event]:
    """An event that a signal sets while the block runs; a second signal ends the process as usual."""
    event = threading.Event()
    before: dict[int, Any] = {}

    def request(number: int, _frame: object) -> None:
        event.set()
        signal.signal(number, before[number])

    for number in (int(signal.SIGINT), int(signal.SIGTERM)):
        before[number] = signal.signal(number, request)
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
