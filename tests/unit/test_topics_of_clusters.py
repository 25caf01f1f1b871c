"""Topics of clusters that the settings name: how jobs declare them, and what a checkpoint says of them."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

import headwater as hw
from headwater.running.behind import bounds_of, topic_asker
from headwater.running.clusters import Clusters, all_need_default
from headwater_streams.base.errors import JobDefinitionError, RefusedError, UnavailableError
from headwater_streams.base.topics import bare_topic, cluster_of, of_several_clusters
from headwater_streams.loader import load_jobs
from headwater_streams.plan.job import bind
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.faults import fault_of, passes, refused
from headwater_streams.runtime.planning import plan_each
from headwater_streams.runtime.positions import next_offsets
from headwater_streams.runtime.query import explain
from headwater_streams.runtime.restarts import Fault
from headwater_streams.sources.inputs import TopicInput
from headwater_streams.sources.kafka_cluster import KafkaCluster
from headwater_streams.sources.reader import KafkaSources
from headwater_streams.storage.home import Home

PAID = hw.topic("orders", "refunds", schema="n INT", cluster="pay")
CLUSTERS = {"": KafkaCluster("a:1"), "pay": KafkaCluster("b:1", name="pay")}

orders = hw.topic("orders", schema="n INT")
paid = PAID
eu = replace(PAID, name="eu:orders", more=())


@hw.job(target=hw.delta("silver.both"))
def both(orders, paid):
    return hw.union(orders, paid)


@hw.job(target=hw.delta("silver.ours"))
def ours(orders):
    return orders


table_of_ours = hw.table("silver.ours")


@hw.job(target=hw.delta("gold.ours"))
def readers(table_of_ours):
    return table_of_ours


@hw.job(target=hw.delta("gold.both"))
def both_of_ours(table_of_ours, orders):
    return hw.union(table_of_ours, orders)


@hw.job(target=hw.delta("silver.paid"))
def one(paid):
    return paid


def test_topic_of_a_named_cluster_is_called_by_both_names() -> None:
    assert PAID.names == ("pay:orders", "pay:refunds")
    assert (PAID.cluster, orders.cluster) == ("pay", "")
    assert [(cluster_of(each), bare_topic(each)) for each in ("pay:orders", "orders")] == [
        ("pay", "orders"),
        ("", "orders"),
    ]
    assert bind(one).topic_names == ("pay:orders", "pay:refunds")


def test_topic_without_a_cluster_is_declared_as_ever() -> None:
    """A job's fingerprint is made of this text: with another one it would count as changed."""
    assert repr(orders) == (
        "TopicInput(name='orders', schema='n INT', event_time=None, watermark=None, format='json', max_ahead='1 day', "
        "max_offsets_per_batch=1000000, more=())"
    )


@pytest.mark.parametrize(
    ("name", "more", "cluster"),
    [
        ("orders", (), "Pay"),
        ("orders", (), ""),
        ("pay:orders", ("refunds",), None),
        ("orders", ("pay:refunds",), None),
    ],
)
def test_topic_of_a_cluster_that_cannot_be_called_so_is_refused(
    name: str, more: tuple[str, ...], cluster: str | None
) -> None:
    with pytest.raises(
        JobDefinitionError, match=r"cluster= is one section \[cluster\.NAME\] of the settings"
    ):
        hw.topic(name, *more, schema="n INT", cluster=cluster)


def test_topic_whose_name_kafka_does_not_allow_is_refused_with_a_cluster_too() -> None:
    with pytest.raises(JobDefinitionError, match="a topic's name is 1 to 249 letters"):
        hw.topic("orders of today", schema="n INT", cluster="pay")
    with pytest.raises(JobDefinitionError, match="a topic's name is 1 to 249 letters"):
        hw.topic("a:b", schema="n INT", cluster="pay")


def test_topics_of_one_name_of_two_clusters_are_no_inputs_of_one_job() -> None:
    assert of_several_clusters(["orders", "pay:refunds"]) is None
    with pytest.raises(
        JobDefinitionError, match=r"orders and pay:orders are topics of one name.* unite their tables"
    ):
        bind(both)


def test_topic_of_a_named_cluster_in_sql(tmp_path: Path) -> None:
    (tmp_path / "paid.sql").write_text(
        "CREATE STREAMING TABLE silver.paid AS SELECT orders.n FROM "
        "topic('orders', schema => 'n INT', cluster => 'pay')"
    )
    (job,) = load_jobs([str(tmp_path / "paid.sql")])
    assert job.inputs == {"orders": TopicInput("pay:orders", "n INT")}
    (tmp_path / "paid.sql").write_text(
        "CREATE STREAMING TABLE silver.paid AS SELECT n FROM topic('orders', schema => 'n INT', cluster => 'Pay')"
    )
    with pytest.raises(JobDefinitionError, match=r"paid\.sql, line 1: .*cluster => \.\.\. is one section"):
        load_jobs([str(tmp_path / "paid.sql")])


def test_checkpoint_of_a_named_cluster_has_bare_names_and_gives_whole_ones(tmp_path: Path) -> None:
    source = KafkaSources(CLUSTERS.__getitem__)
    ranges = {"pay:orders": {0: (3, 5)}, "pay:refunds": {0: (0, 1)}}
    lines = source.begin(PAID, tmp_path, 0, ranges)
    assert [json.loads(line) for line in lines] == [{"orders": {"0": 5}, "refunds": {"0": 1}}]
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text("\n".join(["v1", json.dumps({"batchWatermarkMs": 0}), *lines]))
    assert source.is_offset_of(PAID, json.loads(lines[0]))
    assert source.ranges(PAID, tmp_path, 0, None, json.loads(lines[0])) == ranges
    assert next_offsets(source, PAID, tmp_path, 0) == {"pay:orders": {0: 5}, "pay:refunds": {0: 1}}


def test_cluster_is_made_when_a_topic_of_it_is_first_asked_for() -> None:
    asked: list[str] = []

    def named(name: str) -> KafkaCluster:
        asked.append(name)
        return CLUSTERS[name]

    source = KafkaSources(named)
    assert asked == []
    source.is_offset_of(PAID, {})
    source.is_offset_of(PAID, {})
    source.is_offset_of(orders, {})
    assert asked == ["pay", ""]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "org.apache.kafka.common.errors.SaslAuthenticationException: Authentication failed: Invalid username",
            "SaslAuthenticationException: Authentication failed: Invalid username",
        ),
        (
            "org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized to access topics: [orders]",
            "TopicAuthorizationException: Not authorized to access topics: [orders]",
        ),
        (
            (
                "org.apache.kafka.common.errors.SslAuthenticationException: SSL handshake failed\n\tat x\n"
                "Caused by: javax.net.ssl.SSLHandshakeException: PKIX path building failed"
            ),
            "SslAuthenticationException: SSL handshake failed",
        ),
    ],
)
def test_refusal_inside_the_jvm_is_told_and_tried_a_few_times(text: str, said: str) -> None:
    inner = SimpleNamespace(toString=lambda: text, getCause=lambda: None)
    error = RuntimeError("[STREAM_FAILED] Query terminated")
    error.java_exception = inner  # type: ignore[attr-defined]
    assert refused(error) == said
    assert not passes(error)
    assert fault_of(error, has_run=True) is Fault.UNKNOWN, "the other client got through"
    assert explain(error) == f"a broker refuses the client that reads records in Spark ({said})"


def test_job_of_a_cluster_that_the_settings_lack_is_refused_alone(tmp_path: Path) -> None:
    """Clusters are looked up job by job: a command with other jobs begins."""

    def named(name: str) -> KafkaCluster:
        if not name:
            return CLUSTERS[name]
        raise JobDefinitionError(f"the settings have no section [cluster.{name}]")

    source = KafkaSources(named)
    source.require_cluster("orders")
    context = StageContext(cast(SparkSession, None), Home(tmp_path), source)
    (left_out,) = plan_each(context, [bind(one)]).left_out
    assert (left_out.state, str(left_out)) == (
        "refused",
        "job 'one': the settings have no section [cluster.pay]",
    )


def test_refusal_is_not_seen_in_a_broker_that_is_away() -> None:
    away = RuntimeError(
        "org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment."
    )
    assert refused(away) is None
    assert passes(away)


def test_asker_of_topics_asks_a_cluster_that_refuses_it_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[str] = []

    def partitions(cluster: KafkaCluster, topic: str) -> dict[int, tuple[int, int]]:
        asked.append(topic)
        if topic == "pay:hidden":
            raise RefusedError("may not read it", topic)
        if cluster.name == "":
            raise RefusedError("wrong password")
        if cluster.name == "away":
            raise UnavailableError("does not answer")
        return {0: (0, 1)}

    monkeypatch.setattr("headwater_streams.sources.topic_metadata.partitions", partitions)
    monkeypatch.setenv("HEADWATER_CLUSTER_PAY_BOOTSTRAP", "b:1")
    monkeypatch.setenv("HEADWATER_CLUSTER_AWAY_BOOTSTRAP", "c:1")
    ask = topic_asker(tmp_path, "a:1")
    topics = [
        "one",
        "two",
        "pay:hidden",
        "pay:orders",
        "pay:hidden",
        "pay:orders",
        "unknown:x",
        "away:x",
        "away:y",
    ]
    assert [bounds_of([each], ask) is not None for each in topics] == [
        False,
        False,
        False,
        True,
        False,
        True,
        False,
        False,
        False,
    ]
    assert asked == ["one", "pay:hidden", "pay:orders", "away:x"], "each takes ten seconds"
    assert ask.refusals == [
        "wrong password",
        "may not read it",
        "the settings have no section [cluster.unknown]: there are [cluster.away], [cluster.pay]",
    ]


@pytest.mark.parametrize(
    ("functions", "all_of_them"),
    [([], True), ([ours], True), ([ours, readers], True), ([readers, ours], True), ([one], False),
     ([ours, one], False), ([readers], False), ([ours, both_of_ours], True)],
)  # fmt: skip
def test_default_cluster_is_needed_by_all_jobs_or_not(functions: list[Any], all_of_them: bool) -> None:
    assert all_need_default([bind(each) for each in functions]) is all_of_them


SETTINGS = {
    "wrong": (
        "[client]\nbootstrap = 'a:1'\nsecurity_protocol = 'SASL_SSL'\n",
        "client.security_protocol is SASL_SSL",
    ),
    "none": ("", "no stack runs over "),
}


@pytest.mark.parametrize("kind", SETTINGS)
def test_job_of_a_default_cluster_that_is_wrong_is_refused_alone(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, message = SETTINGS[kind]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "headwater.toml").write_text(f"{text}[cluster.pay]\nbootstrap = 'b:1'\n")
    clusters = Clusters(tmp_path, None)
    source = KafkaSources(clusters.with_brokers)
    source.require_cluster("pay:orders")
    context = StageContext(cast(SparkSession, None), Home(tmp_path), source)
    planned = plan_each(context, [bind(ours), bind(readers)])
    assert [each.state for each in planned.left_out] == ["refused", "blocked"]
    assert str(planned.left_out[0]).startswith(f"job 'ours': {message}")
    if kind == "none":  # `jobs check` asks no broker
        KafkaSources(clusters.of).require_cluster("orders")
