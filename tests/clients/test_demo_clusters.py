"""The full demo without its jobs: two clusters and a mirror, schemas in a registry, counts of what was sent."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from headwater.demo.events import WEATHER, ReplayPlan, ReplaySpec, plan_replay
from headwater.demo.flights import read_month
from headwater.demo.full import FullDemo
from headwater.demo.home import DemoHome
from headwater.demo.producer import Replay
from headwater.demo.reconcile import reconcile
from headwater.demo.result import DemoResult
from headwater.demo.run import DemoClusters, DemoOptions
from headwater.demo.show import Show
from headwater.demo.topic_log import TopicLog
from headwater.demo.weather import read_weather

pytestmark = pytest.mark.timeout(300)


class _StopReplay(Exception):  # noqa: N818 - a signal of the test, not an error
    """Ends a replay where the test wants it to end."""


@pytest.fixture(scope="module")
def plan() -> ReplayPlan:
    flights = read_month(1, 2)[:400]
    spec = ReplaySpec(month=1, seed=1, duplicates=0.05, late=0.002, days=2, full=True)
    return plan_replay(spec, flights, read_weather(1, flights)[:120])


def _demo(home: DemoHome, plan: ReplayPlan) -> FullDemo:
    options = DemoOptions(plan.spec, 0, home.root)
    return FullDemo(options, home, plan, Show(Console(file=io.StringIO())), DemoResult(1, 1))


def _send(demo: FullDemo, clusters: DemoClusters, plan: ReplayPlan, until_chunk: int | None = None) -> None:
    """Sends what is left of the plan; a chunk that is not to begin stops it, as if the process were killed."""

    def at_chunk(chunk: int) -> None:
        if chunk == until_chunk:
            raise _StopReplay

    options = demo.live_options()
    replay = Replay(
        plan,
        demo._journal,
        clusters.front,
        producer=options.producer,
        value=options.value,
        check=options.beside,
    )
    replay.run(at_chunk, lambda _: None)


def _prove(demo: FullDemo, clusters: DemoClusters) -> None:
    with TopicLog(clusters.front) as front, TopicLog(clusters.analysis) as copy:
        demo._prove_mirror(front, copy)
    demo._prove_registry(clusters.front)
    demo._prove_counts(clusters)


def test_events_of_two_clusters_are_the_same_counted_and_of_known_schemas(
    plan: ReplayPlan, tmp_path: Path
) -> None:
    demo = _demo(DemoHome(tmp_path), plan)
    with demo.clusters() as clusters, TopicLog(clusters.front) as front:
        _send(demo, clusters, plan)
        assert demo._producer is not None
        demo._producer.end()
        _prove(demo, clusters)
        octets = {
            message.value()[:1]
            for partition in front.partitions(WEATHER)
            for message in front.read(WEATHER, partition, *front.offsets(WEATHER, partition))
        }
        fresh = DemoHome(tmp_path / "again").journal()
        assert reconcile(plan, fresh, front, demo.values) == len(plan.emissions), "each is known as its own"
    assert octets == {b"\0"}, "reports begin with the header of a schema"
    assert demo._result.differences == []
    assert demo._result.full["mirror"] == {"records": len(plan.emissions), "topics": 3, "lag": 0}
    assert demo._result.full["counts"]["records"] == len(plan.emissions)
    assert demo._result.full["counts"]["mirrored"] == len(plan.emissions)
    assert demo._result.full["counts"]["complete"] == demo._result.full["counts"]["buckets"] > 0


def test_clusters_of_a_demo_that_was_interrupted_go_on(plan: ReplayPlan, tmp_path: Path) -> None:
    home = DemoHome(tmp_path)
    first = _demo(home, plan)
    with first.clusters() as clusters, pytest.raises(_StopReplay):
        _send(first, clusters, plan, until_chunk=1)
    second = _demo(home, plan)
    second._interrupted = True
    with second.clusters() as clusters:
        with TopicLog(clusters.front) as front:
            assert reconcile(plan, second._journal, front, second.values) == 0
        _send(second, clusters, plan)
        assert second._producer is not None
        second._producer.end()
        _prove(second, clusters)
    assert second._result.differences == []
    assert second._result.full["mirror"]["records"] == len(plan.emissions)
    assert second._result.full["registry"]["versions"] == [1, 2]
