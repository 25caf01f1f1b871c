"""One Spark session for all tests of this folder, and a driver for jobs: the fixtures of `headwater jobs test`."""

import gc
import re
import shutil
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

import headwater as hw
from headwater.running.pytest_plugin import SMALL_BATCHES, drive, session_of_tests
from headwater_streams.base.names import quoted
from headwater_streams.sources.coordinates import RAW_SCHEMA
from headwater_streams.sources.decode import BAD, VALUE, RecordDecoder, value_schema
from headwater_streams.sources.problems import PROBLEMS
from headwater_streams.testing import JobDriver
from ready_homes import ready_home, remove_old_homes

__all__ = ["drive"]

Decoded = tuple[tuple[object, ...] | None, str | None]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session of `headwater jobs test`, but with Java's second compiler, which pays after some minutes: 18 tests of
    backfills took 463 s with the first alone, and 376 s with both."""
    settings = {
        name: value for name, value in SMALL_BATCHES.items() if name != "spark.driver.defaultJavaOptions"
    }
    remove_old_homes()
    settings["spark.driver.memory"] = "4g"  # a job has 2; Spark keeps something of each query that has ended
    with session_of_tests(tmp_path_factory.mktemp("spark"), settings) as session:
        yield session


@pytest.fixture(scope="module", autouse=True)
def ended_queries_are_let_go() -> Iterator[None]:
    """Python's end of a query that is over holds Java's, about 2 MB, until Python looks for cycles; among the many
    objects of a test process it seldom does."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def decode(spark: SparkSession) -> Callable[..., list[Decoded]]:
    """Gives `decode(topic, *batches of values, at=None, headers=None)`: each value's columns, or why it was refused.
    `at` is the records' timestamp, `headers` are theirs.

    One decoder reads all batches, as in a job that runs.
    """

    def run(
        declared: hw.TopicInput,
        *batches: list[bytes | None],
        at: datetime | None = None,
        headers: list[tuple[str, bytes]] | None = None,
    ) -> list[Decoded]:
        decoder, found = RecordDecoder(declared, [], origin=False), []
        reasons = F.array_join(F.transform(PROBLEMS, lambda problem: problem["reason"]), "; ")
        names = value_schema(declared).fieldNames()
        for values in batches:
            rows = [(None, value, "t", 0, offset, at, headers) for offset, value in enumerate(values)]
            decoded = decoder.decode(decoder.locate(spark.createDataFrame(rows, RAW_SCHEMA).coalesce(1)))
            judged = decoded.rejected(decoded.frame)
            # Of what is refused Python may have no value, as of a date of the year 10000.
            good = [
                F.when(~F.col(BAD), _as_local(judged, f"{VALUE}.{quoted(name)}")).alias(name)
                for name in names
            ]
            for row in judged.select(*good, reasons.alias("why"), BAD).collect():
                assert row[BAD] == bool(row["why"]), "what is seen to be bad is what has a reason"
                found.append((None, row["why"]) if row[BAD] else (tuple(row)[:-2], None))
        return found

    return run


def _as_local(rows: DataFrame, name: str) -> Column:
    """A column with times of no zone in place of others: PySpark makes no `datetime` of the first day of the year 1."""
    kind = rows.select(name).schema[0].dataType
    local = re.sub(r'([tT]ype": *)"timestamp"', r'\1"timestamp_ntz"', kind.json())
    if isinstance(kind, T.TimestampType):
        return F.col(name).cast("timestamp_ntz")
    return F.col(name) if local == kind.json() else F.col(name).cast(_type_of(local))


def _type_of(text: str) -> T.DataType:
    return T._parse_datatype_json_string(text)


@pytest.fixture
def ready(spark: SparkSession, drive: Callable[..., JobDriver], tmp_path: Path) -> Callable[..., JobDriver]:
    """Makes a driver that begins where `fill` left a home: `ready(fill, *jobs, **arguments)`, as if `fill(driver,
    **arguments)` had just run with a driver of these jobs. The home is made once and copied, see `ready_homes`."""

    def make(fill: Callable[..., None], *jobs: object, anew: bool = False, **arguments: Any) -> JobDriver:
        shutil.copytree(ready_home(spark, fill, jobs, arguments, anew=anew), tmp_path, dirs_exist_ok=True)
        return drive(*jobs)

    return make


@pytest.fixture
def made(ready: Callable[..., JobDriver]) -> Callable[..., JobDriver]:
    """As `ready`, but the home is made for this test, which proves the making, and kept for those that begin there."""
    return partial(ready, anew=True)


@pytest.fixture
def setting(spark: SparkSession) -> Iterator[Callable[[str, str], None]]:
    """Changes settings of the session for the rest of a test."""
    before: dict[str, str] = {}

    def change(name: str, value: str) -> None:
        before.setdefault(name, str(spark.conf.get(name)))
        spark.conf.set(name, value)

    yield change
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.fixture
def closing_batches(setting: Callable[[str, str], None]) -> None:
    """Spark's batches without input, which close windows as soon as the watermark allows: left out elsewhere."""
    setting("spark.sql.streaming.noDataMicroBatches.enabled", "true")


@pytest.fixture
def deployed(setting: Callable[[str, str], None], closing_batches: None) -> None:
    """What `SMALL_BATCHES` turns off, as it is where jobs run: plans that adapt, compiled expressions, Spark's own
    batches."""
    setting("spark.sql.adaptive.enabled", "true")
    setting("spark.sql.codegen.wholeStage", "true")
    setting("spark.sql.codegen.factoryMode", "FALLBACK")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # PySpark leaves its gateway's sockets to the garbage collector.
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
            item.add_marker(pytest.mark.spark)
            # A time-out in the middle of a call to the JVM leaves its answer to the next test, and all fail after it.
            item.add_marker(pytest.mark.timeout(900))
