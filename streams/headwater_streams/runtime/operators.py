"""How the library learns which stateful operators a job's function uses, and which rows come as far as to them.

An operator (`hw.tumbling`, `hw.join`) tells the recorder in force what it is, and shows its rows to the counter in
force: what the function filtered before is known by that. In a user's own call, as in a test on plain DataFrames,
neither is in force and nothing is told.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal

from pyspark.sql import DataFrame

Place = Literal["window", "left", "right"]
"""Where rows enter an operator."""


@dataclass
class Recorder:
    """The operators that a function used, in the order of use."""

    operators: list[Any] = field(default_factory=list)


_counter: ContextVar[Callable[[DataFrame, Place], DataFrame] | None] = ContextVar(
    "headwater_counter", default=None
)
_recorder: ContextVar[Recorder | None] = ContextVar("headwater_recorder", default=None)


@contextmanager
def recording() -> Iterator[Recorder]:
    """Collects what operators tell while the block runs."""
    recorder = Recorder()
    token = _recorder.set(recorder)
    try:
        yield recorder
    finally:
        _recorder.reset(token)


def record(operator: Any) -> None:
    """Tells the recorder in force, if any, that an operator is used."""
    recorder = _recorder.get()
    if recorder is not None:
        recorder.operators.append(operator)


def is_recording() -> bool:
    """Whether a function is called on empty input, to learn what it is."""
    return _recorder.get() is not None


@contextmanager
def counting(count: Callable[[DataFrame, Place], DataFrame]) -> Iterator[None]:
    """Has `count` observe the rows that enter operators while the block runs."""
    token = _counter.set(count)
    try:
        yield
    finally:
        _counter.reset(token)


@contextmanager
def taking(rows: DataFrame) -> Iterator[None]:
    """Has the operator that is used in the block take these rows in place of those that it is handed."""
    count = _counter.get()
    with counting(lambda _handed, place: rows if count is None else count(rows, place)):
        yield


def handed(function: Callable[..., Any], **inputs: DataFrame) -> DataFrame:
    """The rows that a function hands to its operator; a recorder in force does not learn of it."""
    taken: list[DataFrame] = []

    def take(rows: DataFrame, _place: Place) -> DataFrame:
        taken.append(rows)
        return rows

    with recording() if is_recording() else nullcontext(), counting(take):
        function(**inputs)
    return taken[0]


def counted(rows: DataFrame, place: Place) -> DataFrame:
    """The rows that enter an operator, observed by the counter in force, if any."""
    count = _counter.get()
    return rows if count is None else count(rows, place)
