"""What only a real ZooKeeper shows: Kafka's layout, lost connections and sessions, stale registrations."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any
from uuid import UUID, uuid4

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.serialization import GetData

from headwater_broker.coordination import (
    AlreadyOwned,
    BrokerInfo,
    Change,
    ChangeKind,
    Committed,
    ConfigKind,
    Controller,
    CoordinatorUnavailable,
    CorruptState,
    Endpoint,
    JobLease,
    LeaseLost,
    PartitionState,
    ZooKeeperCoordinator,
)
from headwater_broker.coordination.zookeeper.multi_read import MultiRead
from headwater_broker.coordination.zookeeper.session import ZooKeeperSession

SESSION_MS = 20_000
"""The longest that the tests' server grants: none of these expires by itself."""
TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")


def broker(identity: str = "dir-1") -> BrokerInfo:
    return BrokerInfo(1, (Endpoint("127.0.0.1", 9092),), None, identity)


def eventually(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.01)


@pytest.fixture
def hosts(zookeeper: Any) -> str:
    return f"{zookeeper.hosts}/{uuid4()}"


@pytest.fixture
def raw(hosts: str) -> Iterator[ZooKeeperSession]:
    """A session that shows what the znodes hold."""
    session = ZooKeeperSession(hosts, session_timeout_ms=SESSION_MS)
    session.start(30)
    yield session
    session.stop()


@pytest.fixture
def one(hosts: str) -> Iterator[ZooKeeperCoordinator]:
    coordinator = ZooKeeperCoordinator(hosts, session_timeout_ms=SESSION_MS, wall_ms=lambda: 1234)
    coordinator.start()
    yield coordinator
    coordinator.stop()


class Relay:
    """Stands between a client and the server, and can be cut: the server goes on, and so does the session."""

    def __init__(self, hosts: str) -> None:
        host, _, port = hosts.partition(":")
        self._server = (host, int(port))
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._is_cut = False
        self.hosts = "{}:{}".format(*self._listener.getsockname())
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def cut(self) -> None:
        """Ends all connections, and each new one at once."""
        self._is_cut = True
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        """Lets connections through again."""
        self._is_cut = False

    def close(self) -> None:
        """Ends the relay."""
        self.cut()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        for each in self._sockets:
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(client)
            if self._is_cut:
                client.shutdown(socket.SHUT_RDWR)
                continue
            server = socket.create_connection(self._server)
            self._sockets.append(server)
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def relay(zookeeper: Any) -> Iterator[Relay]:
    made = Relay(zookeeper.hosts)
    yield made
    made.close()


def stored(raw: ZooKeeperSession, path: str) -> Any:
    znode = raw.get(path)
    assert znode is not None, path
    return json.loads(znode.data)


def test_zookeeper_layout_is_kafkas(one: ZooKeeperCoordinator, raw: ZooKeeperSession) -> None:
    one.register_broker(
        BrokerInfo(1, (Endpoint("h", 9092), Endpoint("::1", 9093, "IN", "SSL")), "r", "d", {"f": (1, 2)})
    )
    one.elect_controller(1)
    one.create_topic("clicks", {0: [1, 2]}, {"a": "b"}, TOPIC_ID, controller_epoch=1)
    one.set_config(ConfigKind.TOPIC, "clicks", {"a": "c"})
    one.allocate_producer_ids()
    registration = stored(raw, "/brokers/ids/1")
    del registration["headwater"]
    assert registration == {
        "version": 5, "host": "h", "port": 9092, "endpoints": ["PLAINTEXT://h:9092", "IN://[::1]:9093"],
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT", "IN": "SSL"}, "rack": "r", "jmx_port": -1,
        "features": {"f": {"min_version": 1, "max_version": 2}}, "timestamp": "1234",
    }  # fmt: skip
    assert (
        stored(raw, "/cluster/id") == {"version": "1", "id": one.cluster_id()} if one.cluster_id() else False
    )
    assert stored(raw, "/controller") == {"version": 1, "brokerid": 1, "timestamp": "1234"}
    assert stored(raw, "/controller_epoch") == 1
    assert stored(raw, "/brokers/topics/clicks") == {
        "version": 3, "topic_id": "ABEiM0RVZneImaq7zN3u_w", "partitions": {"0": [1, 2]},
        "adding_replicas": {}, "removing_replicas": {},
    }  # fmt: skip
    assert stored(raw, "/brokers/topics/clicks/partitions/0/state") == {
        "version": 1, "leader": 1, "leader_epoch": 0, "isr": [1, 2], "controller_epoch": 1,
    }  # fmt: skip
    assert stored(raw, "/config/topics/clicks") == {"version": 1, "config": {"a": "c"}}
    (change,) = raw.children("/config/changes")
    assert change == "config_change_0000000000"
    assert stored(raw, f"/config/changes/{change}") == {"version": 2, "entity_path": "topics/clicks"}
    assert stored(raw, "/latest_producer_id_block") == {
        "version": 1, "broker": 1, "block_start": "0", "block_end": "999",
    }  # fmt: skip
    for path in (
        "/brokers/seqid",
        "/admin/delete_topics",
        "/isr_change_notification",
        "/log_dir_event_notification",
    ):
        assert raw.exists(path)


def test_zookeeper_offsets_and_owners_are_readable_by_older_tools(
    one: ZooKeeperCoordinator, raw: ZooKeeperSession
) -> None:
    one.commit_offsets("g", {("clicks", 0): Committed(42), ("clicks", 1): Committed(43, 5, "m", 6)})
    one.register_member("g", "m1", {"clicks": 1})
    one.claim_partitions("g", "m1", [("clicks", 0)])
    plain, extended = (raw.get(f"/consumers/g/offsets/clicks/{p}") for p in (0, 1))
    assert plain is not None
    assert plain.data == b"42"
    assert extended is not None
    assert extended.data == b'43\n{"epoch":5,"metadata":"m","ts":6}'
    owner = raw.get("/consumers/g/owners/clicks/0")
    assert owner is not None
    assert owner.data == b"m1"
    assert owner.ephemeral_owner == one._session.session_id
    member = stored(raw, "/consumers/g/ids/m1")
    del member["headwater"]
    assert member == {"version": 1, "subscription": {"clicks": 1}, "pattern": "static", "timestamp": "1234"}


def test_zookeeper_state_written_by_kafka_is_read(one: ZooKeeperCoordinator, raw: ZooKeeperSession) -> None:
    raw.create(
        "/brokers/ids/7",
        b'{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PLAINTEXT://k:9092"],'
        b'"jmx_port":-1,"port":9092,"host":"k","version":5,"timestamp":"1"}',
    )
    raw.create(
        "/brokers/topics/k",
        b'{"removing_replicas":{},"partitions":{"0":[7]},"topic_id":"ABEiM0RVZneImaq7zN3u_w","adding_replicas":{},'
        b'"version":3}',
    )
    assert one.brokers()[7].endpoints == (Endpoint("k", 9092),)
    topic = one.topic("k")
    assert topic is not None
    assert topic.topic_id == TOPIC_ID
    assert topic.partitions == {0: PartitionState((7,))}
    written = one.set_leader_states({("k", 0): PartitionState((7,), 7, 0, (7,), 1)})
    assert written == {("k", 0): PartitionState((7,), 7, 0, (7,), 1, 0)}


@pytest.mark.parametrize(
    ("path", "data", "read"),
    [
        ("/brokers/topics/bad", b"not json", lambda c: c.topics()),
        ("/brokers/topics/bad", b'{"version":3}', lambda c: c.topics()),
        ("/brokers/ids/9", b"{}", lambda c: c.brokers()),
        ("/consumers/g/offsets/bad/0", b"many", lambda c: c.fetch_offsets("g")),
    ],
)
def test_zookeeper_unreadable_znode_is_named(
    one: ZooKeeperCoordinator, raw: ZooKeeperSession, path: str, data: bytes, read: Callable[[Any], object]
) -> None:
    raw.ensure(path.rpartition("/")[0])
    raw.create(path, data)
    with pytest.raises(CorruptState, match=path):
        read(one)


def test_zookeeper_many_znodes_are_read_in_few_requests_or_one_by_one(
    one: ZooKeeperCoordinator, raw: ZooKeeperSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = "g" * 3000  # a path of so many bytes: what goes into one request is bounded
    offsets = {("t", number): Committed(number, 1, "m" * (number % 50), 5) for number in range(450)}
    one.commit_offsets(group, offsets)
    asked = [*offsets, ("t", 9999), ("none", 0)]
    assert one.fetch_offsets(group, asked) == offsets
    assert one.fetch_offsets(group) == offsets
    assert one.fetch_offsets(group, []) == {}
    assert one.fetch_offsets(group, [("none", 0), ("none", 1)]) == {}
    sent: list[Any] = []
    call = KazooClient._call

    def noting(client: KazooClient, request: Any, pending: Any) -> Any:
        sent.append(request)
        return call(client, request, pending)

    monkeypatch.setattr(KazooClient, "_call", noting)
    assert one.fetch_offsets(group, asked) == offsets
    assert 0 < len([each for each in sent if isinstance(each, MultiRead)]) < 10
    assert not [each for each in sent if isinstance(each, GetData)]
    # A server before 3.6 does not know the request, and closes the connection over it.
    monkeypatch.setattr(MultiRead, "type", 4711)
    old = ZooKeeperCoordinator(raw.hosts, session_timeout_ms=SESSION_MS)
    old.start()
    sent.clear()
    assert old.fetch_offsets(group, asked) == offsets
    assert len([each for each in sent if isinstance(each, GetData)]) == len(asked)
    assert not [each for each in sent if isinstance(each, MultiRead)]
    old.stop()


def test_zookeeper_unreachable_at_start_is_named() -> None:
    coordinator = ZooKeeperCoordinator("127.0.0.1:1")
    with pytest.raises(CoordinatorUnavailable, match=r"no ZooKeeper answers at 127\.0\.0\.1:1 within 0\.3 s"):
        coordinator.start(timeout_s=0.3)
    coordinator.stop()


def test_zookeeper_notifications_are_kept_few(one: ZooKeeperCoordinator, raw: ZooKeeperSession) -> None:
    seen: list[Change] = []
    one.watch(seen.append)
    for n in range(230):
        one.set_config(ConfigKind.TOPIC, f"t{n}", {})
    eventually(lambda: len(raw.children("/config/changes")) <= 200, "the purge")
    # What was purged before it was read is reported as a change of anything.
    eventually(
        lambda: {Change(ChangeKind.CONFIGS, "topics/t229"), Change(ChangeKind.CONFIGS)} & set(seen) != set(),
        "news",
    )


def expire(client_id: Any, hosts: str) -> None:
    """Ends the session on the server as an expiry does: a client that takes the session over closes it."""

    thief = KazooClient(hosts.partition("/")[0], client_id=client_id)
    thief.start()
    thief.stop()
    thief.close()


def test_zookeeper_session_lost_broker_is_registered_again(
    one: ZooKeeperCoordinator, hosts: str, raw: ZooKeeperSession
) -> None:
    seen: list[ChangeKind] = []
    one.watch(lambda change: seen.append(change.kind))
    first = one.register_broker(broker())
    expire(one._session._client.client_id, hosts)
    eventually(lambda: ChangeKind.SESSION_RESTORED in seen, "the new session")
    assert seen.index(ChangeKind.SESSION_LOST) < seen.index(ChangeKind.SESSION_RESTORED)
    znode = raw.get("/brokers/ids/1")
    assert znode is not None
    assert znode.ephemeral_owner == one._session.session_id
    assert znode.czxid > first
    seen.clear()
    one.create_topic("after", {0: [1]}, {}, TOPIC_ID)
    eventually(lambda: ChangeKind.TOPICS in seen, "watches of the new session")


def test_zookeeper_stale_registration_of_same_broker_is_replaced_at_once(
    hosts: str, raw: ZooKeeperSession
) -> None:
    crashed = ZooKeeperCoordinator(hosts, session_timeout_ms=SESSION_MS)
    again = ZooKeeperCoordinator(hosts, session_timeout_ms=SESSION_MS)
    with ExitStack() as stack:
        stack.callback(crashed.stop)
        stack.callback(again.stop)
        crashed.start()
        crashed.register_broker(broker())
        assert crashed.elect_controller(1) == Controller(1, 1)
        again.start()
        again.register_broker(broker())
        assert again.elect_controller(1) == Controller(1, 2)
        assert crashed.connected, "the other session goes on: nothing waited for its end"
        znode = raw.get("/brokers/ids/1")
        assert znode is not None
        assert znode.ephemeral_owner == again._session.session_id


def test_zookeeper_killed_and_back_everything_goes_on(own_zookeeper: Any) -> None:
    seen: list[ChangeKind] = []
    coordinator = ZooKeeperCoordinator(own_zookeeper.hosts, session_timeout_ms=SESSION_MS)
    coordinator.start()
    with ExitStack() as stack:
        stack.callback(coordinator.stop)
        coordinator.watch(lambda change: seen.append(change.kind))
        coordinator.register_broker(broker())
        coordinator.create_topic("clicks", {0: [1]}, {}, TOPIC_ID)
        coordinator.commit_offsets("g", {("clicks", 0): Committed(1)})
        own_zookeeper.kill()
        eventually(lambda: not coordinator.connected, "the connection to break")
        last = coordinator.last_answer_monotonic()
        started = time.monotonic()
        with pytest.raises(CoordinatorUnavailable) as refused:
            coordinator.commit_offsets("g", {("clicks", 0): Committed(99)})
        assert refused.value.retriable
        assert time.monotonic() - started < SESSION_MS / 1000
        assert coordinator.last_answer_monotonic() == last
        eventually(lambda: ChangeKind.DISCONNECTED in seen, "the news of the broken connection")
        seen.clear()
        own_zookeeper.start()
        eventually(
            lambda: bool({ChangeKind.CONNECTED, ChangeKind.SESSION_RESTORED} & set(seen)), "the connection"
        )
        eventually(lambda: list(coordinator.brokers()) == [1], "the registration")
        # What was refused while ZooKeeper was away must not take effect later.
        assert coordinator.fetch_offsets("g") == {("clicks", 0): Committed(1)}
        coordinator.commit_offsets("g", {("clicks", 0): Committed(2)})
        eventually(lambda: coordinator.last_answer_monotonic() > last, "answers")


def test_lease_second_driver_is_refused_by_name(hosts: str, one: ZooKeeperCoordinator) -> None:
    with (
        JobLease(hosts, "silver.flights", "/srv/a") as first,
        JobLease(hosts, "silver.flights", "/srv/b") as second,
    ):
        first.claim([("flights", 0), ("flights", 1)])
        with pytest.raises(AlreadyOwned, match=r"'silver\.flights' is owned by '/srv/a'") as refused:
            second.claim([("flights", 0), ("flights", 1)])
        assert refused.value.holder == "/srv/a"
        assert list(one.members("silver.flights")) == ["/srv/a"]
        assert first.is_held()
        assert not second.is_held()
        first.publish({("flights", 0): 100})
        assert one.fetch_offsets("silver.flights")[("flights", 0)].offset == 100
        assert one.owners("silver.flights") == {("flights", 0): "/srv/a", ("flights", 1): "/srv/a"}
        first.release()
        second.claim([("flights", 0), ("flights", 1)])
    assert one.owners("silver.flights") == {}
    assert one.fetch_offsets("silver.flights")[("flights", 0)].offset == 100


def test_lease_whose_session_is_lost_is_not_held_and_publishes_no_more(
    hosts: str, one: ZooKeeperCoordinator
) -> None:
    with JobLease(hosts, "job", "me", session_timeout_ms=SESSION_MS) as lease:
        lease.claim([("flights", 0)])
        session_id = lease._session.session_id
        expire(lease._session._client.client_id, hosts)
        eventually(lambda: lease._session.session_id not in {None, session_id}, "the new session")
        assert not lease.is_held()
        with pytest.raises(LeaseLost):
            lease.publish({("flights", 0): 1})
        with pytest.raises(LeaseLost):
            lease.claim([("flights", 0)])
    assert one.fetch_offsets("job") == {}


def test_lease_without_answers_ends_by_the_clock_before_the_session(relay: Relay) -> None:
    with JobLease(f"{relay.hosts}/{uuid4()}", "job", "me", session_timeout_ms=3000) as lease:
        session = lease._session
        before_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        assert before_s <= session._clock() <= time.clock_gettime(time.CLOCK_BOOTTIME)
        now_s = 1_000_000.0
        session._clock = lambda: now_s
        lease.claim([("flights", 0)])
        relay.cut()
        eventually(lambda: not session.connected, "the connection to break")
        assert lease.is_held(), "a broken connection alone ends nothing"
        with pytest.raises(CoordinatorUnavailable):
            lease.publish({("flights", 0): 1})
        # Two thirds of the session; when all of it has passed the server may have told others.
        now_s += 1.99
        assert lease.is_held()
        now_s += 0.01
        assert not lease.is_held()
        with pytest.raises(LeaseLost):
            lease.publish({("flights", 0): 1})


HOLDER = """
import sys, time
from headwater_broker.coordination import JobLease
lease = JobLease(sys.argv[1], "job", sys.argv[2], session_timeout_ms=int(sys.argv[3]))
lease.claim([("flights", 0)])
session = lease._session
session_id, password = session._client.client_id
print(session.timeout_ms, session_id, password.hex(), flush=True)
time.sleep(600)
"""


class Holder:
    """Another process that holds the lease as /srv/home.

    Attributes:
        client_id: Of its session with ZooKeeper, as kazoo has it.
    """

    def __init__(self, hosts: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, hosts, "/srv/home", str(SESSION_MS)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        granted_ms, session_id, password = self.process.stdout.readline().split()
        assert int(granted_ms) == SESSION_MS
        self.client_id = (int(session_id), bytes.fromhex(password))

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def holder(hosts: str) -> Iterator[Holder]:
    made = Holder(hosts)
    yield made
    made.kill()
    assert made.process.stdout is not None
    made.process.stdout.close()


def test_lease_of_a_running_process_is_refused_at_once_even_to_its_own_name(
    hosts: str, holder: Holder
) -> None:
    started = time.monotonic()
    with (
        JobLease(hosts, "job", "/srv/home", session_timeout_ms=SESSION_MS) as second,
        pytest.raises(AlreadyOwned, match=rf"'/srv/home' \(process {holder.pid}\) runs already"),
    ):
        second.claim([("flights", 0)])
    assert time.monotonic() - started < SESSION_MS / 1000


@pytest.mark.parametrize("member", ["/srv/home", "/srv/other"])
def test_lease_of_a_killed_process_is_taken_over_at_once(hosts: str, holder: Holder, member: str) -> None:
    holder.kill()
    started = time.monotonic()
    with JobLease(hosts, "job", member, session_timeout_ms=SESSION_MS) as second:
        second.claim([("flights", 0)])
        assert second.is_held()
    assert time.monotonic() - started < SESSION_MS / 1000


def test_lease_of_a_stopped_process_is_waited_for_in_vain_while_its_session_lives(
    hosts: str, holder: Holder
) -> None:
    os.kill(holder.pid, signal.SIGSTOP)
    try:
        with JobLease(hosts, "job", "/srv/other", session_timeout_ms=SESSION_MS) as second:
            for _ in range(2):
                with pytest.raises(AlreadyOwned):
                    second.claim([("flights", 0)])
            # The server expires the session of a process that does not answer; then the partition is free.
            expire(holder.client_id, hosts)
            second.claim([("flights", 0)])
            assert second.is_held()
    finally:
        os.kill(holder.pid, signal.SIGCONT)


def test_lease_is_held_again_when_the_same_session_answers_again(relay: Relay) -> None:
    # Who does not come back in time has lost the session.
    with JobLease(f"{relay.hosts}/{uuid4()}", "job", "me", session_timeout_ms=SESSION_MS) as lease:
        session = lease._session
        now_s = 1_000_000.0
        session._clock = lambda: now_s
        lease.claim([("flights", 0)])
        relay.cut()
        eventually(lambda: not session.connected, "the connection to break")
        now_s += SESSION_MS / 1000
        assert not lease.is_held()
        relay.mend()
        eventually(lambda: session.connected, "the connection")
        session.exists("")  # as its heartbeat does, seconds later
        assert lease.is_held()
        lease.publish({("flights", 0): 1})


def test_lease_of_ones_own_earlier_session_is_waited_for(hosts: str) -> None:
    """Within one process only the end of the session tells that a registration of one's own name is stale."""
    earlier = JobLease(hosts, "job", "me", session_timeout_ms=SESSION_MS)
    earlier.claim([("flights", 0)])
    timer = threading.Timer(0.3, earlier.release)
    timer.start()
    with JobLease(hosts, "job", "me", session_timeout_ms=SESSION_MS) as later:
        later.claim([("flights", 0)])
        assert later.is_held()
    timer.join()
