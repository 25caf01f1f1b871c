"""`headwater groups`: consumer groups, their lag, resetting their offsets, and deleting them."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any

import typer
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from headwater.cli._common import (
    DEFAULT_HOME,
    BootstrapOption,
    HomeOption,
    JsonOption,
    print_json,
    print_line,
    print_table,
)
from headwater.cli._kafka import parse_timestamp_ms, report, resolve_offset
from headwater.errors import UsageError, UserError
from headwater.running.cluster import Cluster
from headwater_broker.numbers import is_natural
from headwater_streams.base.plural import quantity

app = typer.Typer(rich_markup_mode="rich", no_args_is_help=True)

_COMING = ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS")
_POLL_S = 0.2


def _named(group: str) -> str:
    if not group:
        raise UsageError("a group's name is empty: headwater groups list shows them")
    return group


GroupArgument = Annotated[str, typer.Argument(help="The group's name.", callback=_named)]


@dataclass(frozen=True)
class _Progress:
    """How far a group is in one partition."""

    topic: str
    partition: int
    committed: int | None
    earliest: int
    latest: int
    member: str = ""
    client: str = ""
    host: str = ""

    @property
    def lag(self) -> int | None:
        """The records from the committed offset to the end that retention has left; None before a commit."""
        return None if self.committed is None else max(0, self.latest - max(self.committed, self.earliest))


@app.callback()
def _groups() -> None:
    """List consumer groups, show their lag, reset their offsets, delete them.

    \b
    Examples:
      headwater groups describe silver
      headwater groups reset silver --topic flights --to-earliest --dry-run
    """


@app.command("list")
def list_groups(
    home: HomeOption = DEFAULT_HOME, bootstrap: BootstrapOption = None, json_output: JsonOption = False
) -> None:
    """List the groups.

    \b
    Example:
      headwater groups list
    """
    cluster = Cluster(home, bootstrap)
    admin = cluster.admin()
    with cluster.errors("groups"):
        result = admin.list_consumer_groups(request_timeout=cluster.timeout_s).result()
        if not result.valid and result.errors:
            raise KafkaException(result.errors[0].args[0])
        names = sorted(listed.group_id for listed in result.valid)
        described = [(name, _describe(cluster, admin, name)) for name in names]
    rows = [(name, group.state.name.lower(), len(group.members)) for name, group in described]
    if json_output:
        print_json([{"group": name, "state": state, "members": count} for name, state, count in rows])
    else:
        print_table(("group", "state", "members"), rows, empty="there are no groups")


@app.command()
def describe(
    group: GroupArgument,
    home: HomeOption = DEFAULT_HOME,
    bootstrap: BootstrapOption = None,
    json_output: JsonOption = False,
) -> None:
    """Show how far a group is in each partition, and who reads it.

    \b
    Example:
      headwater groups describe silver
    """
    cluster = Cluster(home, bootstrap)
    with cluster.errors(f"group {group}"), cluster.consumer(**{"group.id": group}) as consumer:
        admin = cluster.admin()
        described = _describe(cluster, admin, group)
        progress = _progress(cluster, consumer, described)
    if not progress and not described.members:
        raise UsageError(f"there is no group {group}: headwater groups list shows them")
    total = sum(each.lag or 0 for each in progress)
    if json_output:
        rows = [{**vars(each), "lag": each.lag} for each in progress]
        state = described.state.name.lower()
        print_json({"group": group, "state": state, "lag": total, "partitions": rows})
        return
    columns = ["topic", "partition", "committed", "latest", "lag"]
    columns += ["client", "host"] if described.members else []
    print_table(
        columns,
        [tuple(getattr(each, column) for column in columns) for each in progress],
        empty=f"group {group} has committed nothing yet",
    )
    print_line(f"{described.state.name.lower()}, {quantity(len(described.members), 'member')}, lag {total}")


@app.command()
def reset(
    group: GroupArgument,
    topics: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="TOPIC[:N]", help="A topic, or one partition of it; repeatable."),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="Every partition that the group has committed.")
    ] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the beginning.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end.")] = False,
    to_offset: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="To this offset, or the nearer end of a partition without it."),
    ] = None,
    to_timestamp: Annotated[
        str | None, typer.Option(metavar="TIME", help="To the first record at or after this time.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    new: Annotated[bool, typer.Option("--new", help="Make the group if it is not there.")] = False,
    home: HomeOption = DEFAULT_HOME,
    bootstrap: BootstrapOption = None,
    json_output: JsonOption = False,
) -> None:
    """Move a group's committed offsets while none of its members runs.

    A group that is not there is refused, as its name may be mistyped: --new
    says where a group is to begin that is yet to read.

    \b
    Examples:
      headwater groups reset silver --all-topics --to-earliest --dry-run
      headwater groups reset silver --topic flights:0 --to-offset 42
      headwater groups reset silver --topic flights --to-timestamp 2013-01-05T00:00:00Z
      headwater groups reset gold --new --topic flights --to-latest
    """
    place = _place(to_earliest, to_latest, to_offset, to_timestamp)
    if bool(topics) == all_topics:
        raise UsageError("say what to reset: either --topic TOPIC or --all-topics")
    cluster = Cluster(home, bootstrap)
    with cluster.errors(f"group {group}"), cluster.consumer(**{"group.id": group}) as consumer:
        admin = cluster.admin()
        described = _describe(cluster, admin, group)
        members = described.members
        if members:
            raise UserError(
                f"group {group} has {quantity(len(members), 'running member')} "
                f"({', '.join(sorted({member.client_id for member in members}))}): stop them first"
            )
        committed = _committed(cluster, consumer)
        partitions = _partitions(cluster, topics or ()) if topics else sorted(committed)
        if not committed and not new and described.state.name == "DEAD":
            raise UsageError(f"there is no group {group}: {_near(cluster, admin, group)}; --new makes it")
        if not partitions:
            raise UserError(f"group {group} has committed nothing: name a topic with --topic")
        changes = []
        for topic, number in partitions:
            target = resolve_offset(consumer, topic, number, place, cluster.timeout_s)
            changes.append((topic, number, committed.get((topic, number)), target))
        if not dry_run:
            moved = [TopicPartition(topic, number, target) for topic, number, _, target in changes]
            _commit(cluster, admin, group, moved)
    columns = ("topic", "partition", "from", "to")
    if json_output:
        rows = [dict(zip(columns, change, strict=True)) for change in changes]
        print_json({"group": group, "dry_run": dry_run, "partitions": rows})
    else:
        print_table(columns, changes, empty="")
        print_line("nothing was changed" if dry_run else f"reset {quantity(len(changes), 'partition')}")


@app.command()
def delete(
    groups: Annotated[
        list[str], typer.Argument(help="The groups' names.", callback=lambda names: [*map(_named, names)])
    ],
    home: HomeOption = DEFAULT_HOME,
    bootstrap: BootstrapOption = None,
    json_output: JsonOption = False,
) -> None:
    """Delete groups and what they have committed, while none of their members runs.

    \b
    Example:
      headwater groups delete silver
    """
    cluster = Cluster(home, bootstrap)
    admin = cluster.admin()
    futures = admin.delete_consumer_groups(list(dict.fromkeys(groups)), request_timeout=cluster.timeout_s)
    report(cluster, "deleted", "group", futures, json_output)


def _place(to_earliest: bool, to_latest: bool, to_offset: int | None, to_timestamp: str | None) -> str:
    places = []
    if to_earliest:
        places.append("earliest")
    if to_latest:
        places.append("latest")
    if to_offset is not None:
        places.append(str(to_offset))
    if to_timestamp is not None:
        try:
            parse_timestamp_ms(to_timestamp)
        except ValueError as error:
            raise UsageError(
                f"--to-timestamp {to_timestamp} is no time: write it as 2013-01-01T10:00:00Z"
            ) from error
        places.append(to_timestamp)
    if len(places) != 1:
        raise UsageError("give one of --to-earliest, --to-latest, --to-offset N and --to-timestamp TIME")
    return places[0]


def _partitions(cluster: Cluster, topics: list[str] | tuple[()]) -> list[tuple[str, int]]:
    places = []
    for text in topics:
        topic, colon, number = text.rpartition(":")
        if not colon:
            places += [(text, each) for each in cluster.partitions(text)]
        elif is_natural(number) and int(number) in cluster.partitions(topic):
            places.append((topic, int(number)))
        else:
            raise UserError(f"--topic {text}: topic {topic} has no partition {number}")
    return places


def _near(cluster: Cluster, admin: Any, group: str) -> str:
    """A hint for a group that does not exist."""
    listed = admin.list_consumer_groups(request_timeout=cluster.timeout_s).result().valid
    near = get_close_matches(group, [each.group_id for each in listed], n=1)
    return f"did you mean {near[0]}?" if near else "headwater groups list shows them"


def _describe(cluster: Cluster, admin: Any, group: str) -> Any:
    return _answer(
        cluster, lambda: admin.describe_consumer_groups([group], request_timeout=cluster.timeout_s)[group]
    )


def _answer(cluster: Cluster, ask: Callable[[], Any]) -> Any:
    """The answer of a group's coordinator; one that is only coming, as in a cluster that has just started, is waited
    for."""
    until_s = time.monotonic() + cluster.timeout_s
    while True:
        try:
            return ask().result()
        except KafkaException as error:
            if error.args[0].name() not in _COMING or time.monotonic() > until_s:
                raise
        time.sleep(_POLL_S)


def _committed(cluster: Cluster, consumer: Any) -> dict[tuple[str, int], int]:
    """What the group of a consumer, which joins nothing, has committed, by topic and partition.

    librdkafka's admin client would end the process where it asks a coordinator that is only coming
    (confluentinc/librdkafka#5040).
    """
    places = [
        TopicPartition(topic, number)
        for topic, each in cluster.topics().items()
        for number in each.partitions
    ]
    if not places:
        return {}
    found = consumer.committed(places, timeout=cluster.timeout_s)
    return {(at.topic, at.partition): at.offset for at in found if at.error is None and at.offset >= 0}


def _progress(cluster: Cluster, consumer: Any, described: Any) -> list[_Progress]:
    readers = {
        (at.topic, at.partition): member
        for member in described.members
        for at in (member.assignment.topic_partitions if member.assignment else ())
    }
    committed = _committed(cluster, consumer)
    rows = []
    for topic, number in sorted({*committed, *readers}):
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=cluster.timeout_s)
        member = readers.get((topic, number))
        who = (member.member_id, member.client_id, member.host) if member else ("", "", "")
        rows.append(_Progress(topic, number, committed.get((topic, number)), low, high, *who))
    return rows


def _commit(cluster: Cluster, admin: Any, group: str, offsets: list[Any]) -> None:
    asked = [ConsumerGroupTopicPartitions(group, offsets)]
    done = _answer(
        cluster, lambda: admin.alter_consumer_group_offsets(asked, request_timeout=cluster.timeout_s)[group]
    )
    for at in done.topic_partitions:
        if at.error is not None:
            raise KafkaException(at.error)
