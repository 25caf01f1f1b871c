"""The full demo: the plain one over two clusters, and what is around a stream: mirror, registry, counts, alarms, trace.

    producer, which counts -> front cluster -> mirror -> analysis cluster -> jobs -> tables
                                   |                           |
                                   +------- registry ----------+

Halfway the shipper of one airport stands still for five hours of the replayed clock. What it then sends at once breaks
a check of two tables, and an alarm says so; it says so again when they are well.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import Any

from confluent_kafka import Producer

from headwater import audit, trace
from headwater.demo.alarms import CHECK, WATCHED, Alarms, outcome_differences, outcomes_of
from headwater.demo.events import DEPARTURES, TOPICS, WEATHER, Event
from headwater.demo.live import FIRST_VERSION, MODULE, LiveOptions
from headwater.demo.mirrored import RunningMirror, compare_clusters
from headwater.demo.reports import REFUSED, Reports, answer_without_schema
from headwater.demo.run import Demo, DemoClusters
from headwater.demo.stack import HOST, await_leaders, create_topics, demo_stack, front_stack, registry_url
from headwater.demo.topic_log import TopicLog
from headwater.errors import UserError
from headwater.stack.local import running_stack
from headwater.stack.ports import free_port
from headwater_client import CountedProducer, counted
from headwater_streams.base.plural import quantity
from headwater_streams.ledger.trace import Step

_JOBS = (
    "jobs/full/flights.py",
    "jobs/full/weather.py",
    "jobs/weather.py:departures_weather",
    f"{MODULE}:join_flights",
    FIRST_VERSION,
)
_BY_SCHEMA = {WEATHER: {"confluent.value.schema.validation": "true"}}
_PRODUCER = "flights"
_BUCKET = "1 hour"
_BUCKET_S = 3600.0


class FullDemo(Demo):
    """The full demo."""

    starting = "Starting ZooKeeper, two brokers, a schema registry, a mirror and Spark"

    _reports: Reports
    _mirror: RunningMirror
    _producer: CountedProducer | None = None
    _interrupted = False

    @cached_property
    def _alarms(self) -> Alarms:
        return Alarms(self._tables, self._home.folder / "alarms.jsonl")

    @contextmanager
    def clusters(self) -> Iterator[DemoClusters]:
        """Two clusters, a registry for both, and a mirror from one into the other."""
        held = self._plan.held_chunk
        assert held is not None, "the plan is one of a full demo"
        port = free_port(HOST)
        with ExitStack() as stack:
            analysis = stack.enter_context(running_stack(demo_stack(self._home.root, port)))
            front = stack.enter_context(running_stack(front_stack(self._home.folder / "front", port)))
            self._reports = Reports(registry_url(port), held)
            self._reports.register(1)  # the jobs take their columns from it
            create_topics(front.bootstrap, _BY_SCHEMA)
            log = self._home.folder / "mirror.log"
            mirror = RunningMirror(front.bootstrap, analysis.bootstrap, self._home.root, log)
            self._mirror = stack.enter_context(mirror)
            try:
                await_leaders(analysis.bootstrap)
            except UserError:
                self._mirror.check()  # if it has ended, that is why
                raise
            yield DemoClusters(front.bootstrap, analysis.bootstrap)

    def values(self, event: Event) -> Iterable[bytes]:
        """The values that an event may have been sent with, by each version of its schema."""
        return self._reports.values(event)

    def live_options(self) -> LiveOptions:
        """Events are counted and written by their schemas, and alarms are waited for."""
        return LiveOptions(_JOBS, self._counted, self._reports.value, self._before_chunk, self._beside)

    def run(self, existed: bool) -> None:
        """Run it all, and say at the end what was proved."""
        self._interrupted = existed
        super().run(existed)
        self._show.step("What was proved beside that")
        for sentence in self._result.proved:
            self._show.say(sentence)

    def prove_more(self, clusters: DemoClusters) -> None:
        """Look at mirror, registry, counts, checks and alarms, and trace a record through all."""
        if self._producer is not None:
            self._producer.end()
        self._show.step("Mirror, registry, counts, checks, alarms and a trace")
        with TopicLog(clusters.front) as front, TopicLog(clusters.analysis) as analysis:
            self._prove_mirror(front, analysis)
            place = self._held_record(front)
        self._prove_registry(clusters.front)
        self._prove_counts(clusters)
        self._prove_checks()
        self._prove_trace(place)

    def _counted(self, properties: dict[str, Any]) -> CountedProducer:
        self._producer = counted(Producer(properties), name=_PRODUCER, bucket_s=_BUCKET_S)
        return self._producer

    def _before_chunk(self, chunk: int) -> None:
        if chunk - 1 != self._plan.held_chunk:
            return
        missing = self._alarms.wait_for("broken")
        held = sum(map(self._plan.held, TOPICS))
        self._show.say(f"a shipper that stood still for five hours sent {quantity(held, 'event')} at once")
        for table in missing:
            self._differs(f"no alarm said that the check {CHECK} of {table} is broken")

    def _beside(self) -> None:
        self._mirror.check()
        self._alarms.look()

    def _prove_mirror(self, front: TopicLog, analysis: TopicLog) -> None:
        topics = self._mirror.topics()
        same, differences = compare_clusters(front, analysis)
        lag = sum(topic["lag"] or 0 for topic in topics)
        self._result.full["mirror"] = {"records": same, "topics": len(topics), "lag": lag}
        self._prove(
            f"mirror: {same:,} records of {quantity(len(topics), 'topic')} are in both clusters, the same bytes at the "
            f"same offsets; {lag} to copy",
            [*differences, *([f"the mirror is {quantity(lag, 'record')} behind"] if lag else [])],
        )

    def _prove_registry(self, front: str) -> None:
        differences = []
        if not self._reports.refuses_incompatible():
            differences.append("the registry took a schema that cannot read older reports")
        answer = answer_without_schema(front)
        if answer != REFUSED:
            differences.append(
                f"a report without a schema was answered by {answer or 'success'}, not by {REFUSED}"
            )
        versions = self._reports.versions()
        if versions != [1, 2]:
            differences.append(f"the registry has the versions {versions}, not 1 and 2")
        self._result.full["registry"] = {"versions": versions, "refusal": answer}
        self._prove(
            "registry: reports came by version 1, and from halfway on by version 2, while the job ran; a version that "
            f"could not read them was refused, and a report without a schema, too ({answer})",
            differences,
        )

    def _prove_counts(self, clusters: DemoClusters) -> None:
        complete, buckets, differences, tiers = 0, 0, list[str](), Counter[str]()
        audits = audit.counts(
            TOPICS,
            bucket=_BUCKET,
            home=self._home.root,
            bootstrap=clusters.front,
            mirrors=[clusters.analysis],
        )
        for topic in audits:
            if topic.topic in TOPICS:  # not the copy
                buckets += len(topic.verdicts)
                complete += sum(each.status == "complete" for each in topic.verdicts)
                for count in (one for each in topic.verdicts for one in each.counts):
                    tiers[count.tier] += count.count
            # A producer that was killed may have told nobody of what it had sent last.
            allowed = {"complete", "uncounted", "unknown", "open"} if self._interrupted else {"complete"}
            differences += [
                f"counts of {topic.topic}: {sentence}"
                for sentence in topic.findings
                if any(each.status not in allowed for each in topic.verdicts)
            ]
            if wrong := [each for each in topic.verdicts if each.status not in allowed]:
                differences.append(
                    f"counts of {topic.topic}: {quantity(len(wrong), 'bucket')} not complete: {wrong[0].words}"
                )
        records, mirrored = tiers["producer"], tiers["mirror"]
        if records != mirrored and not self._interrupted:
            differences.append(f"the producer counted {records} records, and the mirror has {mirrored}")
        self._result.full["counts"] = {
            "buckets": buckets,
            "complete": complete,
            "records": records,
            "mirrored": mirrored,
        }
        self._prove(
            f"counts: {complete:,} of {quantity(buckets, 'bucket')} of topic and hour are complete; the producer "
            f"counted {quantity(records, 'record')}, and brokers, mirror, jobs and tables have each",
            differences,
        )

    def _prove_checks(self) -> None:
        differences = [
            f"no alarm said that the check {CHECK} of {table} is well again"
            for table in self._alarms.wait_for("well")
        ]
        results, broken = 0, list[str]()
        for table in WATCHED:
            outcomes = outcomes_of(self._tables, table)
            differences += outcome_differences(table, outcomes, self._watch.tables[table].batches)
            results += len(outcomes)
            broken += [f"{table} batch {batch}" for (_, batch), outcome in outcomes if outcome == "broken"]
        differences += self._alarms.differences()
        alarms = self._alarms.delivered()
        self._result.full["checks"] = {"results": results, "broken": broken}
        self._result.full["alarms"] = [f"{each['table']} {each['check']} {each['state']}" for each in alarms]
        self._prove(
            f"checks: {CHECK} broke in {' and '.join(broken)} and held in all others, one result a batch, "
            f"{results} in quality.results",
            [],
        )
        self._prove(
            f"alarm: the command got {quantity(len(alarms), 'alarm')}: each check once as it broke, and once as it was "
            "well again",
            differences,
        )

    def _held_record(self, front: TopicLog) -> str:
        """Where the first departure is that its shipper held back."""
        held = next(
            e.event for e in self._plan.emissions if e.held and e.event.topic == DEPARTURES and e.event.timed
        )
        for partition in front.partitions(DEPARTURES):
            for message in front.read(DEPARTURES, partition, *front.offsets(DEPARTURES, partition)):
                if tuple(message.headers() or ()) == held.headers:
                    return f"{DEPARTURES}:{partition}:{message.offset()}"
        raise AssertionError(f"{held.key} was sent")

    def _prove_trace(self, place: str) -> None:
        steps = list(_flat(trace.record(place, home=self._home.root)))
        tables = sorted({step.table for step in steps if step.fate == "row"})
        expected = {"silver.departures", "gold.departures_weather"}
        lacking = sorted(expected - set(tables))
        self._result.full["trace"] = {"record": place, "tables": tables}
        self._prove(
            f"trace: the record {place}, which came hours late, is a row of {', '.join(tables)}",
            [f"the trace of {place} does not name {table}" for table in lacking],
        )

    def _prove(self, sentence: str, differences: list[str]) -> None:
        """Keep a sentence, or say what differs."""
        if not differences:
            self._result.proved.append(sentence)
        for each in differences:
            self._differs(each)


def _flat(steps: Iterable[Step]) -> Iterator[Step]:
    for step in steps:
        yield step
        yield from _flat(step.further)
