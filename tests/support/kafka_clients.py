"""Clients of librdkafka in the tests' own process, and whether one is left that nobody closed."""

from functools import cache
from pathlib import Path

from confluent_kafka.admin import AdminClient

QUIET = {"log_level": 0}


@cache
def admin_of(bootstrap: str) -> AdminClient:
    """An admin client until the test ends: one that is collected earlier leaves its answers open for ever."""
    return AdminClient({"bootstrap.servers": bootstrap, **QUIET})


def running_clients() -> int:
    """How many clients run: each has a thread of this name, which Linux tells."""
    return sum(_text(task / "comm") == "rdk:main\n" for task in Path("/proc/self/task").glob("*"))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # the thread has ended
        return ""
