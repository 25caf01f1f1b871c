"""One Spark session for all tests of this folder, and a driver for jobs: the fixtures of `headwater jobs test`."""

from pathlib import Path

import pytest

from headwater.running.pytest_plugin import drive, spark

__all__ = ["drive", "spark"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # PySpark leaves its gateway's sockets to the garbage collector.
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
            item.add_marker(pytest.mark.spark)
            # A time-out in the middle of a call to the JVM leaves its answer to the next test, and all fail after it.
            item.add_marker(pytest.mark.timeout(900))
