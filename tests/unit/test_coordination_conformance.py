"""What every coordinator does: the one in memory and the one over a real ZooKeeper."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID, uuid4

import pytest

from headwater_broker.coordination import (
    NO_LEADER,
    AlreadyExists,
    AlreadyOwned,
    BrokerIdInUse,
    BrokerInfo,
    Change,
    ChangeKind,
    Committed,
    ConfigKind,
    Conflict,
    Controller,
    Coordinator,
    DoesNotExist,
    Endpoint,
    LeaseLost,
    MemoryCluster,
    MemoryCoordinator,
    PartitionState,
    ZooKeeperCoordinator,
)
from headwater_broker.coordination.model import split_user_client, user_client_name
from headwater_broker.security import (
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
ODD_NAMES = [
    "",
    "a/b",
    ".",
    "..",
    "100%",
    "%2F",
    "tab\tnul\0",
    "Fluß",
    "流れ",
    "🌊",
    "\ue000",
    "zookeeper",
    "sp ace",
]

Join = Callable[[], Coordinator]


@pytest.fixture(params=["memory", "zookeeper"])
def join(request: pytest.FixtureRequest) -> Iterator[Join]:
    """Makes coordinators of one and the same cluster, new for each test."""
    started: list[Coordinator] = []
    if request.param == "memory":
        cluster = MemoryCluster()

        def make() -> Coordinator:
            return MemoryCoordinator(cluster=cluster)

    else:
        hosts = f"{request.getfixturevalue('zookeeper').hosts}/{uuid4()}"

        def make() -> Coordinator:
            return ZooKeeperCoordinator(hosts, session_timeout_ms=6000)

    def joined() -> Coordinator:
        coordinator = make()
        coordinator.start()
        started.append(coordinator)
        return coordinator

    yield joined
    for coordinator in started:
        coordinator.stop()


@pytest.fixture
def one(join: Join) -> Coordinator:
    return join()


def broker(broker_id: int = 1, identity: str = "dir-1", port: int = 9092) -> BrokerInfo:
    return BrokerInfo(broker_id, (Endpoint("127.0.0.1", port),), "rack-a", identity, {"kraft": (0, 1)})


def eventually(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"waited 60 s for {what}"
        time.sleep(0.01)


def test_cluster_id_is_made_once_and_shared(join: Join) -> None:
    one, two = join(), join()
    assert len(one.cluster_id()) == 22
    assert one.cluster_id() == two.cluster_id()


def test_broker_registered_is_seen_by_others_until_it_stops(join: Join) -> None:
    one, two = join(), join()
    one.register_broker(broker())
    assert two.brokers() == {1: broker()}
    one.stop()
    assert two.brokers() == {}


def test_broker_registered_again_gets_a_higher_epoch_and_its_new_address(join: Join) -> None:
    one, two = join(), join()
    first = one.register_broker(broker())
    second = two.register_broker(broker(port=9093))
    assert second > first
    assert two.brokers()[1].endpoints[0].port == 9093
    one.stop()
    assert list(two.brokers()) == [1]


def test_broker_with_the_id_of_another_is_refused_by_name(join: Join) -> None:
    one, two = join(), join()
    one.register_broker(broker())
    with pytest.raises(BrokerIdInUse, match=r"broker id 1 .*PLAINTEXT://127\.0\.0\.1:9092"):
        two.register_broker(broker(identity="dir-2"))
    assert two.brokers()[1].identity == "dir-1"


def test_broker_deregistered_frees_its_id_and_the_controllership(join: Join) -> None:
    one, two = join(), join()
    one.register_broker(broker())
    one.elect_controller(1)
    one.deregister_broker()
    assert two.brokers() == {}
    assert two.controller() is None


def test_broker_ids_are_given_once(join: Join) -> None:
    one, two = join(), join()
    given = [one.allocate_broker_id(), two.allocate_broker_id(), one.allocate_broker_id()]
    assert len(set(given)) == 3
    assert min(given) > 1000


def test_controller_first_wins_and_the_next_has_a_higher_epoch(join: Join) -> None:
    one, two = join(), join()
    assert two.controller() is None
    assert one.elect_controller(1) == Controller(1, 1)
    assert two.elect_controller(2) == Controller(1, 1)
    one.stop()
    one_more = two.elect_controller(2)
    assert one_more == Controller(2, 2)
    assert two.elect_controller(2) == one_more


def test_controller_restarted_replaces_its_own_stale_election(join: Join) -> None:
    one, two = join(), join()
    one.elect_controller(1)
    assert two.elect_controller(1) == Controller(1, 2)


def test_topic_created_is_read_back(join: Join) -> None:
    one, two = join(), join()
    created = one.create_topic(
        "clicks", {0: [1, 2], 1: [2, 1]}, {"retention.ms": "1000"}, TOPIC_ID, controller_epoch=7
    )
    assert created.topic_id == TOPIC_ID
    assert created.partitions[1] == PartitionState((2, 1), 2, 0, (2, 1), 7, 0)
    assert two.topics() == {"clicks": created}
    assert two.topic("clicks") == created
    assert two.topic("other") is None
    assert two.get_config(ConfigKind.TOPIC, "clicks") == {"retention.ms": "1000"}


def test_topic_created_twice_is_refused_and_unharmed(one: Coordinator) -> None:
    created = one.create_topic("clicks", {0: [1]}, {"a": "1"}, TOPIC_ID)
    with pytest.raises(AlreadyExists, match=r"^Topic 'clicks' already exists\.$"):
        one.create_topic("clicks", {0: [2], 1: [2]}, {"b": "2"}, uuid4())
    assert one.topic("clicks") == created
    assert one.get_config(ConfigKind.TOPIC, "clicks") == {"a": "1"}


def test_topic_with_many_partitions_is_created_whole(one: Coordinator) -> None:
    name = "n" * 249
    one.create_topic(name, {p: [1] for p in range(1500)}, {}, TOPIC_ID)
    topic = one.topic(name)
    assert topic is not None
    assert list(topic.partitions) == list(range(1500))
    assert {state.leader for state in topic.partitions.values()} == {1}


def test_partitions_added_are_read_back_in_order(one: Coordinator) -> None:
    one.create_topic("clicks", {0: [1]}, {}, TOPIC_ID)
    grown = one.add_partitions("clicks", {n: [1] for n in range(1, 12)})
    assert list(grown.partitions) == list(range(12))
    assert one.topic("clicks") == grown
    with pytest.raises(Conflict, match="has partition 3"):
        one.add_partitions("clicks", {3: [1]})
    with pytest.raises(DoesNotExist, match="no topic 'other'"):
        one.add_partitions("other", {0: [1]})


def test_topic_deletion_is_marked_then_done(join: Join) -> None:
    one, two = join(), join()
    one.create_topic("clicks", {0: [1]}, {"a": "1"}, TOPIC_ID)
    one.commit_offsets("g", {("clicks", 0): Committed(5), ("kept", 0): Committed(6)})
    one.delete_topic("clicks")
    assert two.pending_deletions() == {"clicks"}
    assert "clicks" in two.topics()
    with pytest.raises(AlreadyExists, match="being deleted"):
        two.create_topic("clicks", {0: [1]}, {}, uuid4())
    two.complete_topic_deletion("clicks")
    two.complete_topic_deletion("clicks")
    assert one.topics() == {}
    assert one.pending_deletions() == set()
    assert one.get_config(ConfigKind.TOPIC, "clicks") == {}
    assert one.fetch_offsets("g") == {("kept", 0): Committed(6)}
    one.create_topic("clicks", {0: [1]}, {}, uuid4())


def test_topic_deletion_of_unknown_topic_is_refused(one: Coordinator) -> None:
    with pytest.raises(DoesNotExist, match="no topic 'other'"):
        one.delete_topic("other")


def test_leader_state_is_written_only_over_the_version_it_was_read_at(join: Join) -> None:
    one, two = join(), join()
    created = one.create_topic("clicks", {0: [1, 2], 1: [1, 2]}, {}, TOPIC_ID)
    moved = PartitionState((1, 2), 2, 1, (2,), 3, created.partitions[0].version)
    written = one.set_leader_states({("clicks", 0): moved})
    assert written[("clicks", 0)].version == moved.version + 1
    stale = {("clicks", 0): moved, ("clicks", 1): created.partitions[1], ("gone", 0): moved}
    assert list(two.set_leader_states(stale)) == [("clicks", 1)]
    topic = two.topic("clicks")
    assert topic is not None
    assert topic.partitions[0] == written[("clicks", 0)]


def test_leader_state_without_leader_is_kept(one: Coordinator) -> None:
    created = one.create_topic("clicks", {0: [1]}, {}, TOPIC_ID)
    orphan = PartitionState((1,), NO_LEADER, 1, (1,), 0, created.partitions[0].version)
    (written,) = one.set_leader_states({("clicks", 0): orphan}).values()
    topic = one.topic("clicks")
    assert topic is not None
    assert topic.partitions[0] == written


def test_config_is_replaced_whole_and_listed_by_kind(one: Coordinator) -> None:
    assert one.get_config(ConfigKind.BROKER, "<default>") == {}
    one.set_config(ConfigKind.BROKER, "<default>", {"a": "1", "b": "2"})
    one.set_config(ConfigKind.BROKER, "<default>", {"b": "3"})
    one.set_config(ConfigKind.CLIENT, "team/a", {"producer_byte_rate": "10"})
    one.set_config(ConfigKind.BROKER, "1", {})
    assert one.configs(ConfigKind.BROKER) == {"<default>": {"b": "3"}}
    assert one.configs(ConfigKind.CLIENT) == {"team/a": {"producer_byte_rate": "10"}}


def test_producer_ids_are_given_once(join: Join) -> None:
    one, two = join(), join()
    blocks = [one.allocate_producer_ids(), two.allocate_producer_ids(), one.allocate_producer_ids()]
    given = [number for start, length in blocks for number in range(start, start + length)]
    assert len(set(given)) == len(given) == 3000


def test_offsets_committed_are_fetched_whole_or_in_part(join: Join) -> None:
    one, two = join(), join()
    committed = {
        ("clicks", 0): Committed(5),
        ("clicks", 1): Committed(2**62, 3, 'meta\n"data" 🌊', 1_700_000_000_000),
        ("views", 0): Committed(0, metadata="m"),
    }
    one.commit_offsets("g", committed)
    assert two.fetch_offsets("g") == committed
    assert two.fetch_offsets("g", [("clicks", 0), ("clicks", 9), ("no", 0)]) == {("clicks", 0): Committed(5)}
    assert two.fetch_offsets("nobody") == {}
    two.commit_offsets("g", {("clicks", 0): Committed(4), ("clicks", 2): Committed(1)})
    assert one.fetch_offsets("g") == {**committed, ("clicks", 0): Committed(4), ("clicks", 2): Committed(1)}


def test_offsets_of_more_than_a_transaction_are_all_kept(one: Coordinator) -> None:
    committed = {("clicks", p): Committed(p, metadata="m" * 1000) for p in range(1200)}
    one.commit_offsets("g", committed)
    assert one.fetch_offsets("g") == committed


def test_offsets_deleted_behind_ones_back_are_committed_again(join: Join) -> None:
    one, two = join(), join()
    one.commit_offsets("g", {("clicks", 0): Committed(1), ("clicks", 1): Committed(1)})
    two.delete_offsets("g", [("clicks", 0), ("clicks", 7)])
    assert one.fetch_offsets("g") == {("clicks", 1): Committed(1)}
    one.commit_offsets("g", {("clicks", 0): Committed(2), ("clicks", 1): Committed(2)})
    two.delete_group("g")
    two.delete_group("g")
    assert "g" not in one.groups()
    one.commit_offsets("g", {("clicks", 0): Committed(3)})
    assert two.fetch_offsets("g") == {("clicks", 0): Committed(3)}


@pytest.mark.parametrize("name", ODD_NAMES)
def test_group_of_any_name_is_kept_under_that_name(one: Coordinator, name: str) -> None:
    one.commit_offsets(name, {("clicks", 0): Committed(1)})
    one.register_member(f"{name}-members", name, {"clicks": 1})
    one.claim_partitions(f"{name}-members", name, [("clicks", 0)])
    assert one.groups() == {name: False, f"{name}-members": True}
    assert one.groups([name, "unheard-of"]) == {name: False}
    assert list(one.members(f"{name}-members")) == [name]
    assert one.owners(f"{name}-members") == {("clicks", 0): name}


def test_member_is_seen_until_it_stops(join: Join) -> None:
    one, two = join(), join()
    one.register_member("g", "m1", {"clicks": 2})
    (registration,) = two.members("g").values()
    assert registration["subscription"] == {"clicks": 2}
    assert registration["version"] == 1
    assert two.groups() == {"g": True}
    one.stop()
    assert two.members("g") == {}


def test_member_registered_twice_by_itself_is_updated(one: Coordinator) -> None:
    one.register_member("g", "m1", {"clicks": 2})
    one.register_member("g", "m1", {"views": 1})
    assert one.members("g")["m1"]["subscription"] == {"views": 1}


def test_owners_claim_all_or_none(join: Join) -> None:
    one, two = join(), join()
    one.register_member("g", "m1", {"clicks": 2})
    two.register_member("g", "m2", {"clicks": 2})
    one.claim_partitions("g", "m1", [("clicks", 0), ("clicks", 1)])
    with pytest.raises(AlreadyOwned, match="clicks-1 in 'g' is owned by 'm1'") as refused:
        two.claim_partitions("g", "m2", [("clicks", 2), ("clicks", 1)])
    assert refused.value.holder == "m1"
    assert two.owners("g") == {("clicks", 0): "m1", ("clicks", 1): "m1"}
    one.release_partitions("g", "m1", [("clicks", 1)])
    two.release_partitions("g", "m2", [("clicks", 0)])
    two.claim_partitions("g", "m2", [("clicks", 2), ("clicks", 1)])
    assert one.owners("g") == {("clicks", 0): "m1", ("clicks", 1): "m2", ("clicks", 2): "m2"}


def test_owner_claims_again_what_it_has(one: Coordinator) -> None:
    one.register_member("g", "m1", {"clicks": 1})
    one.claim_partitions("g", "m1", [("clicks", 0)])
    one.claim_partitions("g", "m1", [("clicks", 0), ("clicks", 1)])
    assert set(one.owners("g")) == {("clicks", 0), ("clicks", 1)}


def test_owners_go_with_their_member(join: Join) -> None:
    one, two = join(), join()
    for member in ("m1", "m2"):
        one.register_member("g", member, {"clicks": 1})
    one.claim_partitions("g", "m1", [("clicks", 0)])
    one.claim_partitions("g", "m2", [("clicks", 1)])
    one.deregister_member("g", "m1")
    one.deregister_member("g", "m1")
    assert two.owners("g") == {("clicks", 1): "m2"}
    one.stop()
    assert two.owners("g") == {}


def test_owner_that_is_no_member_is_refused(join: Join) -> None:
    one, two = join(), join()
    one.register_member("g", "m1", {"clicks": 1})
    with pytest.raises(LeaseLost, match="'m1' is not registered"):
        two.claim_partitions("g", "m1", [("clicks", 0)])


def test_group_with_a_live_member_is_not_deleted(one: Coordinator) -> None:
    one.register_member("g", "m1", {"clicks": 1})
    with pytest.raises(AlreadyOwned, match="live member, 'm1'"):
        one.delete_group("g")


def test_watch_reports_what_others_change(join: Join) -> None:
    one, two = join(), join()
    seen: list[Change] = []
    two.watch(seen.append)
    eventually(lambda: two.connected, "the connection")
    time.sleep(0.2)  # a watch may begin with a report of everything: let that pass

    def reports(kind: ChangeKind, name: str | None = None) -> Callable[[], bool]:
        return lambda: Change(kind, name) in seen

    for action, kind, name in [
        (lambda: one.register_broker(broker()), ChangeKind.BROKERS, None),
        (lambda: one.elect_controller(1), ChangeKind.CONTROLLER, None),
        (lambda: one.create_topic("clicks", {0: [1]}, {}, TOPIC_ID), ChangeKind.TOPICS, "clicks"),
        (lambda: one.add_partitions("clicks", {1: [1]}), ChangeKind.TOPICS, "clicks"),
        (
            lambda: one.set_leader_states({("clicks", 0): PartitionState((1,), 1, 1, (1,), 1, 0)}),
            ChangeKind.TOPICS,
            "clicks",
        ),
        (
            lambda: one.set_config(ConfigKind.CLIENT, "team/a", {"a": "1"}),
            ChangeKind.CONFIGS,
            "clients/team/a",
        ),
        (lambda: one.delete_topic("clicks"), ChangeKind.DELETIONS, None),
        (lambda: one.complete_topic_deletion("clicks"), ChangeKind.TOPICS, "clicks"),
        (one.deregister_broker, ChangeKind.BROKERS, None),
    ]:
        seen.clear()
        action()
        eventually(reports(kind, name), f"a report of {kind.value} {name}")


def test_watch_of_members_reports_who_comes_and_goes(join: Join) -> None:
    one, two = join(), join()
    calls: list[set[str]] = []
    close = two.watch_members("g", lambda: calls.append(set(two.members("g"))))
    one.register_member("g", "m1", {"clicks": 1})
    eventually(lambda: {"m1"} in calls, "the new member")
    one.deregister_member("g", "m1")
    eventually(lambda: calls[-1] == set(), "the member to go")
    close()
    before = len(calls)
    one.register_member("g", "m2", {"clicks": 1})
    time.sleep(0.1)
    assert len(calls) == before


def test_plan_is_replaced_by_the_first_who_comes(join: Join) -> None:
    one, two = join(), join()
    assert one.plan("g") == (b"", 0)
    assert one.replace_plan("g", b"first", 0)
    assert not two.replace_plan("g", b"late", 0)
    assert two.plan("g") == (b"first", 1)
    assert two.replace_plan("g", b"second", 1)
    assert not one.replace_plan("g", b"late", 1)
    assert one.plan("g") == (b"second", 2)
    one.delete_group("g")
    assert two.plan("g") == (b"", 0)


def test_kept_group_is_there_for_whoever_comes_next_until_it_is_deleted(join: Join) -> None:
    one, two = join(), join()
    assert one.kept_groups() == {}
    one.commit_offsets("simple", {("clicks", 0): Committed(1)})
    for data in (b"first", b"second"):
        one.keep_group("g/h", data)
        assert two.kept_groups() == {"g/h": data}
    assert two.groups() == {"simple": False}, "what is kept is neither an offset nor a member"
    two.keep_group("large", b"\x00" * 512 * 1024)
    two.delete_group("g/h")
    assert list(one.kept_groups()) == ["large"]


def test_plan_that_was_replaced_is_reported_to_who_watches_the_members(join: Join) -> None:
    one, two = join(), join()
    calls: list[bytes] = []
    two.watch_members("g", lambda: calls.append(two.plan("g")[0]))
    one.replace_plan("g", b"first", 0)
    eventually(lambda: b"first" in calls, "the first plan")
    one.replace_plan("g", b"second", 1)
    eventually(lambda: b"second" in calls, "the second plan")


def test_last_answer_goes_on_without_requests(one: Coordinator) -> None:
    first = one.last_answer_monotonic()
    assert first <= time.monotonic()
    eventually(lambda: one.last_answer_monotonic() > first, "another answer")


ALICE_READS = AclEntry("User:alice", "*", Operation.READ, Permission.ALLOW)
BOB_WRITES = AclEntry("User:bob", "10.0.0.1", Operation.WRITE, Permission.DENY)


def test_acls_are_kept_by_what_they_are_about_and_seen_by_others(join: Join) -> None:
    one, two = join(), join()
    seen: list[Change] = []
    two.watch(seen.append)
    literal = ResourcePattern(ResourceType.TOPIC, "clicks", PatternType.LITERAL)
    prefixed = ResourcePattern(ResourceType.TRANSACTIONAL_ID, "team-", PatternType.PREFIXED)
    assert one.acls() == {}
    time.sleep(0.2)  # a watch may begin with a report of everything: let that pass
    for pattern in (literal, prefixed):
        seen.clear()
        assert one.update_acls(pattern, lambda there: there | {ALICE_READS, BOB_WRITES}) == {
            ALICE_READS,
            BOB_WRITES,
        }
        eventually(lambda: Change(ChangeKind.ACLS) in seen, "a report of the rules")
    assert two.acls() == {key: {ALICE_READS, BOB_WRITES} for key in (literal, prefixed)}
    assert two.update_acls(literal, lambda there: there - {BOB_WRITES}) == {ALICE_READS}
    assert one.acls()[literal] == {ALICE_READS}
    one.update_acls(literal, lambda _: frozenset())
    one.update_acls(literal, lambda _: frozenset())
    assert list(two.acls()) == [prefixed]


def test_acls_changed_at_the_same_time_are_all_kept(join: Join) -> None:
    pattern = ResourcePattern(ResourceType.GROUP, "*", PatternType.LITERAL)

    def add(coordinator: Coordinator, number: int) -> None:
        entry = AclEntry(f"User:u{number}", "*", Operation.READ, Permission.ALLOW)
        coordinator.update_acls(pattern, lambda there: there | {entry})

    coordinators = [join() for _ in range(3)]
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(lambda number: add(coordinators[number % 3], number), range(12)))
    assert len(coordinators[0].acls()[pattern]) == 12


def test_tokens_are_kept_until_they_are_removed(join: Join) -> None:
    one, two = join(), join()
    assert one.tokens() == {}
    one.put_token("t1", {"version": 3, "owner": "User:alice"})
    one.put_token("t1", {"version": 3, "owner": "User:bob"})
    assert two.tokens() == {"t1": {"version": 3, "owner": "User:bob"}}
    two.remove_token("t1")
    two.remove_token("t1")
    assert one.tokens() == {}


def test_config_of_a_users_client_is_kept_beside_the_users(one: Coordinator) -> None:
    both = user_client_name("CN=alice, OU=a/b", "app*~")
    assert both == "CN%3Dalice%2C%20OU%3Da%2Fb/clients/app%2A%7E"
    assert split_user_client(both) == ("CN=alice, OU=a/b", "app*~")
    everybody = user_client_name("<default>", "app")
    one.set_config(ConfigKind.USER_CLIENT, both, {"producer_byte_rate": "1"})
    one.set_config(ConfigKind.USER_CLIENT, everybody, {"producer_byte_rate": "2"})
    one.set_config(ConfigKind.USER, "CN=alice, OU=a/b", {"producer_byte_rate": "3"})
    one.set_config(ConfigKind.IP, "::1", {"connection_creation_rate": "4"})
    assert one.get_config(ConfigKind.USER_CLIENT, both) == {"producer_byte_rate": "1"}
    assert one.configs(ConfigKind.USER_CLIENT) == {
        both: {"producer_byte_rate": "1"},
        everybody: {"producer_byte_rate": "2"},
    }
    assert one.configs(ConfigKind.USER) == {"CN=alice, OU=a/b": {"producer_byte_rate": "3"}}
    assert one.configs(ConfigKind.IP) == {"::1": {"connection_creation_rate": "4"}}
