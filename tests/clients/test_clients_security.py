"""Who clients are and what they may do, with librdkafka: ACLs, SASL and TLS listeners."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    UserScramCredentialUpsertion,
)
from confluent_kafka.admin import ScramMechanism as ConfluentMechanism
from kio.schema.errors import ErrorCode

from headwater_broker.coordination import ConfigKind, MemoryCoordinator, ZooKeeperCoordinator
from headwater_broker.security.scram import ScramCredential, ScramMechanism
from headwater_broker.server.sasl import SaslGate
from headwater_broker.testing import FixedClock, RunningBroker, broker

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="admin" password="admin-secret" user_admin="admin-secret" '
    'user_alice="alice, \\"secret\\";" user_bob="bob-secret";'
)
PASSWORDS = {"admin": "admin-secret", "alice": 'alice, "secret";', "bob": "bob-secret"}
SASL = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
    "super.users": "User:admin",
    "connection.failed.authentication.delay.ms": "1",
}


def login(name: str, mechanism: str = "PLAIN", password: str | None = None) -> dict[str, Any]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": name,
        "sasl.password": PASSWORDS[name] if password is None else password,
    }


def scram_coordinator() -> MemoryCoordinator:
    """Shared state with alice's password for both SCRAM mechanisms."""
    coordinator = MemoryCoordinator()
    values = {
        each.value: str(ScramCredential.of_password(each, b"salt", PASSWORDS["alice"]))
        for each in ScramMechanism
    }
    coordinator.set_config(ConfigKind.USER, "alice", values)
    return coordinator


def admin_of(running: RunningBroker, **config: Any) -> AdminClient:
    return AdminClient({"bootstrap.servers": running.bootstrap, **config})


def wait_all(futures: dict[Any, Any]) -> None:
    for future in futures.values():
        future.result(60)


def produce(running: RunningBroker, topic: str, **config: Any) -> KafkaError | None:
    """Sends one message; returns what was wrong with it."""
    producer = Producer({"bootstrap.servers": running.bootstrap, "message.timeout.ms": 60_000, **config})
    errors: list[KafkaError | None] = []
    producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    return errors[0]


def consume(running: RunningBroker, topic: str, **config: Any) -> int:
    """Reads one record from the start; returns 0, or the error's code."""
    consumer = Consumer({"bootstrap.servers": running.bootstrap, "group.id": "g", **config})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(60)
        assert message is not None
        return 0 if message.error() is None else int(message.error().code())
    finally:
        consumer.close()


def allow(who: str, operation: AclOperation, name: str, **changes: Any) -> AclBinding:
    fields = {
        "restype": ResourceType.TOPIC,
        "name": name,
        "resource_pattern_type": ResourcePatternType.LITERAL,
        "principal": who,
        "host": "*",
        "operation": operation,
        "permission_type": AclPermissionType.ALLOW,
    } | changes
    return AclBinding(**fields)


EVERY_ACL = AclBindingFilter(
    *(ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY)
)


@pytest.fixture(scope="module")
def guarded() -> Iterator[RunningBroker]:
    """A broker with users, one topic, and an administrator who may do everything."""
    with broker(properties={**SASL, "num.partitions": "1"}) as running:
        admin = admin_of(running, **login("admin"))
        wait_all(admin.create_topics([NewTopic("orders", 1), NewTopic("secret", 1)]))
        yield running


@pytest.fixture(autouse=True)
def no_acls(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "guarded" in request.fixturenames:
        running = request.getfixturevalue("guarded")
        admin = admin_of(running, **login("admin"))
        wait_all(admin.delete_acls([EVERY_ACL]))


# -- rules -----------------------------------------------------------------------------------------------


def test_acls_are_created_found_and_deleted(guarded: RunningBroker) -> None:
    admin = admin_of(guarded, **login("admin"))
    literal = allow("User:alice", AclOperation.READ, "orders")
    prefixed = allow(
        "User:bob", AclOperation.WRITE, "ord", resource_pattern_type=ResourcePatternType.PREFIXED
    )
    group = allow("User:alice", AclOperation.ALL, "*", restype=ResourceType.GROUP, host="127.0.0.1")
    wait_all(admin.create_acls([literal, prefixed, group]))
    wait_all(admin.create_acls([literal]))
    assert set(admin.describe_acls(EVERY_ACL).result(60)) == {literal, prefixed, group}
    matching = AclBindingFilter(
        *(ResourceType.TOPIC, "orders", ResourcePatternType.MATCH, None, None),
        *(AclOperation.ANY, AclPermissionType.ANY),
    )
    assert set(admin.describe_acls(matching).result(60)) == {literal, prefixed}
    (deleted,) = admin.delete_acls([matching]).values()
    assert set(deleted.result(60)) == {literal, prefixed}
    assert set(admin.describe_acls(EVERY_ACL).result(60)) == {group}


def test_acls_malformed_are_refused_each_for_itself(guarded: RunningBroker) -> None:
    admin = admin_of(guarded, **login("admin"))
    good = allow("User:alice", AclOperation.READ, "orders")
    slash = allow("User:alice", AclOperation.READ, "a/b")
    cluster = allow("User:alice", AclOperation.ALTER, "another", restype=ResourceType.BROKER)
    nobody = allow("alice", AclOperation.READ, "orders")
    answers = admin.create_acls([good, slash, cluster, nobody])
    answers[good].result(60)
    for each in (slash, cluster, nobody):
        with pytest.raises(KafkaException) as refused:
            answers[each].result(60)
        assert refused.value.args[0].code() == KafkaError.INVALID_REQUEST
    assert admin.describe_acls(EVERY_ACL).result(60) == [good]


def test_acls_of_others_shut_out_whoever_they_do_not_name(guarded: RunningBroker) -> None:
    admin = admin_of(guarded, **login("admin"))
    assert produce(guarded, "orders", **login("bob")) is None
    wait_all(admin.create_acls([allow("User:alice", AclOperation.WRITE, "orders")]))
    assert produce(guarded, "orders", **login("alice")) is None
    error = produce(guarded, "orders", **login("bob"))
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert produce(guarded, "orders", **login("admin")) is None
    assert produce(guarded, "secret", **login("bob")) is None


def test_acls_read_without_write_and_back(guarded: RunningBroker) -> None:
    admin = admin_of(guarded, **login("admin"))
    assert produce(guarded, "orders", **login("admin")) is None
    rules = [
        allow("User:bob", AclOperation.READ, "orders"),
        allow("User:alice", AclOperation.DESCRIBE, "orders"),
    ]
    wait_all(admin.create_acls(rules))
    assert consume(guarded, "orders", **login("bob")) == 0
    assert consume(guarded, "orders", **login("alice")) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    error = produce(guarded, "orders", **login("bob"))
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    wait_all(admin.delete_acls([EVERY_ACL]))
    assert produce(guarded, "orders", **login("bob")) is None


def test_acls_topics_that_may_not_be_described_are_hidden(guarded: RunningBroker) -> None:
    admin = admin_of(guarded, **login("admin"))
    wait_all(admin.create_acls([allow("User:alice", AclOperation.DESCRIBE, "secret")]))
    assert {"orders", "secret"} <= admin_of(guarded, **login("alice")).list_topics(timeout=60).topics.keys()
    bob = admin_of(guarded, **login("bob"))
    assert "secret" not in bob.list_topics(timeout=60).topics
    named = bob.list_topics("secret", timeout=60).topics["secret"]
    assert named.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(KafkaException) as refused:
        bob.delete_topics(["secret"])["secret"].result(60)
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_acls_group_is_refused_by_its_own_code(guarded: RunningBroker) -> None:
    admin = admin_of(guarded, **login("admin"))
    rule = allow("User:alice", AclOperation.READ, "team", restype=ResourceType.GROUP)
    wait_all(admin.create_acls([rule]))
    consumer = Consumer(
        {"bootstrap.servers": guarded.bootstrap, "group.id": "team", "log_level": 0, **login("bob")}
    )
    try:
        consumer.subscribe(["orders"])
        deadline = time.monotonic() + 60
        codes: set[int] = set()
        while KafkaError.GROUP_AUTHORIZATION_FAILED not in codes:
            assert time.monotonic() < deadline, codes
            message = consumer.poll(0.2)
            if message is not None and message.error() is not None:
                codes.add(message.error().code())
    finally:
        consumer.close()


def test_acls_cluster_rules_hold_for_administration(guarded: RunningBroker) -> None:
    admin = admin_of(guarded, **login("admin"))
    cluster = {"restype": ResourceType.BROKER}
    rule = allow("User:alice", AclOperation.ALTER, "kafka-cluster", **cluster)
    wait_all(admin.create_acls([rule]))
    bob, alice = admin_of(guarded, **login("bob")), admin_of(guarded, **login("alice"))
    another = allow("User:bob", AclOperation.ALL, "kafka-cluster", **cluster)
    with pytest.raises(KafkaException) as refused:
        bob.create_acls([another])[another].result(60)
    assert refused.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED
    assert bob.describe_acls(EVERY_ACL).result(60) == []  # librdkafka does not look at the code
    wait_all(alice.create_acls([another]))
    wait_all(bob.create_acls([rule]))
    described = bob.describe_cluster(include_authorized_operations=True).result(60)
    assert AclOperation.ALTER in described.authorized_operations


def test_acls_authorized_operations_are_what_the_rules_allow(guarded: RunningBroker) -> None:
    from confluent_kafka import TopicCollection

    admin = admin_of(guarded, **login("admin"))
    wait_all(admin.create_acls([allow("User:bob", AclOperation.READ, "orders")]))
    bob = admin_of(guarded, **login("bob"))
    described = bob.describe_topics(TopicCollection(["orders"]), include_authorized_operations=True)
    operations = set(described["orders"].result(60).authorized_operations)
    assert operations == {AclOperation.READ, AclOperation.DESCRIBE}
    free = bob.describe_cluster(include_authorized_operations=True).result(60)
    assert len(free.authorized_operations) == 7


def test_acls_outlive_the_broker(tmp_path: Path) -> None:
    for first in (True, False):
        with broker(tmp_path, properties=SASL) as running:
            admin = admin_of(running, **login("admin"))
            rule = allow("User:alice", AclOperation.WRITE, "orders")
            if first:
                wait_all(admin.create_topics([NewTopic("orders", 1)]))
                wait_all(admin.create_acls([rule]))
            assert admin.describe_acls(EVERY_ACL).result(60) == [rule]
            assert produce(running, "orders", **login("alice")) is None
            error = produce(running, "orders", **login("bob"))
            assert error is not None
            assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_acls_and_quotas_set_at_one_broker_hold_at_the_others(zookeeper: Any, tmp_path: Path) -> None:
    hosts = f"{zookeeper.hosts}/{tmp_path.name}-{os.getpid()}"

    def start(broker_id: int) -> Any:
        return broker(
            tmp_path / str(broker_id),
            properties=SASL,
            coordinator=ZooKeeperCoordinator(hosts),
            broker_id=broker_id,
        )

    with start(1) as one, start(2) as two:
        admin = admin_of(one, **login("admin"))
        wait_all(admin.create_topics([NewTopic("orders", 2)]))
        rule = allow("User:alice", AclOperation.WRITE, "orders")
        wait_all(admin.create_acls([rule]))
        assert admin_of(two, **login("admin")).describe_acls(EVERY_ACL).result(60) == [rule]
        bob = AdminClient({"bootstrap.servers": two.bootstrap, **login("bob")})
        deadline = time.monotonic() + 60
        while "orders" in bob.list_topics(timeout=60).topics:
            assert time.monotonic() < deadline
        wait_all(admin.delete_acls([EVERY_ACL]))
        while "orders" not in bob.list_topics(timeout=60).topics:
            assert time.monotonic() < deadline
        change = UserScramCredentialUpsertion(
            "carol", ScramCredentialInfo(ConfluentMechanism.SCRAM_SHA_256, 4096), b"secret"
        )
        wait_all(admin.alter_user_scram_credentials([change]))
        carol = login("carol", "SCRAM-SHA-256", "secret")
        while is_refused(two, **carol):
            assert time.monotonic() < deadline


def test_acls_without_any_nobody_may_do_anything_if_so_configured() -> None:
    with broker(properties={**SASL, "allow.everyone.if.no.acl.found": "false"}) as running:
        admin = admin_of(running, **login("admin"))
        wait_all(admin.create_topics([NewTopic("orders", 1)]))
        error = produce(running, "orders", **login("bob"))
        assert error is not None
        assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        wait_all(admin.create_acls([allow("User:*", AclOperation.WRITE, "*")]))
        assert produce(running, "orders", **login("bob")) is None


# -- SASL ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_sasl_scram_user_comes_in_with_the_right_password_only(mechanism: str) -> None:
    with broker(properties=SASL, coordinator=scram_coordinator()) as running:
        assert produce(running, "orders", **login("alice", mechanism)) is None
        assert is_refused(running, **login("alice", mechanism, "wrong"))
        assert is_refused(running, **login("bob", mechanism))


@pytest.mark.parametrize(("name", "password"), [("alice", "wrong"), ("nobody", "x"), ("alice", "bob-secret")])
def test_sasl_plain_wrong_password_is_refused(guarded: RunningBroker, name: str, password: str) -> None:
    assert is_refused(guarded, **login(name, "PLAIN", password))


def test_sasl_listener_refuses_whoever_says_nothing(guarded: RunningBroker) -> None:
    assert is_refused(guarded)


def test_sasl_session_is_renewed_while_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    # A client renews its session in the last tenth of it. The broker's clock stands still, so that one that a busy
    # machine keeps from that is not too late.
    properties = {**SASL, "connections.max.reauth.ms": "500"}
    begun: Counter[SaslGate] = Counter()
    begin = SaslGate.begin

    def counted(gate: SaslGate, mechanism: str, *, is_raw: bool) -> ErrorCode:
        begun[gate] += 1
        return begin(gate, mechanism, is_raw=is_raw)

    monkeypatch.setattr(SaslGate, "begin", counted)
    with broker(properties=properties, coordinator=scram_coordinator(), clock=FixedClock()) as running:
        failed: list[Any] = []
        producer = Producer(
            {
                "bootstrap.servers": running.bootstrap,
                "error_cb": failed.append,
                **login("alice", "SCRAM-SHA-256"),
            }
        )
        deadline = time.monotonic() + 60
        while max(begun.values(), default=0) < 3:
            assert time.monotonic() < deadline
            producer.produce("orders", b"x", on_delivery=lambda error, _: failed.append(error))
            assert producer.flush(60) == 0
            time.sleep(0.05)
        assert [each for each in failed if each is not None] == []


def is_refused(running: RunningBroker, **config: Any) -> bool:
    """Whether a client that comes in so gets no answer within a while, but the news that it may not."""
    errors: list[KafkaError] = []
    admin = admin_of(running, error_cb=errors.append, log_level=0, **config)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            admin.list_topics(timeout=0.3)
        except KafkaException:
            admin.poll(0.1)
            if any(
                each.code() in (KafkaError._AUTHENTICATION, KafkaError._ALL_BROKERS_DOWN) for each in errors
            ):
                return True
        else:
            return False
    return False


# -- TLS and several listeners -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a CA, the broker's key and certificate in one file, and a client's."""
    if shutil.which("openssl") is None:
        pytest.skip("needs an openssl command to make certificates with")
    directory = tmp_path_factory.mktemp("certificates")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)

    key = ("-newkey", "rsa:2048", "-nodes", "-days", "30")
    openssl("req", "-x509", *key, "-subj", "/CN=test CA", "-keyout", "ca.key", "-out", "ca.pem")
    for name, subject in (("broker", "/CN=localhost"), ("alice", "/C=NZ/O=Head, water/OU=Tests/CN=alice")):
        openssl("req", *key, "-subj", subject, "-keyout", f"{name}.key", "-out", f"{name}.csr")
        (directory / "san").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost", encoding="ascii")
        openssl(
            *("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"),
            *("-days", "30", "-extfile", "san", "-out", f"{name}.pem"),
        )
        both = (directory / f"{name}.key").read_text() + (directory / f"{name}.pem").read_text()
        (directory / f"{name}-both.pem").write_text(both)
    return directory


def tls(certificates: Path, **more: Any) -> dict[str, Any]:
    return {"security.protocol": "SSL", "ssl.ca.location": str(certificates / "ca.pem"), **more}


@contextmanager
def tls_broker(certificates: Path, protocol: str = "SSL", **properties: str) -> Iterator[RunningBroker]:
    given = {
        "listeners": f"{protocol}://127.0.0.1:0",
        "ssl.keystore.location": str(certificates / "broker-both.pem"),
        **{name.replace("__", "."): value for name, value in properties.items()},
    }
    with broker(properties=given) as running:
        yield running


def test_tls_records_small_and_large_go_both_ways(certificates: Path) -> None:
    with tls_broker(certificates) as running:
        client = {"bootstrap.servers": running.bootstrap, **tls(certificates)}
        producer = Producer({**client, "message.max.bytes": 2_000_000, "linger.ms": 5})
        values = [bytes([index % 251]) * size for index, size in enumerate([1, 900_000, 70_000] * 5)]
        for value in values:
            producer.produce("orders", value, partition=0)
        assert producer.flush(60) == 0
        consumer = Consumer({**client, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.assign([TopicPartition("orders", 0, 0)])
        got: list[bytes | None] = []
        deadline = time.monotonic() + 60
        while len(got) < len(values):
            assert time.monotonic() < deadline
            for message in consumer.consume(100, 0.2):
                assert message.error() is None
                got.append(message.value())
        consumer.close()
        assert got == values


def _is_closed(sock: socket.socket) -> bool:
    """Whether the broker closes the connection; what it sent before is read."""
    try:
        while sock.recv(65536):
            pass
    except ConnectionResetError:
        pass
    return True


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL", "SASL_PLAINTEXT"])
@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\0\0\0\x64half"])
def test_limits_of_idleness_hold_before_a_handshake_is_done(
    certificates: Path, protocol: str, sent: bytes
) -> None:
    """Whether the greeting is missing, cut off in the middle or none at all."""
    with (
        tls_broker(certificates, protocol, connections__max__idle__ms="300") as running,
        socket.create_connection((running.host, running.port), timeout=60) as sock,
    ):
        sock.sendall(sent)
        assert _is_closed(sock)


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_limits_of_connections_per_address_hold_with_tls(certificates: Path, protocol: str) -> None:
    with tls_broker(certificates, protocol, max__connections__per__ip="2") as running:
        address = running.host, running.port
        with (
            socket.create_connection(address, timeout=60),
            socket.create_connection(address, timeout=60),
            socket.create_connection(address, timeout=60) as third,
        ):
            assert _is_closed(third)


def test_tls_client_certificate_makes_the_principal(certificates: Path) -> None:
    rules = r"RULE:^CN=(.*?),OU=Tests,O=Head\\, water,C=NZ$/$1@nz/U,DEFAULT".replace("\\\\", "\\\\\\")
    with tls_broker(
        certificates,
        ssl__client__auth="required",
        ssl__truststore__location=str(certificates / "ca.pem"),
        ssl__principal__mapping__rules=rules,
        super__users="User:ALICE@NZ",
    ) as running:
        shown = tls(
            certificates,
            **{
                "ssl.certificate.location": str(certificates / "alice.pem"),
                "ssl.key.location": str(certificates / "alice.key"),
            },
        )
        admin = admin_of(running, **shown)
        wait_all(admin.create_topics([NewTopic("orders", 1)]))
        wait_all(admin.create_acls([allow("User:nobody", AclOperation.ALL, "orders")]))
        assert produce(running, "orders", **shown) is None
        assert is_refused(running, **tls(certificates))


def test_tls_port_closes_on_plaintext_and_the_other_way_round(
    certificates: Path, guarded: RunningBroker
) -> None:
    with tls_broker(certificates) as running:
        assert is_refused(running)
        assert is_refused(guarded, **tls(certificates))
        assert produce(running, "orders", **tls(certificates)) is None


def test_listeners_of_all_kinds_tell_each_client_its_own_address(certificates: Path) -> None:
    kinds = ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    listeners = ",".join(f"{kind}://127.0.0.1:0" for kind in kinds) + ",INTERNAL://localhost:0"
    properties = {
        "listeners": listeners,
        "listener.security.protocol.map": "INTERNAL:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
        "ssl.keystore.location": str(certificates / "broker-both.pem"),
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
        "listener.name.sasl_ssl.sasl.enabled.mechanisms": "SCRAM-SHA-512",
    }
    with broker(properties=properties, coordinator=scram_coordinator()) as running:
        assert list(running.addresses) == [*kinds, "INTERNAL"]
        configs: dict[str, dict[str, Any]] = {
            "PLAINTEXT": {},
            "SSL": tls(certificates),
            "SASL_PLAINTEXT": login("bob"),
            "SASL_SSL": login("alice", "SCRAM-SHA-512")
            | {"security.protocol": "SASL_SSL", "ssl.ca.location": str(certificates / "ca.pem")},
            "INTERNAL": {},
        }
        for name, config in configs.items():
            host, port = running.addresses[name]
            admin = AdminClient({"bootstrap.servers": f"{host}:{port}", **config})
            (told,) = admin.list_topics(timeout=60).brokers.values()
            assert (told.host, told.port) == (host, port)
            assert (
                produce(RunningBroker(host, port, running.data_dir, running.addresses), "orders", **config)
                is None
            )
