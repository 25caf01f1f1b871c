"""How the library learns which stateful operators a job's function uses, and which rows reach them.

An operator (`hw.tumbling`, `hw.join`) reports itself to the recorder in force, and hands its rows to the counter in
force: that is how the rows that the function filtered out before it become known. In a user's own call, as in a test
on plain DataFrames, neither is in force and nothing is reported.

A function with a chain of operators is called once for each of them (`replaying`): those before it are not computed
again, their results are handed in.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal

from pyspark.sql import DataFrame

Place = Literal["window", "left", "right"]
"""Where rows enter an operator."""


@dataclass(frozen=True)
class OperatorUse:
    """One use of an operator: its result, and the rows that it was handed at each place."""

    result: DataFrame
    handed: Mapping[Place, DataFrame]


@dataclass
class Recorder:
    """The operators that a function used, in the order of use.

    Attributes:
        standing_in: Gives what the function goes on with in place of an operator's result.
        uses: Their uses, of those whose result was not handed in (`replaying`).
        passed_on: Results whose columns are those of some rows as they are, by their names; see `passing_on`.
    """

    operators: list[Any] = field(default_factory=list)
    standing_in: Callable[[DataFrame], DataFrame] | None = None
    uses: list[OperatorUse] = field(default_factory=list)
    passed_on: list[tuple[DataFrame, tuple[DataFrame, ...]]] = field(default_factory=list)


@dataclass
class _Replay:
    results: Sequence[DataFrame]
    stops: bool
    used: int = 0


class _Done(BaseException):
    """Ends a function once its operator has this result; a user's `except Exception` does not catch it."""

    def __init__(self, result: DataFrame) -> None:
        self.result = result


_counter: ContextVar[Callable[[DataFrame, Place], DataFrame] | None] = ContextVar(
    "headwater_counter", default=None
)
_recorder: ContextVar[Recorder | None] = ContextVar("headwater_recorder", default=None)
_replay: ContextVar[_Replay | None] = ContextVar("headwater_replay", default=None)


@contextmanager
def recording(standing_in: Callable[[DataFrame], DataFrame] | None = None) -> Iterator[Recorder]:
    """Collects what operators report while the block runs; see `Recorder`."""
    recorder = Recorder(standing_in=standing_in)
    token = _recorder.set(recorder)
    try:
        yield recorder
    finally:
        _recorder.reset(token)


def record(operator: Any) -> DataFrame | None:
    """Tells the recorder in force, if any, that an operator is used.

    Returns:
        The operator's result, where it is handed in (`replaying`): the operator gives it as its own.
    """
    replay = _replay.get()
    if replay is not None:
        number, replay.used = replay.used, replay.used + 1
        if number < len(replay.results):
            return replay.results[number]
    recorder = _recorder.get()
    if recorder is not None:
        recorder.operators.append(operator)
    return None


def operator_result(result: DataFrame, **handed: DataFrame) -> DataFrame:
    """What an operator returns to the function that used it: its result, or what stands in for it.

    Args:
        result: Its result.
        handed: The rows that it was handed, by their `Place`.
    """
    replay, recorder = _replay.get(), _recorder.get()
    if recorder is not None:
        recorder.uses.append(OperatorUse(result, handed))  # type: ignore[arg-type]  # keywords are texts
    if replay is not None and replay.stops:
        raise _Done(result)
    if recorder is None or recorder.standing_in is None:
        return result
    return recorder.standing_in(result)


def passing_on(result: DataFrame, *sides: DataFrame) -> DataFrame:
    """A result whose columns are those of its sides as they are, though its plan has rows as one column in between:
    tells the recorder in force so.

    Args:
        result: The result.
        sides: The rows that it is made of; of a name that several have, the first one's is meant.
    """
    recorder = _recorder.get()
    if recorder is not None:
        recorder.passed_on.append((result, sides))
    return result


def replaying(
    function: Callable[..., DataFrame],
    inputs: Mapping[str, DataFrame],
    results: Sequence[DataFrame],
    *,
    stops: bool,
) -> DataFrame:
    """Calls a function for one operator of its chain.

    Args:
        function: The function.
        inputs: Its inputs.
        results: The results of the operators before that one.
        stops: Whether to return that operator's result, and not what the function makes of it.
    """
    token = _replay.set(_Replay(results, stops))
    try:
        return function(**inputs)
    except _Done as done:
        return done.result
    finally:
        _replay.reset(token)


def is_recording() -> bool:
    """Whether a function is called on empty input, for analysis."""
    return _recorder.get() is not None


@contextmanager
def counting(count: Callable[[DataFrame, Place], DataFrame]) -> Iterator[None]:
    """Lets `count` observe the rows that enter operators while the block runs."""
    token = _counter.set(count)
    try:
        yield
    finally:
        _counter.reset(token)


@contextmanager
def taking(rows: DataFrame) -> Iterator[None]:
    """Makes the operator in the block take these rows in place of those that it is handed."""
    count = _counter.get()
    with counting(lambda _rows, place: rows if count is None else count(rows, place)):
        yield


def handed(function: Callable[..., Any], **inputs: DataFrame) -> DataFrame:
    """The rows that a function hands to its operator; a recorder in force does not see the call."""
    entered: list[DataFrame] = []

    def take(rows: DataFrame, _place: Place) -> DataFrame:
        entered.append(rows)
        return rows

    with recording() if is_recording() else nullcontext(), counting(take):
        function(**inputs)
    return entered[0]


def observed(rows: DataFrame, place: Place) -> DataFrame:
    """The rows that enter an operator, observed by the counter in force, if any."""
    count = _counter.get()
    return rows if count is None else count(rows, place)
