"""Waits for what running jobs do."""

import time
from collections.abc import Callable

from headwater_streams.runtime.runner import JobRunner


def watch_until(runner: JobRunner, done: Callable[[], bool], *, within_s: float = 240) -> None:
    """Watches a runner until something has come about, and fails where it does not."""
    deadline = time.monotonic() + within_s
    while not done():
        assert time.monotonic() < deadline, f"the jobs do not get on; batches: {runner.batches}"
        runner.watch(0.1)
