"""`headwater topics`: list, create, describe, alter and delete."""

import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Annotated, Any

import typer
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from headwater.cli._common import (
    DEFAULT_HOME,
    BootstrapOption,
    HomeOption,
    JsonOption,
    print_json,
    print_line,
    print_table,
)
from headwater.cli._kafka import parse_assignments, print_done, report
from headwater.errors import UsageError
from headwater.running.cluster import Cluster
from headwater_streams.sources.topic_metadata import UNANSWERED

app = typer.Typer(rich_markup_mode="rich", no_args_is_help=True)

TopicArgument = Annotated[str, typer.Argument(help="The topic's name.")]
TopicsArgument = Annotated[list[str], typer.Argument(help="The topics' names.")]
ConfigsOption = Annotated[
    list[str] | None,
    typer.Option("--config", metavar="KEY=VALUE", help="A topic property by Kafka's name; repeatable."),
]


# librdkafka raises a ValueError beyond these.
_MOST_PARTITIONS = 100_000
_MOST_REPLICAS = 10_000


@app.callback()
def _topics() -> None:
    """List, create, describe, alter and delete topics.

    \b
    Examples:
      headwater topics list
      headwater topics create flights --partitions 3
    """


@app.command("list")
def list_topics(
    home: HomeOption = DEFAULT_HOME,
    bootstrap: BootstrapOption = None,
    internal: Annotated[
        bool, typer.Option("--internal", help="Also those whose names begin with two underscores.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """List the topics.

    \b
    Example:
      headwater topics list
    """
    cluster = Cluster(home, bootstrap)
    topics = cluster.topics()
    rows = [
        (
            name,
            len(topic.partitions),
            max((len(each.replicas) for each in topic.partitions.values()), default=0),
        )
        for name, topic in sorted(topics.items())
        if internal or not name.startswith("__")
    ]
    if json_output:
        print_json([{"topic": name, "partitions": count, "replicas": copies} for name, count, copies in rows])
    else:
        print_table(("topic", "partitions", "replicas"), rows, empty="there are no topics")


@app.command()
def create(
    topics: TopicsArgument,
    partitions: Annotated[
        int, typer.Option(metavar="N", min=1, max=_MOST_PARTITIONS, help="How many partitions.")
    ] = 1,
    replication_factor: Annotated[
        int,
        typer.Option(metavar="N", min=1, max=_MOST_REPLICAS, help="How many brokers keep a copy of each."),
    ] = 1,
    configs: ConfigsOption = None,
    home: HomeOption = DEFAULT_HOME,
    bootstrap: BootstrapOption = None,
    json_output: JsonOption = False,
) -> None:
    """Create topics.

    \b
    Examples:
      headwater topics create flights --partitions 3
      headwater topics create flights --config retention.ms=-1
    """
    cluster = Cluster(home, bootstrap)
    config = parse_assignments(configs, "--config")
    topics = list(dict.fromkeys(topics))
    new = [NewTopic(name, partitions, replication_factor, config=config) for name in topics]
    admin = cluster.admin()
    futures = admin.create_topics(new, request_timeout=cluster.timeout_s)
    report(cluster, "created", "topic", futures, json_output)


@app.command()
def delete(
    topics: TopicsArgument,
    home: HomeOption = DEFAULT_HOME,
    bootstrap: BootstrapOption = None,
    json_output: JsonOption = False,
) -> None:
    """Delete topics with all their records.

    \b
    Example:
      headwater topics delete flights
    """
    cluster = Cluster(home, bootstrap)
    admin = cluster.admin()
    futures = admin.delete_topics(list(dict.fromkeys(topics)), request_timeout=cluster.timeout_s)
    report(cluster, "deleted", "topic", futures, json_output)


@app.command()
def alter(
    topic: TopicArgument,
    partitions: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, max=_MOST_PARTITIONS, help="The new number of partitions; it can only grow."
        ),
    ] = None,
    configs: ConfigsOption = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="KEY", help="A property to give back its default; repeatable."),
    ] = None,
    home: HomeOption = DEFAULT_HOME,
    bootstrap: BootstrapOption = None,
    json_output: JsonOption = False,
) -> None:
    """Add partitions to a topic, or change its properties.

    \b
    Examples:
      headwater topics alter flights --partitions 6
      headwater topics alter flights --config retention.ms=86400000
    """
    changes = parse_assignments(configs, "--config")
    if partitions is None and not changes and not unset:
        raise UsageError("say what to change: --partitions N, --config KEY=VALUE or --unset KEY")
    for name in unset or ():
        if name in changes:
            raise UsageError(f"--config sets {name}, and --unset gives it back its default: leave one out")
    cluster = Cluster(home, bootstrap)
    cluster.partitions(topic)
    admin = cluster.admin()
    if partitions is not None:
        futures = admin.create_partitions(
            [NewPartitions(topic, partitions)], request_timeout=cluster.timeout_s
        )
        with cluster.errors(f"topic {topic}"):
            futures[topic].result()
    if changes or unset:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in changes.items()
        ]
        entries += [
            ConfigEntry(name, None, incremental_operation=AlterConfigOpType.DELETE) for name in unset or ()
        ]
        _require_known(cluster, admin, topic, unset or ())
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        with cluster.errors(f"topic {topic}"):
            for future in admin.incremental_alter_configs(
                [resource], request_timeout=cluster.timeout_s
            ).values():
                future.result()
    print_done("altered", [topic], json_output)


@app.command()
def describe(
    topic: TopicArgument,
    home: HomeOption = DEFAULT_HOME,
    bootstrap: BootstrapOption = None,
    json_output: JsonOption = False,
) -> None:
    """Show a topic's partitions, offsets, leaders and properties.

    The records are the offsets from the earliest to the latest: those that
    compaction took away and the marks of transactions are counted, too.

    \b
    Example:
      headwater topics describe flights
    """
    cluster = Cluster(home, bootstrap)
    described = cluster.describe_topic(topic)
    admin = cluster.admin()
    with cluster.errors(f"topic {topic}"), cluster.consumer() as consumer:
        rows = []
        silent: set[int] = set()
        for number, partition in sorted(described.partitions.items()):
            low = high = None
            if partition.leader >= 0 and partition.leader not in silent:
                try:
                    low, high = consumer.get_watermark_offsets(
                        TopicPartition(topic, number), timeout=cluster.timeout_s
                    )
                except KafkaException as error:
                    if error.args[0].name() not in UNANSWERED:
                        raise
                    # A broker that was killed stays the leader until its session ends.
                    silent.add(partition.leader)
            rows.append((number, partition.leader, partition.replicas, partition.isrs, low, high))
        configs: dict[str, str] | None = None
        try:
            configs = _configs(cluster, admin, topic)
        except KafkaException as error:
            if not silent or error.args[0].name() not in UNANSWERED:
                raise
            print_line(
                "headwater: the topic's properties are not known: no controller answers", file=sys.stderr
            )
    for broker in sorted(silent):
        print_line(f"headwater: broker {broker} does not answer: see headwater status", file=sys.stderr)
    columns = ("partition", "leader", "replicas", "isr", "earliest", "latest")
    if json_output:
        listed = [dict(zip(columns, row, strict=True)) for row in rows]
        print_json({"topic": topic, "partitions": listed, "configs": configs})
        return
    print_table(
        (*columns, "records"),
        [
            (
                row[0],
                row[1] if row[1] >= 0 else "none",
                *(",".join(map(str, each)) for each in row[2:4]),
                *row[4:],
                None if row[5] is None else row[5] - row[4],
            )
            for row in rows
        ],
        empty="",
    )
    if configs:
        print_line("\n" + "\n".join(f"{name}={value}" for name, value in configs.items()))


def _require_known(cluster: Cluster, admin: Any, topic: str, names: Sequence[str]) -> None:
    """Refuses names that no property of a topic has: a broker would unset any name without an error."""
    if not names:
        return
    with cluster.errors(f"topic {topic}"):
        known = _all_configs(cluster, admin, topic)
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f": did you mean {near[0]}?" if near else ""
            raise UsageError(f"--unset {name}: a topic has no such property{hint}")


def _all_configs(cluster: Cluster, admin: Any, topic: str) -> dict[str, Any]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    futures = admin.describe_configs([resource], request_timeout=cluster.timeout_s)
    entries: dict[str, Any] = next(iter(futures.values())).result()
    return entries


def _configs(cluster: Cluster, admin: Any, topic: str) -> dict[str, str]:
    """The properties that were set for this topic."""
    entries = _all_configs(cluster, admin, topic)
    own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return {name: entry.value for name, entry in sorted(entries.items()) if entry.source == own}
