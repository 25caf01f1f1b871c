"""The fixtures `spark` and `drive` for tests of jobs; see `headwater_streams.testing`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater_streams.testing import JobDriver

# For a minute of tiny batches: the first compiler only (the second took a quarter of all CPU time), plans as they are,
# and no batch of Spark's own after the last. With one compiler the JVM has room for 48 MB of code, which a minute of
# tests fills; then nothing is compiled any more, and a JVM was seen to end. Expressions are interpreted: code made and
# compiled for three rows was a quarter of a test's time.
SMALL_BATCHES = {
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # Of the JVM for the driver to fetch a result: 15 s, of which a busy machine was seen to make an error.
    "spark.python.authenticate.socketTimeout": "5m",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Lets tests that use a session pass where warnings are errors."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            # PySpark leaves its gateway's sockets to the garbage collector.
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark session for all tests of a run, with two cores and settings for tiny batches."""
    with session_of_tests(tmp_path_factory.mktemp("spark"), SMALL_BATCHES) as session:
        yield session


@contextmanager
def session_of_tests(folder: Path, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """What the fixture `spark` gives, with settings that win over Headwater's."""
    from headwater.stack.session import spark_session

    session = spark_session(folder, app_name="headwater jobs test", cores=2, extra=settings)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def drive(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., JobDriver]]:
    """Makes a `headwater_streams.testing.JobDriver` over the given jobs, with tables of the test's own."""
    with driving(spark, tmp_path) as make:
        yield make


@contextmanager
def driving(spark: SparkSession, folder: Path) -> Iterator[Callable[..., JobDriver]]:
    """What the fixture `drive` gives; the session keeps nothing of the folder's tables behind it."""
    from headwater_streams.spark.delta_log import forget_logs
    from headwater_streams.testing import JobDriver

    def make(*jobs: Any) -> JobDriver:
        return JobDriver(spark, folder, jobs)

    yield make
    forget_logs(spark)
