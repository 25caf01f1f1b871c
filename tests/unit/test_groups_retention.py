"""Offsets expire when they have served their time, and not before (KIP-211)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest
from kio.schema.errors import ErrorCode

from headwater_broker.coordination import (
    BrokerInfo,
    Committed,
    CoordinatorUnavailable,
    Endpoint,
    MemoryCoordinator,
)
from headwater_broker.groups import GroupError, JoinRequest, Leaver, OffsetUse, SyncRequest, decode_group
from headwater_broker.groups.subscription import encode_subscription
from headwater_broker.log import finished
from headwater_broker.server import parse_settings
from headwater_broker.server.apis.group_admin import GroupAdminApis
from headwater_broker.server.apis.membership import MembershipApis
from headwater_broker.server.cluster import ClusterView, Snapshot
from headwater_broker.server.group_offsets import Committer, GroupOffsets
from headwater_broker.server.group_runner import GroupRunner
from headwater_broker.server.live import LiveSettings
from headwater_broker.server.node import Node
from headwater_broker.server.offset_retention import OffsetRetention
from headwater_broker.testing.clock import START_MS, FixedClock

MINUTE_MS = 60_000
RETENTION_MS = 10 * MINUTE_MS


class Staged:
    """Transactions that hold offsets of groups."""

    def __init__(self) -> None:
        self.groups: set[str] = set()

    def staged_groups(self) -> Collection[str]:
        return self.groups

    async def drop_offsets(self, group: str, partitions: Collection[tuple[str, int]] | None = None) -> None:
        assert partitions is None
        self.groups.discard(group)


class Fixture:
    """A node that coordinates every group, without a network."""

    def __init__(self, helpers: ThreadPoolExecutor) -> None:
        self.clock = FixedClock()
        self.coordinator = MemoryCoordinator()
        me = BrokerInfo(1, (Endpoint("127.0.0.1", 9092),))
        view = ClusterView(1, "cluster")
        topics = {name: self.coordinator.create_topic(name, {0: [1], 1: [1]}, {}, uuid4()) for name in "tu"}
        view.apply(Snapshot(brokers={1: me}, topics=topics))
        settings = parse_settings({"offsets.retention.minutes": "10"})
        core = SimpleNamespace(register=lambda *_: None, on_written=lambda _: None)
        self.node = Node(
            LiveSettings(settings), me, self.clock, cast(Any, core), cast(Any, None), view, cast(Any, None),
            self.coordinator, helpers, cast(Any, None),
        )  # fmt: skip
        self.restart()

    def restart(self) -> None:
        """A coordinator that knows nothing yet."""
        self.staged = Staged()
        self.runner = GroupRunner(self.node)
        self.offsets = GroupOffsets(self.node, self.runner)
        self.retention = OffsetRetention(self.node, self.runner, self.staged)
        self.admin = GroupAdminApis(self.node, self.runner, self.offsets, self.staged)

    async def commit(self, group: str, topic: str, offset: int, retention_ms: int = -1, **who: Any) -> None:
        partition = SimpleNamespace(partition_index=0, committed_offset=offset, committed_metadata=None)
        topics = [SimpleNamespace(name=topic, partitions=[partition])]
        admission = finished(self.offsets.admit_slices(Committer(group, **who), topics, retention_ms))
        assert not admission.errors
        assert (await self.offsets.store(group, admission.offsets)).name == "none"

    def join(self, group: str, *topics: str) -> None:
        """A member alone, stable at once; its id is `c-1`."""
        now_ms = self.runner.now_ms()
        machine = self.runner.groups
        machine._new_id = lambda: "1"
        protocols = (("range", encode_subscription(topics)),)
        machine.join(
            now_ms, "t", JoinRequest(group, "", None, "c", "/h", 1_000_000, 60_000, "consumer", protocols)
        )
        machine.tick(now_ms + 3000)
        machine.sync(now_ms + 3000, "t", SyncRequest(group, "c-1", 1, assignments={"c-1": b""}))
        for save in machine.take_saves():
            machine.saved(now_ms + 3000, save)
        assert machine.describe(group).state.value == "Stable"

    async def sweep_after(self, ms: int, group: str = "g") -> set[str]:
        self.clock.ms += ms
        await self.retention.sweep()
        return {topic for topic, _ in self.coordinator.fetch_offsets(group)}


@pytest.fixture
def helpers() -> Any:
    with ThreadPoolExecutor(2) as executor:
        yield executor


def run(story: Any, helpers: ThreadPoolExecutor) -> None:
    async def main() -> None:
        fixture = Fixture(helpers)
        await fixture.runner.load()
        try:
            await story(fixture)
        finally:
            fixture.runner.stop()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("use", "committed_ms", "expires_ms", "expected"),
    [
        (OffsetUse(None, frozenset()), START_MS - RETENTION_MS, None, True),
        (OffsetUse(None, frozenset()), START_MS - RETENTION_MS + 1, None, False),
        (OffsetUse(None, frozenset({"t"})), 0, None, False),
        (OffsetUse(None, None), 0, None, False),
        (OffsetUse(RETENTION_MS, frozenset()), START_MS, None, True),
        (OffsetUse(RETENTION_MS - 1, frozenset()), 0, None, False),
        (OffsetUse(0, frozenset()), START_MS, START_MS, True),
        (OffsetUse(RETENTION_MS, frozenset()), 0, START_MS + 1, False),
    ],
)
def test_offset_use_decides(
    use: OffsetUse, committed_ms: int, expires_ms: int | None, expected: bool
) -> None:
    assert use.is_expired("t", committed_ms, expires_ms, START_MS, RETENTION_MS) is expected


def test_retention_simple_consumer_counts_from_its_last_commit(helpers: ThreadPoolExecutor) -> None:
    async def story(fixture: Fixture) -> None:
        await fixture.commit("g", "t", 1)
        assert await fixture.sweep_after(0) == {"t"}
        await fixture.commit("g", "u", 1)
        assert await fixture.sweep_after(RETENTION_MS - 1) == {"t", "u"}
        await fixture.commit("g", "u", 2)
        assert await fixture.sweep_after(1) == {"u"}
        assert await fixture.sweep_after(RETENTION_MS) == set()
        assert fixture.coordinator.groups() == {}

    run(story, helpers)


def test_retention_broker_that_knows_nothing_of_a_group_gives_it_the_whole_time(
    helpers: ThreadPoolExecutor,
) -> None:
    async def story(fixture: Fixture) -> None:
        old = Committed(5, timestamp_ms=START_MS - 100 * RETENTION_MS)
        fixture.coordinator.commit_offsets("g", {("t", 0): old, ("u", 0): Committed(7)})
        assert await fixture.sweep_after(0) == {"t", "u"}
        assert await fixture.sweep_after(RETENTION_MS - 1) == {"t", "u"}
        # What Kafka 0.8's consumers wrote carries no time, and stays.
        assert await fixture.sweep_after(1) == {"u"}

    run(story, helpers)


def test_retention_stable_group_keeps_what_it_reads(helpers: ThreadPoolExecutor) -> None:
    async def story(fixture: Fixture) -> None:
        await fixture.commit("g", "t", 1)
        await fixture.commit("g", "u", 1)
        fixture.join("g", "t")
        assert await fixture.sweep_after(RETENTION_MS - 1) == {"t", "u"}
        fixture.join("other", "u")
        assert await fixture.sweep_after(1) == {"t"}

    run(story, helpers)


def test_retention_group_without_members_counts_from_when_the_last_left(helpers: ThreadPoolExecutor) -> None:
    async def story(fixture: Fixture) -> None:
        fixture.join("g", "t")
        await fixture.commit("g", "t", 1, member_id="c-1", generation=1)
        assert await fixture.sweep_after(RETENTION_MS) == {"t"}
        fixture.runner.groups.leave(fixture.runner.now_ms(), "t", "g", [Leaver("c-1")])
        assert await fixture.sweep_after(RETENTION_MS - 1) == {"t"}
        assert [group.group_id for group in fixture.runner.groups.list_groups()] == ["g"]
        assert await fixture.sweep_after(1) == set()
        await fixture.retention.sweep()
        assert fixture.runner.groups.list_groups() == []

    run(story, helpers)


def test_retention_group_whose_offsets_are_in_an_open_transaction_keeps_its_generation(
    helpers: ThreadPoolExecutor,
) -> None:
    """As GroupMetadata.hasOffsets, which counts those of transactions."""

    async def story(fixture: Fixture) -> None:
        fixture.join("g", "t")
        fixture.runner.groups.leave(fixture.runner.now_ms(), "t", "g", [Leaver("c-1")])
        fixture.staged.groups.add("g")
        for _ in range(2):
            assert await fixture.sweep_after(RETENTION_MS) == set()
            assert [group.group_id for group in fixture.runner.groups.list_groups()] == ["g"]
        fixture.staged.groups.clear()
        await fixture.retention.sweep()
        assert fixture.runner.groups.list_groups() == []

    run(story, helpers)


def test_retention_counts_from_when_the_last_member_left_over_a_restart(helpers: ThreadPoolExecutor) -> None:
    async def story(fixture: Fixture) -> None:
        fixture.join("g", "t")
        await fixture.commit("g", "t", 1, member_id="c-1", generation=1)
        fixture.runner.deliver(
            fixture.runner.groups.leave(fixture.runner.now_ms(), "t", "g", [Leaver("c-1")])
        )
        while "g" not in fixture.coordinator.kept_groups():
            await asyncio.sleep(0)
        fixture.runner.stop()
        fixture.clock.ms += RETENTION_MS - 1
        fixture.restart()
        await fixture.runner.load()
        assert await fixture.sweep_after(0) == {"t"}
        assert fixture.runner.groups.describe("g").protocol_type == "consumer"
        assert await fixture.sweep_after(1) == set()
        await fixture.retention.sweep()
        assert fixture.runner.groups.list_groups() == []
        assert fixture.coordinator.kept_groups() == {}

    run(story, helpers)


async def codes(fixture: Fixture) -> list[ErrorCode]:
    """What a member that this coordinator does not know is answered, by heartbeat, sync, join and leave; and a list."""
    apis = MembershipApis(fixture.node, fixture.runner)
    who = {"group_id": "g", "member_id": "m", "generation_id": 1, "group_instance_id": None, "reason": None}
    join = {"protocol_type": "consumer", "protocols": [], "assignments": [], "protocol_name": "range"}
    join |= {"session_timeout": timedelta(seconds=10), "rebalance_timeout": timedelta(seconds=10)}
    body = SimpleNamespace(**who, **join, members=[SimpleNamespace(**who)])
    request = SimpleNamespace(
        version=4, body=body, client_id="c", connection=SimpleNamespace(peer="h:1"), get=(who | join).get
    )
    answers = [
        await handler(cast(Any, request)) for handler in (apis.heartbeat, apis.sync_group, apis.join_group)
    ]
    left = await apis.leave_group(cast(Any, request))
    (member,) = left["members"] or [left]
    listed = await fixture.admin.list_groups(cast(Any, SimpleNamespace(get=lambda _, default: default)))
    return [each["error_code"] for each in [*answers, member, listed]]


def test_group_that_is_not_loaded_yet_is_said_to_be_loading(helpers: ThreadPoolExecutor) -> None:
    async def story(fixture: Fixture) -> None:
        fixture.runner.stop()
        fixture.coordinator.keep_group("mangled", b"?")
        fixture.restart()
        assert fixture.runner.refusal("g") is GroupError.COORDINATOR_LOAD_IN_PROGRESS
        # Kafka says so to whoever joins, and to operators; a member in its generation is to stay in it.
        assert await codes(fixture) == [
            ErrorCode.none,
            ErrorCode.rebalance_in_progress,
            ErrorCode.coordinator_load_in_progress,
            ErrorCode.coordinator_load_in_progress,
            ErrorCode.coordinator_load_in_progress,
        ]
        await fixture.runner.load()
        assert fixture.runner.refusal("g") is GroupError.NONE
        assert await codes(fixture) == [*[ErrorCode.unknown_member_id] * 4, ErrorCode.none]
        assert "mangled" not in fixture.runner.groups

    run(story, helpers)


def joined_alone(fixture: Fixture, metadata: bytes, assignment: bytes) -> asyncio.Future[Any]:
    """A member alone, whose SyncGroup is on its way; returns what it will be answered."""
    runner, machine = fixture.runner, fixture.runner.groups
    machine._new_id = lambda: "1"
    join = JoinRequest(
        *("g", "", None, "c", "/h", 1_000_000, 60_000, "consumer", (("range", metadata),)),
    )
    runner.deliver(machine.join(runner.now_ms(), "join", join))
    fixture.clock.ms += 3000
    runner.deliver(machine.tick(runner.now_ms()))
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    sync = SyncRequest("g", "c-1", 1, assignments={"c-1": assignment})
    runner.deliver(machine.sync(runner.now_ms(), answer, sync))
    return answer


def test_assignment_that_shared_state_does_not_take_is_not_handed_out(
    helpers: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable(*_: object) -> None:
        raise CoordinatorUnavailable("no answer")

    async def story(fixture: Fixture) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(fixture.coordinator, "keep_group", unavailable)
            answer = await joined_alone(fixture, b"m", b"mine")
            assert (answer.error, answer.assignment) == (GroupError.COORDINATOR_NOT_AVAILABLE, b"")
        assert fixture.runner.groups.describe("g").state.value == "PreparingRebalance"
        assert fixture.coordinator.kept_groups() == {}

    run(story, helpers)


def test_group_that_is_too_large_to_keep_goes_on_and_keeps_its_generation(
    helpers: ThreadPoolExecutor,
) -> None:
    async def story(fixture: Fixture) -> None:
        answer = await joined_alone(fixture, b"m", random.Random(1).randbytes(700_000))
        assert (answer.error, len(answer.assignment)) == (GroupError.NONE, 700_000)
        kept, _ = decode_group("g", fixture.coordinator.kept_groups()["g"])
        assert (kept.generation, kept.members, kept.leader) == (1, (), None)

    run(story, helpers)


def test_delete_of_a_group_and_its_commits_come_one_after_the_other(helpers: ThreadPoolExecutor) -> None:
    async def story(fixture: Fixture) -> None:
        # A commit is under way: the deletion waits for it, and finds what it has stored.
        async with fixture.offsets.turns.turn("g"):
            deletion = asyncio.create_task(fixture.admin._delete("g"))
            await asyncio.sleep(0.01)
            assert not deletion.done()
            fixture.coordinator.commit_offsets("g", {("t", 0): Committed(1)})
        assert await deletion is ErrorCode.none
        assert fixture.coordinator.groups() == {}
        # One that comes during the deletion is stored after it.
        async with fixture.runner.deleting("g"):
            commit = asyncio.create_task(fixture.commit("g", "t", 2))
            await asyncio.sleep(0.01)
            assert not commit.done()
        await commit
        assert fixture.coordinator.fetch_offsets("g")["t", 0].offset == 2
        fixture.offsets.blocked.add("g")
        assert await fixture.admin._delete("g") is ErrorCode.coordinator_not_available

    run(story, helpers)


def test_retention_asked_for_by_the_client_wins(helpers: ThreadPoolExecutor) -> None:
    async def story(fixture: Fixture) -> None:
        await fixture.commit("g", "t", 1, retention_ms=1000)
        await fixture.commit("g", "u", 1, retention_ms=5 * RETENTION_MS)
        assert await fixture.sweep_after(999) == {"t", "u"}
        assert await fixture.sweep_after(1) == {"u"}
        assert await fixture.sweep_after(2 * RETENTION_MS) == {"u"}

    run(story, helpers)


def test_commit_of_version_1_has_a_time_of_its_own(helpers: ThreadPoolExecutor) -> None:
    async def story(fixture: Fixture) -> None:
        partitions = [
            SimpleNamespace(
                partition_index=index, committed_offset=1, committed_metadata=None, commit_timestamp=stamp_ms
            )
            for index, stamp_ms in enumerate((-1, 12_345))
        ]
        admission = finished(
            fixture.offsets.admit_slices(Committer("g"), [SimpleNamespace(name="t", partitions=partitions)])
        )
        stamps = [admission.offsets["t", index].timestamp_ms for index in (0, 1)]
        assert stamps == [fixture.clock.now_ms(), 12_345]

    run(story, helpers)


def test_retention_registered_members_keep_everything(helpers: ThreadPoolExecutor) -> None:
    async def story(fixture: Fixture) -> None:
        await fixture.commit("g", "t", 1)
        fixture.coordinator.register_member("g", "job", {"t": 1})
        assert await fixture.sweep_after(5 * RETENTION_MS) == {"t"}
        fixture.coordinator.deregister_member("g", "job")
        assert await fixture.sweep_after(0) == {"t"}
        assert await fixture.sweep_after(RETENTION_MS) == set()

    run(story, helpers)


def test_groups_go_on_while_no_broker_is_registered_and_are_given_up_to_another(
    helpers: ThreadPoolExecutor,
) -> None:
    async def story(fixture: Fixture) -> None:
        fixture.join("g", "t")
        view, runner = fixture.node.cluster, fixture.runner
        view.apply(Snapshot(brokers={}))
        assert runner.refusal("g") is GroupError.NONE
        assert runner.refusal("unheard-of") is GroupError.COORDINATOR_NOT_AVAILABLE
        view.apply(Snapshot(brokers={2: BrokerInfo(2, (Endpoint("127.0.0.1", 9093),))}))
        assert runner.refusal("g") is GroupError.NOT_COORDINATOR
        assert "g" not in runner.groups

    run(story, helpers)


def test_commits_of_one_group_are_stored_in_the_order_of_their_admission(helpers: ThreadPoolExecutor) -> None:
    async def story(fixture: Fixture) -> None:
        await asyncio.gather(*(fixture.commit("g", "t", offset) for offset in range(50)))
        assert fixture.coordinator.fetch_offsets("g")["t", 0].offset == 49
        assert len(fixture.runner.turns) == 0

    run(story, helpers)
