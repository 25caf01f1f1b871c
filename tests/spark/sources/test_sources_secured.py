"""Jobs over brokers with TLS, passwords and ACLs, and over two clusters; no secret is left anywhere."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation
from pyspark.sql import DataFrame, SparkSession

import headwater as hw
from headwater.running.leases import lease_factory
from headwater_broker.testing import broker
from headwater_streams import backfill
from headwater_streams.base.errors import JobDefinitionError, RefusedError
from headwater_streams.ledger.audit import audit_home
from headwater_streams.ledger.log import commits
from headwater_streams.plan.job import bind
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.faults import passes, refused
from headwater_streams.runtime.query import explain
from headwater_streams.runtime.runner import JobRunner
from headwater_streams.sources.kafka_cluster import KafkaCluster
from headwater_streams.sources.reader import KafkaSource, KafkaSources
from headwater_streams.storage.home import Home
from secured import PASSWORD, Secured, certificates, files_with, secured_broker

CSV = hw.csv(sep=";")
orders = hw.topic("orders", schema="who STRING, cents INT", format=CSV)
payments = hw.topic("orders", schema="who STRING, cents INT", format=CSV, cluster="pay")


@hw.job(target=hw.delta("silver.orders"), dedup=hw.by_offset())
def all_orders(orders: DataFrame) -> DataFrame:
    return orders.filter("cents < 100")


@hw.job(target=hw.delta("silver.payments"), dedup=hw.by_offset())
def all_payments(payments: DataFrame) -> DataFrame:
    return payments.filter("cents < 100")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def secured(folder: Path) -> Iterator[Secured]:
    with secured_broker(folder) as running:
        running.create("orders")
        running.send("orders", "a;1", "b;200", "broken")
        running.allow("alice", AclOperation.READ, "orders")
        yield running


def _run(context: StageContext, *functions: object, clusters: object = None) -> None:
    leases = lease_factory(context.home.root, "", clusters)  # type: ignore[arg-type]
    runner = JobRunner(context, [bind(each) for each in functions], lease=leases)  # type: ignore[arg-type]
    runner.run_once()
    runner.stop()


@pytest.mark.story
def test_job_reads_a_broker_with_tls_and_passwords_and_leaves_no_secret(
    spark: SparkSession, secured: Secured, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    home, cluster = Home(tmp_path / "home"), secured.cluster()
    source = KafkaSource(cluster)
    context = StageContext(spark, home, source)
    _run(context, all_orders, clusters=lambda _: cluster)
    secured.send("orders", "c;3")
    _run(context, all_orders, clusters=lambda _: cluster)
    rows = spark.read.format("delta").load(str(home.table("silver.orders")))
    assert sorted((row["who"], row["_topic"]) for row in rows.collect()) == [("a", "orders"), ("c", "orders")]
    # A backfill reads the records again, with the same login.
    planned = backfill.plan(context, bind(all_orders), offsets={"orders": {0: (0, 4)}})
    backfill.run(context, planned.id, bind(all_orders))
    backfill.verify(context, planned.id, bind(all_orders))
    assert [audit.findings for audit in audit_home(home)] == [[]]
    stream = source.stream(spark, orders, {})
    plans = [
        source.read(spark, "orders", {0: (0, 1)})._jdf.queryExecution().toString(),
        stream._jdf.queryExecution().toString(),
    ]
    assert "${headwater:/proc/" in str(source._options)
    assert not any("battery" in text for text in (*plans, str(source._options)))
    assert files_with(PASSWORD, tmp_path) == []
    assert files_with("correct horse", tmp_path) == []
    assert "correct horse" not in caplog.text
    conf = spark.sparkContext.getConf().getAll()
    assert not any("correct horse" in value for _, value in conf)


def test_no_page_of_sparks_shows_a_secret(secured: Secured, tmp_path: Path) -> None:
    """In a process of its own: a session whose pages are served, and whose events are logged."""
    program = Path(__file__).with_name("secured_pages.py")
    environ = {**os.environ, **secured.environ()}
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path), secured.bootstrap],
        env=environ,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    pages = json.loads(done.stdout.splitlines()[-1])
    assert pages["shown"] > 5
    assert pages["secrets"] == []
    for text in (done.stdout, done.stderr):
        assert "correct horse" not in text
    assert files_with("correct horse", tmp_path) == []


@pytest.mark.story
def test_jobs_read_topics_of_one_name_of_two_clusters(
    spark: SparkSession, secured: Secured, tmp_path: Path
) -> None:
    home = Home(tmp_path)
    with broker() as plain:
        producer = Producer({"bootstrap.servers": plain.bootstrap})
        producer.produce("orders", "plain;7")
        assert producer.flush(10) == 0
        here, there = KafkaCluster(plain.bootstrap), secured.cluster(name="pay")
        clusters = {"": here, "pay": there}
        context = StageContext(spark, home, KafkaSources(clusters.__getitem__))
        _run(context, all_orders, all_payments, clusters=clusters.__getitem__)
        tables = {
            name: [
                *map(tuple, spark.read.format("delta").load(str(home.table(name))).select(*_SHOWN).collect())
            ]
            for name in ("silver.orders", "silver.payments")
        }
        assert tables == {
            "silver.orders": [("plain", "orders", 0)],
            "silver.payments": [("a", "pay:orders", 0)],
        }
        (entry,) = [c.entry for c in commits(home.table("silver.payments")) if c.entry is not None]
        assert entry.sources[0].ranges == {"pay:orders": {0: (0, 3)}}
        # Goes on where it was, each in its own cluster; a backfill and the audit, too.
        secured.send("orders", "d;4")
        _run(context, all_payments, clusters=clusters.__getitem__)
        entries = [c.entry for c in commits(home.table("silver.payments")) if c.entry is not None]
        assert entries[-1].sources[0].ranges == {"pay:orders": {0: (3, 4)}}
        planned = backfill.plan(context, bind(all_payments), offsets={"pay:orders": {0: (0, 2)}})
        backfill.run(context, planned.id, bind(all_payments))
        backfill.verify(context, planned.id, bind(all_payments))
        assert [audit.findings for audit in audit_home(home)] == [[], []]


_SHOWN = ("who", "_topic", "_offset")


def test_cluster_that_the_settings_do_not_have_is_told(spark: SparkSession, tmp_path: Path) -> None:
    def named(name: str) -> KafkaCluster:
        raise JobDefinitionError(f"the settings have no section [cluster.{name}]: there is none")

    context = StageContext(spark, Home(tmp_path), KafkaSources(named))
    with pytest.raises(JobDefinitionError, match=r"no section \[cluster\.pay\]"):
        _run(context, all_payments)


def test_password_that_is_changed_while_a_job_runs_is_told(
    spark: SparkSession, secured: Secured, tmp_path: Path
) -> None:
    """What Kafka's client in Spark raises is no fault of a row, and does not pass."""
    source = KafkaSource(secured.cluster())
    wrong = KafkaSource(secured.cluster())
    wrong._cluster = replace(wrong._cluster, login=secured.login(password="another"))
    wrong.partitions = source.partitions  # type: ignore[method-assign]
    with pytest.raises(Exception, match="Sasl") as raised:
        wrong.read(spark, "orders", {0: (0, 3)}).collect()
    assert refused(raised.value) is not None, raised.value
    assert not passes(raised.value)
    assert "a broker refuses the client that reads records in Spark" in explain(raised.value)
    assert "SaslAuthenticationException" in explain(raised.value)


def test_job_with_a_wrong_password_ends_before_spark_reads(
    spark: SparkSession, secured: Secured, tmp_path: Path
) -> None:
    context = StageContext(spark, Home(tmp_path), KafkaSource(secured.cluster(password="another")))
    with pytest.raises(RefusedError, match="refuses 'alice' with this password"):
        _run(context, all_orders)


def test_job_that_may_not_read_its_topic_ends(spark: SparkSession, secured: Secured, tmp_path: Path) -> None:
    secured.create("secret")
    hidden = KafkaSource(secured.cluster())
    with pytest.raises(RefusedError, match="does not let 'alice' read the topic 'secret'"):
        hidden.partitions("secret")
