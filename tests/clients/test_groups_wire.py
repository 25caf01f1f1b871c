"""The group protocol on the wire: what each version says, and which error each misuse gets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from kio.schema.errors import ErrorCode

from headwater_broker.coordination import Coordinator, MemoryCluster, MemoryCoordinator
from headwater_broker.groups.subscription import encode_assignment, encode_subscription
from headwater_broker.testing import RunningBroker, WireClient
from headwater_broker.testing import broker as run_broker
from headwater_broker.wire.apis import (
    APIS,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SYNC_GROUP,
)

TOPIC = "clicks"
METADATA_OF_READER = encode_subscription([TOPIC])
CLUSTER = MemoryCluster()


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with run_broker(
        coordinator=MemoryCoordinator(cluster=CLUSTER), properties={"num.partitions": "2"}
    ) as started:
        with WireClient(started.bootstrap) as client:
            client.ask(METADATA, 4, topics=[{"name": TOPIC}], allow_auto_topic_creation=True)
        yield started


@pytest.fixture
def client(running: RunningBroker) -> Iterator[WireClient]:
    with WireClient(running.bootstrap) as made:
        yield made


@pytest.fixture
def group() -> str:
    return f"group-{uuid4().hex[:8]}"


@pytest.fixture
def session() -> Iterator[Coordinator]:
    """Somebody else's session with the shared state."""
    made = MemoryCoordinator(cluster=CLUSTER)
    yield made
    made.stop()


def join_fields(group: str, member: str = "", **more: Any) -> dict[str, Any]:
    return {
        "group_id": group,
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": member,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": METADATA_OF_READER}],
        "reason": "a test",
        **more,
    }


def join(client: WireClient, group: str, version: int = 9, **more: Any) -> Any:
    """Joins a group to the end of its rebalance."""
    answer = client.ask(JOIN_GROUP, version, **join_fields(group, **more))
    if answer.error_code is ErrorCode.member_id_required:
        answer = client.ask(JOIN_GROUP, version, **join_fields(group, answer.member_id, **more))
    assert answer.error_code is ErrorCode.none, answer
    return answer


def sync_fields(group: str, joined: Any, **more: Any) -> dict[str, Any]:
    return {
        "group_id": group,
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [],
        **more,
    }


def stable(client: WireClient, group: str, **more: Any) -> Any:
    """Makes a group of one member."""
    joined = join(client, group, **more)
    mine = {"member_id": joined.member_id, "assignment": encode_assignment([(TOPIC, 0), (TOPIC, 1)])}
    instance = more.get("group_instance_id")
    synced = client.ask(
        SYNC_GROUP, 5, **sync_fields(group, joined, assignments=[mine], group_instance_id=instance)
    )
    assert synced.error_code is ErrorCode.none
    return joined


def commit(
    client: WireClient,
    group: str,
    *offsets: tuple[str, int, int],
    version: int = 8,
    metadata: str = "note",
    **who: Any,
) -> list[Any]:
    topics = [
        {
            "name": topic,
            "partitions": [
                {
                    "partition_index": partition,
                    "committed_offset": offset,
                    "committed_leader_epoch": -1,
                    "committed_metadata": metadata,
                }
            ],
        }
        for topic, partition, offset in offsets
    ]
    member = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None, **who}
    answer = client.ask(OFFSET_COMMIT, version, group_id=group, topics=topics, **member)
    return [partition.error_code for topic in answer.topics for partition in topic.partitions]


@pytest.mark.parametrize("version", range(10))
def test_group_of_one_lives_in_every_version(client: WireClient, group: str, version: int) -> None:
    def highest(api_key: int) -> int:
        return min(version, APIS[api_key].highest)

    joined = join(client, group, version)
    assert (joined.generation_id, joined.protocol_name, joined.leader) == (1, "range", joined.member_id)
    assert [each.member_id for each in joined.members] == [joined.member_id]
    mine = {"member_id": joined.member_id, "assignment": b"mine"}
    synced = client.ask(SYNC_GROUP, highest(SYNC_GROUP), **sync_fields(group, joined, assignments=[mine]))
    assert (synced.error_code, synced.assignment) == (ErrorCode.none, b"mine")
    who = {"group_id": group, "generation_id": 1, "member_id": joined.member_id, "group_instance_id": None}
    assert client.ask(HEARTBEAT, highest(HEARTBEAT), **who).error_code is ErrorCode.none
    leaving = {"member_id": joined.member_id, "group_instance_id": None, "reason": "over"}
    left = client.ask(
        LEAVE_GROUP, highest(LEAVE_GROUP), group_id=group, member_id=joined.member_id, members=[leaving]
    )
    assert left.error_code is ErrorCode.none
    assert all(each.error_code is ErrorCode.none for each in getattr(left, "members", ()))
    gone = client.ask(HEARTBEAT, highest(HEARTBEAT), **who)
    assert gone.error_code is ErrorCode.unknown_member_id


def test_join_from_version_4_on_sends_a_new_member_back_with_its_id(client: WireClient, group: str) -> None:
    for version in (4, 9):
        answer = client.ask(JOIN_GROUP, version, **join_fields(group))
        assert answer.error_code is ErrorCode.member_id_required
        assert answer.member_id.startswith("wire-")
        assert answer.generation_id == -1
    static = client.ask(JOIN_GROUP, 5, **join_fields(group, group_instance_id="static"))
    assert static.error_code is not ErrorCode.member_id_required


def test_join_without_a_group_or_with_an_odd_session_is_refused(client: WireClient, group: str) -> None:
    assert client.ask(JOIN_GROUP, 9, **join_fields("")).error_code is ErrorCode.invalid_group_id
    for session_timeout in (99, 1_800_001):
        answer = client.ask(JOIN_GROUP, 9, **join_fields(group, session_timeout=session_timeout))
        assert answer.error_code is ErrorCode.invalid_session_timeout
    answer = client.ask(JOIN_GROUP, 9, **join_fields(group, "ghost"))
    assert answer.error_code is ErrorCode.unknown_member_id
    answer = client.ask(JOIN_GROUP, 9, **join_fields(group, protocols=[]))
    assert answer.error_code is ErrorCode.inconsistent_group_protocol
    assert answer.protocol_name is None
    answer = client.ask(JOIN_GROUP, 6, **join_fields(group, protocols=[]))
    assert answer.protocol_name == "", "before version 7 it cannot be null"


@pytest.mark.parametrize("missing", ["protocol_type", "protocol_name"])
def test_sync_from_version_5_on_names_its_protocol(client: WireClient, group: str, missing: str) -> None:
    joined = join(client, group)
    answer = client.ask(SYNC_GROUP, 5, **sync_fields(group, joined, **{missing: None}))
    assert answer.error_code is ErrorCode.inconsistent_group_protocol
    answer = client.ask(SYNC_GROUP, 5, **sync_fields(group, joined, **{missing: "other"}))
    assert answer.error_code is ErrorCode.inconsistent_group_protocol
    answer = client.ask(SYNC_GROUP, 4, **sync_fields(group, joined))
    assert answer.error_code is ErrorCode.none


def test_sync_of_an_old_generation_is_refused(client: WireClient, group: str) -> None:
    joined = join(client, group)
    answer = client.ask(SYNC_GROUP, 5, **sync_fields(group, joined, generation_id=7))
    assert answer.error_code is ErrorCode.illegal_generation


def test_static_leader_that_comes_back_is_told_not_to_assign(client: WireClient, group: str) -> None:
    first = stable(client, group, group_instance_id="static")
    again = join(client, group, group_instance_id="static")
    assert (again.generation_id, again.skip_assignment, again.leader) == (1, True, again.member_id)
    assert again.member_id != first.member_id
    heartbeat = {"group_id": group, "generation_id": 1, "group_instance_id": "static"}
    fenced = client.ask(HEARTBEAT, 4, member_id=first.member_id, **heartbeat)
    assert fenced.error_code is ErrorCode.fenced_instance_id
    assert commit(
        client,
        group,
        (TOPIC, 0, 1),
        generation_id_or_member_epoch=1,
        member_id=first.member_id,
        group_instance_id="static",
    ) == [ErrorCode.fenced_instance_id]
    old = join(client, group, 8, group_instance_id="static")
    assert old.leader == again.member_id != old.member_id, "before version 9 another one seems to lead"


def test_leave_names_several_members_from_version_3_on(client: WireClient, group: str) -> None:
    joined = stable(client, group, group_instance_id="static")
    leavers = [("ghost", None), ("", "nobody"), ("wrong", "static"), ("", "static"), (joined.member_id, None)]
    members = [{"member_id": m, "group_instance_id": i, "reason": None} for m, i in leavers]
    answer = client.ask(LEAVE_GROUP, 5, group_id=group, members=members)
    assert answer.error_code is ErrorCode.none
    assert [each.error_code for each in answer.members] == [
        ErrorCode.unknown_member_id,
        ErrorCode.unknown_member_id,
        ErrorCode.fenced_instance_id,
        ErrorCode.none,
        ErrorCode.unknown_member_id,
    ]
    old = client.ask(LEAVE_GROUP, 1, group_id=group, member_id="ghost")
    assert old.error_code is ErrorCode.unknown_member_id


def test_commit_checks_partitions_before_the_member(client: WireClient, group: str) -> None:
    joined = stable(client, group)
    wanted = [(TOPIC, 0, 3), (TOPIC, 9, 3), ("missing", 0, 3)]
    unknown = ErrorCode.unknown_topic_or_partition
    stranger = commit(client, group, *wanted)
    assert stranger == [ErrorCode.unknown_member_id, unknown, unknown]
    member = {"generation_id_or_member_epoch": 1, "member_id": joined.member_id}
    assert commit(client, group, *wanted, **member) == [ErrorCode.none, unknown, unknown]
    late = {**member, "generation_id_or_member_epoch": 0}
    assert commit(client, group, (TOPIC, 0, 4), **late) == [ErrorCode.illegal_generation]


def test_commit_of_a_generation_to_a_group_that_is_not_there_is_refused(
    client: WireClient, group: str
) -> None:
    member = {"generation_id_or_member_epoch": 1, "member_id": "ghost"}
    assert commit(client, group, (TOPIC, 0, 4), **member) == [ErrorCode.illegal_generation]
    assert commit(client, group, (TOPIC, 0, 4)) == [ErrorCode.none]


@pytest.mark.parametrize("version", range(2, 10))
def test_commit_is_stored_in_every_version(client: WireClient, group: str, version: int) -> None:
    extra = {"retention_time": -1} if version < 5 else {}
    assert commit(client, group, (TOPIC, 1, 40 + version), version=version, **extra) == [ErrorCode.none]
    fetched = client.ask(
        OFFSET_FETCH, 1, group_id=group, topics=[{"name": TOPIC, "partition_indexes": [0, 1]}]
    )
    assert [
        (each.committed_offset, each.metadata, each.error_code) for each in fetched.topics[0].partitions
    ] == [(-1, "", ErrorCode.none), (40 + version, "note", ErrorCode.none)]


def test_commit_with_metadata_that_cannot_be_stored_is_refused(tmp_path: Path) -> None:
    roomy = {"offset.metadata.max.bytes": "2000000", "num.partitions": "1"}
    with run_broker(tmp_path, properties=roomy) as running, WireClient(running.bootstrap) as client:
        client.ask(METADATA, 4, topics=[{"name": TOPIC}], allow_auto_topic_creation=True)
        too_large = commit(client, "g", (TOPIC, 0, 1), version=9, metadata="m" * 1_000_000)
        assert too_large == [ErrorCode.invalid_commit_offset_size]
        assert commit(client, "g", (TOPIC, 0, 1), version=9, metadata="m" * 30_000) == [ErrorCode.none]


def test_commit_with_a_retention_of_its_own_is_kept_with_it(
    client: WireClient, group: str, session: Coordinator
) -> None:
    commit(client, group, (TOPIC, 0, 1), version=4, retention_time=60_000)
    stored = session.fetch_offsets(group)[TOPIC, 0]
    assert stored.timestamp_ms is not None
    assert stored.expires_ms == stored.timestamp_ms + 60_000


def test_fetch_of_offsets_takes_several_groups_and_all_topics(client: WireClient, group: str) -> None:
    other = f"{group}-other"
    commit(client, group, (TOPIC, 0, 1))
    commit(client, other, (TOPIC, 1, 2))
    fields = {"member_id": None, "member_epoch": -1}
    groups = [
        {"group_id": group, "topics": None, **fields},
        {"group_id": other, "topics": [{"name": TOPIC, "partition_indexes": [1, 0]}], **fields},
        {"group_id": f"{group}-unheard-of", "topics": None, **fields},
    ]
    answer = client.ask(OFFSET_FETCH, 9, groups=groups, require_stable=True)

    def offsets(index: int) -> list[tuple[int, int]]:
        return [
            (each.partition_index, each.committed_offset)
            for topic in answer.groups[index].topics
            for each in topic.partitions
        ]

    assert [each.error_code for each in answer.groups] == [ErrorCode.none] * 3
    assert [offsets(0), offsets(1), offsets(2)] == [[(0, 1)], [(1, 2), (0, -1)], []]
    everything = client.ask(OFFSET_FETCH, 2, group_id=group, topics=None)
    assert [topic.name for topic in everything.topics] == [TOPIC]


def delete(client: WireClient, group: str, *partitions: tuple[str, int]) -> Any:
    topics = [{"name": name, "partitions": [{"partition_index": index}]} for name, index in partitions]
    return client.ask(OFFSET_DELETE, 0, group_id=group, topics=topics)


def test_offsets_are_deleted_unless_somebody_reads_them(client: WireClient, group: str) -> None:
    assert delete(client, "", (TOPIC, 0)).error_code is ErrorCode.invalid_group_id
    assert delete(client, group, (TOPIC, 0)).error_code is ErrorCode.group_id_not_found
    client.ask(METADATA, 4, topics=[{"name": "views"}], allow_auto_topic_creation=True)
    commit(client, group, (TOPIC, 0, 1), ("views", 0, 2))
    stable(client, group)
    answer = delete(client, group, (TOPIC, 0), ("views", 0), ("views", 7), ("missing", 0))
    assert [each.error_code for topic in answer.topics for each in topic.partitions] == [
        ErrorCode.group_subscribed_to_topic,
        ErrorCode.none,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_or_partition,
    ]
    left = client.ask(OFFSET_FETCH, 2, group_id=group, topics=None)
    assert [topic.name for topic in left.topics] == [TOPIC]


def test_offsets_of_a_group_that_is_not_of_consumers_are_not_deleted(client: WireClient, group: str) -> None:
    joined = join(client, group, protocol_type="connect")
    assert joined.protocol_type == "connect"
    assert delete(client, group, (TOPIC, 0)).error_code is ErrorCode.non_empty_group


def test_groups_are_deleted_once_they_are_empty(client: WireClient, group: str) -> None:
    joined = stable(client, group)
    simple = f"{group}-simple"
    commit(client, simple, (TOPIC, 0, 1))
    answer = client.ask(DELETE_GROUPS, 2, groups_names=[group, simple, "unheard-of", group])
    assert [(each.group_id, each.error_code) for each in answer.results] == [
        (group, ErrorCode.non_empty_group),
        (simple, ErrorCode.none),
        ("unheard-of", ErrorCode.group_id_not_found),
    ]
    client.ask(LEAVE_GROUP, 0, group_id=group, member_id=joined.member_id)
    answer = client.ask(DELETE_GROUPS, 2, groups_names=[group])
    assert [each.error_code for each in answer.results] == [ErrorCode.none]
    answer = client.ask(DELETE_GROUPS, 2, groups_names=[group])
    assert [each.error_code for each in answer.results] == [ErrorCode.group_id_not_found]


def test_groups_are_listed_by_state_and_type(client: WireClient, group: str) -> None:
    stable(client, group)
    simple = f"{group}-simple"
    commit(client, simple, (TOPIC, 0, 1))

    def listed(version: int = 5, **filters: Any) -> dict[str, Any]:
        answer = client.ask(LIST_GROUPS, version, **{"states_filter": [], "types_filter": [], **filters})
        assert answer.error_code is ErrorCode.none
        return {each.group_id: each for each in answer.groups if each.group_id.startswith(group)}

    assert {name: each.protocol_type for name, each in listed(0).items()} == {group: "consumer", simple: ""}
    assert listed()[group].group_state == "Stable"
    assert listed()[simple].group_type == "classic"
    assert set(listed(4, states_filter=["EMPTY"])) == {simple}
    assert set(listed(states_filter=["stable", "Dead"])) == {group}
    assert set(listed(types_filter=["Classic"])) == {group, simple}
    assert listed(types_filter=["consumer"]) == {}


@pytest.mark.parametrize("version", range(6))
def test_group_that_nobody_knows_is_described_as_dead(client: WireClient, group: str, version: int) -> None:
    fields: dict[str, Any] = {"include_authorized_operations": True} if version >= 3 else {}
    (answer,) = client.ask(DESCRIBE_GROUPS, version, groups=[group], **fields).groups
    assert (answer.error_code, answer.group_state, answer.members) == (ErrorCode.none, "Dead", ())
    assert getattr(answer, "authorized_operations", 0b101001000) == 0b101001000


def test_running_job_is_described_with_what_it_owns_and_is_not_deleted(
    client: WireClient, group: str, session: Coordinator
) -> None:
    commit(client, group, (TOPIC, 0, 1))
    session.register_member(group, "/srv/headwater", {TOPIC: 2})
    session.claim_partitions(group, "/srv/headwater", [(TOPIC, 0), (TOPIC, 1)])
    (answer,) = client.ask(DESCRIBE_GROUPS, 5, groups=[group], include_authorized_operations=False).groups
    assert (answer.group_state, answer.protocol_type) == ("Stable", "consumer")
    (member,) = answer.members
    assert member.member_id == "/srv/headwater"
    assert member.member_assignment == encode_assignment([(TOPIC, 0), (TOPIC, 1)])
    assert member.member_metadata == METADATA_OF_READER
    listed = client.ask(LIST_GROUPS, 4, states_filter=["Stable"]).groups
    assert group in {each.group_id for each in listed}
    (deleted,) = client.ask(DELETE_GROUPS, 2, groups_names=[group]).results
    assert deleted.error_code is ErrorCode.non_empty_group
    (topic,) = delete(client, group, (TOPIC, 0)).topics
    assert topic.partitions[0].error_code is ErrorCode.group_subscribed_to_topic
    assert commit(client, group, (TOPIC, 0, 0)) == [ErrorCode.unknown_member_id]
    session.deregister_member(group, "/srv/headwater")
    (answer,) = client.ask(DESCRIBE_GROUPS, 5, groups=[group], include_authorized_operations=False).groups
    assert (answer.group_state, answer.members) == ("Empty", ())
    assert commit(client, group, (TOPIC, 0, 0)) == [ErrorCode.none]
