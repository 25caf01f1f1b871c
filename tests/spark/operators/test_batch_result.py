"""The result of a batch is computed once, whichever way its stage asks for it."""

from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater_streams.delta.delta_table import WrittenFiles
from headwater_streams.runtime.batch_result import BatchResult, Metrics

Made = tuple[BatchResult, Callable[[], int]]


@pytest.fixture
def made(spark: SparkSession) -> Iterator[Made]:
    computed = spark.sparkContext.accumulator(0)

    def seen(value: int) -> int:
        computed.add(1)
        return value

    def observe() -> Metrics:
        return {"input_read": {"rows": computed.value}}

    rows = spark.createDataFrame(spark.sparkContext.parallelize(range(3), 1).map(seen), "long")
    result = BatchResult(rows, observe)
    yield result, lambda: computed.value
    result.release()


def _write(rows: DataFrame) -> WrittenFiles:
    return WrittenFiles([], len(rows.collect()))


@pytest.mark.story
def test_rows_that_are_kept_are_computed_once(made: Made) -> None:
    result, computed = made
    kept = result.kept()
    assert (kept.count(), len(kept.collect()), computed()) == (3, 3, 3)
    assert result.metrics == {"input_read": {"rows": 3}}
    result.require_computed()
    assert computed() == 3


def test_rows_that_are_kept_are_computed_once_by_telling_a_column_of_them(made: Made) -> None:
    result, computed = made
    kept, told = result.kept_with_columns([F.col("value")])
    assert (told.to_pydict(), computed()) == ({"value": [0, 1, 2]}, 3)
    assert (kept.count(), computed()) == (3, 3)
    assert result.metrics == {"input_read": {"rows": 3}}


def test_rows_that_are_written_are_observed_by_then(made: Made) -> None:
    result, computed = made
    assert result.written(_write).rows == 3
    assert (result.metrics, computed()) == ({"input_read": {"rows": 3}}, 3)


def test_rows_that_nobody_asked_for_are_computed_for_what_was_observed(made: Made) -> None:
    result, computed = made
    result.require_computed()
    assert (result.metrics, computed()) == ({"input_read": {"rows": 3}}, 3)


@pytest.mark.story
@pytest.mark.parametrize("again", [BatchResult.kept, lambda result: result.written(_write)])
def test_rows_are_not_computed_a_second_time(made: Made, again: Callable[[BatchResult], object]) -> None:
    result, computed = made
    result.require_computed()
    with pytest.raises(AssertionError, match="state"):
        again(result)
    assert computed() == 3
