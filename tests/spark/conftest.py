"""One Spark session for all tests of this folder, and a driver for jobs."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headwater.stack.session import spark_session
from headwater_streams.testing import JobDriver

# For a minute of tiny batches: the first compiler only (the second took a quarter of all CPU time), plans as they are.
_SMALL_BATCHES = {
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # PySpark leaves its gateway's sockets to the garbage collector.
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
            item.add_marker(pytest.mark.spark)
            # A time-out in the middle of a call to the JVM leaves its answer to the next test, and all fail after it.
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = spark_session(tmp_path_factory.mktemp("spark"), app_name="tests", cores=2, extra=_SMALL_BATCHES)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def drive(spark: SparkSession, tmp_path: Path) -> Callable[..., JobDriver]:
    """Makes a driver over the given jobs, in a home of the test's own."""

    def make(*jobs: Any) -> JobDriver:
        return JobDriver(spark, tmp_path, jobs)

    return make
