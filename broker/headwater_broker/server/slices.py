"""Long work for one request, in slices between which everybody else is served."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from time import perf_counter
from typing import Any, TypeVar, cast

from headwater_broker.log import Slices
from headwater_broker.server.connection import Connection
from headwater_broker.server.turns import Turns

_LOG = logging.getLogger(__name__)

_SLICE_S = 0.003
_SHORT_S = 0.001
"""Anybody's work is done at once for so long, however much work of others is under way."""

_AT_ONCE = 8
"""So many requests hold what they have made so far, a few MB each; the others have hardly begun."""

_ITEMS_AT_ONCE = 100

_Result = TypeVar("_Result")
_Item = TypeVar("_Item")


class Pieces:
    """Long work of the broker's own, in pieces between which everybody is served.

    Attributes:
        longest_s: What the longest piece so far took.
    """

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def run(self, slices: Slices[_Result]) -> _Result:
        """Works until it is done, and returns the result; all that the work reads may change between its slices.

        Raises:
            Exception: What the work raises.
        """
        try:
            while True:
                started_s = now_s = perf_counter()
                try:
                    while now_s - started_s < _SLICE_S:
                        next(slices)
                        now_s = perf_counter()
                finally:
                    self.longest_s = max(self.longest_s, perf_counter() - started_s)
                await asyncio.sleep(0)
        except StopIteration as end:
            result: _Result = end.value
            return result
        finally:
            slices.close()


async def unhurried(items: Iterable[_Item]) -> AsyncIterator[_Item]:
    """The items, for a coroutine that does little for each: everybody else is served now and then in between."""
    for number, item in enumerate(items, 1):
        yield item
        if number % _ITEMS_AT_ONCE == 0:
            await asyncio.sleep(0)


Then = Callable[[Any, Exception | None], None]


class _Work:
    """The work of one request."""

    __slots__ = ("connection", "drop", "slices", "step", "then")

    def __init__(
        self, connection: Connection, slices: Slices[Any], then: Then, drop: Callable[[], object]
    ) -> None:
        self.connection = connection
        self.drop = drop
        self.slices = slices
        self.then = then
        self.step: Callable[[], None] = _nothing


def _nothing() -> None:
    """Does nothing."""


class Work:
    """All work that is under way, for so many requests at once."""

    def __init__(self, turns: Turns, at_once: int = _AT_ONCE) -> None:
        self._turns = turns
        self._at_once = at_once
        self._running: set[_Work] = set()
        self._waiting: deque[_Work] = deque()

    def run(
        self,
        connection: Connection,
        slices: Slices[_Result],
        then: Then,
        drop: Callable[[], object] = lambda: None,
        *,
        is_continuation: bool = False,
    ) -> None:
        """Works until it is done, at once if that is soon.

        Args:
            connection: For whom; once it is closed, the work is dropped. It may be closed already, where a handler
                waited for something.
            slices: The work.
            then: Called with the result, or with the error.
            drop: Called where the work is dropped.
            is_continuation: It goes on with the result of other work, which takes memory until then. It is begun before
                the work that waits.
        """
        if connection.is_closed:  # nobody would give it a turn, and it would hold its place for ever
            slices.close()
            drop()
            return
        work = _Work(connection, slices, then, drop)
        work.step = lambda: self._step(work)
        if len(self._running) < self._at_once:
            self._running.add(work)
            self._step(work)
        elif not self._advance(work, _SHORT_S):
            (self._waiting.appendleft if is_continuation else self._waiting.append)(work)

    def answer(self, connection: Connection, slices: Slices[_Result]) -> _Result | Awaitable[_Result]:
        """The result; something to wait for where it takes longer.

        Raises:
            Exception: What the work raises.
        """
        done: list[tuple[_Result, Exception | None]] = []
        future: asyncio.Future[_Result] | None = None

        def then(result: _Result, error: Exception | None) -> None:
            if future is None:
                done.append((result, error))
            elif not future.done():
                if error is None:
                    future.set_result(result)
                else:
                    future.set_exception(error)

        self.run(connection, slices, then, lambda: future is not None and future.cancel())
        if not done:
            future = asyncio.get_running_loop().create_future()
            if connection.is_closed:
                future.cancel()
            return future
        result, error = done[0]
        if error is not None:
            raise error
        return result

    async def done(self, connection: Connection, slices: Slices[_Result]) -> _Result:
        """The result, for a coroutine.

        Raises:
            Exception: What the work raises.
        """
        result = self.answer(connection, slices)
        # A result that took no time is returned as it is, any other as a future.
        return await result if isinstance(result, asyncio.Future) else cast(_Result, result)

    def forget(self, connection: Connection) -> None:
        """Drops the work of a closed connection."""
        if not self._running:
            return
        dropped = [work for work in (*self._waiting, *self._running) if work.connection is connection]
        self._waiting = deque(work for work in self._waiting if work.connection is not connection)
        for work in dropped:
            if work in self._running:
                self._end(work)
            work.drop()

    def _step(self, work: _Work) -> None:
        if not self._advance(work, _SLICE_S):
            self._turns.wait(work.connection, work.step)

    def _advance(self, work: _Work, slice_s: float) -> bool:
        """Goes on with some work for a while; returns whether it is done."""
        started_s = now_s = perf_counter()
        try:
            while now_s - started_s < slice_s:
                next(work.slices)
                now_s = perf_counter()
        except StopIteration as end:
            result, error = end.value, None
        except Exception as failure:
            result, error = None, failure
        else:
            self._turns.charge(work.connection, started_s, now_s - started_s)
            return False
        self._turns.charge(work.connection, started_s, perf_counter() - started_s)
        self._end(work)
        work.then(result, error)
        return True

    def _end(self, work: _Work) -> None:
        work.slices.close()
        if work not in self._running:
            return
        self._running.discard(work)
        if self._waiting:
            following = self._waiting.popleft()
            self._running.add(following)
            self._turns.wait(following.connection, following.step)
