"""The view of the cluster follows shared state, also where two readings of it are under way at once."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from headwater_broker.coordination import Change, ChangeKind
from headwater_broker.server.cluster import ClusterView
from headwater_broker.server.state import StateKeeper


def test_state_that_was_read_first_is_not_applied_over_what_was_read_later() -> None:
    """A broker that started beside another one had a view without that one for good: its first reading of all took
    longer than one of a change that was reported meanwhile."""
    applied: list[int] = []
    reads = iter(range(10))

    def take(snapshot: Any) -> None:
        applied.append(snapshot.number)

    async def slow_at_first(_read: Callable[..., object], *_arguments: object) -> Any:
        number = next(reads)
        await asyncio.sleep(0.05 if number == 0 else 0)
        return SimpleNamespace(number=number, topics=None, changed_topics={})

    async def run() -> None:
        view = ClusterView(1, "cluster")
        view.controller_id = 1
        view.apply = take
        live = SimpleNamespace(take=lambda *_: None)
        keeper = StateKeeper(SimpleNamespace(), view, SimpleNamespace(), slow_at_first, lambda _: None, live)
        keeper._delete_topics = _nothing
        keeper._configure_logs = lambda: None
        loading = asyncio.create_task(keeper.load())
        await asyncio.sleep(0)
        keeper.note(Change(ChangeKind.BROKERS))
        await keeper._act()
        await loading

    asyncio.run(run())
    assert applied == [0, 1]


async def _nothing() -> None:
    pass
