"""Where Spark has a private name no more, the same is done by public ones."""

import json
import logging
from typing import Any, cast

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import AnalysisException, PySparkAttributeError
from pyspark.sql import types as T

from headwater_streams.spark import workers
from headwater_streams.spark.analysed_plan import check_for_streaming
from headwater_streams.spark.execution import recent_progress
from headwater_streams.spark.frames import compute, empty_frame
from headwater_streams.spark.guarded import may_raise
from headwater_streams.spark.hidden_columns import has_hidden
from headwater_streams.spark.kept_rows import read_once
from headwater_streams.spark.patterns import wrong_pattern
from headwater_streams.spark.plain_ways import is_missing, or_plainly
from headwater_streams.spark.projection import only_projects

NO_METHOD = Py4JError(
    "An error occurred while calling o1.f. Trace:\npy4j.Py4JException: Method f([]) does not exist\n"
)
NO_ATTRIBUTE = PySparkAttributeError(
    errorClass="ATTRIBUTE_NOT_SUPPORTED", messageParameters={"attr_name": "_jdf"}
)


class Public:
    """An object of PySpark without any private name; it notes what is asked of it."""

    def __init__(self, **known: Any) -> None:
        self.asked: list[str] = []
        self._known = known

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"'Public' object has no attribute {name!r}")
        self.asked.append(name)
        return self._known.get(name, self)

    def __call__(self, *_: Any, **__: Any) -> "Public":
        return self


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (AttributeError("'DataFrame' object has no attribute '_jdf'"), True),
        (NO_ATTRIBUTE, True),
        (TypeError("'JavaPackage' object is not callable"), True),
        (Py4JError("org.apache.spark.sql.Gone does not exist in the JVM"), True),
        (NO_METHOD, True),
        (AttributeError("'NoneType' object has no attribute 'name'"), False),
        (TypeError("f() takes 1 argument"), False),
        (Py4JNetworkError("it does not exist"), False),
        (Py4JError("An error occurred while calling o1.f"), False),
        (ValueError("_jdf does not exist"), False),
    ],
)
def test_what_is_missing_is_told_from_other_errors(error: Exception, expected: bool) -> None:
    assert is_missing(error) is expected


def test_plain_way_is_told_once_and_other_errors_are_raised(caplog: pytest.LogCaptureFixture) -> None:
    errors: list[Exception] = [NO_METHOD, NO_METHOD, ValueError("5 rows")]

    @or_plainly(lambda number: number + 1)
    def quick(number: int) -> int:
        raise errors.pop(0)

    with caplog.at_level(logging.WARNING):
        assert (quick(1), quick(2)) == (2, 3)
        with pytest.raises(ValueError, match="5 rows"):
            quick(3)
    (told,) = caplog.messages
    assert told == (
        "quick: this Spark lacks a private name (py4j.Py4JException: Method f([]) does not exist); the plain way "
        "takes longer"
    )


def test_frames_are_made_and_computed_by_public_names() -> None:
    frame = Public()
    compute(cast(Any, frame))
    assert frame.asked == ["write", "format", "mode", "save"]
    session = Public()
    empty_frame(cast(Any, session), T.StructType())
    assert session.asked == ["createDataFrame"]


def test_accounts_of_batches_are_those_of_pyspark() -> None:
    accounts = [{"batchId": n, "durationMs": {} if n == 2 else {"addBatch": 1}} for n in range(4)]
    query = Public(recentProgress=[Public(json=json.dumps(account)) for account in accounts])
    assert recent_progress(cast(Any, query), 0) == [accounts[1], accounts[3]]


def test_what_spark_does_later_is_left_to_it() -> None:
    rows = cast(Any, Public())
    with read_once(rows) as kept:
        assert kept is rows
    check_for_streaming(rows, "append")
    assert may_raise(rows, "n > 0")
    assert wrong_pattern(rows) is None
    assert not only_projects(rows, "seen")
    assert workers.has_worker(rows)


def test_hidden_column_is_looked_for_by_selecting_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater_streams.spark.hidden_columns.F.col", lambda name: name)

    class Frame(Public):
        def select(self, name: str) -> None:
            if name != "_offset":
                raise AnalysisException("there is none")

    frame = cast(Any, Frame(columns=["n"]))
    assert [has_hidden(frame, name) for name in ("n", "_offset", "gone")] == [True, True, False]
