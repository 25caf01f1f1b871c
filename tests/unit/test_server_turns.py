"""Turns: who is beyond its share of the loop's time waits, and nobody else does."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest

from headwater_broker.log import Slices
from headwater_broker.server.connection import Connection
from headwater_broker.server.slices import Work
from headwater_broker.server.turns import BURST_S, Timed, Turns

SECOND = 1.0


class Rounds:
    """Turns, whose rounds a test ends."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []
        self.turns = Turns(self.soon.append)
        self.served: list[str] = []

    def connection(self, name: str, charged_until_s: float = 0.0) -> Connection:
        connection = Connection(name, lambda _: None)
        connection.charged_until_s = charged_until_s
        return connection

    def must_wait(self, connection: Connection, cost_s: float = 0.0) -> bool:
        def resume() -> None:
            self.served.append(connection.peer)
            self.turns.charge(connection, 0.0, cost_s)

        return self.turns.must_wait(connection, resume)

    def next(self) -> list[str]:
        """Who is served in the next round."""
        self.served = []
        soon = self.soon[:]
        self.soon.clear()
        for callback in soon:
            callback()
        return self.served


def test_turns_nobody_waits_while_the_round_is_not_spent() -> None:
    rounds = Rounds()
    assert not rounds.must_wait(rounds.connection("a"))
    assert not rounds.soon


def test_turns_who_had_least_is_first_and_a_round_ends_when_it_is_spent() -> None:
    rounds = Rounds()
    rounds.turns.spent_s = SECOND
    for name, charged_until_s in (("much", 3.0), ("little", 1.0), ("some", 2.0)):
        assert rounds.must_wait(rounds.connection(name, charged_until_s), SECOND)
    assert [rounds.next(), rounds.next(), rounds.next()] == [["little"], ["some"], ["much"]]
    assert not rounds.soon


def test_turns_cheap_work_of_many_fits_into_one_round() -> None:
    rounds = Rounds()
    rounds.turns.spent_s = SECOND
    names = [str(number) for number in range(50)]
    for name in names:
        rounds.must_wait(rounds.connection(name))
    assert rounds.next() == names


def test_turns_of_work_that_goes_on_are_one_a_round() -> None:
    """Each round began one more than had ended: soon a thousand in a row, and nobody else in between."""
    rounds = Rounds()
    connection = rounds.connection("a")

    def go_on() -> None:
        rounds.served.append("a")
        rounds.turns.charge(connection, 0.0, 0.003)
        rounds.turns.wait(connection, go_on)

    rounds.turns.wait(connection, go_on)
    assert [rounds.next() for _ in range(10)] == [["a"]] * 10
    assert len(rounds.soon) == 1


def test_turns_go_on_behind_work_that_fails() -> None:
    rounds = Rounds()

    def fail() -> None:
        raise ValueError

    rounds.turns.spent_s = SECOND
    rounds.turns.wait(rounds.connection("bad"), fail)
    rounds.must_wait(rounds.connection("good", 1.0))
    with pytest.raises(ValueError, match=r"^$"):
        rounds.next()
    assert rounds.next() == ["good"]


def test_turns_who_asks_while_others_wait_waits_behind_them() -> None:
    rounds = Rounds()
    rounds.turns.spent_s = SECOND
    rounds.must_wait(rounds.connection("first"), SECOND)
    rounds.turns.spent_s = 0.0
    assert rounds.must_wait(rounds.connection("second", 1.0))
    assert rounds.next() == ["first"]
    assert rounds.next() == ["second"]


def test_turns_a_connection_that_closed_is_not_served() -> None:
    rounds = Rounds()
    rounds.turns.spent_s = SECOND
    gone = rounds.connection("gone")
    rounds.must_wait(gone)
    rounds.turns.forget(gone)
    assert rounds.next() == []


def test_turns_a_charge_is_forgotten_with_time() -> None:
    connection = Connection("a", lambda _: None)
    turns = Turns(lambda _: None)
    turns.charge(connection, 100.0, 0.001)
    assert 100.0 < connection.charged_until_s < 100.0 + BURST_S
    for _ in range(3):
        turns.charge(connection, 100.0, 0.001)
    assert connection.charged_until_s > 100.0 + BURST_S
    turns.charge(connection, 200.0, 0.001)
    assert connection.charged_until_s < 200.0 + BURST_S


def test_timed_work_is_charged_without_its_waits() -> None:
    connection = Connection("a", lambda _: None)

    async def work(released: asyncio.Event) -> int:
        await released.wait()
        return 7

    async def story() -> None:
        turns = Turns(lambda _: None)
        released = asyncio.Event()
        loop = asyncio.get_running_loop()

        async def timed() -> int:
            return await Timed(work(released), connection, turns)

        task = loop.create_task(timed())
        started = loop.time()
        loop.call_later(0.1, released.set)
        assert await task == 7
        assert 0 < turns.spent_s < (loop.time() - started) / 2
        assert connection.later_s > 0

    asyncio.run(story())


def test_timed_work_that_fails_or_is_cancelled_fails_as_it_would() -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("as it would")

    async def story() -> None:
        turns = Turns(lambda _: None)
        timed = partial(Timed, connection=Connection("a", lambda _: None), turns=turns)
        with pytest.raises(ValueError, match="as it would"):
            await timed(fail())

        async def forever() -> None:
            await timed(asyncio.Event().wait())

        task = asyncio.get_running_loop().create_task(forever())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(story())


def test_work_that_is_short_waits_for_none_that_is_long() -> None:
    rounds = Rounds()
    work = Work(rounds.turns, at_once=2)
    done: list[str] = []
    taken: Counter[str] = Counter()

    def steps(name: str, count: int) -> Slices[str]:
        for _ in range(count):
            taken[name] += 1
            yield
        return name

    def run(name: str, count: int) -> Connection:
        connection = rounds.connection(name)
        work.run(connection, steps(name, count), lambda result, _: done.append(result))
        return connection

    first, _ = run("long", 1 << 60), run("longer", 1 << 60)
    run("short", 20)
    assert done == ["short"]
    run("waits", 1 << 60)
    before = taken["waits"]
    for _ in range(10):
        rounds.next()
    assert taken["waits"] == before
    work.forget(first)
    while taken["waits"] == before:
        rounds.next()
