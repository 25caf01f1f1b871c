"""The full demo without its jobs: two clusters and a mirror, schemas in a registry, counts of what was sent."""

import io
import time
from pathlib import Path

import pytest
from rich.console import Console

from headwater import audit
from headwater.demo.events import TOPICS, WEATHER, ReplaySpec, plan_replay
from headwater.demo.flights import read_month
from headwater.demo.full import FullDemo
from headwater.demo.home import DemoHome
from headwater.demo.mirrored import compare_clusters
from headwater.demo.producer import Replay
from headwater.demo.reconcile import reconcile
from headwater.demo.reports import REFUSED, answer_without_schema
from headwater.demo.result import DemoResult
from headwater.demo.run import DemoOptions
from headwater.demo.show import Show
from headwater.demo.topic_log import TopicLog
from headwater.demo.weather import read_weather

pytestmark = pytest.mark.timeout(300)


def test_events_of_two_clusters_are_the_same_counted_and_of_known_schemas(tmp_path: Path) -> None:
    flights = read_month(1, 2)[:400]
    spec = ReplaySpec(month=1, seed=1, duplicates=0.05, late=0.002, days=2, full=True)
    plan = plan_replay(spec, flights, read_weather(1, flights)[:120])
    home = DemoHome(tmp_path)
    home.claim(plan)
    shown = io.StringIO()
    demo = FullDemo(DemoOptions(spec, 0, tmp_path), home, plan, Show(Console(file=shown)), DemoResult(1, 1))
    journal = home.journal()
    with demo.clusters() as clusters, TopicLog(clusters.front) as front, TopicLog(clusters.analysis) as copy:
        options = demo.live_options()
        replay = Replay(
            plan,
            journal,
            clusters.front,
            producer=options.producer,
            value=options.value,
            check=options.beside,
        )
        replay.run(lambda _: None, lambda _: None)
        demo._producer.end()  # type: ignore[union-attr] - it was made by the replay
        _await_copies(front, copy)
        same, differences = compare_clusters(front, copy)
        assert (same, differences) == (len(plan.emissions), [])

        first_octets = {
            message.value()[:1]
            for partition in front.partitions(WEATHER)
            for message in front.read(WEATHER, partition, *front.offsets(WEATHER, partition))
        }
        assert first_octets == {b"\0"}, "reports begin with the header of a schema"
        assert demo._reports.refuses_incompatible()
        assert answer_without_schema(clusters.front) == REFUSED
        assert demo._reports.versions() == [1, 2]

        audits = audit.counts(TOPICS, bucket="1 hour", home=tmp_path, bootstrap=clusters.front)
        assert [finding for each in audits for finding in each.findings] == []
        assert {verdict.status for each in audits for verdict in each.verdicts} == {"complete"}
        counted = sum(
            c.count for each in audits for v in each.verdicts for c in v.counts if c.tier == "producer"
        )
        assert counted == len(plan.emissions)

        # A second process knows every record as one of its own, whatever version its value has.
        fresh = DemoHome(tmp_path / "again").journal()
        assert reconcile(plan, fresh, front, demo.values) == len(plan.emissions)


def _await_copies(front: TopicLog, copy: TopicLog) -> None:
    deadline_s = time.monotonic() + 60
    places = [(topic, partition) for topic in TOPICS for partition in front.partitions(topic)]
    while any(front.offsets(*place) != copy.offsets(*place) for place in places):
        assert time.monotonic() < deadline_s, "the mirror did not copy in time"
        time.sleep(0.1)
