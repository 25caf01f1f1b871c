"""Long work in slices: whose connection has gone holds no place among the few that are under way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from headwater_broker.log import Slices
from headwater_broker.server import slices as server_slices
from headwater_broker.server.connection import Connection
from headwater_broker.server.slices import Work
from headwater_broker.server.turns import Turns


@pytest.fixture(autouse=True)
def _slices_of_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_slices, "_SLICE_S", 1e-9)
    monkeypatch.setattr(server_slices, "_SHORT_S", 1e-9)


def steps(count: int) -> Slices[int]:
    for _ in range(count):
        yield
    return count


def connection(name: str) -> Connection:
    return Connection(name, lambda _: None)


class Rounds:
    """Work for one request at once, whose rounds a test ends."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []
        self.turns = Turns(self.soon.append)
        self.work = Work(self.turns, at_once=1)
        self.done: list[int] = []

    def run(self, of: Connection, count: int) -> None:
        self.work.run(of, steps(count), lambda result, _: self.done.append(result))

    def close(self, of: Connection) -> None:
        of.is_closed = True
        self.turns.forget(of)
        self.work.forget(of)

    def end(self) -> None:
        while self.soon:
            self.soon.pop()()


def test_work_for_a_connection_that_has_gone_leaves_its_place_to_others() -> None:
    rounds, gone, other = Rounds(), connection("gone"), connection("other")
    rounds.close(gone)
    rounds.run(gone, 5)
    rounds.run(other, 7)
    rounds.end()
    assert rounds.done == [7]


def test_work_of_a_connection_that_goes_meanwhile_leaves_its_place_to_others() -> None:
    rounds, going, other = Rounds(), connection("going"), connection("other")
    rounds.run(going, 5)
    rounds.run(going, 6)
    rounds.run(other, 7)
    rounds.close(going)
    rounds.end()
    assert rounds.done == [7]


def test_answer_for_a_connection_that_has_gone_ends_its_handler() -> None:
    async def handler(work: Work, of: Connection) -> int:
        return await work.done(of, steps(5))

    async def ask() -> None:
        rounds, gone = Rounds(), connection("gone")
        rounds.close(gone)
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(handler(rounds.work, gone), 5)

    asyncio.run(ask())
