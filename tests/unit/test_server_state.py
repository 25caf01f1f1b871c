"""The view of the cluster follows shared state, also where two readings of it are under way at once."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from headwater_broker.coordination import Change, ChangeKind
from headwater_broker.coordination.memory import MemoryCoordinator
from headwater_broker.server.cluster import ClusterView, StaleParts
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


@pytest.mark.parametrize("name", ["clicks", None])
def test_new_topic_is_seen_with_its_settings(name: str | None) -> None:
    """Its first records were stored by the broker's defaults, as settings were read once its maker asked for them."""
    coordinator, view, stale = MemoryCoordinator(), ClusterView(1, "cluster"), StaleParts()
    settings = {"message.timestamp.type": "LogAppendTime"}
    coordinator.create_topic("clicks", {0: (1,)}, settings, uuid4())
    stale.add(Change(ChangeKind.TOPICS, name))
    view.apply(stale.read(coordinator))
    assert list(view.topics) == ["clicks"]
    assert view.topic_configs == {"clicks": settings}


async def _nothing() -> None:
    pass
