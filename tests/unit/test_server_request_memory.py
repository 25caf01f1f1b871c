"""What large requests may take while they come in."""

from __future__ import annotations

from headwater_broker.server.request_memory import RequestMemory


class Reader:
    """A channel, as the memory sees it."""

    def __init__(self, memory: RequestMemory) -> None:
        self.last_active = 0.0
        self.is_spare = False
        self.read_on_count = 0
        self.refusals: list[str] = []
        self._memory = memory

    def give_back(self) -> bool:
        if self.is_spare:
            self._memory.release(self)
        return self.is_spare

    def read_on(self) -> None:
        self.read_on_count += 1

    def refuse(self, reason: str) -> None:
        self.refusals.append(reason)


def test_memory_is_passed_by_one_request_at_most() -> None:
    memory = RequestMemory(1000)
    first, second, third = (Reader(memory) for _ in range(3))
    assert memory.take(first, 900, 0.0)
    assert memory.take(second, 900, 0.0)
    assert not memory.take(third, 900, 0.0)
    assert (memory.used_bytes, memory.is_short) == (1800, True)


def test_memory_that_is_given_back_is_for_who_waits() -> None:
    memory = RequestMemory(1000)
    first, second = Reader(memory), Reader(memory)
    memory.take(first, 1000, 0.0)
    assert not memory.take(second, 10, 0.0)
    memory.release(first)
    assert second.read_on_count == 1
    assert memory.take(second, 10, 0.0)
    assert (memory.used_bytes, memory.is_short) == (10, False)


def test_memory_that_no_request_is_in_is_taken_back() -> None:
    memory = RequestMemory(1000)
    first, second = Reader(memory), Reader(memory)
    memory.take(first, 1000, 0.0)
    first.is_spare = True
    assert memory.take(second, 500, 0.0)
    assert memory.used_bytes == 500


def test_memory_of_one_holder_grows_with_its_requests() -> None:
    memory = RequestMemory(1000)
    first = Reader(memory)
    assert all(memory.take(first, size, 0.0) for size in (600, 2000, 300))
    assert memory.used_bytes == 2000


def test_memory_who_leaves_waits_no_more() -> None:
    memory = RequestMemory(1000)
    first, second = Reader(memory), Reader(memory)
    memory.take(first, 1000, 0.0)
    memory.take(second, 1000, 0.0)
    memory.release(second)
    assert not memory.is_short


def test_memory_slow_holders_are_overdue_once_others_wait() -> None:
    memory = RequestMemory(1000)
    first, second = Reader(memory), Reader(memory)
    memory.take(first, 1000, 0.0)
    first.last_active = 3.0
    assert list(memory.overdue(1000.0)) == []
    memory.take(second, 1000, 5.0)
    assert list(memory.overdue(6.0)) == []
    assert list(memory.overdue(16.0)) == [first]
    first.last_active = 15.0
    assert list(memory.overdue(16.0)) == []
    assert list(memory.overdue(61.0)) == [first]
