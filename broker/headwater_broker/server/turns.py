"""Turns: the loop's time shared among connections, so that those that ask for much take it from nobody else.

What a connection's requests cost is charged to it. Up to a share of the time, which no ordinary client reaches, its
requests are begun as they come. Beyond that they wait for a turn: in each round of the loop all such connections
together get a slice, those first that had least. So does the first request of a connection, of which nothing is known.
"""

from collections.abc import Callable, Generator
from time import perf_counter
from typing import Any

from headwater_broker.server.connection import Connection

_LAPSE = 20.0
"""A charge is forgotten after so many times its length: a connection may use a twentieth of the time for ever."""

BURST_S = 0.04
"""What may be charged before turns are waited for: 2 ms of work."""

_ROUND_S = 0.01
"""What all that wait for turns get in a round of the loop. Longer rounds save nothing: a round costs some 50 us."""


class Turns:
    """Who may go on now.

    Attributes:
        spent_s: Work of this round so far.
    """

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self.spent_s = 0.0
        self._call_soon = call_soon
        self._waiting: dict[Callable[[], None], Connection] = {}
        self._is_scheduled = False

    def must_wait(self, connection: Connection, resume: Callable[[], None]) -> bool:
        """Whether work for a connection beyond its share has to wait; `resume` is called when it is its turn."""
        if resume not in self._waiting:
            if not self._waiting and self.spent_s < _ROUND_S:
                return False
            self.wait(connection, resume)
        return True

    def wait(self, connection: Connection, resume: Callable[[], None]) -> None:
        """Has `resume` called when it is the connection's turn, in a later round."""
        self._waiting[resume] = connection
        if not self._is_scheduled:
            self._schedule()

    def charge(self, connection: Connection, started_s: float, took_s: float) -> None:
        """Takes note of work that was done for a connection."""
        connection.charged_until_s = max(connection.charged_until_s, started_s) + took_s * _LAPSE
        if took_s < connection.later_s:
            # What its last request took elsewhere, this one will take, too.
            took_s, connection.later_s = connection.later_s, 0.0
        self.spent_s += took_s

    def forget(self, connection: Connection) -> None:
        """Takes a closed connection out."""
        for resume in [resume for resume, other in self._waiting.items() if other is connection]:
            del self._waiting[resume]

    def _schedule(self) -> None:
        self._is_scheduled = True
        self._call_soon(self._serve)

    def _serve(self) -> None:
        self.spent_s = 0.0
        try:
            for resume, connection in sorted(self._waiting.items(), key=_charged_until):
                if self.spent_s >= _ROUND_S:
                    break
                if self._waiting.pop(resume, connection) is connection and not connection.is_closed:
                    resume()
        finally:
            # Not before: a connection that waits again within the round would begin one more round each time.
            self._is_scheduled = False
            if self._waiting:
                self._schedule()


class Timed:
    """An awaitable whose work, without its waits, is charged to a connection."""

    def __init__(self, work: Any, connection: Connection, turns: Turns) -> None:
        self._work = work
        self._connection = connection
        self._turns = turns

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._work.__await__()
        step: Callable[..., Any] = steps.send
        value: Any = None
        all_s = 0.0
        while True:
            started_s = perf_counter()
            try:
                awaited = step(value)
            except StopIteration as end:
                return end.value
            finally:
                took_s = perf_counter() - started_s
                all_s += took_s
                self._turns.charge(self._connection, started_s, took_s)
                self._connection.later_s = all_s
            try:
                value = yield awaited
                step = steps.send
            except BaseException as error:
                value, step = error, steps.throw


def _charged_until(entry: tuple[Callable[[], None], Connection]) -> float:
    return entry[1].charged_until_s
