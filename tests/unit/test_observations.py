"""What is observed of rows on their way, and what is done where Spark has nothing of it."""

from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException

from headwater_streams.spark import observations
from headwater_streams.spark.observations import Observed


class _ThrownError(Py4JJavaError):
    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text


class _Rows:
    """Rows whose aggregates, computed by themselves, are `held`: 3."""

    def __init__(self) -> None:
        self.passes = 0

    def observe(self, _observation: object, *_aggregates: object) -> str:
        return "rows on their way"

    def agg(self, *_aggregates: object) -> "_Rows":
        return self

    def collect(self) -> "list[_Rows]":
        self.passes += 1
        return [self]

    def asDict(self) -> dict[str, Any]:
        return {"held": 3}


def _observed(monkeypatch: pytest.MonkeyPatch, found: dict[str, Any] | Exception) -> tuple[Observed, _Rows]:
    class Observation:
        def __init__(self, _name: str) -> None: ...

        @property
        def get(self) -> dict[str, Any]:
            if isinstance(found, Exception):
                raise found
            return found

    monkeypatch.setattr(observations, "Observation", Observation)
    rows: Any = _Rows()
    observed = Observed()
    assert observed.over(rows) == "rows on their way"
    return observed, rows


def test_observed_gives_what_was_observed(monkeypatch: pytest.MonkeyPatch) -> None:
    observed, rows = _observed(monkeypatch, {"held": 2})
    assert observed.get() == {"held": 2}
    assert rows.passes == 0


@pytest.mark.parametrize(
    "absent",
    [_ThrownError(": java.lang.AssertionError: assertion failed"), AnalysisException("not analysed")],
    ids=["the place was left out", "its frame could not be analysed"],
)
def test_observed_computes_once_what_spark_has_not(
    monkeypatch: pytest.MonkeyPatch, absent: Exception
) -> None:
    observed, rows = _observed(monkeypatch, absent)
    assert observed.get() == observed.get() == {"held": 3}
    assert rows.passes == 1


def test_observed_raises_what_the_jvm_raised_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    observed, _ = _observed(monkeypatch, _ThrownError(": java.lang.OutOfMemoryError"))
    with pytest.raises(Py4JJavaError, match="OutOfMemory"):
        observed.get()
