"""Jobs are checked while brokers are away: each cluster is asked once, and all at the same time."""

from threading import Barrier
from types import SimpleNamespace
from typing import Any

import pytest

import headwater as hw
from backfill_facts import part
from headwater.running import checking
from headwater_streams.base.errors import JobDefinitionError, RefusedError, StreamsError, UnavailableError
from headwater_streams.base.topics import cluster_of
from headwater_streams.runtime.context import StageContext
from headwater_streams.sources.asked_once import AskedOnce

AWAY = UnavailableError("the broker does not answer")
MAY_NOT = RefusedError("may not read it", "shop:secret")
NO_TOPIC = JobDefinitionError("there is no topic")


class Brokers:
    """Clusters, each with what it raises for any topic; `answers_together` waits until all of them are asked."""

    may_repeat = False

    def __init__(self, faults: dict[str, StreamsError], *, together: int = 1) -> None:
        self.faults, self.asked = faults, list[str]()
        self._barrier = Barrier(together, timeout=10)

    def partitions(self, topic: str) -> dict[int, tuple[int, int]]:
        self.asked.append(topic)
        self._barrier.wait()
        if (fault := self.faults.get(cluster_of(topic))) is not None:
            raise fault
        return {0: (0, 1)}

    def topic_id(self, topic: str) -> str:
        return f"id of {topic}"


def asked_once(brokers: Any, *topics: str) -> AskedOnce:
    return AskedOnce(brokers, topics)


def test_clusters_that_are_away_are_asked_once_and_at_the_same_time() -> None:
    brokers = Brokers({"": AWAY, "shop": AWAY}, together=2)
    source = asked_once(brokers, "a", "b", "shop:c", "shop:d")
    assert brokers.asked == [], "nothing was asked for yet"
    assert [source.topic_id(topic) for topic in ("a", "b", "shop:c", "shop:d")] == [None] * 4
    with pytest.raises(UnavailableError, match="does not answer"):
        source.partitions("a")
    assert sorted(map(cluster_of, brokers.asked)) == ["", "shop"]


@pytest.mark.parametrize("fault", [MAY_NOT, NO_TOPIC])
def test_cluster_that_answers_is_asked_for_each_topic(fault: StreamsError) -> None:
    source = asked_once(Brokers({"shop": fault}), "shop:secret", "a")
    assert source.topic_id("shop:orders") == "id of shop:orders"
    assert source.partitions("a") == {0: (0, 1)}
    assert source.may_repeat is False


def test_topics_of_a_broker_that_refuses_the_client_have_no_ids() -> None:
    assert asked_once(Brokers({"": RefusedError("no login")}), "a").topic_id("a") is None


def test_check_of_many_jobs_waits_once_for_a_broker_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = [hw.topic(name, schema="n INT") for name in ("a", "b", "c")]
    plans = [part({each.name: each}) for each in topics]

    def asks(context: StageContext, plan: Any) -> list[Any]:
        assert all(context.source.topic_id(name) is None for name in plan.job.topic_names)
        return []

    monkeypatch.setattr(checking, "plan_each", lambda *_, **__: SimpleNamespace(plans=plans, left_out=[]))
    monkeypatch.setattr(checking, "since_last_run", asks)
    monkeypatch.setattr(checking, "table_problems", lambda *_: [])
    monkeypatch.setattr(checking, "current_generation", lambda *_: 1)
    monkeypatch.setattr(
        checking, "records_gone", lambda context, job, _: asks(context, SimpleNamespace(job=job)) or None
    )
    monkeypatch.setattr(checking, "layout_of_table", lambda *_: SimpleNamespace(description=""))
    brokers: Any = Brokers({"": AWAY})
    spark: Any = None
    home: Any = None
    checked = checking.check_jobs(StageContext(spark, home, brokers), [plan.job for plan in plans])
    assert [each.problems for each in checked] == [[], [], []]
    assert len(brokers.asked) == 1
