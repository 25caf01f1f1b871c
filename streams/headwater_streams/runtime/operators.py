"""How the library learns which stateful operators a job's function uses: it calls it once on empty input.

An operator (`hw.tumbling`, `hw.join`) tells the recorder in force what it is. In a user's own call, as in a test
on plain DataFrames, no recorder is in force and nothing is told.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Recorder:
    """The operators that a function used, in the order of use."""

    operators: list[Any] = field(default_factory=list)


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
