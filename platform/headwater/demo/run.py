"""The demo from beginning to end: stack, events, jobs, answers, backfill, proof."""

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.demo.compare import compare, quarantined_flights
from headwater.demo.events import TOPICS, Event, ReplayPlan, ReplaySpec, plan_replay
from headwater.demo.flights import archive_path, read_month
from headwater.demo.home import DemoHome
from headwater.demo.live import MODULE, LiveOptions, LivePart
from headwater.demo.mend import mend
from headwater.demo.oracle import EXPECTATIONS, Oracle
from headwater.demo.questions import ask
from headwater.demo.reconcile import count_copies, read_records, reconcile, values_of
from headwater.demo.result import DemoResult, EventCounts
from headwater.demo.show import Show
from headwater.demo.stack import create_topics, demo_stack
from headwater.demo.topic_log import TopicLog
from headwater.demo.watch import TABLES_OF, Watch
from headwater.demo.weather import read_weather
from headwater.running.environment import JobEnvironment, find_jobs, open_environment
from headwater.stack.local import running_stack
from headwater.stack.session import spark_session
from headwater_streams.base.plural import quantity
from headwater_streams.ledger.audit import audit_home
from headwater_streams.quality.run import run_suite
from headwater_streams.storage.home import Home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_APP_NAME = "headwater demo"
# For two minutes of small batches: what compiles code for long ones (the JVM's second compiler, Spark's generated
# code) took half of the CPU time, and batches without rows are of no use here.
_SPARK_CONF = {
    "spark.driver.defaultJavaOptions": (
        "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"
    ),
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}
_JUDGED = "silver.departures"


@dataclass(frozen=True)
class DemoOptions:
    """What to run: the replay, the most events a second (0: no limit), and the home."""

    spec: ReplaySpec
    rate: float
    home: Path


@dataclass(frozen=True)
class DemoClusters:
    """Where events are sent, and where the jobs read them; host:port each, the same where there is one cluster."""

    front: str
    analysis: str


def run_demo(options: DemoOptions, show: Show, kind: "type[Demo]") -> DemoResult:
    """Run a demo, or go on with one that was interrupted.

    Args:
        options: What to replay, and the home.
        show: Shows how it goes.
        kind: The demo, the plain one or the full one.

    Returns:
        The outcome; `ok` if everything was as it should be.

    Raises:
        UserError: It cannot run: another home is needed, a process ended, a job failed.
    """
    started_s = time.monotonic()
    result = DemoResult(options.spec.month, options.spec.seed)
    flights = read_month(options.spec.month, options.spec.days)
    plan = plan_replay(options.spec, flights, read_weather(options.spec.month, flights))
    home = DemoHome(options.home)
    with home.locked():
        existed = home.claim(plan)
        kind(options, home, plan, show, result).run(existed)
    result.seconds = time.monotonic() - started_s
    return result


class Demo:
    """The demo; another one, which does more, overrides `clusters`, `values`, `live_options` and `prove_more`."""

    starting = "Starting ZooKeeper, a broker and Spark"

    def __init__(
        self, options: DemoOptions, home: DemoHome, plan: ReplayPlan, show: Show, result: DemoResult
    ) -> None:
        """Prepare; nothing runs yet."""
        self._options = options
        self._home = home
        self._plan = plan
        self._show = show
        self._result = result
        self._journal = home.journal()
        self._tables = Home(home.root.resolve())
        self._watch = Watch(self._tables)

    @cached_property
    def _oracle(self) -> Oracle:
        return Oracle(archive_path(), self._plan.spec.month, self._plan.spec.days)

    @contextmanager
    def clusters(self) -> Iterator[DemoClusters]:
        """The brokers, with the demo's topics."""
        with running_stack(demo_stack(self._home.root)) as stack:
            create_topics(stack.bootstrap)
            yield DemoClusters(stack.bootstrap, stack.bootstrap)

    def values(self, event: Event) -> Iterable[bytes]:
        """The values that an event may have been sent with."""
        return values_of(event)

    def live_options(self) -> LiveOptions:
        """What is done otherwise while events arrive."""
        return LiveOptions()

    def prove_more(self, clusters: DemoClusters) -> None:
        """What else is proved while the brokers run."""

    def run(self, existed: bool) -> None:
        """Run it all; what differs is added to the result.

        Args:
            existed: Whether the home is of a demo that was interrupted.
        """
        if existed:
            self._say_progress()
        self._show.step(self.starting)
        with ThreadPoolExecutor(1) as pool:
            # The stack is a child of this very thread and must not outlive it; Spark's JVM may start beside it.
            session = pool.submit(spark_session, self._home.root, app_name=_APP_NAME, extra=_SPARK_CONF)
            try:
                with self.clusters() as clusters:
                    self._run_with(clusters, session)
            finally:
                _stop(session)
        self._compare()

    def _run_with(self, clusters: DemoClusters, session: "Future[SparkSession]") -> None:
        with TopicLog(clusters.front) as log:
            unreported = reconcile(self._plan, self._journal, log, self.values)
        if unreported:
            self._show.say(
                f"counted from the log: {quantity(unreported, 'record')} whose delivery reports a kill had lost"
            )
        session.result()
        environment = open_environment(self._home.root, clusters.analysis, app_name=_APP_NAME)
        self._live(environment, clusters.front)
        self._answer()
        self._judge(environment)
        self._mend(environment)
        self._audit(clusters.analysis)
        self.prove_more(clusters)

    def _say_progress(self) -> None:
        slices = len(self._plan.slices)
        records = sum(map(self._journal.produced, TOPICS))
        self._watch.look()
        batches = {name: len(history.batches) for name, history in self._watch.tables.items()}
        batch_counts = ", ".join(
            f"{name} {quantity(count, 'batch', 'batches')}" for name, count in batches.items() if count
        )
        self._show.say(
            f"going on in {self._home.root}: {self._journal.next_slice} of {slices} slices were delivered "
            f"({quantity(records, 'record')}){'; ' + batch_counts if batch_counts else ''}"
        )

    def _live(self, environment: JobEnvironment, front: str) -> None:
        live = LivePart(
            environment,
            self._home,
            self._plan,
            self._journal,
            self._watch,
            self._show,
            front,
            self.live_options(),
        )
        produced = self._journal.delivered + self._journal.unreported
        if self._journal.next_slice < len(self._plan.slices) or self._watch.behind(produced):
            self._show.step("Events arrive, six jobs run")
            live.run(self._options.rate)
        for topic in TOPICS:
            total = self._journal.produced(topic)
            self._result.events[topic] = EventCounts(
                total, total - self._plan.events(topic), self._plan.late(topic)
            )
        least = self._plan.chunks - 2  # a job behind a table may be a chunk behind
        for name, history in self._watch.tables.items():
            terms = ", ".join(f"{count:,} {term}" for term, count in history.totals.items() if count)
            batches = quantity(len(history.batches), "batch", "batches")
            self._show.say(f"{name}: {batches}; rows: {terms}")
            if len(history.batches) < least:
                self._differs(f"{name} was made in {batches}, not {least} or more")
            for sentence in history.imbalances:
                self._differs(sentence)
        if not live.restarts():
            self._differs("no job was started anew while events arrived")

    def _answer(self) -> None:
        self._show.step("Four questions in SQL")
        for answer in ask(self._home.root):
            self._show.table(answer.question.text, answer.rows)

    def _judge(self, environment: JobEnvironment) -> None:
        self._show.step(f"great-expectations judges {_JUDGED}")
        (job,) = find_jobs([f"{MODULE}:clean_departures"])
        result = run_suite(
            environment.context.spark, self._home.root, _JUDGED, checks=job.checks, keys=("flight_id",)
        )
        passed = sum(outcome.passed for outcome in result.outcomes)
        self._show.say(f"{passed} of {len(result.outcomes)} expectations hold for {result.rows:,} rows")
        self._show.say(f"Data Docs: {result.docs.resolve().as_uri()}")
        if not result.passed:
            failed = ", ".join(outcome.name for outcome in result.failed)
            self._differs(f"great-expectations: {_JUDGED} fails {failed}")

    def _mend(self, environment: JobEnvironment) -> None:
        self._show.step("A bug in the first version of gold.delay_by_carrier, mended by a backfill")
        mended = mend(environment.context, self._home, self._oracle, self._show)
        self._result.backfill = {"plan": mended.plan, "verdict": mended.verdict}
        for sentence in mended.differences:
            self._differs(sentence)
        if self._plan.spec.late and not mended.late_rows:
            self._differs("no departure came after its window had closed")

    def _audit(self, bootstrap: str) -> None:
        self._show.step("The books, for every topic and partition")
        with TopicLog(bootstrap) as log:
            records = [record for topic in TOPICS for record in read_records(log, topic)]
            for topic in TOPICS:
                for partition in log.partitions(topic):
                    start, end = log.offsets(topic, partition)
                    produced = self._journal.next_offset(topic, partition)
                    if end - start != produced:
                        self._differs(
                            f"{topic}-{partition} holds {end - start} records, {produced} were produced"
                        )
        copies = count_copies(records, self._watch.batch_that_read)
        self._show.say(
            f"{copies.all:,} of {len(records):,} records were copies, {copies.in_later_batches:,} of them in a later "
            "batch than the first"
        )
        if self._plan.spec.duplicates and not copies.in_later_batches:
            self._differs("no copy came in a later batch than its first")
        for audit in audit_home(self._tables, list(EXPECTATIONS)):
            for sentence in audit.findings:
                self._differs(sentence)
            for account in audit.partitions:
                produced = self._journal.next_offset(account.topic, account.partition)
                # A job behind a table leaves no account of a batch that brought it no row.
                whole = (account.start, account.end) == (0, produced) or account.table in TABLES_OF
                balanced = account.ok and whole
                if not whole:
                    self._differs(
                        f"{account.table} accounts for offsets [{account.start}, {account.end}) of {account.topic}-"
                        f"{account.partition}, {produced} records were produced"
                    )
                self._result.audit.append({**asdict(account), "produced": produced, "ok": balanced})
        well = sum(entry["ok"] for entry in self._result.audit)
        self._show.say(f"{well} of {len(self._result.audit)} accounts balance")

    def _compare(self) -> None:
        self._show.step("Every table against the CSV, computed by DuckDB")
        compared = [compare(self._oracle, name, self._tables.table(name)) for name in EXPECTATIONS]
        quarantine = self._tables.table("silver.departures__quarantine")
        compared.append(quarantined_flights(self._oracle, quarantine))
        for comparison in compared:
            self._show.say(comparison.explain())
            self._result.tables[comparison.table] = comparison
            if not comparison.equal:
                self._differs(comparison.explain())

    def _differs(self, sentence: str) -> None:
        self._result.differences.append(sentence)


def _stop(session: "Future[SparkSession]") -> None:
    """End Spark, so that its JVM writes nothing after the last line."""
    from headwater_streams.spark.spark_errors import AnyJvmError

    if session.exception() is None:
        try:
            session.result().stop()
        except (AnyJvmError, ConnectionError):
            return  # the JVM ended before; whoever needed it has reported that
